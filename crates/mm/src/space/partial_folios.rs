//! Folios that a walk of a range visits, whole or in part.
//!
//! Advice applies to folios, which age and are reclaimed whole. A folio inside the range is treated whole. A folio of
//! anonymous memory that is only partly in the range is split, if nothing else uses it, and its pages in the range are
//! walked again. A part is what the walk visits of a folio without a hole. As in Linux, a folio with pages that are
//! not mapped any more is split, too.

use crate::frame::FolioPages;
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::EntryRun;
use crate::units::*;
use std_alloc::vec::Vec;

/// The visited part of a folio of anonymous memory.
#[derive(Clone, Copy, Debug)]
struct PartialFolio {
    head: Pfn,
    pages: (Vpn, Vpn),
}

/// Folios that a walk of `range` has visited in part.
pub(super) struct PartialFolios {
    range: (Vpn, Vpn),
    /// Pages of one folio that the last runs mapped, and the page after them.
    last: Option<(FolioPages, Vpn)>,
    /// Parts, each with a reference to its folio.
    parts: Vec<PartialFolio>,
}

impl PartialFolios {
    pub(super) fn new(range: (Vpn, Vpn)) -> PartialFolios {
        PartialFolios { range, last: None, parts: Vec::new() }
    }

    /// Visit a run. Returns the folio that it completes, if the range holds all of it and nothing else maps it.
    #[inline]
    pub(super) fn visit<M: Machine>(&mut self, core: &MmCore<M>, run: &EntryRun) -> Option<FolioPages> {
        let (last, mut pages) = match run.entry.is_present() {
            true => (self.last.take(), run.mapped(&core.frames)),
            false => {
                self.end(core);
                return None;
            }
        };
        match last {
            Some((before, end)) if end == run.page && before.are_continued_by(pages) => {
                pages = FolioPages { count: before.count + pages.count, ..before };
            }
            Some(part) => self.note(core, part),
            None => {}
        }
        let folio = &core.frames[pages.head];
        if self.exceeds_range(run) {
            self.note(core, (pages, run.end()));
        } else if pages.count < folio.pages() {
            self.last = Some((pages, run.end()));
        } else {
            let times = if run.is_large() { 1 } else { pages.count };
            return (folio.mapcount() == times).then_some(pages);
        }
        None
    }

    /// Whether a large entry maps pages outside of the range.
    #[inline]
    pub(super) fn exceeds_range(&self, run: &EntryRun) -> bool {
        run.is_large() && (run.page < self.range.0 || run.end() > self.range.1)
    }

    /// Nothing continues the last run. The caller still holds the page-table lock.
    pub(super) fn end<M: Machine>(&mut self, core: &MmCore<M>) {
        if let Some(part) = self.last.take() {
            self.note(core, part);
        }
    }

    #[cold]
    fn note<M: Machine>(&mut self, core: &MmCore<M>, (pages, end): (FolioPages, Vpn)) {
        let (head, folio) = (pages.head, &core.frames[pages.head]);
        let several = folio.mapcount() > 1;
        let entire = core.frames.entire_mapcount(head) > 0;
        let shared =
            several && (entire || folio.mapcount() > folio.pages() || core.frames.page_mapcount(head) > 1);
        if folio.is_anon() && !shared {
            folio.get(1);
            let first = Vpn(end.0 - u64::from(pages.count));
            self.parts.push(PartialFolio { head, pages: (first.max(self.range.0), end.min(self.range.1)) });
        }
    }

    /// Split the folios that were visited in part, and call `again` for the visited part of each that was split. Call
    /// [`PartialFolios::end`] under the page-table lock first, and this one without it.
    pub(super) fn split_parts<M: Machine>(self, core: &MmCore<M>, mut again: impl FnMut((Vpn, Vpn))) {
        let mut parts = self.parts;
        parts.sort_by_key(|part| part.head);
        for parts in parts.chunk_by(|a, b| a.head == b.head) {
            let head = parts[0].head;
            // A split expects one reference of its caller.
            core.put_many(head, parts.len() as u32 - 1);
            if core.try_lock_folio(head) {
                let large = core.frames[head].order() > Order::ZERO;
                let split = !large || core.rmap.split_anon(core, head, None).is_some();
                core.unlock_folio(head);
                if split {
                    parts.iter().for_each(|part| again(part.pages));
                }
            }
            core.put(head);
        }
    }

    /// Drop the references, and split nothing.
    pub(super) fn give_up<M: Machine>(self, core: &MmCore<M>) {
        self.parts.iter().for_each(|part| core.put(part.head));
    }
}
