//! Many single pages of one file that come or go in one step.
//!
//! Read-ahead adds pages that follow each other, reclaim evicts them in the order in which they were read. What all of
//! them need (the tree's lock, what is known of the lists, the counters) is had once for as many as come together. Each
//! of them is still a folio by itself, with its own place, shadow and references.

use super::Cache;
use super::file::File;
use super::readahead::count_read;
use super::tree::Occupied;
use crate::alloc::Watermark;
use crate::frame::{FrameFlags, Owner};
use crate::machine::{Io, Machine, Scope, Work};
use crate::memory::{Gfp, Memory, Shortage};
use crate::stat::Stat;
use crate::units::*;
use core::ops::Range;
use smallvec::SmallVec;

/// Most pages that are added in one step.
const TOGETHER: usize = 32;

/// Some new pages and their places.
type Places = SmallVec<[(PageIndex, Pfn); TOGETHER]>;

impl Cache {
    /// Start to read the pages of a range that are not cached, each a folio by itself; the one at `mark` is marked
    /// READAHEAD. Stops where memory is short.
    pub(super) fn read_pages<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        range: Range<u64>,
        mark: Option<u64>,
        mut gfp: Gfp,
    ) {
        let f = self.file(id);
        let mut from = range.start;
        while from < range.end {
            let mut places = Places::new();
            {
                let tree = f.tree.lock();
                while from < range.end && places.len() < TOGETHER {
                    let index = PageIndex(from);
                    match tree.folio(index) {
                        Some(folio) => from = folio.end(index),
                        None => {
                            places.push((index, Pfn::NONE));
                            from += 1;
                        }
                    }
                }
            }
            let complete = self.add_pages(memory, id, &mut places, &mut gfp).is_ok();
            if let Some(&(_, pfn)) = places.iter().find(|(index, _)| Some(index.0) == mark) {
                memory.frames[pfn].set(FrameFlags::READAHEAD);
            }
            self.fill_pages(memory, f, &places);
            if !complete {
                return;
            }
        }
    }

    /// Add new pages at some places, in order: locked, in the tree, on a list, and to be filled. Their one reference is
    /// the cache's: while they are locked they stay. `places` is left with those that were added; not among them are
    /// places that somebody else was faster at, or that a cut has left behind the file's end. `Err`: there was no
    /// memory for all.
    fn add_pages<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        places: &mut Places,
        gfp: &mut Gfp,
    ) -> Result<(), Shortage> {
        let _scope = memory.scope(Scope::FilemapAddFolio);
        let f = self.file(id);
        let flags =
            FrameFlags::LOCKED | if f.is_shmem() { FrameFlags::SWAPBACKED } else { FrameFlags::empty() };
        let mut result = Ok(());
        for at in 0..places.len() {
            match new_page(memory, gfp) {
                Ok(pfn) => {
                    memory.frames[pfn].set(flags);
                    memory.frames[pfn].set_owner(File::owner(id), places[at].0);
                    places[at].1 = pfn;
                }
                Err(shortage) => {
                    places.truncate(at);
                    result = Err(shortage);
                    break;
                }
            }
        }
        let mut back: SmallVec<[(Pfn, Shadow); TOGETHER]> = SmallVec::new();
        let mut refused: SmallVec<[Pfn; 4]> = SmallVec::new();
        let mut tree = f.tree.lock();
        let end = f.pages();
        let (mut at, mut kept) = (0, 0);
        while at < places.len() {
            let mut leaf = tree.leaf_or_new(places[at].0);
            while let Some(&(index, pfn)) = places.get(at)
                && let Some(slot) = leaf.slot(index)
            {
                at += 1;
                let added = if index.0 < end { leaf.insert(slot, pfn) } else { Err(Occupied) };
                let Ok(shadow) = added else {
                    refused.push(pfn);
                    continue;
                };
                if let Some(shadow) = shadow {
                    back.push((pfn, shadow));
                }
                places[kept] = (index, pfn);
                kept += 1;
            }
            leaf.finish();
        }
        places.truncate(kept);
        let changes = tree.take_node_changes();
        drop(tree);
        self.apply_node_changes(memory, id, changes);
        for pfn in refused {
            memory.frames[pfn].clear(FrameFlags::LOCKED);
            memory.put(pfn);
        }
        memory.charge(Work::CacheInsert, places.len() as u64);
        memory.count(Stat::NrFilePages, places.len() as i64);
        if f.is_shmem() {
            memory.count(Stat::NrShmem, places.len() as i64);
        }
        memory.lru.refault(memory, &back, || memory.swap.free_slots(), gfp.is_faulted());
        memory.lru.add(memory, places.iter().map(|&(_, pfn)| pfn), gfp.is_faulted());
        result
    }

    /// Start to fill new, locked pages with their content. Each is unlocked when it is up to date.
    fn fill_pages<M: Machine>(&self, memory: &Memory<M>, f: &File, places: &Places) {
        let [Some(&(first, _)), Some(&(last, _))] = [places.first(), places.last()] else { return };
        if f.is_shmem() || !f.extents.lock().holds_all(first.0..last.0 + 1) {
            return places.iter().for_each(|&(_, pfn)| self.fill(memory, f, pfn));
        }
        count_read(memory, places.len() as u32);
        memory.charge(Work::IoSubmit, places.len() as u64);
        for &(index, frame) in places {
            let (device, block) = f.place(index);
            memory.machine.submit(Io { device, write: false, block, frame, pages: 1 });
        }
    }

    /// Take those of some locked pages of a file, each a folio by itself, whose bits are set in `wanted` out of its
    /// cache, if they are clean and there are exactly `refs` references of them, which are then frozen. Each leaves its
    /// `shadow`. Returns the bits of those that are out.
    pub fn evict_pages<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        pfns: &[Pfn],
        mut wanted: u32,
        refs: u32,
        shadow: impl Fn(Pfn) -> Shadow,
    ) -> u32 {
        let f = self.file(id);
        let mut out: u32 = 0;
        while wanted != 0 {
            // One leaf in each hold of the lock: if it holds only shadows from then on, that is heard of.
            let frame = |at: u32| &memory.frames[pfns[at as usize]];
            let mut tree = f.tree.lock();
            let mut leaf = tree.leaf(frame(wanted.trailing_zeros()).page_index());
            while wanted != 0 {
                let at = wanted.trailing_zeros();
                let (pfn, frame) = (pfns[at as usize], frame(at));
                let Some(slot) = leaf.slot(frame.page_index()) else { break };
                wanted &= wanted - 1;
                if !frame.freeze(refs) {
                    continue;
                }
                if frame.has(FrameFlags::DIRTY) {
                    frame.unfreeze(refs);
                    continue;
                }
                let evicted = leaf.evict(slot, shadow(pfn));
                assert_eq!(evicted, pfn, "another page stood in the place of what is evicted");
                frame.set_owner(Owner::None, PageIndex(0));
                out |= 1 << at;
            }
            leaf.finish();
            let changes = tree.take_node_changes();
            drop(tree);
            self.apply_node_changes(memory, id, changes);
        }
        if out != 0 {
            let pages = out.count_ones();
            memory.charge(Work::CacheRemove, u64::from(pages));
            memory.count(Stat::NrFilePages, -i64::from(pages));
        }
        out
    }
}

/// A page for what nobody has asked for yet. What lies between the marks is for the meantime until kswapd, which is
/// woken by the first page that needs it, has made room.
#[inline]
fn new_page<M: Machine>(memory: &Memory<M>, gfp: &mut Gfp) -> Result<Pfn, Shortage> {
    match memory.new_folio(Order::ZERO, *gfp) {
        Err(Shortage::Zone(_)) if gfp.mark == Watermark::Low => {
            gfp.mark = Watermark::Min;
            memory.new_folio(Order::ZERO, *gfp)
        }
        other => other,
    }
}
