//! The seam of page-replacement policies: what a policy decides, and what [`Lru`](super::Lru) does for all of them.
//!
//! A vector belongs to one policy at a time. The policy says where a folio goes and what its flags mean; it takes no lock and links
//! nothing. Linking, counting, charging and the right to move a folio are the same for all, in [`super`]. A policy that also walks
//! page tables or chooses what reclaim scans has a front end two floors up.
//!
//! What a policy keeps for a vector stands in the vector ([`LruVec`]) and changes under its lock; what others read without it is
//! atomic. Which policy a folio's place is from can be told from the folio alone, as vectors change policies folio by folio: one with a
//! generation ([`FrameFlags::generation`](crate::frame::FrameFlags::generation)) is MGLRU's, any other stands on a classic list.

use super::classic::Classic;
use super::mglru::MgLru;
use super::{LruList, LruVec};
use crate::frame::{Frame, FrameFlags};
use crate::machine::ZoneKind;
use crate::primitive::{AtomicBool, Ordering::*};
use crate::units::*;

/// Which end of a queue. Reclaim takes from the tail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// The folio may have its turn again.
    Head,
    /// Reclaim wants it next.
    Tail,
}

/// Where a folio goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The queue of the vector.
    pub queue: u8,
    /// Its end.
    pub end: End,
    /// How it counts for people and for the classic formulas.
    pub list: LruList,
}

/// Why a folio leaves its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Leave {
    /// Reclaim has isolated it to evict it.
    Evict,
    /// For any other reason: it is freed, moved, or isolated by somebody else.
    Other,
}

/// What an access through a file descriptor asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Used {
    /// Nothing more: it was noted in the folio's flags.
    Noted,
    /// Move the folio to where used ones are.
    Activate,
}

/// A folio on its way between queues: its record, the kind of its zone, and its pages.
#[derive(Clone, Copy)]
pub struct Folio<'a> {
    /// The head's record.
    pub frame: &'a Frame,
    /// Kind of its zone.
    pub kind: ZoneKind,
    /// Pages.
    pub pages: i64,
}

/// What a page-replacement policy decides.
pub trait Policy {
    /// A folio that may be reclaimed comes to the vector, whose lock is held. `wanted` is [`End::Tail`] if reclaim wants it next.
    fn place(&self, vec: &LruVec, folio: Folio<'_>, wanted: End) -> Place;

    /// A folio leaves the vector, whose lock is held. Returns the list that it counted on.
    fn leave(&self, vec: &LruVec, folio: Folio<'_>, why: Leave) -> LruList;

    /// A new folio is about to come to the vector. `faulted`: an access that says something about the future needs it now.
    fn admit(&self, frame: &Frame, faulted: bool);

    /// The folio was used through a file descriptor. No lock is held.
    fn used(&self, frame: &Frame) -> Used;

    /// Does [`Policy::place`] treat a folio that is marked neither active nor used as one to be evicted soon, wherever it was?
    fn deactivates_all(&self) -> bool;
}

/// The policy of a vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyKind {
    /// Active and inactive lists.
    Classic,
    /// Generations.
    MgLru,
}

impl PolicyKind {
    /// The policy that a listed folio with these flags was placed by.
    #[inline]
    pub fn of(flags: FrameFlags) -> PolicyKind {
        if flags.generation().is_some() { PolicyKind::MgLru } else { PolicyKind::Classic }
    }
}

/// A policy that can be changed while the machine runs.
#[derive(Default)]
pub(super) struct PolicyCell {
    generations: AtomicBool,
    /// Somebody is changing it.
    turning: AtomicBool,
}

impl PolicyCell {
    #[inline]
    pub fn get(&self) -> PolicyKind {
        if self.generations.load(Relaxed) { PolicyKind::MgLru } else { PolicyKind::Classic }
    }

    pub fn set(&self, policy: PolicyKind) {
        self.generations.store(policy == PolicyKind::MgLru, Release);
    }

    /// Begin to change it; `false`: somebody else does.
    pub fn begin(&self) -> bool {
        !self.turning.swap(true, AcqRel)
    }

    /// It has been changed.
    pub fn end(&self) {
        self.turning.store(false, Release);
    }
}

/// Call a method of the policy of `$kind`: the compiler sees through it, so that a vector of the classic lists pays a branch.
macro_rules! with_policy {
    ($kind:expr, $policy:ident => $call:expr) => {
        match $kind {
            PolicyKind::Classic => {
                let $policy = &Classic;
                $call
            }
            PolicyKind::MgLru => {
                let $policy = &MgLru;
                $call
            }
        }
    };
}

impl Policy for PolicyKind {
    #[inline]
    fn place(&self, vec: &LruVec, folio: Folio<'_>, wanted: End) -> Place {
        with_policy!(self, policy => policy.place(vec, folio, wanted))
    }

    #[inline]
    fn leave(&self, vec: &LruVec, folio: Folio<'_>, why: Leave) -> LruList {
        with_policy!(self, policy => policy.leave(vec, folio, why))
    }

    #[inline]
    fn admit(&self, frame: &Frame, faulted: bool) {
        with_policy!(self, policy => policy.admit(frame, faulted))
    }

    #[inline]
    fn used(&self, frame: &Frame) -> Used {
        with_policy!(self, policy => policy.used(frame))
    }

    #[inline]
    fn deactivates_all(&self) -> bool {
        with_policy!(self, policy => policy.deactivates_all())
    }
}

/// A folio's place in a shadow and back: the words that a policy leaves behind of an evicted folio have this many bits.
pub const STAMP_BITS: u32 = 37;

/// A shadow, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Evicted {
    /// Group whose vector the policy will look at when the page is back.
    pub group: GroupId,
    /// Node that the page was on.
    pub node: NodeId,
    /// What the policy left, modulo what fits.
    pub stamp: u64,
    /// Was the page part of the working set?
    pub workingset: bool,
}
