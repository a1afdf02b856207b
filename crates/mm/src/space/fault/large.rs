//! Mapping 2 MiB of a file with one entry (`thp.file_pmd`), and stores that such an entry forbids.
//!
//! A folio that fills an aligned 2 MiB range of the space is mapped whole: by the fault that finds it cached, that has
//! it read, or that makes it dirty. Where a table stands already, pages are mapped one by one: it is not looked through
//! whether it is empty. Pages behind the file's end must not be reached, so the size is looked at under the lock of the
//! tree: who cuts sets the size first and takes mappings away then.

use super::{Fault, FaultStop, Served};
use crate::api::AccessKind;
use crate::frame::{FrameFlags, Owner};
use crate::knobs::Knob;
use crate::machine::{Machine, Work};
use crate::memory::Gfp;
use crate::mm_core::MmCore;
use crate::primitive::Ordering::*;
use crate::space::split::split_entry;
use crate::space::{Space, Stop, VmaView};
use crate::stat::Stat;
use crate::table::{Entry, Resident, Writes};
use crate::units::*;

const PAGES: u64 = TABLE_ENTRIES as u64;

/// Where a large entry would stand: the first page of the space, and what of the file it shows.
#[derive(Clone, Copy)]
pub(super) struct PmdMapping {
    start: Vpn,
    first: PageIndex,
}

/// Map 2 MiB of a file that are cached in one folio from `start` on, for a range that suits. The mapping semaphore is
/// held.
pub(in crate::space) fn map_whole<M: Machine>(
    core: &MmCore<M>,
    (id, space): (SpaceId, &Space),
    vma: &VmaView,
    start: Vpn,
    (file, first): (FileId, PageIndex),
    gfp: Gfp,
) -> Result<bool, Stop> {
    let tree = core.tables.tree(id);
    let fault = Fault { core, id, space, tree, vma, page: start, access: AccessKind::Load, gfp };
    match fault.map_cached_large(file, PmdMapping { start, first }) {
        Ok(mapped) => Ok(mapped),
        Err(FaultStop::Shortage(shortage)) => Err(Stop::Shortage(shortage)),
        Err(FaultStop::Error(_)) => Ok(false),
    }
}

impl<M: Machine> Fault<'_, M> {
    /// The 2 MiB around the fault, which shows page `index` of a file, if one entry may map them.
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

    /// Map the folio that is cached for a place, if there is one.
    pub(super) fn map_cached_large(&self, file: FileId, place: PmdMapping) -> Result<bool, FaultStop> {
        let Some(folio) = self.core.cache.resident_large(&self.core, file, place.first) else {
            return Ok(false);
        };
        let mapped = self.map_large(file, place, folio, false);
        self.core.unlock_folio(folio);
        if mapped != Ok(true) {
            self.core.put(folio);
        }
        mapped
    }

    /// Map a locked folio of the file at a place, if it fills it and nothing stands there: the caller's reference then
    /// is the entry's. `dirty`: the folio has been marked, and may be written.
    pub(super) fn map_large(
        &self,
        file: FileId,
        place: PmdMapping,
        folio: Pfn,
        dirty: bool,
    ) -> Result<bool, FaultStop> {
        let (base, frame) = (&self.core, &self.core.frames[folio]);
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
        self.core.rmap.add_large(base, folio);
        tables.counts().add(Resident::of(&self.core.frames[folio]), PAGES as i64);
        self.core.charge(Work::EntrySet, 1);
        self.count(Stat::ThpFileMapped);
        if dirty || self.may_write_untracked(folio) {
            let settled = self.core.tlb.settle_file(base, file);
            let mut tables = tables.settle_at(slot, place.start);
            tables.install_large(slot, place.start, folio, self.rights(true), Writes::Shared(settled));
        } else {
            tables.install_large_unchanged(slot, place.start, folio, self.rights(false));
        }
        Ok(true)
    }

    /// A store to a private range where a large entry forbids it.
    #[cold]
    pub(super) fn write_fault_large(&self, entry: Entry) -> Result<Served, FaultStop> {
        let head = entry.pfn();
        match self.vma.file_index(self.page) {
            // The rest of the file's folio is faulted in again, page by page: there is a table from now on.
            Some((file, index)) => {
                self.drop_entry(entry);
                self.private_store(file, index)
            }
            None if self.core.frames[head].has(FrameFlags::EXCLUSIVE) => self.reuse(entry),
            // Then the access meets the entry of its page.
            None => {
                split_entry(self.core, self.id, self.page);
                Ok(Served::MINOR)
            }
        }
    }
}
