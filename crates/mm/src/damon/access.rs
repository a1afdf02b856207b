//! Whether a page of memory was used since the last look: by young bits of the entries that map it, and for uses
//! through file descriptors by the flag IDLE, which every such use clears.
//!
//! Taking a young bit away would have reclaim take a used page for unused, so the flag YOUNG keeps it for reclaim.
//!
//! Source of the rules: mm/damon/paddr.c of Linux 6.12.

use crate::frame::{FolioRun, FrameFlags};
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::units::Pfn;

/// The folio of a page, if reclaim knows it, with a reference.
pub(super) fn folio<M: Machine>(core: &MmCore<M>, page: Pfn) -> Option<Pfn> {
    let head = core.frames.head(page);
    if !core.frames[head].has(FrameFlags::LRU) || !core.try_get(head) {
        return None;
    }
    // It may have been freed before the reference was taken.
    if core.frames.head(page) != head || !core.frames[head].has(FrameFlags::LRU) {
        core.put(head);
        return None;
    }
    Some(head)
}

/// Begin to watch a folio. The caller has a reference.
pub(super) fn watch<M: Machine>(core: &MmCore<M>, folio: Pfn) {
    let frame = &core.frames[folio];
    if frame.mapcount() > 0 {
        if !core.try_lock_folio(folio) {
            return;
        }
        take_young(core, folio);
        core.unlock_folio(folio);
    }
    frame.set(FrameFlags::IDLE);
}

/// Whether a folio was used since it was watched. The caller has a reference.
pub(super) fn was_used<M: Machine>(core: &MmCore<M>, folio: Pfn) -> bool {
    let frame = &core.frames[folio];
    let mut used = false;
    if frame.mapcount() > 0 {
        if !core.try_lock_folio(folio) {
            return false;
        }
        used = take_young(core, folio);
        core.unlock_folio(folio);
    }
    used || !frame.has(FrameFlags::IDLE)
}

/// Whether an entry of a locked folio is young; none is afterwards, and the folio is.
fn take_young<M: Machine>(core: &MmCore<M>, folio: Pfn) -> bool {
    let [found] = core.rmap.referenced(core, FolioRun::one(&folio), None, None);
    if found.vmas > 0 {
        core.frames[folio].set(FrameFlags::YOUNG);
    }
    found.vmas > 0
}
