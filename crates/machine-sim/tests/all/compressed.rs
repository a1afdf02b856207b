//! Compressed swap on whole machines, under the oracle.

use super::acts::{MIB, PAGE, load_all, store_all};
use super::chaos::seeds_of;
use machine_sim::{MachineSpec, Outcome, RunConfig, run};
use mm::knobs::{Compressor, Knob, ZswapForm};
use mm::machine::Work;
use mm::stat::Stat;
use program::chaos::Chaos;
use program::rng::Rng;
use program::{Access, AccessKind, Errno, FileSpec, Map, Os, Program, Prot, Role, Signal};

/// Stores to all of a mapping, then loads from all of it, a number of times.
struct Passes {
    pages: u64,
    rounds: u32,
}

impl Program for Passes {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, _: Role) -> Result<(), Signal> {
        let at = os.mmap(Map::anonymous(self.pages * PAGE)).unwrap();
        for _ in 0..self.rounds {
            store_all(os, at, self.pages * PAGE)?;
            load_all(os, at, self.pages * PAGE)?;
        }
        Ok(())
    }
}

fn config(areas: &[&str], knobs: &[(Knob, u64)]) -> RunConfig {
    let swap = areas.iter().map(|area| area.parse().unwrap()).collect();
    let machine = MachineSpec::preset("small").unwrap();
    let (memory, knobs) = (Some(32 * MIB), knobs.to_vec());
    RunConfig { memory, swap, knobs, verify: true, validate_sometimes: true, ..RunConfig::new(machine) }
}

fn metric(outcome: &Outcome, name: &str) -> f64 {
    let found = outcome.metrics.iter().find(|metric| metric.name == name);
    found.unwrap_or_else(|| panic!("there is no {name}")).value
}

/// 40 MiB, once.
const PASS: Passes = Passes { pages: 10_240, rounds: 1 };

#[test]
fn zram_holds_pages_until_they_come_back() {
    for policy in [0, 1] {
        for algorithm in Compressor::WORDS {
            let area = format!("zram:64M,algorithm={algorithm}");
            let outcome = run(&config(&[&area], &[(Knob::ReclaimPolicy, policy)]), &PASS).unwrap();
            assert_eq!((outcome.oom.len(), outcome.oracle.violations), (0, 0));
            let [swapped, back] = [Stat::PswpOut, Stat::PswpIn].map(|stat| outcome.stat(stat));
            assert!(swapped > 2000 && back > 2000, "{swapped} {back}");
            // Each page that comes back leaves the device, and so do those that the program leaves behind.
            assert_eq!(metric(&outcome, "zram0_notify_free"), swapped as f64);
            assert_eq!(outcome.stat(Stat::NrZspages), 0);
            assert_eq!(metric(&outcome, "zram0_failed_writes"), 0.0);
            // What it held when the program's memory was still there.
            let held = metric(&outcome, "zram0_orig_data_size") / 4096.0;
            assert!((1000.0..swapped as f64).contains(&held), "{held}");
            // 31 % of pages stay as they are.
            let whole = metric(&outcome, "zram0_huge_pages_since") / swapped as f64;
            assert!((0.28..0.34).contains(&whole), "{whole}");
            assert!(outcome.stat(Stat::Pgmajfault) >= back);
            // Nothing is read ahead, and nothing stays in the swap cache.
            assert_eq!((outcome.stat(Stat::SwapRa), outcome.stat(Stat::NrSwapcached)), (0, 0));
        }
    }
}

#[test]
fn a_large_folio_comes_back_whole_from_zram() {
    let always = |knob| (knob, 2);
    let run = |area: &str, knobs: &[(Knob, u64)]| {
        let outcome = run(&config(&[area], knobs), &Passes { rounds: 2, ..PASS }).unwrap();
        assert_eq!((outcome.oom.len(), outcome.oracle.violations), (0, 0));
        let [back, faults] = [Stat::PswpIn, Stat::Pgmajfault].map(|stat| outcome.stat(stat) as f64);
        assert!(back > 2000.0, "{back}");
        back / faults
    };
    let large = run("zram:64M", &[always(Knob::HugepagesEnabled64), (Knob::ThpDefrag, 0)]);
    // Where memory has no block, pages come back one by one.
    assert!(large > 2.0, "{large} pages a fault");
    // Pages of a backing device come back one by one, and so they do where zswap may have some of them.
    let knobs = [always(Knob::HugepagesEnabled64), (Knob::ZswapEnabled, 1)];
    let others = [
        run("zram:64M", &[]),
        run("zram:64M,backing=nvme0:1M,writeback=idle,idle=1s,every=1s", &knobs[..1]),
        run("zram:64M", &knobs),
    ];
    assert!(others.iter().all(|&pages| pages <= 1.0), "{others:?}");
}

#[test]
fn zswap_keeps_pages_from_the_device() {
    let disk = run(&config(&[], &[]), &PASS).unwrap();
    let knobs = [(Knob::ZswapEnabled, 1), (Knob::ZswapMaxPoolPercent, 50)];
    let zswap = run(&config(&[], &knobs), &PASS).unwrap();
    let [out, back] = [Stat::Zswpout, Stat::Zswpin].map(|stat| zswap.stat(stat));
    assert!(out > 1500 && back > 1500, "{out} {back}");
    // The device gets the pages that do not get smaller.
    assert_eq!(zswap.stat(Stat::PswpOut) as f64, metric(&zswap, "zswap_reject_compress_poor"));
    assert!(zswap.stat(Stat::PswpOut) * 2 < disk.stat(Stat::PswpOut));
    assert_eq!((zswap.stat(Stat::NrZspages), zswap.stat(Stat::Zswpwb)), (0, 0));
}

#[test]
fn zswap_of_618_keeps_what_does_not_get_smaller_and_large_folios() {
    let of = |form: ZswapForm, large: u64| {
        let knobs = [
            (Knob::ZswapEnabled, 1),
            (Knob::ZswapMaxPoolPercent, 60),
            (Knob::ZswapForm, form.value()),
            (Knob::HugepagesEnabled64, large),
        ];
        let outcome = run(&config(&[], &knobs), &PASS).unwrap();
        assert_eq!((outcome.oom.len(), outcome.oracle.violations), (0, 0));
        [Stat::Zswpout, Stat::PswpOut].map(|stat| outcome.stat(stat))
    };
    let [[_, poor], [_, large]] = [of(ZswapForm::V612, 0), of(ZswapForm::V612, 2)];
    assert!(poor > 500 && large > 2 * poor, "{poor} {large}");
    for large in [0, 2] {
        let [kept, written] = of(ZswapForm::V618, large);
        assert!(kept > 1500 && written == 0, "{kept} {written}");
    }
}

#[test]
fn a_full_zswap_writes_its_old_pages_to_the_device() {
    let knobs = [(Knob::ZswapEnabled, 1), (Knob::ZswapMaxPoolPercent, 3), (Knob::ZswapCompressor, 1)];
    let outcome = run(&config(&[], &knobs), &Passes { rounds: 3, ..PASS }).unwrap();
    let written = outcome.stat(Stat::Zswpwb);
    assert!(written > 0 && written as f64 == metric(&outcome, "zswap_written_back_pages"), "{written}");
    assert!(metric(&outcome, "zswap_pool_limit_hit") > 0.0);
    assert_eq!((outcome.oom.len(), outcome.oracle.violations), (0, 0));
}

#[test]
fn areas_are_used_by_priority() {
    let areas = ["zram:4M,priority=100", "nvme0:256M"];
    let outcome = run(&config(&areas, &[]), &Passes { rounds: 2, ..PASS }).unwrap();
    // 1024 pages go to zram before any goes to the device.
    assert!(metric(&outcome, "zram0_notify_free") >= 1024.0);
    assert!(metric(&outcome, "nvme0_written_pages") > 0.0);
    let turned = ["zram:4M,priority=1", "nvme0:256M,priority=2"];
    let outcome = run(&config(&turned, &[]), &Passes { rounds: 2, ..PASS }).unwrap();
    assert_eq!(metric(&outcome, "zram0_notify_free"), 0.0, "the device is not full");
}

#[test]
fn a_limit_of_zram_makes_writes_fail_and_loses_nothing() {
    let outcome = run(&config(&["zram:64M,mem_limit=1M"], &[]), &PASS).unwrap();
    assert!(metric(&outcome, "zram0_failed_writes") > 0.0);
    assert!(metric(&outcome, "zram0_mem_used_max") >= (1 << 20) as f64);
    // What has no place stays in memory, until there is no memory either.
    assert_eq!((outcome.oom.len(), outcome.oracle.violations), (1, 0));
}

#[test]
fn zeroes_are_not_written() {
    struct Holes;
    impl Program for Holes {
        unnamed!();
        fn run<O: Os>(&self, os: &mut O, _: Role) -> Result<(), Signal> {
            let at = os.mmap(Map::anonymous(PASS.pages * PAGE)).unwrap();
            store_all(os, at, PASS.pages * PAGE)?;
            (0..PASS.pages / 2).for_each(|page| os.content(at + 2 * page * PAGE, program::Packed::ZERO));
            load_all(os, at, PASS.pages * PAGE)
        }
    }
    let outcome = run(&config(&["zram:64M"], &[]), &Holes).unwrap();
    let [out, back] = [Stat::SwpoutZero, Stat::SwpinZero].map(|stat| outcome.stat(stat));
    assert!(out > 0 && back > 0, "{out} {back}");
    assert_eq!(outcome.oracle.violations, 0);
}

/// The recording calls a page of a file zeroes after it was written to its device: it stays what it is there.
#[test]
fn a_page_that_was_written_before_it_is_called_zeroes_stays() {
    struct Late;
    impl Program for Late {
        unnamed!();
        fn run<O: Os>(&self, os: &mut O, _: Role) -> Result<(), Signal> {
            let len = 8 * PAGE;
            let fd = os.open(FileSpec { name: "f", size: len, in_memory: false, writable: true }).unwrap();
            let at = os.mmap(Map::file_shared(fd, len, Prot::RW)).unwrap();
            store_all(os, at, len)?;
            os.fsync(fd).unwrap();
            (0..8).for_each(|page| os.content(at + page * PAGE, program::Packed::ZERO));
            os.munmap(at, len).unwrap();
            os.fadvise(fd, 0, 0, program::FileAdvice::DontNeed).unwrap();
            let at = os.mmap(Map::file_shared(fd, len, Prot::RW)).unwrap();
            load_all(os, at, len)
        }
    }
    let outcome = run(&config(&["zram:64M"], &[]), &Late).unwrap();
    assert_eq!(outcome.oracle.violations, 0);
}

/// Writes to swap fail from the middle on: pages stay in memory until there is none left.
#[test]
fn a_device_that_fails_loses_nothing() {
    for knobs in [vec![], vec![(Knob::ZswapEnabled, 1), (Knob::ZswapMaxPoolPercent, 3)]] {
        let dying = || "nvme0:writes=100%,after=20ms".parse().unwrap();
        let outcome = run(&RunConfig { fail: vec![dying()], ..config(&[], &knobs) }, &PASS).unwrap();
        assert!(metric(&outcome, "nvme0_failed_writes") > 0.0);
        assert_eq!((outcome.oom.len(), outcome.oracle.violations), (1, 0));
        let fails = vec!["nvme0:writes=2%".parse().unwrap()];
        let outcome = run(&RunConfig { fail: fails, ..config(&[], &knobs) }, &PASS).unwrap();
        assert!(metric(&outcome, "nvme0_failed_writes") > 0.0);
        assert_eq!((outcome.oom.len(), outcome.oracle.violations), (0, 0));
    }
}

#[test]
fn a_page_that_cannot_be_read_from_swap_ends_its_process() {
    let fail = vec!["nvme0:reads=2%".parse().unwrap()];
    let outcome = run(&RunConfig { fail, ..config(&[], &[]) }, &PASS).unwrap();
    assert!(metric(&outcome, "nvme0_failed_reads") > 0.0);
    assert!(outcome.signals[0].contains("SIGBUS"), "{:?}", outcome.signals);
}

/// A file that is read by calls and by loads, and written: errors are reported, and what was lost is what the oracle
/// allows.
#[test]
fn errors_of_files_are_reported() {
    struct Files;
    impl Program for Files {
        unnamed!();
        fn run<O: Os>(&self, os: &mut O, _: Role) -> Result<(), Signal> {
            let pages = PASS.pages;
            let fd = os
                .open(FileSpec { name: "f", size: pages * PAGE, in_memory: false, writable: true })
                .unwrap();
            let at = os.mmap(Map::file_shared(fd, pages * PAGE, Prot::RW)).unwrap();
            let (mut read, mut synced, mut signals) = (0, 0, 0);
            for page in 0..pages {
                read += u32::from(os.pread(fd, page * PAGE, PAGE) == Err(Errno::Io));
                let access = Access { addr: at + page * PAGE, count: 1, mode: AccessKind::Store };
                signals += u32::from(matches!(os.access(access), Err(Signal::Bus { .. })));
                if page % 64 == 0 {
                    synced += u32::from(os.fsync(fd) == Err(Errno::Io));
                }
            }
            assert!(read > 0 && synced > 0 && signals > 0, "{read} {synced} {signals}");
            for page in 0..pages {
                _ = os.access(Access { addr: at + page * PAGE, count: 1, mode: AccessKind::Load });
            }
            Ok(())
        }
    }
    let fail = vec!["nvme0:reads=20%,writes=20%".parse().unwrap()];
    let outcome = run(&RunConfig { fail, ..config(&[], &[]) }, &Files).unwrap();
    assert_eq!(outcome.oracle.violations, 0);
}

/// The pass in a group with these settings.
fn in_group(settings: &str, knobs: &[(Knob, u64)], rounds: u32) -> Outcome {
    let knobs = [&[(Knob::ZswapEnabled, 1), (Knob::ZswapMaxPoolPercent, 100)], knobs].concat();
    let groups = vec![format!("web:{settings}").parse().unwrap()];
    let outcome = run(&RunConfig { groups, ..config(&[], &knobs) }, &Passes { rounds, ..PASS }).unwrap();
    assert_eq!((outcome.oom.len(), outcome.oracle.violations), (0, 0));
    outcome
}

#[test]
fn a_group_keeps_its_limit_of_zswap() {
    let free = in_group(&format!("memory.max={}", 24 * MIB), &[], 1);
    let of = |outcome: &Outcome, name: &str| outcome.groups[0].value(name).unwrap();
    let limited = in_group(&format!("memory.max={},memory.zswap.max={}", 24 * MIB, MIB), &[], 1);
    let outs = [&free, &limited].map(|outcome| of(outcome, "zswpout"));
    assert!(outs[0] > 2000 && of(&free, "zswpin") > 2000, "{outs:?}");
    // At its limit a group writes an old page before it stores one.
    assert!(of(&limited, "zswpwb") > 1000 && of(&free, "zswpwb") == 0);
    assert_eq!(of(&limited, "zswpwb"), limited.stat(Stat::Zswpwb) as u64);
    let none = in_group(&format!("memory.max={},memory.zswap.max=0", 24 * MIB), &[], 1);
    assert_eq!((of(&none, "zswpout"), of(&none, "memory.zswap.max")), (0, 0));
    for outcome in [&free, &limited] {
        assert_eq!(["memory.zswap.current", "zswap", "zswapped"].map(|name| of(outcome, name)), [0; 3]);
    }
}

#[test]
fn a_group_that_may_not_write_back_stays_in_memory() {
    let outcome = in_group(&format!("memory.max={},memory.zswap.writeback=0", 30 * MIB), &[], 1);
    assert!(outcome.stat(Stat::Zswpout) > 1000);
    assert_eq!(
        (outcome.stat(Stat::PswpOut), outcome.groups[0].value("memory.zswap.writeback")),
        (0, Some(0))
    );
}

/// Under MGLRU the reclaim of a group stays at the first priority, at which the shrinker has next to nothing to do.
#[test]
fn the_shrinker_writes_pages_although_there_is_room() {
    let settings = format!("memory.max={}", 16 * MIB);
    let [off, on] = [0, 1]
        .map(|shrinks| in_group(&settings, &[(Knob::ZswapShrinkerEnabled, shrinks)], 2).stat(Stat::Zswpwb));
    assert!(off == 0 && on > 0, "{off} {on}");
}

#[test]
fn zram_writes_pages_to_its_backing_device() {
    for (which, policy) in [("huge", 0), ("idle", 1), ("huge_idle", 0)] {
        let idle = if which == "huge" { "" } else { ",idle=5ms" };
        let area = format!("zram:64M,backing=nvme0:32M,writeback={which},every=2ms{idle}");
        let outcome = run(&config(&[&area], &[(Knob::ReclaimPolicy, policy)]), &PASS).unwrap();
        let [writes, reads, left] =
            ["bd_writes", "bd_reads", "bd_count"].map(|what| metric(&outcome, &format!("zram0_{what}")));
        // The daemon may have taken a block for the next page.
        assert!(writes > 100.0 && reads > 100.0 && left <= 1.0, "{which}: {writes} {reads} {left}");
        assert_eq!((outcome.oom.len(), outcome.oracle.violations), (0, 0));
        assert_eq!(metric(&outcome, "nvme0_read_pages"), reads);
    }
    let limited = "zram:64M,backing=nvme0:32M,writeback=huge,every=2ms,writeback_limit=256K";
    let outcome = run(&config(&[limited], &[]), &PASS).unwrap();
    assert_eq!(metric(&outcome, "nvme0_written_pages"), 64.0);
}

#[test]
fn a_backing_device_that_fails_loses_nothing_but_what_it_has() {
    let area = "zram:64M,backing=nvme0:32M,writeback=huge,every=2ms";
    let fail = |text: &str| vec![text.parse().unwrap()];
    let outcome = run(&RunConfig { fail: fail("all:writes=30%"), ..config(&[area], &[]) }, &PASS).unwrap();
    assert!(metric(&outcome, "nvme0_failed_writes") > 0.0);
    assert_eq!((outcome.oom.len(), outcome.oracle.violations), (0, 0));
    let outcome = run(&RunConfig { fail: fail("all:reads=5%"), ..config(&[area], &[]) }, &PASS).unwrap();
    assert!(outcome.signals[0].contains("SIGBUS"), "{:?}", outcome.signals);
}

#[test]
fn zram_compresses_again_what_that_makes_smaller() {
    let once = run(&config(&["zram:64M,algorithm=lz4"], &[]), &PASS).unwrap();
    let twice = "zram:64M,algorithm=lz4,recompress=zstd,recompress_type=idle,idle=2ms,every=2ms";
    let twice = run(&config(&[twice], &[]), &PASS).unwrap();
    let used = |outcome: &Outcome| metric(outcome, "zram0_mem_used_max");
    let tried =
        |outcome: &Outcome| outcome.work.iter().find(|done| done.work == Work::CompressZstd).unwrap().count;
    assert!(tried(&twice) > 500 && tried(&once) == 0, "{}", tried(&twice));
    assert!(used(&once) > 0.0);
    assert_eq!((twice.oom.len(), twice.oracle.violations), (0, 0));
}

/// Areas that are small, large, limited, alone and with a disk, and zswap with much and with little room.
fn chaotic(seed: u64, validate: bool, preempt: Option<u32>) -> Outcome {
    let mut rng = Rng::new(seed ^ 0x7a72_616d);
    let areas: &[&[&str]] = &[
        &["zram:8M"],
        &["zram:64M,algorithm=zstd"],
        &["zram:2M,priority=5", "disk:16M"],
        &["zram:4M", "zram:4M,algorithm=lz4", "disk:4M"],
        &["zram:64M,mem_limit=2M"],
        &["disk:64M"],
        &["disk:8M", "zram:16M,algorithm=lz4"],
        &["zram:32M,backing=disk:1M,writeback=huge_idle,idle=1ms,every=500us"],
        &["zram:16M,recompress=zstd,backing=disk:32M,writeback=idle,idle=1ms,every=2ms", "disk:8M"],
        &["zram:16M,algorithm=lz4,recompress=zstd,recompress_type=huge,threshold=2000,every=1ms"],
    ];
    let mut config = RunConfig::new(MachineSpec::random(seed));
    config.swap = areas[rng.below(10) as usize].iter().map(|area| area.parse().unwrap()).collect();
    (config.seed, config.verify, config.validate_every_op, config.preempt) = (seed, true, validate, preempt);
    config.knobs = vec![
        (Knob::ReclaimPolicy, rng.below(2)),
        (Knob::ZswapEnabled, rng.below(2)),
        (Knob::ZswapMaxPoolPercent, [0, 1, 5, 20][rng.below(4) as usize]),
        (Knob::ZswapAcceptThresholdPercent, [10, 50, 90, 100][rng.below(4) as usize]),
        (Knob::ZswapCompressor, rng.below(3)),
        (Knob::ZswapShrinkerEnabled, rng.below(2)),
        (Knob::ZswapForm, rng.below(2)),
        (Knob::TlbUnmap, rng.below(6)),
        (Knob::HugepagesEnabled64, rng.below(3)),
        (Knob::PageCluster, 3 * rng.below(2)),
    ];
    let fails: &[&[&str]] =
        &[&[], &[], &["all:reads=1%,writes=10%"], &["all:reads=0.1%"], &["all:writes=100%,after=2ms"]];
    config.fail = fails[rng.below(5) as usize].iter().map(|fail| fail.parse().unwrap()).collect();
    let groups: &[&[&str]] = &[
        &[],
        &["a:memory.zswap.max=262144"],
        &["a:memory.zswap.writeback=0"],
        &["a/b:memory.zswap.max=65536", "a:memory.zswap.max=1048576"],
    ];
    config.groups = groups[rng.below(4) as usize].iter().map(|group| group.parse().unwrap()).collect();
    let program = Chaos::new(120, 64 << (seed % 5));
    run(&config, &program).unwrap_or_else(|error| {
        panic!("{error}\nreplay: COMPRESSED_SEED={seed} cargo test -p pagefold-sim --test all compressed")
    })
}

#[test]
fn random_programs_lose_nothing_in_compressed_swap() {
    for seed in seeds_of("COMPRESSED_SEED", 0..24) {
        eprintln!("seed {seed}");
        chaotic(seed, true, None);
    }
}

#[test]
fn random_programs_lose_nothing_where_cpus_stop_in_compressed_swap() {
    for seed in seeds_of("COMPRESSED_SEED", 100..116) {
        eprintln!("seed {seed}");
        chaotic(seed, false, Some(16));
    }
}
