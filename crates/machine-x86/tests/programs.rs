//! Every program, with system calls, kernel, checker and memory manager, on a machine on the host.

mod hosted;

use abi::{AccessKind, Call, Map, MapSource};
use hosted::{Report, Setup, run};
use kernel::GroupOutcome;
use machine_x86::user::scenarios;
use mm::knobs::{FlushPolicy, Knob};
use program::{apps, builtin};
use trace::Image;
use trace::codec::Encoder;
use trace::event::{Event, Run, ThreadId};
use trace::header::{Counts, FileInfo, Header, Place, ProcessInfo, ThreadInfo};

/// Values of `tlb.unmap`.
const POLICIES: std::ops::Range<u64> = 0..FlushPolicy::COUNT;

/// Unexpected signals: all but the kills of processes whose control groups had no room.
fn unexpected(report: &Report) -> Vec<&str> {
    let of_group = |text: &String| text.lines().next().is_some_and(|first| first.contains("a control group"));
    let limited = report.ooms.iter().all(of_group);
    let killed = |signal: &&str| signal.ends_with("SIGKILL: out of memory");
    report.signals.iter().map(String::as_str).filter(|signal| !(limited && killed(signal))).collect()
}

fn expect_success(setup: &Setup) -> Report {
    let report = run(setup);
    let Setup { program, seed, unmap, .. } = setup;
    assert_eq!(report.violations, [] as [String; 0], "{program}, seed {seed}, policy {unmap}");
    assert_eq!(unexpected(&report), [] as [&str; 0], "{program}, seed {seed}, policy {unmap}");
    assert_eq!(report.totals.violations, 0);
    assert!(report.totals.checked > 0, "{program}");
    report
}

#[test]
fn accesses_and_progress_match_the_program() {
    let report = expect_success(&Setup::new("sequential:1048576:2"));
    assert_eq!(report.totals.tasks, 2);
    assert_eq!(report.totals.accesses, 2 * 256 * 512);
    assert_eq!(report.totals.progress, 2 * 256);
    assert!(report.totals.ended_at > 0);
}

#[test]
fn unchecked_programs_make_the_same_accesses() {
    for name in ["zipf:1048576:2", "fork-storm:1048576:2", "map-storm:1048576:1"] {
        let checked = expect_success(&Setup::new(name)).totals;
        let totals = run(&Setup { check: false, ..Setup::new(name) }).totals;
        assert_eq!((totals.accesses, totals.progress), (checked.accesses, checked.progress), "{name}");
        assert_eq!(totals.checked, 0);
    }
}

#[test]
fn every_built_in_program_reads_what_it_wrote() {
    for &(name, _) in builtin::LIST {
        expect_success(&Setup::new(&format!("{name}:1048576:3")));
    }
}

#[test]
fn every_application_reads_what_it_wrote() {
    for &(name, _) in apps::LIST {
        expect_success(&Setup::new(&format!("{name}:2097152:3")));
    }
}

#[test]
fn programs_larger_than_memory_read_what_they_wrote() {
    for name in ["uniform", "zipf-file", "shared-writers", "read-stream", "fork-write"] {
        let setup = Setup { memory: 4 << 20, ..Setup::new(&format!("{name}:5242880:3")) };
        let report = expect_success(&setup);
        assert!(report.stats["pgsteal_kswapd"] + report.stats["pgsteal_direct"] > 0, "{name}");
    }
    let setup = Setup { memory: 4 << 20, cpus: 2, ..Setup::new("lru-file-mmap-read:12582912") };
    assert_eq!(expect_success(&setup).totals.tasks, 3);
}

/// A group has the right processes, and does not exceed its limit.
#[test]
fn programs_begin_in_control_groups() {
    let group = |text: &str| text.parse().unwrap();
    let setup = |program: &str| Setup { memory: 32 << 20, ..Setup::new(program) };
    let one = expect_success(&Setup {
        groups: vec![group("web:memory.max=2097152,processes=0")],
        ..setup("zipf:4194304:3")
    });
    let forked = expect_success(&Setup {
        groups: vec![group("all:processes=0"), group("all/child:memory.max=1048576,processes=1-")],
        ..setup("fork-write:4194304:2")
    });
    let [web, all, child] = [&one.groups[0], &forked.groups[0], &forked.groups[1]];
    assert_eq!([web, all, child].map(|group| group.name.as_str()), ["web", "all", "all/child"]);
    let has = |of: &[(&str, u64)], name| of.iter().any(|&(known, _)| known == name);
    assert!(has(&web.events, "max") && has(&web.stat, "pgfault"), "{web:?}");
    assert!(!has(&web.events, "pgfault") && !has(&web.stat, "max"), "{web:?}");
    let value = |group: &GroupOutcome, name| group.value(name).unwrap();
    for (group, max) in [(web, 2 << 20), (child, 1 << 20)] {
        assert!(value(group, "memory.peak") <= max && value(group, "memory.peak") > max / 2, "{group:?}");
        assert!(value(group, "pgsteal") > 0, "{group:?}");
    }
    assert!(value(all, "pgfault") > value(child, "pgfault"), "{all:?}, {child:?}");
}

/// A trace of one process with these events of its threads.
fn trace_of(threads: &[&[Event]]) -> &'static [u8] {
    let mut image = Image::default();
    let mut header = Header {
        files: vec![FileInfo { name: "data".into(), size: 10 << 12, place: Place::Regular }],
        processes: vec![ProcessInfo { forked_by: None, first_thread: ThreadId(0), epochs: 2 }],
        ..Header::default()
    };
    for (number, events) in threads.iter().enumerate() {
        let (mut encoder, mut block) = (Encoder::default(), Vec::new());
        events.iter().for_each(|event| encoder.push(event));
        encoder.finish(&mut block);
        let frames = vec![image.push(events.len() as u32, &block).unwrap()];
        let started_by = (number > 0).then_some(ThreadId(0));
        let counts = Counts { events: events.len() as u64, ..Counts::default() };
        header.threads.push(ThreadInfo { process: 0, started_by, counts, frames });
    }
    image.finish(&header, &[]).leak()
}

#[test]
fn a_trace_reads_what_it_wrote() {
    let touch = |page, mode| Event::Run(Run { page, count: 3, mode });
    let map = |epoch, page: u64, source| {
        Event::mapped(epoch, page << 12, Map { source, ..Map::anonymous(64 << 12) })
    };
    let file = MapSource::File { fd: 0, offset: 0, shared: true };
    let mut first = vec![map(1, 0x5000, MapSource::Anonymous), map(2, 0x7_ffff_0000, file)];
    first.push(Event::call(Call::Spawn(1)));
    let mut second = vec![Event::Sync { epoch: 2 }];
    for page in 0..10 {
        let (own, of_file) = (0x5000 + page, 0x7_ffff_0000 + page);
        first.extend([
            touch(own, AccessKind::Store),
            touch(of_file, AccessKind::Store),
            touch(own, AccessKind::Load),
        ]);
        second.extend([
            touch(of_file, AccessKind::Load),
            touch(own, AccessKind::Load),
            touch(of_file, AccessKind::Store),
        ]);
    }
    first.push(touch(0x9000, AccessKind::Load));
    let trace = trace_of(&[&first, &second]);
    for policy in POLICIES {
        let report = expect_success(&Setup { trace: Some(trace), unmap: policy, ..Setup::new("trace") });
        // Three accesses failed and were left out.
        assert_eq!((report.totals.tasks, report.totals.accesses, report.totals.progress), (2, 183, 180));
        let [note] = &report.notes[..] else { panic!("{:?}", report.notes) };
        assert!(
            note.contains("thread 0")
                && note.contains("3 of the trace's accesses")
                && note.contains("0x9000000"),
            "{note}"
        );
    }
}

#[test]
fn the_random_program_passes() {
    for policy in POLICIES {
        for seed in 0..3 {
            let setup = Setup { seed, unmap: policy, memory: 8 << 20, ..Setup::new("chaos:2000000") };
            expect_success(&Setup { asids: if seed == 0 { 0 } else { 6 }, ..setup });
        }
    }
}

/// Anonymous memory and files in folios of 2 MiB, mapped by one entry if possible.
#[test]
fn folios_of_two_mebibytes_are_mapped_by_one_entry() {
    let large = [
        (Knob::HugepagesEnabled2048, 2),
        (Knob::FileMaxOrder, 9),
        (Knob::ShmemMaxOrder, 9),
        (Knob::ThpFilePmd, 1),
        (Knob::ReadAheadKb, 2048),
    ];
    let (mut anonymous, mut files) = (0, 0);
    for program in [
        "zipf:6291456:3",
        "fork-write:6291456:2",
        "stream:25165824:2",
        "map-storm:1048576:3",
        "chaos:8000000",
    ] {
        for policy in [1, 3] {
            let setup =
                Setup { unmap: policy, memory: 48 << 20, knobs: large.to_vec(), ..Setup::new(program) };
            let report = expect_success(&setup);
            anonymous += report.stats["thp_fault_alloc"];
            files += report.stats["thp_file_mapped"];
        }
    }
    assert!(anonymous > 5 && files > 0, "{anonymous} of anonymous memory, {files} of files");
}

#[test]
fn every_scenario_passes() {
    for (i, &(name, _)) in (0..).zip(scenarios::LIST) {
        for policy in [FlushPolicy::Lazy.value(), i % POLICIES.end] {
            expect_success(&Setup {
                unmap: policy,
                memory: 4 << 20,
                ..Setup::new(&format!("scenario:{name}"))
            });
        }
    }
}

#[test]
fn omitted_flushes_are_found() {
    for (name, policy) in
        [("write-fault", 3), ("pwrite", 3), ("fork-writers", 3), ("free", 3), ("reclaim", 3)]
    {
        let setup = Setup { ignore_flushes: true, unmap: policy, ..Setup::new(&format!("scenario:{name}")) };
        let report = run(&setup);
        assert!(report.totals.violations > 0, "{name}");
        assert!(report.violations[0].contains("expected"), "{:?}", report.violations);
    }
}

#[test]
fn an_oom_kill_ends_the_run_with_a_signal() {
    let setup = Setup { memory: 4 << 20, swap: 0, ..Setup::new("sequential:8388608:3") };
    let report = run(&setup);
    assert_eq!(report.violations, [] as [String; 0]);
    assert!(unexpected(&report).iter().any(|signal| signal.contains("SIGKILL")), "{:?}", report.signals);
}

/// A setup from the environment, by default a small one: `PROGRAM=scenario:mremap SEEDS=100 POLICY=3 cargo
/// test --test programs -- --show-output setup_from`.
#[test]
fn setup_from_the_environment_passes() {
    let number = |name: &str, default: u64| {
        std::env::var(name).ok().map_or(default, |text| text.parse().expect("the variable must be a number"))
    };
    let program = std::env::var("PROGRAM").unwrap_or_else(|_| "chaos:1000000".into());
    for seed in number("SEED", 0)..number("SEED", 0) + number("SEEDS", 1) {
        let setup = Setup {
            seed,
            cpus: number("CPUS", 4) as usize,
            memory: number("MEMORY", 8 << 20),
            unmap: number("POLICY", 3),
            ignore_flushes: number("DEAF", 0) != 0,
            ..Setup::new(&program)
        };
        // With CPUs that ignore flushes, violations are printed but not checked.
        let report = if setup.ignore_flushes { run(&setup) } else { expect_success(&setup) };
        println!("seed {seed}: {:?}", report.totals);
    }
}
