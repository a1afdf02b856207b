//! Cost of unmapping, sharing and protecting a folio, counted exactly: atomic changes and updates of statistics.

use super::bench::gfp;
use super::folios::World;
use super::*;
use crate::api::{AccessKind, Advice, Prot};
use crate::frame::FolioRun;
use crate::machine::Work;
use crate::rmap::UnmapMode;
use crate::table::EntryRun;
use crate::tlb::UnmapBatch;
use base::primitive::counted;
use std_alloc::vec::Vec;

/// (atomic changes of integers, updates of statistics of mapped pages)
type Cost = (u64, u64);

/// A step on a folio that is mapped in the world's only space.
type Step = fn(&World, EntryRun);

const UNMAP: Step = |world, run| {
    let memory = &world.core;
    let mut batch = UnmapBatch::new(memory.host());
    let pfn = run.mapped(&world.core.frames).head;
    world.core.rmap.try_to_unmap(memory, FolioRun::one(&pfn), UnmapMode::default(), &mut batch);
    assert_eq!(world.core.frames[pfn].mapcount(), 0);
    batch.settle(memory.host(), &world.core.tlb);
};

const ZAP: Step = |world, run| {
    let pages = world.core.frames[run.mapped(&world.core.frames).head].pages() as u64;
    world.spaces.madvise(&world.core, world.ids[0], run.page, pages, Advice::DontNeed).unwrap();
};

const FORK: Step = |world, _| {
    world.spaces.fork(&world.core, world.ids[0], gfp()).unwrap();
};

const PROTECT: Step = |world, run| {
    world.spaces.mprotect(&world.core, world.ids[0], run.page, 512, Prot::READ).unwrap();
};

/// Cost of a step for folios of orders 0 to 9, with their numbers of pages. `held`: with a reference, as in reclaim;
/// there is no cache's reference in either case.
fn costs(step: Step, held: bool, batch: u64, file: bool) -> Vec<(u64, Cost)> {
    let cost = |order| {
        let world = World::new(batch, 1);
        let run = world.one_folio(Order(order), file);
        let head = run.mapped(&world.core.frames).head;
        world.core.frames[head].get(u32::from(held));
        assert!(!held || world.core.try_lock_folio(head));
        let before = (counted::changes(), world.core.machine.work(Work::StatUpdate));
        step(&world, run);
        let cost = (counted::changes() - before.0, world.core.machine.work(Work::StatUpdate) - before.1);
        (1 << order, cost)
    };
    (0..=9).map(cost).collect()
}

#[track_caller]
fn is_entry_by_entry(pages: u64, (changes, updates): Cost) {
    assert!(changes >= 9 * pages && updates == pages, "{pages} pages: {changes} changes, {updates} updates");
}

/// The tree's gate, in and out, and the lock of the table; for a folio of 2 MiB a walk holds all tables.
fn locks(pages: u64) -> u64 {
    if pages == 512 { 2 } else { 3 }
}

/// Only the entry and the page's own count change for each page. All else changes once a run: the folio's counts and
/// references, the size of the space, the flush's generation and debt, the statistics.
#[test]
fn reclaim_unmaps_a_folio_in_one_step() {
    for (pages, cost) in costs(UNMAP, true, 1, true) {
        // A single page has no separate page count.
        let all = if pages == 1 { 13 } else { 13 + 2 * pages };
        assert_eq!(cost, (locks(pages) + all, 1), "{pages} pages");
    }
    for (pages, cost) in costs(UNMAP, true, 0, true) {
        assert_eq!(
            cost,
            (locks(pages) + if pages == 1 { 13 } else { 14 * pages + 1 }, pages),
            "{pages} pages, entry by entry"
        );
    }
}

/// Includes freeing the folio, which costs the same for a large one, except for the path to the shared lists.
#[test]
fn munmap_removes_a_folio_in_one_step() {
    for (pages, (changes, updates)) in [true, false].iter().flat_map(|&file| costs(ZAP, false, 1, file)) {
        let once = if pages == 1 { changes } else { changes - 2 * pages };
        assert!(
            (25..=30).contains(&once) && updates == 1,
            "{pages} pages: {changes} changes, {updates} updates"
        );
    }
    costs(ZAP, false, 0, true).into_iter().for_each(|(pages, cost)| is_entry_by_entry(pages, cost));
}

/// For each page: the parent's entry, the exclusive flag, the mapcount, the child's entry.
#[test]
fn fork_shares_a_folio_in_one_step() {
    let (mut shared, mut protected) = (Vec::new(), Vec::new());
    for (pages, cost) in costs(FORK, false, 1, false) {
        shared.push(if pages == 1 { (cost.0 + 1, cost.1) } else { (cost.0 + 4 - 4 * pages, cost.1) });
    }
    for (pages, (changes, updates)) in costs(PROTECT, false, 1, false) {
        protected.push((changes - pages, updates));
    }
    // The cost of the call does not depend on pages, and the statistics do not change.
    assert!(shared.iter().all(|&cost| cost == shared[0] && cost.1 == 0), "{shared:?}");
    assert!(protected.iter().all(|&cost| cost == protected[0] && cost.1 == 0), "{protected:?}");
}

/// Cost of a first store that allocates a folio, and of unmapping it, for all sizes of anonymous folios.
fn fault_costs(batch: u64) -> Vec<(u64, [Cost; 2])> {
    let cost = |order: u8| {
        let world = World::new(batch, 1);
        let store = |page| {
            world
                .spaces
                .at(world.ids[0])
                .fault(&world.core, world.ids[0], Vpn(page), AccessKind::Store, gfp())
                .unwrap()
        };
        let so_far = || (counted::changes(), world.core.machine.work(Work::StatUpdate));
        // This store gives the range its set; the table for the next one is still missing.
        store(512 * 10 - 1);
        let sizes: Vec<u64> = (2..=9).map(|enabled| if enabled == order { 2 } else { 0 }).collect();
        world.enable(&sizes);
        let before = so_far();
        store(512 * 10);
        let between = so_far();
        let run = *world.runs(world.ids[0], 512 * 10, 512 * 11).first().unwrap();
        assert_eq!(world.core.frames[run.mapped(&world.core.frames).head].order(), Order(order));
        let ready = so_far();
        ZAP(&world, run);
        let after = so_far();
        let made = (between.0 - before.0, between.1 - before.1);
        (1 << order, [made, (after.0 - ready.0, after.1 - ready.1)])
    };
    [0].into_iter().chain(2..=9).map(cost).collect()
}

/// For each page only its entry and its own count, in both directions. Once: the folio's counts, references, list and
/// charge, the size of the space, the statistics. A 2 MiB entry costs nothing for each page.
#[test]
fn fault_maps_a_new_folio_in_one_step() {
    let [mut made, mut unmapped] = [Vec::new(), Vec::new()];
    for (pages, [fault, unmap]) in fault_costs(1) {
        let each = if (2..512).contains(&pages) { 2 * pages } else { 0 };
        // Large entries have a counter of their own.
        assert_eq!((fault.1, unmap.1), if pages == 512 { (2, 2) } else { (1, 1) }, "{pages} pages");
        made.push(fault.0 - each);
        unmapped.push(unmap.0 - each);
    }
    // Allocation and freeing of blocks differ a little by size: CPUs' lists and buddies.
    for costs in [made, unmapped] {
        let (least, most) = (costs.iter().min().unwrap(), costs.iter().max().unwrap());
        assert!(most - least <= 15 && *most <= 55, "{costs:?}");
    }
    for (pages, costs) in fault_costs(0).into_iter().filter(|&(pages, _)| pages < 512) {
        costs.into_iter().for_each(|cost| is_entry_by_entry(pages, cost));
    }
}
