//! The classic lists: a second chance, and an active list that feeds the inactive one.

use super::LruList;
use super::policy::{Folio, Leave, Locked, Place, Policy, Used, Why};
use crate::base::Base;
use crate::frame::{Frame, FrameFlags};
use crate::machine::Machine;

/// Active and inactive lists.
pub(super) struct Classic;

impl Policy for Classic {
    /// The list follows from the flags.
    #[inline]
    fn place<M: Machine>(&self, _base: &Base<M>, _at: Locked<'_>, folio: Folio<'_>, why: Why) -> Place {
        let list = LruList::of(folio.frame.flags());
        Place { queue: list as u8, end: why.end(), list }
    }

    #[inline]
    fn leave(&self, _at: Locked<'_>, folio: Folio<'_>, _why: Leave) -> LruList {
        LruList::of(folio.frame.flags())
    }

    /// New folios are inactive: they have until the list's end to be used again.
    #[inline]
    fn admit(&self, _frame: &Frame, _faulted: bool) {}

    /// Two uses make an inactive folio active: the first sets REFERENCED.
    ///
    /// inactive → inactive, referenced → active → active, referenced
    #[inline]
    fn used<M: Machine>(&self, _base: &Base<M>, frame: &Frame) -> Used {
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
