//! The random program on random machines, and recorded and built-in programs short of memory, under the oracle until time is
//! up, with all flush policies in turn.
//!
//! Each case is one command line, printed before it runs, so that whatever fails, hangs or dies can be run again alone.

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
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
    let (next, cases, checked) = (AtomicU64::new(options.seed), AtomicU64::new(0), AtomicU64::new(0));
    let failed = AtomicBool::new(false);
    let work = || {
        while Instant::now() < end && !failed.load(Relaxed) {
            let case = case(next.fetch_add(1, Relaxed));
            println!("pagefold {case}");
            match run(&case) {
                Some(count) => {
                    cases.fetch_add(1, Relaxed);
                    checked.fetch_add(count, Relaxed);
                }
                None => {
                    println!("FAILED: target/release/pagefold {case}");
                    failed.store(true, Relaxed);
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    if failed.into_inner() {
        return ExitCode::FAILURE;
    }
    let checked = checked.into_inner();
    println!(
        "{} cases, {checked} accesses checked ({} a second), none wrong; the next seed is {}",
        cases.into_inner(),
        checked / start.elapsed().as_secs().max(1),
        next.into_inner()
    );
    ExitCode::SUCCESS
}

/// The case of a seed.
fn case(seed: u64) -> String {
    let program = match seed % 4 {
        0 | 1 => random_program(seed),
        2 => recorded_program(seed / 4),
        _ => built_in_program(seed / 4),
    };
    // All flush policies in turn, each with limits from none to tight. That no policy flushes less than is safe is checked too.
    let policy = ["eager", "batch", "list", "lazy", "abis", "latr", "lazy"][(seed % 7) as usize];
    let age = [0, 1, 5, 100][(seed / 7 % 4) as usize];
    let pages = [1, 2, 7, 32][(seed / 28 % 4) as usize];
    let all = seed / 14 % 2;
    format!(
        "run {program} --seed {seed} --set tlb.unmap={policy} --set tlb.age_limit_ms={age} \
         --set tlb.unmap_pages={pages} --set tlb.pay_all={all}{} --verify --bound --quiet --json",
        folios(seed)
    )
}

/// Sizes of folios: small, large ones of files, of anonymous memory, and all with 2 MiB entries and khugepaged.
fn folios(seed: u64) -> &'static str {
    const ALL: &str = " --set file.max_order=9 --set shmem.max_order=9 --set queue.read_ahead_kb=2048 --set thp.file_pmd=1 \
                       --set hugepages-64kB.enabled=always --set hugepages-2048kB.enabled=always --set thp.khugepaged=1 \
                       --set khugepaged.scan_sleep_millisecs=3 --set khugepaged.alloc_sleep_millisecs=3";
    match seed / 2 % 4 {
        0 => "",
        1 => " --set file.max_order=5 --set shmem.max_order=4 --set rmap.batch=0",
        2 => " --set hugepages-16kB.enabled=always --set hugepages-64kB.enabled=always",
        _ => ALL,
    }
}

/// The random program on a random machine, which also has all its structures checked after each step.
fn random_program(seed: u64) -> String {
    let megabytes = [2, 6, 12, 24, 40][(seed % 5) as usize];
    let swappiness = [0, 60, 100, 200][(seed / 5 % 4) as usize];
    let cluster = [0, 3][(seed / 20 % 2) as usize];
    format!(
        "chaos:{megabytes}M --machine random:{seed} --set vm.swappiness={swappiness} --set vm.page-cluster={cluster}"
    )
}

/// A recorded program with much less memory than it touches, or with almost enough.
fn recorded_program(seed: u64) -> String {
    let trace = ["sqlite", "redis", "cc1"][(seed % 3) as usize];
    let memory = [45, 60, 90, 52, 75][(seed / 3 % 5) as usize];
    let machine = ["laptop", "compact-8"][(seed / 15 % 2) as usize];
    format!("traces/{trace}.pft --memory {memory}% --machine {machine}")
}

/// A built-in program in several threads or processes.
fn built_in_program(seed: u64) -> String {
    const PROGRAMS: [&str; 8] = [
        "uniform-file:48M:8",
        "shared-writers:48M",
        "zipf:48M:8",
        "fork-write:48M",
        "stream:96M:6",
        "map-storm:48M:8",
        "fork-storm:48M",
        "uniform:48M:16",
    ];
    let program = PROGRAMS[(seed % 8) as usize];
    let memory = [40, 55, 70][(seed / 8 % 3) as usize];
    let machine = ["compact-8", "laptop", "icelake-96"][(seed / 24 % 3) as usize];
    format!("{program} --memory {memory}% --machine {machine}")
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
