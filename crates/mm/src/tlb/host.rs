//! The memory manager below the ledger of flushes.
#![expect(clippy::disallowed_methods, reason = "it writes tags and drops references for the ledger")]

use super::{Cleared, EmptiedPages, Host, Refs};
use crate::event::{Concern, Event};
use crate::frame::{Frame, FrameTable, Owner};
use crate::knobs::Knob;
use crate::machine::{CpuSet, Machine, Scope, SharedLine};
use crate::platform::Platform;
use crate::stat::Stat;
use crate::units::*;
use base::demand;
use pagefold_flush::{
    Asid, Broadcast, Cause, Counter, Flush, Folio, Notice, RemoteCall, Shape, Step, Tunable,
};

impl<M: Machine> Host for Platform<M> {
    #[inline]
    fn cpu(&self) -> CpuId {
        self.machine.cpu()
    }

    #[inline]
    fn now(&self) -> Nanos {
        self.machine.now()
    }

    #[inline]
    fn flush(&self, what: Flush) {
        self.machine.flush(what);
    }

    #[inline]
    fn send(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
        self.machine.shootdown(targets, remote, local);
    }

    #[inline]
    fn load_root(&self, root: Pfn, asid: Asid, keep: bool) {
        self.machine.load_root(root, asid, keep);
    }

    #[inline]
    fn folio(&self, head: Pfn) -> Folio {
        let frame = &self.frames[head];
        let file = match frame.owner() {
            Owner::File(file) => Some(file),
            _ => None,
        };
        Folio { file, order: frame.order() }
    }

    #[inline]
    fn tag(&self, frame: Pfn) -> u32 {
        self.frames[frame].debt()
    }

    #[inline]
    fn set_tag(&self, frame: Pfn, tag: u32) {
        self.frames[frame].set_debt(tag);
    }

    #[inline]
    fn zone(&self, frame: Pfn) -> ZoneId {
        self.frames[frame].zone()
    }

    #[inline]
    fn broadcasts(&self) -> bool {
        self.machine.has_broadcast_flush()
    }

    #[inline]
    fn broadcast(&self, what: Broadcast) {
        self.machine.flush_everywhere(what);
    }

    #[inline]
    fn shape(&self) -> Shape {
        self.knobs.flush_policy().shape()
    }

    #[inline]
    fn tunable(&self, which: Tunable) -> u64 {
        match which {
            Tunable::SinglePages => self.knobs.get(Knob::TlbSinglePageFlushCeiling),
            Tunable::ListedPages => self.knobs.get(Knob::TlbUnmapPages),
            Tunable::MaxDeferredOrder => self.knobs.get(Knob::TlbLazyMaxOrder),
            Tunable::AgeLimit => self.knobs.get(Knob::TlbAgeLimitMs) * MILLISECOND,
            Tunable::PayAll => self.knobs.get(Knob::TlbPayAll),
        }
    }

    #[inline]
    fn changes_cpus_of(&self, space: SpaceId) {
        self.machine.writes(SharedLine::CpuMask(space));
    }

    #[inline]
    fn count(&self, cpu: CpuId, what: Counter, by: u32) {
        let stat = match what {
            Counter::Rounds => Stat::NrTlbRemoteFlush,
            Counter::Received => Stat::NrTlbRemoteFlushReceived,
            Counter::LocalAll => Stat::NrTlbLocalFlushAll,
            Counter::LocalEntries => Stat::NrTlbLocalFlushOne,
            Counter::Deferred => Stat::TlbDeferred,
            Counter::Spared => Stat::TlbFlushSpared,
            Counter::PaidForFrames => Stat::TlbSettleFrame,
            Counter::PaidForSpaces => Stat::TlbSettleSpace,
            Counter::PaidForFiles => Stat::TlbSettleFile,
            Counter::PaidForFree => Stat::TlbSettleFree,
            Counter::PaidAtTicks => Stat::TlbSettleTick,
        };
        self.stats.add(cpu, stat, i64::from(by));
    }

    #[inline]
    fn listens(&self) -> bool {
        self.machine.listens()
    }

    #[inline]
    fn tell(&self, notice: Notice<'_>) {
        match notice {
            Notice::Round(pages) => self.event(Event::TlbFlush, [4, pages, 0, 0]),
            Notice::Stale { cleared, at_once } => tell_stale(self, cleared, at_once),
            Notice::Owed { batch, space, first, pages } => {
                self.event(Event::TlbUnmapOwed, [batch, space.0.into(), first.0.into(), pages.into()]);
            }
            Notice::BatchPaid(batch) => self.event(Event::TlbUnmapPaid, [batch, 0, 0, 0]),
            Notice::Paid { cause, took, age, asked } => {
                let args = concern(cause).args();
                self.event(Event::TlbSettle, args);
                self.event(Event::TlbPaid, [args[0], took, age, asked as u64]);
            }
            Notice::Flushed(space, range) => {
                let concern = Concern::FlushedAtOnce { space, first: range.start, count: range.pages };
                self.event(Event::TlbHazard, concern.args());
            }
            Notice::Changed(space, first, count) => {
                self.event(Event::TlbHazard, Concern::Pages { space, first, count }.args());
            }
        }
    }

    #[inline]
    fn enter(&self, step: Step) {
        self.machine.enter(scope(step));
    }

    #[inline]
    fn leave(&self, step: Step) {
        self.machine.leave(scope(step));
    }
}

/// Linux's name of a step.
#[inline]
fn scope(step: Step) -> Scope {
    match step {
        Step::Flush => Scope::FlushTlbMmRange,
        Step::CatchUp => Scope::FlushTlbFunc,
        Step::Finish => Scope::TlbFinishMmu,
        Step::Batch => Scope::TryToUnmapFlush,
        Step::Pay => Scope::SettleDebts,
    }
}

/// What a payment is about.
fn concern(cause: Cause) -> Concern {
    match cause {
        Cause::Space(space) => Concern::space(space),
        Cause::File(file) => Concern::file_from(file, PageIndex(0)),
        Cause::Frames(first, order) => Concern::Frames { first, count: order.frames() },
        Cause::Table(space, first) => Concern::Pages { space, first, count: TABLE_ENTRIES as u64 },
    }
}

/// Report to observers that CPUs may hold translations that are no longer in the table. `at_once`: the caller flushes.
/// An entry that the policy `abis` regards as never used is marked: no CPU should hold it.
#[inline]
pub(crate) fn stale<M: Machine>(platform: &Platform<M>, cleared: &Cleared, at_once: bool) {
    if platform.machine.listens() {
        tell_stale(platform, cleared, at_once);
    }
}

/// Not inlined: on hardware nothing listens.
#[inline(never)]
fn tell_stale<M: Machine>(platform: &Platform<M>, cleared: &Cleared, at_once: bool) {
    let frame = &platform.frames[cleared.head];
    let (file, index) = match frame.owner() {
        Owner::File(file) => {
            (file.0 as u64 + 1, frame.page_index().0 + (cleared.pfn.0 - cleared.head.0) as u64)
        }
        _ => (0, 0),
    };
    let spared = cleared.never_used && spares_unused(platform);
    // Through a clean entry no CPU stores without a walk, which finds it cleared.
    let stores = cleared.writable && cleared.dirty;
    let flags = u64::from(stores) << 32 | u64::from(at_once) << 33 | u64::from(spared) << 34;
    let flags = flags | u64::from(cleared.pages - 1) << 40;
    let place = cleared.space.0 as u64 | file << 32;
    platform.event(Event::TlbStale, [place, cleared.page.0, cleared.pfn.0 as u64 | flags, index]);
}

/// Whether entries that no CPU has used are not flushed. Then entries that no access has asked for must not be marked
/// as used.
pub(crate) fn spares_unused<M: Machine>(platform: &Platform<M>) -> bool {
    platform.knobs.flush_policy().shape() == Shape::Now { spares_unused: true }
}

/// Dropping references of a folio of which the caller holds another.
pub trait HeldRefs {
    /// Drop them. The caller holds another reference of the folio.
    fn put_held(self, frames: &FrameTable);
}

impl HeldRefs for Refs {
    #[inline]
    fn put_held(self, frames: &FrameTable) {
        let (head, count) = self.into_parts();
        let last = count > 0 && frames[head].put(count);
        demand!(!last, [head]; "the caller must hold another reference of {head}");
    }
}

/// After a batch has taken entries, drop their references, each after a call of `forget`. The caller holds another
/// reference of each page.
#[inline]
pub(crate) fn put_held_pages(
    emptied: &mut EmptiedPages,
    frames: &FrameTable,
    mut forget: impl FnMut(Pfn, &Frame),
) {
    emptied.release(|page| {
        let frame = &frames[page];
        forget(page, frame);
        let last = frame.put(1);
        demand!(!last, [page]; "the caller must hold another reference of {page}");
    });
}
