//! Free memory is found, wherever it is, before the OOM killer acts.

use super::*;
use crate::api::{Backing, FaultError, FileKind, GroupLimits, SwapArea};
use crate::frame::Mobility;
use crate::machine::{Scope, ZoneKind};
use crate::mm::tests::end_transfers;
use crate::mm::{AccessKind, Config};
use crate::primitive::{AtomicU64, Ordering::Relaxed};
use crate::stat::Stat;
use crate::testing::{TestMachine, block, request};
use std_alloc::boxed::Box;
use std_alloc::format;
use std_alloc::vec::Vec;

const AT: Vpn = Vpn(512 * 40);

#[test]
fn pages_on_other_cpus_lists_prevent_an_oom_kill() {
    let mm = Mm::new(TestMachine::simple(2, 4096), Config::default()).unwrap();
    let [one, other] = [4096, 40].map(|pages| {
        let space = mm.create_space(GroupId(0)).unwrap();
        mm.mmap(space, &request(AT, pages, Backing::Anonymous)).unwrap();
        space
    });
    let store = |space, page| mm.fault(space, Vpn(AT.0 + page), AccessKind::Store);
    mm.machine().run_on(1);
    (0..40).for_each(|page| store(other, page).map(drop).unwrap());
    let hoarded = || mm.core.alloc.pcp_pages(ZoneId(0));
    // CPU 1 has as much as its lists hold before they are drained.
    mm.munmap(other, AT, 40).unwrap();
    let before = hoarded();
    mm.machine().run_on(0);
    let tables = || mm.mmu().stats.read(Stat::NrPageTablePages) as u64;
    let (mut stored, mut used) = (0, 0);
    while store(one, stored).is_ok() && mm.oom_reports().is_empty() {
        stored += 1;
        used = stored + tables();
    }
    let reason = &mm.oom_reports()[0].reason;
    let wanted = format!("a page fault of space {} wanted order 0 on node 0, zone Movable or below", one.0);
    assert!(reason.starts_with(&wanted), "{reason}");
    assert!(reason.contains("free: node 0 Normal ") && reason.contains(" of 4096 pages"), "{reason}");
    let zone = &mm.core.alloc.zones()[0];
    let unused = zone.managed() - used - zone.bare_mark(Watermark::Min);
    assert!(before > 20 && unused < 3, "{before} pages were on lists, {unused} were left");
}

/// A memory manager on one CPU with this much swap; a transfer ends as soon as a task waits. Direct reclaim, and a
/// search for a process to kill, must not be repeated for ever.
fn bench(frames: u32, pages: u32) -> &'static Mm<TestMachine> {
    let config = Config::default();
    // Otherwise the first table would raise the marks by a page block, a quarter of this memory.
    config.knobs.set(Knob::WatermarkBoostFactor, 0).unwrap();
    let swap = (pages > 0).then_some(SwapArea { device: DeviceId(0), pages, priority: 0, zram: None });
    let config = Config { swap: swap.into_iter().collect(), ..config };
    let mm: &Mm<TestMachine> = Box::leak(Box::new(Mm::new(TestMachine::simple(1, frames), config).unwrap()));
    *mm.machine().idle.lock() = Some(Box::new(|_| end_transfers(mm)));
    let tries = AtomicU64::new(0);
    *mm.machine().entered.lock() = Some(Box::new(move |_, scope| {
        if matches!(scope, Scope::TryToFreePages | Scope::OutOfMemory) {
            assert!(tries.fetch_add(1, Relaxed) < 2000, "the call must end");
        }
    }));
    mm
}

fn process(mm: &Mm<TestMachine>, pages: u64) -> SpaceId {
    let space = mm.create_space(GroupId(0)).unwrap();
    mm.mmap(space, &request(AT, pages, Backing::Anonymous)).unwrap();
    space
}

/// Devices use all pages: there is swap for them, but none can be freed. Each page is the only one of its table, so a
/// fault needs two; in the end there are none, or there is one. Whether or not mobility groups are kept apart, the
/// process is killed.
#[test]
fn fault_that_finds_no_memory_kills_its_process() {
    for (apart, taken) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let mm = bench(2048, 4096);
        mm.set_knob(Knob::DefragMode, apart).unwrap();
        let space = process(mm, 2048 * 512);
        (0..taken).for_each(|_| _ = mm.core.new_folio(Order::ZERO, Gfp::user(GroupId(0))).unwrap());
        let failed = (0..2048).find_map(|table| {
            let page = Vpn(AT.0 + table * 512);
            let done = mm.fault(space, page, AccessKind::Store);
            let found = mm.core.tables.lock(mm.mmu(), space).find(page);
            found.filter(|run| run.entry.is_present()).inspect(|run| mm.core.frames[run.entry.pfn()].get(1));
            done.err()
        });
        assert_eq!((failed, mm.oom_reports().len()), (Some(FaultError::Killed), 1));
    }
}

/// The kernel takes all free pages, the reserves included.
fn take_all(mm: &Mm<TestMachine>) -> Vec<Pfn> {
    let wanted = block(Order::ZERO, Mobility::Unmovable);
    let take = || mm.core.alloc.take(mm.mmu(), &wanted, Watermark::Min).ok();
    core::iter::from_fn(take).map(|fresh| fresh.into_pfn()).collect()
}

/// The kernel leaves a hundred pages to a process that stores to two hundred. The device takes 40 seconds for what it
/// was given, and until then reclaim frees nothing.
#[test]
fn memory_that_is_being_written_is_waited_for() {
    const SLOW: u64 = 40_000_000_000;
    let mm = bench(2048, 4096);
    let space = process(mm, 200);
    let store = |page| assert!(mm.fault(space, Vpn(AT.0 + page), AccessKind::Store).is_ok(), "page {page}");
    store(0);
    let mut held = take_all(mm);
    let left = mm.core.alloc.zones()[0].mark(Watermark::Min) as usize + 100;
    held.drain(..left).for_each(|pfn| mm.core.put(pfn));
    mm.core.alloc.drain_all(mm.mmu());
    let next = AtomicU64::new(SLOW);
    *mm.machine().idle.lock() = Some(Box::new(move |machine| {
        if machine.now() >= next.load(Relaxed) {
            end_transfers(mm);
            next.store(machine.now() + SLOW, Relaxed);
        }
    }));
    *mm.machine().entered.lock() = None;
    (1..200).for_each(store);
    assert_eq!(mm.oom_reports(), Vec::new());
    assert!(mm.machine().now() >= SLOW, "it must wait");
}

/// A page of a file that is in memory asks for the next pages to be read. There is no memory for them, and a read of
/// the page needs none.
#[test]
fn read_of_a_cached_page_kills_no_process_for_read_ahead() {
    let mm = bench(2048, 0);
    let space = process(mm, 1);
    mm.fault(space, AT, AccessKind::Store).unwrap();
    let file = mm.create_file(FileKind::Disk { device: DeviceId(0), block: 0 }, 64 * PAGE_SIZE);
    let read = |page| mm.read(file, page * PAGE_SIZE, PAGE_SIZE, GroupId(0), &mut |_, _, _| ());
    read(0).unwrap();
    // A device uses what the first read has brought, so it stays.
    let kept = (0..64).map_while(|page| mm.core.cache.lookup(&mm.core, file, PageIndex(page))).count();
    assert!(kept > 1, "the first read must read ahead");
    take_all(mm);
    (0..kept as u64).for_each(|page| assert_eq!(read(page), Ok(PAGE_SIZE), "page {page}"));
    assert_eq!(mm.oom_reports(), Vec::new());
}

/// All free memory is in page blocks of the kernel, which `vm.defrag_mode` keeps programs out of.
#[test]
fn fault_uses_page_blocks_of_the_kernel_before_an_oom_kill() {
    let mm = bench(4096, 0);
    let space = process(mm, 20);
    take_all(mm).iter().step_by(2).for_each(|&pfn| mm.core.put(pfn));
    mm.core.alloc.drain_all(mm.mmu());
    mm.set_knob(Knob::DefragMode, 1).unwrap();
    for page in 0..20 {
        assert!(mm.fault(space, Vpn(AT.0 + page), AccessKind::Store).is_ok(), "page {page}");
    }
    assert_eq!(mm.oom_reports(), Vec::new());
}

/// The group that a write is charged to has no process, and no swap.
#[test]
fn write_without_room_fails_if_there_is_no_process_to_kill() {
    let mm = bench(2048, 0);
    let group = mm.create_group(GroupId(0), GroupLimits { max: 80, ..GroupLimits::default() }).unwrap();
    let file = mm.create_file(FileKind::Shmem, 0);
    let write = mm.write(file, 0, 200 * PAGE_SIZE, group, &mut |_, _, _| ());
    assert_eq!((write, mm.oom_reports()), (Err(Error::NoMemory), Vec::new()));
}

/// The process whose fork finds no memory is itself the largest: the fork fails although its end frees enough.
#[test]
fn call_that_kills_its_own_process_fails() {
    let mm = bench(2048, 0);
    let space = process(mm, 4096);
    let room = |pages| mm.core.alloc.zones()[0].free_pages() > pages;
    let marks = mm.core.alloc.zones()[0].mark(Watermark::Min);
    let mut page = 0;
    while room(marks + 3) && mm.fault(space, Vpn(AT.0 + page), AccessKind::Store).is_ok() {
        page += 1;
    }
    assert!(!mm.killed(space));
    assert!(mm.fork(space).is_err());
    assert!(mm.killed(space));
}

fn lacks(apart: bool) -> FaultStop {
    let (node, highest, among) = (NodeId(0), ZoneKind::Movable, Nodes::ALL);
    FaultStop::Shortage(Shortage::Zone(NeedsReclaim { order: Order::ZERO, node, highest, among, apart }))
}

/// There is a whole page block each time, but other tasks take it first.
#[test]
fn operation_whose_page_blocks_are_taken_mixes_mobility_groups() {
    let mm = bench(4096, 0);
    mm.set_knob(Knob::DefragMode, 1).unwrap();
    let mut tries = 0;
    let done = mm.with_room(None, GroupId(0), |gfp| {
        tries += 1;
        assert!(tries < 200, "it must mix them");
        if gfp.mixes { Ok(()) } else { Err(lacks(true)) }
    });
    assert_eq!(done, Ok(()));
}

/// Each time, read-ahead takes all pages that reclaim has freed. The operation gives it up, all of it.
#[test]
fn operation_whose_read_ahead_takes_what_is_freed_does_without() {
    let mm = bench(2048, 0);
    let file = mm.create_file(FileKind::Disk { device: DeviceId(0), block: 0 }, 4096 * PAGE_SIZE);
    let mut tries = 0;
    let done = mm.with_room(None, GroupId(0), |gfp| {
        tries += 1;
        assert!(tries < 200, "it must give read-ahead up");
        if gfp.read_ahead == AllowedReadAhead::Nothing {
            return Ok(());
        }
        let first = tries % 2 * 2048;
        mm.read(file, first * PAGE_SIZE, 2048 * PAGE_SIZE, GroupId(0), &mut |_, _, _| ()).unwrap();
        Err(lacks(false))
    });
    assert_eq!(done, Ok(()));
}

/// The min mark is above all that could be free, so reclaim alone cannot reach it. It does free pages, though, and in
/// the meantime other tasks end: no process is killed.
#[test]
fn operation_goes_on_while_reclaim_frees_pages() {
    const TRIES: u64 = 10;
    let mm = bench(2048, 0);
    let file = mm.create_file(FileKind::Disk { device: DeviceId(0), block: 0 }, 1024 * PAGE_SIZE);
    mm.read(file, 0, 1024 * PAGE_SIZE, GroupId(0), &mut |_, _, _| ()).unwrap();
    mm.set_knob(Knob::MinFreeKbytes, 2048 * 4).unwrap();
    let mut tries = 0;
    let done = mm.with_room(None, GroupId(0), |_| {
        tries += 1;
        if tries < TRIES { Err(lacks(false)) } else { Ok(()) }
    });
    assert_eq!(done, Ok(()));
}
