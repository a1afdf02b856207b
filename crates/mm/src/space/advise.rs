//! madvise.

use super::partial_folios::PartialFolios;
use super::split::split_entry_at;
use super::vma::{VmaFlags, VmaView};
use super::zap::{Zap, zap};
use super::{Space, Spaces, Stop};
use crate::api::{Advice, Error};
use crate::cache::{drop_swap_entry, free_swap};
use crate::frame::{FolioPages, Frame, FrameFlags};
use crate::machine::{Machine, WaitKey, Work};
use crate::mm_core::MmCore;
use crate::table::{Absent, Bits, EntryRun, LockedTables, Resident};
use crate::tlb::{Gather, Tightening};
use crate::units::*;
use std_alloc::vec::Vec;

/// What is left to the facade, which is above reclaim and read-ahead.
#[derive(Debug, Default)]
pub(crate) struct Advised {
    /// Folios to reclaim now: off their lists, with a reference each.
    pub page_out: Vec<Pfn>,
    /// Parts of files to read: file, first index, number of pages.
    pub will_need: Vec<(FileId, PageIndex, u64)>,
    /// The error that the call returns after that work: parts of the range may have been served.
    pub refused: Option<Error>,
}

impl Spaces {
    /// madvise, except for the reading and reclaiming that it leads to.
    pub fn madvise<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        start: Vpn,
        pages: u64,
        advice: Advice,
    ) -> Result<Advised, Stop> {
        let end = Vpn(start.0 + pages);
        let space = self.at(id);
        let mut advised = Advised::default();
        if let Some((clear, set)) = stored_flags(advice) {
            let _held = space.mapping.write(&core.machine, WaitKey::Space(id));
            let covered = space.vmas.lock().covers(start, end);
            self.change_ranges(core, id, start, end, |vmas, at| {
                vmas.update(at, |vma| {
                    vma.view.flags.remove(clear);
                    vma.view.flags.insert(set);
                });
            });
            advised.refused = (!covered).then_some(Error::NotMapped);
            return Ok(advised);
        }
        let _held = space.mapping.read(&core.machine, WaitKey::Space(id));
        let (views, covered) = {
            let vmas = space.vmas.lock();
            (vmas.overlapping(start, end).map(|vma| vma.view).collect::<Vec<_>>(), vmas.covers(start, end))
        };
        let mut parts = views.iter().map(|view| (view, (start.max(view.start), end.min(view.end()))));
        let served = match advice {
            Advice::DontNeed | Advice::Free => core.gather(id, |gather| {
                parts.try_for_each(|(view, range)| discard_range(core, view, range, advice, gather))
            }),
            Advice::WillNeed => {
                let file = |(view, (from, to)): (&VmaView, (Vpn, Vpn))| {
                    view.file_index(from).map(|(file, index)| (file, index, to.0 - from.0))
                };
                advised.will_need.extend(parts.filter_map(file));
                Ok(())
            }
            _ => {
                let page_out = (advice == Advice::PageOut).then_some(&mut advised.page_out);
                core.tlb.tighten(core.host(), id, |tightening| {
                    let mut aged = Aged { tightening, page_out };
                    parts.try_for_each(|(view, range)| age_range(core, space, view, range, &mut aged))
                })
            }
        };
        // As in Linux: mapped parts are served before holes make the call fail.
        advised.refused = served.err().or((!covered).then_some(Error::NotMapped));
        Ok(advised)
    }
}

/// Advice that a range stores: the flags to clear and to set.
fn stored_flags(advice: Advice) -> Option<(VmaFlags, VmaFlags)> {
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

/// MADV_DONTNEED and MADV_FREE of a part of a range.
fn discard_range<M: Machine>(
    core: &MmCore<M>,
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
        zap(core, Zap::of(vma, from, to), gather);
        return Ok(());
    }
    let partial = free_mapped(core, (from, to), gather);
    partial.split_parts(core, |part| free_mapped(core, part, gather).give_up(core));
    Ok(())
}

/// MADV_FREE of the folios that the interval holds whole. Returns those that it holds in part.
fn free_mapped<M: Machine>(core: &MmCore<M>, range: (Vpn, Vpn), gather: &mut Gather) -> PartialFolios {
    let mut tables = core.tables.lock(core, gather.space());
    let mut partial = PartialFolios::new(range);
    tables.for_each(range.0, range.1, |tables, run| {
        if let Some(folio) = partial.visit(core, &run) {
            lazyfree_folio(core, tables, folio, run.end(), gather);
        }
        lazyfree_swapped(core, tables, &run);
    });
    partial.end(core);
    partial
}

/// Results of aging.
struct Aged<'a> {
    tightening: &'a mut Tightening,
    /// Isolated folios that are to be reclaimed now; `None`: folios are only aged.
    page_out: Option<&'a mut Vec<Pfn>>,
}

/// MADV_COLD and MADV_PAGEOUT of a part of a range.
fn age_range<M: Machine>(
    core: &MmCore<M>,
    space: &Space,
    vma: &VmaView,
    (from, to): (Vpn, Vpn),
    aged: &mut Aged<'_>,
) -> Result<(), Error> {
    if vma.flags.contains(VmaFlags::LOCKED) {
        return Err(Error::Invalid);
    }
    if vma.file.is_some() {
        let id = aged.tightening.space();
        split_entry_at(core, space, id, from);
        split_entry_at(core, space, id, to);
    }
    let partial = age_mapped(core, (from, to), aged);
    partial.split_parts(core, |part| age_mapped(core, part, aged).give_up(core));
    Ok(())
}

/// Age the folios that the interval holds whole. Returns those that it holds in part.
fn age_mapped<M: Machine>(core: &MmCore<M>, range: (Vpn, Vpn), aged: &mut Aged<'_>) -> PartialFolios {
    let Aged { tightening, page_out } = aged;
    let mut tables = core.tables.lock(core, tightening.space());
    let mut partial = PartialFolios::new(range);
    tables.for_each(range.0, range.1, |tables, run| {
        let whole = partial.visit(core, &run);
        // A folio of a file is cold even if only a part of it is in the interval, and if others map it, too.
        let large_anon = is_of_large_anon(core, &run);
        match whole {
            Some(folio) if large_anon => {
                for_runs(tables, folio, run.end(), |tables, run| cold_run(core, tables, run, tightening));
            }
            None if large_anon || partial.exceeds_range(&run) => {}
            _ => cold_run(core, tables, &run, tightening),
        }
        match (page_out.as_deref_mut(), whole) {
            (Some(out), Some(folio)) => {
                if core.frames[folio.head].has(FrameFlags::ACTIVE) {
                    core.frames[folio.head].set(FrameFlags::WORKINGSET);
                }
                out.extend(Some(folio.head).filter(|&pfn| core.lru.isolate(core, pfn)));
            }
            (None, Some(folio)) => core.lru.deactivate(core, folio.head),
            // A part of a file's folio, unless a large entry that was not split maps it.
            (_, None) if !large_anon && !partial.exceeds_range(&run) && maps_folio(core, &run) => {
                core.lru.deactivate(core, run.mapped(&core.frames).head);
            }
            _ => {}
        }
    });
    partial.end(core);
    partial
}

/// Whether a run maps pages of a large folio of anonymous memory.
fn is_of_large_anon<M: Machine>(core: &MmCore<M>, run: &EntryRun) -> bool {
    let is_large_anon = |folio: &Frame| folio.order() > Order::ZERO && folio.is_anon();
    run.entry.is_present() && is_large_anon(&core.frames[run.mapped(&core.frames).head])
}

/// Visit the runs that map pages of a folio up to `end`.
fn for_runs<M: Machine>(
    tables: &mut LockedTables<'_, M>,
    pages: FolioPages,
    end: Vpn,
    mut visit: impl FnMut(&mut LockedTables<'_, M>, &EntryRun),
) {
    tables.for_each(Vpn(end.0 - pages.count as u64), end, |tables, run| visit(tables, &run));
}

/// Forget that pages were used, so that reclaim takes their folio first.
fn cold_run<M: Machine>(
    core: &MmCore<M>,
    tables: &mut LockedTables<'_, M>,
    run: &EntryRun,
    tightening: &mut Tightening,
) {
    if !maps_folio(core, run) {
        return;
    }
    let pages = run.mapped(&core.frames);
    if run.entry.has(Bits::YOUNG) {
        tables.clear_young(run);
        core.charge(Work::EntryClear, run.count as u64);
        tightening.aged(run.page, run.pages(), run.order);
    }
    core.frames[pages.head].clear(FrameFlags::REFERENCED);
}

/// Whether a run maps pages that have an age: not the page of zeroes.
fn maps_folio<M: Machine>(core: &MmCore<M>, run: &EntryRun) -> bool {
    run.entry.is_present() && run.entry.pfn() != core.zero
}

/// MADV_FREE of a swap entry.
fn lazyfree_swapped<M: Machine>(core: &MmCore<M>, tables: &mut LockedTables<'_, M>, run: &EntryRun) {
    if let Some((slot, _)) = run.entry.as_swap() {
        tables.set_absent(run.slot, Absent::None);
        tables.counts().add(Resident::Swap, -1);
        #[expect(clippy::disallowed_methods, reason = "its entry was cleared")]
        drop_swap_entry(core, slot);
    }
}

/// MADV_FREE of a folio whose pages are mapped up to `end` and nowhere else: its content may be dropped until it is
/// written again.
fn lazyfree_folio<M: Machine>(
    core: &MmCore<M>,
    tables: &mut LockedTables<'_, M>,
    pages: FolioPages,
    end: Vpn,
    gather: &mut Gather,
) {
    let (pfn, frame) = (pages.head, &core.frames[pages.head]);
    if Resident::of(&core.frames[pfn]) != Resident::Anon || !core.try_lock_folio(pfn) {
        return;
    }
    let in_swap_cache = frame.has(FrameFlags::SWAPCACHE) && !free_swap(core, pfn);
    if !in_swap_cache {
        frame.clear(FrameFlags::DIRTY);
        // Flush before a store can set the bit again unnoticed: a CPU that holds a dirty translation does not set it
        // in the entry.
        for_runs(tables, pages, end, |tables, run| {
            let tightened = tables.clear_young_and_dirty(run);
            core.charge(Work::EntryClear, run.count as u64);
            gather.tightened(core.host(), tightened);
        });
        if frame.has(FrameFlags::SWAPBACKED) {
            core.lru.lazyfree(core, pfn);
        }
    }
    core.unlock_folio(pfn);
}
