//! Splitting folios of several pages.

use crate::frame::{FolioRun, List};
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::rmap::UnmapMode;
use crate::tlb::UnmapBatch;
use crate::units::*;

impl<M: Machine> MmCore<M> {
    /// Split a folio, which the caller has locked and isolated, into pages. On return the caller has the first page
    /// locked; the others are in `isolated`, with a reference each, the second page at the tail. Returns the number of
    /// pages freed because they were unmapped or beyond the end of their file. `None`: the folio is in use.
    pub(crate) fn split_folio(&self, head: Pfn, isolated: &mut List) -> Option<u64> {
        let frame = &self.frames[head];
        if frame.is_anon() {
            return self.rmap.split_anon(self, head, Some(isolated));
        }
        let (pages, before) = (u64::from(frame.pages()), isolated.len() as u64);
        let split = self.split_file_folio(head, Order::ZERO, Some(isolated));
        split.then(|| pages - 1 - (isolated.len() as u64 - before))
    }

    /// Unmap a file folio, to which the caller holds the lock and a reference, and split it into folios of order `to`,
    /// as [`Cache::split`](crate::cache::Cache::split) does. Later accesses fault its pages in again.
    pub(crate) fn split_file_folio(&self, head: Pfn, to: Order, isolated: Option<&mut List>) -> bool {
        let memory = self;
        let mut batch = UnmapBatch::new(memory.host());
        let dirty = self.rmap.try_to_unmap(
            memory,
            FolioRun::one(&head),
            UnmapMode { ignore_mlock: true },
            &mut batch,
        );
        dirty.iter().for_each(|(_, folio)| self.cache.mark_dirty(memory, folio));
        batch.settle(memory.host(), &self.tlb);
        self.cache.split(memory, head, to, isolated)
    }
}
