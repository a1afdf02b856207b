//! One list vector: the lists of one group's folios on one node.

use super::known::{AddedUp, Known};
use super::mglru::{self, Generations};
use super::policy::PolicyKind;
use super::proposed::Proposed;
use crate::frame::{FrameFlags, List};
use crate::lock::{Guard, Lock, LockClass};
use crate::machine::ZoneKind;
use crate::policy::MAX_LISTS;
use crate::primitive::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::*};
use crate::stat::Stat;
use std_alloc::boxed::Box;

/// Number of kinds of zone, for each of which there are sizes.
pub(crate) const ZONE_KINDS: usize = ZoneKind::Movable as usize + 1;

pub(crate) type ByKind = [i64; ZONE_KINDS];

/// A list of a vector. The head is the most recent folio; reclaim takes from the tail.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum LruList {
    /// Anonymous memory and shmem, candidates for reclaim.
    InactiveAnon = 0,
    /// Anonymous memory and shmem, in use.
    ActiveAnon = 1,
    /// Files (and lazily freed anonymous memory), candidates for reclaim.
    InactiveFile = 2,
    /// Files, in use.
    ActiveFile = 3,
    /// Locked in memory, never scanned.
    Unevictable = 4,
}

impl LruList {
    /// Number of lists.
    pub const COUNT: usize = 5;
    /// All lists, in index order.
    pub const ALL: [LruList; 5] = {
        use LruList::*;
        [InactiveAnon, ActiveAnon, InactiveFile, ActiveFile, Unevictable]
    };
    /// The lists that reclaim scans, in the order in which it visits them.
    pub(crate) const EVICTABLE: [LruList; 4] = {
        use LruList::*;
        [InactiveAnon, ActiveAnon, InactiveFile, ActiveFile]
    };

    /// The list of a folio with these flags.
    #[inline]
    pub fn of(flags: FrameFlags) -> LruList {
        if flags.contains(FrameFlags::UNEVICTABLE) {
            return LruList::Unevictable;
        }
        LruList::new(!flags.contains(FrameFlags::SWAPBACKED), flags.contains(FrameFlags::ACTIVE))
    }

    /// The list of a type.
    #[inline]
    pub const fn new(file: bool, active: bool) -> LruList {
        match (file, active) {
            (false, false) => LruList::InactiveAnon,
            (false, true) => LruList::ActiveAnon,
            (true, false) => LruList::InactiveFile,
            (true, true) => LruList::ActiveFile,
        }
    }

    /// Whether it is a list of file folios.
    #[inline]
    pub const fn is_file(self) -> bool {
        matches!(self, LruList::InactiveFile | LruList::ActiveFile)
    }

    #[inline]
    pub(crate) const fn is_active(self) -> bool {
        matches!(self, LruList::ActiveAnon | LruList::ActiveFile)
    }

    /// The counter of its pages.
    #[inline]
    pub const fn stat(self) -> Stat {
        match self {
            LruList::InactiveAnon => Stat::NrInactiveAnon,
            LruList::ActiveAnon => Stat::NrActiveAnon,
            LruList::InactiveFile => Stat::NrInactiveFile,
            LruList::ActiveFile => Stat::NrActiveFile,
            LruList::Unevictable => Stat::NrUnevictable,
        }
    }
}

/// The recent cost of reclaiming each type, in pages: I/O weighs 32, a rotation 1. A moving average.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Of anonymous folios.
    pub anon: u64,
    /// Of file folios.
    pub file: u64,
}

impl Cost {
    /// Weight of one page of I/O against one rotated page.
    const IO: u64 = 32;

    /// Add costs, and halve both sums once they exceed a quarter of the lists, so that recent events weigh more than
    /// old ones and the numbers stay small. `lru_size` is the size of the four evictable lists together.
    pub fn note(&mut self, file: bool, nr_io: u64, nr_rotated: u64, lru_size: u64) {
        let cost = nr_io * Cost::IO + nr_rotated;
        if file {
            self.file += cost;
        } else {
            self.anon += cost;
        }
        if self.anon + self.file > lru_size / 4 {
            self.anon /= 2;
            self.file /= 2;
        }
    }
}

/// Number of queues of a vector: classic lists, queues of generations, queues of policies that propose.
pub(super) const QUEUES: usize = PROPOSED + MAX_LISTS;
/// The first queue of policies that propose.
pub(super) const PROPOSED: usize = LruList::COUNT + mglru::QUEUES;

/// The data that a vector's lock guards.
pub(crate) struct LruLists {
    /// Folios by queue; the numbers of the first queues are those of [`LruList`].
    pub(crate) lists: [List; QUEUES],
    /// Pages that count on each list, by kind of zone.
    pub(crate) pages: [ByKind; LruList::COUNT],
    pub(crate) cost: Cost,
    pub(super) proposed: Option<Box<Proposed>>,
    /// The group was removed: folios go to its parent's vector.
    pub(crate) dead: bool,
}

impl Default for LruLists {
    fn default() -> LruLists {
        let lists = [const { List::new() }; QUEUES];
        LruLists { lists, pages: Default::default(), cost: Cost::default(), proposed: None, dead: false }
    }
}

/// The lists of one group's folios on one node, and what reclaim knows of them.
///
/// Sizes and ages count for the whole subtree of groups: a folio counts in its own group and in every group above.
#[derive(Default)]
pub struct LruVec {
    inner: Lists,
    /// Pages on the lists of this vector and of the vectors of the groups below.
    subtree: [[AtomicI64; ZONE_KINDS]; LruList::COUNT],
    /// Evictions and activations so far, in pages: the clock of refault distances.
    pub(super) nonresident_age: AtomicU64,
    /// Refaulted pages activated in the subtree: anonymous, file.
    pub(super) activations: [AtomicU64; 2],
    /// Its statistics that were added up last.
    pub(super) added_up: AddedUp,
    /// `activations` as known at the end of the last reclaim.
    snapshot: [AtomicU64; 2],
    /// All dirty folios of the last scan were under write-back for reclaim already.
    congested: AtomicBool,
    /// Where partial walks over the group's subtree continue: group + 1, or 0 for the start.
    pub(super) walk_at: AtomicU32,
    /// Number of walks that have reached the end.
    pub(super) walks: AtomicU32,
    /// Its generations, if its policy uses them.
    pub generations: Generations,
    policy: AtomicU32,
}

/// The lock around the lists.
struct Lists(Lock<LruLists>);

impl Default for Lists {
    fn default() -> Lists {
        Lists(Lock::of(LockClass::Lru, LruLists::default()))
    }
}

impl LruVec {
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, LruLists> {
        self.inner.0.lock()
    }

    /// For a move that takes no lock in simulated time: see [`folio_batch`](super::folio_batch).
    #[inline]
    pub(super) fn look(&self) -> Guard<'_, LruLists> {
        self.inner.0.look()
    }

    /// The policy that places new folios.
    #[inline]
    pub fn policy(&self) -> PolicyKind {
        PolicyKind::of(self.policy.load(Relaxed).into())
    }

    /// Change the policy that places new folios. Its instance exists. The lock is held, or no other task knows the
    /// vector.
    pub(super) fn set_policy(&self, policy: PolicyKind) {
        self.policy.store(policy.value() as u32, Release);
        self.generations.set_on(policy == PolicyKind::MgLru);
    }

    /// Pages on one list, including the groups below.
    #[inline]
    pub fn pages(&self, list: LruList) -> u64 {
        self.pages_upto(list, ZoneKind::Movable)
    }

    /// The same, in zones of kinds up to `highest` only.
    #[inline]
    pub(crate) fn pages_upto(&self, list: LruList, highest: ZoneKind) -> u64 {
        let sizes = &self.subtree[list as usize][..=highest as usize];
        sizes.iter().map(|pages| pages.load(Relaxed)).sum::<i64>().max(0) as u64
    }

    /// Pages of one kind of zone on one list, including the groups below.
    pub(crate) fn pages_in(&self, list: LruList, kind: ZoneKind) -> u64 {
        self.subtree[list as usize][kind as usize].load(Relaxed).max(0) as u64
    }

    /// Pages on this vector's own list, in zones of kinds up to `highest`.
    pub fn own_pages(&self, list: LruList, highest: ZoneKind) -> u64 {
        let inner = self.lock();
        inner.pages[list as usize][..=highest as usize].iter().sum::<i64>() as u64
    }

    /// The costs.
    pub fn cost(&self) -> Cost {
        // Linux takes the lock for this once a pass, and not each time that the costs are needed.
        self.inner.0.look().cost
    }

    /// Refaulted pages of a type that were activated in the subtree.
    pub(crate) fn activations(&self, file: bool) -> u64 {
        self.activations[file as usize].load(Relaxed)
    }

    /// Whether refaulted pages of the type are known to have been activated since [`LruVec::snapshot_refaults`].
    pub(crate) fn refaulted_since(&self, known: &Known, file: bool) -> bool {
        known.activations(file) != self.snapshot[file as usize].load(Relaxed)
    }

    /// Remember, at the end of a reclaim, how many refaults are known to have led to activation.
    pub(crate) fn snapshot_refaults(&self, known: &Known) {
        for file in [false, true] {
            self.snapshot[file as usize].store(known.activations(file), Relaxed);
        }
    }

    pub(crate) fn congested(&self) -> bool {
        self.congested.load(Relaxed)
    }

    pub(crate) fn set_congested(&self, congested: bool) {
        self.congested.store(congested, Relaxed);
    }

    #[inline]
    pub(super) fn add_subtree(&self, list: LruList, by: &ByKind) {
        for (size, by) in self.subtree[list as usize].iter().zip(by) {
            if *by != 0 {
                size.fetch_add(*by, Relaxed);
            }
        }
    }

    /// The same for pages of one kind of zone.
    #[inline]
    pub(super) fn add_subtree_of(&self, list: LruList, kind: ZoneKind, by: i64) {
        self.subtree[list as usize][kind as usize].fetch_add(by, Relaxed);
    }

    pub(super) fn subtree(&self, list: LruList) -> ByKind {
        core::array::from_fn(|kind| self.subtree[list as usize][kind].load(Relaxed))
    }

    /// Pages on the four lists that reclaim scans, including the groups below.
    #[cfg(test)]
    pub(crate) fn evictable(&self) -> u64 {
        LruList::EVICTABLE.iter().map(|&list| self.pages(list)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_determine_the_list() {
        use FrameFlags as F;
        assert_eq!(LruList::of(F::SWAPBACKED), LruList::InactiveAnon);
        assert_eq!(LruList::of(F::SWAPBACKED | F::ACTIVE), LruList::ActiveAnon);
        assert_eq!(LruList::of(F::DIRTY), LruList::InactiveFile);
        assert_eq!(LruList::of(F::ACTIVE), LruList::ActiveFile);
        assert_eq!(LruList::of(F::UNEVICTABLE | F::SWAPBACKED), LruList::Unevictable);
    }

    #[test]
    fn costs_decay_beyond_a_quarter_of_the_lists() {
        let mut cost = Cost::default();
        cost.note(true, 0, 100, 4000);
        assert_eq!(cost, Cost { anon: 0, file: 100 });
        cost.note(false, 10, 5, 4000);
        assert_eq!(cost, Cost { anon: 325, file: 100 });
        cost.note(false, 20, 0, 4000);
        assert_eq!(cost, Cost { anon: 482, file: 50 }, "965 + 100 > 1000, so both halve");
    }
}
