//! What other tasks do to a folio before and during its move.

use super::each::simple;
use super::*;
use crate::frame::FrameFlags;

impl Bench {
    /// Do a step once the entries of the folio that moves next are gone.
    fn at_copy(&self, step: Step) {
        *self.during.lock() = Some((Moment::Copy, 1, 0, step));
    }

    fn page_out(&self, at: u64) {
        self.apply(0, 0, Op::Out(at, 1));
        self.end_transfers();
    }

    /// A store that only the entry tells of is still there when the page has been moved, in use, and reclaimed.
    fn keeps_a_store(&'static self, at: u64) {
        self.store_by_hardware(at);
        let done = self.move_in_use(at, |_, _| ());
        assert_eq!((done.moved, done.failed), (1, 0));
        self.page_out(at);
        self.step(0, 0, Step::Load(at));
    }
}

/// The first folio that is tried is locked, until the second finds no room.
struct FullOnceUnlocked(Option<Pfn>);

impl Target<TestMachine> for FullOnceUnlocked {
    fn take(&mut self, core: &MmCore<TestMachine>, _: Pfn, _: Order) -> Option<Fresh> {
        if let Some(locked) = self.0.take() {
            core.unlock_folio(locked);
        }
        None
    }

    fn give_back(&mut self, core: &MmCore<TestMachine>, unused: Fresh) {
        core.put(unused.into_pfn());
    }
}

/// Once memory has run out, no folio is tried again. A further pass would forget the folios that were not tried.
#[test]
fn untried_folios_are_put_back_although_others_could_be_tried_again() {
    let (bench, at) = (simple(1), start_of(Kind::Anon));
    bench.store_all(at, 3);
    let locked = bench.shown(at).0;
    bench.mm.core.lock_folio(locked);
    let mut target = FullOnceUnlocked(Some(locked));
    let done = bench.move_folios(&[at, at + 1, at + 2], Mode::Async, &mut target);
    assert_eq!((done.moved, done.failed, done.left, done.no_room), (0, 2, 1, true));
    assert_eq!(bench.mm.validate(), Ok(()));
    assert_eq!(bench.move_to(at, 3, Some(1)).moved, 3, "all are on their lists again");
}

/// Only the entry tells of the store. The move takes the entry away, so it must mark the folio dirty.
#[test]
fn store_to_shmem_survives_munmap_during_a_move_and_reclaim() {
    let (bench, at) = (simple(1), start_of(Kind::Shmem));
    bench.step(0, 0, Step::Load(at));
    assert!(!bench.mm.core.frames[bench.shown(at).0].has(FrameFlags::DIRTY));
    bench.store_by_hardware(at);
    bench.at_copy(Step::Unmap(at, 1));
    assert_eq!(bench.move_to(at, 1, Some(1)).moved, 1);
    bench.map(0, Kind::Shmem);
    bench.step(0, 0, Step::Load(at));
    bench.page_out(at);
    bench.step(0, 0, Step::Load(at));
}

/// Reclaim drops the page unless its entry is dirty. So the move must keep the dirty bit, and cannot leave the page in
/// use.
#[test]
fn store_after_madv_free_survives_a_move_and_reclaim() {
    let (bench, at) = (simple(1), start_of(Kind::Anon));
    bench.store_all(at, 1);
    bench.step(0, 0, Step::Free(at, 1));
    bench.keeps_a_store(at);
}

/// The swap area has the old content, and only the entry's dirty bit tells that it is old.
#[test]
fn store_to_a_page_in_the_swap_cache_survives_a_move_and_reclaim() {
    let (bench, at) = (simple(1), start_of(Kind::Anon));
    bench.store_all(at, 1);
    bench.page_out(at);
    bench.step(0, 0, Step::Load(at));
    assert!(bench.mm.core.frames[bench.shown(at).0].has(FrameFlags::SWAPCACHE));
    bench.keeps_a_store(at);
}

/// munmap finds only migration entries, so it cannot tell that it leaves a folio partly mapped.
#[test]
fn folio_that_loses_entries_during_a_move_is_queued_for_split() {
    for fails in [false, true] {
        let bench = Bench::new(1, &[0, 0, 1, 0, 0, 0, 0, 0], [0, 0, 0]);
        let (core, at) = (&bench.mm.core, start_of(Kind::Anon));
        bench.store_all(at, 16);
        let head = core.frames.head(bench.shown(at).0);
        assert_eq!(core.frames[head].order(), Order(4));
        bench.at_copy(Step::Unmap(at, 8));
        if fails {
            bench.hold_at_copy(head);
        }
        let done = bench.move_folio(at, Mode::Async, &mut OnNode(Some(NodeId(1))));
        assert_eq!((done.moved, done.failed), if fails { (0, 16) } else { (16, 0) });
        assert_eq!(core.lru.splits_deferred(NodeId(u8::from(!fails))), 1, "fails: {fails}");
        if fails {
            core.put(head);
        }
        assert_eq!(bench.mm.validate(), Ok(()));
    }
}
