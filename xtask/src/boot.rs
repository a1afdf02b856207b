//! The tests of the booted machine: every case is one `pagefold boot ...`, two at a time.
//!
//! Cases are built-in programs, recorded ones, and the kernel's tests of itself. Memory is always smaller than what
//! the program touches, so every case reclaims, and those on anonymous memory swap. The kernel checks every load
//! against the last store; a wrong byte, an assertion, a hang, or bad input fails a case.

use crate::kernel::{self, Kind};
use crate::knobs::FlushPolicy;
use crate::tool::{self, Tool};
use std::collections::VecDeque;
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};
use std::sync::Mutex;
use std::time::Instant;

/// Cases at a time.
const AT_ONCE: usize = 2;
/// Seconds after which a guest counts as failed: ten times what the longest takes on a busy computer.
const TIMEOUT: &str = "300";

/// Programs that touch more than memory holds, run under every flush policy on one CPU and on four.
const PROGRAMS: &[&str] = &[
    "sequential:9M:2",
    "uniform:9M:4",
    "zipf:9M:4",
    "phases:9M:2",
    "fork-write:9M",
    "fork-storm:9M",
    "map-storm:9M:4",
    "sequential-file:9M:2",
    "uniform-file:9M:4",
    "zipf-file:9M:4",
    "shared-writers:9M:4",
    "stream:12M:4",
    "read-stream:12M:2",
    "lru-file-mmap-read:40M",
    "pageout-loop:8M",
    "chaos:6M",
];

/// The kernel's tests of itself, and programs that need another machine than those above.
const OTHERS: &[&str] = &[
    "selftest --cpus 1 --memory 32M --swap 0",
    "selftest --cpus 4 --memory 32M --swap 64M",
    "selftest --cpus 2 --nodes 2 --memory 64M --swap 0",
    "selftest --cpus 4 --memory 32M --swap 0 --zram 64M",
    "selftest --cpus 4 --memory 32M --swap 64M --set zswap.enabled=1 --set zswap.compressor=lz4",
    "zipf:24M:4 --memory 16M --cpus 4 --zram 32M",
    "chaos:9M --memory 8M --cpus 4 --zram 32M --profile mglru",
    "fork-write:9M --memory 8M --cpus 4 --set zswap.enabled=1 --set zswap.compressor=lz4 --set zswap.max_pool_percent=2",
    "conformance --cpus 1 --memory 16M",
    "conformance --cpus 4 --memory 16M",
    "conformance --cpus 4 --memory 16M --zram 16M",
    "zipf:24M:8 --memory 16M --cpus 3 --nodes 2",
    "fork-storm:24M --memory 16M --cpus 8 --set tlb.unmap=lazy",
    "uniform-file:9M:8 --memory 8M --cpus 8 --set tlb.unmap=latr",
    "zipf:9M:4 --memory 8M --cpus 4 --icount --set tlb.unmap=lazy",
];

/// Recorded real programs.
const RECORDED: &[&str] = &[
    "traces/cc1.pft --memory 50% --cpus 1 --profile lazy",
    "traces/sqlite.pft --memory 50% --cpus 4 --profile abis+file.max_order=9",
];

/// Programs with folios of many pages and with 2 MiB entries, under the policies that differ most, on four CPUs.
const LARGE: &[&str] = &[
    "pageout-loop:8M --memory 16M --set file.max_order=9",
    "zipf-file:24M:4 --memory 16M --set file.max_order=9",
    "stream:24M:4 --memory 16M --set file.max_order=9",
    "shared-writers:9M:4 --memory 8M --set file.max_order=4",
    "chaos:12M --memory 16M --set file.max_order=9 --set shmem.max_order=9",
    "zipf:9M:4 --memory 8M --set hugepages-16kB.enabled=always --set hugepages-64kB.enabled=always",
    "zipf-hugepage:9M:4 --memory 16M --set hugepages-64kB.enabled=madvise --set hugepages-2048kB.enabled=madvise",
    "fork-write:9M --memory 8M --set hugepages-64kB.enabled=always --set hugepages-2048kB.enabled=always",
    "lru-file-mmap-read:160M --memory 128M --set thp.file_pmd=1 --set thp.khugepaged=1 --set \
     khugepaged.scan_sleep_millisecs=5 --set khugepaged.alloc_sleep_millisecs=600000",
    "chaos:96M --memory 96M --set file.max_order=9 --set shmem.max_order=9 --set thp.file_pmd=1 --set \
     hugepages-2048kB.enabled=always",
    "fork-write:48M --memory 64M --set hugepages-2048kB.enabled=always --set thp.khugepaged=1 --set \
     khugepaged.scan_sleep_millisecs=2 --set khugepaged.alloc_sleep_millisecs=2",
];

/// Policies that differ in what they defer.
const DEFERRING: [&str; 3] = ["batch", "lazy", "latr"];

/// Deliberate races, on four CPUs, under those policies.
const SCENARIOS: &[&str] = &[
    "write-fault",
    "pwrite",
    "map-over",
    "fork-writers",
    "truncate",
    "dontneed",
    "free",
    "reclaim",
    "mprotect",
    "mremap",
    "swap-fork",
];

/// Two tiers, with demotion and promotion by hint faults, on four CPUs, under the same policies: each program with the
/// counters that it must raise, besides being correct.
const TIERED: &[(&str, &[&str])] = &[
    ("zipf:24M:4 --memory 24M", &[DEMOTED, PROMOTED, HINTED]),
    ("phases:24M:4 --memory 24M --profile mglru", &[DEMOTED, HINTED]),
    ("shared-writers:12M:4 --memory 24M", &[DEMOTED, HINTED]),
    ("fork-write:24M --memory 24M", &[DEMOTED, PROMOTED, HINTED]),
    // Nothing tells which CPUs use a file that is only read.
    ("stream:24M:4 --memory 24M --set file.max_order=4", &[DEMOTED]),
    ("zipf:24M:4 --memory 24M --set hugepages-64kB.enabled=always", &[DEMOTED, HINTED]),
    ("chaos:24M --memory 24M", &[]),
];
/// The second node has twice the memory of the first.
const TIERS: &str = "--tiers 1:2 --cpus 4 --set numa.demotion_enabled=1 --set kernel.numa_balancing=2 --set \
                     numa_balancing.scan_delay_ms=50 --set numa_balancing.scan_period_min_ms=50";

/// Two equal nodes: pages move to the node that uses them.
const BALANCED: &str = "--nodes 2 --cpus 4 --set kernel.numa_balancing=1 --set numa_balancing.scan_delay_ms=50 --set \
                        numa_balancing.scan_period_min_ms=50";
const ALIKE: &str = "zipf:24M:4 --memory 24M";

/// The seeds of a case that must raise counters: it is booted until it has.
const SEEDS: std::ops::RangeInclusive<u32> = 1..=5;

/// Beginnings of the names of counters that must be raised.
const DEMOTED: &str = "pgdemote_";
const PROMOTED: &str = "pgpromote_success ";
const HINTED: &str = "numa_hint_faults ";
const MOVED: &str = "numa_pages_migrated ";

/// Control groups that are smaller than what their processes use.
const GROUPED: [&str; 2] = [
    "zipf:9M:4 --memory 32M --cpus 4 --group web:memory.max=6M",
    "fork-write:9M --memory 32M --cpus 4 --group web:memory.max=1M,processes=1- --group rest:processes=0",
];

/// A case that drops one of the flushes requested of other CPUs; the checker must find at least one of these drops.
/// It finds a drop only if the CPU uses the stale translation before it loses it anyhow. On a busy host it finds
/// about half of these, and six in a row were seen to be missed; so each drop is tried several times.
const FAULTY: &str = "scenario:dontneed --memory 16M --cpus 4";
const DROPS: std::ops::RangeInclusive<u32> = 1..=6;
const TRIES: usize = 8;

/// Says what is wrong with a case; `None`: nothing.
type Judge = fn(&Output) -> Option<String>;

/// One boot, or several of which one must satisfy the judge.
struct Case {
    /// The words after `pagefold boot`, one line per boot. The first boot that is as it should be ends the case.
    boots: Vec<String>,
    judge: Judge,
    /// Beginnings of the names of counters that must not be 0.
    moved: &'static [&'static str],
}

impl Case {
    fn good(boot: String) -> Case {
        Case { boots: vec![boot], judge: ended_well, moved: &[] }
    }

    /// A case that must have raised these counters with one of some seeds: what is scanned in half a second of the
    /// host's time differs from boot to boot.
    fn moving(boot: String, moved: &'static [&'static str]) -> Case {
        let boots = SEEDS.map(|seed| format!("{boot} --all --seed {seed}")).collect();
        Case { boots, judge: ended_well, moved }
    }

    /// The complaint about the first counter that a boot did not raise, if there is one.
    fn missing(&self, output: &Output) -> Option<String> {
        let said = String::from_utf8_lossy(&output.stdout);
        let counted = |name: &&&str| {
            let mut rows = said.lines().filter(|line| line.starts_with(**name));
            rows.any(|row| row.split_whitespace().nth(1).is_some_and(|count| count != "0"))
        };
        let missing = self.moved.iter().find(|name| !counted(name))?;
        Some(format!("it counted no {}", missing.trim_end()))
    }
}

fn ended_well(output: &Output) -> Option<String> {
    (!output.status.success()).then(|| format!("ended with {}", output.status))
}

/// The complaint if nothing was reclaimed from the group (eighth column of its row; two blanks separate columns).
fn reclaimed_group(output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stdout);
    let row = said.lines().find(|line| line.starts_with("web "));
    let stolen = row.and_then(|row| row.split("  ").filter(|cell| !cell.is_empty()).nth(7));
    let reclaimed = stolen.is_some_and(|count| count.trim() != "0");
    ended_well(output)
        .or_else(|| (!reclaimed).then(|| format!("nothing was reclaimed from the group: {row:?}")))
}

/// The complaint if the checker did not find a lost flush, which makes a load return an old value.
fn found_out(output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    let found = output.status.code() == Some(1) && said.contains("the checker found");
    (!found).then(|| "a kernel that loses a flush was not found out".to_owned())
}

/// All cases whose command lines contain `filter`.
fn cases(faulty: &Path, filter: &str) -> Vec<Case> {
    let mut cases: Vec<Case> =
        OTHERS.iter().chain(RECORDED).map(|case| Case::good((*case).to_owned())).collect();
    for program in PROGRAMS {
        for &policy in FlushPolicy::WORDS {
            for cpus in [1, 4] {
                cases.push(Case::good(format!(
                    "{program} --memory 8M --cpus {cpus} --set tlb.unmap={policy}"
                )));
            }
        }
    }
    for grouped in GROUPED {
        cases.push(Case { judge: reclaimed_group, ..Case::good(grouped.to_owned()) });
    }
    // The generational policy, with deferred and immediate flushes.
    for program in PROGRAMS {
        for (cpus, policy) in [(1, "batch"), (4, "lazy")] {
            cases.push(Case::good(format!(
                "{program} --memory 8M --cpus {cpus} --profile mglru --set tlb.unmap={policy}"
            )));
        }
    }
    for program in LARGE {
        for policy in DEFERRING {
            cases.push(Case::good(format!("{program} --cpus 4 --set tlb.unmap={policy}")));
        }
    }
    for scenario in SCENARIOS {
        cases.extend(DEFERRING.map(|policy| {
            Case::good(format!("scenario:{scenario} --memory 16M --cpus 4 --set tlb.unmap={policy}"))
        }));
    }
    for policy in DEFERRING {
        let tiered =
            |&(program, moved)| Case::moving(format!("{program} {TIERS} --set tlb.unmap={policy}"), moved);
        cases.extend(TIERED.iter().map(tiered));
        cases.push(Case::moving(format!("{ALIKE} {BALANCED} --set tlb.unmap={policy}"), &[HINTED, MOVED]));
    }
    let lost = |number| format!("{FAULTY} --drop {number} --kernel {}", faulty.display());
    let boots = std::iter::repeat_n(DROPS, TRIES).flatten().map(lost).collect();
    cases.push(Case { boots, judge: found_out, moved: &[] });
    cases.retain(|case| case.boots[0].contains(filter));
    cases
}

/// Run `cargo xtask boot-test [FILTER]`.
pub fn test(filter: &str) -> ExitCode {
    tool::provide(&[Tool::System], false);
    if !Tool::System.is_there() {
        println!("boot-test: skipped, because {} is missing", Tool::System.package());
        return ExitCode::SUCCESS;
    }
    // Cases name files relative to the project's directory.
    if let Err(error) = std::env::set_current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")) {
        eprintln!("xtask: cannot go to the project's directory: {error}");
        return ExitCode::FAILURE;
    }
    let images = (kernel::image(Kind::Faulty), kernel::image(Kind::Ordinary));
    let (Some(pagefold), (Some(faulty), Some(_))) = (crate::built::pagefold(), images) else {
        return ExitCode::FAILURE;
    };
    run(&pagefold, cases(&faulty, filter))
}

fn run(pagefold: &Path, cases: Vec<Case>) -> ExitCode {
    let (start, all) = (Instant::now(), cases.len());
    let queue = Mutex::new(VecDeque::from(cases));
    let failed = Mutex::new(Vec::new());
    let work = || {
        while let Some(case) = queue.lock().expect("no thread panics with it").pop_front() {
            let begin = Instant::now();
            let wrong = boot(pagefold, &case);
            let word = if wrong.is_some() { "FAILED" } else { "ok" };
            println!("{word:<6} {:>4} s  {}", begin.elapsed().as_secs(), case.boots[0]);
            if let Some((why, said)) = wrong {
                eprint!("{said}");
                let again = case.boots.last().map_or("", String::as_str);
                let again = format!("{} boot {again} --timeout {TIMEOUT}", pagefold.display());
                failed.lock().expect("no thread panics with it").push(format!("{why}; again: {again}"));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let failed = failed.into_inner().expect("no thread panics with it");
    failed.iter().for_each(|case| println!("FAILED: {case}"));
    println!("{} of {all} boots ok in {} s", all - failed.len(), start.elapsed().as_secs());
    if failed.is_empty() && all > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The complaint about a case, and its standard error.
fn boot(pagefold: &Path, case: &Case) -> Option<(String, String)> {
    let mut wrong = None;
    for boot in &case.boots {
        let mut command = Command::new(pagefold);
        command.arg("boot").args(boot.split(' ')).args(["--quiet", "--timeout", TIMEOUT]);
        match command.stdin(Stdio::null()).output() {
            Ok(output) => {
                let complaint = (case.judge)(&output);
                // Another seed excuses only a counter that was not raised.
                let is_final = complaint.is_some() && !case.moved.is_empty();
                let why = complaint.or_else(|| case.missing(&output))?;
                wrong = Some((why, String::from_utf8_lossy(&output.stderr).into_owned()));
                if is_final {
                    return wrong;
                }
            }
            Err(error) => return Some((format!("cannot run it: {error}"), String::new())),
        }
    }
    wrong
}
