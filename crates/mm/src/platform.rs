//! State of floors 1 and 2, which every room above needs.

use crate::event::Event;
use crate::frame::{FrameFlags, FrameTable};
use crate::knobs::Knobs;
use crate::machine::{Machine, SharedLine, Stall, Work};
use crate::scope::Scope;
use crate::stat::{SizeStats, Stat, Stats};
use crate::tier::Tiers;
use crate::units::*;

/// The machine and the memory manager's records of it.
pub struct Platform<M> {
    /// The machine.
    pub machine: M,
    /// One record per frame.
    pub frames: FrameTable,
    /// Tunables.
    pub knobs: Knobs,
    /// Counters.
    pub stats: Stats,
    /// Counters of large folios, by size.
    pub sizes: SizeStats,
    /// The memory tiers.
    pub tiers: Tiers,
}

impl<M: Machine> Platform<M> {
    /// Records and counters for `machine`.
    pub fn new(machine: M, knobs: Knobs) -> Platform<M> {
        let end = machine.memory().iter().map(|range| range.start.0 + range.frames).max().unwrap_or(0);
        let stats = Stats::new(machine.cpus());
        let tiers = Tiers::new(&machine);
        Platform {
            frames: FrameTable::new(end as usize),
            stats,
            sizes: SizeStats::default(),
            tiers,
            knobs,
            machine,
        }
    }

    /// This state, from any that contains it: what the ledger of flushes runs on.
    #[inline(always)]
    pub fn host(&self) -> &Platform<M> {
        self
    }

    /// Add to a counter of this CPU.
    #[inline]
    pub fn count(&self, stat: Stat, by: i64) {
        self.stats.add(self.machine.cpu(), stat, by);
    }

    /// Charge work to this CPU.
    #[inline]
    pub fn charge(&self, work: Work, count: u64) {
        self.machine.charge(work, count);
    }

    /// This CPU changes the record of a frame that other CPUs may have changed.
    #[inline(always)]
    pub(crate) fn writes_frame(&self, pfn: Pfn) {
        self.machine.writes(SharedLine::Frame(pfn));
    }

    /// Take a reference of a folio unless it is being freed.
    #[inline]
    pub(crate) fn try_get(&self, pfn: Pfn) -> bool {
        self.writes_frame(pfn);
        self.frames[pfn].try_get()
    }

    /// Enter `scope` until the result is dropped.
    #[inline]
    pub fn scope(&self, scope: Scope) -> Scoped<'_, M> {
        Scoped::enter(&self.machine, scope)
    }

    /// The current task stalls until the result is dropped.
    #[inline]
    pub(crate) fn stall(&self, kind: Stall) -> Stalled<'_, M> {
        self.machine.stall(kind, true);
        Stalled { machine: &self.machine, kind }
    }

    /// The same for want of memory, if the folio was in the working set when it was evicted.
    #[inline]
    pub(crate) fn refault_stall(&self, pfn: Pfn) -> Option<Stalled<'_, M>> {
        self.frames[pfn].has(FrameFlags::WORKINGSET).then(|| self.stall(Stall::Memory))
    }

    /// Report a trace event.
    #[inline]
    pub fn event(&self, event: Event, args: [u64; 4]) {
        self.machine.event(event, args);
    }

    /// The node of this CPU.
    #[inline]
    pub fn node(&self) -> NodeId {
        self.machine.node()
    }
}

/// A stall of the current task; it ends when this is dropped.
#[must_use = "a stall that is dropped at once takes no time"]
pub(crate) struct Stalled<'a, M: Machine> {
    machine: &'a M,
    kind: Stall,
}

impl<M: Machine> Drop for Stalled<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.machine.stall(self.kind, false);
    }
}

/// An open scope; it is left when this is dropped.
#[must_use = "a scope that is dropped at once holds nothing"]
pub struct Scoped<'a, M: Machine> {
    machine: &'a M,
    scope: Scope,
}

impl<'a, M: Machine> Scoped<'a, M> {
    /// Enter a scope.
    #[inline]
    pub fn enter(machine: &'a M, scope: Scope) -> Scoped<'a, M> {
        machine.enter(scope);
        Scoped { machine, scope }
    }
}

impl<M: Machine> Drop for Scoped<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.machine.leave(self.scope);
    }
}
