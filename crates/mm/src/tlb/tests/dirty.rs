//! Which entries are flushed before their page is written.

use super::*;

/// A store through a clean entry needs a walk, which finds it cleared (`set_tlb_ubc_flush_pending` of Linux 6.12). So
/// only a dirty one is flushed before its page is written; a writable one is still not left to the frame's next use.
#[test]
fn a_writable_entry_that_is_clean_waits_for_the_end_of_the_batch() {
    for policy in [FlushPolicy::Batch, FlushPolicy::Lazy] {
        let (bench, a) = Bench::new(2).used();
        bench.set(Knob::TlbUnmap, policy.value());
        let mut batch = UnmapBatch::new(&bench.platform);
        bench.note(&mut batch, Cleared { dirty: false, ..page(a, 9, true) });
        batch.settle_dirty(&bench.platform, &bench.tlb);
        assert_eq!((bench.shootdowns().len(), batch.owes_for_stores()), (0, false), "{policy:?}");
        assert_eq!(bench.platform.frames[Pfn(7)].debt(), 0, "{policy:?}");
        bench.settle(&mut batch);
        assert_eq!(bench.shootdowns(), [[1]], "{policy:?}");
    }
}

/// As in Linux, whose `set_tlb_ubc_flush_pending` asks for the dirty bit alone.
#[test]
fn a_dirty_entry_that_a_call_made_read_only_is_flushed_before_its_page_is_written() {
    let (bench, a) = Bench::new(2).used();
    bench.set(Knob::TlbUnmap, FlushPolicy::Batch.value());
    let mut batch = UnmapBatch::new(&bench.platform);
    bench.note(&mut batch, Cleared { dirty: true, ..page(a, 9, false) });
    batch.settle_dirty(&bench.platform, &bench.tlb);
    assert_eq!(bench.shootdowns(), [[1]]);
}
