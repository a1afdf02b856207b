//! TLB coherence.
//!
//! Problem: a CPU may use a cached translation after its entry has changed, and no CPU can see another's cache.
//!
//! Rule: each space has a generation. Code that takes a translation away (1) changes the entry, (2) draws the next
//! generation of the space, (3) makes every CPU that may hold stale translations catch up. A CPU notes, for each of
//! its address-space numbers (ASIDs), the generation that it has caught up with; it catches up at an interrupt, or
//! when it loads the space. CPUs that run a kernel task on borrowed tables ("lazy") need no interrupt: they catch up
//! on return.
//!
//! A policy decides when the third step happens: callers flush through an [`UnmapBatch`] (unmapping by reclaim) or a
//! [`Gather`] (unmapping by the process). A deferred step is a debt; `ledger` describes where debts are kept and when
//! they are paid.
//!
//! Source: the scheme of generations is x86 Linux's (arch/x86/mm/tlb.c, since 4.14).

mod batch;
mod cleared;
mod cpu;
mod debt;
mod emptied;
mod gather;
mod ledger;

pub use batch::UnmapBatch;
pub(crate) use batch::spares_unused;
pub(crate) use batch::{EmptiedPages, stale};
pub(crate) use cleared::Cleared;
pub use debt::Generation;
pub use emptied::{Emptied, Refs, Tightened};
pub(crate) use gather::Ascending;
pub use gather::{Finished, Gather, Tightening};
pub use ledger::FileSettled;

use crate::arena::Arena;
use crate::event::Event;
use crate::knobs::Knob;
use crate::machine::{Broadcast, CpuSet, Flush, MAX_CPUS, Machine, Scope, SharedLine};
use crate::platform::Platform;
use crate::primitive::{
    Ordering::*,
    modelled::{AtomicBool, AtomicU32, AtomicU64},
};
use crate::stat::Stat;
use crate::units::*;
use cpu::CpuTlb;
use debt::Domain;
use ledger::{ZoneLedger, ZoneLedgers};
use std_alloc::boxed::Box;

/// CPUs of a space from which on its ranges are flushed by broadcast: more than three (`consider_global_asid` in
/// arch/x86/mm/tlb.c of Linux 6.15).
const BROADCAST_FROM: u32 = 4;

/// The room's state of one space.
#[derive(Default)]
struct Context {
    /// Unique over all spaces that ever existed, so that a reused [`SpaceId`] is not taken for its predecessor.
    id: AtomicU64,
    /// The space's generation: raised after each change that takes translations away.
    generation: AtomicU64,
    /// The root of its tables, once a CPU has run it.
    root: AtomicU32,
    /// CPUs that may hold translations of the space under the ASID that is loaded.
    cpus: [AtomicU64; MAX_CPUS / 64],
    /// Number of changes that have taken rights from entries and not flushed yet. While it is not 0, an entry that
    /// forbids stores does not mean that no CPU can store.
    tightening: AtomicU32,
    /// Its pages are flushed when they are unmapped, under every policy.
    never_deferred: AtomicBool,
    /// Debts for pages that were unmapped.
    debts: Domain,
}

impl Context {
    fn root(&self) -> Pfn {
        Pfn(self.root.load(Relaxed))
    }

    fn cpus(&self) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        for (i, word) in self.cpus.iter().enumerate() {
            set.set_word(i, word.load(SeqCst));
        }
        set
    }

    fn join(&self, cpu: CpuId) {
        self.cpus[cpu.index() / 64].fetch_or(1 << (cpu.0 % 64), SeqCst);
    }

    fn leave(&self, cpu: CpuId) {
        self.cpus[cpu.index() / 64].fetch_and(!(1 << (cpu.0 % 64)), SeqCst);
    }
}

/// Pages whose translations are to be dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// First page.
    pub start: Vpn,
    /// Number of pages; `u64::MAX`: the whole space.
    pub pages: u64,
    /// Size of what each entry mapped: a page, or 2 MiB. One invalidation drops an entry.
    pub stride: Order,
    /// Whether page-table pages were freed. Then lazy CPUs must catch up too: they may walk the tables speculatively.
    pub freed_tables: bool,
}

impl Range {
    /// One page.
    pub const fn page(page: Vpn) -> Range {
        Range::pages(page, 1)
    }

    /// Some pages.
    pub const fn pages(start: Vpn, pages: u64) -> Range {
        Range::entries(start, pages, Order::ZERO)
    }

    /// Pages that were mapped by entries of one size.
    pub const fn entries(start: Vpn, pages: u64, stride: Order) -> Range {
        Range { start, pages, stride, freed_tables: false }
    }

    /// Everything.
    pub const ALL: Range = Range::pages(Vpn(0), u64::MAX);
}

/// The CPU that asked for a flush. As in Linux, a flush is a local one only if the CPU does it for itself; one for
/// another CPU counts as received. A flush at a switch of spaces is neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Initiator {
    ThisCpu,
    AnotherCpu,
}

impl Initiator {
    /// Count a flush on `cpu`, if it is a local one.
    fn count<M: Machine>(self, platform: &Platform<M>, cpu: CpuId, stat: Stat, count: u32) {
        if self == Initiator::ThisCpu {
            platform.stats.add(cpu, stat, i64::from(count));
        }
    }
}

/// A request to catch up.
struct FlushRequest {
    space: SpaceId,
    range: Range,
    generation: u64,
}

/// The memory manager's view of the translations of all CPUs.
pub struct Tlb {
    contexts: Arena<Context>,
    cpus: Box<[CpuTlb]>,
    last_id: AtomicU64,
    /// The newest generation of a debt.
    drawn: AtomicU64,
    files: Arena<Domain>,
    zones: ZoneLedgers,
}

/// A round of flushes for these CPUs begins, unless they are only this one; `pages` of `u64::MAX`: all of a space.
/// Linux counts and traces a round before it looks which CPUs are lazy and need no request, so a round that no CPU gets
/// is one, too (`native_flush_tlb_multi`).
fn announce<M: Machine>(platform: &Platform<M>, mut cpus: CpuSet, pages: impl FnOnce() -> u64) {
    cpus.remove(platform.machine.cpu());
    if !cpus.is_empty() {
        platform.count(Stat::NrTlbRemoteFlush, 1);
        platform.event(Event::TlbFlush, [4, pages(), 0, 0]);
    }
}

impl Tlb {
    /// No CPU has a space loaded.
    pub fn new<M: Machine>(platform: &Platform<M>) -> Tlb {
        let cpus = (0..platform.machine.cpus()).map(|_| CpuTlb::new(platform.machine.asids())).collect();
        let zones = platform.machine.memory().iter().map(|_| ZoneLedger::new()).collect();
        let (contexts, files) = (Arena::default(), Arena::default());
        Tlb { contexts, cpus, last_id: AtomicU64::new(0), drawn: AtomicU64::new(0), files, zones }
    }

    /// A new space. Its id is used by every room.
    pub fn create(&self) -> SpaceId {
        let space = SpaceId(self.contexts.claim());
        let context = &self.contexts[space.0];
        context.id.store(self.last_id.fetch_add(1, Relaxed) + 1, Release);
        context.generation.store(1, Release);
        context.never_deferred.store(false, Release);
        space
    }

    /// End a space: no task runs it, and its tables are about to be freed. CPUs that still borrow them let go.
    pub(crate) fn destroy<M: Machine>(&self, platform: &Platform<M>, space: SpaceId) {
        self.flush(platform, space, Range { freed_tables: true, ..Range::ALL });
        let me = platform.machine.cpu();
        if self.cpus[me.index()].runs(space) {
            self.leave(platform, me);
        }
        assert!(self.contexts[space.0].cpus().is_empty(), "no CPU may run {space} when it ends");
        self.contexts[space.0].id.store(0, Release);
    }

    /// Make the id of a destroyed space available again. Its tables are freed, too.
    pub fn release(&self, space: SpaceId) {
        assert!(!self.is_alive(space), "{space} must be destroyed before its id is reused");
        self.contexts.release(space.0);
    }

    /// Whether CPUs may run the space: until [`Tlb::destroy`].
    pub(crate) fn is_alive(&self, space: SpaceId) -> bool {
        self.contexts[space.0].id.load(Acquire) != 0
    }

    /// Ids that were ever used are below this.
    pub fn bound(&self) -> u32 {
        self.contexts.bound()
    }

    /// Flush pages of this space when reclaim unmaps them (`false`: as the policy says).
    pub fn set_never_deferred(&self, space: SpaceId, never: bool) {
        self.contexts[space.0].never_deferred.store(never, Release);
    }

    /// CPUs that may hold translations of a space.
    pub fn cpus_of(&self, space: SpaceId) -> CpuSet {
        self.contexts[space.0].cpus()
    }

    /// Whether a CPU runs tasks of the space now.
    pub(crate) fn is_running(&self, space: SpaceId) -> bool {
        self.cpus_of(space).iter().any(|cpu| !self.cpus[cpu.index()].is_lazy())
    }

    /// The caller is about to clear entries of a space or take rights from them, and flushes later. Until
    /// [`Tlb::end_tightening`] a CPU's translation may allow what the entry no longer does.
    pub(crate) fn begin_tightening(&self, space: SpaceId) {
        self.contexts[space.0].tightening.fetch_add(1, AcqRel);
    }

    /// The caller has flushed what it changed since [`Tlb::begin_tightening`].
    pub(crate) fn end_tightening(&self, space: SpaceId) {
        let before = self.contexts[space.0].tightening.fetch_sub(1, AcqRel);
        assert!(before > 0, "end_tightening of {space} must follow begin_tightening");
    }

    /// Whether a change of the space's entries has not been flushed yet. The caller synchronises with the change by
    /// the lock of the space's tables or by a folio's mapcount, so it sees either the count or the flushed state.
    pub(crate) fn is_tightening(&self, space: SpaceId) -> bool {
        self.contexts[space.0].tightening.load(Acquire) > 0
    }

    /// Whether, beside the caller's own, another change of the space's entries has not been flushed yet. The caller
    /// may have found entries that the other change had already cleared, and must not return before they are flushed
    /// (Linux: `mm_tlb_flush_nested`).
    pub(super) fn is_nested(&self, space: SpaceId) -> bool {
        self.contexts[space.0].tightening.load(Acquire) > 1
    }

    /// Make every CPU that may hold translations of `range` drop them, before this returns.
    pub fn flush<M: Machine>(&self, platform: &Platform<M>, space: SpaceId, range: Range) {
        let _scope = platform.scope(Scope::FlushTlbMmRange);
        let context = &self.contexts[space.0];
        let generation = context.generation.fetch_add(1, SeqCst) + 1;
        let request = FlushRequest { space, range, generation };
        let me = platform.machine.cpu();
        let mut targets = context.cpus();
        let local = targets.contains(me);
        targets.remove(me);
        announce(platform, targets, || range.pages);
        if !range.freed_tables {
            for cpu in targets.iter() {
                if self.cpus[cpu.index()].is_lazy() {
                    targets.remove(cpu);
                }
            }
        }
        let mut catch_up_here = || {
            if local {
                self.catch_up(platform, me, &request, Initiator::ThisCpu);
            }
        };
        if targets.is_empty() {
            catch_up_here();
            return;
        }
        // A CPU on borrowed tables must leave them before they are freed, for which it has to be asked.
        let broadcasts = platform.machine.has_broadcast_flush() && !range.freed_tables;
        if broadcasts && context.cpus().len() >= BROADCAST_FROM {
            return self.flush_by_broadcast(platform, context, range);
        }
        let mut others = targets;
        self.widen(platform, &mut others);
        others.remove(me);
        let remote = |cpu| {
            platform.stats.add(cpu, Stat::NrTlbRemoteFlushReceived, 1);
            if targets.contains(cpu) {
                self.catch_up(platform, cpu, &request, Initiator::AnotherCpu);
            } else {
                self.catch_up_fully(platform, cpu, Initiator::AnotherCpu);
            }
        };
        platform.machine.shootdown(&others, &remote, &mut catch_up_here);
    }

    /// All CPUs drop translations of `range` without being asked, this one, too. They note no generation, because only
    /// they may write it: one that loads the space again drops all of it.
    fn flush_by_broadcast<M: Machine>(&self, platform: &Platform<M>, context: &Context, range: Range) {
        let entries = range.pages >> range.stride.0;
        let few = entries <= platform.knobs.get(Knob::TlbSinglePageFlushCeiling);
        let what = match few {
            true => Flush::Pages { start: range.start, count: entries as u32, stride: range.stride },
            false => Flush::Current,
        };
        platform.machine.flush_everywhere(Broadcast::Of(context.root(), what));
    }

    /// Flush entries that were emptied, under the lock of their tree, which is still held. On return no CPU holds
    /// them.
    pub(crate) fn flush_emptied<M: Machine>(&self, platform: &Platform<M>, emptied: Emptied) -> Refs {
        self.flush_cleared(platform, emptied.what());
        emptied.into_refs()
    }

    /// Flush entries that lost rights. On return no CPU has more rights than the entries give.
    pub(crate) fn flush_tightened<M: Machine>(&self, platform: &Platform<M>, tightened: Tightened) {
        self.flush_cleared(platform, tightened.what());
        tightened.used_up();
    }

    fn flush_cleared<M: Machine>(&self, platform: &Platform<M>, cleared: &Cleared) {
        stale(platform, cleared, true);
        let range = Range::entries(cleared.page, cleared.pages as u64, cleared.order);
        self.flush(platform, cleared.space, range);
        gather::flushed(platform, cleared.space, Some(range));
    }

    /// On a CPU, catch up with a request.
    fn catch_up<M: Machine>(
        &self,
        platform: &Platform<M>,
        cpu: CpuId,
        request: &FlushRequest,
        initiator: Initiator,
    ) {
        let _scope = platform.scope(Scope::FlushTlbFunc);
        let state = &self.cpus[cpu.index()];
        if !state.runs(request.space) {
            return;
        }
        if state.is_lazy() {
            self.leave(platform, cpu);
            return;
        }
        let drawn = self.newest();
        let newest = self.contexts[request.space.0].generation.load(SeqCst);
        let caught_up = state.generation();
        if caught_up >= request.generation || caught_up == newest {
            return;
        }
        let ceiling = platform.knobs.get(Knob::TlbSinglePageFlushCeiling);
        let exactly_next = request.generation == caught_up + 1 && request.generation == newest;
        let range = request.range;
        let entries = range.pages >> range.stride.0;
        if exactly_next && entries <= ceiling {
            self.drop_pages(platform, range.start, entries as u32, range.stride);
            initiator.count(platform, cpu, Stat::NrTlbLocalFlushOne, entries as u32);
        } else {
            initiator.count(platform, cpu, Stat::NrTlbLocalFlushAll, 1);
            platform.machine.flush(Flush::Current);
        }
        state.set_generation(newest);
        state.set_done(drawn, platform.machine.now());
    }

    /// On this CPU, drop translations of the loaded space.
    fn drop_pages<M: Machine>(&self, platform: &Platform<M>, start: Vpn, count: u32, stride: Order) {
        platform.machine.flush(Flush::Pages { start, count, stride });
    }

    /// This CPU switches to `space`, whose table root is `root`. Interrupts are off.
    pub fn switch<M: Machine>(&self, platform: &Platform<M>, space: SpaceId, root: Pfn) {
        assert!(root.is_some(), "{space} must have tables");
        let me = platform.machine.cpu();
        let state = &self.cpus[me.index()];
        let context = &self.contexts[space.0];
        if state.runs(space) {
            // Returning from a kernel task: this CPU was not told of entries that were cleared in the meantime.
            state.set_lazy(false);
            let drawn = self.newest();
            let newest = context.generation.load(SeqCst);
            if state.generation() != newest {
                platform.machine.flush(Flush::Current);
                state.set_generation(newest);
            }
            state.set_done(drawn, platform.machine.now());
            return;
        }
        self.leave_context(platform, me);
        platform.machine.writes(SharedLine::CpuMask(space));
        context.root.store(root.0, Relaxed);
        // Both before the generation is read: a CPU that raises it later sees this CPU in the set, and does not take
        // it for one that runs no programs.
        state.begin_load();
        context.join(me);
        let drawn = self.newest();
        let newest = context.generation.load(SeqCst);
        let (asid, keep) = state.load(space, context.id.load(Acquire), newest);
        platform.machine.load_root(root, asid, keep);
        state.set_done(drawn, platform.machine.now());
    }

    /// This CPU switches to a kernel task, which borrows the tables of the last space.
    pub(crate) fn enter_lazy<M: Machine>(&self, platform: &Platform<M>) {
        self.cpus[platform.machine.cpu().index()].set_lazy(true);
    }

    /// A CPU unloads its space.
    fn leave<M: Machine>(&self, platform: &Platform<M>, cpu: CpuId) {
        self.leave_context(platform, cpu);
        self.cpus[cpu.index()].unload();
        platform.machine.load_root(Pfn::NONE, Default::default(), true);
    }

    fn leave_context<M: Machine>(&self, platform: &Platform<M>, cpu: CpuId) {
        if let Some(old) = self.cpus[cpu.index()].space() {
            platform.machine.writes(SharedLine::CpuMask(old));
            self.contexts[old.0].leave(cpu);
        }
    }
}

#[cfg(all(test, any(feature = "loom", feature = "shuttle")))]
mod model;
#[cfg(test)]
mod tests;
