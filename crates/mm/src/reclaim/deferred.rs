//! Splitting anonymous folios that are mapped only in part when memory is needed, which frees their other pages.

use super::{Reclaim, ScanControl};
use crate::machine::Machine;
use crate::units::*;

impl<M: Machine> Reclaim<'_, M> {
    /// Split some of the queued folios of a node, more at a higher priority. Returns the pages freed.
    pub(super) fn split_deferred(self, node: NodeId, sc: &ScanControl) -> u64 {
        let waiting = self.core.lru.splits_deferred(node);
        // The number that Linux asks a shrinker for.
        let wanted = (2 * (waiting >> sc.priority)).min(waiting);
        (0..wanted).map(|_| self.split_one_deferred(node, sc)).sum()
    }

    fn split_one_deferred(self, node: NodeId, sc: &ScanControl) -> u64 {
        let core = self.core;
        let Some(pfn) = core.lru.next_deferred(core, node) else { return 0 };
        let mut freed = 0;
        if core.lru.groups.is_below(core.frames[pfn].group(), sc.top()) && core.try_lock_folio(pfn) {
            // It may have been split, or its last part unmapped, since it was queued.
            if core.frames[pfn].order() > Order::ZERO && core.frames[pfn].is_anon() {
                freed = core.rmap.split_anon(core, pfn, None).unwrap_or(0);
            }
            core.unlock_folio(pfn);
        }
        freed += u64::from(core.frames[pfn].refs() == 1);
        core.put(pfn);
        freed
    }
}
