//! Taking mappings away: munmap, and the clearing of entries that everything else that does so shares.

use super::vma::VmaView;
use super::{Spaces, Stop};
use crate::api::Error;
use crate::cache::drop_swap_entry;
use crate::frame::{FrameFlags, Owner};
use crate::machine::{Machine, WaitKey, Work};
use crate::store::Store;
use crate::table::{Absent, Bits, Leaf, Locked, Resident, USER_END};
use crate::tlb::{Gather, Purpose, stale};
use crate::units::*;
use std_alloc::vec::Vec;

impl Spaces {
    /// munmap.
    pub fn munmap<M: Machine>(&self, st: &Store<M>, id: SpaceId, start: Vpn, pages: u64) -> Result<(), Stop> {
        if pages == 0 || pages > USER_END.0 || start.0 > USER_END.0 - pages {
            return Err(Error::Invalid.into());
        }
        let _held = self.at(id).mapping.write(&st.machine, WaitKey::Space(id));
        self.unmap_range(st, id, start, Vpn(start.0 + pages));
        Ok(())
    }

    /// Unmap `[start, end)`. The mapping semaphore is held alone. When this returns, no CPU can reach the pages.
    pub(super) fn unmap_range<M: Machine>(&self, st: &Store<M>, id: SpaceId, start: Vpn, end: Vpn) {
        if start >= end {
            // Nothing to do, and nothing to cut in two either.
            return;
        }
        let space = self.at(id);
        let starts = {
            let vmas = space.vmas.lock();
            if vmas.overlapping(start, end).next().is_none() {
                return;
            }
            drop(vmas);
            self.split_at(st, id, start);
            self.split_at(st, id, end);
            space.vmas.lock().starts(start, end)
        };
        let gone: Vec<_> = st.gather(id, Purpose::Meaning, |gather| {
            for &at in &starts {
                let vma = space.vmas.lock().range_of(at).map(|vma| vma.view).expect("it was just seen");
                zap(st, id, &vma, vma.start, vma.end(), gather);
            }
            st.tables.lock(st.memory().ground(), id).take_empty_tables(start, end, gather);
            let mut vmas = space.vmas.lock();
            starts.iter().map(|&at| vmas.remove(at, gather).expect("it was just seen")).collect()
        });
        for vma in gone {
            vma.unlink(st);
            st.charge(Work::VmaChange, 1);
        }
    }
}

/// Clear all entries of `[start, end)`, which lies in `vma`. Pages wait in `gather` for its flush.
pub(super) fn zap<M: Machine>(
    st: &Store<M>,
    id: SpaceId,
    vma: &VmaView,
    start: Vpn,
    end: Vpn,
    gather: &mut Gather,
) {
    let recency = vma.has_recency();
    let mut tables = st.tables.lock(st.memory().ground(), id);
    tables.for_each(start, end, &mut |tables, leaf| zap_entry(st, tables, leaf, recency, gather));
}

/// Clear one entry.
pub(super) fn zap_entry<M: Machine>(
    st: &Store<M>,
    tables: &mut Locked<'_, M>,
    leaf: Leaf,
    recency: bool,
    gather: &mut Gather,
) {
    let old = tables.clear(leaf.slot, Absent::None).entry();
    st.charge(Work::EntryClear, 1);
    if let Some((slot, _)) = old.as_swap() {
        tables.counts().add(Resident::Swap, -1);
        drop_swap_entry(st.memory(), slot);
        return;
    }
    let pfn = old.pfn();
    stale(st.memory().ground(), &leaf.cleared(tables.space(), old, pfn), true);
    if pfn == st.zero {
        gather.page(leaf.page, None);
        return;
    }
    let frame = &st.frames[pfn];
    if matches!(frame.owner(), Owner::File(_)) {
        if old.has(Bits::DIRTY) {
            st.cache.mark_dirty(st.memory(), pfn);
        }
        if recency && old.has(Bits::YOUNG) {
            st.lru.mark_accessed(st.memory().ground(), pfn);
        }
    }
    tables.counts().add(resident_kind(st, pfn), -1);
    st.rmap.remove(st.memory().ground(), pfn);
    gather.page(leaf.page, Some(pfn));
}

/// What kind of page a folio counts as where it is mapped.
#[inline]
pub(super) fn resident_kind<M: Machine>(st: &Store<M>, pfn: Pfn) -> Resident {
    let frame = &st.frames[pfn];
    match frame.owner() {
        Owner::Anon(_) => Resident::Anon,
        // A page that was cut off its file has no owner any more, but counts as it did.
        _ if frame.has(FrameFlags::SWAPBACKED) => Resident::Shmem,
        _ => Resident::File,
    }
}

/// Unmap all pages of a file from `first` on, private copies too, wherever they are mapped.
pub fn zap_file<M: Machine>(st: &Store<M>, file: FileId, first: PageIndex) {
    st.rmap.for_shown(file, first, PageIndex(u64::MAX), &mut |span, start, end| {
        st.gather(span.space, Purpose::Meaning, |gather| {
            gather.changes(start, end);
            let mut tables = st.tables.lock(st.memory().ground(), span.space);
            tables.for_each(start, end, &mut |tables, leaf| zap_entry(st, tables, leaf, false, gather));
        });
    });
}
