//! The seam of page-replacement policies: what a policy decides, and what [`Lru`](super::Lru) does for all of them.
//!
//! A vector belongs to one policy at a time. The policy says where a folio goes and what its flags mean; it takes no
//! lock and links nothing. Linking, counting, charging and the right to move a folio are the same for all, in
//! [`super`]. A policy that also walks page tables or chooses what reclaim scans has a front end two floors up.
//!
//! What a policy keeps for a vector stands in the vector ([`LruVec`]) and changes under its lock; what others read
//! without it is atomic. Which policy a folio's place is from can be told from the folio alone, as vectors change
//! policies folio by folio: one with a generation ([`FrameFlags::generation`](crate::frame::FrameFlags::generation)) is
//! MGLRU's; of the others, one whose record names a queue was placed by a policy that proposes ([`crate::policy`]), and
//! the rest stand on classic lists.

use super::classic::ClassicPolicy;
use super::mglru::MglruPolicy;
use super::proposed::ProposedPolicy;
use super::vec::LruLists;
use super::{LruList, LruVec};
use crate::frame::{Frame, FrameFlags};
use crate::machine::{Machine, ZoneKind};
use crate::platform::Platform;
use crate::policy::{MakePolicy, RIVALS};
use crate::primitive::{AtomicBool, AtomicU32, Ordering::*};
use crate::units::*;

pub use crate::policy::{End, InsertReason, PolicyKind};

/// Where a folio goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListPosition {
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
pub enum AccessEffect {
    /// Nothing more: it was noted in the folio's flags.
    Noted,
    /// Move the folio to where used ones are.
    Activate,
}

/// A folio on its way between queues: its record, the kind of its zone, and its pages.
#[derive(Clone, Copy)]
pub struct PolicyFolio<'a> {
    /// The head's record.
    pub frame: &'a Frame,
    /// Kind of its zone.
    pub kind: ZoneKind,
    /// Pages.
    pub pages: i64,
}

/// A vector, and what its lock guards.
pub type LockedLists<'a> = (&'a LruVec, &'a mut LruLists);

/// What a page-replacement policy decides.
pub trait Policy {
    /// A folio that may be reclaimed comes to the vector, whose lock is held.
    fn place<M: Machine>(
        &self,
        platform: &Platform<M>,
        at: LockedLists<'_>,
        folio: PolicyFolio<'_>,
        why: InsertReason,
    ) -> ListPosition;

    /// A folio leaves the vector, whose lock is held. Returns the list that it counted on.
    fn leave(&self, at: LockedLists<'_>, folio: PolicyFolio<'_>, why: Leave) -> LruList;

    /// A new folio is about to come to the vector. `faulted`: an access that says something about the future needs it
    /// now.
    fn admit(&self, frame: &Frame, faulted: bool);

    /// The folio was used through a file descriptor. No lock is held.
    fn used<M: Machine>(&self, platform: &Platform<M>, frame: &Frame) -> AccessEffect;

    /// Does [`Policy::place`] treat a folio that is marked neither active nor used as one to be evicted soon, wherever
    /// it was?
    fn deactivates_all(&self) -> bool;
}

impl PolicyKind {
    /// Is it one that proposes?
    pub fn is_proposed(self) -> bool {
        matches!(self, PolicyKind::Proposed(_))
    }

    /// What makes its instances, if it has any. `custom` is the one from outside.
    pub(super) fn maker(self, custom: Option<MakePolicy>) -> Option<MakePolicy> {
        match self {
            PolicyKind::Proposed(number) => RIVALS.get(number as usize).map(|rival| rival.make).or(custom),
            _ => None,
        }
    }

    /// The kind of the policy that a listed folio was placed by.
    #[inline]
    pub(super) fn that_placed(frame: &Frame, flags: FrameFlags) -> PolicyKind {
        if flags.generation().is_some() {
            PolicyKind::MgLru
        } else if frame.queue() == 0 {
            PolicyKind::Classic
        } else {
            PolicyKind::Proposed(0)
        }
    }
}

/// Some group has, or had, a policy of its own.
const MIXED: u32 = 1 << 8;

/// The policy of all vectors but those of groups that have one of their own. It can be changed while the machine runs.
#[derive(Default)]
pub(super) struct PolicyCell {
    /// Its number, and [`MIXED`].
    word: AtomicU32,
    /// Somebody is changing it.
    turning: AtomicBool,
}

impl PolicyCell {
    #[inline]
    pub fn get(&self) -> PolicyKind {
        PolicyKind::of(u64::from(self.word.load(Relaxed) as u8))
    }

    /// The same, if no group has ever had one of its own.
    #[inline]
    pub fn of_all(&self) -> Option<PolicyKind> {
        let word = self.word.load(Relaxed);
        (word & MIXED == 0).then(|| PolicyKind::of(u64::from(word as u8)))
    }

    /// Change it; who does so has called [`PolicyCell::begin`].
    pub fn set(&self, policy: PolicyKind) {
        self.word.store(self.word.load(Relaxed) & MIXED | policy.value() as u32, Release);
    }

    /// A group is about to have one of its own. Called as [`PolicyCell::set`] is.
    pub fn mix(&self) {
        self.word.store(self.word.load(Relaxed) | MIXED, Release);
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

/// Call a method of the policy of `$kind`: the compiler sees through it, so that a vector of the classic lists pays a
/// branch.
macro_rules! with_policy {
    ($kind:expr, $policy:ident => $call:expr) => {
        match $kind {
            PolicyKind::Classic => {
                let $policy = &ClassicPolicy;
                $call
            }
            PolicyKind::MgLru => {
                let $policy = &MglruPolicy;
                $call
            }
            PolicyKind::Proposed(_) => {
                let $policy = &ProposedPolicy;
                $call
            }
        }
    };
}

impl Policy for PolicyKind {
    #[inline]
    fn place<M: Machine>(
        &self,
        platform: &Platform<M>,
        at: LockedLists<'_>,
        folio: PolicyFolio<'_>,
        why: InsertReason,
    ) -> ListPosition {
        with_policy!(self, policy => policy.place(platform, at, folio, why))
    }

    #[inline]
    fn leave(&self, at: LockedLists<'_>, folio: PolicyFolio<'_>, why: Leave) -> LruList {
        with_policy!(self, policy => policy.leave(at, folio, why))
    }

    #[inline]
    fn admit(&self, frame: &Frame, faulted: bool) {
        with_policy!(self, policy => policy.admit(frame, faulted))
    }

    #[inline]
    fn used<M: Machine>(&self, platform: &Platform<M>, frame: &Frame) -> AccessEffect {
        with_policy!(self, policy => policy.used(platform, frame))
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
