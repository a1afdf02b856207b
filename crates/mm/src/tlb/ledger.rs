//! Who owes what, and paying.
//!
//! **The problem.** Between the moment at which a translation is taken away and the moment at which every CPU has dropped
//! it, a CPU may still read the old page. For a page that could only be read this harms nobody until something that the
//! old page, or the old address, stands for changes. So the flush may wait until just before that change.
//!
//! **The rule.** Whoever takes a translation away and does not flush at once leaves a [`Debt`] in three places, before it
//! lets go of the table's lock: with the *space* (before an address gets a new meaning or new rights), with the *file*
//! (before its content changes), and with the *zone* of the frame, whose record gets the zone's epoch as a tag (before the
//! frame is used for something else). The order is: clear the entry, raise the space's generation, then draw the debt's.
//!
//! **Paying.** A CPU catches up by dropping what it holds of its loaded space and noting the space's newest generation;
//! what it holds of other spaces is looked at when it loads them. It then is done with every debt drawn before it began.
//! Rounds go to all CPUs of the debt that are not done. A CPU that runs a kernel task, or nothing, need not be asked: it
//! compares generations before it uses a user translation again.
//!
//! **Epochs.** A zone's tags count its payments: a payment reads the zone's debt and closes the epoch under one lock, so
//! that frames tagged later belong to the next. Two who pay at once both pay all of what they read; nobody waits for
//! another, so no order of payments has to be kept, and none can block.
//!
//! Sources: the idea is LUF's (Byungchul Park, versions 1 to 12); that each of its published forms can forget a flush, and
//! how, is the reason for the three places and for the types in `table`, `alloc` and `cache` that ask for them.

use super::Tlb;
use super::debt::{Debt, Domain, Generation};
use crate::base::Base;
use crate::event::Event;
use crate::knobs::Knob;
use crate::machine::{CpuSet, Flush, Machine};
use crate::primitive::{Ordering::*, modelled::AtomicU64};
use crate::stat::Stat;
use crate::units::*;
use std_alloc::boxed::Box;

/// The bits of an epoch that make a frame's tag; few in models, so that tags come round.
const TAG_MASK: u64 = if cfg!(any(feature = "loom", feature = "shuttle")) { 0b111 } else { u32::MAX as u64 };

/// Number of a zone's payment. Frames are tagged with the number of the payment that will clear them; 0 owes nothing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Epoch(pub u64);

impl Epoch {
    /// Owes nothing.
    pub const NONE: Epoch = Epoch(0);

    /// What fits into a frame's record: the low bits.
    #[inline]
    pub const fn tag(self) -> u32 {
        (self.0 & TAG_MASK) as u32
    }
}

/// Debts of the frames of one zone.
pub(super) struct ZoneLedger {
    pub(super) domain: Domain,
    /// The payment that is to come. Changes under the domain's lock.
    current: AtomicU64,
    /// Payments up to this one have been made.
    pub(super) paid: AtomicU64,
}

impl ZoneLedger {
    pub fn new() -> ZoneLedger {
        ZoneLedger { domain: Domain::default(), current: AtomicU64::new(1), paid: AtomicU64::new(0) }
    }

    /// Begin the next epoch; returns the one that ends. Under the domain's lock. No epoch's tag is 0: that owes nothing.
    pub(super) fn close_epoch(&self) -> u64 {
        let ended = self.current.load(Relaxed);
        let next = if ended & TAG_MASK == TAG_MASK { ended + 2 } else { ended + 1 };
        self.current.store(next, Release);
        ended
    }
}

pub(super) type ZoneLedgers = Box<[ZoneLedger]>;

/// One page of a file may be changed: nobody holds an old translation of it. Made by [`Tlb::settle_file`] only, and used up
/// by the change.
#[derive(Debug)]
#[must_use = "it stands for a payment that was made for a change"]
pub struct FileSettled(FileId);

impl FileSettled {
    /// The file.
    pub fn file(&self) -> FileId {
        self.0
    }
}

/// What debts were left for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    Space(SpaceId),
    File(FileId),
    Frames(Pfn, Order),
}

impl Tlb {
    /// Draw a generation: after entries were cleared and their space's generation was raised.
    pub(super) fn draw(&self) -> Generation {
        Generation(self.drawn.fetch_add(1, SeqCst) + 1)
    }

    /// The newest generation drawn: read before a CPU begins to catch up.
    pub(super) fn newest(&self) -> Generation {
        Generation(self.drawn.load(SeqCst))
    }

    pub(super) fn done(&self, cpu: CpuId) -> Generation {
        self.cpus[cpu.index()].done()
    }

    /// Leave a debt with a space and, if the page was a file's, with the file.
    pub(super) fn owe<M: Machine>(&self, base: &Base<M>, space: SpaceId, file: Option<FileId>, debt: &Debt) {
        let now = base.machine.now();
        let done = |cpu| self.done(cpu);
        self.contexts[space.0].debts.join(debt, now, done, || ());
        if let Some(file) = file {
            self.files.ensure(file.0).join(debt, now, done, || ());
        }
    }

    /// Leave a debt with the zone of a frame. The frame carries the tag that this returns until it is free and paid for.
    pub(super) fn owe_frame<M: Machine>(&self, base: &Base<M>, zone: ZoneId, debt: &Debt) -> Epoch {
        let ledger = &self.zones[zone.index()];
        let now = base.machine.now();
        ledger.domain.join(debt, now, |cpu| self.done(cpu), || Epoch(ledger.current.load(Relaxed)))
    }

    /// CPUs of a debt that have still to catch up. Those that run no user code do it by themselves.
    pub(super) fn owing(&self, debt: &Debt) -> CpuSet {
        let mut owing = CpuSet::EMPTY;
        for cpu in debt.cpus.iter() {
            let state = &self.cpus[cpu.index()];
            if state.done() < debt.generation && state.runs_user_code() {
                owing.insert(cpu);
            }
        }
        owing
    }

    /// All CPUs that owe for some frame.
    fn all_owing(&self) -> CpuSet {
        let mut all = CpuSet::EMPTY;
        for ledger in self.zones.iter().filter(|ledger| ledger.domain.owes()) {
            if let (Some(sum), ()) = ledger.domain.read(|| ()) {
                all.union(&self.owing(&sum.debt));
            }
        }
        all
    }

    /// CPUs that a round to `targets` should reach as well, because they owe anyway.
    pub(super) fn widen<M: Machine>(&self, base: &Base<M>, targets: &mut CpuSet) {
        if base.knobs.get(Knob::TlbPayAll) == 1 {
            targets.union(&self.all_owing());
        }
    }

    /// Pay: on return, every CPU of the debt has caught up, or will before it runs user code.
    pub(super) fn pay<M: Machine>(&self, base: &Base<M>, debt: &Debt) {
        let mut owing = self.owing(debt);
        let me = base.machine.cpu();
        let mut here = owing.contains(me);
        owing.remove(me);
        if owing.is_empty() {
            if here {
                self.catch_up_fully(base, me);
            }
            return;
        }
        self.widen(base, &mut owing);
        here |= owing.contains(me);
        owing.remove(me);
        base.count(Stat::NrTlbRemoteFlush, 1);
        base.event(Event::TlbFlush, [4, u64::MAX, 0, 0]);
        let remote = |cpu| {
            base.stats.add(cpu, Stat::NrTlbRemoteFlushReceived, 1);
            self.catch_up_fully(base, cpu);
        };
        base.machine.shootdown(&owing, &remote, &mut || {
            if here {
                self.catch_up_fully(base, me);
            }
        });
    }

    /// A CPU, on that CPU, drops all that it holds of its space.
    pub(super) fn catch_up_fully<M: Machine>(&self, base: &Base<M>, cpu: CpuId) {
        let state = &self.cpus[cpu.index()];
        // Before the space's generation is read: what is drawn later may not have been seen.
        let drawn = self.newest();
        if let Some(space) = state.space() {
            if state.is_lazy() {
                self.leave(base, cpu);
            } else {
                let newest = self.contexts[space.0].generation.load(SeqCst);
                base.stats.add(cpu, Stat::NrTlbLocalFlushAll, 1);
                base.machine.flush(Flush::Current);
                state.set_generation(newest);
            }
        }
        state.set_done(drawn, base.machine.now());
    }

    fn settle<M: Machine>(&self, base: &Base<M>, domain: &Domain, cause: Cause) {
        if !domain.owes() {
            return;
        }
        if let (Some(sum), ()) = domain.read(|| ()) {
            self.pay_sum(base, &sum.debt, sum.since, cause);
            domain.forget(&sum.debt);
        }
    }

    pub(super) fn pay_sum<M: Machine>(&self, base: &Base<M>, debt: &Debt, since: Nanos, cause: Cause) {
        let started = base.machine.now();
        let before = base.stats.read_cpu(base.machine.cpu(), Stat::NrTlbRemoteFlush);
        self.pay(base, debt);
        let sent = base.stats.read_cpu(base.machine.cpu(), Stat::NrTlbRemoteFlush) != before;
        let stat = match (cause, sent) {
            (_, false) => Stat::TlbSettleFree,
            (Cause::Space(_), _) => Stat::TlbSettleSpace,
            (Cause::File(_), _) => Stat::TlbSettleFile,
            (Cause::Frames(..), _) => Stat::TlbSettleFrame,
        };
        base.count(stat, 1);
        let (kind, id, count) = match cause {
            Cause::Space(space) => (0, space.0, 0),
            Cause::File(file) => (1, file.0, 0),
            Cause::Frames(pfn, order) => (2, pfn.0, order.frames()),
        };
        base.event(Event::TlbSettle, [kind, id as u64, count as u64, 0]);
        let now = base.machine.now();
        base.event(Event::TlbPaid, [kind, now - started, now - since.min(now), sent as u64]);
    }

    /// Nobody holds a translation of `space` that was taken away before this was called.
    ///
    /// Callers hold the lock of the space's tables if no new debt may come meanwhile.
    #[inline]
    pub fn settle_space<M: Machine>(&self, base: &Base<M>, space: SpaceId) {
        self.settle(base, &self.contexts[space.0].debts, Cause::Space(space));
    }

    /// Nobody holds a translation to a page of `file` that was taken away before this was called.
    ///
    /// Callers keep the folio that they are about to change in the file's cache, by its lock or a reference. Translations of
    /// this folio that are taken away later lead to the same frame, and so to the new content.
    #[inline]
    pub fn settle_file<M: Machine>(&self, base: &Base<M>, file: FileId) -> FileSettled {
        if let Some(domain) = self.files.get(file.0) {
            self.settle(base, domain, Cause::File(file));
        }
        FileSettled(file)
    }

    /// All frames of `zone` that are free now can be used when this returns; `pfn` is the one that is wanted.
    pub fn settle_zone<M: Machine>(&self, base: &Base<M>, zone: ZoneId, pfn: Pfn, order: Order) {
        let ledger = &self.zones[zone.index()];
        let (sum, epoch) = ledger.domain.read(|| ledger.close_epoch());
        if let Some(sum) = sum {
            self.pay_sum(base, &sum.debt, sum.since, Cause::Frames(pfn, order));
            ledger.domain.forget(&sum.debt);
        }
        ledger.paid.fetch_max(epoch, AcqRel);
    }

    /// The last payment of a zone that has been made: frames tagged with it, or with one before, owe nothing.
    #[inline]
    pub fn paid_epoch(&self, zone: ZoneId) -> Epoch {
        Epoch(self.zones[zone.index()].paid.load(Acquire))
    }

    /// The epoch that a frame's tag, which holds its low bits, stands for; NONE if it has been paid. A tag so old that
    /// its number has come round again counts as newer than it is, which costs a payment and forgets none.
    #[inline]
    pub fn epoch_of_tag(&self, zone: ZoneId, tag: u32) -> Epoch {
        if tag == 0 {
            return Epoch::NONE;
        }
        let current = self.zones[zone.index()].current.load(Acquire);
        let epoch = Epoch(current.saturating_sub(current.wrapping_sub(tag as u64) & TAG_MASK));
        if epoch <= self.paid_epoch(zone) { Epoch::NONE } else { epoch }
    }

    /// The payment that is to come for a zone. A frame may always be tagged with it: it is the latest of all.
    pub fn current_epoch(&self, zone: ZoneId) -> Epoch {
        Epoch(self.zones[zone.index()].current.load(Acquire))
    }

    /// Nanoseconds after which a CPU pays by itself what it owes.
    fn age_limit<M: Machine>(base: &Base<M>) -> Option<Nanos> {
        match (base.knobs.get(Knob::TlbUnmap), base.knobs.get(Knob::TlbAgeLimitMs)) {
            (super::batch::LATR, _) => Some(0),
            (super::batch::LAZY, limit) if limit > 0 => Some(limit * 1_000_000),
            _ => None,
        }
    }

    /// Would [`Tlb::tick`] do anything?
    pub fn wants_ticks<M: Machine>(&self, base: &Base<M>) -> bool {
        Self::age_limit(base).is_some()
    }

    /// Called on each CPU at every tick of its clock: pay what this CPU owes, if the policy leaves it to ticks, or if it is
    /// older than the limit. No other CPU is asked.
    pub fn tick<M: Machine>(&self, base: &Base<M>) {
        let Some(limit) = Self::age_limit(base) else { return };
        let me = base.machine.cpu();
        let state = &self.cpus[me.index()];
        if !state.runs_user_code() {
            return;
        }
        let now = base.machine.now();
        let due = |ledger: &ZoneLedger| {
            ledger.domain.owes()
                && ledger.domain.read(|| ()).0.is_some_and(|sum| {
                    sum.debt.cpus.contains(me)
                        && state.done() < sum.debt.generation
                        && now.saturating_sub(sum.since.max(state.done_at())) >= limit
                })
        };
        if self.zones.iter().any(due) {
            self.catch_up_fully(base, me);
            base.count(Stat::TlbSettleTick, 1);
        }
    }

    /// Does any CPU owe for a frame, as far as is known without looking at CPUs?
    pub fn owes_anything(&self) -> bool {
        self.zones.iter().any(|ledger| ledger.domain.owes())
    }

    /// Does `cpu` still owe for what `space` had taken away? For checks from outside.
    pub fn space_owes(&self, space: SpaceId, cpu: CpuId) -> bool {
        let sum = self.contexts[space.0].debts.read(|| ()).0;
        sum.is_some_and(|sum| sum.debt.cpus.contains(cpu) && self.done(cpu) < sum.debt.generation)
    }
}
