//! Collapse of what a range shows of a file or of shmem.
//!
//! 1. Pages that are missing are read, or brought back from swap, as far as the caller's limits allow.
//! 2. The folios are locked, their mappings are taken away everywhere, as reclaim does, and one folio of 2 MiB comes
//!    into their place ([`Cache::collapse`](crate::cache::Cache::collapse)).
//! 3. Entries for its pages that the space has made since go with their table, which may be empty, and one entry is
//!    made. Other spaces keep their empty tables until somebody comes by there, too: that takes their semaphores.
//!
//! The copies say what the originals said, so nobody need be told at once: an entry that was unmapped and whose flush
//! waits leads to a frame that is not used again before, and the file's debt is paid before its content changes. The
//! table is flushed before it is freed, with the entry that led to it, and before the large one is made.

use super::{CollapseError, CollapseLimits, Collapsed, Failed, LARGE, check_for_block, new_whole};
use crate::cache::{CacheError, ReadHint};
use crate::event::{Concern, Event};
use crate::frame::{FolioRun, FrameFlags};
use crate::machine::Machine;
use crate::memory::Gfp;
use crate::mm_core::MmCore;
use crate::rmap::UnmapMode;
use crate::space::fault::map_whole;
use crate::space::unmap::zap_if;
use crate::space::{Space, VmaView};
use crate::table::{Bits, EntryRun};
use crate::tlb::UnmapBatch;
use crate::units::*;

/// Collapse the 2 MiB from `at` on, which show a file from a multiple of 2 MiB on.
pub(super) fn collapse<M: Machine>(
    core: &MmCore<M>,
    (id, space): (SpaceId, &Space),
    view: &VmaView,
    at: Vpn,
    (file, index): (FileId, PageIndex),
    limits: CollapseLimits,
    gfp: Gfp,
) -> Result<Collapsed, Failed> {
    let end = Vpn(at.0 + LARGE);
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
        // A private copy keeps its page, and so the others theirs.
        return Err(CollapseError::Unfit.into());
    }
    let folio = one_folio(core, file, index, limits, gfp)?;
    // What was mapped again meanwhile, and the table.
    let its_own = |run: &EntryRun| run.entry.pfn() == folio.add((run.page.0 - at.0) as u32);
    core.gather(id, |gather| {
        zap_if(core, id, (at, end), false, gather, its_own);
        core.tables.lock(core, id).take_empty_tables((at, end), (at, end), gather);
    });
    let mapped = map_whole(core, (id, space), view, at, (file, index), gfp);
    core.put(folio);
    if mapped? { Ok(Collapsed::Now) } else { Err(CollapseError::Unfit.into()) }
}

/// The folio that holds 2 MiB of a file, with a reference: the one that is there, or one that is made of those that
/// are.
fn one_folio<M: Machine>(
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
    if let Some(folio) = core.cache.resident_large(core, file, first) {
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
            Err(CacheError::BeyondEnd) => return Err(CollapseError::Unfit.into()),
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

/// Lock, unmap and replace the folios that hold 2 MiB of a file by `whole`, and free them.
fn replace_parts<M: Machine>(core: &MmCore<M>, file: FileId, first: PageIndex, whole: Pfn) -> bool {
    let memory = core;
    let Some(parts) = core.cache.lock_parts(memory, file, first) else { return false };
    let mut batch = UnmapBatch::new(memory);
    for &part in &parts {
        let mode = UnmapMode { ignore_mlock: true };
        let dirty = core.rmap.try_to_unmap(memory, FolioRun::one(&part), mode, &mut batch);
        dirty.iter().for_each(|(_, part)| core.cache.mark_dirty(memory, part));
    }
    // No CPU can store to what is about to be copied.
    batch.settle(memory, &core.tlb);
    if !core.cache.collapse(memory, file, first, &parts, whole) {
        core.cache.unlock_parts(memory, &parts);
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
