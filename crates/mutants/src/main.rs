//! `cargo xtask mutants`: which changes of the memory manager does no test notice?
//!
//! A build and a test run for each mutant would take weeks. So all mutants are written into one copy of the
//! sources, each in a branch that is taken if an environment variable has its number. Mutants that do not
//! compile are removed. A first run of each test records which mutants it reaches. Then each mutant runs
//! against the tests that reach it, until one fails: those first that are fast or have caught its neighbours.
//! Results are written immediately, so a restarted run continues where the last one stopped. docs/mutants.md has
//! the results.
#![forbid(unsafe_code)]

mod build;
mod case;
mod counts;
mod list;
mod results;
mod sites;
mod suite;
mod write;

use anyhow::{Context as _, Result, bail};
use build::Workspace;
use clap::Parser;
use list::Mutant;
use results::Results;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use suite::{Outcome, Suite};

/// The configuration of the memory manager that is tested.
const FEATURES: &str = "one-thread";
/// The memory manager's own tests; those of the upper half of the kernel, and those that run it as the booted machine
/// does, but on threads of the host; those of the simulated machine; runs on it of which a test compares what they
/// count; and the random program.
const SUITES: [&str; 7] = ["mm", "kernel", "calls", "programs", "machine-sim", "counts", "chaos"];
/// The suites that are a crate's tests: its folder, and what cargo needs to know to build them.
const TESTS: [(&str, &[&str]); 5] = [
    ("mm", &["-p", "pagefold-mm", "--lib", "--features", FEATURES]),
    ("kernel", &["-p", "pagefold-kernel", "--lib"]),
    ("machine-x86", &["--manifest-path", "crates/machine-x86/Cargo.toml", "--test", "calls"]),
    ("machine-x86", &["--manifest-path", "crates/machine-x86/Cargo.toml", "--test", "programs"]),
    ("machine-sim", &["-p", "pagefold-sim", "--test", "all"]),
];

/// Whether a suite can reach mutants of a room: the memory manager's own tests reach no kernel, and the kernel's judge
/// it alone.
fn judges_room(suite: &str, room: &str) -> bool {
    match suite {
        "mm" => room != "kernel",
        "kernel" | "calls" | "programs" => room == "kernel",
        _ => true,
    }
}

/// Change the memory manager one line at a time, and see which tests notice.
#[derive(Parser)]
#[command(name = "cargo xtask mutants")]
struct Options {
    /// Parts of crates/mm/src to change, or kernel for crates/kernel; otherwise those that --from names, or
    /// rmap,space,reclaim,cache,swap,lru.
    #[arg(long, value_delimiter = ',')]
    rooms: Option<Vec<String>>,
    /// Run the tests that reach a mutant for about this many seconds; `--again` continues with the survivors.
    #[arg(long, value_name = "SECONDS", default_value_t = 1000.0)]
    budget: f64,
    /// Also run the tests of the simulated machine with survivors, each for about this many seconds.
    #[arg(long, value_name = "SECONDS")]
    simulated: Option<f64>,
    /// Also judge survivors, each for about this many seconds, by what the runs of docs/behaviour.toml count.
    #[arg(long, value_name = "SECONDS")]
    counts: Option<f64>,
    /// Also run survivors under the random program, in the fixed cases of `cargo xtask soak --cover`, each for about
    /// this many seconds.
    #[arg(long, value_name = "SECONDS")]
    chaos: Option<f64>,
    /// Mutants that run at once.
    #[arg(long, value_name = "N", default_value_t = std::thread::available_parallelism().map_or(1, usize::from))]
    threads: usize,
    /// Only mutants that cargo-mutants does not generate, or only those that it does.
    #[arg(long, value_enum)]
    only: Option<Only>,
    /// Only mutants that this file names: one on each line, in columns that tabs divide, of which the first are the
    /// file in crates/mm/src (kernel/FILE for one of crates/kernel/src), the line, and the change
    /// (docs/mutants-left.tsv).
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Finish one room before the next, in the order of `--rooms`. Otherwise any part of a run is a random sample.
    #[arg(long)]
    by_room: bool,
    /// Run only survivors again, after tests were added or with more time.
    #[arg(long)]
    again: bool,
    /// Print the results so far, and run nothing.
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
    let workspace = Workspace { work: target.join("mutants"), root };
    std::fs::create_dir_all(&workspace.work)?;
    let named = options.from.as_deref().map(keys_in).transpose()?;
    let rooms = rooms(&options, named.as_ref());
    let mut mutants = list::list(&workspace.root, &rooms)?;
    mutants.retain(|mutant| {
        let by_form = options.only.is_none_or(|only| mutant.listed == (only == Only::Listed));
        by_form && named.as_ref().is_none_or(|named| named.contains(&mutant.key))
    });
    if let Some(named) = &named {
        eprintln!("{} of {} mutants that are named are wanted, and exist", mutants.len(), named.len());
    }
    let mut results = Results::open(&workspace.work.join("results.jsonl"))?;
    let mut uncompilable = uncompilable(&workspace, &mutants)?;
    if !options.report {
        workspace.copy(&mutants)?;
        workspace.compile(&mutants, &mut uncompilable)?;
        let mut known = known_uncompilable(&workspace)?;
        known.extend(uncompilable.iter().map(|&number| mutants[number as usize - 1].key.clone()));
        std::fs::write(uncompilable_file(&workspace), serde_json::to_string(&known)?)?;
    }
    let mut order: Vec<(u32, &Mutant)> =
        (1..).zip(&mutants).filter(|(number, _)| !uncompilable.contains(number)).collect();
    if !options.report {
        let room = |mutant: &Mutant| rooms.iter().position(|room| mutant.file_is_of(room));
        order.sort_by_key(|(number, mutant)| {
            let room = room(mutant).filter(|_| options.by_room);
            (!mutant.listed, room, number.wrapping_mul(0x9e37_79b1))
        });
        let judges = judges(&workspace, &rooms, &options)?;
        run(&judges, &order, &mut results, &options)?;
    }
    let compiled: Vec<&Mutant> =
        (1..).zip(&mutants).filter(|(n, _)| !uncompilable.contains(n)).map(|(_, m)| m).collect();
    print!("{}", results.show(&compiled, uncompilable.len()));
    Ok(())
}

/// The parts to change.
fn rooms(options: &Options, named: Option<&BTreeSet<String>>) -> Vec<String> {
    let of_named = |named: &BTreeSet<String>| {
        let rooms: BTreeSet<String> = named.iter().map(|key| list::room_of(key).to_owned()).collect();
        rooms.into_iter().collect()
    };
    let usual = || ["rmap", "space", "reclaim", "cache", "swap", "lru"].map(str::to_owned).to_vec();
    options.rooms.clone().unwrap_or_else(|| named.map_or_else(usual, of_named))
}

/// The keys of the mutants that a file names.
fn keys_in(file: &Path) -> Result<BTreeSet<String>> {
    let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
    let key = |(number, line): (usize, &str)| {
        let mut columns = line.split('\t');
        let (Some(file), Some(_), Some(change)) = (columns.next(), columns.next(), columns.next()) else {
            bail!("line {number} must be FILE, LINE and CHANGE, with tabs between")
        };
        Ok(format!("{}: {change}", list::path_of(file)))
    };
    (1..).zip(text.lines()).map(key).collect::<Result<_>>().with_context(|| file.display().to_string())
}

fn uncompilable_file(workspace: &Workspace) -> PathBuf {
    workspace.work.join("refused.json")
}

/// The keys of mutants that did not compile in earlier runs.
fn known_uncompilable(workspace: &Workspace) -> Result<BTreeSet<String>> {
    match std::fs::read(uncompilable_file(workspace)) {
        Ok(text) => serde_json::from_slice(&text).context("refused.json"),
        Err(_) => Ok(BTreeSet::new()),
    }
}

/// Mutants that did not compile in earlier runs, and those that cannot be generated.
fn uncompilable(workspace: &Workspace, mutants: &[Mutant]) -> Result<BTreeSet<u32>> {
    let known = known_uncompilable(workspace)?;
    let excluded = |mutant: &Mutant| mutant.site.is_none() || known.contains(&mutant.key);
    Ok((1..).zip(mutants).filter(|(_, mutant)| excluded(mutant)).map(|(number, _)| number).collect())
}

/// Something that judges mutants.
struct Judge {
    name: &'static str,
    suite: Suite,
    /// Seconds for a mutant.
    budget: f64,
}

impl Judge {
    /// Whether it still has to judge a mutant.
    fn is_open(&self, mutant: &Mutant, results: &Results, again: bool) -> bool {
        let outcome = results.of(self.name, mutant);
        let is_wanted = judges_room(self.name, mutant.room()) && !results.is_caught(mutant);
        is_wanted && if again { results.has_survived(mutant) } else { outcome.is_none() }
    }
}

fn judges(workspace: &Workspace, rooms: &[String], options: &Options) -> Result<Vec<Judge>> {
    let mut judges = Vec::new();
    for (name, (folder, args)) in SUITES.into_iter().zip(TESTS) {
        let budget = if name == "machine-sim" { options.simulated } else { Some(options.budget) };
        let Some(budget) = budget.filter(|_| rooms.iter().any(|room| judges_room(name, room))) else {
            continue;
        };
        let directory = workspace.tree().join("crates").join(folder);
        let suite = Suite::of_tests(workspace.build_tests(args)?, directory, &workspace.work, (name, 300.0))?;
        judges.push(Judge { name, suite, budget });
    }
    let runs = options.counts.is_some() || options.chaos.is_some();
    let command = runs.then(|| workspace.build_command()).transpose()?;
    let Some(command) = command else { return Ok(judges) };
    let mut add = |name, budget, cases| -> Result<()> {
        let suite =
            Suite::of_cases(command.clone(), workspace.root.clone(), &workspace.work, (name, cases), 60.0)?;
        judges.push(Judge { name, suite, budget });
        Ok(())
    };
    if let Some(budget) = options.counts {
        add("counts", budget, counts::cases(&workspace.root)?)?;
    }
    if let Some(budget) = options.chaos {
        add("chaos", budget, workspace.cases()?)?;
    }
    Ok(judges)
}

/// Run mutants against each judge until one catches them.
fn run(judges: &[Judge], order: &[(u32, &Mutant)], results: &mut Results, options: &Options) -> Result<()> {
    let is_open =
        |judge: &Judge, mutant: &Mutant, results: &Results| judge.is_open(mutant, results, options.again);
    let todo: Vec<_> = order
        .iter()
        .filter(|(_, mutant)| judges.iter().any(|judge| is_open(judge, mutant, results)))
        .collect();
    let (next, results) = (AtomicUsize::new(0), Mutex::new(results));
    let work = &|worker: usize| -> Result<()> {
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some((number, mutant)) = todo.get(at) else { return Ok(()) };
            for judge in judges {
                if !is_open(judge, mutant, &results.lock().expect("no thread panics with it")) {
                    continue;
                }
                let outcome = judge.suite.test(*number, &mutant.file, judge.budget, worker)?;
                if matches!(outcome, Outcome::Survived(..)) {
                    println!("{}: {outcome:?} line {}, {}", judge.name, mutant.line, mutant.key);
                }
                results.lock().expect("no thread panics with it").add(judge.name, mutant, outcome)?;
            }
            if at.is_multiple_of(100) {
                eprintln!("{at} of {}", todo.len());
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..options.threads.max(1)).map(|worker| scope.spawn(move || work(worker))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("a worker does not panic"))
    })
}
