//! The random program on random machines, and the recorded programs short of memory, under the oracle until time is up.
//!
//! Each case is one command line, printed before it runs, so that whatever fails, hangs or dies can be run again alone.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// What a soak is told.
pub struct Options {
    minutes: u64,
    seed: u64,
}

impl Options {
    /// Read `--minutes N` (10) and `--seed N` (1).
    pub fn parse(words: &[&str]) -> Option<Options> {
        let mut options = Options { minutes: 10, seed: 1 };
        for pair in words.chunks(2) {
            let [name, value] = pair else { return None };
            let place = match *name {
                "--minutes" => &mut options.minutes,
                "--seed" => &mut options.seed,
                _ => return None,
            };
            *place = value.parse().ok()?;
        }
        Some(options)
    }
}

/// Run cases until time is up or one fails.
pub fn soak(options: &Options) -> ExitCode {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // Cases name files as seen from the project's directory.
    if let Err(error) = std::env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")) {
        eprintln!("xtask: cannot go to the project's directory: {error}");
        return ExitCode::FAILURE;
    }
    let built = Command::new(cargo).args(["build", "--release", "-p", "lab"]).status();
    if !built.is_ok_and(|status| status.success()) {
        return ExitCode::FAILURE;
    }
    let start = Instant::now();
    let end = start + Duration::from_secs(60 * options.minutes);
    let (mut cases, mut checked) = (0, 0);
    let traces = traces();
    for seed in options.seed.. {
        let due = traces.iter().filter(|_| seed % 200 == 100);
        for case in due.cloned().chain([random_case(seed)]) {
            if Instant::now() >= end {
                let rate = checked / start.elapsed().as_secs().max(1);
                println!(
                    "{cases} cases, {checked} accesses checked ({rate} a second), none wrong; the next seed is {seed}"
                );
                return ExitCode::SUCCESS;
            }
            println!("pagefold {case}");
            let Some(count) = run(&case) else {
                println!("FAILED: target/release/pagefold {case}");
                return ExitCode::FAILURE;
            };
            cases += 1;
            checked += count;
        }
    }
    unreachable!("time is up before the seeds are")
}

/// A program, a machine and tunables from a seed.
fn random_case(seed: u64) -> String {
    let megabytes = [2, 6, 12, 24, 40][(seed % 5) as usize];
    let swappiness = [0, 60, 100, 200][(seed / 5 % 4) as usize];
    let cluster = [0, 3][(seed / 20 % 2) as usize];
    // All flush policies in turn, each with limits from none to tight.
    let policy = ["eager", "batch", "list", "lazy", "abis", "latr"][(seed % 6) as usize];
    let age = [0, 1, 5, 100][(seed / 6 % 4) as usize];
    let pages = [1, 2, 7, 32][(seed / 24 % 4) as usize];
    let all = seed / 96 % 2;
    format!(
        "run chaos:{megabytes}M --machine random:{seed} --seed {seed} --set vm.swappiness={swappiness} \
         --set vm.page-cluster={cluster} --set tlb.unmap={policy} --set tlb.age_limit_ms={age} \
         --set tlb.unmap_pages={pages} --set tlb.pay_all={all} --verify --quiet --json"
    )
}

/// The recorded programs with much less memory than they touch, and with almost enough.
fn traces() -> Vec<String> {
    let mut cases = Vec::new();
    for trace in ["sqlite", "cc1", "redis"] {
        let file = format!("traces/{trace}.pft");
        for memory in ["45%", "60%", "90%"].into_iter().filter(|_| Path::new(&file).exists()) {
            cases.push(format!("run {file} --memory {memory} --verify --quiet --json"));
        }
    }
    cases
}

/// Run a case; returns how many accesses the oracle has judged, if none was wrong.
fn run(case: &str) -> Option<u64> {
    let mut command = Command::new("target/release/pagefold");
    let output = command.args(case.split(' ')).stdin(Stdio::null()).stderr(Stdio::inherit()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let number = |key: &str| {
        let (_, rest) = text.split_once(&format!("\"{key}\":"))?;
        rest.trim_start().split(|c: char| !c.is_ascii_digit()).next()?.parse::<u64>().ok()
    };
    (output.status.success() && number("violations") == Some(0)).then(|| number("checked")).flatten()
}
