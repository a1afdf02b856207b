//! Advice on a part of a folio, while another task changes what is mapped there.

use super::*;
use crate::machine::Work;
use crate::testing::Moment;
use std_alloc::boxed::Box;

/// The call has split a folio, and looks at its pages again. Meanwhile another task has dropped them and stored again:
/// they are a new folio, which the call holds no longer than the rest.
#[test]
fn advice_holds_no_folio_that_came_meanwhile() {
    for advice in [Advice::Free, Advice::Cold, Advice::PageOut] {
        let mm = with_swap(TestMachine::simple(2, 4096), 64);
        let mm: &'static Mm<TestMachine> = Box::leak(Box::new(mm));
        mm.set_knob(Knob::HugepagesEnabled64, 2).unwrap();
        let space = mm.create_space(ROOT).unwrap();
        let before = mm.free_pages();
        mm.mmap(space, &request(LARGE_AT, 16, Backing::Anonymous)).unwrap();
        mm.fault(space, LARGE_AT, AccessKind::Store).unwrap();
        // The first pages of a split are entered in the reverse map while no table is locked.
        mm.machine().at(Moment::Charge(Work::RmapAdd), move || {
            mm.madvise(space, LARGE_AT, 16, Advice::DontNeed).unwrap();
            mm.fault(space, LARGE_AT, AccessKind::Store).unwrap();
        });
        mm.madvise(space, Vpn(LARGE_AT.0 + 4), 4, advice).unwrap();
        let (head, _) = reach(mm, space, LARGE_AT, false, 4).unwrap();
        let frame = &mm.core.frames[head];
        assert_eq!((frame.pages(), frame.refs()), (16, 16), "{advice:?}");
        mm.munmap(space, LARGE_AT, 16).unwrap();
        assert_eq!(mm.free_pages(), before, "{advice:?}");
        mm.validate().unwrap();
    }
}
