//! What a machine that looks at zones sees of their compaction.

use super::*;
use crate::machine::{Compacted, FrameUse};
use crate::testing::{Sight, range};

/// Frames of each of two zones.
const HALF: u32 = FRAMES / 2;

impl Bench {
    fn of_two_zones() -> Bench {
        let memory = [range(0, ZoneKind::Normal, 0, HALF), range(0, ZoneKind::Movable, HALF, HALF)];
        let machine = TestMachine::new(&[0; 2], &memory);
        Bench::on(machine, Folios::FreeSplit, AllocPlacement::Smallest)
    }

    /// What the machine sees while `compact` runs.
    fn sights(&self, compact: impl FnOnce(&Bench)) -> Vec<Sight> {
        *self.mm.machine().sights.lock() = Some(Vec::new());
        compact(self);
        self.mm.machine().sights.lock().take().unwrap()
    }
}

/// Number of blocks, folios or pages of this use and order in a zone.
fn count(sight: &Sight, wanted: (FrameUse, Order)) -> u64 {
    sight.uses.values().filter(|&&seen| seen == wanted).count() as u64
}

#[test]
fn machine_sees_each_zone_before_and_after() {
    let bench = Bench::of_two_zones();
    let sights = bench.sights(|bench| bench.mm.compact_memory());
    let seen: Vec<_> = sights.iter().map(|sight| (sight.zone, sight.start, sight.frames)).collect();
    let (first, second) = ((ZoneId(0), Pfn(0), HALF), (ZoneId(1), Pfn(HALF), HALF));
    assert_eq!(seen, [first, first, second, second]);
    let ended: Vec<bool> = sights.iter().map(|sight| sight.ended.is_some()).collect();
    assert_eq!(ended, [false, true, false, true]);
}

#[test]
fn machine_sees_what_compaction_moved_and_made() {
    let bench = Bench::fragmented(Folios::FreeSplit, 0, 4);
    let sights = bench.sights(|bench| _ = bench.direct(HUGE, Priority::SyncLight));
    let moved = bench.stat(Stat::PgmigrateSuccess) as u64;
    let seen: Vec<_> = sights.iter().map(|sight| (sight.order, sight.ended)).collect();
    assert!(moved > 0);
    assert_eq!(seen, [(Some(HUGE), None), (Some(HUGE), Some(Compacted { moved, made: true }))]);
    // Now no block is wanted.
    let sights = bench.sights(|bench| bench.mm.compact_memory());
    let moved = bench.stat(Stat::PgmigrateSuccess) as u64 - moved;
    let seen: Vec<_> = sights.iter().map(|sight| (sight.order, sight.ended)).collect();
    assert_eq!(seen, [(None, None), (None, Some(Compacted { moved, made: false }))]);
}

/// A folio of 16 pages, a page, a page that mlock pins, a block of 4 pages on the list of a CPU; page tables and free
/// blocks.
#[test]
fn machine_sees_the_use_of_each_frame() {
    let (free, movable, fixed) = (FrameUse::Free, FrameUse::Movable, FrameUse::Fixed);
    for (allowed, pinned) in [(0, fixed), (1, movable)] {
        let mut bench = Bench::of_two_zones();
        bench.set(Knob::CompactUnevictableAllowed, allowed);
        bench.map(0, 80);
        for (knob, at) in [(Knob::HugepagesEnabled64, 0), (Knob::HugepagesEnabled16, 16)] {
            bench.set(knob, 2);
            bench.store(at);
            bench.set(knob, 0);
        }
        (20..80).for_each(|at| bench.store(at));
        bench.mm.mlock(bench.space, Vpn(AT.0 + 20), 1, true).unwrap();
        let frames = [0, 30, 20, 16, 19].map(|at| bench.frame(at).unwrap());
        bench.core().alloc.drain_all(bench.mm.mmu());
        bench.forget(16, 4);
        let blocks: Vec<FreeBlocks> = bench.core().alloc.zones().iter().map(Zone::blocks).collect();
        let sights = bench.sights(|bench| bench.mm.compact_memory());
        let before: Vec<&Sight> = sights.iter().filter(|sight| sight.ended.is_none()).collect();

        let seen = |pfn: Pfn| before.iter().find_map(|sight| sight.uses.get(&pfn)).copied().unwrap();
        let page = |used| (used, Order::ZERO);
        let expected = [(movable, Order(4)), page(movable), page(pinned), page(free), page(free)];
        assert_eq!(frames.map(seen), expected, "allowed: {allowed}");
        for (sight, FreeBlocks(mut blocks)) in before.iter().zip(blocks) {
            blocks[0] += if sight.uses.contains_key(&frames[3]) { 4 } else { 0 };
            for (order, listed) in (0..).map(Order).zip(blocks) {
                assert_eq!(count(sight, (free, order)), listed, "{order:?} of {:?}", sight.zone);
            }
        }
        // All page tables, and the page of zeroes.
        let stay: u64 = before.iter().map(|sight| count(sight, page(fixed))).sum();
        let tables = bench.stat(Stat::NrPageTablePages) as u64;
        assert_eq!(stay, tables + 1 + u64::from(pinned == fixed));
    }
}
