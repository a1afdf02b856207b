//! Replacing the folios that hold 2 MiB of a file by one folio of 2 MiB.
//!
//! The caller locks the parts ([`Cache::lock_parts`]), unmaps them, and then has them copied here. The content must
//! not change during the copy: write(2) and the first store through a mapping wait for the lock, but shmem is mapped
//! writable without it. So the parts' references are *frozen* first: this fails if there are references other than the
//! cache's and the caller's (every entry has one), and prevents new ones. A task that looks a page up in the meantime
//! retries until the new folio is there. If a missing page (a hole of shmem) appears before the end, nothing is
//! changed.

use super::Cache;
use super::split::CACHE_AND_CALLER;
use super::tree::{PageTree, TreeMark};
use crate::frame::{FrameFlags, Owner};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::table::Source;
use crate::units::*;
use core::ops::Range;
use std_alloc::vec::Vec;

/// Where the pages of 2 MiB of a file are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Survey {
    /// Pages in memory.
    pub cached: u64,
    /// Pages of shmem in swap.
    pub swapped: u64,
}

/// The 2 MiB of a file from an index on.
fn place(first: PageIndex) -> Range<u64> {
    first.0..first.0 + PAGEBLOCK_ORDER.frames() as u64
}

impl Cache {
    /// Where the pages of the 2 MiB of a file from `first` on are.
    pub(crate) fn survey(&self, file: FileId, first: PageIndex) -> Survey {
        let tree = self.file(file).tree.look();
        let cached = tree.folios_in(TreeMark::Folio, place(first)).map(|(_, folio)| folio.pages()).sum();
        Survey { cached, swapped: tree.iter(TreeMark::Swap, place(first)).count() as u64 }
    }

    /// The first page of a range of a file that is not in memory; of shmem, the first that is in swap.
    pub(crate) fn next_absent(&self, file: FileId, range: Range<u64>) -> Option<PageIndex> {
        let f = self.file(file);
        let tree = f.tree.look();
        if f.is_shmem() {
            return tree.iter(TreeMark::Swap, range).next().map(|(index, _)| index);
        }
        let mut at = range.start;
        for (index, folio) in tree.folios_in(TreeMark::Folio, range.clone()) {
            if index.0 > at {
                break;
            }
            at = folio.end(index);
        }
        (at < range.end).then_some(PageIndex(at))
    }

    /// Lock the folios that hold 2 MiB of a file, with a reference to each for the caller. `None`, and nothing is
    /// changed: a folio is in use, being read or under write-back, locked in memory, or dirty and must be written
    /// first; or a page is missing that is no hole: reclaim has taken it since it was read.
    pub(crate) fn lock_parts<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        first: PageIndex,
    ) -> Option<Vec<Pfn>> {
        let f = self.file(file);
        let (mut parts, mut held) = (Vec::new(), 0);
        let mut at = first.0;
        while let Some((index, folio)) = {
            let tree = f.tree.look();
            let mut folios = tree.folios_in(TreeMark::Folio, at..place(first).end);
            folios.next().filter(|(_, folio)| memory.try_get(folio.head))
        } {
            let (pfn, frame) = (folio.head, &memory.frames[folio.head]);
            if !memory.try_lock_folio(pfn) {
                memory.put(pfn);
                break;
            }
            parts.push(pfn);
            let unfit = FrameFlags::WRITEBACK | FrameFlags::MLOCKED;
            let unwritten = frame.has(FrameFlags::DIRTY) && !f.is_shmem();
            let small = folio.order < PAGEBLOCK_ORDER;
            let there = small && frame.owner() == Owner::File(file) && frame.page_index() == index;
            if !there || unwritten || frame.has_any(unfit) || !frame.has(FrameFlags::UPTODATE) {
                break;
            }
            at = folio.end(index);
            held += folio.pages();
        }
        let complete = f.is_shmem() || held == PAGEBLOCK_ORDER.frames() as u64;
        let rest = f.tree.look().folios_in(TreeMark::Folio, at..place(first).end).next();
        if rest.is_some() || parts.is_empty() || !complete {
            self.unlock_parts(memory, &parts);
            return None;
        }
        Some(parts)
    }

    /// Unlock the folios that [`Cache::lock_parts`] has locked, and drop the references.
    pub(crate) fn unlock_parts<M: Machine>(&self, memory: &Memory<M>, parts: &[Pfn]) {
        for &part in parts {
            memory.unlock_folio(part);
            memory.put(part);
        }
    }

    /// Replace the locked parts, which are not mapped, by `whole`, a new and locked folio of 2 MiB. Afterwards the
    /// parts have no owner: the caller unlocks and frees them. Returns `false`, and changes nothing, if a part is in
    /// use, the file has become too short, or a missing page has appeared.
    pub fn collapse<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        first: PageIndex,
        parts: &[Pfn],
        whole: Pfn,
    ) -> bool {
        let frames = &memory.frames;
        let freeze = |&&part: &&Pfn| frames[part].mapcount() == 0 && frames[part].freeze(CACHE_AND_CALLER);
        let frozen = parts.iter().take_while(freeze).count();
        let done = frozen == parts.len() && self.replace_frozen(memory, file, first, parts, whole);
        if !done {
            parts[..frozen].iter().for_each(|&part| frames[part].unfreeze(CACHE_AND_CALLER));
        }
        done
    }

    fn replace_frozen<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        first: PageIndex,
        parts: &[Pfn],
        whole: Pfn,
    ) -> bool {
        let (f, frames) = (self.file(file), &memory.frames);
        let unwritten = |&part: &Pfn| frames[part].has(FrameFlags::DIRTY);
        let dirty = parts.iter().any(unwritten);
        if dirty && !f.is_shmem() {
            // An entry was dirty when it was unmapped.
            return false;
        }
        let range = place(first);
        // Holes of shmem read as zeroes.
        let zero = |from: u64, to: u64| {
            if to > from {
                memory.zero(whole.add((from - first.0) as u32), (to - from) as u32);
            }
        };
        let mut at = first.0;
        for &part in parts {
            let (index, pages) = (frames[part].page_index().0, frames[part].pages());
            zero(at, index);
            memory.copy(whole.add((index - first.0) as u32), Source::frozen(frames, part));
            at = index + pages as u64;
        }
        zero(at, range.end);
        let fits = |tree: &PageTree| {
            let same = tree.folios_in(TreeMark::Folio, range.clone()).count() == parts.len();
            same && tree.iter(TreeMark::Swap, range.clone()).next().is_none() && range.end <= f.pages()
        };
        let ready = || {
            let mut flags = FrameFlags::UPTODATE;
            flags.set(FrameFlags::DIRTY, dirty);
            flags.set(FrameFlags::SWAPBACKED, f.is_shmem());
            frames[whole].set(flags);
            frames[whole].set_owner(Owner::File(file), first);
            true
        };
        if !self.put_in_place(memory, file, parts, whole, |tree| fits(tree) && ready()) {
            return false;
        }
        for &part in parts {
            frames[part].set_owner(Owner::None, PageIndex(0));
        }
        memory.lru.add(memory, Some(whole), false);
        true
    }
}
