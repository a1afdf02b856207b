//! The active list feeds the inactive one.

use crate::event::Event;
use crate::frame::{FolioRun, FrameFlags, List};
use crate::lru::{IsolateScan, LruList, Putback, evictable};
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
        let _scope = self.core.scope(Scope::ShrinkActiveList);
        let (core, base) = (self.core, &self.core);
        let scan = IsolateScan { list, pages, highest: sc.reclaim_idx, may_unmap: sc.may_unmap };
        let mut held = core.lru.isolate_batch(base, node, group, &scan);
        core.lru.groups.count(group, GroupStat::Pgrefill, held.scanned);
        if !sc.is_group() {
            core.count(Stat::Pgrefill, held.scanned as i64);
        }
        if held.taken == 0 {
            return;
        }
        core.charge(Work::ReclaimBatch, 1);
        self.note_isolated(node, list.is_file(), held.taken as i64);
        let (mut active, mut inactive) = (List::new(), List::new());
        let mut rotated = 0;
        while let Some(pfn) = held.folios.pop_tail(&core.frames) {
            let frame = &core.frames[pfn];
            if evictable(frame) {
                let [found] = core.rmap.referenced(core, FolioRun::one(&pfn), sc.target, None);
                if found.locked {
                    core.lru.mlock(base, pfn);
                } else if found.vmas != 0 && found.exec && list.is_file() {
                    rotated += frame.pages() as u64;
                    active.push_head(&core.frames, pfn);
                    continue;
                }
            }
            frame.clear(FrameFlags::ACTIVE);
            frame.set(FrameFlags::WORKINGSET);
            inactive.push_head(&core.frames, pfn);
        }
        self.put_back(&mut active);
        let deactivated = self.put_back(&mut inactive);
        core.count(Stat::Pgdeactivate, deactivated as i64);
        self.note_isolated(node, list.is_file(), -(held.taken as i64));
        core.lru.note_cost(core, (node, group), list.is_file(), 0, rotated);
        core.event(Event::MmVmscanLruShrinkActive, [node.0 as u64, held.taken, deactivated, rotated]);
    }

    /// Put folios back, and free those that nobody else refers to. Returns the pages that are on lists again.
    pub(in crate::reclaim) fn put_back(self, folios: &mut List) -> u64 {
        let _scope = self.core.scope(Scope::MoveFoliosToLru);
        self.free_dead(self.core.lru.putback_batch(&self.core, folios))
    }

    /// Free what nobody else referred to any more when it was put back. Returns the pages that are on lists again.
    pub(in crate::reclaim) fn free_dead(self, mut put: Putback) -> u64 {
        while let Some(pfn) = put.dead.pop_tail(&self.core.frames) {
            self.core.free_folio(pfn);
        }
        put.pages
    }
}
