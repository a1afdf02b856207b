//! Mappings at the edges of page tables and of the address space, and moves that fail.

use super::bench::{Bench, gfp};
use super::*;
use crate::knobs::Knob;
use crate::machine::Scope;
use crate::table::EntryRun;
use crate::testing::request;
use std_alloc::boxed::Box;

const LARGE: u64 = TABLE_ENTRIES as u64;
/// The start of a table with an even number.
const AT: u64 = LARGE * 10;
const THERE: u64 = LARGE * 20;

impl Bench {
    fn map_anon(&self, id: SpaceId, at: u64, pages: u64) {
        self.spaces.mmap(&self.core, id, &request(Vpn(at), pages, Backing::Anonymous)).unwrap();
    }

    fn access(&self, id: SpaceId, at: u64, access: AccessKind) -> Result<(), FaultStop> {
        self.spaces.at(id).fault(&self.core, id, Vpn(at), access, gfp()).map(|_| ())
    }

    fn move_to(&self, id: SpaceId, at: u64, pages: u64, to: u64) {
        let remap = Remap { start: Vpn(at), old: pages, new: pages, may_move: true, fixed: Some(Vpn(to)) };
        assert_eq!(self.spaces.mremap(&self.core, id, remap, gfp()), Ok(Vpn(to)));
    }

    /// Pages that are mapped from `at` on, and their frames.
    fn frames(&self, id: SpaceId, at: u64, pages: u64) -> Vec<(u64, Pfn)> {
        let runs = self.runs(id, at, at + pages);
        let pages = |run: &EntryRun| {
            (run.page.0 - at..).zip(run.mapped(&self.core.frames).iter()).collect::<Vec<_>>()
        };
        runs.iter().flat_map(pages).collect()
    }
}

/// One of two tables is used. The target is shifted, so that each table goes to two.
#[test]
fn mremap_moves_pages_of_either_table() {
    for used in [0, 300, 511, 512, 700, 1023] {
        for shift in [1, 511] {
            let (bench, id) = Bench::new(2048, &[]);
            bench.map_anon(id, AT, 2 * LARGE);
            bench.access(id, AT + used, AccessKind::Store).unwrap();
            let before = bench.frames(id, AT, 2 * LARGE);
            assert_eq!((before.len(), before[0].0), (1, used));
            bench.move_to(id, AT, 2 * LARGE, THERE + shift);
            assert_eq!(bench.frames(id, THERE + shift, 2 * LARGE), before);
            bench.check_rooms();
        }
    }
}

/// The mapping begins one page before a large entry.
#[test]
fn mremap_splits_large_entries_of_later_tables() {
    let (bench, id) = Bench::new(4096, &[(Knob::HugepagesEnabled2048, 2)]);
    bench.map_anon(id, AT + LARGE - 1, LARGE + 1);
    bench.access(id, AT + LARGE, AccessKind::Store).unwrap();
    let before = bench.frames(id, AT + LARGE - 1, LARGE + 1);
    assert_eq!(before.len(), 512);
    bench.move_to(id, AT + LARGE - 1, LARGE + 1, THERE);
    assert_eq!(bench.frames(id, THERE, LARGE + 1), before);
    assert!(bench.runs(id, THERE, THERE + LARGE + 1).iter().all(|run| !run.is_large()));
    bench.check_rooms();
}

/// The number of the target's first page is less than that of pages.
#[test]
fn mremap_moves_to_low_addresses() {
    let (bench, id) = Bench::new(2048, &[]);
    bench.map_anon(id, AT, 2 * LARGE);
    bench.access(id, AT + 7, AccessKind::Store).unwrap();
    let before = bench.frames(id, AT, 2 * LARGE);
    bench.move_to(id, AT, 2 * LARGE, LARGE);
    assert_eq!(bench.frames(id, LARGE, 2 * LARGE), before);
    bench.check_rooms();
}

/// A call for both is then valid again.
#[test]
fn mremap_joins_a_mapping_with_the_one_behind_it() {
    let (bench, id) = Bench::new(2048, &[]);
    bench.map_anon(id, AT, 8);
    bench.move_to(id, AT, 4, THERE);
    bench.move_to(id, THERE, 4, AT);
    bench.move_to(id, AT, 8, THERE);
    bench.check_rooms();
}

#[test]
fn file_is_read_at_low_addresses() {
    let (bench, id) = Bench::new(2048, &[]);
    let file = bench.core.cache.create(FileKind::Shmem, 4 * PAGE_SIZE);
    let backing = Backing::File { file, offset: PageIndex(0), shared: true, writable: true };
    bench.spaces.mmap(&bench.core, id, &request(Vpn(16), 4, backing)).unwrap();
    (16..20).for_each(|at| assert_eq!(bench.access(id, at, AccessKind::Load), Ok(())));
    assert_eq!(bench.frames(id, 16, 4).len(), 4);
    bench.check_rooms();
}

/// Another task takes a reference when the entry is gone: the page stays, and the frame for it is free again.
#[test]
fn misplaced_page_that_stays_takes_no_memory() {
    let (bench, id) = Bench::new(2048, &[]);
    let bench: &'static Bench = Box::leak(Box::new(bench));
    bench.map_anon(id, AT, 1);
    bench.access(id, AT, AccessKind::Store).unwrap();
    let (_, pfn) = bench.frames(id, AT, 1)[0];
    let free = || {
        bench.core.alloc.drain_all(bench.mmu());
        bench.core.alloc.zones()[0].free_pages()
    };
    let before = free();
    *bench.core.machine.entered.lock() = Some(Box::new(move |_, scope| {
        if scope == Scope::TryToMigrateOne {
            bench.core.frames[pfn].get(1);
        }
    }));
    let view = bench.spaces.at(id).vmas.lock().range_of(Vpn(AT)).unwrap().view;
    assert!(!bench.spaces.at(id).move_misplaced(&bench.core, &view, pfn, NodeId(0)));
    assert!(bench.core.frames[pfn].refs() == 2 && bench.frames(id, AT, 1) == [(0, pfn)]);
    assert_eq!(free(), before);
    bench.core.put(pfn);
    bench.check_rooms();
}

/// In one step, or page by page (`rmap.batch`).
#[test]
fn large_folio_is_mapped_at_address_0() {
    for batch in [0, 1] {
        let (bench, id) = Bench::new(2048, &[(Knob::HugepagesEnabled64, 2), (Knob::RmapBatch, batch)]);
        bench.map_anon(id, 0, 16);
        assert_eq!(bench.access(id, 5, AccessKind::Store), Ok(()));
        assert_eq!(bench.frames(id, 0, 16).len(), 16, "batch {batch}");
        bench.check_rooms();
    }
}
