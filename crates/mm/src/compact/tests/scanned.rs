//! What the scanners of one compaction take, return and count.

use super::*;
use crate::event::Event;
use crate::frame::FrameFlags;
use crate::machine::Scope;
use crate::migrate::Target;
use std::sync::OnceLock;
use std_alloc::sync::Arc;

/// The folio whose place is returned still needs one.
#[test]
fn place_that_is_returned_is_wanted_again() {
    let mut bench = Bench::new(Folios::FreeSplit);
    bench.fragment(0, 4);
    let core = bench.core();
    let mut run = Compaction::new(core, bench.zone(), Control::everything(false));
    run.waiting = 5;
    let place = run.take(core, bench.zone().start(), Order::ZERO).unwrap();
    let (waiting, held) = (run.waiting, run.held.pages());
    run.give_back(core, place);
    assert_eq!((waiting, run.waiting, run.held.pages()), (4, 5, held + 1));
    core.alloc.release(core, &mut run.held);
}

/// Another task takes a reference to a folio that is about to be copied: the folio stays, and its new frame is free.
#[test]
fn frame_for_a_folio_that_stays_is_free_again() {
    let mut bench = Bench::new(Folios::FreeSplit);
    bench.fragment(0, 4);
    let bench: &'static Bench = Box::leak(Box::new(bench));
    let frames: Vec<Pfn> = bench.holds.keys().filter_map(|&at| bench.frame(at)).collect();
    let used = Arc::new(OnceLock::new());
    let of_hook = used.clone();
    *bench.mm.machine().entered.lock() = Some(Box::new(move |_, scope| {
        if scope == Scope::TryToMigrateOne {
            of_hook.get_or_init(|| {
                let records = &bench.core().frames;
                let moving = frames.iter().find(|&&pfn| records[pfn].has(FrameFlags::LOCKED)).unwrap();
                records[*moving].get(1);
                *moving
            });
        }
    }));
    let free = bench.zone().free_pages();
    bench.mm.compact_memory();
    *bench.mm.machine().entered.lock() = None;
    let stays = *used.get().unwrap();
    bench.core().put(stays);
    bench.core().alloc.drain_all(bench.mm.mmu());
    assert!(bench.stat(Stat::PgmigrateSuccess) > 0);
    assert!(bench.holds.keys().any(|&at| bench.frame(at) == Some(stays)));
    assert_eq!(bench.zone().free_pages(), free);
    bench.check();
}

/// Another CPU has begun to scan a page block after this one chose it, as the block's skip bit shows.
#[test]
fn block_that_another_cpu_scans_is_left_to_it() {
    let mut bench = Bench::new(Folios::FreeSplit);
    bench.map(0, 2048);
    (0..2048).for_each(|at| bench.store(at));
    let block = (0..2048).filter_map(|at| bench.frame(at)).find(|pfn| pfn.0.is_multiple_of(512)).unwrap();
    let how = Control { ignore_skip: false, ..Control::everything(false) };
    let mut run = Compaction::new(bench.core(), bench.zone(), how);
    bench.zone().compaction.set_skip(block);
    let end = block.add(512);
    run.isolate_from(block, end);
    assert_eq!((run.waiting, run.migrate_at, run.migrate_scanned), (0, end, 1));
}

/// Folios of 16 pages, free blocks of that size, and pages that cannot be moved.
#[test]
fn migrate_scanner_counts_each_page_once() {
    let mut bench = Bench::new(Folios::FreeSplit);
    bench.fragment(4, 2);
    let reached = Arc::new(core::sync::atomic::AtomicU64::new(0));
    let of_watcher = reached.clone();
    *bench.mm.machine().watcher.lock() = Some(Box::new(move |_, event, args| {
        if event == Event::MmCompactionEnd {
            of_watcher.store(args[1], Relaxed);
        }
    }));
    bench.mm.compact_memory();
    assert!(bench.stat(Stat::PgmigrateSuccess) > 0);
    assert_eq!(bench.stat(Stat::CompactMigrateScanned) as u64, reached.load(Relaxed));
}
