//! Unmapping by reclaim: when the CPUs that hold a page's translations drop them.
//!
//! | policy | flushes | what waits |
//! |---|---|---|
//! | eager | at every page | nothing |
//! | batch | at the end of the batch, everything on each CPU (Linux since 4.3) | the batch's pages |
//! | list | after a number of pages, page by page on each CPU (seed 004) | these pages |
//! | lazy | when a frame is used again, an address or a file changes, or the debt is old (LUF) | frames that are free |
//! | abis | at every page, and not at all where no CPU has used the entry (ABIS) | nothing |
//! | latr | at each CPU's next tick, without asking it (LATR) | frames that are free |
//!
//! Under every policy, a page whose flush is pending has left its debt with its space and file first (see `ledger`),
//! so a change of an address or a file in the meantime can pay before. With `lazy` and `latr`, an entry that allowed
//! stores is flushed at the end of the batch. The entry itself does not tell: a call may have taken its right to write
//! and not flushed yet. Before a page is written, only entries that were dirty must be flushed.
//!
//! `list` differs from the published patch, which passes physical addresses to an instruction that takes linear ones:
//! here a list holds spaces and pages.
//!
//! `abis` implements the half of the idea that works with shared page tables: an entry whose young bit hardware has
//! never set was never in a TLB. The other half, that an entry is in *one* CPU's TLB only, needs page tables for each
//! CPU and is not modelled. `latr` is modelled for unmapping by reclaim; munmap waits for its flush as with the other
//! policies.

use super::{Context, Initiator, Tlb, announce, in_step};
use crate::cleared::Cleared;
use crate::debt::{Debt, Generation};
use crate::emptied::{Emptied, Refs};
use crate::host::{Counter, Host, Notice, Shape, Step, Tunable};
use crate::range::Range;
use base::cpus::CpuSet;
use base::linear;
use base::primitive::Ordering::*;
use base::units::*;
use smallvec::SmallVec;
use std_alloc::vec::Vec;

/// Pages to flush one by one.
#[derive(Clone, Copy)]
struct Listed {
    /// The space's unique id: its number may have been reused since.
    context: u64,
    page: Vpn,
    /// Number of entries, and their size.
    entries: u32,
    order: Order,
    /// The space's generation after their entries were cleared.
    generation: u64,
}

/// Cleared entries of one space: the part of them that matters for the debt.
struct ClearedEntries<'a> {
    space: SpaceId,
    /// The file whose pages they mapped.
    file: Option<FileId>,
    pages: u32,
    /// The folios that they mapped.
    heads: &'a [Pfn],
    /// The first frame that they mapped; of several folios that of the first.
    first: Pfn,
    /// Whether a CPU could store through one of them, and whether one has.
    writable: bool,
    dirty: bool,
    /// Whether the folios allow the flush to be deferred.
    defers: bool,
}

/// Debts of one reclaim or migration batch.
///
/// Rules for callers under every policy: settle the batch before writing the content of a folio with a dirty entry to
/// its store, and before copying it. A batch that is dropped with a debt panics. References that are dropped before the
/// batch is settled leave a mark in the frame's tag, if one may be the last ([`Refs::release`]); settling first is
/// cheaper.
///
/// ```
/// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
/// # use kernel::*; use pagefold_flush::*;
/// let (kernel, ledger) = Kernel::that_was_read(Shape::Collect { listed: false });
/// let mut batch = UnmapBatch::new(&kernel);
/// let refs: Vec<Refs> = [P, Q].map(|page| batch.take(&kernel, &ledger, kernel.clear(A, page))).into();
/// // One request for both pages. If one was dirty, now is the time to write it to its store.
/// batch.settle(&kernel, &ledger);
/// refs.into_iter().for_each(|refs| kernel.free(&ledger, refs));
/// ```
#[must_use = "debts must be settled"]
pub struct UnmapBatch {
    /// When the policy flushes.
    shape: Shape,
    /// Flushes of larger folios are never deferred.
    lazy_max_order: Order,
    /// The debt to pay when the batch is settled.
    debt: Debt,
    owes: bool,
    /// Whether a part of it is for entries through which a CPU may still store: dirty ones, and those of spaces in
    /// which a call takes rights away.
    stores: bool,
    /// All entries that `debt` is for; kept only if pages are flushed one by one.
    list: Vec<Listed>,
    listed: u64,
    /// What observers know it by, while they know of it: the generation of its first debt for writable entries.
    told: u64,
    /// The newest generation that it has paid for.
    paid: Generation,
}

linear!(UnmapBatch, this => this.owes, "a batch must be settled before it is dropped");

impl UnmapBatch {
    /// No debts.
    pub fn new<H: Host>(host: &H) -> UnmapBatch {
        let shape = host.shape();
        let lazy_max_order = Order(host.tunable(Tunable::MaxDeferredOrder) as u8);
        let (debt, list) = (Debt::default(), Vec::new());
        let (owes, stores, listed, told, paid) = (false, false, 0, 0, Generation::NONE);
        UnmapBatch { shape, lazy_max_order, debt, owes, stores, list, listed, told, paid }
    }

    /// Take entries that were emptied, under the lock of their tree, which is still held. If CPUs may still use them,
    /// mark their table with the debt that is left.
    #[inline]
    pub fn take<H: Host>(&mut self, host: &H, tlb: &Tlb, emptied: Emptied) -> Refs {
        if let Some(generation) = self.note(host, tlb, emptied.what()) {
            host.set_tag(emptied.table(), generation.tag());
        }
        emptied.into_refs(self.owes)
    }

    /// Note a run that was cleared. If CPUs may still use it, returns the generation of the debt that was left.
    fn note<H: Host>(&mut self, host: &H, tlb: &Tlb, cleared: &Cleared) -> Option<Generation> {
        if !must_flush(tlb, cleared) {
            return None;
        }
        stale(host, cleared, false);
        match self.shape {
            Shape::Now { spares_unused: true } if cleared.never_used => {
                host.count(host.cpu(), Counter::Spared, cleared.pages);
                return None;
            }
            Shape::Now { .. } => {
                let range = Range::entries(cleared.page, cleared.pages as u64, cleared.order);
                tlb.flush(host, cleared.space, range);
                return None;
            }
            Shape::Collect { .. } | Shape::Defer { .. } => {}
        }
        let folio = host.folio(cleared.head);
        let left = ClearedEntries {
            space: cleared.space,
            file: folio.file,
            pages: cleared.pages,
            heads: &[cleared.head],
            first: cleared.pfn,
            writable: cleared.writable,
            dirty: cleared.dirty,
            defers: !cleared.dropped && folio.order <= self.lazy_max_order,
        };
        let (generation, debt) = self.leave(host, tlb, &left)?;
        if self.is_listed() {
            let (page, order) = (cleared.page, cleared.order);
            let context = tlb.contexts[cleared.space.0].id.load(Acquire);
            self.list(
                host,
                tlb,
                Listed { context, page, entries: cleared.pages >> order.0, order, generation },
            );
        }
        Some(debt)
    }

    /// Leave the debt for cleared entries of one space: with the frames if policy and folios allow that, otherwise
    /// with the batch. Returns the generations of the space and of the debt; `None` if no CPU has the space loaded.
    #[inline]
    fn leave<H: Host>(
        &mut self,
        host: &H,
        tlb: &Tlb,
        left: &ClearedEntries<'_>,
    ) -> Option<(u64, Generation)> {
        let context = &tlb.contexts[left.space.0];
        let changing = context.may_be_stored_to();
        let may_defer = left.defers && !left.writable && !changing && !context.never_deferred.load(Relaxed);
        let (generation, debt) = owe(host, tlb, left.space, left.file)?;
        if may_defer && self.defers() {
            self.defer(host, tlb, left.heads, &debt);
            host.count(host.cpu(), Counter::Deferred, left.pages);
        } else {
            self.debt.join(&debt, |cpu| tlb.done(cpu));
            self.owes = true;
            // A store through another entry needs a walk, which finds it cleared. As in Linux
            // (`set_tlb_ubc_flush_pending`), a dirty one counts although a call may have made it read-only since.
            let stores = left.dirty || changing;
            self.stores |= stores;
            if stores && host.listens() {
                self.tell_owed(host, left, debt.generation);
            }
        }
        Some((generation, debt.generation))
    }

    /// Report to observers for which pages the batch will flush. Not inlined: on hardware nothing listens.
    #[inline(never)]
    fn tell_owed<H: Host>(&mut self, host: &H, left: &ClearedEntries<'_>, generation: Generation) {
        if self.told == 0 {
            self.told = generation.0;
        }
        let owed = |first: Pfn, pages: u32| {
            host.tell(Notice::Owed { batch: self.told, space: left.space, first, pages });
        };
        match left.heads {
            [_] => owed(left.first, left.pages),
            pages => pages.iter().for_each(|&page| owed(page, 1)),
        }
    }

    /// Report to observers that the batch has flushed.
    #[inline(never)]
    fn tell_paid<H: Host>(&mut self, host: &H) {
        let told = core::mem::take(&mut self.told);
        if told != 0 {
            host.tell(Notice::BatchPaid(told));
        }
    }

    /// [`UnmapBatch::take`] of an entry that is in no table.
    #[cfg(feature = "inside")]
    #[doc(hidden)]
    pub fn note_cleared<H: Host>(&mut self, host: &H, tlb: &Tlb, cleared: &Cleared) -> Option<Generation> {
        self.note(host, tlb, cleared)
    }

    /// [`UnmapBatch::take_pages`] of entries that are in no table.
    #[cfg(feature = "inside")]
    #[doc(hidden)]
    pub fn note_cleared_pages<H: Host>(
        &mut self,
        host: &H,
        tlb: &Tlb,
        emptied: &mut EmptiedPages,
    ) -> Option<Generation> {
        self.note_pages(host, tlb, emptied)
    }

    /// What decides its next steps, for models: as `Inside::state`.
    #[cfg(feature = "inside")]
    #[doc(hidden)]
    pub fn state(&self, tlb: &Tlb) -> Vec<u64> {
        let back = |generation: Generation| tlb.newest().0 - generation.0;
        let cpus = self.debt.cpus.iter().fold(0, |bits, cpu| bits | 1 << cpu.0);
        let mut state =
            std_alloc::vec![self.owes.into(), self.stores.into(), cpus, back(self.debt.generation)];
        for listed in &self.list {
            let context = tlb.contexts.iter().find(|context| context.id.load(Acquire) == listed.context);
            let newest = context.map_or(u64::MAX, |context| context.generation.load(SeqCst));
            state.extend([listed.context, listed.page.0, listed.entries.into(), newest - listed.generation]);
        }
        state
    }

    /// Whether pages can be taken together (`take_pages`). Not if each page is flushed or skipped by itself, or
    /// counts towards a full list.
    #[inline]
    pub fn joins(&self) -> bool {
        matches!(self.shape, Shape::Collect { listed: false } | Shape::Defer { .. })
    }

    /// As [`UnmapBatch::take`], for several pages. The policy must allow that ([`UnmapBatch::joins`]). Afterwards
    /// their references can be dropped.
    pub fn take_pages<H: Host>(&mut self, host: &H, tlb: &Tlb, emptied: &mut EmptiedPages) {
        if let Some(generation) = self.note_pages(host, tlb, emptied) {
            host.set_tag(emptied.table, generation.tag());
        }
    }

    /// [`UnmapBatch::take_pages`] without the mark of the table.
    pub(crate) fn note_pages<H: Host>(
        &mut self,
        host: &H,
        tlb: &Tlb,
        emptied: &mut EmptiedPages,
    ) -> Option<Generation> {
        assert!(self.joins(), "the policy must allow that pages are taken together");
        emptied.noted = true;
        let left = ClearedEntries {
            space: emptied.space,
            file: Some(emptied.file),
            pages: emptied.pages.len() as u32,
            heads: &emptied.pages,
            first: emptied.pages.first().copied().unwrap_or(Pfn::NONE),
            writable: emptied.writable,
            dirty: emptied.dirty,
            defers: true,
        };
        self.leave(host, tlb, &left).map(|(_, debt)| debt)
    }

    /// Defer the flush until one of the frames is reused.
    fn defer<H: Host>(&mut self, host: &H, tlb: &Tlb, heads: &[Pfn], debt: &Debt) {
        let zone = |head: Pfn| host.zone(head);
        for heads in heads.chunk_by(|&a, &b| zone(a) == zone(b)) {
            let generation = tlb.owe_frame(host, zone(heads[0]), debt);
            heads.iter().for_each(|&head| host.set_tag(head, generation.tag()));
        }
    }

    /// Note an entry that is flushed by itself; flush the list when it is long enough.
    fn list<H: Host>(&mut self, host: &H, tlb: &Tlb, listed: Listed) {
        self.list.push(listed);
        self.listed += listed.entries as u64;
        if self.listed >= host.tunable(Tunable::ListedPages) {
            self.settle(host, tlb);
        }
    }

    /// Whether the policy defers flushes as long as possible. A caller that writes folios then waits until one
    /// payment serves several.
    pub fn defers(&self) -> bool {
        matches!(self.shape, Shape::Defer { .. })
    }

    /// Whether pages are flushed one by one.
    fn is_listed(&self) -> bool {
        self.shape == Shape::Collect { listed: true }
    }

    /// Whether a CPU may still store to a page of the batch.
    pub fn owes_for_stores(&self) -> bool {
        self.stores
    }

    /// The generation up to which the batch must have paid before no CPU can store through an entry that it has taken
    /// so far; [`Generation::NONE`]: none can now.
    #[inline]
    pub fn owed_for_stores(&self) -> Generation {
        if self.stores { self.debt.generation } else { Generation::NONE }
    }

    /// The generation up to which the batch has paid for what it took.
    #[inline]
    pub fn paid_up_to(&self) -> Generation {
        self.paid
    }

    /// Pay the debt for entries through which a CPU may still store.
    pub fn settle_dirty<H: Host>(&mut self, host: &H, tlb: &Tlb) {
        if self.stores {
            self.settle(host, tlb);
        }
    }

    /// Pay all debts but those deferred until a frame's next use.
    pub fn settle<H: Host>(&mut self, host: &H, tlb: &Tlb) {
        if !self.owes {
            return;
        }
        let _scope = in_step(host, Step::Batch);
        let listed = self.is_listed() && self.listed <= host.tunable(Tunable::SinglePages);
        let pages = |listed: &Listed| (listed.entries as u64) << listed.order.0;
        let all = || if listed { self.list.iter().map(pages).sum() } else { u64::MAX };
        announce(host, self.debt.cpus, all);
        if listed {
            tlb.ask_by_list(host, &self.debt, &self.list);
        } else {
            tlb.ask(host, tlb.owing(&self.debt));
        }
        self.paid = self.paid.max(self.debt.generation);
        (self.debt, self.owes, self.stores) = (Debt::default(), false, false);
        self.list.clear();
        self.listed = 0;
        if host.listens() {
            self.tell_paid(host);
        }
    }
}

/// Emptied entries of single pages of one file, all in one table and with the same right to write: an
/// [`Emptied`](super::Emptied) for each. Dropping one with pages panics.
///
/// ```
/// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
/// # use kernel::*; use pagefold_flush::*;
/// # let (kernel, ledger) = Kernel::that_was_read(Shape::Collect { listed: false });
/// # let empty = |page| kernel.trees.lock().unwrap().entries.remove(&(kernel.table(A), page));
/// let (mut batch, mut pages) = (UnmapBatch::new(&kernel), EmptiedPages::new(FileId(0)));
/// for page in [P, Q] {
///     let entry = empty(page).expect("the page must be mapped");
///     pages.push((A, kernel.table(A)), entry.frame, [entry.writable; 2]);
/// }
/// batch.take_pages(&kernel, &ledger, &mut pages);
/// batch.settle(&kernel, &ledger);
/// pages.release(|frame| kernel.free_frame(&ledger, frame));
/// ```
pub struct EmptiedPages {
    file: FileId,
    space: SpaceId,
    table: Pfn,
    writable: bool,
    /// Whether one of them was dirty.
    dirty: bool,
    pages: SmallVec<[Pfn; u32::BITS as usize]>,
    /// A batch has taken them, and their references are still to be dropped.
    noted: bool,
}

linear!(
    EmptiedPages,
    this => !this.pages.is_empty(),
    "emptied entries must be given to a batch, and their references dropped"
);

impl EmptiedPages {
    /// No pages of this file yet.
    pub fn new(file: FileId) -> EmptiedPages {
        let (space, table, pages) = (SpaceId(0), Pfn::NONE, SmallVec::new());
        EmptiedPages { file, space, table, writable: false, dirty: false, pages, noted: false }
    }

    /// Whether it is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Number of pages.
    #[inline]
    pub fn len(&self) -> usize {
        self.pages.len()
    }

    /// Whether an entry can be added: writable pages are flushed earlier than others.
    #[inline]
    pub fn accept(&self, writable: bool) -> bool {
        self.pages.is_empty() || self.writable == writable
    }

    /// Add a page whose entry has just been emptied.
    #[inline]
    pub fn push(&mut self, (space, table): (SpaceId, Pfn), page: Pfn, [writable, dirty]: [bool; 2]) {
        base::demand!(!self.noted, [page]; "{page} must be added before a batch takes the pages");
        debug_assert!(
            self.pages.is_empty() || (self.space, self.table) == (space, table),
            "{page} must be mapped by the table of the pages before it"
        );
        (self.space, self.table) = (space, table);
        // All pages that are flushed together are flushed as early as a writable one among them requires.
        self.writable |= writable;
        self.dirty |= dirty;
        self.pages.push(page);
    }

    /// After a batch has taken them, hand their references to `put`, one of each page.
    #[inline]
    pub fn release(&mut self, put: impl FnMut(Pfn)) {
        assert!(
            core::mem::take(&mut self.noted),
            "a batch must take the entries before their references are dropped"
        );
        (self.writable, self.dirty) = (false, false);
        self.pages.drain(..).for_each(put);
    }
}

impl Context {
    /// Whether CPUs may store through entries that forbid it, because a right to write was taken and the flush has
    /// not happened yet. Such an entry counts as writable: it is flushed at the end of the batch and before its page
    /// is written.
    #[inline]
    fn may_be_stored_to(&self) -> bool {
        self.tightening.load(Acquire) > 0
    }
}

/// Whether a CPU may still use the entries. An entry that user mode cannot use, as one that NUMA balancing has marked,
/// is present, and a CPU may have cached it so; but user mode faults on that translation, and the fault drops it. As
/// long as the change that took the right is not flushed, a CPU may have it from before.
#[inline]
fn must_flush(tlb: &Tlb, cleared: &Cleared) -> bool {
    cleared.usable || tlb.is_tightening(cleared.space)
}

/// Entries of a space were cleared under the lock of its tables: raise its generation, and leave a debt with the
/// space and with the file whose pages they mapped. Returns both generations; `None` if no CPU has the space loaded.
#[inline]
fn owe<H: Host>(host: &H, tlb: &Tlb, space: SpaceId, file: Option<FileId>) -> Option<(u64, Debt)> {
    let context = &tlb.contexts[space.0];
    let generation = context.generation.fetch_add(1, SeqCst) + 1;
    // Draw last: a CPU that catches up earlier sees the new generation of the space.
    let debt = Debt { cpus: context.cpus(), generation: tlb.draw() };
    if debt.cpus.is_empty() {
        return None;
    }
    tlb.owe(host, context, file, &debt);
    Some((generation, debt))
}

impl Tlb {
    /// As [`Tlb::ask`], but a CPU that owes for nothing but the listed pages drops only these.
    fn ask_by_list<H: Host>(&self, host: &H, debt: &Debt, list: &[Listed]) {
        let mut owing: CpuSet = self.owing(debt);
        let me = host.cpu();
        let here = owing.contains(me);
        owing.remove(me);
        let mut local = || {
            if here {
                self.catch_up_listed(host, me, list, Initiator::ThisCpu);
            }
        };
        if owing.is_empty() {
            return local();
        }
        if host.broadcasts() {
            self.ask(host, self.owing(debt));
            return;
        }
        let remote = |cpu| {
            host.count(cpu, Counter::Received, 1);
            self.catch_up_listed(host, cpu, list, Initiator::AnotherCpu);
        };
        host.send(&owing, &remote, &mut local);
    }

    fn catch_up_listed<H: Host>(&self, host: &H, cpu: CpuId, list: &[Listed], initiator: Initiator) {
        let state = &self.cpus[cpu.index()];
        let (Some(space), false) = (state.space(), state.is_lazy()) else {
            return self.catch_up_fully(host, cpu, initiator);
        };
        let drawn = self.newest();
        let context = &self.contexts[space.0];
        let (id, newest) = (context.id.load(Acquire), context.generation.load(SeqCst));
        // An interrupt may have come since the line above and caught up further.
        let caught_up = state.generation();
        if caught_up >= newest {
            return state.set_done(drawn, host.now());
        }
        let missed = |listed: &&Listed| listed.context == id && listed.generation > caught_up;
        // Each generation that this CPU has missed must belong to a listed run.
        if list.iter().filter(missed).count() as u64 != newest - caught_up {
            return self.catch_up_fully(host, cpu, initiator);
        }
        for listed in list.iter().filter(missed) {
            self.drop_pages(host, listed.page, listed.entries, listed.order);
            initiator.count(host, cpu, Counter::LocalEntries, listed.entries);
        }
        state.set_generation(newest);
        state.set_done(drawn, host.now());
    }
}

/// Report to observers that CPUs may hold translations that are no longer in the table. `at_once`: the caller flushes.
#[inline]
pub(crate) fn stale<H: Host>(host: &H, cleared: &Cleared, at_once: bool) {
    if host.listens() {
        host.tell(Notice::Stale { cleared, at_once });
    }
}
