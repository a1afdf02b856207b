//! Folios of the oldest generation that have marks of uses.

use super::*;
use crate::frame::FolioRun;
use crate::knobs::LruGenForm;

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

/// A walk, or a look around an entry, that finds several used entries of a large folio has found one use.
#[test]
fn entries_of_a_large_folio_show_one_use() {
    for walks in [true, false] {
        let bench = bench();
        let core = &bench.core;
        core.knobs.set(Knob::LruGenForm, LruGenForm::V72.value()).unwrap();
        let folio = bench.large(0, 4);
        let near = bench.anon(16, ROOT, Bits::YOUNG);
        let mut tables = core.tables.lock(core, bench.space);
        for page in 0..16 {
            let slot = tables.find(Vpn(START.0 + page)).unwrap().slot;
            tables.mark_used(slot, false);
        }
        drop(tables);
        if walks {
            let spaces = OneSpace { space: bench.space, step: |_| {} };
            Reclaim { core, state: &bench.state, spaces: &spaces }.look_for_young(NodeId(0), ROOT);
        } else {
            assert!(core.lru.isolate(core, near));
            let mut look = core.lru.look(core, (NodeId(0), ROOT), false);
            core.rmap.referenced(core, FolioRun::one(&near), None, look.as_mut());
            core.lru.putback(core, near);
        }
        let marks = core.frames[folio].flags() & (FrameFlags::REFERENCED | FrameFlags::WORKINGSET);
        assert_eq!(marks, FrameFlags::REFERENCED, "walks: {walks}");
    }
}
