//! Cutting a file in the middle of a large folio.
//!
//! The folio's pages before the cut stay, those behind it go. So the folio is split, into parts as large as the cut
//! allows; whoever cuts then drops the parts that lie behind it. That needs the folio for oneself: its mappings are
//! taken away first (who uses them faults them in again), but somebody may be reading from it. Then it stays whole, and
//! its end, which belongs to no page of the file any more, is filled with zeroes: what the file shows there should it
//! grow again. (mm/truncate.c of Linux does the same, and drops a folio that it could not split if it is clean.)

use crate::event::{Concern, Event};
use crate::frame::Owner;
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::units::*;

/// The file ends before page `first` now: see to it that no folio holds pages from before and from behind, or that it
/// holds zeroes behind. The pages behind are not mapped, but for those that a fault that saw the old size is mapping
/// just now.
pub fn cut_astride<M: Machine>(core: &MmCore<M>, file: FileId, first: PageIndex) {
    while let Some(pfn) = core.cache.astride(core, file, first) {
        core.lock_folio(pfn);
        core.wait_writeback(pfn);
        let frame = &core.frames[pfn];
        let start = frame.page_index();
        let held = frame.owner() == Owner::File(file) && start < first;
        if held {
            cut(core, file, pfn, start, first);
        }
        core.unlock_folio(pfn);
        core.put(pfn);
        if held {
            return;
        }
    }
}

/// Cut one folio, which begins at `start` and is locked.
fn cut<M: Machine>(core: &MmCore<M>, file: FileId, pfn: Pfn, start: PageIndex, first: PageIndex) {
    let memory = core;
    let before = (first.0 - start.0) as u32;
    if core.split_file_folio(pfn, Order(before.trailing_zeros() as u8), None) {
        return;
    }
    let (behind, pages) = (pfn.add(before), core.frames[pfn].pages() - before);
    let settled = core.tlb.settle_file(memory, file);
    let concern = Concern::File { file: settled.file(), first, count: pages as u64 };
    core.event(Event::TlbHazard, concern.args());
    core.zero_in_file(behind, pages, &settled);
}
