//! Splitting, when memory is wanted, the anonymous folios of which only a part is mapped: their other pages are free
//! then.

use super::{Reclaim, ScanControl};
use crate::machine::Machine;
use crate::units::*;

impl<M: Machine> Reclaim<'_, M> {
    /// Split some of the folios of a node that wait for it, more of them the more urgent it is. Returns the pages
    /// freed.
    pub(super) fn split_deferred(self, node: NodeId, sc: &ScanControl) -> u64 {
        let waiting = self.core.lru.splits_deferred(node);
        // As many as Linux asks a shrinker for.
        let wanted = (2 * (waiting >> sc.priority)).min(waiting);
        (0..wanted).map(|_| self.split_one_deferred(node, sc)).sum()
    }

    fn split_one_deferred(self, node: NodeId, sc: &ScanControl) -> u64 {
        let core = self.core;
        let Some(pfn) = core.lru.next_deferred(core, node) else { return 0 };
        let mut freed = 0;
        if core.lru.groups.is_below(core.frames[pfn].group(), sc.top()) && core.try_lock_folio(pfn) {
            // It may have been split since, or its last part may have been unmapped.
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
