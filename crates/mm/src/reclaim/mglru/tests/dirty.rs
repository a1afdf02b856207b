//! Dirty pages that eviction meets: they lose nothing.

use super::*;

/// Reclaim waits for their write, and marks them so that their uses count afterwards.
#[test]
fn dirty_pages_of_the_working_set_stay_dirty() {
    let bench = with_form(0);
    bench.core.knobs.set(Knob::LruGenPid, 0).unwrap();
    make_dirty(&bench);
    let frame = |page| &bench.core.frames[bench.folio(page).unwrap()];
    for page in 0..300 {
        frame(page).set(FrameFlags::REFERENCED | FrameFlags::WORKINGSET);
    }
    let (_, sc) = evict_at(&bench, 2);
    assert_eq!((bench.core.stats.read(Stat::PgscanDirect) > 0, sc.nr_reclaimed), (true, 0));
    for page in 0..300 {
        assert!(frame(page).has(FrameFlags::DIRTY | FrameFlags::UPTODATE), "page {page}");
    }
    (0..300).for_each(|page| bench.write_unused(page));
    assert_eq!(bench.finish_io(), 300);
}
