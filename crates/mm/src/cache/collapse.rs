//! Putting one folio of 2 MiB in the place of the smaller ones that hold these pages of a file.
//!
//! The caller locks the parts ([`Cache::lock_parts`]), takes their mappings away, and then has this copy them. Nobody
//! may change what is copied: write(2) and the first store through a mapping wait for the lock, but shmem is mapped for
//! writing without it. So the parts' references are *frozen* first: that fails if anybody but the cache and the caller
//! has one, as every entry does, and while it lasts nobody gets one. Who looks a page up meanwhile looks again until
//! the new folio stands there. Pages that are missing (holes of shmem) stay so till the end, or nothing is changed.

use super::Cache;
use super::split::CACHE_AND_CALLER;
use super::tree::{PageTree, TreeMark};
use crate::frame::{FrameFlags, Owner};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::units::*;
use core::ops::Range;
use std_alloc::vec::Vec;

/// What of 2 MiB of a file is where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Survey {
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
    /// Where are the 2 MiB of a file from `first` on?
    pub fn survey(&self, file: FileId, first: PageIndex) -> Survey {
        let tree = self.file(file).tree.lock();
        let cached = tree.folios_in(TreeMark::Folio, place(first)).map(|(_, folio)| folio.pages()).sum();
        Survey { cached, swapped: tree.iter(TreeMark::Swap, place(first)).count() as u64 }
    }

    /// The first page of a range of a file that is not in memory, from `from` on; for shmem, the first that is in swap.
    pub fn next_absent(&self, file: FileId, range: Range<u64>) -> Option<PageIndex> {
        let f = self.file(file);
        let tree = f.tree.lock();
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

    /// Lock the folios that hold 2 MiB of a file, which take the caller's references. `None`, and all is as it was: one
    /// is in use, being read or written, locked in memory, or dirty and to be written first.
    pub fn lock_parts<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        first: PageIndex,
    ) -> Option<Vec<Pfn>> {
        let f = self.file(file);
        let mut parts = Vec::new();
        let mut at = first.0;
        while let Some((index, folio)) = {
            let tree = f.tree.lock();
            let mut folios = tree.folios_in(TreeMark::Folio, at..place(first).end);
            folios.next().filter(|(_, folio)| memory.frames[folio.head].try_get())
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
        }
        let rest = f.tree.lock().folios_in(TreeMark::Folio, at..place(first).end).next();
        if rest.is_some() || parts.is_empty() {
            self.unlock_parts(memory, &parts);
            return None;
        }
        Some(parts)
    }

    /// Let go of what [`Cache::lock_parts`] has locked.
    pub fn unlock_parts<M: Machine>(&self, memory: &Memory<M>, parts: &[Pfn]) {
        for &part in parts {
            memory.unlock_folio(part);
            memory.put(part);
        }
    }

    /// Put `whole`, a new folio of 2 MiB that is the caller's and locked, in the place of the locked parts, which are
    /// not mapped. They then belong to nobody: the caller unlocks and frees them. `false`, and nothing has changed: one
    /// is in use, the file has become too short, or a page has come to where none was.
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
            // A mapping told so when it went.
            return false;
        }
        let range = place(first);
        // Holes of shmem are zeroes.
        let zero = |from: u64, to: u64| {
            if to > from {
                memory.zero(whole.add((from - first.0) as u32), (to - from) as u32);
            }
        };
        let mut at = first.0;
        for &part in parts {
            let (index, pages) = (frames[part].page_index().0, frames[part].pages());
            zero(at, index);
            memory.copy(whole.add((index - first.0) as u32), part, pages);
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
        memory.lru.add(memory, [whole], false);
        true
    }
}
