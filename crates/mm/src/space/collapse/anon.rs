//! Collapse of anonymous memory: the pages and smaller folios that map 2 MiB of a private range are copied to one
//! folio.
//!
//! 1. The entries are read and checked against the limits. Nothing has changed yet.
//! 2. Swapped pages are read back, and a folio of 2 MiB is allocated. Both may take a while; no page-table lock is
//!    held.
//! 3. Under the page-table lock the entries are read and checked again, and each folio is locked. Its lock must be
//!    free, and its entries and the swap cache must hold the only references to it. If one of the folios fails, all
//!    are unlocked and nothing has changed. Otherwise the table is taken out of the tree, and every CPU flushes it
//!    ([`Detached`]). Still under the page-table lock, the entries are uncounted.
//! 4. The folios are copied and holes are zeroed; the large entry is made; the old folios lose their entries'
//!    references.
//!
//! *Why no store is lost.* From the flush in 3 to the entry in 4 no CPU can store to the pages by these addresses:
//! none holds a translation, and the table is in no tree. No other address allows it either: a page that another
//! process maps, too, is mapped read-only everywhere. So throughout this time the copy is what a load would read.
//! After 3 nothing can fail, so nothing has to be undone.
//!
//! *What may run in between?* Faults, madvise, munmap, mprotect, mremap and fork of this space need its mapping
//! semaphore, which is held alone: a CPU that misses its translation waits. Others do not take the semaphore:
//! - Reclaim locks a folio before it unmaps it, and skips a locked one. Before 3 it may swap out any of them, so the
//!   entries are checked twice. A folio that it has only isolated has an extra reference, and counts as in use.
//! - A split takes the folio's lock, so the folios keep their sizes until they are unlocked.
//! - A fork of another process that shares some of the pages, and a store by it, use its own entries. A store that
//!   could reuse the page tries the lock, fails, and copies.
//! - The OOM reaper takes entries without waiting. It does not find those of the detached table; they go with the
//!   space.
//! - Walks that look at young bits find no entries, and take the pages for unused.
//!
//! A run of entries of one folio counts as used if any of its pages was. Other processes keep their entries and the old
//! folios.

use super::{CollapseError, CollapseLimits, Collapsed, Failed, LARGE, check_for_block, new_whole};
use crate::cache::free_swap;
use crate::frame::{FolioPages, FrameFlags};
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::rmap::Tally;
use crate::space::FaultStop;
use crate::space::fault::{PmdRange, map_copy, swap_in_all};
use crate::table::{Bits, Detached, EntryRun, LockedTables, Resident, Source};
use crate::units::*;
use std_alloc::vec::Vec;

/// Collapse 2 MiB of a private range.
pub(super) fn collapse<M: Machine>(
    core: &MmCore<M>,
    place: &PmdRange<'_>,
    limits: CollapseLimits,
) -> Result<Collapsed, Failed> {
    let &PmdRange { id, start: at, gfp, .. } = place;
    let found = {
        let mut tables = core.tables.lock(core, id);
        if tables.find(at).is_some_and(|run| run.is_large()) {
            return Ok(Collapsed::Before);
        }
        survey(core, &mut tables, at, limits, |pages| check_idle(core, pages.head))?
    };
    check_for_block(core, gfp)?;
    if found.swapped > 0 {
        // Read back only pages of memory that is used: otherwise they would soon be swapped out again.
        if limits.used && found.used < LARGE / 2 {
            return Err(CollapseError::Unused.into());
        }
        match swap_in_all(core, place) {
            Ok(()) => {}
            Err(FaultStop::Shortage(shortage)) => return Err(shortage.into()),
            Err(FaultStop::Error(_)) => return Err(CollapseError::NotPresent.into()),
        }
    }
    let whole = new_whole(core, gfp)?;
    match take(core, id, at, limits) {
        Ok((detached, parts)) => {
            parts.copy_to(core, &detached, whole);
            map_copy(core, place, detached, whole);
            parts.free(core);
            Ok(Collapsed::Now)
        }
        Err(refused) => {
            core.put(whole);
            Err(refused.into())
        }
    }
}

/// Counts over the entries of 2 MiB.
#[derive(Default)]
struct PteScan {
    /// Pages with an entry of their own; the others are holes or the page of zeroes.
    pages: u64,
    /// Pages in swap.
    swapped: u64,
    /// Pages that other processes map, too.
    shared: u64,
    /// Pages that were used lately.
    used: u64,
    writable: bool,
}

/// Read the entries of the 2 MiB from `at` on, which no large entry maps, and check them against the limits. `each`
/// gets the pages of each run, and may refuse them.
fn survey<M: Machine>(
    core: &MmCore<M>,
    tables: &mut LockedTables<'_, M>,
    at: Vpn,
    limits: CollapseLimits,
    mut each: impl FnMut(FolioPages) -> Result<(), CollapseError>,
) -> Result<PteScan, CollapseError> {
    if tables.find(at).is_none() {
        return Err(CollapseError::Empty);
    }
    let (mut found, mut refused) = (PteScan::default(), None);
    tables.for_each(at, Vpn(at.0 + LARGE), |_, run| {
        if refused.is_none() {
            refused = found.add(core, &run, limits).and_then(|pages| pages.map_or(Ok(()), &mut each)).err();
        }
    });
    let missing = LARGE - found.pages - found.swapped;
    match refused {
        Some(refused) => Err(refused),
        None if missing > limits.none => Err(CollapseError::Missing),
        None if !found.writable => Err(CollapseError::ReadOnly),
        None if limits.used && found.used == 0 => Err(CollapseError::Unused),
        None => Ok(found),
    }
}

impl PteScan {
    /// Count a run. Returns the pages that it maps, unless they are the page of zeroes.
    fn add<M: Machine>(
        &mut self,
        core: &MmCore<M>,
        run: &EntryRun,
        limits: CollapseLimits,
    ) -> Result<Option<FolioPages>, CollapseError> {
        if run.entry.as_migrating().is_some() {
            return Err(CollapseError::FolioLocked);
        }
        if !run.entry.is_present() {
            self.swapped += 1;
            return if self.swapped > limits.swap { Err(CollapseError::Swapped) } else { Ok(None) };
        }
        let pages = run.mapped(&core.frames);
        if pages.head == core.zero {
            return Ok(None);
        }
        let (frame, count) = (&core.frames[pages.head], pages.count as u64);
        if !frame.is_anon() {
            return Err(CollapseError::Unfit);
        }
        self.pages += count;
        self.writable |= run.entry.has(Bits::WRITE);
        if run.entry.has(Bits::YOUNG) || frame.has(FrameFlags::REFERENCED) {
            self.used += count;
        }
        if core.frames.likely_mapped_shared(pages.head) {
            self.shared += count;
            if self.shared > limits.shared {
                return Err(CollapseError::SharedByOthers);
            }
        }
        Ok(Some(pages))
    }
}

/// Check that the folio is not locked, and has no references but those of its entries and the swap cache.
fn check_idle<M: Machine>(core: &MmCore<M>, head: Pfn) -> Result<(), CollapseError> {
    if core.frames[head].has(FrameFlags::LOCKED) {
        Err(CollapseError::FolioLocked)
    } else {
        check_refs(core, head)
    }
}

fn check_refs<M: Machine>(core: &MmCore<M>, head: Pfn) -> Result<(), CollapseError> {
    let frame = &core.frames[head];
    let known = frame.mapcount() + u32::from(frame.has(FrameFlags::SWAPCACHE));
    if frame.refs() == known { Ok(()) } else { Err(CollapseError::InUse) }
}

/// Take out the table of the 2 MiB from `at` on, and what it maps. On an error nothing has changed.
fn take<M: Machine>(
    core: &MmCore<M>,
    id: SpaceId,
    at: Vpn,
    limits: CollapseLimits,
) -> Result<(Detached, Parts), CollapseError> {
    let mut tables = core.tables.lock(core, id);
    let mut parts = Parts { place: at, ..Parts::default() };
    let found = survey(core, &mut tables, at, limits, |pages| parts.add_folio(core, pages));
    let refused = match found {
        Ok(found) if found.swapped > 0 => Some(CollapseError::NotPresent),
        found => found.err(),
    };
    if let Some(refused) = refused {
        parts.unlock(core);
        return Err(refused);
    }
    tables.for_each(at, Vpn(at.0 + LARGE), |_, run| parts.add_run(core, &run));
    let detached = tables.detach(at).expect("the table must be the one that was surveyed");
    let mut tally = Tally::new(core);
    for &(_, pages) in &parts.runs {
        core.rmap.remove_tallied(core, (&core.frames[pages.head], true), pages, &mut tally);
        tables.counts().add(Resident::Anon, -i64::from(pages.count));
    }
    tally.settle(core);
    Ok((detached, parts))
}

/// What maps 2 MiB before the collapse.
#[derive(Default)]
struct Parts {
    /// First page of the 2 MiB.
    place: Vpn,
    /// Pages that entries mapped, with the index of the first entry.
    runs: Vec<(u32, FolioPages)>,
    /// The folios, locked.
    heads: Vec<Pfn>,
}

impl Parts {
    /// Lock the folio of some pages, unless it is in `heads` already.
    fn add_folio<M: Machine>(&mut self, core: &MmCore<M>, pages: FolioPages) -> Result<(), CollapseError> {
        let head = pages.head;
        // A single page has one entry here; a large folio may have several runs.
        if core.frames[head].order() > Order::ZERO && self.heads.contains(&head) {
            return Ok(());
        }
        if !core.try_lock_folio(head) {
            return Err(CollapseError::FolioLocked);
        }
        self.heads.push(head);
        check_refs(core, head)
    }

    fn add_run<M: Machine>(&mut self, core: &MmCore<M>, run: &EntryRun) {
        let pages = run.mapped(&core.frames);
        if pages.head != core.zero {
            self.runs.push(((run.page.0 - self.place.0) as u32, pages));
        }
    }

    fn unlock<M: Machine>(&self, core: &MmCore<M>) {
        self.heads.iter().for_each(|&head| core.unlock_folio(head));
    }

    /// Copy the content of the 2 MiB to `whole`.
    fn copy_to<M: Machine>(&self, core: &MmCore<M>, detached: &Detached, whole: Pfn) {
        let zero = |from: u32, to: u32| {
            if to > from {
                core.zero(whole.add(from), to - from);
            }
        };
        let mut at = 0;
        for &(first, pages) in &self.runs {
            zero(at, first);
            core.copy(whole.add(first), Source::detached(detached, pages));
            at = first + pages.count;
        }
        zero(at, LARGE as u32);
    }

    /// Unlock the folios and drop the references of their entries. This frees most of them.
    fn free<M: Machine>(self, core: &MmCore<M>) {
        for &head in &self.heads {
            let frame = &core.frames[head];
            let mapped = core.frames.pages_mapped(head);
            if mapped == 0 {
                free_swap(core, head);
            } else if mapped < frame.pages() {
                core.lru.defer_split(core, head);
            }
            core.unlock_folio(head);
        }
        core.put_folios(self.runs.iter().map(|&(_, pages)| (pages.head, pages.count)));
    }
}
