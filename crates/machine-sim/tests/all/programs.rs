//! Every built-in program on small machines under the oracle.

use super::acts::{MIB, outcome, stolen, unharmed};
use machine_sim::{MachineSpec, Outcome, RunConfig, RunError, run};
use mm::stat::Stat;
use program::builtin;

fn config(machine: &str, memory: u64) -> RunConfig {
    let machine = MachineSpec::preset(machine).unwrap();
    RunConfig { memory: Some(memory), verify: true, ..RunConfig::new(machine) }
}

#[test]
fn built_in_programs_run_with_enough_memory() {
    for (name, _) in builtin::LIST {
        let program = builtin::from_name(name, 8 * MIB).unwrap();
        let outcome = unharmed(&config("small", 64 * MIB), &program);
        assert_eq!(outcome.oom, [], "{name}");
        assert!(outcome.oracle.checked > 1000 && outcome.progress > 1000 && outcome.nanos > 0, "{name}");
    }
}

#[test]
fn built_in_programs_run_with_little_memory() {
    for (name, _) in builtin::LIST {
        // Enough passes that most pages are written: anonymous memory that is only read takes no pages.
        let program = builtin::from_name(name, 48 * MIB).unwrap().with_passes(12);
        let stolen = stolen(&unharmed(&config("small", 32 * MIB), &program));
        // The others use fewer pages than there are.
        let uses_all = ["sequential", "uniform", "sequential-file", "uniform-file", "stream", "read-stream"];
        assert!(stolen > 0 || !uses_all.contains(name), "{name} must be short of memory");
    }
}

#[test]
fn threads_share_an_address_space() {
    for (name, _) in builtin::LIST {
        let program = builtin::from_name(name, 40 * MIB).unwrap().with_threads(6);
        assert!(unharmed(&config("laptop", 32 * MIB), &program).tasks >= 6, "{name}");
    }
}

#[test]
fn without_hardware_young_bits_programs_fault_more() {
    let program = builtin::from_name("uniform", 48 * MIB).unwrap().with_passes(12);
    let mut config = config("small", 32 * MIB);
    let with = outcome(&config, &program);
    config.machine.set_hw_young(false, false);
    let without = outcome(&config, &program);
    assert!(without.stat(Stat::Pgfault) > with.stat(Stat::Pgfault));
    assert_eq!(without.progress, with.progress);
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let program = builtin::from_name("uniform", 40 * MIB).unwrap().with_threads(5);
    let mut config = config("laptop", 32 * MIB);
    let (first, again) = (outcome(&config, &program), outcome(&config, &program));
    assert_eq!(first, again);
    let booted_again = outcome(&RunConfig { boot: 1, ..config.clone() }, &program);
    assert_ne!(first.nanos, booted_again.nanos, "devices answer at other times");
    assert_eq!((first.accesses, first.progress), (booted_again.accesses, booted_again.progress));
    config.seed = 2;
    assert_ne!(first.nanos, outcome(&config, &program).nanos);
    // The oracle changes nothing.
    config.seed = 1;
    config.verify = false;
    let unwatched = outcome(&config, &program);
    assert_eq!((unwatched.nanos, unwatched.stats), (first.nanos, first.stats));
}

#[test]
fn bad_input_is_no_failed_run() {
    let program = builtin::from_name("uniform", MIB).unwrap();
    let error = run(&config("small", MIB - 1), &program).unwrap_err();
    assert_eq!((error.exit_code(), error.to_string().contains("at least")), (2, true));
    let mut config = config("small", 64 * MIB);
    config.knobs = vec![(mm::knobs::Knob::Swappiness, 900)];
    let error = run(&config, &program).unwrap_err();
    assert_eq!(error, RunError::Input("vm.swappiness: 900 is not between 0 and 200".into()));
}

#[test]
fn readahead_and_writeback_become_large_requests() {
    let metric = |outcome: &Outcome, name: &str| outcome.metric(name).unwrap();
    let stream = builtin::from_name("stream", 48 * MIB).unwrap();
    let read = outcome(&config("uma-1s-2015", 32 * MIB), &stream);
    let (requests, pages) = (metric(&read, "sda_reads"), metric(&read, "sda_read_pages"));
    // Windows of 32 pages.
    assert!(pages >= 2.0 * 48.0 * 256.0 && requests < pages / 24.0, "{pages} pages in {requests} requests");
    assert_eq!(requests + metric(&read, "sda_read_merges"), pages);
    // Windows are consecutive, so the disk hardly seeks: 8.5 ms for each would be 26 seconds.
    assert!(read.nanos < 3_000_000_000, "{} ns", read.nanos);

    let write = outcome(
        &config("laptop", 32 * MIB),
        &builtin::from_name("sequential-file", 48 * MIB).unwrap().with_passes(4),
    );
    let (requests, pages) = (metric(&write, "nvme0_writes"), metric(&write, "nvme0_written_pages"));
    assert!(pages > 1000.0 && requests < pages / 8.0, "{pages} pages in {requests} requests");
    assert_eq!(requests + metric(&write, "nvme0_write_merges"), pages);
}

#[test]
fn mapped_reads_of_sparse_files_flood_memory_without_a_device() {
    for tasks in [None, Some(3)] {
        let program = builtin::LruFileMmapRead::new(256 * MIB);
        let program = tasks.map_or(program.clone(), |tasks| program.with_tasks(tasks));
        let outcome = unharmed(&config("uma-1s-2015", 64 * MIB), &program);
        assert_eq!(outcome.oom, []);
        assert_eq!(outcome.tasks, 1 + tasks.unwrap_or(8));
        assert_eq!((outcome.progress, outcome.accesses), (65_536, 65_536 * 512));
        assert_eq!(outcome.metric("sda_reads"), Some(0.0), "holes must not be read from a device");
        let stolen = stolen(&outcome);
        assert!(stolen >= 3 * 64 * 256 - 4096, "all but the last pages must be reclaimed: {stolen}");
        assert!(outcome.metric("ipis_received").unwrap() > 0.0);
    }
}

#[test]
#[should_panic(expected = "do not overcommit memory")]
fn a_program_refuses_a_size_that_overcommits_memory() {
    outcome(&config("small", 64 * MIB), &builtin::LruFileMmapRead::new(64 * MIB));
}

#[test]
fn the_cases_of_vm_scalability_have_the_effects_they_claim() {
    for (name, _) in builtin::VmScalability::list() {
        let files = |bytes| builtin::VmScalability::from_name(name, bytes).unwrap().with_tasks(Some(4));
        let memory = 48 * MIB;
        let case = [files(96 * MIB), files(24 * MIB)].into_iter().find(|case| case.suits(memory).is_ok());
        let outcome = unharmed(&config("uma-1s-2015", memory), &case.unwrap());
        assert_eq!(outcome.oom, [], "{name}");
        assert!(outcome.metric("throughput").is_some_and(|rate| rate > 0.0), "{name}");
        let floods = name.starts_with("mmap-") || name.starts_with("lru-");
        assert!(!floods || stolen(&outcome) > 0, "{name}");
    }
}

/// Memory has exactly the pages that were asked for: zones need not end at whole blocks.
#[test]
fn memory_need_not_end_at_a_whole_block() {
    const KIB: u64 = 1024;
    for (machine, sizes) in [
        ("small", [MIB, MIB + 4 * KIB, 5 * MIB + 12 * KIB]),
        ("numa-4s-2015", [8 * MIB, 8 * MIB + 4 * KIB, 11 * MIB + 20 * KIB]),
    ] {
        for memory in sizes {
            for name in ["zipf", "zipf-and-scan", "fork-write"] {
                let config = RunConfig { validate_sometimes: true, ..config(machine, memory) };
                let outcome = unharmed(&config, &builtin::from_name(name, 2 * memory).unwrap());
                assert!(stolen(&outcome) > 0, "{name} in {memory}");
            }
        }
    }
}
