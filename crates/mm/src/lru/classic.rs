//! The classic lists: a second chance, and an active list that feeds the inactive one.

use super::policy::{End, Folio, Leave, Place, Policy, Used};
use super::{LruList, LruVec};
use crate::frame::{Frame, FrameFlags};

/// Active and inactive lists.
pub(super) struct Classic;

impl Policy for Classic {
    /// The list follows from the flags.
    #[inline]
    fn place(&self, _vec: &LruVec, folio: Folio<'_>, wanted: End) -> Place {
        let list = LruList::of(folio.frame.flags());
        Place { queue: list as u8, end: wanted, list }
    }

    #[inline]
    fn leave(&self, _vec: &LruVec, folio: Folio<'_>, _why: Leave) -> LruList {
        LruList::of(folio.frame.flags())
    }

    /// New folios are inactive: they have until the list's end to be used again.
    #[inline]
    fn admit(&self, _frame: &Frame, _faulted: bool) {}

    /// Two uses make an inactive folio active: the first sets REFERENCED.
    ///
    /// inactive → inactive, referenced → active → active, referenced
    #[inline]
    fn used(&self, frame: &Frame) -> Used {
        let flags = frame.flags();
        if !flags.contains(FrameFlags::REFERENCED) {
            frame.set(FrameFlags::REFERENCED);
        } else if !flags.intersects(FrameFlags::UNEVICTABLE | FrameFlags::ACTIVE) {
            return Used::Activate;
        }
        Used::Noted
    }

    fn deactivates_all(&self) -> bool {
        false
    }
}
