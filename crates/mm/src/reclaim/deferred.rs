//! Splitting, when memory is wanted, the anonymous folios of which only a part is mapped: their other pages are free
//! then.

use super::{Reclaim, ScanControl};
use crate::machine::Machine;
use crate::units::*;

impl<M: Machine> Reclaim<'_, M> {
    /// Split some of the folios of a node that wait for it, more of them the more urgent it is. Returns the pages
    /// freed.
    pub(super) fn split_deferred(self, node: NodeId, sc: &ScanControl) -> u64 {
        let waiting = self.st.lru.splits_deferred(node);
        // As many as Linux asks a shrinker for.
        let wanted = (2 * (waiting >> sc.priority)).min(waiting);
        (0..wanted).map(|_| self.split_one_deferred(node, sc)).sum()
    }

    fn split_one_deferred(self, node: NodeId, sc: &ScanControl) -> u64 {
        let st = self.st;
        let Some(pfn) = st.lru.next_deferred(st.memory().ground(), node) else { return 0 };
        let mut freed = 0;
        if st.lru.groups.is_below(st.frames[pfn].group(), sc.top()) && st.try_lock_folio(pfn) {
            // It may have been split since, or its last part may have been unmapped.
            if st.frames[pfn].order() > Order::ZERO && st.frames[pfn].is_anon() {
                freed = st.rmap.split_anon(st.memory(), pfn, None).unwrap_or(0);
            }
            st.unlock_folio(pfn);
        }
        freed += u64::from(st.frames[pfn].refs() == 1);
        st.put(pfn);
        freed
    }
}
