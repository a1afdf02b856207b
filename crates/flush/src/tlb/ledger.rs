//! Debts and payments.
//!
//! **The problem.** Between the moment when an entry is cleared and the moment when every CPU has dropped the
//! translation, a CPU may still read the old page. If the entry was read-only, this is harmless until what the old
//! page or the old address means changes. So the flush may wait until just before that change.
//!
//! **The rule.** Code that clears an entry and does not flush at once leaves a [`Debt`] in three places before it
//! releases the table's lock: with the *space* (to pay before an address changes its content or rights), with the
//! *file* (to pay before its content changes), and with the *zone* of the frame, whose record gets the debt's
//! generation as a tag (to pay before the frame is reused). The order is: clear the entry, raise the space's
//! generation, then draw the debt's generation.
//!
//! **Paying.** A CPU catches up by dropping the translations of its loaded space and noting the space's newest
//! generation; it checks those of other spaces when it loads them. It is then done with every debt drawn before it
//! began. A round goes to all CPUs of the debt that are not done. A CPU that runs a kernel task, or is idle, need not
//! be asked: it compares generations before it uses a user translation again.
//!
//! **Frames.** A frame's tag is the generation of its debt. A tag is paid when every CPU that owes for any frame of
//! the zone is done with it. The zone remembers the newest generation up to which all tags are known to be paid. It
//! advances only if nothing was added to the zone's debt during a payment, and a debt that is drawn before it
//! advances and arrives after gets a newer generation: so no tag up to it is ever owed. No CPU waits for another's
//! payment: two payers at the same time both pay all that they read.
//!
//! Sources: the idea is LUF's (Byungchul Park, versions 1 to 12). Each of its published forms can forget a flush;
//! that is the reason for the three places, and for the types in `table`, `alloc` and `cache` that require them.

use super::{Context, Initiator, Tlb, announce, in_step};
use crate::debt::{Debt, Domain, Generation, WITH_BATCH};
use crate::host::{Broadcast, Cause, Counter, Flush, Host, Notice, Shape, Step, Tunable};
use base::cpus::CpuSet;
use base::primitive::{Ordering::*, modelled::AtomicU64};
use base::units::*;
use std_alloc::boxed::Box;

/// Debts of the frames of one zone.
pub struct ZoneLedger {
    pub domain: Domain,
    /// All tags up to this generation are paid. Changes only under the domain's lock.
    pub paid: AtomicU64,
}

impl ZoneLedger {
    pub fn new() -> ZoneLedger {
        ZoneLedger { domain: Domain::default(), paid: AtomicU64::new(0) }
    }
}

pub(crate) type ZoneLedgers = Box<[ZoneLedger]>;

/// Proof that a page of a file may be changed: no CPU holds a stale translation of it. Only [`Tlb::settle_file`]
/// makes one, and the change consumes it.
///
/// ```
/// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
/// # use kernel::*; use pagefold_flush::*;
/// let (kernel, ledger) = Kernel::that_was_read(Shape::Defer { at_ticks: false });
/// let refs = UnmapBatch::new(&kernel).take(&kernel, &ledger, kernel.clear(A, P));
/// /// write(2) to a page of a file: nobody may read the old content through a stale translation.
/// fn write(kernel: &Kernel, frame: Pfn, content: u64, _proof: FileSettled) {
///     kernel.fill(frame, content);
/// }
/// write(&kernel, refs.head(), 7, ledger.settle_file(&kernel, FileId(0)));
/// # kernel.free(&ledger, refs);
/// ```
#[derive(Debug)]
#[must_use = "it stands for a payment that was made for a change"]
pub struct FileSettled(FileId);

impl FileSettled {
    /// The file.
    pub fn file(&self) -> FileId {
        self.0
    }
}

impl Cause {
    /// The counter of payments that needed a round.
    fn counter(self) -> Counter {
        match self {
            Cause::Space(_) | Cause::Table(..) => Counter::PaidForSpaces,
            Cause::File(_) => Counter::PaidForFiles,
            Cause::Frames(..) => Counter::PaidForFrames,
        }
    }
}

impl Tlb {
    /// Draw a generation, after entries were cleared and their space's generation was raised.
    pub(crate) fn draw(&self) -> Generation {
        loop {
            let drawn = self.drawn.fetch_add(1, SeqCst) + 1;
            // A tag of 0 owes nothing.
            if Generation(drawn).tag() != 0 {
                return Generation(drawn);
            }
        }
    }

    /// The newest generation. Read before a CPU begins to catch up.
    pub(crate) fn newest(&self) -> Generation {
        Generation(self.drawn.load(SeqCst))
    }

    pub(crate) fn done(&self, cpu: CpuId) -> Generation {
        self.cpus[cpu.index()].done()
    }

    /// Leave a debt with a space and, if the page belonged to a file, with the file.
    pub(crate) fn owe<H: Host>(&self, host: &H, context: &Context, file: Option<FileId>, debt: &Debt) {
        let now = host.now();
        let done = |cpu| self.done(cpu);
        let as_it_is = |_: &mut Debt| ();
        context.debts.join(&mut debt.clone(), now, done, as_it_is);
        if let Some(file) = file {
            self.files.ensure(file.0).join(&mut debt.clone(), now, done, as_it_is);
        }
    }

    /// Leave a debt with the zone of a frame. The frame carries the returned tag until it is free and paid for.
    pub(crate) fn owe_frame<H: Host>(&self, host: &H, zone: ZoneId, debt: &Debt) -> Generation {
        let ledger = &self.zones[zone.index()];
        let mut debt = *debt;
        // Under the lock, what a payment covers does not grow while this debt arrives.
        let arrive = |debt: &mut Debt| {
            if debt.generation.0 <= ledger.paid.load(Relaxed) {
                debt.generation = self.draw();
            }
        };
        ledger.domain.join(&mut debt, host.now(), |cpu| self.done(cpu), arrive);
        debt.generation
    }

    /// A frame is about to be free. If a batch that unmapped it had not paid when the references were dropped, its zone
    /// takes the debt over, as if it had been deferred. Call this for each frame with a tag, before the tag is read.
    #[inline]
    pub fn adopt<H: Host>(&self, host: &H, frame: Pfn) {
        if host.tag(frame) & WITH_BATCH != 0 {
            self.adopt_slowly(host, frame);
        }
    }

    #[cold]
    #[inline(never)]
    fn adopt_slowly<H: Host>(&self, host: &H, frame: Pfn) {
        // The batch alone knows which CPUs. Those that run no programs compare generations before they do.
        let mut debt = Debt { cpus: CpuSet::EMPTY, generation: self.draw() };
        for (cpu, state) in (0..).map(CpuId).zip(&self.cpus) {
            if state.runs_user_code() {
                debt.cpus.insert(cpu);
            }
        }
        let generation = self.owe_frame(host, host.zone(frame), &debt);
        host.set_tag(frame, generation.tag());
    }

    /// CPUs of a debt that still have to catch up. CPUs that run no user code do so by themselves.
    pub(crate) fn owing(&self, debt: &Debt) -> CpuSet {
        let mut owing = CpuSet::EMPTY;
        for cpu in debt.cpus.iter() {
            let state = &self.cpus[cpu.index()];
            if state.done() < debt.generation && state.runs_user_code() {
                owing.insert(cpu);
            }
        }
        owing
    }

    /// All CPUs that owe for a frame.
    fn all_owing(&self) -> CpuSet {
        let mut all = CpuSet::EMPTY;
        for ledger in self.zones.iter().filter(|ledger| ledger.domain.owes()) {
            if let Some(sum) = ledger.domain.read() {
                all.union(&self.owing(&sum.debt));
            }
        }
        all
    }

    /// CPUs that a round to `targets` should reach, too, because they owe anyway.
    pub(crate) fn widen<H: Host>(&self, host: &H, targets: &mut CpuSet) {
        if host.tunable(Tunable::PayAll) == 1 {
            targets.union(&self.all_owing());
        }
    }

    /// Pay: on return, every CPU of `owing` has caught up, or will before it runs user code. Returns whether another
    /// CPU was asked.
    pub(crate) fn pay<H: Host>(&self, host: &H, owing: CpuSet) -> bool {
        announce(host, owing, || u64::MAX);
        self.ask(host, owing)
    }

    /// The same, for a round that was announced.
    pub(crate) fn ask<H: Host>(&self, host: &H, mut owing: CpuSet) -> bool {
        let me = host.cpu();
        let mut here = owing.contains(me);
        owing.remove(me);
        if owing.is_empty() {
            if here {
                self.catch_up_fully(host, me, Initiator::ThisCpu);
            }
            return false;
        }
        if host.broadcasts() {
            self.pay_by_broadcast(host);
            return true;
        }
        self.widen(host, &mut owing);
        here |= owing.contains(me);
        owing.remove(me);
        let remote = |cpu| {
            host.count(cpu, Counter::Received, 1);
            self.catch_up_fully(host, cpu, Initiator::AnotherCpu);
        };
        host.send(&owing, &remote, &mut || {
            if here {
                self.catch_up_fully(host, me, Initiator::ThisCpu);
            }
        });
        true
    }

    /// All CPUs drop their translations without being asked. The generations that they note for their spaces stay,
    /// because only they may write them, so each checks once more at its next turn.
    fn pay_by_broadcast<H: Host>(&self, host: &H) {
        let drawn = self.newest();
        host.broadcast(Broadcast::All);
        let now = host.now();
        self.cpus.iter().for_each(|cpu| cpu.set_done(drawn, now));
    }

    /// On a CPU, drop all translations of its space.
    pub(crate) fn catch_up_fully<H: Host>(&self, host: &H, cpu: CpuId, initiator: Initiator) {
        let _scope = in_step(host, Step::CatchUp);
        let state = &self.cpus[cpu.index()];
        // Before the space's generation is read: what is drawn later may not have been seen.
        let drawn = self.newest();
        if let Some(space) = state.space() {
            if state.is_lazy() {
                self.leave(host, cpu);
            } else {
                let newest = self.contexts[space.0].generation.load(SeqCst);
                initiator.count(host, cpu, Counter::LocalAll, 1);
                host.flush(Flush::Current);
                state.set_generation(newest);
            }
        }
        state.set_done(drawn, host.now());
    }

    fn settle<H: Host>(&self, host: &H, domain: &Domain, cause: Cause) {
        if !domain.owes() {
            return;
        }
        if let Some(sum) = domain.read() {
            self.pay_sum(host, &sum.debt, sum.since, cause);
            domain.forget(&sum.debt, || ());
        }
    }

    pub(crate) fn pay_sum<H: Host>(&self, host: &H, debt: &Debt, since: Nanos, cause: Cause) {
        let _scope = in_step(host, Step::Pay);
        let started = host.now();
        let owing = self.owing(debt);
        // A CPU that caught up after the oldest debt owes only for later ones.
        let oldest = |cpu: CpuId| since.max(self.cpus[cpu.index()].done_at());
        let age = owing.iter().map(|cpu| started.saturating_sub(oldest(cpu))).max().unwrap_or(0);
        let sent = self.pay(host, owing);
        host.count(host.cpu(), if sent { cause.counter() } else { Counter::PaidForFree }, 1);
        host.tell(Notice::Paid { cause, took: host.now() - started, age, asked: sent });
    }

    /// On return no CPU holds a translation of `space` whose entry was cleared before this call.
    ///
    /// The caller holds the lock of the space's tables if no new debt may arrive.
    #[inline]
    pub fn settle_space<H: Host>(&self, host: &H, space: SpaceId) {
        self.settle(host, &self.contexts[space.0].debts, Cause::Space(space));
    }

    /// On return no CPU holds a translation of the pages from `first` on that one table maps, whose entry was cleared
    /// before this call. `tag`: of the newest debt left for one of them. The caller holds the lock of the space's
    /// tables.
    ///
    /// ```
    /// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
    /// # use kernel::*; use pagefold_flush::*;
    /// # let (kernel, ledger) = Kernel::that_was_read(Shape::Defer { at_ticks: false });
    /// # let refs = UnmapBatch::new(&kernel).take(&kernel, &ledger, kernel.clear(A, P));
    /// # kernel.free(&ledger, refs);
    /// # let frame = Pfn(FRAMES - 1);
    /// // A fault, under the lock of the table. Reclaim has unmapped one of its pages, and deferred the flush.
    /// let table = kernel.table(A);
    /// if kernel.tag(table) != 0 {
    ///     ledger.settle_table(&kernel, A, Vpn(0), kernel.tag(table));
    ///     kernel.set_tag(table, 0);
    /// }
    /// kernel.map(A, P, frame, true);
    /// ```
    pub fn settle_table<H: Host>(&self, host: &H, space: SpaceId, first: Vpn, tag: u32) {
        let domain = &self.contexts[space.0].debts;
        let Some(sum) = domain.read() else { return };
        let generation = Generation::of_tag(tag, self.newest()).min(sum.debt.generation);
        let wanted = Debt { cpus: sum.debt.cpus, generation };
        self.pay_sum(host, &wanted, sum.since, Cause::Table(space, first));
        if self.owing(&sum.debt).is_empty() {
            domain.forget(&sum.debt, || ());
        }
    }

    /// On return no CPU holds a translation to a page of `file` whose entry was cleared before this call.
    ///
    /// The caller keeps the folio that it is about to change in the file's cache, by its lock or a reference.
    /// Translations of this folio that are cleared later lead to the same frame, and so to the new content.
    #[inline]
    pub fn settle_file<H: Host>(&self, host: &H, file: FileId) -> FileSettled {
        if let Some(domain) = self.files.get(file.0) {
            self.settle(host, domain, Cause::File(file));
        }
        FileSettled(file)
    }

    /// On return frames of `zone` with this generation or an older one can be reused; `pfn` is the frame that is
    /// wanted. If that takes a round, the whole zone is clean afterwards.
    ///
    /// ```
    /// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
    /// # use kernel::*; use pagefold_flush::*;
    /// # let (kernel, ledger) = Kernel::that_was_read(Shape::Defer { at_ticks: false });
    /// # let refs = UnmapBatch::new(&kernel).take(&kernel, &ledger, kernel.clear(A, P));
    /// # kernel.free(&ledger, refs);
    /// # let frame = Pfn(0);
    /// // The allocator hands a frame out that reclaim has unmapped.
    /// let owed = ledger.owed_by_tag(ZONE, kernel.tag(frame));
    /// if owed > ledger.paid_up_to(ZONE) {
    ///     ledger.settle_zone(&kernel, ZONE, owed, frame, Order::ZERO);
    /// }
    /// kernel.set_tag(frame, 0);
    /// # kernel.on(1);
    /// assert_eq!(kernel.read(P), None);
    /// ```
    pub fn settle_zone<H: Host>(
        &self,
        host: &H,
        zone: ZoneId,
        generation: Generation,
        pfn: Pfn,
        order: Order,
    ) {
        let ledger = &self.zones[zone.index()];
        let Some(sum) = ledger.domain.read() else { return };
        let wanted = Debt { cpus: sum.debt.cpus, generation: generation.min(sum.debt.generation) };
        self.pay_sum(host, &wanted, sum.since, Cause::Frames(pfn, order));
        let all_paid = self.owing(&sum.debt).is_empty();
        let paid = if all_paid { sum.debt.generation } else { wanted.generation };
        let advance = || ledger.paid.fetch_max(paid.0, AcqRel);
        if all_paid {
            ledger.domain.forget(&sum.debt, advance);
        } else {
            ledger.domain.if_unchanged(&sum.debt, advance);
        }
    }

    /// Frames of a zone with a generation up to this one can be settled by this CPU without asking another.
    pub fn free_up_to<H: Host>(&self, host: &H, zone: ZoneId) -> Generation {
        let domain = &self.zones[zone.index()].domain;
        // Most zones owe nothing most of the time, and callers hold the zone's lock.
        let sum = if domain.owes() { domain.read() } else { None };
        let Some(sum) = sum else { return Generation(u64::MAX) };
        let mut others = self.owing(&sum.debt);
        others.remove(host.cpu());
        others.iter().map(|cpu| Generation(self.done(cpu).0)).min().unwrap_or(Generation(u64::MAX))
    }

    /// Frames of a zone with a generation up to this one owe nothing.
    #[inline]
    pub fn paid_up_to(&self, zone: ZoneId) -> Generation {
        Generation(self.zones[zone.index()].paid.load(Acquire))
    }

    /// The generation of a frame's tag, which holds its low bits; NONE if it has been paid. A tag that has been
    /// reused since counts as newer than it is, which costs a payment and forgets no debt.
    #[inline]
    pub fn owed_by_tag(&self, zone: ZoneId, tag: u32) -> Generation {
        if tag == 0 {
            return Generation::NONE;
        }
        let generation = Generation::of_tag(tag, self.newest());
        if generation <= self.paid_up_to(zone) { Generation::NONE } else { generation }
    }

    /// Nanoseconds after which a CPU pays its debts by itself.
    fn age_limit<H: Host>(host: &H) -> Option<Nanos> {
        match (host.shape(), host.tunable(Tunable::AgeLimit)) {
            (Shape::Defer { at_ticks: true }, _) => Some(0),
            (Shape::Defer { at_ticks: false }, limit) if limit > 0 => Some(limit),
            _ => None,
        }
    }

    /// Whether [`Tlb::tick`] would do anything.
    pub fn wants_ticks<H: Host>(&self, host: &H) -> bool {
        Self::age_limit(host).is_some()
    }

    /// At every tick of a CPU's clock: pay this CPU's debts if the policy leaves them to ticks, or if they are older
    /// than the limit. No other CPU is asked.
    ///
    /// ```
    /// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
    /// # use kernel::*; use pagefold_flush::*;
    /// # let (kernel, ledger) = Kernel::that_was_read(Shape::Defer { at_ticks: true });
    /// # let refs = UnmapBatch::new(&kernel).take(&kernel, &ledger, kernel.clear(A, P));
    /// # kernel.free(&ledger, refs);
    /// // The interrupt of a CPU's timer.
    /// kernel.on(1);
    /// if ledger.wants_ticks(&kernel) {
    ///     ledger.tick(&kernel);
    /// }
    /// assert_eq!(kernel.read(P), None);
    /// ```
    pub fn tick<H: Host>(&self, host: &H) {
        let Some(limit) = Self::age_limit(host) else { return };
        let me = host.cpu();
        let state = &self.cpus[me.index()];
        if !state.runs_user_code() {
            return;
        }
        let now = host.now();
        let due = |ledger: &ZoneLedger| {
            ledger.domain.owes()
                && ledger.domain.read().is_some_and(|sum| {
                    sum.debt.cpus.contains(me)
                        && state.done() < sum.debt.generation
                        && now.saturating_sub(sum.since.max(state.done_at())) >= limit
                })
        };
        if self.zones.iter().any(due) {
            self.catch_up_fully(host, me, Initiator::ThisCpu);
            host.count(host.cpu(), Counter::PaidAtTicks, 1);
        }
    }
}
