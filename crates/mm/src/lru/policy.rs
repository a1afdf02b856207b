//! The interface of page-replacement policies: what a policy decides, and what [`Lru`](super::Lru) does for all of
//! them.
//!
//! A vector has one policy at a time. The policy decides where a folio goes and what its flags mean; it takes no lock
//! and links nothing. Linking, counting, charging and the right to move a folio are the same for all, in [`super`]. A
//! policy that also walks page tables or chooses what reclaim scans has a front end two floors up.
//!
//! The state of a policy for a vector is in the vector ([`LruVec`]) and changes under its lock; state that is read
//! without the lock is atomic. Vectors change policies folio by folio, so the folio alone tells which policy has placed
//! it: a folio with a generation ([`FrameFlags::generation`](crate::frame::FrameFlags::generation)) is MGLRU's; of the
//! others, one whose record has a queue was placed by a policy that proposes ([`crate::policy`]), and the rest are on
//! classic lists.

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
pub(crate) struct ListPosition {
    pub queue: u8,
    pub end: End,
    /// The list that it counts on, for statistics and for the classic formulas.
    pub list: LruList,
}

/// Why a folio leaves its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leave {
    /// Reclaim has isolated it to evict it.
    Evict,
    /// Any other reason: it is freed, moved, or isolated for something else.
    Other,
}

/// The effect of an access through a file descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccessEffect {
    /// None but the folio's flags, which were changed.
    Noted,
    Activate,
}

/// A folio that changes queues.
#[derive(Clone, Copy)]
pub(crate) struct PolicyFolio<'a> {
    pub frame: &'a Frame,
    pub kind: ZoneKind,
    pub pages: i64,
}

/// A vector, and the lists that its lock guards.
pub(crate) type LockedLists<'a> = (&'a LruVec, &'a mut LruLists);

/// What a page-replacement policy decides.
pub(crate) trait Policy {
    /// The position of an evictable folio that comes to the vector, whose lock is held.
    fn place<M: Machine>(
        &self,
        platform: &Platform<M>,
        at: LockedLists<'_>,
        folio: PolicyFolio<'_>,
        why: InsertReason,
    ) -> ListPosition;

    /// A folio leaves the vector, whose lock is held. Returns the list that it counted on.
    fn leave(&self, at: LockedLists<'_>, folio: PolicyFolio<'_>, why: Leave) -> LruList;

    /// A new folio is about to come to the vector. `faulted`: an access that predicts further accesses needs it now.
    fn admit<M: Machine>(&self, platform: &Platform<M>, frame: &Frame, faulted: bool);

    /// The folio was used through a file descriptor. No lock is held.
    fn used<M: Machine>(&self, platform: &Platform<M>, frame: &Frame) -> AccessEffect;

    /// Whether [`Policy::place`] puts any folio that is marked neither active nor used where it is evicted soon.
    fn deactivates_all(&self) -> bool;
}

impl PolicyKind {
    pub(crate) fn is_proposed(self) -> bool {
        matches!(self, PolicyKind::Proposed(_))
    }

    /// The constructor of its instances, if it has any. `custom` is that of the policy from outside.
    pub(super) fn maker(self, custom: Option<MakePolicy>) -> Option<MakePolicy> {
        match self {
            PolicyKind::Proposed(number) => RIVALS.get(number as usize).map(|rival| rival.make).or(custom),
            _ => None,
        }
    }

    /// The kind of the policy that has placed a folio on a list.
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

/// A group has, or had, a policy of its own.
const MIXED: u32 = 1 << 8;

/// The policy of all vectors, except those of groups that have their own. It can be changed while the machine runs.
#[derive(Default)]
pub(super) struct PolicyCell {
    /// Its number, and [`MIXED`].
    word: AtomicU32,
    turning: AtomicBool,
}

impl PolicyCell {
    #[inline]
    pub fn get(&self) -> PolicyKind {
        PolicyKind::of(u64::from(self.word.load(Relaxed) as u8))
    }

    /// The same, if no group ever had its own.
    #[inline]
    pub(crate) fn of_all(&self) -> Option<PolicyKind> {
        let word = self.word.load(Relaxed);
        (word & MIXED == 0).then(|| PolicyKind::of(u64::from(word as u8)))
    }

    /// Change it. The caller has called [`PolicyCell::begin`].
    pub fn set(&self, policy: PolicyKind) {
        self.word.store(self.word.load(Relaxed) & MIXED | policy.value() as u32, Release);
    }

    /// A group is about to have its own. The caller has called [`PolicyCell::begin`].
    pub fn mix(&self) {
        self.word.store(self.word.load(Relaxed) | MIXED, Release);
    }

    /// Begin to change it. Returns `false` if another task does.
    pub fn begin(&self) -> bool {
        !self.turning.swap(true, AcqRel)
    }

    pub fn end(&self) {
        self.turning.store(false, Release);
    }
}

/// Call a method of the policy of `$kind`. The compiler inlines it, so the classic lists pay only a branch.
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
    fn admit<M: Machine>(&self, platform: &Platform<M>, frame: &Frame, faulted: bool) {
        with_policy!(self, policy => policy.admit(platform, frame, faulted))
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

/// Number of bits of the stamp that a policy keeps in the shadow of an evicted folio.
pub(crate) const STAMP_BITS: u32 = 37;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Evicted {
    /// The group whose vector the policy looks at when the page returns.
    pub group: GroupId,
    pub node: NodeId,
    /// The policy's stamp, modulo its bits.
    pub stamp: u64,
    pub workingset: bool,
}
