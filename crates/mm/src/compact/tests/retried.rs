//! When a request has another compaction made after one that did not help.

use super::*;
use crate::compact::Attempts;
use crate::reclaim;

impl Bench {
    /// Allocate single pages for good until no more than `free` are free.
    fn leave(&self, free: u64) {
        let (mmu, request) = (self.mm.mmu(), block(Order::ZERO, Mobility::Movable));
        while self.zone().free_pages() > free {
            self.core().alloc.take(mmu, &request, crate::alloc::Watermark::Min).unwrap().into_pfn();
            self.core().alloc.drain_all(mmu);
        }
    }

    /// The priorities at which a request compacts while other tasks take all blocks.
    fn priorities(&self, mut attempts: Attempts, order: Order) -> Vec<Priority> {
        let mut priorities = Vec::new();
        // The bound is for a request that never gives up.
        for _ in 0..100 {
            priorities.push(attempts.priority());
            if !attempts.again(self.core(), &self.needs(order), Outcome::Success) {
                break;
            }
        }
        priorities
    }
}

/// Compaction needs 7 free pages more. For a block of order 3, a third of what reclaim could free counts.
#[test]
fn skipped_compaction_is_retried_if_reclaim_makes_room() {
    for (pages, again) in [(300, true), (9, false), (0, false)] {
        let mut bench = Bench::new(Folios::FreeSplit);
        bench.set(Knob::WatermarkBoostFactor, 0);
        bench.map(0, 300);
        (0..300).for_each(|at| bench.store(at));
        if pages > 0 {
            bench.mm.madvise(bench.space, AT, pages, Advice::Free).unwrap();
        }
        assert_eq!(reclaim::reclaimable(bench.core(), NodeId(0), ZoneKind::Normal), pages);
        bench.leave(bench.zone().mark(crate::alloc::Watermark::Min) + 10);
        let mut attempts = Attempts::default();
        let outcome = Outcome::Skipped;
        assert_eq!(attempts.again(bench.core(), &bench.needs(Order(3)), outcome), again, "{pages} pages");
    }
}

/// Other tasks take the blocks that it makes. It tries harder after 17 attempts, or after 5 for a costly block.
#[test]
fn request_gives_up_after_a_limited_number_of_attempts() {
    let bench = Bench::new(Folios::FreeSplit);
    let (light, full) = ([Priority::SyncLight; 17], [Priority::SyncFull; 17]);
    assert_eq!(bench.priorities(Attempts::default(), Order(3)), [light, full].concat());
    let (first, light) = ([Priority::Async; 5], [Priority::SyncLight; 5]);
    assert_eq!(bench.priorities(Attempts::only_async(), Order(4)), [first, light].concat());
}
