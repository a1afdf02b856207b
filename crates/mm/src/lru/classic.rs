//! The classic lists: a second chance, and an active list that feeds the inactive one.

use super::LruList;
use super::policy::{AccessEffect, InsertReason, Leave, ListPosition, LockedLists, Policy, PolicyFolio};
use crate::frame::{Frame, FrameFlags};
use crate::machine::Machine;
use crate::platform::Platform;

/// Active and inactive lists.
pub(super) struct ClassicPolicy;

/// The list follows from the flags.
#[inline]
pub(super) fn place(frame: &Frame, why: InsertReason) -> ListPosition {
    let list = LruList::of(frame.flags());
    ListPosition { queue: list as u8, end: why.end(), list }
}

impl Policy for ClassicPolicy {
    #[inline]
    fn place<M: Machine>(
        &self,
        _base: &Platform<M>,
        _at: LockedLists<'_>,
        folio: PolicyFolio<'_>,
        why: InsertReason,
    ) -> ListPosition {
        place(folio.frame, why)
    }

    #[inline]
    fn leave(&self, _at: LockedLists<'_>, folio: PolicyFolio<'_>, _why: Leave) -> LruList {
        LruList::of(folio.frame.flags())
    }

    /// New folios are inactive: they are activated if they are used again before they reach the tail.
    #[inline]
    fn admit<M: Machine>(&self, _platform: &Platform<M>, _frame: &Frame, _faulted: bool) {}

    /// Two uses make an inactive folio active: the first sets REFERENCED.
    ///
    /// inactive → inactive, referenced → active → active, referenced
    #[inline]
    fn used<M: Machine>(&self, _base: &Platform<M>, frame: &Frame) -> AccessEffect {
        let flags = frame.flags();
        if !flags.contains(FrameFlags::REFERENCED) {
            frame.set(FrameFlags::REFERENCED);
        } else if !flags.intersects(FrameFlags::UNEVICTABLE | FrameFlags::ACTIVE) {
            return AccessEffect::Activate;
        }
        AccessEffect::Noted
    }

    fn deactivates_all(&self) -> bool {
        false
    }
}
