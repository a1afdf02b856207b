//! Faults on pages of files.

use super::{Fault, FaultStop, Served};
use crate::api::Prot;
use crate::cache::{Page, ReadHint};
use crate::frame::{FolioPages, FrameFlags};
use crate::knobs::{FaultForm, Knob};
use crate::machine::{Machine, Scope, Work};
use crate::rmap::Tally;
use crate::space::VmaFlags;
use crate::table::{Entry, LockedTables, Resident, Rights, Settled, Slot, Source, Writes};
use crate::units::*;

/// Most pages that one fault maps around found_page.
const AROUND_MAX: usize = 64;

/// The lock of a table, settled or not.
enum TablesLock<'a, M> {
    Plain(LockedTables<'a, M>),
    Settled(Settled<'a, M>),
}

impl<'a, M> core::ops::Deref for TablesLock<'a, M> {
    type Target = LockedTables<'a, M>;

    fn deref(&self) -> &LockedTables<'a, M> {
        match self {
            TablesLock::Plain(tables) => tables,
            TablesLock::Settled(tables) => tables,
        }
    }
}

impl<M> core::ops::DerefMut for TablesLock<'_, M> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            TablesLock::Plain(tables) => tables,
            TablesLock::Settled(tables) => tables,
        }
    }
}

/// Cached pages of one folio that a window of addresses shows.
#[derive(Clone, Copy)]
struct Cached {
    page: Vpn,
    pages: FolioPages,
    /// References that were taken for entries, and that no entry holds yet.
    unused: u32,
}

impl Cached {
    fn holds(&self, page: Vpn) -> bool {
        page >= self.page && page.0 < self.page.0 + self.pages.count as u64
    }
}

/// The cached pages of a window, in order of addresses.
struct Around {
    count: usize,
    found: [Cached; AROUND_MAX],
}

impl Default for Around {
    fn default() -> Self {
        let pages = FolioPages { head: Pfn::NONE, first: Pfn::NONE, count: 0 };
        Around { count: 0, found: [Cached { page: Vpn(0), pages, unused: 0 }; AROUND_MAX] }
    }
}

impl Around {
    /// Add pages, with one reference to their folio for each. They extend the last run if they continue it.
    fn push(&mut self, page: Vpn, pages: FolioPages) {
        if let Some(last) = self.found[..self.count].last_mut()
            && last.page.0 + last.pages.count as u64 == page.0
            && last.pages.are_continued_by(pages)
        {
            last.pages.count += pages.count;
            last.unused += pages.count;
            return;
        }
        self.found[self.count] = Cached { page, pages, unused: pages.count };
        self.count += 1;
    }

    fn runs(&self) -> impl Iterator<Item = &Cached> {
        self.found[..self.count].iter()
    }
}

/// Whether the fault has read the page, or waited for it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    First,
    Again,
}

impl<M: Machine> Fault<'_, M> {
    /// A load or fetch: map what is cached around it, or else read it.
    #[inline(never)]
    pub(super) fn file_load(&self, file: FileId, index: PageIndex) -> Result<Served, FaultStop> {
        let _scope = self.core.scope(Scope::DoReadFault);
        if let Some(place) = self.large_place(index)
            && self.map_cached_large(file, place, false)?
        {
            return Ok(Served::MINOR);
        }
        if self.map_around(file, index, Attempt::First)? {
            return Ok(Served::MINOR);
        }
        let page = self.get_page(file, index)?;
        // After a read or a wait the fault starts over, so that pages that were read with this one are mapped, too.
        if page.waited || page.major {
            let around = self.map_around(file, index, Attempt::Again);
            if around != Ok(false) {
                self.core.put(page.folio);
                return around.map(|_| Served::from_major(page.major));
            }
        }
        self.core.lock_folio(page.folio);
        let mapped = self.map_locked(file, index, page);
        self.core.unlock_folio(page.folio);
        if mapped != Ok(true) {
            self.core.put(page.folio);
        }
        mapped.map(|_| Served::from_major(page.major))
    }

    /// Map the page from `get_page` for a load; its folio is locked. Returns whether an entry took the caller's
    /// reference.
    fn map_locked(&self, file: FileId, index: PageIndex, page: Page) -> Result<bool, FaultStop> {
        if !self.core.cache.is_page(self.core, page.folio, file, index) {
            // It was truncated, or entered swap, before it was locked.
            return Ok(false);
        }
        if let Some(place) = self.large_place(index)
            && self.map_large(file, place, page.folio, false)?
        {
            return Ok(true);
        }
        let Some((mut tables, slot)) = self.lock_if(Entry::NONE)? else { return Ok(false) };
        let (slot, first, pages) = self.whole_or_page(&tables, slot, file, page);
        if self.may_write_untracked(page.folio) {
            let settled = self.core.settle_page(page.folio);
            let mut tables = tables.settle_at(slot, first);
            self.install_at(&mut tables, slot, first, pages, Writes::Shared(settled));
        } else {
            let shown = self.vma.shown(first);
            self.install_unchanged(&mut tables, (slot, first), pages, shown, self.rights(false));
        }
        Ok(true)
    }

    /// What a fault on a page maps, with the place of its first entry: the whole folio where all of its entries are
    /// empty, with one more reference for each entry but the fault's; else the page.
    fn whole_or_page(
        &self,
        tables: &LockedTables<'_, M>,
        slot: Slot,
        file: FileId,
        page: Page,
    ) -> (Slot, Vpn, FolioPages) {
        let alone = FolioPages { head: page.folio, first: page.pfn, count: 1 };
        let whole = self.whole_file_folio(file, self.page, alone).and_then(|(first, whole)| {
            let slot = tables.find(first)?.slot;
            (tables.empty_from(slot, whole.count) == whole.count).then_some((slot, first, whole))
        });
        if let Some((.., whole)) = whole {
            self.core.frames[whole.head].get(whole.count - 1);
        }
        whole.unwrap_or((slot, self.page, alone))
    }

    #[inline]
    fn maps_whole_folios(&self) -> bool {
        matches!(self.core.knobs.fault_form(), FaultForm::V72 | FaultForm::V73)
    }

    /// The whole large folio of pages that are shown from `page` on, if it may be mapped where they are (since Linux
    /// 7.2): it ends in the file, unless this is shmem, and is in the range and in one table.
    fn whole_file_folio(&self, file: FileId, page: Vpn, pages: FolioPages) -> Option<(Vpn, FolioPages)> {
        let frame = &self.core.frames[pages.head];
        if frame.order() == Order::ZERO || !self.maps_whole_folios() {
            return None;
        }
        let end = frame.page_index().0 + u64::from(frame.pages());
        let in_file = frame.has(FrameFlags::SWAPBACKED) || end <= self.core.cache.file(file).pages();
        if in_file { self.whole_folio(page, pages) } else { None }
    }

    /// Whether a page may be mapped writable before its first store: shmem's dirty bits are read when its pages are
    /// unmapped.
    pub(super) fn may_write_untracked(&self, pfn: Pfn) -> bool {
        self.vma.is_shared()
            && self.vma.prot.contains(Prot::WRITE)
            && self.core.frames[pfn].has(FrameFlags::SWAPBACKED)
    }

    fn read_hint(&self, index: PageIndex) -> ReadHint {
        let is_text = self.vma.prot.contains(Prot::EXEC);
        ReadHint {
            fault: true,
            sequential: self.vma.flags.contains(VmaFlags::SEQUENTIAL),
            random: self.vma.flags.contains(VmaFlags::RANDOM),
            text_end: is_text.then(|| index.0 + (self.vma.end().0 - self.page.0)),
        }
    }

    fn get_page(&self, file: FileId, index: PageIndex) -> Result<Page, FaultStop> {
        let _scope = self.core.scope(Scope::FilemapFault);
        let hint = self.read_hint(index);
        let page = self.core.cache.get_page(self.core, file, index, hint, self.gfp)?;
        if (page.major || page.waited) && !self.core.frames[page.folio].has(FrameFlags::SWAPBACKED) {
            self.count_again();
        }
        Ok(page)
    }

    /// Map the cached pages in the aligned window around the fault. Returns whether the page found_page was among them.
    fn map_around(&self, file: FileId, index: PageIndex, attempt: Attempt) -> Result<bool, FaultStop> {
        let _scope = self.core.scope(Scope::FilemapMapPages);
        let window = (self.core.knobs.get(Knob::FaultAroundBytes) / PAGE_SIZE).clamp(1, AROUND_MAX as u64);
        if window == 1 {
            return Ok(false);
        }
        // In one table, which is the only one that is locked.
        let table = self.page.0 & !(TABLE_ENTRIES as u64 - 1);
        let start = (self.page.0 / window * window).max(self.vma.start.0).max(table);
        let end = self.page.0 / window * window + window;
        let end = end.min(self.vma.end().0).min(table + TABLE_ENTRIES as u64);
        let first = PageIndex(index.0 - (self.page.0 - start));
        let mut found = Around::default();
        let counts = self.read_hint(index).counts_misses(self.core.knobs.read_ahead_form());
        let faulted = (counts && attempt == Attempt::First).then_some(index);
        self.core.cache.resident(self.core, file, (first, end - start), faulted, |run| {
            let page = Vpn(start + (run.index.0 - first.0));
            found.push(page, FolioPages { head: run.folio, first: run.pfn, count: run.pages });
        });
        if found.count == 0 {
            return Ok(false);
        }
        if self.maps_whole_folios() {
            self.complete_folios(file, &mut found);
        }
        let found_page = found.runs().any(|run| run.holds(self.page));
        let reserved = self.lock().reserve_first(&self.core.alloc, self.page, self.gfp.means());
        let (tables, slot) = match reserved {
            Ok(reserved) => reserved,
            Err(needs) => {
                self.put_all(&found);
                return Err(needs.into());
            }
        };
        // Only pages that are mapped writable, as shmem's may be, need a payment: one for all of them.
        let writable = found.runs().any(|run| self.may_write_untracked(run.pages.head));
        let mut tables = match writable {
            true => TablesLock::Settled(tables.settle_at(slot, self.page)),
            false => TablesLock::Plain(tables),
        };
        let mut rest = &mut found.found[..found.count];
        while !rest.is_empty() {
            let done = match &mut tables {
                TablesLock::Plain(tables) => self.map_singles(tables, rest),
                TablesLock::Settled(_) => 0,
            };
            rest = &mut rest[done..];
            if let Some(run) = rest.split_off_first_mut() {
                run.unused -= self.map_empty(&mut tables, *run);
            }
        }
        drop(tables);
        self.put_all(&found);
        Ok(found_page)
    }

    /// Have the whole folios mapped of which a window shows a part, where that is possible.
    #[inline(never)]
    fn complete_folios(&self, file: FileId, found: &mut Around) {
        for run in &mut found.found[..found.count] {
            if let Some((page, pages)) = self.whole_file_folio(file, run.page, run.pages) {
                let more = pages.count - run.pages.count;
                self.core.frames[pages.head].get(more);
                *run = Cached { page, pages, unused: run.unused + more };
            }
        }
    }

    /// Map those of the first runs that are single pages and have empty entries in one table. Returns the number of
    /// runs that are done.
    fn map_singles(&self, tables: &mut LockedTables<'_, M>, runs: &mut [Cached]) -> usize {
        let [Some(first), Some(last)] = [runs.first(), runs.last()].map(|run| run.map(|run| run.page)) else {
            return 0;
        };
        // If unused entries are spared a flush, pages that were not asked for are not marked young.
        let old_around = crate::tlb::spares_unused(self.core);
        let Some(mut window) = tables.window(first, last.0 - first.0 + 1) else { return 0 };
        let shown = self.vma.shown(first);
        let mut tally = Tally::new(self.core);
        let (mut done, mut mapped) = (0, [0; 2]);
        for run in runs {
            let (pfn, place) = (run.pages.head, (run.page.0 - first.0) as usize);
            let frame = &self.core.frames[pfn];
            if frame.order() != Order::ZERO || place >= window.places() {
                break;
            }
            done += 1;
            if !window.read(place).is_none() {
                continue;
            }
            self.core.rmap.add_tallied(self.core, run.pages, &mut tally);
            let mut rights = self.vma.rights();
            rights.set(Rights::YOUNG, run.page == self.page || !old_around);
            window.install_unchanged(place, pfn, shown.ahead(place as u32), rights);
            run.unused -= 1;
            mapped[frame.has(FrameFlags::SWAPBACKED) as usize] += 1;
        }
        tally.settle(self.core);
        for (kind, pages) in [Resident::File, Resident::Shmem].into_iter().zip(mapped) {
            window.tables().counts().add(kind, pages);
        }
        self.core.charge(Work::EntrySet, mapped.iter().sum::<i64>() as u64);
        done
    }

    /// Map those pages of a run that have a table and an empty entry. Returns their number.
    fn map_empty(&self, tables: &mut TablesLock<'_, M>, run: Cached) -> u32 {
        // If unused entries are spared a flush, pages that were not asked for are not marked young.
        let old_around = crate::tlb::spares_unused(self.core);
        let longest = if self.core.knobs.get(Knob::RmapBatch) == 0 { 1 } else { run.pages.count };
        let (mut at, mut mapped) = (0, 0);
        while at < run.pages.count {
            let page = Vpn(run.page.0 + at as u64);
            let Some(first) = tables.find(page).filter(|first| !first.is_large()) else { break };
            let asked = page == self.page;
            let mut most = longest.min(run.pages.count - at).min(first.slot.room());
            if old_around {
                let apart = if asked { 1 } else { self.page.0.wrapping_sub(page.0) };
                most = most.min(apart.min(u32::MAX as u64) as u32);
            }
            let count = tables.empty_from(first.slot, most);
            if count > 0 {
                let pages = FolioPages { first: run.pages.first.add(at), count, ..run.pages };
                let mut rights = self.vma.rights();
                rights.set(Rights::YOUNG, asked || !old_around);
                match &mut *tables {
                    TablesLock::Settled(tables) if self.may_write_untracked(pages.head) => {
                        let settled = self.core.settle_page(pages.head);
                        let head = &self.core.frames[pages.head];
                        self.core.rmap.add_range(self.core, pages);
                        self.count_mapped(tables, head, pages.count);
                        tables.install(first.slot, page, pages, rights, Writes::Shared(settled));
                    }
                    tables => {
                        let shown = self.vma.shown(page);
                        self.install_unchanged(tables, (first.slot, page), pages, shown, rights);
                    }
                }
            }
            mapped += count;
            at += count.max(1);
        }
        mapped
    }

    /// Unlock the folios that were found, and drop the references of pages that were not mapped. The lock keeps a
    /// folio in its cache even if its entries are already gone.
    fn put_all(&self, found: &Around) {
        for run in found.runs() {
            self.core.unlock_folio(run.pages.head);
            if run.unused > 0 {
                self.core.put_many(run.pages.head, run.unused);
            }
        }
    }

    /// A store to a private range: copy the file's page. The page stays locked until the copy is mapped, because
    /// truncate takes away the copies of truncated pages, too, after it has had the lock.
    ///
    /// The page for the copy is allocated first. If the group has room for one page only and the fault took the file's
    /// page first, each try would reclaim that page to make room for the copy, and would count as progress: the fault
    /// would be tried for ever.
    #[inline(never)]
    pub(super) fn private_store(&self, file: FileId, index: PageIndex) -> Result<Served, FaultStop> {
        let _scope = self.core.scope(Scope::DoCowFault);
        let new = self.new_anon_page()?;
        let page = match self.get_page(file, index) {
            Ok(page) => page,
            Err(stop) => {
                self.core.put(new);
                return Err(stop);
            }
        };
        self.core.lock_folio(page.folio);
        let mut outcome = Ok(Served::MINOR);
        if self.core.cache.is_page(self.core, page.folio, file, index) {
            self.core.copy(new, Source::shared(&self.core.frames, page.pfn));
            outcome = self.map_new_anon(new, Entry::NONE);
        } else {
            self.core.put(new);
        }
        self.core.unlock_folio(page.folio);
        self.core.put(page.folio);
        outcome.map(|_| Served::from_major(page.major))
    }

    /// A store to a shared range: the file's folio must be marked dirty before it can be written.
    #[inline(never)]
    pub(super) fn shared_store(&self, file: FileId, index: PageIndex) -> Result<Served, FaultStop> {
        let _scope = self.core.scope(Scope::DoSharedFault);
        let page = self.get_page(file, index)?;
        let folio = page.folio;
        self.core.lock_folio(folio);
        let mut outcome = Ok(());
        let mut mapped = false;
        if self.core.cache.is_page(self.core, folio, file, index) {
            self.core.cache.mark_dirty(self.core, folio);
            let settled = self.core.settle_page(folio);
            let large = self.large_place(index).map(|place| self.map_large(file, place, folio, true));
            match large {
                Some(Ok(true)) => mapped = true,
                Some(Err(stop)) => outcome = Err(stop),
                _ => {
                    outcome = self.lock_if(Entry::NONE).map(|found| {
                        if let Some((tables, slot)) = found {
                            let (slot, first, pages) = self.whole_or_page(&tables, slot, file, page);
                            let mut tables = tables.settle_at(slot, first);
                            self.install_at(&mut tables, slot, first, pages, Writes::Shared(settled));
                            mapped = true;
                        }
                    });
                }
            }
        }
        self.core.unlock_folio(folio);
        if !mapped {
            self.core.put(folio);
        }
        outcome?;
        Ok(Served { dirtied: Some(file), ..Served::from_major(page.major) })
    }
}
