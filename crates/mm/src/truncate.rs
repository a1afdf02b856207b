//! Truncating a file in the middle of a large folio.
//!
//! The pages before the new end stay, those after it go. The folio is split into parts as large as the new end allows,
//! and the caller drops the parts after it. A split needs exclusive use: the folio's mappings are removed first (a
//! later access faults the page in again). If another task holds a reference, for example a reader, the folio stays
//! whole and its tail is zeroed, because a file that grows again must show zeroes there. Linux (mm/truncate.c) does
//! the same, and also drops a clean folio that it could not split.

use crate::event::{Concern, Event};
use crate::frame::Owner;
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::units::*;

/// The file now ends before page `first`. Ensure that no folio has pages on both sides of the end, or that the pages
/// after it are zeroed. They are not mapped, except by a fault that is still running with the old size.
pub(crate) fn cut_astride<M: Machine>(core: &MmCore<M>, file: FileId, first: PageIndex) {
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

/// Truncate one locked folio that begins at `start`.
fn cut<M: Machine>(core: &MmCore<M>, file: FileId, pfn: Pfn, start: PageIndex, first: PageIndex) {
    let memory = core;
    let before = (first.0 - start.0) as u32;
    if core.split_file_folio(pfn, Order(before.trailing_zeros() as u8), None) {
        return;
    }
    let (behind, pages) = (pfn.add(before), core.frames[pfn].pages() - before);
    let settled = core.tlb.settle_file(memory.host(), file);
    let concern = Concern::File { file: settled.file(), first, count: pages as u64 };
    core.event(Event::TlbHazard, concern.args());
    core.zero_in_file(behind, pages, &settled);
}
