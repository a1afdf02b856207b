//! What reclaim could free at best.

use super::*;

/// Memory would count as out too early, or too late.
#[test]
fn pages_that_can_be_dropped_or_swapped_are_reclaimable() {
    for (swap, expected) in [(64, 70), (0, 30)] {
        let bench = Bench::new(swap);
        bench.clean_file(0..30, ROOT);
        bench.anons(40, ROOT, Bits::empty());
        let found = [ZoneKind::Normal, ZoneKind::Dma32].map(|kind| reclaimable(&bench.core, NodeId(0), kind));
        assert_eq!(found, [expected, 0], "{swap} pages of swap");
    }
}
