//! Reclaim from an inactive list, one batch at a time.

use crate::event::Event;
use crate::frame::List;
use crate::lru::{IsolateScan, LruList};
use crate::machine::{Machine, Scope};
use crate::reclaim::references::ReferenceRule;
use crate::reclaim::shrink::Shrunk;
use crate::reclaim::{Reclaim, ScanControl, Throttle};
use crate::stat::{GroupStat, Stat};
use crate::units::*;

/// A batch of isolated folios of one type.
pub(in crate::reclaim) struct IsolatedFolios<'a> {
    pub folios: &'a mut List,
    pub file: bool,
    /// Pages scanned for them.
    pub scanned: u64,
    /// Pages.
    pub taken: u64,
}

impl<M: Machine> Reclaim<'_, M> {
    /// Scan `pages` from the tail of an inactive list; returns the pages reclaimed.
    pub(super) fn shrink_inactive(
        self,
        node: NodeId,
        group: GroupId,
        list: LruList,
        pages: u64,
        sc: &mut ScanControl,
    ) -> u64 {
        let _scope = self.core.scope(Scope::ShrinkInactiveList);
        let (core, file) = (self.core, list.is_file());
        if self.must_wait(node, file, sc) {
            return 0;
        }
        let scan = IsolateScan { list, pages, highest: sc.reclaim_idx, may_unmap: sc.may_unmap };
        let mut held = core.lru.isolate_batch(core, node, group, &scan);
        self.count_scan((sc, group), file, held.scanned);
        if held.taken == 0 {
            return 0;
        }
        let isolated =
            IsolatedFolios { folios: &mut held.folios, file, scanned: held.scanned, taken: held.taken };
        self.shrink_isolated((node, group), isolated, sc, ReferenceRule::Chances)
    }

    /// Whether too many pages are isolated or under write-back already. Waits a little for that to change.
    pub(in crate::reclaim) fn must_wait(self, node: NodeId, file: bool, sc: &ScanControl) -> bool {
        if self.too_many_isolated(node, file, sc) {
            self.throttle(node, Throttle::Isolated);
            if self.too_many_isolated(node, file, sc) {
                return true;
            }
        }
        if !file && self.too_many_writes() {
            self.throttle(node, Throttle::Writeback);
            if self.too_many_writes() {
                return true;
            }
        }
        false
    }

    /// Reclaim isolated folios of one vector, and put back those that stay; returns the pages reclaimed.
    pub(in crate::reclaim) fn shrink_isolated(
        self,
        (node, group): (NodeId, GroupId),
        held: IsolatedFolios<'_>,
        sc: &mut ScanControl,
        rule: ReferenceRule,
    ) -> u64 {
        let (core, file) = (self.core, held.file);
        self.note_isolated(node, file, held.taken as i64);
        let shrunk = self.shrink_folio_list(node, held.folios, sc, rule);
        if rule == ReferenceRule::Chances {
            self.put_back(held.folios);
        } else {
            self.put_back_proposed(held.folios);
        }
        self.note_isolated(node, file, -(held.taken as i64));
        self.count_steal((sc, group), file, shrunk.reclaimed);
        let rotated = held.scanned - shrunk.reclaimed;
        core.lru.note_cost(core, (node, group), file, shrunk.pageout, rotated);
        self.note_found(sc, &shrunk, held.taken, file);
        let args = [node.0 as u64, held.scanned, shrunk.reclaimed, sc.priority as u64];
        core.event(Event::MmVmscanLruShrinkInactive, args);
        shrunk.reclaimed
    }

    /// Note what reclaim found in a batch of `taken` isolated pages.
    pub(in crate::reclaim) fn note_found(
        self,
        sc: &mut ScanControl,
        shrunk: &Shrunk,
        taken: u64,
        file: bool,
    ) {
        if shrunk.dirty_counts.unqueued_dirty == taken {
            // Everything at the tail is dirty and not under write-back: the flusher is late.
            self.core.cache.want_flusher(self.core);
        }
        let dirty_counts = &mut sc.dirty_counts;
        dirty_counts.dirty += shrunk.dirty_counts.dirty;
        dirty_counts.unqueued_dirty += shrunk.dirty_counts.unqueued_dirty;
        dirty_counts.congested += shrunk.dirty_counts.congested;
        dirty_counts.writeback += shrunk.dirty_counts.writeback;
        dirty_counts.immediate += shrunk.dirty_counts.immediate;
        dirty_counts.taken += taken;
        if file {
            dirty_counts.file_taken += taken;
        }
    }

    /// Count scanned pages of a group's vector.
    pub(in crate::reclaim) fn count_scan(self, (sc, group): (&ScanControl, GroupId), file: bool, pages: u64) {
        let by = if sc.kswapd { GroupStat::PgscanKswapd } else { GroupStat::PgscanDirect };
        self.core.lru.groups.count(group, by, pages);
        if !sc.is_group() {
            let by = if sc.kswapd { Stat::PgscanKswapd } else { Stat::PgscanDirect };
            self.core.count(by, pages as i64);
        }
        self.core.count(if file { Stat::PgscanFile } else { Stat::PgscanAnon }, pages as i64);
    }

    /// Count reclaimed pages of a group's vector.
    pub(in crate::reclaim) fn count_steal(
        self,
        (sc, group): (&ScanControl, GroupId),
        file: bool,
        pages: u64,
    ) {
        let by = if sc.kswapd { GroupStat::PgstealKswapd } else { GroupStat::PgstealDirect };
        self.core.lru.groups.count(group, by, pages);
        if !sc.is_group() {
            let by = if sc.kswapd { Stat::PgstealKswapd } else { Stat::PgstealDirect };
            self.core.count(by, pages as i64);
        }
        self.core.count(if file { Stat::PgstealFile } else { Stat::PgstealAnon }, pages as i64);
    }
}
