//! Collapse: what 2 MiB of a mapped file are made of becomes one folio, and is mapped by one entry.
//!
//! 1. Pages that are missing are read, or brought back from swap, as far as the caller's limits allow.
//! 2. The folios are locked, their mappings are taken away everywhere, as reclaim does, and one folio of 2 MiB comes into
//!    their place ([`Cache::collapse`](crate::cache::Cache::collapse)).
//! 3. Entries for its pages that the space has made since go with their table, which may be empty, and one entry is made.
//!    Other spaces keep their empty tables until somebody comes by there, too: that takes their semaphores.
//!
//! The copies say what the originals said, so nobody need be told at once: an entry that was unmapped and whose flush waits
//! leads to a frame that is not used again before, and the file's debt is paid before its content changes. The table is flushed
//! before it is freed, with the entry that led to it, and before the large one is made.
//!
//! The mapping semaphore is held alone all the time, also while pages are read: Linux lets go of it and starts again. Ranges
//! of anonymous memory are left as they are.

use super::fault::map_whole;
use super::unmap::zap_if;
use super::{Space, Spaces, Stop, VmaView};
use crate::alloc::Mark;
use crate::api::Error;
use crate::cache::{CacheError, ReadHint};
use crate::event::{Concern, Event};
use crate::frame::FrameFlags;
use crate::knobs::Knob;
use crate::machine::{Machine, WaitKey};
use crate::memory::Gfp;
use crate::rmap::UnmapMode;
use crate::stat::Stat;
use crate::store::Store;
use crate::table::{Bits, Run};
use crate::tlb::{Batch, Purpose};
use crate::units::*;

pub(super) const LARGE: u64 = TABLE_ENTRIES as u64;

/// What may be missing of 2 MiB that are collapsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CollapseLimits {
    /// Pages that are not in memory.
    pub none: u64,
    /// Pages that are in swap.
    pub swap: u64,
}

impl CollapseLimits {
    /// Whatever is missing: somebody asked for it.
    pub const ASKED: CollapseLimits = CollapseLimits { none: LARGE, swap: LARGE };

    /// khugepaged's.
    pub fn of_daemon<M: Machine>(st: &Store<M>) -> CollapseLimits {
        let [none, swap] =
            [Knob::KhugepagedMaxPtesNone, Knob::KhugepagedMaxPtesSwap].map(|knob| st.knobs.get(knob));
        CollapseLimits { none, swap }
    }
}

/// What came of one try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Collapsed {
    /// A large entry maps the 2 MiB now.
    Now,
    /// One did before.
    Before,
    /// Not to be done here or now.
    No,
}

impl Spaces {
    /// madvise(MADV_COLLAPSE): map all 2 MiB that lie in the range by one entry each. Returns how many are mapped so then.
    /// [`Error::Invalid`]: there are none that can be, of any file.
    pub fn collapse<M: Machine>(
        &self,
        st: &Store<M>,
        id: SpaceId,
        start: Vpn,
        pages: u64,
        gfp: Gfp,
    ) -> Result<u64, Stop> {
        let space = self.at(id);
        let _held = space.mapping.write(&st.machine, WaitKey::Space(id));
        let first = start.0.next_multiple_of(LARGE);
        let end = start.0.saturating_add(pages) / LARGE * LARGE;
        let (mut found, mut mapped) = (false, 0);
        for at in (first..end).step_by(LARGE as usize).map(Vpn) {
            let view = space.vmas.lock().find(at);
            let Some((view, file, index)) = view.and_then(|view| suits(&view, at)) else { continue };
            found = true;
            let done = collapse_at(st, (id, space), &view, at, (file, index), CollapseLimits::ASKED, gfp)?;
            mapped += u64::from(done != Collapsed::No);
        }
        if found { Ok(mapped) } else { Err(Error::Invalid.into()) }
    }
}

/// What of which file the 2 MiB from `at` on show, if one entry could map them.
pub(super) fn suits(view: &VmaView, at: Vpn) -> Option<(VmaView, FileId, PageIndex)> {
    let (file, index) = view.file_index(at)?;
    let inside = view.start <= at && at.0 + LARGE <= view.end().0;
    (inside && index.0.is_multiple_of(LARGE)).then_some((*view, file, index))
}

/// Collapse the 2 MiB from `at` on, in a range that suits. The mapping semaphore is held alone.
pub(super) fn collapse_at<M: Machine>(
    st: &Store<M>,
    (id, space): (SpaceId, &Space),
    view: &VmaView,
    at: Vpn,
    (file, index): (FileId, PageIndex),
    limits: CollapseLimits,
    gfp: Gfp,
) -> Result<Collapsed, Stop> {
    let end = Vpn(at.0 + LARGE);
    let (mut large, mut of_file) = (false, true);
    {
        let mut tables = st.tables.lock(st.memory().ground(), id);
        tables.for_each(at, end, |_, run| {
            large |= run.is_large();
            of_file &= run.entry.has(Bits::PRESENT) && !st.frames[run.mapped(&st.frames).head].is_anon();
        });
    }
    if large || !of_file {
        // A private copy keeps its page, and so the others theirs.
        return Ok(if large { Collapsed::Before } else { Collapsed::No });
    }
    let Some(folio) = one_folio(st, file, index, limits, gfp)? else { return Ok(Collapsed::No) };
    // What was mapped again meanwhile, and the table.
    let its_own = |run: &Run| run.entry.pfn() == folio.add((run.page.0 - at.0) as u32);
    st.gather(id, Purpose::Meaning, |gather| {
        zap_if(st, id, (at, end), false, gather, its_own);
        st.tables.lock(st.memory().ground(), id).take_empty_tables((at, end), (at, end), gather);
    });
    let mapped = map_whole(st, (id, space), *view, at, (file, index), gfp);
    st.put(folio);
    Ok(if mapped? { Collapsed::Now } else { Collapsed::No })
}

/// The folio that holds 2 MiB of a file, with a reference: the one that is there, or one that is made of those that are.
fn one_folio<M: Machine>(
    st: &Store<M>,
    file: FileId,
    first: PageIndex,
    limits: CollapseLimits,
    gfp: Gfp,
) -> Result<Option<Pfn>, Stop> {
    let range = first.0..first.0 + LARGE;
    if range.end > st.cache.file(file).pages() {
        return Ok(None);
    }
    if let Some(folio) = st.cache.resident_large(st.memory(), file, first) {
        return Ok(Some(folio));
    }
    let found = st.cache.survey(file, first);
    let none = LARGE.saturating_sub(found.cached + found.swapped);
    if found.cached + found.swapped == 0 || none > limits.none || found.swapped > limits.swap {
        return Ok(None);
    }
    // Before the work is done: memory need not be put together for it.
    if !st.has_block(PAGEBLOCK_ORDER, Gfp { mark: Mark::Low, ..gfp }) {
        st.count(Stat::ThpCollapseAllocFailed, 1);
        return Ok(None);
    }
    let mut from = range.start;
    while let Some(index) = st.cache.next_absent(file, from..range.end) {
        match st.cache.get_page(
            st.memory(),
            file,
            index,
            ReadHint { sequential: true, ..ReadHint::default() },
            gfp,
        ) {
            Ok(page) => st.put(page.folio),
            Err(CacheError::Shortage(shortage)) => return Err(shortage.into()),
            Err(CacheError::BeyondEnd) => return Ok(None),
        }
        from = index.0 + 1;
    }
    let Ok(whole) = st.new_folio(PAGEBLOCK_ORDER, gfp) else {
        st.count(Stat::ThpCollapseAllocFailed, 1);
        return Ok(None);
    };
    st.count(Stat::ThpCollapseAlloc, 1);
    st.frames[whole].set(FrameFlags::LOCKED);
    let done = replace_parts(st, file, first, whole);
    st.unlock_folio(whole);
    if !done {
        st.put(whole);
    }
    Ok(done.then_some(whole))
}

/// Lock, unmap and replace the folios that hold 2 MiB of a file by `whole`, and free them.
fn replace_parts<M: Machine>(st: &Store<M>, file: FileId, first: PageIndex, whole: Pfn) -> bool {
    let memory = st.memory();
    let Some(parts) = st.cache.lock_parts(memory, file, first) else { return false };
    let mut batch = Batch::new(memory.ground());
    for &part in &parts {
        let unmapped = st.rmap.try_to_unmap(memory, part, UnmapMode { ignore_mlock: true }, &mut batch);
        if unmapped.dirty {
            st.cache.mark_dirty(memory, part);
        }
    }
    // No CPU can store to what is about to be copied.
    batch.settle(memory.ground(), &st.tlb);
    if !st.cache.collapse(memory, file, first, &parts, whole) {
        st.cache.unlock_parts(memory, &parts);
        return false;
    }
    for &part in &parts {
        st.unlock_folio(part);
        let concern = Concern::Frames { first: part, count: st.frames[part].pages() };
        st.event(Event::TlbHazard, concern.args());
    }
    st.free_folios(&parts);
    true
}
