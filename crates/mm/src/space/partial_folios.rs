//! Folios that a walk of a range passes: whole, or in part.
//!
//! Advice is about folios, which age and are reclaimed whole. One that lies in the range whole is treated as such; one
//! of anonymous memory that lies in it in part is split, if nobody else uses it, and its pages in the range are walked
//! again. A part is what the walk passes of a folio without a hole; as Linux does, a folio with pages that nobody maps
//! any more is split, too.

use crate::frame::FolioPages;
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::table::EntryRun;
use crate::units::*;
use std_alloc::vec::Vec;

/// A part of a folio of anonymous memory that a walk has passed.
#[derive(Clone, Copy, Debug)]
struct PartialFolio {
    head: Pfn,
    pages: (Vpn, Vpn),
}

/// What a walk of `range` has passed.
pub(super) struct PartialFolios {
    range: (Vpn, Vpn),
    /// Pages of a folio that the last runs mapped, and the page behind them.
    last: Option<(FolioPages, Vpn)>,
    /// Parts, with a reference of their folio each.
    parts: Vec<PartialFolio>,
}

impl PartialFolios {
    pub(super) fn new(range: (Vpn, Vpn)) -> PartialFolios {
        PartialFolios { range, last: None, parts: Vec::new() }
    }

    /// Pass a run. If it ends a folio that lies in the range whole, and is mapped nowhere else, that folio.
    #[inline]
    pub(super) fn pass<M: Machine>(&mut self, core: &MmCore<M>, run: &EntryRun) -> Option<FolioPages> {
        let (last, mut pages) = match run.entry.is_present() {
            true => (self.last.take(), run.mapped(&core.frames)),
            false => {
                self.end(core);
                return None;
            }
        };
        match last {
            Some((before, end)) if end == run.page && before.first.add(before.count) == pages.first => {
                pages = FolioPages { count: before.count + pages.count, ..before };
            }
            Some(part) => self.note(core, part),
            None => {}
        }
        let folio = &core.frames[pages.head];
        if self.reaches_out(run) {
            self.note(core, (pages, run.end()));
        } else if pages.count < folio.pages() {
            self.last = Some((pages, run.end()));
        } else {
            let times = if run.is_large() { 1 } else { pages.count };
            return (folio.mapcount() == times).then_some(pages);
        }
        None
    }

    /// Does a large entry map more than the range?
    #[inline]
    pub(super) fn reaches_out(&self, run: &EntryRun) -> bool {
        run.is_large() && (run.page < self.range.0 || run.end() > self.range.1)
    }

    /// Nothing continues the last run. The tables are still locked.
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

    /// Split the folios that were passed in part, and call `again` for what was passed of each that could be. No tables
    /// are locked; [`PartialFolios::end`] was called when they still were.
    pub(super) fn split_parts<M: Machine>(self, core: &MmCore<M>, mut again: impl FnMut((Vpn, Vpn))) {
        let mut parts = self.parts;
        parts.sort_by_key(|part| part.head);
        for parts in parts.chunk_by(|a, b| a.head == b.head) {
            let head = parts[0].head;
            // Who splits has one reference.
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

    /// Split nothing.
    pub(super) fn give_up<M: Machine>(self, core: &MmCore<M>) {
        self.parts.iter().for_each(|part| core.put(part.head));
    }
}
