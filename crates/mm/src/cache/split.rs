//! Splitting a folio of a file.
//!
//! A folio that is in use cannot change its size: whoever holds a reference counts on its head. So the caller first
//! takes the mappings away, and the split goes on only if nobody but the cache and the caller refers to the folio. It
//! is done under the tree's lock, so nobody finds the folio meanwhile; the parts keep what was known of the whole:
//! flags, marks in the tree, their place on the list, the group's charge. Nothing needs memory.

use super::Cache;
use crate::frame::{FrameFlags, List, Owner};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::stat::SizeStat;
use crate::units::*;

/// References of a folio that only its cache and the caller hold.
pub const CACHE_AND_CALLER: u32 = 2;

impl Cache {
    /// Split a folio of a file into folios of order `to`. The caller has locked it, holds a reference, and has unmapped
    /// it; it is not being written. Afterwards the caller has the first part locked, and a reference to it; the other
    /// parts are in the cache, unlocked, but for those behind the file's end, which are dropped: a truncation that
    /// could not split left them, zeroed, inside the whole. If the caller has isolated the folio, they come in
    /// `isolated`, with a reference each, the second part at the tail. `false`: somebody uses the folio, nothing has
    /// changed.
    pub fn split<M: Machine>(
        &self,
        memory: &Memory<M>,
        pfn: Pfn,
        to: Order,
        mut isolated: Option<&mut List>,
    ) -> bool {
        let frame = &memory.frames[pfn];
        // A truncation may have taken it out of its file since the caller found it.
        let Owner::File(id) = frame.owner() else { return false };
        assert!(
            frame.has(FrameFlags::LOCKED) && !frame.has(FrameFlags::WRITEBACK),
            "{pfn} is split while it is written, or unlocked"
        );
        let (first, order) = (frame.page_index(), frame.order());
        let f = self.file(id);
        {
            let mut tree = f.tree.lock();
            if frame.mapcount() > 0 || !frame.freeze(CACHE_AND_CALLER) {
                memory.sizes.count(SizeStat::SplitFailed, order, 1);
                return false;
            }
            // From here on nobody else can get a reference.
            frame.unfreeze(1);
            // What says something about the whole only.
            frame.clear(FrameFlags::READAHEAD | FrameFlags::RECLAIM);
            memory.lru.split(memory, pfn, to, || memory.alloc.split(memory, pfn, to));
            tree.split_folio(first, to);
            frame.get(1);
        }
        memory.sizes.count(SizeStat::Split, order, 1);
        let end = PageIndex(f.pages());
        for part in (to.frames()..order.frames()).step_by(to.frames() as usize).map(|i| pfn.add(i)) {
            // Locked since it came to be, so nobody has written to it, should the file be growing.
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
            // From here on it may go, if nobody has isolated it.
            memory.unlock_folio(part);
        }
        true
    }
}
