//! Adding folios to a file's cache and taking them out.
//!
//! Read-ahead adds consecutive pages, and reclaim evicts them in the order in which they were read. So folios come and
//! go in *runs*: a run needs the tree's lock, the sizes of the lists and the counters once. Each folio of a run still
//! has a place, a shadow and references of its own. One folio is a run of one.

use super::Cache;
use super::file::File;
use super::tree::{CachedFolio, MAX_INDEX, TreeEntry};
use crate::frame::{FolioRun, Frame, FrameFlags, Owner};
use crate::machine::{Machine, Scope, Work};
use crate::memory::{AllocCause, Gfp, Memory, Shortage};
use crate::slab::Record;
use crate::stat::Stat;
use crate::units::*;
use smallvec::SmallVec;

/// Most folios of a run.
pub(super) const RUN: usize = FolioRun::MOST;

impl Cache {
    /// Allocate a folio of `order` for the pages from `first` on and add it, with a reference for the caller, which
    /// has to fill it. `Ok(None)`: one of its indices has a folio already, or the file has become too short.
    pub(super) fn add_new<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        (first, order): (PageIndex, Order),
        gfp: Gfp,
    ) -> Result<Option<Pfn>, Shortage> {
        let _scope = memory.scope(Scope::FilemapAddFolio);
        let pfn = memory.new_folio(order, gfp)?;
        if self.add(memory, id, order, &mut [(first, pfn)], gfp) == 0 {
            return Ok(None);
        }
        memory.frames[pfn].get(1);
        Ok(Some(pfn))
    }

    /// Add new folios of one order at ascending places. Each is locked, in the tree and on a list, and must be filled.
    /// Their only reference is the cache's; they stay while they are locked. Returns how many were added: these are
    /// first in `places` afterwards. The others are freed: another task has added a folio there, or a truncation has
    /// left their place after the end of the file.
    #[inline]
    pub(super) fn add<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        order: Order,
        places: &mut [(PageIndex, Pfn)],
        gfp: Gfp,
    ) -> usize {
        let f = self.file(id);
        let overwrites = gfp.cause == AllocCause::Overwrite;
        let shmem = if f.is_shmem() { FrameFlags::SWAPBACKED } else { FrameFlags::empty() };
        for &(first, pfn) in &*places {
            memory.frames[pfn].set(FrameFlags::LOCKED | shmem);
            memory.frames[pfn].set_owner(Owner::File(id), first);
        }
        let mut back: SmallVec<[(Pfn, Shadow); RUN]> = SmallVec::new();
        let mut refused: SmallVec<[usize; 4]> = SmallVec::new();
        let mut tree = f.tree.lock();
        // A write(2) extends the file after it has added the page.
        let end = if overwrites { MAX_INDEX } else { f.pages() };
        let fits = places.iter().take_while(|(first, _)| first.0 + u64::from(order.frames()) <= end).count();
        tree.insert_run(order, &places[..fits], |at, inserted| match inserted {
            Ok(None) => {}
            Ok(Some(shadow)) => back.push((places[at].1, shadow)),
            Err(_) => refused.push(at),
        });
        self.unlock_tree(memory, id, tree);
        refused.extend(fits..places.len());
        let added = places.len() - refused.len();
        if !refused.is_empty() {
            give_up(memory, places, &refused);
        }
        if added == 0 {
            return 0;
        }
        self.count_added(memory, f, added, added as i64 * i64::from(order.frames()));
        // The return of a page that is overwritten says nothing about the working set.
        if !overwrites {
            memory.lru.refault(memory, &back, || memory.swap.free_slots(), gfp.is_faulted());
        }
        memory.lru.add(memory, places[..added].iter().map(|&(_, pfn)| pfn), gfp.is_faulted());
        added
    }

    /// Count folios with `pages` pages together that entered (`pages` > 0) or left a file's cache.
    pub(super) fn count_added<M: Machine>(&self, memory: &Memory<M>, file: &File, folios: usize, pages: i64) {
        // What a removal costs is charged where the tree is locked.
        memory.charge(Work::CacheInsert, if pages > 0 { folios as u64 } else { 0 });
        memory.count(Stat::NrFilePages, pages);
        if file.is_shmem() {
            memory.count(Stat::NrShmem, pages);
        }
    }

    /// Take a locked folio of a file out of its cache. The caller drops the cache's reference after unlocking.
    pub fn remove<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) {
        let Owner::File(id) = memory.frames[pfn].owner() else {
            unreachable!("folio {pfn} must be of a file")
        };
        self.take_out(memory, id, pfn, None);
    }

    /// Take the wanted folios of a run, which are locked and not mapped, out of their file's cache, if they are clean
    /// and have exactly `refs` references, which stay frozen. Each leaves its `shadow`, except in shmem. Returns the
    /// folios that were taken out.
    pub(crate) fn evict<'a, M: Machine, const N: usize>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        run: FolioRun<'a, N>,
        refs: u32,
        shadow: impl Fn(Pfn) -> Shadow,
    ) -> FolioRun<'a, N> {
        let f = self.file(id);
        let (mut wanted, mut out, mut pages) = (run.wanted(), 0u32, 0);
        let mut buffers = 0;
        while wanted != 0 {
            // One leaf for each hold of the lock, because a leaf that holds only shadows afterwards is reported.
            let mut tree = f.tree.lock();
            let before = out;
            let first = wanted.trailing_zeros() as usize;
            let frame = &memory.frames[run.folio(first)];
            if f.is_shmem() || frame.order() > Order::ZERO {
                wanted &= wanted - 1;
                if frame.freeze_clean(refs) {
                    let rest = (!f.is_shmem()).then(|| TreeEntry::Shadow(shadow(run.folio(first))));
                    let old = tree.replace_folio(frame.page_index(), rest);
                    assert_eq!(old.head, run.folio(first), "the place of an evicted folio must hold it");
                    out |= 1 << first;
                    pages += i64::from(frame.pages());
                    buffers += drop_buffers(frame);
                    frame.set_owner(Owner::None, PageIndex(0));
                }
            } else {
                let mut leaf = tree.leaf(frame.page_index());
                while wanted != 0 {
                    let at = wanted.trailing_zeros() as usize;
                    let frame = &memory.frames[run.folio(at)];
                    let Some(slot) = leaf.slot(frame.page_index()) else { break };
                    wanted &= wanted - 1;
                    if frame.freeze_clean(refs) {
                        let old = leaf.evict(slot, shadow(run.folio(at)));
                        assert_eq!(old, run.folio(at), "the place of an evicted page must hold it");
                        out |= 1 << at;
                        pages += 1;
                        buffers += drop_buffers(frame);
                        frame.set_owner(Owner::None, PageIndex(0));
                    }
                }
                leaf.finish();
            }
            memory.charge(Work::CacheRemove, u64::from((out & !before).count_ones()));
            self.unlock_tree(memory, id, tree);
        }
        if out != 0 {
            self.count_added(memory, f, out.count_ones() as usize, -pages);
            memory.note_records(Record::BufferHead, -buffers);
        }
        run.with(out)
    }

    /// Take a locked folio out of its file's cache, and leave `rest` in its place.
    pub(super) fn take_out<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        pfn: Pfn,
        rest: Option<TreeEntry>,
    ) {
        let (f, frame) = (self.file(id), &memory.frames[pfn]);
        assert!(
            frame.has(FrameFlags::LOCKED) && !frame.has(FrameFlags::WRITEBACK),
            "folio {pfn} must be locked and not under write-back to leave its cache"
        );
        let mut tree = f.tree.lock();
        let old = tree.replace_folio(frame.page_index(), rest);
        assert_eq!(
            old,
            CachedFolio { head: pfn, order: frame.order() },
            "the place of folio {pfn} must hold it"
        );
        let was_dirty = !f.is_shmem() && frame.test_and_clear(FrameFlags::DIRTY);
        let buffers = drop_buffers(frame);
        frame.set_owner(Owner::None, PageIndex(0));
        memory.charge(Work::CacheRemove, 1);
        self.unlock_tree(memory, id, tree);
        memory.note_records(Record::BufferHead, -buffers);
        if was_dirty {
            memory.count(Stat::NrDirty, -i64::from(frame.pages()));
        }
        self.count_added(memory, f, 1, -i64::from(frame.pages()));
    }
}

/// A folio leaves its file: it has no buffers any more. Returns how many it had.
pub(super) fn drop_buffers(frame: &Frame) -> i64 {
    if frame.test_and_clear(FrameFlags::BUFFERS) { i64::from(frame.pages()) } else { 0 }
}

/// Free the `refused` new folios, given by their numbers, and move the others to the front.
#[cold]
fn give_up<M: Machine>(memory: &Memory<M>, places: &mut [(PageIndex, Pfn)], refused: &[usize]) {
    let mut kept = 0;
    for at in 0..places.len() {
        let (_, pfn) = places[at];
        if refused.contains(&at) {
            memory.frames[pfn].clear(FrameFlags::LOCKED);
            memory.put(pfn);
        } else {
            places[kept] = places[at];
            kept += 1;
        }
    }
}
