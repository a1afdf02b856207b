//! Frames of which references are dropped while a batch owes for them.

use super::*;

/// The page at 9 goes to a batch, as an emptied entry.
fn take(bench: &Bench, batch: &mut UnmapBatch, space: SpaceId) -> Refs {
    let emptied = Emptied::new(page(space, 9, true), (Pfn(8), 0), 0);
    batch.take(bench.platform.host(), &bench.tlb, emptied)
}

#[test]
fn a_frame_that_is_freed_before_its_batch_has_paid_owes_to_its_zone() {
    let (bench, a) = Bench::new(2).used();
    let host = bench.platform.host();
    let mut batch = UnmapBatch::new(host);
    let refs = take(&bench, &mut batch, a);
    assert_eq!(refs.release(host), (Pfn(7), 1));
    bench.tlb.adopt(host, Pfn(7));
    let tag = bench.platform.frames[Pfn(7)].debt();
    let owed = bench.tlb.owed_by_tag(ZoneId(0), tag);
    assert!(owed != Generation::NONE);
    bench.pay(owed);
    assert_eq!(bench.shootdowns(), [[1]], "the payment for the frame");
    assert_eq!(bench.tlb.owed_by_tag(ZoneId(0), tag), Generation::NONE);
    bench.settle(&mut batch);
}

#[test]
fn a_frame_that_is_freed_after_its_flush_owes_nothing() {
    let (bench, a) = Bench::new(2).used();
    let host = bench.platform.host();
    bench.set(Knob::TlbUnmap, FlushPolicy::Eager.value());
    let mut batch = UnmapBatch::new(host);
    assert_eq!(take(&bench, &mut batch, a).release(host), (Pfn(7), 1));
    bench.tlb.adopt(host, Pfn(7));
    assert_eq!(bench.platform.frames[Pfn(7)].debt(), 0);
}
