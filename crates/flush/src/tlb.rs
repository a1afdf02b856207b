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

pub(crate) mod batch;
pub(crate) mod gather;
pub(crate) mod ledger;

use crate::cleared::Cleared;
use crate::cpu::CpuTlb;
use crate::debt::Domain;
use crate::emptied::{Emptied, Refs, Tightened};
use crate::host::{Broadcast, Counter, Flush, Host, Notice, Step, Tunable};
use crate::range::Range;
use base::arena::Arena;
use base::cpus::{CpuSet, MAX_CPUS};
use base::primitive::{
    Ordering::*,
    modelled::{AtomicBool, AtomicU32, AtomicU64},
};
use base::units::*;
use batch::stale;
use ledger::{ZoneLedger, ZoneLedgers};
use std_alloc::boxed::Box;

/// CPUs of a space from which on its ranges are flushed by broadcast: more than three (`consider_global_asid` in
/// arch/x86/mm/tlb.c of Linux 6.15).
const BROADCAST_FROM: u32 = 4;

/// The room's state of one space.
#[derive(Default)]
pub struct Context {
    /// Unique over all spaces that ever existed, so that a reused [`SpaceId`] is not taken for its predecessor.
    pub id: AtomicU64,
    /// The space's generation: raised after each change that takes translations away.
    pub generation: AtomicU64,
    /// The root of its tables, once a CPU has run it.
    pub root: AtomicU32,
    /// CPUs that may hold translations of the space under the ASID that is loaded.
    pub cpus: [AtomicU64; MAX_CPUS / 64],
    /// Number of changes that have taken rights from entries and not flushed yet. While it is not 0, an entry that
    /// forbids stores does not mean that no CPU can store.
    pub tightening: AtomicU32,
    /// Its pages are flushed when they are unmapped, under every policy.
    pub never_deferred: AtomicBool,
    /// Debts for pages that were unmapped.
    pub debts: Domain,
}

impl Context {
    /// The root of its tables.
    pub fn root(&self) -> Pfn {
        Pfn(self.root.load(Relaxed))
    }

    /// CPUs that may hold translations.
    pub fn cpus(&self) -> CpuSet {
        let mut set = CpuSet::EMPTY;
        for (i, word) in self.cpus.iter().enumerate() {
            set.set_word(i, word.load(SeqCst));
        }
        set
    }

    /// A CPU loads the space.
    pub fn join(&self, cpu: CpuId) {
        self.cpus[cpu.index() / 64].fetch_or(1 << (cpu.0 % 64), SeqCst);
    }

    /// A CPU unloads it.
    pub fn leave(&self, cpu: CpuId) {
        self.cpus[cpu.index() / 64].fetch_and(!(1 << (cpu.0 % 64)), SeqCst);
    }
}

/// The CPU that asked for a flush. As in Linux, a flush is a local one only if the CPU does it for itself; one for
/// another CPU counts as received. A flush at a switch of spaces is neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Initiator {
    ThisCpu,
    AnotherCpu,
}

impl Initiator {
    /// Count a flush on `cpu`, if it is a local one.
    pub(crate) fn count<H: Host>(self, host: &H, cpu: CpuId, what: Counter, count: u32) {
        if self == Initiator::ThisCpu {
            host.count(cpu, what, count);
        }
    }
}

/// A request to catch up.
pub(crate) struct FlushRequest {
    pub space: SpaceId,
    pub range: Range,
    pub generation: u64,
}

/// The memory manager's view of the translations of all CPUs.
///
/// ```
/// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
/// # use kernel::*; use pagefold_flush::*;
/// # let (kernel, _) = Kernel::new(Shape::Collect { listed: false });
/// // Two CPUs with six numbers each, and one zone of frames.
/// let ledger = Tlb::new(2, 6, 1);
/// let space = ledger.create();
/// ledger.switch(&kernel, space, kernel.root(A));
/// assert!(ledger.is_running(space));
/// // This CPU runs a kernel task; the next task is another space's.
/// ledger.enter_lazy(&kernel);
/// let next = ledger.create();
/// ledger.switch(&kernel, next, kernel.root(B));
/// // The first space ends: CPUs let go of its tables, which can be freed then; its number is used again.
/// ledger.destroy(&kernel, space);
/// ledger.release(space);
/// assert_eq!(ledger.create(), space);
/// ```
pub struct Tlb {
    pub(crate) contexts: Arena<Context>,
    pub(crate) cpus: Box<[CpuTlb]>,
    pub(crate) last_id: AtomicU64,
    /// The newest generation of a debt.
    pub(crate) drawn: AtomicU64,
    pub(crate) files: Arena<Domain>,
    pub(crate) zones: ZoneLedgers,
}

/// A step that ends when this is dropped.
pub(crate) struct InStep<'a, H: Host>(&'a H, Step);

/// Begin a step.
#[inline]
pub(crate) fn in_step<H: Host>(host: &H, step: Step) -> InStep<'_, H> {
    host.enter(step);
    InStep(host, step)
}

impl<H: Host> Drop for InStep<'_, H> {
    #[inline]
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

/// A round of flushes for these CPUs begins, unless they are only this one; `pages` of `u64::MAX`: all of a space.
/// Linux counts and traces a round before it looks which CPUs are lazy and need no request, so a round that no CPU gets
/// is one, too (`native_flush_tlb_multi`).
pub(crate) fn announce<H: Host>(host: &H, mut cpus: CpuSet, pages: impl FnOnce() -> u64) {
    cpus.remove(host.cpu());
    if !cpus.is_empty() {
        host.count(host.cpu(), Counter::Rounds, 1);
        host.tell(Notice::Round(pages()));
    }
}

impl Tlb {
    /// For `cpus` CPUs with `asids` address-space numbers each, and `zones` zones of frames. No CPU has a space loaded.
    pub fn new(cpus: usize, asids: usize, zones: usize) -> Tlb {
        let cpus = (0..cpus).map(|_| CpuTlb::new(asids)).collect();
        let zones = (0..zones).map(|_| ZoneLedger::new()).collect();
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
    pub fn destroy<H: Host>(&self, host: &H, space: SpaceId) {
        self.flush(host, space, Range { freed_tables: true, ..Range::ALL });
        let me = host.cpu();
        if self.cpus[me.index()].runs(space) {
            self.leave(host, me);
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
    pub fn is_alive(&self, space: SpaceId) -> bool {
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
    pub fn is_running(&self, space: SpaceId) -> bool {
        self.cpus_of(space).iter().any(|cpu| !self.cpus[cpu.index()].is_lazy())
    }

    /// The caller is about to clear entries of a space or take rights from them, and flushes later. Until
    /// [`Tlb::end_tightening`] a CPU's translation may allow what the entry no longer does.
    pub fn begin_tightening(&self, space: SpaceId) {
        self.contexts[space.0].tightening.fetch_add(1, AcqRel);
    }

    /// The caller has flushed what it changed since [`Tlb::begin_tightening`].
    pub fn end_tightening(&self, space: SpaceId) {
        let before = self.contexts[space.0].tightening.fetch_sub(1, AcqRel);
        assert!(before > 0, "end_tightening of {space} must follow begin_tightening");
    }

    /// Whether a change of the space's entries has not been flushed yet. The caller synchronises with the change by
    /// the lock of the space's tables or by a folio's mapcount, so it sees either the count or the flushed state.
    pub fn is_tightening(&self, space: SpaceId) -> bool {
        self.contexts[space.0].tightening.load(Acquire) > 0
    }

    /// Whether, beside the caller's own, another change of the space's entries has not been flushed yet. The caller
    /// may have found entries that the other change had already cleared, and must not return before they are flushed
    /// (Linux: `mm_tlb_flush_nested`).
    pub(crate) fn is_nested(&self, space: SpaceId) -> bool {
        self.contexts[space.0].tightening.load(Acquire) > 1
    }

    /// Make every CPU that may hold translations of `range` drop them, before this returns.
    pub fn flush<H: Host>(&self, host: &H, space: SpaceId, range: Range) {
        let _scope = in_step(host, Step::Flush);
        let context = &self.contexts[space.0];
        let generation = context.generation.fetch_add(1, SeqCst) + 1;
        let request = FlushRequest { space, range, generation };
        let me = host.cpu();
        let mut targets = context.cpus();
        let local = targets.contains(me);
        targets.remove(me);
        announce(host, targets, || range.pages);
        if !range.freed_tables {
            for cpu in targets.iter() {
                if self.cpus[cpu.index()].is_lazy() {
                    targets.remove(cpu);
                }
            }
        }
        let mut catch_up_here = || {
            if local {
                self.catch_up(host, me, &request, Initiator::ThisCpu);
            }
        };
        if targets.is_empty() {
            catch_up_here();
            return;
        }
        // A CPU on borrowed tables must leave them before they are freed, for which it has to be asked.
        let broadcasts = host.broadcasts() && !range.freed_tables;
        if broadcasts && context.cpus().len() >= BROADCAST_FROM {
            return self.flush_by_broadcast(host, context, range);
        }
        let mut others = targets;
        self.widen(host, &mut others);
        others.remove(me);
        let remote = |cpu| {
            host.count(cpu, Counter::Received, 1);
            if targets.contains(cpu) {
                self.catch_up(host, cpu, &request, Initiator::AnotherCpu);
            } else {
                self.catch_up_fully(host, cpu, Initiator::AnotherCpu);
            }
        };
        host.send(&others, &remote, &mut catch_up_here);
    }

    /// All CPUs drop translations of `range` without being asked, this one, too. They note no generation, because only
    /// they may write it: one that loads the space again drops all of it.
    fn flush_by_broadcast<H: Host>(&self, host: &H, context: &Context, range: Range) {
        let entries = range.pages >> range.stride.0;
        let few = entries <= host.tunable(Tunable::SinglePages);
        let what = match few {
            true => Flush::Pages { start: range.start, count: entries as u32, stride: range.stride },
            false => Flush::Current,
        };
        host.broadcast(Broadcast::Of(context.root(), what));
    }

    /// Flush entries that were emptied, under the lock of their tree, which is still held. On return no CPU holds
    /// them.
    pub fn flush_emptied<H: Host>(&self, host: &H, emptied: Emptied) -> Refs {
        self.flush_cleared(host, emptied.what());
        emptied.into_refs(false)
    }

    /// Flush entries that lost rights. On return no CPU has more rights than the entries give.
    pub fn flush_tightened<H: Host>(&self, host: &H, tightened: Tightened) {
        self.flush_cleared(host, tightened.what());
        tightened.used_up();
    }

    fn flush_cleared<H: Host>(&self, host: &H, cleared: &Cleared) {
        stale(host, cleared, true);
        let range = Range::entries(cleared.page, cleared.pages as u64, cleared.order);
        self.flush(host, cleared.space, range);
        gather::flushed(host, cleared.space, Some(range));
    }

    /// On a CPU, catch up with a request.
    pub(crate) fn catch_up<H: Host>(
        &self,
        host: &H,
        cpu: CpuId,
        request: &FlushRequest,
        initiator: Initiator,
    ) {
        let _scope = in_step(host, Step::CatchUp);
        let state = &self.cpus[cpu.index()];
        if !state.runs(request.space) {
            return;
        }
        if state.is_lazy() {
            self.leave(host, cpu);
            return;
        }
        let drawn = self.newest();
        let newest = self.contexts[request.space.0].generation.load(SeqCst);
        let caught_up = state.generation();
        if caught_up >= request.generation || caught_up == newest {
            return;
        }
        let ceiling = host.tunable(Tunable::SinglePages);
        let exactly_next = request.generation == caught_up + 1 && request.generation == newest;
        let range = request.range;
        let entries = range.pages >> range.stride.0;
        if exactly_next && entries <= ceiling {
            self.drop_pages(host, range.start, entries as u32, range.stride);
            initiator.count(host, cpu, Counter::LocalEntries, entries as u32);
        } else {
            initiator.count(host, cpu, Counter::LocalAll, 1);
            host.flush(Flush::Current);
        }
        state.set_generation(newest);
        state.set_done(drawn, host.now());
    }

    /// On this CPU, drop translations of the loaded space.
    pub(crate) fn drop_pages<H: Host>(&self, host: &H, start: Vpn, count: u32, stride: Order) {
        host.flush(Flush::Pages { start, count, stride });
    }

    /// This CPU switches to `space`, whose table root is `root`. Interrupts are off.
    ///
    /// ```
    /// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
    /// # use kernel::*; use pagefold_flush::*;
    /// let (kernel, ledger) = Kernel::that_was_read(Shape::Collect { listed: false });
    /// kernel.on(1);
    /// ledger.enter_lazy(&kernel);
    /// // A CPU that runs a kernel task is not asked. It looks whether it missed something when it returns.
    /// kernel.on(0);
    /// kernel.free(&ledger, ledger.flush_emptied(&kernel, kernel.clear(A, P)));
    /// kernel.on(1);
    /// ledger.switch(&kernel, A, kernel.root(A));
    /// assert_eq!(kernel.read(P), None);
    /// ```
    pub fn switch<H: Host>(&self, host: &H, space: SpaceId, root: Pfn) {
        assert!(root.is_some(), "{space} must have tables");
        let me = host.cpu();
        let state = &self.cpus[me.index()];
        let context = &self.contexts[space.0];
        if state.runs(space) {
            // Returning from a kernel task: this CPU was not told of entries that were cleared in the meantime.
            state.set_lazy(false);
            let drawn = self.newest();
            let newest = context.generation.load(SeqCst);
            if state.generation() != newest {
                host.flush(Flush::Current);
                state.set_generation(newest);
            }
            state.set_done(drawn, host.now());
            return;
        }
        self.leave_context(host, me);
        host.changes_cpus_of(space);
        context.root.store(root.0, Relaxed);
        // Both before the generation is read: a CPU that raises it later sees this CPU in the set, and does not take
        // it for one that runs no programs.
        state.begin_load();
        context.join(me);
        let drawn = self.newest();
        let newest = context.generation.load(SeqCst);
        let (asid, keep) = state.load(space, context.id.load(Acquire), newest);
        host.load_root(root, asid, keep);
        state.set_done(drawn, host.now());
    }

    /// This CPU switches to a kernel task, which borrows the tables of the last space.
    pub fn enter_lazy<H: Host>(&self, host: &H) {
        self.cpus[host.cpu().index()].set_lazy(true);
    }

    /// A CPU unloads its space.
    pub(crate) fn leave<H: Host>(&self, host: &H, cpu: CpuId) {
        self.leave_context(host, cpu);
        self.cpus[cpu.index()].unload();
        host.load_root(Pfn::NONE, Default::default(), true);
    }

    pub(crate) fn leave_context<H: Host>(&self, host: &H, cpu: CpuId) {
        if let Some(old) = self.cpus[cpu.index()].space() {
            host.changes_cpus_of(old);
            self.contexts[old.0].leave(cpu);
        }
    }
}
