//! `cargo xtask mutants`: which changes of the memory manager does no test notice?
//!
//! A build and a test run for each mutant would take weeks. So all are written into one copy of the sources, each in a
//! branch that is taken when an environment variable has its number; what does not compile is taken out; a first run of
//! each test tells which mutants it reaches; then each mutant runs against the tests that reach it, the fastest first,
//! until one fails. Results are written as they come: stopped and started again, the program goes on where it was.
//! docs/mutants.md has the results.
#![forbid(unsafe_code)]

mod build;
mod list;
mod places;
mod results;
mod suite;
mod write;

use anyhow::{Context as _, Result};
use build::Place;
use clap::Parser;
use list::Mutant;
use results::Results;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use suite::{Outcome, Suite};

/// The form of the memory manager that is tested.
const FEATURES: &str = "one-thread";
/// The memory manager's own tests, and those of the simulated machine.
const SUITES: [&str; 2] = ["mm", "simulator"];

/// Break the memory manager one line at a time, and see which tests notice.
#[derive(Parser)]
#[command(name = "cargo xtask mutants")]
struct Options {
    /// Parts of crates/mm/src to break.
    #[arg(long, value_delimiter = ',', default_value = "rmap,space,reclaim,cache,swap,lru")]
    rooms: Vec<String>,
    /// Run the tests that reach a mutant for not much longer than so many seconds; `--again` takes those up that
    /// survived.
    #[arg(long, value_name = "SECONDS", default_value_t = 1000.0)]
    budget: f64,
    /// Run survivors against the tests of the simulated machine, too, each for so many seconds at most.
    #[arg(long, value_name = "SECONDS")]
    simulator: Option<f64>,
    /// Only tests of the simulated machine whose names contain one of these.
    #[arg(long, value_delimiter = ',')]
    filter: Vec<String>,
    /// Only what is not on the list of cargo-mutants, or only what is.
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// Run only those that survived, again: tests were added, or more time is given.
    #[arg(long)]
    again: bool,
    /// Say what is known, and run nothing.
    #[arg(long)]
    report: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    Listed,
    Ours,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let place = Place { work: target.join("mutants"), root };
    std::fs::create_dir_all(&place.work)?;
    let mutants = list::list(&place.root, &options.rooms)?;
    let mut results = Results::open(&place.work.join("results.jsonl"))?;
    let mut refused = refused(&place, &mutants)?;
    if !options.report {
        place.copy(&mutants)?;
        place.compile(&mutants, &mut refused)?;
        let keys: Vec<&str> =
            refused.iter().map(|&number| mutants[number as usize - 1].key.as_str()).collect();
        std::fs::write(refused_file(&place), serde_json::to_string(&keys)?)?;
    }
    // In an order in which a part tells of the whole.
    let mut order: Vec<(u32, &Mutant)> =
        (1..).zip(&mutants).filter(|(number, _)| !refused.contains(number)).collect();
    if !options.report {
        order.sort_by_key(|(number, mutant)| (!mutant.listed, number.wrapping_mul(0x9e37_79b1)));
        if let Some(only) = options.only {
            order.retain(|(_, mutant)| mutant.listed == (only == Only::Listed));
        }
        run_own(&place, &order, &mut results, &options)?;
        if let Some(budget) = options.simulator {
            run_simulator(&place, &order, &mut results, &options, budget)?;
        }
    }
    let compiled: Vec<&Mutant> =
        (1..).zip(&mutants).filter(|(n, _)| !refused.contains(n)).map(|(_, m)| m).collect();
    print!("{}", results.show(&compiled, refused.len()));
    Ok(())
}

fn refused_file(place: &Place) -> PathBuf {
    place.work.join("refused.json")
}

/// What did not compile last time, and what cannot be made.
fn refused(place: &Place, mutants: &[Mutant]) -> Result<BTreeSet<u32>> {
    let known: BTreeSet<String> = match std::fs::read(refused_file(place)) {
        Ok(text) => serde_json::from_slice(&text).context("refused.json")?,
        Err(_) => BTreeSet::new(),
    };
    let unmade = |mutant: &Mutant| mutant.place.is_none() || known.contains(&mutant.key);
    Ok((1..).zip(mutants).filter(|(_, mutant)| unmade(mutant)).map(|(number, _)| number).collect())
}

fn run_own(place: &Place, order: &[(u32, &Mutant)], results: &mut Results, options: &Options) -> Result<()> {
    let open = |results: &Results, mutant: &Mutant| match results.of(SUITES[0], mutant) {
        Some(Outcome::Survived(..)) => options.again && !results.is_caught(mutant),
        Some(_) => false,
        None => !options.again,
    };
    let todo: Vec<_> = order.iter().filter(|(_, mutant)| open(results, mutant)).collect();
    if todo.is_empty() {
        return Ok(());
    }
    let program = place.build_tests(&["-p", "mm", "--lib", "--features", FEATURES])?;
    let suite = Suite::record(program, place.tree().join("crates/mm"), &place.work, &[], 300.0)?;
    run(SUITES[0], &suite, &todo, results, options.budget)
}

fn run_simulator(
    place: &Place,
    order: &[(u32, &Mutant)],
    results: &mut Results,
    options: &Options,
    budget: f64,
) -> Result<()> {
    let open = |results: &Results, mutant: &Mutant| {
        let survived = matches!(results.of(SUITES[0], mutant), Some(Outcome::Survived(..)));
        survived && (options.again || results.of(SUITES[1], mutant).is_none()) && !results.is_caught(mutant)
    };
    let todo: Vec<_> = order.iter().filter(|(_, mutant)| open(results, mutant)).collect();
    if todo.is_empty() {
        return Ok(());
    }
    let program = place.build_tests(&["-p", "machine-sim", "--test", "all"])?;
    let directory = place.tree().join("crates/machine-sim");
    let suite = Suite::record(program, directory, &place.work, &options.filter, budget)?;
    run(SUITES[1], &suite, &todo, results, budget)
}

fn run(
    name: &str,
    suite: &Suite,
    todo: &[&(u32, &Mutant)],
    results: &mut Results,
    budget: f64,
) -> Result<()> {
    for (done, (number, mutant)) in todo.iter().enumerate() {
        let outcome = suite.judge(*number, budget)?;
        if matches!(outcome, Outcome::Survived(..)) {
            println!("{outcome:?} line {}, {}", mutant.line, mutant.key);
        }
        if done % 100 == 0 {
            eprintln!("{name}: {done} of {}", todo.len());
        }
        results.add(name, mutant, outcome)?;
    }
    Ok(())
}
