//! Compaction of whole zones, with each value of the knob.

mod retried;
mod scanned;
mod seen;

use super::zone::compact_zone;
use super::{Compaction, Control, Folios, Outcome, Priority, daemon, direct};
use crate::alloc::{FreeBlocks, NeedsReclaim, Zone};
use crate::api::*;
use crate::frame::Mobility;
use crate::knobs::{AllocPlacement, Knob};
use crate::machine::{Machine, WaitKey, ZoneKind};
use crate::migrate::Mode;
use crate::mm::{Config, Mm};
use crate::mm_core::MmCore;
use crate::primitive::{AtomicU64, Ordering::Relaxed};
use crate::stat::{SizeStat, Stat};
use crate::table::Bits;
use crate::testing::{TestMachine, block, request};
use crate::units::*;
use proptest::prelude::*;
use std_alloc::boxed::Box;
use std_alloc::collections::BTreeMap;
use std_alloc::vec::Vec;

const ROOT: GroupId = GroupId(0);
const AT: Vpn = Vpn(512 * 40);
const FRAMES: u32 = 8192;
/// A multiple of 2 MiB behind all that tests map.
const BEYOND: u64 = 512 * 59;
const HUGE: Order = PAGEBLOCK_ORDER;

/// A machine with one zone and a process, and the contents of its pages.
struct Bench {
    mm: Mm<TestMachine>,
    space: SpaceId,
    holds: BTreeMap<u64, u64>,
}

impl Bench {
    fn new(folios: Folios) -> Bench {
        Bench::placing(folios, AllocPlacement::Smallest)
    }

    fn placing(folios: Folios, placement: AllocPlacement) -> Bench {
        Bench::on(TestMachine::simple(2, FRAMES), folios, placement)
    }

    fn on(machine: TestMachine, folios: Folios, placement: AllocPlacement) -> Bench {
        let config = Config::default();
        config.knobs.set(Knob::AllocPlacement, placement as u64).unwrap();
        let mm = Mm::new(machine, config).unwrap();
        let space = mm.create_space(ROOT).unwrap();
        let bench = Bench { mm, space, holds: BTreeMap::new() };
        bench.set(Knob::CompactionFolios, folios as u64);
        bench
    }

    /// The same with nearly all memory in use, and no free block of 2 MiB.
    fn fragmented(folios: Folios, order: u8, keep: u64) -> Bench {
        let mut bench = Bench::new(folios);
        bench.fragment(order, keep);
        bench.take_huge();
        bench
    }

    fn core(&self) -> &MmCore<TestMachine> {
        self.mm.core()
    }

    fn zone(&self) -> &Zone {
        &self.core().alloc.zones()[0]
    }

    fn set(&self, knob: Knob, value: u64) {
        self.mm.mmu().knobs.set(knob, value).unwrap();
    }

    fn stat(&self, stat: Stat) -> i64 {
        self.mm.mmu().stats.read(stat)
    }

    fn map(&self, at: u64, pages: u64) {
        self.mm.mmap(self.space, &request(Vpn(AT.0 + at), pages, Backing::Anonymous)).unwrap();
    }

    /// The frame that a page is mapped to.
    fn frame(&self, at: u64) -> Option<Pfn> {
        let tables = self.core().tables.lock(self.mm.mmu(), self.space);
        let run = tables.find(Vpn(AT.0 + at)).filter(|run| run.entry.bits().contains(Bits::PRESENT))?;
        Some(run.entry.pfn().add((AT.0 + at - run.page.0) as u32))
    }

    fn store(&mut self, at: u64) {
        if self.frame(at).is_none() {
            self.mm.fault(self.space, Vpn(AT.0 + at), AccessKind::Store).unwrap();
        }
        let value = 7 + at;
        self.mm.machine().set_stamp(self.frame(at).unwrap(), value);
        self.holds.insert(at, value);
    }

    /// Map as many pages as there are frames, and store to them until no more than `free` pages are free. Returns how
    /// many were stored to.
    fn store_until(&mut self, free: u64) -> u64 {
        self.map(0, u64::from(FRAMES));
        let mut at = 0;
        while self.zone().free_pages() > free {
            self.store(at);
            at += 1;
        }
        at
    }

    fn forget(&mut self, at: u64, pages: u64) {
        self.mm.madvise(self.space, Vpn(AT.0 + at), pages, Advice::DontNeed).unwrap();
        self.holds.retain(|page, _| !(at..at + pages).contains(page));
    }

    /// Every page has the content that was written, and the state is consistent.
    fn check(&self) {
        let mut frames: Vec<Pfn> = Vec::new();
        for (&at, &value) in &self.holds {
            let pfn = self.frame(at).unwrap_or_else(|| panic!("page {at} must be mapped"));
            assert_eq!(self.mm.machine().stamp(pfn), value, "page {at}");
            frames.push(pfn);
        }
        frames.sort();
        assert!(frames.windows(2).all(|pair| pair[0] != pair[1]), "no frame may be mapped twice");
        self.mm.validate().unwrap();
    }

    /// Take nearly all memory, in folios of `order`, then free all but every `keep`th folio.
    fn fragment(&mut self, order: u8, keep: u64) {
        let sizes = Knob::ALL.iter().filter(|knob| knob.info().name.starts_with("hugepages-"));
        for (&knob, size) in sizes.zip(2..) {
            self.set(knob, if size == order { 2 } else { 0 });
        }
        let pages = u64::from(FRAMES) - 1536;
        self.map(0, pages);
        let step = 1u64 << order;
        for at in (0..pages).step_by(step as usize) {
            (at..at + step).for_each(|at| self.store(at));
        }
        // Keep single pages irregularly: a scanner that examines only every nth frame must find some.
        let number = |at: u64| if order == 0 { at.wrapping_mul(0x9e37_79b9) >> 13 } else { at / step };
        for at in (0..pages).step_by(step as usize).filter(|&at| number(at) % keep != 0) {
            self.forget(at, step);
        }
        self.core().alloc.drain_all(self.mm.mmu());
        self.check();
    }

    fn needs(&self, order: Order) -> NeedsReclaim {
        NeedsReclaim { order, node: NodeId(0), highest: ZoneKind::Movable, among: Nodes::ALL, apart: false }
    }

    fn direct(&self, order: Order, priority: Priority) -> Outcome {
        let made = direct(self.core(), &self.needs(order), priority);
        assert_eq!(made.there, made.outcome == Outcome::Success, "{made:?}");
        made.outcome
    }

    /// Allocate all blocks of 2 MiB for good.
    fn take_huge(&self) {
        let request = block(HUGE, Mobility::Unmovable);
        let alloc = &self.core().alloc;
        while self.huge() > 0 {
            alloc.take(self.mm.mmu(), &request, crate::alloc::Watermark::Min).unwrap().into_pfn();
            alloc.drain_all(self.mm.mmu());
        }
    }

    /// Run kcompactd from the time `now` until it sleeps for the `last` time. Returns the time then.
    fn kcompactd(&self, now: Nanos, last: u64) -> Nanos {
        let machine = self.mm.machine();
        machine.set_clock(now);
        machine.stops.store(false, Relaxed);
        let sleeps = AtomicU64::new(0);
        *machine.idle.lock() = Some(Box::new(move |machine| {
            if sleeps.fetch_add(1, Relaxed) + 1 == last {
                machine.stops.store(true, Relaxed);
                machine.wake(WaitKey::Kcompactd(NodeId(0)));
            }
        }));
        daemon(self.core(), NodeId(0));
        machine.now()
    }

    /// Free blocks of 2 MiB.
    fn huge(&self) -> u64 {
        self.zone().blocks().suitable(HUGE)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.check();
        }
    }
}

#[test]
fn compaction_moves_single_pages_to_make_a_block() {
    for priority in [Priority::Async, Priority::SyncLight, Priority::SyncFull] {
        let bench = Bench::fragmented(Folios::FreeSplit, 0, 4);
        assert_eq!(bench.direct(HUGE, priority), Outcome::Success);
        assert!(bench.huge() >= 1);
        let counted =
            [Stat::CompactStall, Stat::CompactSuccess, Stat::CompactFail].map(|stat| bench.stat(stat));
        assert_eq!(counted, [1, 1, 0]);
        let moved = bench.stat(Stat::PgmigrateSuccess);
        assert!((1..1024).contains(&moved), "{moved} pages were moved for one block");
        assert!(bench.stat(Stat::CompactMigrateScanned) >= moved);
        assert!(
            bench.stat(Stat::CompactIsolated) >= 2 * moved,
            "each move isolates a page and a place for it"
        );
    }
}

#[test]
fn compacting_everything_leaves_nothing_to_move() {
    let mut bench = Bench::new(Folios::FreeSplit);
    bench.fragment(0, 4);
    let FreeBlocks(before) = bench.zone().blocks();
    bench.mm.compact_memory();
    bench.core().alloc.drain_all(bench.mm.mmu());
    let free = bench.zone().free_pages();
    // As many blocks as fit, except where the scanners met.
    assert!(bench.huge() >= free / 512 - 2, "{} of {free} pages, before {before:?}", bench.huge());
    bench.check();
    let moved = bench.stat(Stat::PgmigrateSuccess);
    bench.mm.compact_memory();
    assert!(bench.stat(Stat::PgmigrateSuccess) - moved < 1024, "a second compaction must move little");
}

/// Four page blocks keep a page of eight, and four keep every other page. The former fit into the latter, and then one
/// of the latter into the other three: nothing makes five whole blocks with fewer moves.
#[test]
fn compaction_by_fullness_makes_the_fewest_moves() {
    let mut bench = Bench::placing(Folios::FreeSplit, AllocPlacement::Densest);
    bench.map(0, 8 * 512);
    (0..8 * 512).for_each(|at| bench.store(at));
    let mut blocks: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for &at in bench.holds.keys() {
        blocks.entry(bench.frame(at).unwrap().0 / 512).or_default().push(at);
    }
    assert!(blocks.len() == 8 && blocks.values().all(|pages| pages.len() == 512));
    for (pages, keep) in blocks.values().zip([8, 2].into_iter().cycle()) {
        let forgotten = pages.iter().enumerate().filter(|(nth, _)| nth % keep != 0);
        forgotten.for_each(|(_, &at)| bench.forget(at, 1));
    }
    bench.core().alloc.drain_all(bench.mm.mmu());
    let before = bench.huge();
    bench.mm.compact_memory();
    let moved = 4 * 64 + 256;
    assert_eq!((bench.huge() - before, bench.stat(Stat::PgmigrateSuccess)), (5, moved));
    assert_eq!(bench.stat(Stat::CompactIsolated), 2 * moved);
    // The three that are left cannot take another.
    bench.mm.compact_memory();
    assert_eq!(bench.stat(Stat::PgmigrateSuccess), moved);
}

/// The page block with the fewest pages is the last of memory, whole or not.
#[test]
fn compaction_by_fullness_stays_in_memory() {
    for missing in [0, 200] {
        let machine = TestMachine::simple(2, FRAMES - missing);
        let mut bench = Bench::on(machine, Folios::FreeSplit, AllocPlacement::Densest);
        let stored = bench.store_until(300);
        let last = FRAMES - 512;
        assert!((0..stored).any(|at| bench.frame(at).unwrap().0 >= last), "the last block must be used");
        for at in 0..stored {
            let keep = if bench.frame(at).unwrap().0 >= last { 16 } else { 2 };
            if at % keep != 0 {
                bench.forget(at, 1);
            }
        }
        bench.core().alloc.drain_all(bench.mm.mmu());
        bench.mm.compact_memory();
        assert!(bench.stat(Stat::PgmigrateSuccess) > 0);
    }
}

/// Folios of 16 pages, and free blocks of the same size between them.
#[test]
fn each_knob_value_keeps_or_splits_large_folios() {
    for &folios in Folios::ALL {
        let mut bench = Bench::new(folios);
        bench.fragment(4, 2);
        let before = bench.mm.mmu().sizes.read(SizeStat::NrAnon, Order(4));
        let huge = bench.huge();
        bench.mm.compact_memory();
        bench.check();
        let sizes = &bench.mm.mmu().sizes;
        let (after, split) = (sizes.read(SizeStat::NrAnon, Order(4)), sizes.read(SizeStat::Split, Order(4)));
        let moved = bench.stat(Stat::PgmigrateSuccess);
        match folios {
            Folios::Single => assert_eq!((after, bench.huge(), moved), (before, huge, 0)),
            Folios::Split => {
                assert!(bench.huge() > huge + 2 && moved > 0);
                assert!(
                    split * 16 >= moved as u64 && after + split == before,
                    "{split} split, {moved} moved"
                );
            }
            _ => {
                assert!(bench.huge() > huge + 2, "{folios:?}: {} after {huge}", bench.huge());
                assert_eq!((after, split), (before, 0), "{folios:?}");
            }
        }
        assert_eq!(bench.mm.mmu().knobs.compaction_folios(), folios);
    }
}

/// Where free blocks are larger than the folios, the value `whole` has no place for them; the values that split blocks
/// have.
#[test]
fn free_blocks_are_split_for_smaller_folios() {
    for (folios, kept) in [(Folios::Whole, false), (Folios::FreeSplit, true), (Folios::Merge, true)] {
        let mut bench = Bench::new(folios);
        bench.fragment(4, 16);
        let before = bench.mm.mmu().sizes.read(SizeStat::NrAnon, Order(4));
        bench.mm.compact_memory();
        bench.check();
        let sizes = &bench.mm.mmu().sizes;
        assert_eq!(sizes.read(SizeStat::NrAnon, Order(4)) == before, kept, "{folios:?}");
        assert_eq!(sizes.read(SizeStat::Split, Order(4)) == 0, kept, "{folios:?}");
    }
}

#[test]
fn large_folios_are_moved_for_a_larger_block() {
    let bench = Bench::fragmented(Folios::FreeSplit, 4, 4);
    let isolated = bench.stat(Stat::CompactIsolated);
    let how = |order| Control {
        order: Some(order),
        mobility: Mobility::Movable,
        highest: ZoneKind::Movable,
        mark: crate::alloc::Watermark::Min,
        mode: Mode::SyncLight,
        whole_blocks: false,
        direct: true,
        proactive: false,
        whole_zone: true,
        ignore_skip: true,
        ignore_suitable: true,
    };
    // A free block of that order exists already.
    assert_eq!(compact_zone(bench.core(), bench.zone(), how(Order(4))).outcome, Outcome::Success);
    assert_eq!(bench.stat(Stat::CompactIsolated), isolated);
    let folios = bench.mm.mmu().sizes.read(SizeStat::NrAnon, Order(4));
    assert_eq!(compact_zone(bench.core(), bench.zone(), how(HUGE)).outcome, Outcome::Success);
    assert_eq!((bench.huge() > 0, bench.mm.mmu().sizes.read(SizeStat::NrAnon, Order(4))), (true, folios));
}

#[test]
fn compaction_is_skipped_without_memory_to_move_to() {
    let mut bench = Bench::new(Folios::FreeSplit);
    bench.set(Knob::WatermarkBoostFactor, 0);
    let low = bench.zone().mark(crate::alloc::Watermark::Low);
    let at = bench.store_until(low + 64);
    for page in (0..at).step_by(2).take(400) {
        bench.forget(page, 1);
    }
    bench.core().alloc.drain_all(bench.mm.mmu());
    assert_eq!(bench.direct(HUGE, Priority::SyncLight), Outcome::Skipped);
    assert_eq!([Stat::CompactStall, Stat::CompactMigrateScanned].map(|stat| bench.stat(stat)), [0, 0]);
}

#[test]
fn failed_compaction_defers_the_next_ones() {
    let bench = Bench::fragmented(Folios::Single, 4, 4);
    let outcomes: Vec<Outcome> = (0..4).map(|_| bench.direct(HUGE, Priority::SyncLight)).collect();
    assert!(matches!(outcomes[0], Outcome::Complete | Outcome::PartialSkipped), "{outcomes:?}");
    assert_eq!(outcomes[1], Outcome::Deferred);
    // The highest priority is never deferred.
    assert!(bench.direct(HUGE, Priority::SyncFull) > Outcome::Deferred);
    let [stalls, fails] = [Stat::CompactStall, Stat::CompactFail].map(|stat| bench.stat(stat));
    assert_eq!((stalls, fails), (5, 5), "a deferred compaction counts as failed, as in Linux");
}

/// A store that wants 2 MiB, in a range with and without MADV_HUGEPAGE, under each mode of `thp.defrag`.
#[test]
fn store_compacts_for_a_large_folio_as_defrag_allows() {
    let always = (0, [true, true]);
    let modes = [always, (1, [false, false]), (2, [false, true]), (3, [false, true]), (4, [false, false])];
    for (mode, waits) in modes {
        for (asked, waits) in [false, true].into_iter().zip(waits) {
            let mut bench = Bench::fragmented(Folios::FreeSplit, 0, 4);
            bench.set(Knob::HugepagesEnabled2048, 2);
            bench.set(Knob::ThpDefrag, mode);
            bench.map(BEYOND, 512);
            if asked {
                bench.mm.madvise(bench.space, Vpn(AT.0 + BEYOND), 512, Advice::HugePage).unwrap();
            }
            let wakes = |bench: &Bench| {
                let keys = [WaitKey::Kcompactd(NodeId(0)), WaitKey::Kswapd(NodeId(0))];
                keys.map(|key| bench.mm.machine().wakes(key)).iter().sum::<u64>()
            };
            bench.mm.core().alloc.set_kswapd_waits(NodeId(0), true);
            let before = wakes(&bench);
            bench.store(BEYOND);
            let [stalls, made, small] = [Stat::CompactStall, Stat::ThpFaultAlloc, Stat::ThpFaultFallback]
                .map(|stat| bench.stat(stat));
            let expected = if waits { (1, 1, 0) } else { (0, 0, 1) };
            assert_eq!((stalls, made, small), expected, "mode {mode}, asked for: {asked}");
            let wakes_others = mode == 1 || mode == 2 && !asked;
            assert_eq!(wakes(&bench) > before, wakes_others, "mode {mode}, asked for: {asked}");
            bench.check();
        }
    }
}

/// Memory between the min and low watermarks is for allocations that find none above the low one: they try it before
/// they compact or reclaim.
#[test]
fn block_between_the_marks_is_allocated_without_compaction() {
    let mut bench = Bench::new(Folios::FreeSplit);
    bench.mm.set_knob(Knob::WatermarkScaleFactor, 3000).unwrap();
    bench.store_until(bench.zone().mark(crate::alloc::Watermark::Low));
    bench.set(Knob::HugepagesEnabled2048, 2);
    bench.set(Knob::ThpDefrag, 0);
    bench.map(BEYOND, 512);
    bench.store(BEYOND);
    let counts = [Stat::ThpFaultAlloc, Stat::CompactStall, Stat::PgscanDirect].map(|stat| bench.stat(stat));
    assert_eq!(counts, [1, 0, 0]);
}

/// A block with a part on another CPU's list becomes available after reclaim has freed something without success.
#[test]
fn reclaim_drains_other_cpus_to_complete_a_block() {
    let mut bench = Bench::new(Folios::FreeSplit);
    bench.set(Knob::WatermarkBoostFactor, 0);
    let at = bench.store_until(400);
    // The pages of a block that is fully in use; one of them goes to the list of CPU 1.
    let page_in: BTreeMap<u32, u64> = (0..at).map(|page| (bench.frame(page).unwrap().0, page)).collect();
    let whole = |first: &u32| (*first..*first + 512).all(|frame| page_in.contains_key(&frame));
    let first = (0..FRAMES - 511).step_by(512).find(whole).unwrap();
    let gone: Vec<u64> = (first..first + 512).map(|frame| page_in[&frame]).collect();
    for (i, &page) in gone.iter().enumerate() {
        bench.mm.machine().run_on(u16::from(i == 100));
        bench.forget(page, 1);
    }
    bench.mm.machine().run_on(0);
    bench.core().alloc.drain_cpu(bench.mm.mmu(), CpuId(0));
    // Pages for reclaim.
    let free: Vec<u64> = (0..at).filter(|page| !gone.contains(page)).take(128).collect();
    for page in free {
        bench.mm.madvise(bench.space, Vpn(AT.0 + page), 1, Advice::Free).unwrap();
        bench.holds.remove(&page);
    }
    bench.set(Knob::HugepagesEnabled2048, 2);
    bench.map(BEYOND, 512);
    bench.mm.madvise(bench.space, Vpn(AT.0 + BEYOND), 512, Advice::HugePage).unwrap();
    assert_eq!(bench.huge(), 0, "one page is missing from the block");
    bench.store(BEYOND);
    assert!(bench.stat(Stat::PgscanDirect) > 0);
    assert_eq!((bench.stat(Stat::ThpFaultAlloc), bench.stat(Stat::ThpFaultFallback)), (1, 0));
}

#[test]
fn kcompactd_makes_the_requested_block() {
    let bench = Bench::fragmented(Folios::FreeSplit, 0, 4);
    let wanted = crate::alloc::KswapdRequest { order: HUGE, highest: ZoneKind::Movable };
    bench.core().alloc.wake_kcompactd(bench.mm.mmu(), NodeId(0), wanted);
    assert_eq!(bench.core().alloc.take_kcompactd_request(NodeId(0)), Some(wanted));
    daemon::work(bench.core(), NodeId(0), wanted);
    assert!(bench.huge() >= 1);
    assert_eq!(bench.stat(Stat::CompactDaemonWake), 1);
    assert_eq!(bench.stat(Stat::CompactDaemonMigrateScanned), bench.stat(Stat::CompactMigrateScanned));
    assert_eq!(bench.stat(Stat::CompactDaemonFreeScanned), bench.stat(Stat::CompactFreeScanned));
    // Now kcompactd has nothing to do.
    bench.core().alloc.wake_kcompactd(bench.mm.mmu(), NodeId(0), wanted);
    assert_eq!(bench.core().alloc.kcompactd_request(NodeId(0)), None);
}

/// A block of any mobility group will do for kcompactd, which allocates for nobody in particular.
#[test]
fn kcompactd_makes_blocks_for_the_kernel() {
    let bench = Bench::new(Folios::FreeSplit);
    let wanted = crate::alloc::KswapdRequest { order: Order(3), highest: ZoneKind::Movable };
    let how = daemon::control(bench.core(), wanted);
    assert_eq!((how.mobility, how.order, how.direct), (Mobility::Unmovable, Some(Order(3)), false));
}

/// Under `vm.defrag_mode` kcompactd continues until the high watermark is met in whole page blocks.
#[test]
fn kcompactd_makes_whole_blocks_up_to_the_mark() {
    let made = [0, 1].map(|mode| {
        let bench = Bench::fragmented(Folios::FreeSplit, 0, 4);
        bench.mm.set_knob(Knob::WatermarkScaleFactor, 1000).unwrap();
        bench.set(Knob::DefragMode, mode);
        let wanted = crate::alloc::KswapdRequest { order: HUGE, highest: ZoneKind::Movable };
        daemon::work(bench.core(), NodeId(0), wanted);
        bench.check();
        (bench.huge() * 512, bench.zone().mark(crate::alloc::Watermark::High))
    });
    assert!(made[0].0 < made[0].1 && made[1].0 > made[1].1, "{made:?}");
}

/// Page tables find memory although no page block is free: mobility groups that `vm.defrag_mode` keeps apart are mixed
/// before memory runs out.
#[test]
fn mobility_groups_are_mixed_before_memory_runs_out() {
    let mut bench = Bench::fragmented(Folios::FreeSplit, 0, 2);
    bench.set(Knob::DefragMode, 1);
    // A table for each page: more than one page block of them.
    for i in 0..700 {
        let at = 40_000 + i * 512;
        bench.map(at, 1);
        bench.store(at);
    }
    assert!(bench.mm.oom_reports().is_empty());
}

#[test]
fn proactive_compaction_reduces_fragmentation() {
    let mut bench = Bench::new(Folios::FreeSplit);
    bench.fragment(0, 4);
    bench.set(Knob::CompactionProactiveness, 50);
    let score = |bench: &Bench| bench.zone().blocks().external_fragmentation(HUGE);
    assert!(score(&bench) > 60);
    assert!(daemon::proactive(bench.core(), NodeId(0)));
    assert!(score(&bench) <= 50, "{}", score(&bench));
    assert!(bench.stat(Stat::CompactDaemonMigrateScanned) > 0);
    bench.check();
    let scanned = bench.stat(Stat::CompactMigrateScanned);
    assert!(daemon::proactive(bench.core(), NodeId(0)));
    assert_eq!(
        bench.stat(Stat::CompactMigrateScanned),
        scanned,
        "memory is not fragmented enough to scan again"
    );
}

const SECOND: Nanos = 1_000_000_000;

#[test]
fn kcompactd_looks_at_fragmentation_twice_a_second() {
    let bench = Bench::new(Folios::FreeSplit);
    bench.set(Knob::HugepagesEnabled2048, 2);
    assert_eq!(bench.kcompactd(40 * SECOND, 3), 41 * SECOND);
    assert_eq!(bench.stat(Stat::CompactDaemonMigrateScanned), 0);
}

/// Its folios of 16 pages may not be moved.
#[test]
fn kcompactd_looks_less_often_at_memory_that_it_cannot_improve() {
    let bench = Bench::fragmented(Folios::Single, 4, 4);
    bench.set(Knob::CompactionProactiveness, 50);
    assert_eq!(bench.kcompactd(40 * SECOND, 2), 40 * SECOND + SECOND / 2);
    // The first look was of no use: the next one comes 64 times as late.
    assert_eq!(bench.kcompactd(40 * SECOND, 3), 72 * SECOND + SECOND / 2);
    assert!(bench.stat(Stat::CompactDaemonMigrateScanned) > 0);
}

/// Where all folios are single pages, no task wants a block, so no task compacts, whatever the knobs are.
#[test]
fn single_pages_never_compact() {
    let mut bench = Bench::new(Folios::FreeSplit);
    bench.set(Knob::ThpDefrag, 0);
    bench.set(Knob::CompactionProactiveness, 100);
    bench.fragment(0, 4);
    assert!(!bench.mm.mmu().knobs.wants_blocks());
    assert_eq!(
        [Stat::CompactStall, Stat::CompactMigrateScanned, Stat::CompactDaemonWake].map(|s| bench.stat(s)),
        [0; 3]
    );
    assert_eq!(bench.mm.machine().wakes(WaitKey::Kcompactd(NodeId(0))), 0);
}

proptest! {
    #![proptest_config(crate::testing::cases(16))]

    /// With any fragmentation, any wanted order and any priority, compaction ends, no page is lost or duplicated, and
    /// the min watermark is kept.
    #[test]
    fn compaction_keeps_all_pages(
        order in prop_oneof![Just(0u8), 2u8..6],
        keep in 2u64..6,
        folios in 0usize..6,
        (unmap, replacement) in (0u64..6, 0u64..2),
        wants in prop::collection::vec((1u8..=9, 0usize..3), 1..6),
    ) {
        let mut bench = Bench::new(Folios::ALL[folios]);
        bench.set(Knob::TlbUnmap, unmap);
        bench.mm.set_knob(Knob::ReclaimPolicy, replacement).unwrap();
        bench.fragment(order, keep);
        bench.take_huge();
        let min = bench.zone().mark(crate::alloc::Watermark::Min);
        let free = bench.zone().free_pages();
        for (order, priority) in wants {
            let priority = [Priority::Async, Priority::SyncLight, Priority::SyncFull][priority];
            let made = direct(bench.core(), &bench.needs(Order(order)), priority);
            prop_assert!(!made.there || bench.zone().free_orders() >> order != 0);
            prop_assert!(bench.zone().free_pages() >= min.min(free));
            bench.check();
        }
    }
}
