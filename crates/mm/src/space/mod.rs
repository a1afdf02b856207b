//! Address spaces: mapped ranges, the system calls that change them, faults, fork.
//!
//! A space has a tree of ranges ([`Vma`]) and a tree of page tables. The `mapping` semaphore orders changes of both: a
//! fault holds it shared, whatever changes ranges holds it alone. The tree of ranges has a short lock of its own for
//! the moment of a look-up: a fault copies the range that it needs and drops the lock.
//!
//! A function that returns a [`Shortage`] has changed nothing that a second run would not change the same way. The
//! facade runs it again once there is room.

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
mod zap;

pub use fault::{FaultStop, Served};
pub use numa::TaskScan;
pub use remap::Remap;
pub use tree::VmaTree;
pub use vma::{Vma, VmaFlags, VmaView};
pub(crate) use zap::zap_file;

use crate::api::Error;
use crate::arena::Arena;
use crate::lock::{Lock, LockClass};
use crate::machine::{Machine, WaitKey};
use crate::memory::{Gfp, Shortage};
use crate::mempolicy::MemPolicy;
use crate::mm_core::MmCore;
use crate::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use crate::semaphore::Semaphore;
use crate::units::*;
use core::ops::Deref;

/// Why an operation on a space stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Out of memory: make room and run it again.
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

/// A space's mapping semaphore.
struct MmapLock(Semaphore);

impl Default for MmapLock {
    fn default() -> MmapLock {
        MmapLock(Semaphore::new(LockClass::Mmap))
    }
}

impl Deref for MmapLock {
    type Target = Semaphore;

    fn deref(&self) -> &Semaphore {
        &self.0
    }
}

/// One address space.
#[derive(Default)]
pub struct Space {
    alive: AtomicBool,
    killed: AtomicBool,
    /// Held by a task that tears the space down from outside, and by the space's own exit.
    life: Lock<()>,
    group: AtomicU32,
    mapping: MmapLock,
    vmas: Lock<VmaTree>,
    /// Whether its tables have ever held a 2 MiB entry. If not, no look-up tests for one.
    large: AtomicBool,
    /// Sequence number of its last arrival in a group, over all spaces.
    arrival: AtomicU64,
    /// Bit n: it has run since aging last asked for node n (modulo 64).
    ran: AtomicU64,
    /// State of NUMA balancing: where its pages are marked, and when.
    numa: numa::NumaScan,
    /// The word of its [`MemPolicy`], which applies where a range has none.
    policy: AtomicU64,
}

impl Space {
    /// The group that its memory is charged to.
    #[inline]
    pub fn group(&self) -> GroupId {
        GroupId(self.group.load(Relaxed) as u16)
    }

    /// Whether the OOM killer has chosen it.
    #[inline]
    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Acquire)
    }

    pub(crate) fn arrival(&self) -> u64 {
        self.arrival.load(Relaxed)
    }

    /// A CPU begins to run it.
    #[inline]
    pub(crate) fn note_run(&self) {
        self.ran.store(u64::MAX, Relaxed);
    }

    /// Whether it has run since the last call for this node.
    pub(crate) fn take_ran(&self, node: NodeId) -> bool {
        let bit = 1 << (node.0 % 64);
        self.ran.fetch_and(!bit, Relaxed) & bit != 0
    }

    /// The first range that ends after `from` and that `wanted` accepts.
    pub(crate) fn range_from(&self, from: Vpn, wanted: impl Fn(&VmaView) -> bool) -> Option<VmaView> {
        self.vmas.lock().from(from).map(|vma| vma.view).find(|vma| wanted(vma))
    }

    /// As [`range_from`](Self::range_from), for a caller that holds the page-table lock, which comes after the ranges'
    /// lock in the lock order: `None` if that lock is taken.
    pub(crate) fn try_range_from(&self, from: Vpn, wanted: impl Fn(&VmaView) -> bool) -> Option<VmaView> {
        self.vmas.try_lock()?.from(from).map(|vma| vma.view).find(|vma| wanted(vma))
    }

    /// Whether the space is in use.
    pub(crate) fn is_alive(&self) -> bool {
        self.alive.load(Acquire)
    }
}

/// All spaces, by [`SpaceId`].
#[derive(Default)]
pub(crate) struct Spaces {
    list: Arena<Space>,
    last_vma: AtomicU32,
    /// Number of arrivals in groups so far.
    arrivals: AtomicU64,
}

impl Spaces {
    #[inline]
    pub fn get(&self, space: SpaceId) -> Option<&Space> {
        self.list.get(space.0).filter(|found| found.is_alive())
    }

    /// A space that the caller knows to be in use.
    #[inline]
    fn at(&self, space: SpaceId) -> &Space {
        self.list.get(space.0).expect("the space must have been created")
    }

    /// Ids of all spaces in use. `bound`: the number of ids ever allocated.
    pub fn ids(&self, bound: u32) -> impl Iterator<Item = SpaceId> + '_ {
        (0..bound).map(SpaceId).filter(|&id| self.get(id).is_some())
    }

    /// Place mappings without a fixed address lower by this many pages than usual.
    pub fn lower_mmap_base(&self, space: SpaceId, pages: u64) {
        self.at(space).vmas.lock().lower(pages);
    }

    /// A new, empty space.
    pub fn create<M: Machine>(&self, core: &MmCore<M>, gfp: Gfp) -> Result<SpaceId, Shortage> {
        let id = core.tlb.create();
        if let Err(needs) = core.tables.create(core, &core.alloc, id, gfp.means()) {
            core.tlb.destroy(core.host(), id);
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

    /// Charge a space to another group from now on. Returns its old group; `None` if there is no such space.
    pub(crate) fn move_to<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        group: GroupId,
    ) -> Option<GroupId> {
        let space = self.get(id)?;
        // The reverse map records the group of each range.
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

    pub(crate) fn arrivals(&self) -> u64 {
        self.arrivals.load(Relaxed)
    }

    /// One scan of khugepaged, from the first space on.
    #[cfg(test)]
    pub(crate) fn scan_from_start<M: Machine>(&self, core: &MmCore<M>) {
        self.scan(core, &mut khugepaged::ScanCursor::default());
    }

    fn new_vma_id(&self) -> VmaId {
        VmaId(self.last_vma.fetch_add(1, Relaxed) + 1)
    }
}
