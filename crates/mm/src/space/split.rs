//! Splitting 2 MiB entries: what is about to be treated in parts must not be mapped as a whole.
//!
//! Ranges are cut where mprotect, munmap, mremap, mlock and madvise say, and no entry reaches across a border of
//! ranges. One of a file is dropped to that end, and its pages are faulted in again; one of anonymous memory becomes
//! 512 entries that say the same ([`Locked::split_large`](crate::table::Locked::split_large)). A dropped entry is
//! flushed like any that a system call takes away: when this returns no CPU holds it.

use super::Space;
use super::unmap::{split_anon_entry, zap_if};
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::primitive::Ordering::*;
use crate::table::EntryRun;
use crate::units::*;

const LARGE: u64 = TABLE_ENTRIES as u64;

/// No large entry reaches across `page` from here on. The caller holds the mapping semaphore alone, or knows that what
/// a fault maps meanwhile does no harm.
#[inline]
pub(super) fn split_entry_at<M: Machine>(core: &MmCore<M>, space: &Space, id: SpaceId, page: Vpn) {
    if !page.0.is_multiple_of(LARGE) && space.large.load(Relaxed) {
        split_entry(core, id, page);
    }
}

/// No large entry maps a page of `[start, end)` from here on. The mapping semaphore is held alone.
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
    let mmu = core;
    {
        let mut tables = core.tables.lock(mmu, id);
        let Some(run) = tables.find(page).filter(EntryRun::is_large) else { return };
        let head = run.entry.pfn();
        if core.frames[head].is_anon() {
            split_anon_entry(core, &mut tables, &run);
            return;
        }
    }
    core.gather(id, |gather| {
        let anon = |run: &EntryRun| core.frames[run.mapped(&core.frames).head].is_anon();
        zap_if(core, id, (page, Vpn(page.0 + 1)), true, gather, |run| run.is_large() && !anon(run));
    });
}
