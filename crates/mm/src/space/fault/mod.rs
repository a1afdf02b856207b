//! Page faults: the access found no translation, or one that forbids it.

mod anon;
mod collapsed;
mod copy;
mod file;
mod hint;
mod large;
mod populate;
mod sized;
mod swap;
mod unshared;

pub(super) use collapsed::{PmdRange, map_copy, swap_in_all};
pub(super) use large::map_whole;

use super::Space;
use super::vma::{Vma, VmaFlags, VmaView};
use crate::api::{AccessKind, FaultDone, FaultError};
use crate::cache::CacheError;
use crate::frame::{FolioPages, Frame};
use crate::knobs::{FaultForm, Knob};
use crate::machine::{Machine, Scope, SharedLine, Stall, WaitKey, Work};
use crate::memory::{AllocCause, Gfp, Shortage};
use crate::mm_core::MmCore;
use crate::stat::{GroupStat, Stat};
use crate::table::{Bits, Entry, LockedTables, Resident, Rights, Settled, Shown, Slot, Tree, Writes};
use crate::units::*;

/// Why a fault was not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultStop {
    /// Out of memory: make room and try again.
    Shortage(Shortage),
    /// The access is an error of the program.
    Error(FaultError),
}

impl<T: Into<Shortage>> From<T> for FaultStop {
    fn from(shortage: T) -> FaultStop {
        FaultStop::Shortage(shortage.into())
    }
}

impl From<CacheError> for FaultStop {
    fn from(error: CacheError) -> FaultStop {
        match error {
            CacheError::Shortage(shortage) => FaultStop::Shortage(shortage),
            CacheError::BeyondEnd => FaultStop::Error(FaultError::Bus),
            CacheError::Io => FaultStop::Error(FaultError::Io),
        }
    }
}

/// Outcome of a fault that was served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Served {
    /// Whether it read a page from a device.
    pub done: FaultDone,
    /// The file of which it made a page dirty: the task may have to wait for write-back.
    pub dirtied: Option<FileId>,
}

impl Served {
    const MINOR: Served = Served { done: FaultDone::Minor, dirtied: None };

    fn from_major(major: bool) -> Served {
        Served { done: if major { FaultDone::Major } else { FaultDone::Minor }, dirtied: None }
    }
}

/// A fault that is being served.
struct Fault<'a, M> {
    core: &'a MmCore<M>,
    id: SpaceId,
    space: &'a Space,
    tree: &'a Tree,
    vma: &'a VmaView,
    page: Vpn,
    access: AccessKind,
    gfp: Gfp,
}

impl Space {
    /// Serve a fault of the space, whose id is `id`. On success the access is tried again; it may fault again if
    /// another task was faster.
    pub fn fault<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        page: Vpn,
        access: AccessKind,
        gfp: Gfp,
    ) -> Result<Served, FaultStop> {
        if self.is_killed() {
            return Err(FaultStop::Error(FaultError::Killed));
        }
        let _held = self.mapping.read_unseen(&core.machine, WaitKey::Space(id));
        core.charge(Work::VmaLookup, 1);
        // Borrowed, because to move it would copy it once more.
        let found = self.vmas.lock().find(page);
        let Some(vma) = &found else {
            return Err(FaultStop::Error(FaultError::Segv));
        };
        let cause = if vma.has_recency() { AllocCause::Fault } else { AllocCause::Other };
        let gfp = Gfp { cause, place: self.place(vma, page), ..gfp };
        let fault = Fault { core, id, space: self, tree: core.tables.tree(id), vma, page, access, gfp };
        if !fault.vma.prot.contains(access.needs()) {
            return Err(FaultStop::Error(FaultError::Segv));
        }
        // The range's lock is taken and, at the end, released: two writes to its line (vma_start_read, vma_end_read).
        core.machine.writes(SharedLine::Vma(vma.id));
        let served = fault.serve()?;
        core.machine.writes(SharedLine::Vma(vma.id));
        if fault.vma.flags.contains(VmaFlags::LOCKED) {
            fault.mlock_page();
        }
        Ok(served)
    }
}

impl<M: Machine> Fault<'_, M> {
    fn is_store(&self) -> bool {
        self.access == AccessKind::Store
    }

    fn serve(&self) -> Result<Served, FaultStop> {
        let entry = self.tree.look(self.core, self.page);
        if let Some((slot, exclusive)) = entry.as_swap() {
            let served = self.swap_fault(entry, slot, exclusive)?;
            return if self.is_store() { self.store_after_swap(served) } else { Ok(served) };
        }
        if entry.is_present() {
            if !entry.has(Bits::USER) && self.vma.rights().contains(Rights::USER) {
                return self.hint_fault();
            }
            return if self.is_store() && !entry.has(Bits::WRITE) {
                self.write_fault(entry)
            } else {
                self.spurious()
            };
        }
        if entry.as_migrating().is_some() {
            self.migration_entry_wait();
            return Ok(Served::MINOR);
        }
        match self.vma.file_index(self.page) {
            None => self.anon_fault(),
            Some((file, index)) if self.is_store() && self.vma.is_shared() => self.shared_store(file, index),
            Some((file, index)) if self.is_store() => self.private_store(file, index),
            Some((file, index)) => self.file_load(file, index),
        }
    }

    /// The fault has waited for a read. Linux then lets go of the space and begins again; 6.1 counts this as another
    /// fault.
    #[cold]
    fn count_again(&self) {
        if self.core.knobs.fault_form() == FaultForm::V61 {
            self.count(Stat::Pgfault);
            self.core.lru.groups.count(self.space.group(), GroupStat::Pgfault, 1);
        }
    }

    /// The page is being moved to another frame: sleep until the move has ended.
    #[cold]
    fn migration_entry_wait(&self) {
        let tables = self.lock();
        let found = tables.find(self.page).and_then(|leaf| leaf.entry.as_migrating());
        let Some(migrating) = found else { return };
        // While the entry is there, the folio is locked, and its unlock wakes all waiters.
        let head = self.core.frames.head(migrating.page());
        let ticket = self.core.unlock_ticket(head);
        drop(tables);
        let _scope = self.core.scope(Scope::MigrationEntryWait);
        let _stall = self.core.stall(Stall::Io);
        self.core.machine.wait(ticket, None);
    }

    /// Lock the table of one entry at a time.
    fn lock(&self) -> LockedTables<'_, M> {
        self.tree.lock_one(self.core, self.id)
    }

    /// The entry already allows the access: another CPU was faster, or the machine leaves young and dirty bits to
    /// software.
    fn spurious(&self) -> Result<Served, FaultStop> {
        let mut tables = self.lock();
        if let Some(leaf) = tables.find(self.page).filter(|leaf| leaf.entry.is_present()) {
            tables.mark_used(leaf.slot, self.is_store() && leaf.entry.has(Bits::WRITE));
            self.core.charge(Work::EntrySet, 1);
        }
        Ok(Served::MINOR)
    }

    /// Rights of a new entry for this access. `writable`: the page may be written without another fault.
    fn rights(&self, writable: bool) -> Rights {
        let mut rights = self.vma.rights() | Rights::YOUNG;
        rights.set(Rights::DIRTY, writable && self.is_store());
        rights
    }

    /// Lock the table of the page's entry, which is made if there is none; `None` if the entry is no longer as
    /// `expected`.
    #[inline]
    fn lock_if(&self, expected: Entry) -> Result<Option<(LockedTables<'_, M>, Slot)>, FaultStop> {
        let (tables, slot) = self.lock().reserve_first(&self.core.alloc, self.page, self.gfp.means())?;
        Ok(if same_page(tables.read(slot), expected) { Some((tables, slot)) } else { None })
    }

    /// Map pages of a folio, from `page` on, for this access. One reference of the caller for each passes to its entry.
    #[inline(always)]
    fn install_at(
        &self,
        tables: &mut Settled<'_, M>,
        slot: Slot,
        page: Vpn,
        pages: FolioPages,
        writes: Writes,
    ) {
        let head = &self.core.frames[pages.head];
        self.core.rmap.add_range(self.core, pages);
        self.count_mapped(tables, head, pages.count);
        let rights = self.rights(!matches!(writes, Writes::No));
        tables.install(slot, page, pages, rights, writes);
    }

    /// The whole folio of a page that is shown at `page`, and where its first page is, if it is large and all of it is
    /// in the range and in one table.
    fn whole_folio(&self, page: Vpn, shown: FolioPages) -> Option<(Vpn, FolioPages)> {
        let whole = FolioPages::all(&self.core.frames, shown.head);
        if whole.count == 1 {
            return None;
        }
        let first = Vpn(page.0.checked_sub(u64::from(shown.offset()))?);
        let last = Vpn(first.0 + u64::from(whole.count) - 1);
        let in_range = self.vma.start <= first && last < self.vma.end();
        let in_table = first.0 / TABLE_ENTRIES as u64 == last.0 / TABLE_ENTRIES as u64;
        (in_range && in_table).then_some((first, whole))
    }

    /// Split pages of a folio into the steps in which they are mapped: all at once, or one by one (knob `rmap.batch`).
    /// Each comes with the number of pages before it.
    fn steps(&self, pages: FolioPages) -> impl Iterator<Item = (u32, FolioPages)> {
        let step = if self.core.knobs.get(Knob::RmapBatch) == 0 { 1 } else { pages.count };
        (0..pages.count)
            .step_by(step as usize)
            .map(move |at| (at, FolioPages { first: pages.first.add(at), count: step, ..pages }))
    }

    /// Map pages of a folio for loads. They must show what their addresses have shown since content or meaning last
    /// changed.
    fn install_unchanged(
        &self,
        tables: &mut LockedTables<'_, M>,
        place: (Slot, Vpn),
        pages: FolioPages,
        shown: Shown,
        rights: Rights,
    ) {
        let head = &self.core.frames[pages.head];
        self.core.rmap.add_range(self.core, pages);
        self.count_mapped(tables, head, pages.count);
        tables.install_unchanged(place, pages, shown, rights);
    }

    #[inline]
    fn count_mapped(&self, tables: &mut LockedTables<'_, M>, head: &Frame, pages: u32) {
        tables.counts().add(Resident::of(head), i64::from(pages));
        self.core.charge(Work::EntrySet, pages as u64);
    }

    /// The set for new anonymous pages of this range.
    #[inline]
    fn anon_set(&self) -> AnonId {
        self.vma.anon.unwrap_or_else(|| self.new_anon_set())
    }

    /// Make the set, for the first such page.
    #[cold]
    fn new_anon_set(&self) -> AnonId {
        let mut vmas = self.space.vmas.lock();
        let start = vmas.find(self.page).expect("the mapping semaphore keeps the range").start;
        vmas.update(start, |vma| {
            if let Some(set) = vma.view.anon {
                return set;
            }
            let set = self.core.rmap.create_anon();
            vma.view.anon = Some(set);
            vma.sets.push(set);
            let view = VmaView { file: None, ..vma.view };
            let only_new = Vma { view, sets: smallvec::smallvec![set], swapped: vma.swapped };
            only_new.link(self.core, self.id, self.space.group());
            set
        })
    }

    fn mlock_page(&self) {
        // A task that splits the folio would hold the whole tree.
        let tables = self.lock();
        let found = tables.find(self.page).map(|leaf| leaf.entry).filter(|entry| entry.is_present());
        if let Some(entry) = found.filter(|entry| entry.pfn() != self.core.zero) {
            self.core.lru.mlock(self.core, self.core.frames.head(entry.pfn()));
        }
    }

    fn count(&self, stat: Stat) {
        self.core.count(stat, 1);
    }
}

/// Whether two entries are the same, except for bits that hardware may have set since.
fn same_page(a: Entry, b: Entry) -> bool {
    let soft = Bits::YOUNG | Bits::DIRTY;
    if a.is_present() && b.is_present() { a.without(soft) == b.without(soft) } else { a == b }
}
