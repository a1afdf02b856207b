//! How folios come to a file's cache and leave it.
//!
//! Read-ahead adds pages that follow each other, and reclaim evicts them in the order in which they were read. So
//! folios come and go in *runs*: the tree's lock, what is known of the lists, and the counters are needed once for a
//! run. Each folio of a run still has a place, a shadow and references of its own. One folio is a run of one.

use super::Cache;
use super::file::File;
use super::tree::{CachedFolio, MAX_INDEX, TreeEntry};
use crate::frame::{FolioRun, FrameFlags, Owner};
use crate::machine::{Machine, Scope, Work};
use crate::memory::{AllocCause, Gfp, Memory, Shortage};
use crate::stat::Stat;
use crate::units::*;
use smallvec::SmallVec;

/// Most folios that come or go in one step.
pub(super) const RUN: usize = FolioRun::MOST;

impl Cache {
    /// Allocate a folio of `order` for the pages from `first` on and add it, with a reference for the caller, who has
    /// to fill it. `Ok(None)`: there is a folio already at one of its indices, or the file has become too short.
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

    /// Add new folios of one order at some places, in order: each is locked, in the tree and on a list, and is to be
    /// filled. Their only reference is the cache's; while they are locked, they stay. Returns how many were added: the
    /// first of `places` afterwards. The others are freed: another task was faster there, or a cut has left their place
    /// after the end of the file.
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
            memory.frames[pfn].set_owner(File::owner(id), first);
        }
        let mut back: SmallVec<[(Pfn, Shadow); RUN]> = SmallVec::new();
        let mut refused: SmallVec<[usize; 4]> = SmallVec::new();
        let mut tree = f.tree.lock();
        // A write(2) makes the file longer once it has the page.
        let end = if overwrites { MAX_INDEX } else { f.pages() };
        let fits = places.iter().take_while(|(first, _)| first.0 + u64::from(order.frames()) <= end).count();
        tree.insert_run(order, &places[..fits], |at, inserted| match inserted {
            Ok(shadow) => back.extend(shadow.map(|shadow| (places[at].1, shadow))),
            Err(_) => refused.push(at),
        });
        let changes = tree.take_node_changes();
        drop(tree);
        self.apply_node_changes(memory, id, changes);
        refused.extend(fits..places.len());
        let added = places.len() - refused.len();
        if !refused.is_empty() {
            give_up(memory, places, &refused);
        }
        if added == 0 {
            return 0;
        }
        self.count_added(memory, f, added, added as i64 * i64::from(order.frames()));
        // That a page was in memory before it is written over says nothing about what is used.
        if !overwrites {
            memory.lru.refault(memory, &back, || memory.swap.free_slots(), gfp.is_faulted());
        }
        memory.lru.add(memory, places[..added].iter().map(|&(_, pfn)| pfn), gfp.is_faulted());
        added
    }

    /// Folios with so many pages together entered (`pages` > 0) or left a file's cache.
    pub(super) fn count_added<M: Machine>(&self, memory: &Memory<M>, file: &File, folios: usize, pages: i64) {
        memory.charge(if pages > 0 { Work::CacheInsert } else { Work::CacheRemove }, folios as u64);
        memory.count(Stat::NrFilePages, pages);
        if file.is_shmem() {
            memory.count(Stat::NrShmem, pages);
        }
    }

    /// Take a locked folio of a file out of its cache. The reference of the cache is the caller's to drop after
    /// unlocking.
    pub fn remove<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) {
        let Owner::File(id) = memory.frames[pfn].owner() else {
            unreachable!("folio {pfn} is in no file's cache")
        };
        self.take_out(memory, id, pfn, None);
    }

    /// Take the wanted folios of a run, which are locked and not mapped, out of their file's cache, if they are clean and
    /// there are exactly `refs` references of them, which are then frozen. Each leaves its `shadow`, but for shmem.
    /// Returns those that are out.
    pub fn evict<'a, M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        run: FolioRun<'a>,
        refs: u32,
        shadow: impl Fn(Pfn) -> Shadow,
    ) -> FolioRun<'a> {
        let f = self.file(id);
        let (mut wanted, mut out, mut pages) = (run.wanted(), 0u32, 0);
        while wanted != 0 {
            // One leaf in each hold of the lock: if it holds only shadows from then on, that is noted.
            let mut tree = f.tree.lock();
            let first = wanted.trailing_zeros() as usize;
            let frame = &memory.frames[run.folio(first)];
            if f.is_shmem() || frame.order() > Order::ZERO {
                wanted &= wanted - 1;
                if frame.freeze_clean(refs) {
                    let rest = (!f.is_shmem()).then(|| TreeEntry::Shadow(shadow(run.folio(first))));
                    let old = tree.replace_folio(frame.page_index(), rest);
                    assert_eq!(
                        old.head,
                        run.folio(first),
                        "another folio is in the place of what is evicted"
                    );
                    out |= 1 << first;
                    pages += i64::from(frame.pages());
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
                        assert_eq!(old, run.folio(at), "another page is in the place of what is evicted");
                        out |= 1 << at;
                        pages += 1;
                        frame.set_owner(Owner::None, PageIndex(0));
                    }
                }
                leaf.finish();
            }
            let changes = tree.take_node_changes();
            drop(tree);
            self.apply_node_changes(memory, id, changes);
        }
        if out != 0 {
            self.count_added(memory, f, out.count_ones() as usize, -pages);
        }
        run.with(out)
    }

    /// Take a locked folio out of the cache of its file, and leave `rest` in its place.
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
            "another folio is in the place of {pfn}"
        );
        let was_dirty = !f.is_shmem() && frame.test_and_clear(FrameFlags::DIRTY);
        frame.set_owner(Owner::None, PageIndex(0));
        let changes = tree.take_node_changes();
        drop(tree);
        self.apply_node_changes(memory, id, changes);
        if was_dirty {
            memory.count(Stat::NrDirty, -i64::from(frame.pages()));
        }
        self.count_added(memory, f, 1, -i64::from(frame.pages()));
    }
}

/// Free new folios whose places were taken, by their numbers, and move the others to the front.
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
