//! Taking mappings away: munmap, and the clearing of entries that everything else that does so shares.

use super::vma::{Vma, VmaView};
use super::{Spaces, Stop};
use crate::api::Error;
use crate::cache::drop_swap_entry;
use crate::frame::{Frame, FrameFlags, Owner};
use crate::machine::{Machine, Scope, WaitKey, Work};
use crate::rmap::Tally;
use crate::store::Store;
use crate::table::{Bits, Locked, Resident, Run, USER_END};
use crate::tlb::{Gather, Purpose, stale_of};
use crate::units::*;
use smallvec::SmallVec;

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
        if !space.vmas.lock().holds_any(start, end) {
            return;
        }
        self.split_at(st, id, start);
        self.split_at(st, id, end);
        let mut gone: SmallVec<[Vma; 1]> = SmallVec::new();
        st.gather(id, Purpose::Meaning, |gather| {
            let hole = {
                let mut vmas = space.vmas.lock();
                while let Some(vma) = vmas.remove_last(end, start, gather) {
                    gone.push(vma);
                }
                vmas.hole(start, end)
            };
            for vma in gone.iter().rev() {
                zap(st, id, &vma.view, vma.view.start, vma.view.end(), gather);
            }
            st.tables.lock(st.memory().ground(), id).take_empty_tables((start, end), hole, gather);
        });
        for vma in gone.iter().rev() {
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
    let _scope = st.scope(Scope::UnmapPageRange);
    zap_if(st, id, (start, end), vma.has_recency(), gather, |_| true);
}

/// Clear those entries of `[start, end)` for which `wanted` says so. `recency`: that a page was used counts for its folio.
pub(super) fn zap_if<M: Machine>(
    st: &Store<M>,
    id: SpaceId,
    (start, end): (Vpn, Vpn),
    recency: bool,
    gather: &mut Gather,
    wanted: impl Fn(&Run) -> bool,
) {
    let base = st.memory().ground();
    let mut tally = Tally::new(base);
    let mut tables = st.tables.lock(base, id);
    tables.take_each(start, end, wanted, |tables, run| {
        forget_run(st, tables, run, recency, gather, &mut tally);
    });
    tally.settle(base);
}

/// A run of entries was cleared: see to what it said.
#[inline(always)]
fn forget_run<M: Machine>(
    st: &Store<M>,
    tables: &mut Locked<'_, M>,
    run: &Run,
    recency: bool,
    gather: &mut Gather,
    tally: &mut Tally,
) {
    let base = st.memory().ground();
    st.charge(Work::EntryClear, run.count as u64);
    if let Some((slot, _)) = run.entry.as_swap() {
        tables.counts().add(Resident::Swap, -1);
        drop_swap_entry(st.memory(), slot);
        return;
    }
    gather.touched(run.page, run.pages());
    let pages = run.mapped(&st.frames);
    let frame = &st.frames[pages.head];
    stale_of(base, &run.cleared(tables.space(), run.entry, pages.head), frame, true);
    if pages.head == st.zero {
        return;
    }
    let kind = kind_of(frame);
    if kind != Resident::Anon {
        if run.entry.has(Bits::DIRTY) {
            st.cache.mark_dirty(st.memory(), pages.head);
        }
        if recency && run.entry.has(Bits::YOUNG) && matches!(frame.owner(), Owner::File(_)) {
            st.lru.mark_accessed(base, pages.head);
        }
    }
    tables.counts().add(kind, -i64::from(pages.count));
    if run.is_large() {
        st.rmap.remove_large(base, pages.head);
    } else {
        st.rmap.remove_tallied(base, frame, pages, tally);
    }
    gather.folio(pages.head, run.count);
}

/// What kind of page a folio counts as where it is mapped.
#[inline]
pub(super) fn resident_kind<M: Machine>(st: &Store<M>, head: Pfn) -> Resident {
    kind_of(&st.frames[head])
}

#[inline]
fn kind_of(frame: &Frame) -> Resident {
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
            zap_if(st, span.space, (start, end), false, gather, |_| true);
        });
    });
}
