//! The active list feeds the inactive one.

use crate::event::Event;
use crate::frame::{FrameFlags, List};
use crate::lru::{LruList, Putback, Scan, evictable};
use crate::machine::{Machine, Scope, Work};
use crate::reclaim::{Reclaim, ScanControl};
use crate::stat::{GroupStat, Stat};
use crate::units::*;

impl<M: Machine> Reclaim<'_, M> {
    /// Move `pages` from the tail of an active list to the inactive list, whether or not they were used: the inactive
    /// list is where use is looked at closely, and looking clears the old traces. Only program text that was used
    /// stays.
    pub(super) fn shrink_active(
        self,
        node: NodeId,
        group: GroupId,
        list: LruList,
        pages: u64,
        sc: &ScanControl,
    ) {
        let _scope = self.st.scope(Scope::ShrinkActiveList);
        let (st, base) = (self.st, self.st.memory().ground());
        let scan = Scan { list, pages, highest: sc.reclaim_idx, may_unmap: sc.may_unmap };
        let mut held = st.lru.isolate_batch(base, node, group, &scan);
        st.lru.groups.count(group, GroupStat::Pgrefill, held.scanned);
        if !sc.is_group() {
            st.count(Stat::Pgrefill, held.scanned as i64);
        }
        if held.taken == 0 {
            return;
        }
        st.charge(Work::ReclaimBatch, 1);
        self.note_isolated(node, list.is_file(), held.taken as i64);
        let (mut active, mut inactive) = (List::new(), List::new());
        let mut rotated = 0;
        while let Some(pfn) = held.folios.pop_tail(&st.frames) {
            let frame = &st.frames[pfn];
            if evictable(frame) {
                let found = st.rmap.referenced(st.memory(), pfn, sc.target, None);
                if found.locked {
                    st.lru.mlock(base, pfn);
                } else if found.vmas != 0 && found.exec && list.is_file() {
                    rotated += frame.pages() as u64;
                    active.push_head(&st.frames, pfn);
                    continue;
                }
            }
            frame.clear(FrameFlags::ACTIVE);
            frame.set(FrameFlags::WORKINGSET);
            inactive.push_head(&st.frames, pfn);
        }
        self.put_back(&mut active);
        let deactivated = self.put_back(&mut inactive);
        st.count(Stat::Pgdeactivate, deactivated as i64);
        self.note_isolated(node, list.is_file(), -(held.taken as i64));
        st.lru.note_cost(st.memory().ground(), (node, group), list.is_file(), 0, rotated);
        st.event(Event::MmVmscanLruShrinkActive, [node.0 as u64, held.taken, deactivated, rotated]);
    }

    /// Put folios back, and free those that nobody else refers to. Returns the pages that are on lists again.
    pub(in crate::reclaim) fn put_back(self, folios: &mut List) -> u64 {
        let _scope = self.st.scope(Scope::MoveFoliosToLru);
        self.free_dead(self.st.lru.putback_batch(self.st.memory().ground(), folios))
    }

    /// Free what nobody else referred to any more when it was put back. Returns the pages that are on lists again.
    pub(in crate::reclaim) fn free_dead(self, mut put: Putback) -> u64 {
        while let Some(pfn) = put.dead.pop_tail(&self.st.frames) {
            self.st.free_folio(pfn);
        }
        put.pages
    }
}
