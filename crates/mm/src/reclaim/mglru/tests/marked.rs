//! Folios of the oldest generation that have marks of uses.

use super::*;

/// The form of 6.14: a folio that was marked and then got old was used once. Otherwise nothing could reclaim it.
#[test]
fn marked_folio_that_is_not_used_again_is_written() {
    let bench = bench();
    bench.core.knobs.set(Knob::LruGenForm, 1).unwrap();
    let pfns = bench.anons(8, ROOT, Bits::empty());
    let generations = &bench.core.lru.vec(NodeId(0), ROOT).generations;
    while generations.pages(generations.min_seq(false), false) == 0 {
        let seq = generations.max_seq();
        assert!(bench.core.lru.begin_generation(&bench.core, NodeId(0), ROOT, seq, true));
    }
    for pfn in pfns {
        bench.core.frames[pfn].set(FrameFlags::REFERENCED);
    }
    let mut sc = ScanControl::new(32, Order::ZERO, ZoneKind::Movable);
    bench.cx().evict_some(NodeId(0), ROOT, 60, &mut sc, None);
    assert_eq!(bench.finish_io(), 8);
}
