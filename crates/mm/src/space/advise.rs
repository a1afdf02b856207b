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
use crate::tlb::{Gather, Tightening};
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
        let mut parts = views.iter().map(|view| (view, (start.max(view.start), end.min(view.end()))));
        let served = match advice {
            Advice::DontNeed | Advice::Free => st.gather(id, |gather| {
                parts.try_for_each(|(view, range)| give_up_range(st, view, range, advice, gather))
            }),
            Advice::WillNeed => {
                let file = |(view, (from, to)): (&VmaView, (Vpn, Vpn))| {
                    view.file_index(from).map(|(file, index)| (file, index, to.0 - from.0))
                };
                advised.will_need.extend(parts.filter_map(file));
                Ok(())
            }
            _ => {
                let mut out = (advice == Advice::PageOut).then_some(&mut advised.page_out);
                st.tlb.tighten(st.memory().ground(), id, |tightening| {
                    parts
                        .try_for_each(|(view, range)| age_range(st, space, view, range, tightening, &mut out))
                })
            }
        };
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

/// MADV_DONTNEED and MADV_FREE of a part of a mapped range.
fn give_up_range<M: Machine>(
    st: &Store<M>,
    vma: &VmaView,
    (from, to): (Vpn, Vpn),
    advice: Advice,
    gather: &mut Gather,
) -> Result<(), Error> {
    let refused = vma.flags.contains(VmaFlags::LOCKED) || advice == Advice::Free && vma.file.is_some();
    if refused {
        return Err(Error::Invalid);
    }
    if advice == Advice::DontNeed {
        gather.changes(from, to);
        zap(st, gather.space(), vma, from, to, gather);
        return Ok(());
    }
    let passed = free_mapped(st, (from, to), gather);
    passed.split_parts(st, |part| free_mapped(st, part, gather).give_up(st));
    Ok(())
}

/// MADV_FREE of the folios that lie in a range whole; returns what was passed.
fn free_mapped<M: Machine>(st: &Store<M>, range: (Vpn, Vpn), gather: &mut Gather) -> Passed {
    let mut tables = st.tables.lock(st.memory().ground(), gather.space());
    let mut passed = Passed::new(range);
    tables.for_each(range.0, range.1, |tables, run| {
        if let Some(folio) = passed.pass(st, &run) {
            lazyfree_folio(st, tables, folio, run.end(), gather);
        }
        lazyfree_swapped(st, tables, &run);
    });
    passed.end(st);
    passed
}

/// Where folios go that are to be reclaimed now, isolated; `None`: none are.
type Out<'a> = Option<&'a mut Vec<Pfn>>;

/// MADV_COLD and MADV_PAGEOUT of a part of a mapped range.
fn age_range<M: Machine>(
    st: &Store<M>,
    space: &Space,
    vma: &VmaView,
    (from, to): (Vpn, Vpn),
    tightening: &mut Tightening,
    out: &mut Out<'_>,
) -> Result<(), Error> {
    if vma.flags.contains(VmaFlags::LOCKED) {
        return Err(Error::Invalid);
    }
    if vma.file.is_some() {
        split_entry_at(st, space, tightening.space(), from);
        split_entry_at(st, space, tightening.space(), to);
    }
    let passed = age_mapped(st, (from, to), tightening, out);
    passed.split_parts(st, |part| age_mapped(st, part, tightening, out).give_up(st));
    Ok(())
}

/// Forget that the folios that lie in a range whole were used; returns what was passed.
fn age_mapped<M: Machine>(
    st: &Store<M>,
    range: (Vpn, Vpn),
    tightening: &mut Tightening,
    out: &mut Out<'_>,
) -> Passed {
    let mut tables = st.tables.lock(st.memory().ground(), tightening.space());
    let mut passed = Passed::new(range);
    tables.for_each(range.0, range.1, |tables, run| {
        let whole = passed.pass(st, &run);
        // A folio of a file is cold where a part of it is, and where others map it, too.
        let waits = is_of_large_anon(st, &run);
        match whole {
            Some(folio) if waits => {
                for_runs(tables, folio, run.end(), |tables, run| cold_run(st, tables, run, tightening));
            }
            None if waits || passed.reaches_out(&run) => {}
            _ => cold_run(st, tables, &run, tightening),
        }
        let base = st.memory().ground();
        match (out.as_deref_mut(), whole) {
            (Some(out), Some(folio)) => {
                if st.frames[folio.head].has(FrameFlags::ACTIVE) {
                    st.frames[folio.head].set(FrameFlags::WORKINGSET);
                }
                out.extend(Some(folio.head).filter(|&pfn| st.lru.isolate(base, pfn)));
            }
            (None, Some(folio)) => st.lru.deactivate(base, folio.head),
            // A part of a file's folio: of what was not split.
            (_, None) if !waits && !passed.reaches_out(&run) && maps_folio(st, &run) => {
                st.lru.deactivate(base, run.mapped(&st.frames).head);
            }
            _ => {}
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
fn cold_run<M: Machine>(st: &Store<M>, tables: &mut Locked<'_, M>, run: &Run, tightening: &mut Tightening) {
    if !maps_folio(st, run) {
        return;
    }
    let pages = run.mapped(&st.frames);
    if run.entry.has(Bits::YOUNG) {
        tables.clear_young(run);
        st.charge(Work::EntryClear, run.count as u64);
        tightening.aged(run.page, run.pages(), run.order);
    }
    st.frames[pages.head].clear(FrameFlags::REFERENCED);
}

/// Does a run map pages that have an age?
fn maps_folio<M: Machine>(st: &Store<M>, run: &Run) -> bool {
    run.entry.is_present() && run.entry.pfn() != st.zero
}

/// MADV_FREE of what is in swap.
fn lazyfree_swapped<M: Machine>(st: &Store<M>, tables: &mut Locked<'_, M>, run: &Run) {
    if let Some((slot, _)) = run.entry.as_swap() {
        tables.set_absent(run.slot, Absent::None);
        tables.counts().add(Resident::Swap, -1);
        drop_swap_entry(st.memory(), slot);
    }
}

/// MADV_FREE of a folio whose pages are mapped up to `end`, and nowhere else: its content may be dropped until it is
/// written again.
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
            let tightened = tables.clear_young_and_dirty(run);
            st.charge(Work::EntryClear, run.count as u64);
            gather.tightened(st.memory().ground(), tightened);
        });
        if frame.has(FrameFlags::SWAPBACKED) {
            st.lru.lazyfree(st.memory().ground(), pfn);
        }
    }
    st.unlock_folio(pfn);
}
