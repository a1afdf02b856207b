//! Mapping 2 MiB of a file with one entry (`thp.file_pmd`), and stores that such an entry forbids.
//!
//! A fault that finds a folio in the cache, reads it or makes it dirty maps it whole if the folio fills an aligned 2
//! MiB range of the space. Where a table exists already, pages are mapped one by one; the table is not searched to see
//! whether it is empty. Pages beyond the end of the file must not be mapped, so the size is checked under the
//! page-table lock: truncate sets the size first and takes mappings away afterwards.

use super::{Fault, FaultStop, PmdRange, Served};
use crate::api::AccessKind;
use crate::frame::{FrameFlags, Owner};
use crate::knobs::Knob;
use crate::machine::{Machine, Work};
use crate::mm_core::MmCore;
use crate::primitive::Ordering::*;
use crate::space::Stop;
use crate::space::split::split_entry;
use crate::stat::Stat;
use crate::table::{Entry, Resident, Writes};
use crate::units::*;

const PAGES: u64 = TABLE_ENTRIES as u64;

/// Place of a large entry: its first page in the space and in the file.
#[derive(Clone, Copy)]
pub(super) struct PmdMapping {
    start: Vpn,
    first: PageIndex,
}

/// Map 2 MiB that show a file from `first` on, if one folio holds all of them. The caller holds the mapping semaphore.
pub(in crate::space) fn map_whole<M: Machine>(
    core: &MmCore<M>,
    place: &PmdRange<'_>,
    (file, first): (FileId, PageIndex),
) -> Result<bool, Stop> {
    let fault = place.fault(core, place.start, AccessKind::Load);
    match fault.map_cached_large(file, PmdMapping { start: place.start, first }, true) {
        Ok(mapped) => Ok(mapped),
        Err(FaultStop::Shortage(shortage)) => Err(Stop::Shortage(shortage)),
        Err(FaultStop::Error(_)) => Ok(false),
    }
}

impl<M: Machine> Fault<'_, M> {
    /// The place of a large entry around the fault, whose page has this index in the file, if one entry may map it.
    #[inline]
    pub(super) fn large_place(&self, index: PageIndex) -> Option<PmdMapping> {
        if self.core.knobs.get(Knob::ThpFilePmd) == 0 {
            return None;
        }
        let inside = self.page.0 % PAGES;
        let place =
            PmdMapping { start: Vpn(self.page.0 - inside), first: PageIndex(index.0.checked_sub(inside)?) };
        let in_range = self.vma.start <= place.start && place.start.0 + PAGES <= self.vma.end().0;
        (in_range && place.first.0.is_multiple_of(PAGES)).then_some(place)
    }

    /// Map the folio that is cached for a place, if there is one. `marked`: also if it has the flag READAHEAD.
    pub(super) fn map_cached_large(
        &self,
        file: FileId,
        place: PmdMapping,
        marked: bool,
    ) -> Result<bool, FaultStop> {
        let Some(folio) = self.core.cache.resident_large(self.core, file, place.first, marked) else {
            return Ok(false);
        };
        let mapped = self.map_large(file, place, folio, false);
        self.core.unlock_folio(folio);
        if mapped != Ok(true) {
            self.core.put(folio);
        }
        mapped
    }

    /// Map a locked folio of the file at a place, if it fills the place and there is no table. Returns whether the
    /// entry took the caller's reference. `dirty`: the folio has been marked dirty, and may be written.
    pub(super) fn map_large(
        &self,
        file: FileId,
        place: PmdMapping,
        folio: Pfn,
        dirty: bool,
    ) -> Result<bool, FaultStop> {
        let frame = &self.core.frames[folio];
        if frame.order() != PAGEBLOCK_ORDER {
            return Ok(false);
        }
        let mut tables = self.lock();
        let Some(slot) = tables.reserve_large(&self.core.alloc, place.start, self.gfp.means())? else {
            return Ok(false);
        };
        let whole = place.first.0 + PAGES <= self.core.cache.file(file).pages();
        if !whole || frame.page_index() != place.first {
            return Ok(false);
        }
        debug_assert!(frame.has(FrameFlags::LOCKED) && frame.owner() == Owner::File(file));
        self.space.large.store(true, Relaxed);
        self.core.rmap.add_large(self.core, folio);
        tables.counts().add(Resident::of(&self.core.frames[folio]), PAGES as i64);
        self.core.charge(Work::EntrySet, 1);
        self.count(Stat::ThpFileMapped);
        if dirty || self.may_write_untracked(folio) {
            let settled = self.core.settle_page(folio);
            let mut tables = tables.settle_at(slot, place.start);
            tables.install_large(slot, place.start, folio, self.rights(true), Writes::Shared(settled));
        } else {
            let shown = self.vma.shown(place.start);
            tables.install_large_unchanged((slot, place.start), folio, shown, self.rights(false));
        }
        Ok(true)
    }

    /// A store to a private range where a large entry forbids it.
    #[cold]
    pub(super) fn write_fault_large(&self, entry: Entry) -> Result<Served, FaultStop> {
        let head = entry.pfn();
        match self.vma.file_index(self.page) {
            // From now on there is a table: the other pages of the folio are faulted in again, one by one.
            Some((file, index)) => {
                self.drop_entry(entry);
                self.private_store(file, index)
            }
            None if self.core.frames[head].has(FrameFlags::EXCLUSIVE) => self.reuse(entry),
            // The access is tried again and meets the entry of its page.
            None => {
                split_entry(self.core, self.id, self.page);
                Ok(Served::MINOR)
            }
        }
    }
}
