//! Splitting a folio of a file.
//!
//! A folio that is in use cannot change its size, because holders of references rely on its head. So the caller unmaps
//! the folio first, and the split proceeds only if the cache and the caller have the only references. It runs under
//! the tree's lock, so no task finds the folio in the meantime. The parts keep the flags, the marks in the tree, the
//! position on the list and the charge of the whole. A split needs no memory.

use super::Cache;
use crate::frame::{FrameFlags, List, Owner};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::stat::SizeStat;
use crate::units::*;

/// References of a folio that only its cache and the caller hold.
pub(crate) const CACHE_AND_CALLER: u32 = 2;

impl Cache {
    /// Split a folio of a file into folios of order `to`. The caller has locked and unmapped it and holds a reference;
    /// it is not under write-back. Afterwards the caller holds the lock of the first part and a reference to it. The
    /// other parts are in the cache and unlocked, except those after the end of the file, which are dropped: a
    /// truncation that could not split the folio left them zeroed. If the caller has isolated the folio, it gets the
    /// other parts in `isolated`, with a reference each, the second part at the tail. Returns `false`, and changes
    /// nothing, if the folio is in use.
    pub fn split<M: Machine>(
        &self,
        memory: &Memory<M>,
        pfn: Pfn,
        to: Order,
        mut isolated: Option<&mut List>,
    ) -> bool {
        let frame = &memory.frames[pfn];
        // A truncation may have taken it out of its file before the caller locked it.
        let Owner::File(id) = frame.owner() else { return false };
        assert!(
            frame.has(FrameFlags::LOCKED) && !frame.has(FrameFlags::WRITEBACK),
            "folio {pfn} must be locked and not under write-back to be split"
        );
        let (first, order) = (frame.page_index(), frame.order());
        let f = self.file(id);
        {
            let mut tree = f.tree.lock();
            if frame.mapcount() > 0 || !frame.freeze(CACHE_AND_CALLER) {
                memory.sizes.count(SizeStat::SplitFailed, order, 1);
                return false;
            }
            // From here on no other task can get a reference.
            frame.unfreeze(1);
            // These flags are about the whole folio.
            frame.clear(FrameFlags::READAHEAD | FrameFlags::RECLAIM);
            memory.lru.split(memory, pfn, to, || memory.alloc.split(memory, pfn, to));
            tree.split_folio(first, to);
            frame.get(1);
        }
        memory.sizes.count(SizeStat::Split, order, 1);
        let end = PageIndex(f.pages());
        for part in (to.frames()..order.frames()).step_by(to.frames() as usize).map(|i| pfn.add(i)) {
            // It was locked all the time, so even if the file is growing the part has not been written.
            if memory.frames[part].page_index() >= end {
                self.remove(memory, part);
                memory.unlock_folio(part);
                memory.put(part);
                continue;
            }
            if let Some(list) = &mut isolated {
                memory.frames[part].get(1);
                list.push_head(&memory.frames, part);
            }
            // From here on it may be freed, unless it is isolated.
            memory.unlock_folio(part);
        }
        true
    }
}
