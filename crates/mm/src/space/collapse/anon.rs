//! Collapse of anonymous memory: the pages and smaller folios that 2 MiB of a private range are mapped by are copied to
//! one folio.
//!
//! 1. The entries are looked through, and what they say is held against the limits. Nothing has been done then.
//! 2. What is in swap is brought back, and a folio of 2 MiB is got. Both may take a while, in which no lock of the
//!    tables is held.
//! 3. Under the lock of the tables the entries are looked through again, as if for the first time, and each folio is
//!    locked, if nobody else has, and if nobody refers to it but its entries and the swap cache. If one cannot be had,
//!    all are let go, and everything is as it was. Else the table is taken out of the tree, and every CPU drops what it
//!    holds of it ([`Detached`]). Still under the lock, the entries are counted off.
//! 4. The folios are copied, and holes zeroed; the large entry is made; the old folios lose their entries' references.
//!
//! *Why nothing is lost.* From the flush in 3 to the entry in 4 nobody can store to the pages by these addresses: no
//! CPU holds a translation, and the table is in no tree. Nobody can by others: a page that another process maps, too,
//! is mapped read-only by all. So the copy is what a load would have read, at every moment of that time. After 3
//! nothing can fail, so nothing must be put back.
//!
//! *Who may come by meanwhile?* Faults, madvise, munmap, mprotect, mremap and fork of this space want its mapping
//! semaphore, which is held alone: a CPU that misses its translation waits. Others do not ask for the semaphore:
//! - Reclaim locks a folio before it unmaps it, and gives up on one that is locked; before 3 it may swap any of them
//!   out, so the entries are looked through twice. A folio that it has only taken off a list has one reference more:
//!   such a one is in use.
//! - A split takes the folio's lock, too, so the folios have the size that was seen until they are let go.
//! - A fork of another process that shares some of the pages, and a store of it, go by its own entries. A store that
//!   would like to keep the page tries the lock, and copies.
//! - The end of a process that is out of memory takes entries without waiting. Those of the detached table it does not
//!   find: they go with the space.
//! - Walks that look at young bits find nothing there, and think that nobody has used the pages.
//!
//! A run of entries of one folio counts as used if any of its pages was. Other processes keep their entries and the old
//! folios.

use super::{CollapseError, CollapseLimits, Collapsed, Failed, LARGE, check_for_block, new_whole};
use crate::cache::free_swap;
use crate::frame::{FolioPages, FrameFlags};
use crate::machine::Machine;
use crate::memory::Gfp;
use crate::mm_core::MmCore;
use crate::rmap::Tally;
use crate::space::fault::{bring_back, map_copy};
use crate::space::{FaultStop, Space, VmaView};
use crate::table::{Bits, Detached, EntryRun, LockedTables, Resident};
use crate::units::*;
use std_alloc::vec::Vec;

/// Collapse the 2 MiB from `at` on.
pub(super) fn collapse<M: Machine>(
    core: &MmCore<M>,
    (id, space): (SpaceId, &Space),
    view: &VmaView,
    at: Vpn,
    limits: CollapseLimits,
    gfp: Gfp,
) -> Result<Collapsed, Failed> {
    let found = {
        let mut tables = core.tables.lock(core, id);
        if tables.find(at).is_some_and(|run| run.is_large()) {
            return Ok(Collapsed::Before);
        }
        survey(core, &mut tables, at, limits, |pages| if_at_rest(core, pages.head))?
    };
    check_for_block(core, gfp)?;
    if found.swapped > 0 {
        // Work that is for pages that are used: else they would be in swap again soon.
        if limits.used && found.used < LARGE / 2 {
            return Err(CollapseError::Unused.into());
        }
        match bring_back(core, (id, space), view, at, gfp) {
            Ok(()) => {}
            Err(FaultStop::Shortage(shortage)) => return Err(shortage.into()),
            Err(FaultStop::Error(_)) => return Err(CollapseError::NotPresent.into()),
        }
    }
    let whole = new_whole(core, gfp)?;
    match take(core, id, at, limits) {
        Ok((detached, parts)) => {
            parts.copy_to(core, whole);
            map_copy(core, (id, space), view, at, detached, whole, gfp);
            parts.free(core);
            Ok(Collapsed::Now)
        }
        Err(refused) => {
            core.put(whole);
            Err(refused.into())
        }
    }
}

/// What entries of 2 MiB say.
#[derive(Default)]
struct PteScan {
    /// Pages that have an entry of their own: others are holes, or show the page of zeroes.
    pages: u64,
    /// Pages in swap.
    swapped: u64,
    /// Pages that others map, too.
    shared: u64,
    /// Pages that have been used lately.
    used: u64,
    writable: bool,
}

/// Look through the entries of the 2 MiB from `at` on, which no large entry maps, and hold what they say against the
/// limits. `each` is given the pages of each run, and may refuse.
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
    /// Note a run. Returns the pages that it maps, if they are not zeroes.
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

/// Has nobody locked the folio, or a reference to it, but those who map it and the swap cache?
fn if_at_rest<M: Machine>(core: &MmCore<M>, head: Pfn) -> Result<(), CollapseError> {
    if core.frames[head].has(FrameFlags::LOCKED) {
        Err(CollapseError::FolioLocked)
    } else {
        if_unused(core, head)
    }
}

fn if_unused<M: Machine>(core: &MmCore<M>, head: Pfn) -> Result<(), CollapseError> {
    let frame = &core.frames[head];
    let known = frame.mapcount() + u32::from(frame.has(FrameFlags::SWAPCACHE));
    if frame.refs() == known { Ok(()) } else { Err(CollapseError::InUse) }
}

/// Take the table of the 2 MiB from `at` on, and what it maps. If that is refused, everything is as it was.
fn take<M: Machine>(
    core: &MmCore<M>,
    id: SpaceId,
    at: Vpn,
    limits: CollapseLimits,
) -> Result<(Detached, Parts), CollapseError> {
    let mmu = core;
    let mut tables = core.tables.lock(mmu, id);
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
    let detached = tables.detach(at).expect("the table that was looked through");
    let mut tally = Tally::new(mmu);
    for &(_, pages) in &parts.runs {
        core.rmap.remove_tallied(mmu, true, pages, &mut tally);
        tables.counts().add(Resident::Anon, -i64::from(pages.count));
    }
    tally.settle(mmu);
    Ok((detached, parts))
}

/// What 2 MiB are made of.
#[derive(Default)]
struct Parts {
    /// First of the 2 MiB.
    place: Vpn,
    /// Pages that entries mapped, with the number of the first entry.
    runs: Vec<(u32, FolioPages)>,
    /// The folios, locked.
    heads: Vec<Pfn>,
}

impl Parts {
    /// Lock the folio of some pages, unless that has been done.
    fn add_folio<M: Machine>(&mut self, core: &MmCore<M>, pages: FolioPages) -> Result<(), CollapseError> {
        let head = pages.head;
        // The pages of a single folio have one entry here; those of a larger one may have several runs.
        if core.frames[head].order() > Order::ZERO && self.heads.contains(&head) {
            return Ok(());
        }
        if !core.try_lock_folio(head) {
            return Err(CollapseError::FolioLocked);
        }
        self.heads.push(head);
        if_unused(core, head)
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

    /// Have `whole` hold what the 2 MiB show.
    fn copy_to<M: Machine>(&self, core: &MmCore<M>, whole: Pfn) {
        let zero = |from: u32, to: u32| {
            if to > from {
                core.zero(whole.add(from), to - from);
            }
        };
        let mut at = 0;
        for &(first, pages) in &self.runs {
            zero(at, first);
            core.copy(whole.add(first), pages.first, pages.count);
            at = first + pages.count;
        }
        zero(at, LARGE as u32);
    }

    /// Let the folios go, with the references of the entries that mapped them. Most are free then.
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
