//! Address spaces: mapped ranges, what system calls do to them, faults, fork.
//!
//! A space has a tree of ranges ([`Vma`]) and a tree of page tables. The `mapping` semaphore orders them: faults hold
//! it shared, everything that changes ranges holds it alone. The tree of ranges has a short lock of its own for the
//! moment of a look-up, so that a fault takes a copy of the range it needs and goes on.
//!
//! Functions here may return a [`Shortage`]. They then have changed nothing that running them
//! again would not change the same way, and the facade runs them again once there is room.

mod advise;
mod change;
mod collapse;
mod exit;
pub mod fault;
mod fork;
mod khugepaged;
mod map;
mod migrate;
mod mlock;
mod numa;
mod partial_folios;
mod policy;
mod remap;
mod split;
#[cfg(test)]
mod tests;
mod tree;
mod unmap;
mod vma;

pub use advise::Advised;
pub use collapse::{CollapseError, CollapseLimits, Collapsed};
pub use fault::{FaultStop, Served};
pub use migrate::Collected;
pub use numa::TaskScan;
pub use remap::Remap;
pub use tree::VmaTree;
pub use unmap::zap_file;
pub use vma::{Vma, VmaFlags, VmaView};

use crate::api::Error;
use crate::arena::Arena;
use crate::lock::Lock;
use crate::machine::{Machine, WaitKey};
use crate::memory::{Gfp, Shortage};
use crate::mempolicy::MemPolicy;
use crate::mm_core::MmCore;
use crate::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use crate::semaphore::Semaphore;
use crate::units::*;

/// Why an operation on a space stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// For want of memory: make room and run it again.
    Shortage(Shortage),
    /// For good.
    Error(Error),
}

impl<T: Into<Shortage>> From<T> for Stop {
    fn from(shortage: T) -> Stop {
        Stop::Shortage(shortage.into())
    }
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Error(error)
    }
}

/// One address space.
#[derive(Default)]
pub struct Space {
    alive: AtomicBool,
    killed: AtomicBool,
    /// Held by who takes it apart from outside, and by its end.
    life: Lock<()>,
    group: AtomicU32,
    mapping: Semaphore,
    vmas: Lock<VmaTree>,
    /// Has a 2 MiB entry ever been made in its tables? If not, nobody looks for one.
    large: AtomicBool,
    /// Which arrival it was, of all that came to groups.
    arrival: AtomicU64,
    /// Bit n: it has run since aging on node n, modulo 64, last asked.
    ran: AtomicU64,
    /// Where its pages are marked, and when.
    numa: numa::NumaScan,
    /// Where its memory comes from, if a range does not say: the word of a [`MemPolicy`].
    policy: AtomicU64,
}

impl Space {
    /// The group that its memory is charged to.
    #[inline]
    pub fn group(&self) -> GroupId {
        GroupId(self.group.load(Relaxed) as u16)
    }

    /// Was it chosen to die for want of memory?
    #[inline]
    pub fn is_killed(&self) -> bool {
        self.killed.load(Acquire)
    }

    /// Which arrival it was, of all that came to groups.
    pub fn arrival(&self) -> u64 {
        self.arrival.load(Relaxed)
    }

    /// A CPU begins to run it.
    #[inline]
    pub fn note_run(&self) {
        self.ran.store(u64::MAX, Relaxed);
    }

    /// Has it run since the last call for this node?
    pub fn take_ran(&self, node: NodeId) -> bool {
        let bit = 1 << (node.0 % 64);
        self.ran.fetch_and(!bit, Relaxed) & bit != 0
    }

    /// The first range that ends after `from` and that `wanted` accepts.
    pub fn range_from(&self, from: Vpn, wanted: impl Fn(&VmaView) -> bool) -> Option<VmaView> {
        self.vmas.lock().from(from).map(|vma| vma.view).find(|vma| wanted(vma))
    }

    /// As [`range_from`](Self::range_from), for who holds the lock of page tables, which comes after that of the
    /// ranges: none if somebody has that.
    pub fn try_range_from(&self, from: Vpn, wanted: impl Fn(&VmaView) -> bool) -> Option<VmaView> {
        self.vmas.try_lock()?.from(from).map(|vma| vma.view).find(|vma| wanted(vma))
    }

    /// Is the space in use?
    pub fn is_alive(&self) -> bool {
        self.alive.load(Acquire)
    }
}

/// All spaces, by [`SpaceId`].
#[derive(Default)]
pub struct Spaces {
    list: Arena<Space>,
    last_vma: AtomicU32,
    /// Spaces that have come to groups so far.
    arrivals: AtomicU64,
}

impl Spaces {
    /// A space that is in use.
    #[inline]
    pub fn get(&self, space: SpaceId) -> Option<&Space> {
        self.list.get(space.0).filter(|found| found.is_alive())
    }

    /// A space that the caller knows to be in use.
    #[inline]
    fn at(&self, space: SpaceId) -> &Space {
        self.list.get(space.0).expect("a space that was created")
    }

    /// Ids of all spaces in use. `bound`: ids ever given out.
    pub fn ids(&self, bound: u32) -> impl Iterator<Item = SpaceId> + '_ {
        (0..bound).map(SpaceId).filter(|&id| self.get(id).is_some())
    }

    /// A new, empty space.
    pub fn create<M: Machine>(&self, core: &MmCore<M>, gfp: Gfp) -> Result<SpaceId, Shortage> {
        let id = core.tlb.create();
        if let Err(needs) = core.tables.create(core, &core.alloc, id, gfp.means()) {
            core.tlb.destroy(core, id);
            core.tlb.release(id);
            return Err(needs.into());
        }
        let space = self.list.ensure(id.0);
        space.group.store(gfp.group.0 as u32, Relaxed);
        self.note_arrival(space);
        space.killed.store(false, Relaxed);
        space.large.store(false, Relaxed);
        space.policy.store(MemPolicy::DEFAULT.word(), Relaxed);
        *space.vmas.lock() = VmaTree::default();
        space.alive.store(true, Release);
        Ok(id)
    }

    /// Charge a space to another group from now on. Returns the one that it was in; `None`: there is no such space.
    pub fn move_to<M: Machine>(&self, core: &MmCore<M>, id: SpaceId, group: GroupId) -> Option<GroupId> {
        let space = self.get(id)?;
        // Ranges tell the reverse map which group uses them.
        let _held = space.mapping.write(&core.machine, WaitKey::Space(id));
        let old = GroupId(space.group.swap(group.0 as u32, Relaxed) as u16);
        self.note_arrival(space);
        space.vmas.lock().iter().for_each(|vma| vma.relink(core, id, group));
        Some(old)
    }

    fn note_arrival(&self, space: &Space) {
        space.arrival.store(self.arrivals.fetch_add(1, Relaxed) + 1, Relaxed);
        space.note_run();
    }

    /// Spaces that have come to groups so far.
    pub fn arrivals(&self) -> u64 {
        self.arrivals.load(Relaxed)
    }

    /// What khugepaged does between two sleeps, from the first space on.
    #[cfg(test)]
    pub(crate) fn scan_from_start<M: Machine>(&self, core: &MmCore<M>) {
        self.scan(core, &mut khugepaged::ScanCursor::default());
    }

    fn new_vma_id(&self) -> VmaId {
        VmaId(self.last_vma.fetch_add(1, Relaxed) + 1)
    }
}
