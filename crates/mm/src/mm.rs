//! The facade: system calls, faults, daemons, and the allocation slow path.
//!
//! Rooms below report a shortage instead of reclaiming. Only the facade, which is above both, reclaims:
//! `Mm::with_room` runs an operation, makes room when it is short, and runs it again, until it succeeds or nothing is
//! left to reclaim.

mod exact;
mod files;
mod groups;
mod lru_gen;
mod migrate;
mod observe;
mod oom;
mod policy;
mod room;
#[cfg(test)]
mod tests;

pub use groups::GroupAccount;
pub use migrate::Moved;
pub use oom::OomReport;

use crate::alloc::{AllocRequest, Allocator, Watermark};
use crate::api::*;
use crate::arena::Arena;
use crate::cache::Cache;
use crate::compact;
use crate::damon;
use crate::frame::{FrameFlags, Mobility};
use crate::hot;
use crate::knobs::{Knob, Knobs};
use crate::lock::{Lock, LockClass};
use crate::lru::Lru;
use crate::machine::{Io, Machine, Scope, WaitKey, Work};
use crate::memory::Memory;
use crate::mm_core::MmCore;
use crate::mmu::Mmu;
use crate::policy::MakePolicy;
use crate::promote;
use crate::reclaim::{self, ReclaimState};
use crate::semaphore::Semaphore;
use crate::space::{FaultStop, Remap, Spaces, Stop, TaskScan};
use crate::stat::{GroupStat, Stat};
use crate::swap::Swap;
use crate::units::*;
use crate::writeback::{self, Writeback};
use std_alloc::string::{String, ToString};
use std_alloc::vec::Vec;

/// Pages that a call may charge above memory.high before it reclaims for them. Source: Linux's MEMCG_CHARGE_BATCH.
const HIGH_BATCH: u64 = 64;

/// Configuration of a memory manager.
#[derive(Default)]
pub struct Config {
    /// Tunables.
    pub knobs: Knobs,
    /// Swap space.
    pub swap: Vec<SwapArea>,
    /// An external replacement policy, which `reclaim.policy` = `custom` selects.
    pub custom: Option<MakePolicy>,
    /// How long before the start the statistics of control groups were added up last (`memcg.flush_ms`). Only a machine
    /// that runs one program after another, each from the start, needs other values than 0.
    pub statistics_age: Nanos,
}

/// Serialises calls that change a file's size or write to it.
struct Inode(Semaphore);

impl Default for Inode {
    fn default() -> Inode {
        Inode(Semaphore::new(LockClass::Inode))
    }
}

/// The memory manager of a machine.
pub struct Mm<M> {
    core: MmCore<M>,
    spaces: Spaces,
    reclaim: ReclaimState,
    writeback: Writeback,
    /// By file.
    inodes: Arena<Inode>,
    oom: Lock<Vec<OomReport>>,
}

impl<M: Machine> Mm<M> {
    /// Take over the memory of `machine`. Fails, with a readable reason, if it is too small or badly described.
    pub fn new(machine: M, config: Config) -> Result<Mm<M>, String> {
        let mmu = Mmu::new(machine, config.knobs);
        let alloc = Allocator::new(&mmu).map_err(|error| error.to_string())?;
        let lru = Lru::new(&mmu.machine).with_custom(config.custom).with_age(config.statistics_age);
        let swap = Swap::new(&config.swap, mmu.machine.cpus());
        let zero = take_zero_page(&mmu, &alloc)?;
        let memory = Memory::new(mmu, swap, alloc, lru);
        let reclaim = ReclaimState::new(&memory);
        policy::choose_at_start(&memory)?;
        let core = MmCore::new(memory, Cache::new(), zero);
        Ok(Mm {
            core,
            spaces: Spaces::default(),
            reclaim,
            writeback: Writeback::default(),
            inodes: Arena::default(),
            oom: Lock::default(),
        })
    }

    /// The machine below.
    pub fn machine(&self) -> &M {
        &self.core.machine
    }

    /// Floors 1 to 4: frames, knobs, counters, translations.
    pub fn mmu(&self) -> &Mmu<M> {
        &self.core
    }

    /// Change a knob at run time, as a write to sysctl or sysfs does.
    pub fn set_knob(&self, knob: Knob, value: u64) -> Result<(), Error> {
        if knob.info().at_start {
            return Err(Error::Access);
        }
        if knob == Knob::CompactMemory && value == 1 {
            self.compact_memory();
            return Ok(());
        }
        self.mmu().knobs.set(knob, value).map_err(|_| Error::Invalid)?;
        self.apply_policy_knob(knob)?;
        if crate::alloc::sets_watermarks(knob) {
            self.core.alloc.set_watermarks(self.mmu());
        }
        // kcompactd sleeps without a timeout while there is nothing to do.
        for node in 0..self.core.alloc.nodes() as u8 {
            self.machine().wake(WaitKey::Kcompactd(NodeId(node)));
        }
        if knob == Knob::DirtyWritebackCentisecs {
            // The flusher sleeps for the old interval, or without a timeout.
            self.machine().wake(WaitKey::Flusher);
        }
        Ok(())
    }

    /// Compact all zones, as a write to `vm.compact_memory` does.
    pub(crate) fn compact_memory(&self) {
        compact::everything(&self.core);
    }

    // --- spaces -------------------------------------------------------------------------------------------

    /// A new, empty address space charged to `group` (GroupId(0) is the root group).
    pub fn create_space(&self, group: GroupId) -> Result<SpaceId, Error> {
        let made =
            self.with_room(None, group, |gfp| self.spaces.create(&self.core, gfp).map_err(Stop::Shortage))?;
        self.enter_group(made);
        Ok(made)
    }

    /// Place mappings of a new space that have no fixed address lower by `pages` than usual, as the randomisation of
    /// address spaces does. Copies of the space inherit that.
    pub fn lower_mmap_base(&self, space: SpaceId, pages: u64) {
        self.spaces.lower_mmap_base(space, pages);
    }

    /// Copy `parent`: private memory is shared until it is written.
    pub fn fork(&self, parent: SpaceId) -> Result<SpaceId, Error> {
        let _scope = self.mmu().scope(Scope::DupMmap);
        let child = self.on_space(parent, |gfp| self.spaces.fork(&self.core, parent, gfp))?;
        self.enter_group(child);
        Ok(child)
    }

    /// Unmap everything and free the space. No task may be in a call on it; CPUs may still have it loaded lazily.
    pub fn exit_space(&self, space: SpaceId) {
        let _scope = self.mmu().scope(Scope::ExitMmap);
        let group = self.group_of(space);
        self.spaces.exit(&self.core, space);
        self.core.lru.groups.leave(group);
    }

    /// Switch this CPU to `space`; `None`: to a kernel task, which keeps the last space loaded lazily.
    pub fn switch(&self, space: Option<SpaceId>) {
        let mmu = self.mmu();
        match space {
            Some(space) => {
                let _scope = mmu.scope(Scope::SwitchMm);
                mmu.charge(Work::Switch, 1);
                self.core.tlb.switch(mmu.host(), space, self.core.tables.root(space));
                if self.core.lru.may_have_generations() {
                    self.note_run(space);
                }
            }
            None => self.core.tlb.enter_lazy(mmu.host()),
        }
    }

    /// Clock tick of this CPU. CPUs that run programs must tick often enough for `tlb.age_limit_ms`, some hundred
    /// times a second; others need no tick.
    pub fn tick(&self) {
        self.core.tlb.tick(self.mmu().host());
    }

    /// Work that a task does for its space when it returns to its program after a tick. The task holds no locks and is
    /// in no call. `ran` is its running time.
    pub fn task_work(&self, space: SpaceId, scan: &TaskScan, ran: Nanos) {
        if self.balances_nodes() {
            self.spaces.mark_for_numa(&self.core, space, scan, ran);
        }
    }

    /// Whether ticks do anything at present; a machine may omit them while they do not.
    pub fn wants_ticks(&self) -> bool {
        self.core.tlb.wants_ticks(self.mmu().host()) || self.balances_nodes()
    }

    fn balances_nodes(&self) -> bool {
        self.mmu().knobs.get(Knob::NumaBalancing) != 0 && self.mmu().tiers.nodes() > 1
    }

    /// Always flush pages of `space` at once when reclaim unmaps them (`false`: as the policy decides). For programs
    /// that cannot bear a thread that reads a page, unchanged, for a while after it was unmapped.
    pub fn set_never_deferred(&self, space: SpaceId, never: bool) {
        self.core.tlb.set_never_deferred(space, never);
    }

    /// Serve a fault: a translation of `space` is missing or forbids `access` at `page`. On success the access is
    /// retried.
    #[inline]
    pub fn fault(&self, space: SpaceId, page: Vpn, access: AccessKind) -> Result<FaultDone, FaultError> {
        let _scope = self.mmu().scope(Scope::ExcPageFault);
        self.mmu().charge(Work::FaultEntry, 1);
        self.handle_fault(space, page, access, 0)
    }

    /// Serve a fault that an access of the program or the kernel has; reclaim for memory.high once more than `spared`
    /// pages were charged above it.
    fn handle_fault(
        &self,
        space: SpaceId,
        page: Vpn,
        access: AccessKind,
        spared: u64,
    ) -> Result<FaultDone, FaultError> {
        let mmu = self.mmu();
        mmu.count(Stat::Pgfault, 1);
        let found = self.spaces.get(space).ok_or(FaultError::Segv)?;
        let group = found.group();
        self.core.lru.groups.count(group, GroupStat::Pgfault, 1);
        // Before the fault and not after it: reclaim could take what the fault maps before the access is retried,
        // again and again.
        self.stay_below_high(group, spared);
        let core = &self.core;
        let serve = move |gfp| found.fault(core, space, page, access, gfp);
        let served = self.with_room(Some(space), group, serve)?;
        if served.done == FaultDone::Major {
            mmu.count(Stat::Pgmajfault, 1);
            self.core.lru.groups.count(group, GroupStat::Pgmajfault, 1);
        }
        if let Some(file) = served.dirtied
            && writeback::balance_dirty(&self.core, &self.writeback, file)
        {
            // While the task waited, the page may have been written, and forbid the store again. With a folio as large
            // as the dirty limit this happens each time. So the fault makes the folio dirty once more, and this time
            // nothing waits before the store.
            self.with_room(Some(space), group, serve)?;
        }
        Ok(served.done)
    }

    /// mmap; returns the first page.
    pub fn mmap(&self, space: SpaceId, request: &MapRequest) -> Result<Vpn, Error> {
        let _scope = self.mmu().scope(Scope::DoMmap);
        let start = self.on_space(space, |_| self.spaces.mmap(&self.core, space, request))?;
        if request.populate || request.locked {
            self.populate(space, start, request.pages);
        }
        Ok(start)
    }

    /// munmap; holes are allowed.
    pub fn munmap(&self, space: SpaceId, start: Vpn, pages: u64) -> Result<(), Error> {
        let _scope = self.mmu().scope(Scope::DoMunmap);
        self.on_space(space, |_| self.spaces.munmap(&self.core, space, start, pages))
    }

    /// mprotect.
    pub fn mprotect(&self, space: SpaceId, start: Vpn, pages: u64, prot: Prot) -> Result<(), Error> {
        let _scope = self.mmu().scope(Scope::DoMprotect);
        self.on_space(space, |_| self.spaces.mprotect(&self.core, space, start, pages, prot))
    }

    /// mremap; returns the first page of the new place. `fixed`: move exactly there.
    pub fn mremap(
        &self,
        space: SpaceId,
        start: Vpn,
        old_pages: u64,
        new_pages: u64,
        may_move: bool,
        fixed: Option<Vpn>,
    ) -> Result<Vpn, Error> {
        let _scope = self.mmu().scope(Scope::DoMremap);
        let remap = Remap { start, old: old_pages, new: new_pages, may_move, fixed };
        self.on_space(space, |gfp| self.spaces.mremap(&self.core, space, remap, gfp))
    }

    /// madvise.
    pub fn madvise(&self, space: SpaceId, start: Vpn, pages: u64, advice: Advice) -> Result<(), Error> {
        if advice == Advice::Collapse {
            return self.collapse(space, start, pages).map(drop);
        }
        let _scope = self.mmu().scope(Scope::DoMadvise);
        let advised =
            self.on_space(space, |_| self.spaces.madvise(&self.core, space, start, pages, advice))?;
        if !advised.page_out.is_empty() {
            reclaim::pageout(&self.core, &self.reclaim, self, &advised.page_out);
        }
        for (file, index, pages) in advised.will_need {
            self.read_in(file, index, pages, self.group_of(space));
        }
        advised.refused.map_or(Ok(()), Err)
    }

    /// madvise(MADV_COLLAPSE): map each aligned 2 MiB of the interval by one entry, made of one folio, whatever the
    /// knobs are. Returns their number. Errors are Linux's. [`Error::Invalid`]: a range or what it maps does not allow
    /// it (anonymous memory without any page yet, MADV_NOHUGEPAGE, only read-only pages). [`Error::NoMemory`]: there
    /// is no free block. [`Error::Busy`]: the group has no room. [`Error::Again`]: a page is in use at present.
    /// [`Error::NotMapped`]: a part of the interval is not mapped, and everything else was done.
    pub fn collapse(&self, space: SpaceId, start: Vpn, pages: u64) -> Result<u64, Error> {
        let _scope = self.mmu().scope(Scope::DoMadvise);
        self.on_space(space, |gfp| self.spaces.collapse(&self.core, space, start, pages, gfp))
    }

    /// mlock (`lock`) or munlock.
    pub fn mlock(&self, space: SpaceId, start: Vpn, pages: u64, lock: bool) -> Result<(), Error> {
        let _scope = self.mmu().scope(Scope::DoMlock);
        self.on_space(space, |_| self.spaces.mlock(&self.core, space, start, pages, lock))?;
        if lock {
            self.populate(space, start, pages);
        }
        Ok(())
    }

    /// msync(MS_SYNC).
    pub fn msync(&self, space: SpaceId, start: Vpn, pages: u64) -> Result<(), Error> {
        let _scope = self.mmu().scope(Scope::DoMsync);
        let parts = self.on_space(space, |_| self.spaces.shared_parts(&self.core, space, start, pages))?;
        for (file, index, pages) in parts {
            self.sync(file, index, PageIndex(index.0 + pages))?;
        }
        Ok(())
    }

    /// Fault in all pages of a range that the program may access; the program meets any errors itself. As in Linux, a
    /// group above memory.high reclaims after each [`HIGH_BATCH`] pages, and for the rest when the call returns.
    fn populate(&self, space: SpaceId, start: Vpn, pages: u64) {
        for page in (start.0..start.0 + pages).map(Vpn) {
            if self.populate_page(space, page).is_err() {
                break;
            }
        }
        if let Some(space) = self.spaces.get(space) {
            self.stay_below_high(space.group(), 0);
        }
    }

    /// Fault in a page until it is found in the tables.
    fn populate_page(&self, space: SpaceId, page: Vpn) -> Result<(), FaultError> {
        let found = self.spaces.get(space).ok_or(FaultError::Segv)?;
        while let Some(access) = found.populates(&self.core, space, page)? {
            self.handle_fault(space, page, access, HIGH_BATCH)?;
        }
        Ok(())
    }

    // --- from the machine's owner -------------------------------------------------------------------------

    /// End of a transfer that was submitted. Called from an interrupt.
    pub fn io_done(&self, io: &Io) {
        self.core.cache.end_io(&self.core, io, true);
    }

    /// End of a transfer that the device could not make, in place of [`io_done`](Self::io_done).
    pub fn io_failed(&self, io: &Io) {
        self.core.cache.end_io(&self.core, io, false);
    }

    /// The daemons that the machine must run.
    pub fn daemons(&self) -> Vec<Daemon> {
        let nodes = self.core.alloc.nodes() as u8;
        let collapse = self.mmu().knobs.get(Knob::ThpKhugepaged) == 1;
        let kswapds = (0..nodes).map(|node| Daemon::Kswapd(NodeId(node)));
        // kcompactd has nothing to do if all folios are single pages.
        let compact = if self.mmu().knobs.wants_blocks() { nodes } else { 0 };
        let kcompactds = (0..compact).map(|node| Daemon::Kcompactd(NodeId(node)));
        let background = kswapds.chain([Daemon::Flusher]).chain(collapse.then_some(Daemon::Khugepaged));
        let promotes = self.mmu().tiers.many() && hot::wants_daemon(&self.mmu().knobs);
        let zswap = self.mmu().knobs.get(Knob::ZswapEnabled) != 0;
        let damon = self.mmu().knobs.get(Knob::DamonReclaimEnabled) != 0;
        let upkeep = self.core.zrams.iter().flatten().any(|zram| zram.upkeep().is_some());
        background
            .chain(zswap.then_some(Daemon::Zswap))
            .chain(upkeep.then_some(Daemon::ZramUpkeep))
            .chain(kcompactds)
            .chain(promotes.then_some(Daemon::Kpromoted))
            .chain(damon.then_some(Daemon::Kdamond))
            .collect()
    }

    /// Run a daemon until the machine stops.
    pub fn daemon(&self, daemon: Daemon) {
        match daemon {
            Daemon::Kswapd(node) => reclaim::kswapd(&self.core, &self.reclaim, self, node),
            Daemon::Kcompactd(node) => compact::daemon(&self.core, node),
            Daemon::Flusher => writeback::flusher(&self.core, &self.writeback),
            Daemon::Zswap => writeback::zswap(&self.core),
            Daemon::ZramUpkeep => writeback::zram_upkeep(&self.core),
            Daemon::Khugepaged => self.spaces.khugepaged(&self.core),
            Daemon::Kpromoted => promote::daemon(&self.core, &self.reclaim, self),
            Daemon::Kdamond => damon::kdamond(&self.core, &self.reclaim, self),
        }
    }
}

/// The page of zeroes that every space may map.
#[expect(clippy::disallowed_methods, reason = "no CPU has a translation to it yet")]
fn take_zero_page<M: Machine>(mmu: &Mmu<M>, alloc: &Allocator) -> Result<Pfn, String> {
    let request = AllocRequest::of_kernel(Mobility::Unmovable, Order::ZERO, NodeId(0));
    let zero =
        alloc.take(mmu, &request, Watermark::Min).map_err(|_| "no memory at all".to_string())?.into_pfn();
    mmu.machine.zero(zero, 1);
    mmu.frames[zero].set(FrameFlags::RESERVED | FrameFlags::UPTODATE);
    Ok(zero)
}

impl From<FaultStop> for FaultError {
    fn from(stop: FaultStop) -> FaultError {
        match stop {
            FaultStop::Error(error) => error,
            FaultStop::Shortage(_) => FaultError::Killed,
        }
    }
}

impl From<Stop> for Error {
    fn from(stop: Stop) -> Error {
        match stop {
            Stop::Error(error) => error,
            Stop::Shortage(_) => Error::NoMemory,
        }
    }
}
