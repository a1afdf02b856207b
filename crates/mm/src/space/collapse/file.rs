//! Collapse of 2 MiB of a file or of shmem.
//!
//! 1. Missing pages are read or swapped in, within the caller's limits.
//! 2. The folios are locked and unmapped everywhere, as in reclaim, and one folio of 2 MiB replaces them in the cache
//!    ([`Cache::collapse`](crate::cache::Cache::collapse)).
//! 3. Entries that this space has made for the new folio since then are cleared, their table is taken out, and one
//!    entry is made. Other spaces keep their empty tables until a collapse in them, which needs their semaphores.
//!
//! The copy equals the originals, so other CPUs need not be flushed at once. An entry that was unmapped and whose
//! flush waits leads to a frame that is not reused before the flush, and the file's debt is paid before its content
//! changes. The table is flushed, with the entry that led to it, before it is freed and before the large entry is
//! made.

use super::{CollapseError, CollapseLimits, Collapsed, Failed, LARGE, check_for_block, new_whole};
use crate::cache::{CacheError, ReadHint};
use crate::event::{Concern, Event};
use crate::frame::{FolioRun, FrameFlags};
use crate::machine::Machine;
use crate::memory::Gfp;
use crate::mm_core::MmCore;
use crate::rmap::UnmapMode;
use crate::space::fault::{PmdRange, map_whole};
use crate::space::zap::{Zap, zap_if};
use crate::table::{Bits, EntryRun};
use crate::tlb::UnmapBatch;
use crate::units::*;

/// Collapse 2 MiB that map a file from a multiple of 2 MiB on.
pub(super) fn collapse<M: Machine>(
    core: &MmCore<M>,
    place: &PmdRange<'_>,
    (file, index): (FileId, PageIndex),
    limits: CollapseLimits,
) -> Result<Collapsed, Failed> {
    let &PmdRange { id, start: at, gfp, .. } = place;
    let end = place.end();
    let (mut large, mut of_file) = (false, true);
    {
        let mut tables = core.tables.lock(core, id);
        tables.for_each(at, end, |_, run| {
            large |= run.is_large();
            of_file &= run.entry.has(Bits::PRESENT) && !core.frames[run.mapped(&core.frames).head].is_anon();
        });
    }
    if large {
        return Ok(Collapsed::Before);
    }
    if !of_file {
        // A private copy needs its own page, so the others must keep theirs.
        return Err(CollapseError::Unfit.into());
    }
    let folio = resident_whole(core, file, index, limits, gfp)?;
    // Clear what was mapped again since, and take out the table.
    let of_whole = |run: &EntryRun| run.entry.pfn() == folio.add((run.page.0 - at.0) as u32);
    core.gather(id, |gather| {
        zap_if(core, Zap::new(at, end), gather, of_whole);
        core.tables.lock(core, id).take_empty_tables((at, end), (at, end), gather);
    });
    let mapped = map_whole(core, place, (file, index));
    core.put(folio);
    if mapped? { Ok(Collapsed::Now) } else { Err(CollapseError::Unfit.into()) }
}

/// The folio that holds 2 MiB of a file, with a reference: the existing one, or a new one made of smaller ones.
fn resident_whole<M: Machine>(
    core: &MmCore<M>,
    file: FileId,
    first: PageIndex,
    limits: CollapseLimits,
    gfp: Gfp,
) -> Result<Pfn, Failed> {
    let range = first.0..first.0 + LARGE;
    if range.end > core.cache.file(file).pages() {
        return Err(CollapseError::Unfit.into());
    }
    if let Some(folio) = core.cache.resident_large(core, file, first, true) {
        core.unlock_folio(folio);
        return Ok(folio);
    }
    let found = core.cache.survey(file, first);
    let none = LARGE.saturating_sub(found.cached + found.swapped);
    if found.swapped > limits.swap {
        return Err(CollapseError::Swapped.into());
    }
    if none > limits.none {
        return Err(CollapseError::Missing.into());
    }
    if none == LARGE {
        return Err(CollapseError::Unfit.into());
    }
    check_for_block(core, gfp)?;
    let mut from = range.start;
    while let Some(index) = core.cache.next_absent(file, from..range.end) {
        match core.cache.get_page(
            core,
            file,
            index,
            ReadHint { sequential: true, ..ReadHint::default() },
            gfp,
        ) {
            Ok(page) => core.put(page.folio),
            Err(CacheError::Shortage(shortage)) => return Err(shortage.into()),
            Err(CacheError::BeyondEnd | CacheError::Io) => return Err(CollapseError::Unfit.into()),
        }
        from = index.0 + 1;
    }
    let whole = new_whole(core, gfp)?;
    core.frames[whole].set(FrameFlags::LOCKED);
    let done = replace_parts(core, file, first, whole);
    core.unlock_folio(whole);
    if !done {
        core.put(whole);
        return Err(CollapseError::InUse.into());
    }
    Ok(whole)
}

/// Replace the folios that hold 2 MiB of a file by `whole`: lock, unmap and free them. Returns whether it succeeded.
fn replace_parts<M: Machine>(core: &MmCore<M>, file: FileId, first: PageIndex, whole: Pfn) -> bool {
    let Some(parts) = core.cache.lock_parts(core, file, first) else { return false };
    let mut batch = UnmapBatch::new(core.host());
    for &part in &parts {
        let mode = UnmapMode { ignore_mlock: true };
        let dirty = core.rmap.try_to_unmap(core, FolioRun::one(&part), mode, &mut batch);
        dirty.iter().for_each(|(_, part)| core.cache.mark_dirty(core, part));
    }
    // From here on no CPU can store to what is about to be copied.
    batch.settle(core.host(), &core.tlb);
    if !core.cache.collapse(core, file, first, &parts, whole) {
        core.cache.unlock_parts(core, &parts);
        return false;
    }
    for &part in &parts {
        core.unlock_folio(part);
        let concern = Concern::Frames { first: part, count: core.frames[part].pages() };
        core.event(Event::TlbHazard, concern.args());
    }
    core.free_folios(&parts);
    true
}
