//! Which free and reclaimable pages still give hope when reclaim has found nothing.

use super::*;
use crate::testing::range;

impl Bench {
    /// Take free pages as long as a request with this reserve gets one.
    fn take_free(&self, reserve: Reserve) {
        let gfp = Gfp { mark: Watermark::Min, reserve, ..Gfp::user(ROOT) };
        while self.core.new_folio(Order::ZERO, gfp).is_ok() {}
    }

    fn has_hope(&self) -> bool {
        should_retry(&self.core, &self.needs(), 0, &mut Retries::default())
    }
}

/// No page is free. If all reclaimable pages were, the zone would be at its min mark, or a page above it.
#[test]
fn there_is_hope_if_a_zone_could_get_above_its_min_mark() {
    for above in [0, 1] {
        let bench = Bench::new(0);
        let zone = &bench.core.alloc.zones()[0];
        bench.clean_file(0..zone.mark(Watermark::Min) + above, ROOT);
        bench.take_free(Reserve::All);
        assert_eq!((zone.free_pages(), bench.has_hope()), (0, above > 0));
    }
}

/// Free pages of a lower zone do not help a request that could use the next one, if they are its reserve.
#[test]
fn there_is_no_hope_in_the_reserve_of_a_lower_zone() {
    let memory = [range(0, ZoneKind::Dma32, 0, 512), range(0, ZoneKind::Normal, 1024, 2048)];
    let bench = Bench::on(TestMachine::new(&[0], &memory), 0);
    let core = &bench.core;
    core.knobs.set(Knob::LowmemReserveRatio, 4).unwrap();
    core.alloc.set_watermarks(core);
    bench.take_free(Reserve::Oom);
    let [dma32, normal] = [0, 1].map(|zone| &core.alloc.zones()[zone]);
    assert!(dma32.free_pages() > dma32.mark(Watermark::High));
    assert!(normal.free_pages() < normal.mark(Watermark::Min));
    assert!(!bench.has_hope());
}

/// Each round may free a few pages only, and many may be wanted.
#[test]
fn group_is_tried_again_as_long_as_it_gives_pages() {
    let bench = Bench::new(0);
    let mut retries = Retries::default();
    let mut again = |freed| should_retry_group(&bench.core, freed, &mut retries);
    assert!((0..100).all(|_| again(1)));
    // Progress makes the rounds without it forgotten.
    assert!((0..2).all(|_| (0..MAX_RECLAIM_RETRIES).all(|_| again(0)) && again(1)));
}
