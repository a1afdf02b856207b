//! Entries that are not present, under calls that walk a range: those of pages in swap, and of pages that are being
//! moved.

use super::*;
use crate::machine::Scope;
use crate::mempolicy::MemPolicy;
use crate::mm::migrate::Moved;
use crate::primitive::{AtomicBool, Ordering::Relaxed};
use crate::stat::Stat;
use crate::testing::range;
use abi::PolicyMode;
use std_alloc::boxed::Box;

const AT: Vpn = LARGE_AT;
const PAGES: u64 = 8;
/// Frames of each of two nodes.
const FRAMES: u32 = 4096;

/// A memory manager with more swap than memory, and a process that maps nothing.
fn bench() -> (&'static Mm<TestMachine>, SpaceId) {
    let memory = [0, 1].map(|node| range(node, ZoneKind::Normal, u32::from(node) * FRAMES, FRAMES));
    let mm = with_swap(TestMachine::new(&[0; 2], &memory), 4 * FRAMES);
    let mm: &'static Mm<TestMachine> = Box::leak(Box::new(mm));
    let space = mm.create_space(ROOT).unwrap();
    (mm, space)
}

/// A process with one page, whose slot has a larger number than any frame.
fn with_page_in_swap() -> (&'static Mm<TestMachine>, SpaceId) {
    let (mm, space) = bench();
    mm.mmap(space, &request(AT, PAGES, Backing::Anonymous)).unwrap();
    mm.fault(space, AT, AccessKind::Store).unwrap();
    while mm.core.swap.alloc(mm.mmu(), ROOT).unwrap().0 < 3 * FRAMES {}
    mm.madvise(space, AT, 1, Advice::PageOut).unwrap();
    assert!(slot(mm, space).is_some_and(|slot| slot.0 > 2 * FRAMES));
    (mm, space)
}

fn slot(mm: &Mm<TestMachine>, space: SpaceId) -> Option<SwapSlot> {
    let tables = mm.core.tables.lock(mm.mmu(), space);
    tables.find(AT).and_then(|run| run.entry.as_swap()).map(|(slot, _)| slot)
}

#[test]
fn cold_skips_pages_in_swap() {
    let (mm, space) = with_page_in_swap();
    let before = slot(mm, space);
    assert_eq!(mm.madvise(space, AT, PAGES, Advice::Cold), Ok(()));
    assert_eq!(slot(mm, space), before);
}

#[test]
fn move_pages_skips_pages_in_swap() {
    let (mm, space) = with_page_in_swap();
    let before = slot(mm, space);
    assert_eq!(mm.move_pages(space, AT, PAGES, Some(NodeId(1))), Ok(Moved::default()));
    assert_eq!(slot(mm, space), before);
}

#[test]
fn mlock_brings_pages_back_from_swap() {
    let (mm, space) = with_page_in_swap();
    assert_eq!(mm.mlock(space, AT, 1, true), Ok(()));
    assert_eq!((slot(mm, space), mm.mmu().stats.read(Stat::NrMlock)), (None, 1));
}

/// Move pages, and call `meanwhile` when their entries are gone and they are about to be mapped again.
fn move_with(
    mm: &'static Mm<TestMachine>,
    (space, at, pages): (SpaceId, Vpn, u64),
    meanwhile: fn(&Mm<TestMachine>, SpaceId, u64),
) {
    let called: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
    *mm.machine().entered.lock() = Some(Box::new(move |_, scope| {
        if scope == Scope::RemoveMigrationPtes && !called.swap(true, Relaxed) {
            let tables = mm.core.tables.lock(mm.mmu(), space);
            assert!(tables.find(at).unwrap().entry.as_migrating().is_some());
            drop(tables);
            meanwhile(mm, space, pages);
        }
    }));
    mm.move_pages(space, at, pages, Some(NodeId(1))).unwrap();
    assert!(called.load(Relaxed));
}

/// Whatever the entries are for, the process maps nothing afterwards, and its end leaves nothing.
#[test]
fn munmap_of_pages_that_are_being_moved_leaves_nothing() {
    let shmem = |mm: &Mm<TestMachine>, order| {
        mm.mmu().knobs.set(Knob::ShmemMaxOrder, order).unwrap();
        mm.mmu().knobs.set(Knob::ThpFilePmd, 1).unwrap();
        let file = mm.create_file(FileKind::Shmem, LARGE * PAGE_SIZE);
        Backing::File { file, offset: PageIndex(0), shared: true, writable: true }
    };
    for (order, is_file) in [(0, false), (9, false), (0, true), (9, true)] {
        let (mm, space) = bench();
        let backing = if is_file { shmem(mm, order) } else { Backing::Anonymous };
        if order > 0 && !is_file {
            mm.mmu().knobs.set(Knob::HugepagesEnabled2048, 2).unwrap();
        }
        let pages = 1 << order;
        mm.mmap(space, &request(AT, pages, backing)).unwrap();
        mm.fault(space, AT, AccessKind::Store).unwrap();
        let resident = || mm.core.tables.lock(mm.mmu(), space).counts().rss();
        assert_eq!(resident(), pages, "order {order}, {is_file}");
        move_with(mm, (space, AT, pages), |mm, space, pages| mm.munmap(space, AT, pages).unwrap());
        assert_eq!(resident(), 0, "order {order}, {is_file}");
        mm.validate().unwrap();
        mm.exit_space(space);
        let left = [Stat::NrAnonPages, Stat::NrMapped, Stat::NrPageTablePages];
        assert_eq!(left.map(|stat| mm.mmu().stats.read(stat)), [0; 3], "order {order}, {is_file}");
        mm.validate().unwrap();
    }
}

/// What one task is moving, no other task can move: calls count it.
#[test]
fn calls_count_pages_that_are_being_moved() {
    let (mm, space) = bench();
    mm.mmap(space, &request(AT, PAGES, Backing::Anonymous)).unwrap();
    (0..PAGES).for_each(|page| _ = mm.fault(space, Vpn(AT.0 + page), AccessKind::Store).unwrap());
    move_with(mm, (space, Vpn(AT.0 + 3), 1), |mm, space, _| {
        let moved = mm.move_pages(space, AT, PAGES, None);
        assert_eq!(moved, Ok(Moved { mapped: PAGES, moved: PAGES - 1, failed: 1 }));
        let policy = MemPolicy::new(PolicyMode::Bind, Nodes(0b10)).unwrap();
        assert_eq!(mm.mbind(space, AT, PAGES, policy, true), Ok(1));
    });
    mm.validate().unwrap();
}

/// All pages of the file are in swap.
#[test]
fn collapse_reads_shmem_back_from_swap() {
    let (mm, space) = bench();
    let file = mm.create_file(FileKind::Shmem, LARGE * PAGE_SIZE);
    let backing = Backing::File { file, offset: PageIndex(0), shared: true, writable: true };
    mm.mmap(space, &request(AT, LARGE, backing)).unwrap();
    for page in 0..PAGES {
        let (pfn, _) = reach(mm, space, Vpn(AT.0 + page), true, 4).unwrap();
        mm.machine().set_stamp(pfn, page + 1);
    }
    let blocks: &'static Blocks = Box::leak(Box::new(Blocks::default()));
    *mm.machine().idle.lock() = Some(Box::new(|_| carry_transfers(mm, blocks, None)));
    mm.madvise(space, AT, PAGES, Advice::PageOut).unwrap();
    carry_transfers(mm, blocks, None);
    reclaim_node(mm);
    assert_eq!(mm.core.cache.survey(file, PageIndex(0)).cached, 0);
    assert_eq!(mm.collapse(space, AT, LARGE), Ok(1));
    for page in 0..PAGES {
        let (pfn, _) = reach(mm, space, Vpn(AT.0 + page), false, 4).unwrap();
        assert_eq!(mm.machine().stamp(pfn), page + 1);
    }
    mm.validate().unwrap();
}
