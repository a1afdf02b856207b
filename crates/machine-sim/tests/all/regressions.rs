//! Bugs that were found, each with the smallest program that hit it.

use super::acts::{PAGE, load_all, outcome, play, store_all, unharmed};
use machine_sim::{MachineSpec, RunConfig};
use mm::knobs::Knob;
use mm::stat::Stat;
use program::{Advice, Errno, FileSpec, Map, Os, Prot, Role, Signal, builtin};

fn config(machine: &str) -> RunConfig {
    let machine = MachineSpec::preset(machine).unwrap();
    RunConfig { memory: Some(32 << 20), verify: true, ..RunConfig::new(machine) }
}

/// A page is stored to after MADV_FREE; then fork shares it, and the parent gets a copy. Only the child's entry shows
/// the store: reclaim must not drop the page as if it were unchanged since MADV_FREE.
#[test]
fn a_forked_page_stored_to_after_madv_free_is_not_dropped() {
    const AT: u64 = 0x5000_0000;
    const LEN: u64 = 8 * PAGE;
    let share_free_pages = |os: &mut dyn Os, role| {
        if role == 1 {
            os.sleep(1_000_000);
            os.madvise(AT, LEN, Advice::PageOut).unwrap();
            return load_all(os, AT, LEN);
        }
        os.mmap(Map { addr: Some(AT), ..Map::anonymous(LEN) }).unwrap();
        store_all(os, AT, LEN)?;
        os.madvise(AT, LEN, Advice::Free).unwrap();
        store_all(os, AT, LEN)?;
        let child = os.fork(1).unwrap();
        store_all(os, AT, LEN)?;
        os.join(child);
        load_all(os, AT, LEN)
    };
    unharmed(&RunConfig { validate_every_op: true, ..config("small") }, &play(share_free_pages));
}

/// Truncation during a write: when a writer has waited for a page from swap, the file must not end before that page.
#[test]
fn writes_do_not_race_with_truncation() {
    const SIZE: u64 = 32 * PAGE;
    fn cut_or_write(os: &mut dyn Os, role: Role, fd: u32) {
        let mut rng = program::rng::Rng::new(os.seed());
        let map = Map::file_shared(fd, SIZE, Prot::RW);
        let at = os.mmap(map).unwrap();
        for _ in 0..60 {
            let from = rng.below(SIZE);
            match role {
                1 => os.ftruncate(fd, from).unwrap(),
                2 | 3 => {
                    let len = 1 + rng.below(SIZE - from);
                    assert_eq!(os.pwrite(fd, from, len), Ok(len));
                }
                _ => {
                    // Only this process maps the pages, or MADV_PAGEOUT would skip them.
                    (0..SIZE / PAGE).for_each(|page| {
                        let _ = os.store(at + page * PAGE);
                    });
                    os.madvise(at, SIZE, Advice::PageOut).unwrap();
                    os.sleep(50_000);
                }
            }
            os.compute(rng.below(100_000));
        }
    }
    let race = |os: &mut dyn Os, role| {
        let spec = FileSpec { name: "f", size: SIZE, in_memory: true, writable: true };
        let fd = os.open(spec).unwrap();
        if role > 0 {
            cut_or_write(os, role, fd);
            return Ok(());
        }
        let tasks: Vec<_> = (1..5).map(|role| os.fork(role).unwrap()).collect();
        tasks.into_iter().for_each(|task| os.join(task));
        Ok(())
    };
    for seed in 1..6 {
        unharmed(&RunConfig { seed, ..config("laptop") }, &play(race));
    }
}

/// A machine with 16 MiB and this much swap, on a disk that serves one request at a time and takes this long for each.
fn with_slow_swap(swap: &str, write_ms: u64) -> RunConfig {
    let mut text = include_str!("../../machines/small.toml").to_string();
    for (old, new) in [
        ("write_us = 20\n", format!("write_us = {}\n", 1000 * write_ms)),
        ("queue_depth = 128\n", "queue_depth = 1\n".into()),
        ("swap_size = \"512M\"", format!("swap_size = \"{swap}\"")),
    ] {
        assert_eq!(text.matches(old).count(), 1, "{old}");
        text = text.replace(old, &new);
    }
    let machine = MachineSpec::from_toml("slow swap", &text).unwrap();
    RunConfig { memory: Some(16 << 20), verify: true, ..RunConfig::new(machine) }
}

/// Four processes that use half more than memory at the same time.
fn outgrow_memory(os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    const LEN: u64 = 6 << 20;
    const PROCESSES: u32 = 4;
    if role == 0 {
        let children: Vec<_> = (1..=PROCESSES).map(|role| os.fork(role).unwrap()).collect();
        children.into_iter().for_each(|child| os.join(child));
        return Ok(());
    }
    let at = os.mmap(Map::anonymous(LEN)).unwrap();
    store_all(os, at, LEN)?;
    // None has ended before the others have their memory.
    os.barrier(0, PROCESSES);
    store_all(os, at, LEN)
}

/// Pages under write-back to swap will be free when it ends: the OOM killer must not run, however slow the disk is, not
/// even without a free slot. And waiting for that must not scan many more pages than are written.
#[test]
fn no_oom_kill_while_pages_are_written_to_a_slow_disk() {
    for (swap, write_ms) in [("64M", 20), ("12M", 20), ("12M", 2000)] {
        let config = with_slow_swap(swap, write_ms);
        let outcome = outcome(&config, &play(outgrow_memory));
        assert_eq!((outcome.oom.len(), outcome.signals.len()), (0, 0), "{swap}: {:?}", outcome.oom);
        let [scanned, written] = [Stat::PgscanDirect, Stat::PswpOut].map(|stat| outcome.stat(stat));
        assert!(scanned < 4 * written, "{swap}: {scanned} pages scanned to write {written}");
    }
}

/// Under `vm.defrag_mode` a page table must not wait for reclaim to empty a whole page block by accident. Where what is
/// reclaimed comes back by read-ahead and as compressed pages, it waited for ever.
#[test]
fn tables_do_not_wait_for_reclaim_to_empty_a_page_block() {
    const LEN: u64 = 40 << 20;
    const TABLES: u64 = 1024;
    let map_sparsely = |os: &mut dyn Os, _| {
        let size = TABLES << 21;
        let fd = os.open(FileSpec { name: "f", size, in_memory: false, writable: false }).unwrap();
        let used = os.mmap(Map::anonymous(LEN)).unwrap();
        let sparse = os.mmap(Map::file_shared(fd, size, Prot::READ)).unwrap();
        store_all(os, used, LEN)?;
        let share = LEN / TABLES / PAGE * PAGE;
        (0..TABLES).try_for_each(|i| {
            load_all(os, sparse + (i << 21), PAGE)?;
            store_all(os, used + i * share, share)
        })
    };
    let [mixed, apart] = [0, 1].map(|mode| {
        let knobs = vec![(Knob::DefragMode, mode), (Knob::ZswapEnabled, 1)];
        let config = RunConfig { knobs, time_limit: Some(60_000_000_000), ..config("small") };
        outcome(&config, &play(map_sparsely)).stat(Stat::Zswpout)
    });
    assert!(apart < 2 * mixed, "{apart} pages swapped out with vm.defrag_mode, {mixed} without");
}

/// A task of a killed process runs until it gets a signal, but its calls do nothing: it must not truncate a file.
#[test]
fn a_killed_process_truncates_nothing() {
    const SIZE: u64 = 8 * PAGE;
    fn cut_when_killed(os: &mut dyn Os, role: Role) -> Result<(), Signal> {
        let spec = FileSpec { name: "f", size: SIZE, in_memory: false, writable: true };
        let fd = os.open(spec).unwrap();
        if role == 1 {
            const LEN: u64 = 32 << 20;
            let at = os.mmap(Map::anonymous(LEN)).unwrap();
            let met = store_all(os, at, LEN);
            assert_eq!(met, Err(Signal::Kill));
            assert_eq!(os.ftruncate(fd, 0), Err(Errno::NoMem));
            return met;
        }
        assert_eq!(os.pwrite(fd, 0, SIZE), Ok(SIZE));
        let child = os.fork(1).unwrap();
        os.join(child);
        assert_eq!(os.pread(fd, 0, SIZE), Ok(SIZE));
        Ok(())
    }
    let outcome = outcome(&with_slow_swap("1M", 1), &play(cut_when_killed));
    assert_eq!(outcome.stat(Stat::OomKill), 1);
}

/// The last task of a process ends while another CPU, whose clock is ahead, has run the end of another task of it and
/// nothing since: khugepaged waits on that CPU.
#[test]
fn a_process_ends_before_a_cpu_has_switched_from_it() {
    let knobs = vec![
        (Knob::HugepagesEnabled2048, 2),
        (Knob::ThpKhugepaged, 1),
        (Knob::KhugepagedScanSleepMillisecs, 1),
        (Knob::KhugepagedAllocSleepMillisecs, 1),
        (Knob::TlbAgeLimitMs, 5),
    ];
    let machine = MachineSpec::random(1033);
    let config = RunConfig { seed: 1033, verify: true, bound: true, knobs, ..RunConfig::new(machine) };
    let program = builtin::from_name("zipf", 48 << 20).unwrap().with_threads(8);
    outcome(&config, &program);
}

/// A store to a page that was shared when it was swapped out and is exclusive now: the fault that swaps it in suffices.
#[test]
fn a_store_to_a_swapped_exclusive_page_faults_once() {
    const PAGES: u64 = 8;
    fn store_again(os: &mut dyn Os, role: Role) -> Result<(), Signal> {
        if role == 1 {
            return Ok(());
        }
        let at = os.mmap(Map::anonymous(PAGES * PAGE)).unwrap();
        store_all(os, at, PAGES * PAGE)?;
        os.madvise(at, PAGES * PAGE, Advice::PageOut).unwrap();
        os.sleep(100_000_000);
        let child = os.fork(1).unwrap();
        os.join(child);
        store_all(os, at, PAGES * PAGE)
    }
    let outcome = outcome(&config("small"), &play(store_again));
    let stats = [Stat::PswpOut, Stat::Pgreuse].map(|stat| outcome.stat(stat));
    assert_eq!(stats, [PAGES as i64, 0]);
}

/// The first store to a mapped page of a shared file keeps the page.
#[test]
fn first_stores_to_shared_pages_count_as_reuse() {
    const PAGES: u64 = 8;
    fn load_and_store(os: &mut dyn Os, _: Role) -> Result<(), Signal> {
        let spec = FileSpec { name: "f", size: PAGES * PAGE, in_memory: false, writable: true };
        let fd = os.open(spec).unwrap();
        let at = os.mmap(Map::file_shared(fd, PAGES * PAGE, Prot::RW)).unwrap();
        load_all(os, at, PAGES * PAGE)?;
        (0..2 * PAGES).try_for_each(|turn| os.store(at + turn % PAGES * PAGE))
    }
    let outcome = outcome(&config("small"), &play(load_and_store));
    assert_eq!(outcome.stat(Stat::Pgreuse), PAGES as i64);
}
