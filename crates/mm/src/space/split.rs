//! Splitting 2 MiB entries before a part of what they map is treated on its own.
//!
//! mprotect, munmap, mremap, mlock and madvise cut ranges, and no entry may cross a border of ranges. An entry of a
//! file is dropped, and its pages are faulted in again. An entry of anonymous memory becomes 512 entries that say the
//! same ([`LockedTables::split_large`](crate::table::LockedTables::split_large)). A dropped entry is flushed like any
//! other that a system call takes away: when the split returns, no CPU holds it.

use super::Space;
use super::unmap::{Zap, split_anon_entry, zap_if};
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::primitive::Ordering::*;
use crate::table::EntryRun;
use crate::units::*;

const LARGE: u64 = TABLE_ENTRIES as u64;

/// Ensure that no large entry crosses `page`. The caller holds the mapping semaphore alone, or tolerates that a fault
/// maps one again.
#[inline]
pub(super) fn split_entry_at<M: Machine>(core: &MmCore<M>, space: &Space, id: SpaceId, page: Vpn) {
    if !page.0.is_multiple_of(LARGE) && space.large.load(Relaxed) {
        split_entry(core, id, page);
    }
}

/// Ensure that no large entry maps a page of `[start, end)`. The caller holds the mapping semaphore alone.
pub(super) fn split_entries<M: Machine>(core: &MmCore<M>, space: &Space, id: SpaceId, start: Vpn, end: Vpn) {
    if !space.large.load(Relaxed) {
        return;
    }
    let mut page = start;
    while page < end {
        split_entry(core, id, page);
        page = Vpn((page.0 | (LARGE - 1)) + 1);
    }
}

/// If a large entry maps `page`, split it.
#[cold]
pub(super) fn split_entry<M: Machine>(core: &MmCore<M>, id: SpaceId, page: Vpn) {
    {
        let mut tables = core.tables.lock(core, id);
        let Some(run) = tables.find(page).filter(EntryRun::is_large) else { return };
        let head = run.entry.pfn();
        if core.frames[head].is_anon() {
            split_anon_entry(core, &mut tables, &run);
            return;
        }
    }
    core.gather(id, |gather| {
        let anon = |run: &EntryRun| core.frames[run.mapped(&core.frames).head].is_anon();
        let one = Zap::new(page, Vpn(page.0 + 1)).with_recency();
        zap_if(core, one, gather, |run| run.is_large() && !anon(run));
    });
}
