//! madvise.

use super::passed::Passed;
use super::split::split_entry_at;
use super::unmap::{resident_kind, zap};
use super::vma::{VmaFlags, VmaView};
use super::{Space, Spaces, Stop};
use crate::api::{Advice, Error};
use crate::cache::{drop_swap_entry, free_swap};
use crate::frame::{FolioPages, FrameFlags};
use crate::machine::{Machine, WaitKey, Work};
use crate::store::Store;
use crate::table::{Absent, Bits, Locked, Resident, Run};
use crate::tlb::{Gather, Purpose, stale};
use crate::units::*;
use std_alloc::vec::Vec;

/// What the facade, which stands above reclaim and read-ahead, is left to do.
#[derive(Debug, Default)]
pub struct Advised {
    /// Folios taken off their lists, with a reference each, that are to be reclaimed now.
    pub page_out: Vec<Pfn>,
    /// Parts of files that are to be read in: file, first index, number of pages.
    pub will_need: Vec<(FileId, PageIndex, u64)>,
    /// What the call fails with when that has been done: it was served as far as it could be.
    pub refused: Option<Error>,
}

impl Spaces {
    /// madvise, but for the reading and reclaiming that it asks for.
    pub fn madvise<M: Machine>(
        &self,
        st: &Store<M>,
        id: SpaceId,
        start: Vpn,
        pages: u64,
        advice: Advice,
    ) -> Result<Advised, Stop> {
        let end = Vpn(start.0 + pages);
        let space = self.at(id);
        let mut advised = Advised::default();
        if let Some((clear, set)) = lasting(advice) {
            let _held = space.mapping.write(&st.machine, WaitKey::Space(id));
            let covered = space.vmas.lock().covers(start, end);
            self.change_ranges(st, id, start, end, |vmas, at| {
                vmas.update(at, |vma| {
                    vma.view.flags.remove(clear);
                    vma.view.flags.insert(set);
                });
            });
            advised.refused = (!covered).then_some(Error::NotMapped);
            return Ok(advised);
        }
        let _held = space.mapping.read(&st.machine, WaitKey::Space(id));
        let (views, covered) = {
            let vmas = space.vmas.lock();
            (vmas.overlapping(start, end).map(|vma| vma.view).collect::<Vec<_>>(), vmas.covers(start, end))
        };
        let purpose = match advice {
            Advice::DontNeed | Advice::Free => Purpose::Meaning,
            _ => Purpose::Age,
        };
        let served = st.gather(id, purpose, |gather| {
            views.iter().try_for_each(|view| {
                let (from, to) = (start.max(view.start), end.min(view.end()));
                advise_range(st, (id, space), view, from, to, advice, gather, &mut advised)
            })
        });
        // As the system call does: the mapped parts are served, then the holes are complained about.
        advised.refused = served.err().or((!covered).then_some(Error::NotMapped));
        Ok(advised)
    }
}

/// Advice that a range remembers: the flags that it takes and gives.
fn lasting(advice: Advice) -> Option<(VmaFlags, VmaFlags)> {
    let order = VmaFlags::SEQUENTIAL | VmaFlags::RANDOM;
    let sizes = VmaFlags::HUGEPAGE | VmaFlags::NOHUGEPAGE;
    match advice {
        Advice::Normal => Some((order, VmaFlags::empty())),
        Advice::Random => Some((order, VmaFlags::RANDOM)),
        Advice::Sequential => Some((order, VmaFlags::SEQUENTIAL)),
        Advice::HugePage => Some((sizes, VmaFlags::HUGEPAGE)),
        Advice::NoHugePage => Some((sizes, VmaFlags::NOHUGEPAGE)),
        _ => None,
    }
}

#[allow(clippy::too_many_arguments)]
fn advise_range<M: Machine>(
    st: &Store<M>,
    (id, space): (SpaceId, &Space),
    vma: &VmaView,
    from: Vpn,
    to: Vpn,
    advice: Advice,
    gather: &mut Gather,
    advised: &mut Advised,
) -> Result<(), Error> {
    let locked = vma.flags.contains(VmaFlags::LOCKED);
    match advice {
        Advice::DontNeed | Advice::Cold | Advice::PageOut if locked => return Err(Error::Invalid),
        Advice::Free if locked || vma.file.is_some() => return Err(Error::Invalid),
        Advice::DontNeed => {
            gather.changes(from, to);
            zap(st, id, vma, from, to, gather);
        }
        Advice::WillNeed => {
            advised.will_need.extend(vma.file_index(from).map(|(file, index)| (file, index, to.0 - from.0)));
        }
        _ => {
            if vma.file.is_some() {
                split_entry_at(st, space, id, from);
                split_entry_at(st, space, id, to);
            }
            let passed = advise_mapped(st, id, (from, to), advice, gather, advised);
            passed.split_parts(st, |part| {
                let passed = advise_mapped(st, id, part, advice, gather, advised);
                passed.give_up(st);
            });
        }
    }
    Ok(())
}

/// Treat the folios that lie in a range whole; returns what was passed.
fn advise_mapped<M: Machine>(
    st: &Store<M>,
    id: SpaceId,
    range: (Vpn, Vpn),
    advice: Advice,
    gather: &mut Gather,
    advised: &mut Advised,
) -> Passed {
    let mut tables = st.tables.lock(st.memory().ground(), id);
    let mut passed = Passed::new(range);
    tables.for_each(range.0, range.1, |tables, run| {
        let whole = passed.pass(st, &run);
        if advice == Advice::Free {
            if let Some(folio) = whole {
                lazyfree_folio(st, tables, folio, run.end(), gather);
            }
            lazyfree_swapped(st, tables, &run);
            return;
        }
        // A folio of a file is cold where a part of it is, and where others map it, too.
        let waits = is_of_large_anon(st, &run);
        match whole {
            Some(folio) if waits => {
                for_runs(tables, folio, run.end(), |tables, run| cold_run(st, tables, run, gather));
            }
            None if waits || passed.reaches_out(&run) => {}
            _ => cold_run(st, tables, &run, gather),
        }
        if advice == Advice::PageOut {
            let folio = whole.map(|pages| pages.head);
            advised.page_out.extend(folio.filter(|&pfn| st.lru.isolate(st.memory().ground(), pfn)));
        }
    });
    passed.end(st);
    passed
}

/// Does a run map pages of a larger folio of anonymous memory?
fn is_of_large_anon<M: Machine>(st: &Store<M>, run: &Run) -> bool {
    let folio = |run: &Run| &st.frames[run.mapped(&st.frames).head];
    run.entry.is_present() && folio(run).is_anon() && folio(run).order() > Order::ZERO
}

/// Visit the runs that map pages of a folio up to `end`.
fn for_runs<M: Machine>(
    tables: &mut Locked<'_, M>,
    pages: FolioPages,
    end: Vpn,
    mut visit: impl FnMut(&mut Locked<'_, M>, &Run),
) {
    tables.for_each(Vpn(end.0 - pages.count as u64), end, |tables, run| visit(tables, &run));
}

/// Forget that pages were used, and let their folio go first when memory is wanted.
fn cold_run<M: Machine>(st: &Store<M>, tables: &mut Locked<'_, M>, run: &Run, gather: &mut Gather) {
    if !run.entry.is_present() || run.entry.pfn() == st.zero {
        return;
    }
    let pages = run.mapped(&st.frames);
    if run.entry.has(Bits::YOUNG) {
        tables.clear_young(run);
        st.charge(Work::EntryClear, run.count as u64);
        run.touch(gather);
    }
    st.frames[pages.head].clear(FrameFlags::REFERENCED);
    st.lru.deactivate(st.memory().ground(), pages.head);
}

/// MADV_FREE of what is in swap.
fn lazyfree_swapped<M: Machine>(st: &Store<M>, tables: &mut Locked<'_, M>, run: &Run) {
    if let Some((slot, _)) = run.entry.as_swap() {
        tables.clear(run.slot, Absent::None);
        tables.counts().add(Resident::Swap, -1);
        drop_swap_entry(st.memory(), slot);
    }
}

/// MADV_FREE of a folio whose pages are mapped up to `end`, and nowhere else: its content may be dropped until it is written
/// again.
fn lazyfree_folio<M: Machine>(
    st: &Store<M>,
    tables: &mut Locked<'_, M>,
    pages: FolioPages,
    end: Vpn,
    gather: &mut Gather,
) {
    let (pfn, frame) = (pages.head, &st.frames[pages.head]);
    if resident_kind(st, pfn) != Resident::Anon || !st.try_lock_folio(pfn) {
        return;
    }
    let in_swap_cache = frame.has(FrameFlags::SWAPCACHE) && !free_swap(st.memory(), pfn);
    if !in_swap_cache {
        frame.clear(FrameFlags::DIRTY);
        // The flush comes before a store can set the bit again unseen: a CPU that holds a dirty translation does not
        // set it in the entry.
        for_runs(tables, pages, end, |tables, run| {
            run.touch(gather);
            tables.clear_young_and_dirty(run);
            st.charge(Work::EntryClear, run.count as u64);
            stale(st.memory().ground(), &run.cleared(tables.space(), run.entry, pfn), true);
        });
        if frame.has(FrameFlags::SWAPBACKED) {
            st.lru.lazyfree(st.memory().ground(), pfn);
        }
    }
    st.unlock_folio(pfn);
}
