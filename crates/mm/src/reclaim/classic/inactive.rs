//! Reclaim from an inactive list, one batch at a time.

use crate::event::Event;
use crate::frame::List;
use crate::lru::{LruList, Scan};
use crate::machine::{Machine, Scope};
use crate::reclaim::references::Heed;
use crate::reclaim::shrink::Shrunk;
use crate::reclaim::{Reclaim, ScanControl, Throttle};
use crate::stat::{GroupStat, Stat};
use crate::units::*;

/// Folios of one type that were isolated together.
pub(in crate::reclaim) struct Held<'a> {
    pub folios: &'a mut List,
    pub file: bool,
    /// Pages looked at for them.
    pub scanned: u64,
    /// Pages.
    pub taken: u64,
}

impl<M: Machine> Reclaim<'_, M> {
    /// Look at `pages` from the tail of an inactive list; returns the pages reclaimed.
    pub(super) fn shrink_inactive(
        self,
        node: NodeId,
        group: GroupId,
        list: LruList,
        pages: u64,
        sc: &mut ScanControl,
    ) -> u64 {
        let _scope = self.st.scope(Scope::ShrinkInactiveList);
        let (st, file) = (self.st, list.is_file());
        if self.must_wait(node, file, sc) {
            return 0;
        }
        let scan = Scan { list, pages, highest: sc.reclaim_idx, may_unmap: sc.may_unmap };
        let mut held = st.lru.isolate_batch(st.memory().ground(), node, group, &scan);
        self.count_scan((sc, group), file, held.scanned);
        if held.taken == 0 {
            return 0;
        }
        let isolated = Held { folios: &mut held.folios, file, scanned: held.scanned, taken: held.taken };
        self.shrink_isolated((node, group), isolated, sc, Heed::Chances)
    }

    /// Is too much on its way already? Waits a little for that to change.
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

    /// Take what can be taken of isolated folios of one vector, and put the others back; returns the pages reclaimed.
    pub(in crate::reclaim) fn shrink_isolated(
        self,
        (node, group): (NodeId, GroupId),
        held: Held<'_>,
        sc: &mut ScanControl,
        heed: Heed,
    ) -> u64 {
        let (st, file) = (self.st, held.file);
        self.note_isolated(node, file, held.taken as i64);
        let shrunk = self.shrink_folio_list(node, held.folios, sc, heed);
        if heed == Heed::Chances {
            self.put_back(held.folios);
        } else {
            self.put_back_proposed(held.folios);
        }
        self.note_isolated(node, file, -(held.taken as i64));
        self.count_steal((sc, group), file, shrunk.reclaimed);
        let rotated = held.scanned - shrunk.reclaimed;
        st.lru.note_cost(st.memory().ground(), (node, group), file, shrunk.pageout, rotated);
        self.note_met(sc, &shrunk, held.taken, file);
        let args = [node.0 as u64, held.scanned, shrunk.reclaimed, sc.priority as u64];
        st.event(Event::MmVmscanLruShrinkInactive, args);
        shrunk.reclaimed
    }

    /// Of folios that were isolated together, so many pages, reclaim met this.
    pub(in crate::reclaim) fn note_met(self, sc: &mut ScanControl, shrunk: &Shrunk, taken: u64, file: bool) {
        if shrunk.met.unqueued_dirty == taken {
            // Everything on the tail is dirty, and nobody writes it: the flusher is late.
            self.st.cache.want_flusher(self.st.memory());
        }
        let met = &mut sc.met;
        met.dirty += shrunk.met.dirty;
        met.unqueued_dirty += shrunk.met.unqueued_dirty;
        met.congested += shrunk.met.congested;
        met.writeback += shrunk.met.writeback;
        met.immediate += shrunk.met.immediate;
        met.taken += taken;
        if file {
            met.file_taken += taken;
        }
    }

    /// Pages of a group's vector were looked at.
    pub(in crate::reclaim) fn count_scan(self, (sc, group): (&ScanControl, GroupId), file: bool, pages: u64) {
        let by = if sc.kswapd { GroupStat::PgscanKswapd } else { GroupStat::PgscanDirect };
        self.st.lru.groups.count(group, by, pages);
        if !sc.is_group() {
            let by = if sc.kswapd { Stat::PgscanKswapd } else { Stat::PgscanDirect };
            self.st.count(by, pages as i64);
        }
        self.st.count(if file { Stat::PgscanFile } else { Stat::PgscanAnon }, pages as i64);
    }

    /// Pages of a group's vector were freed.
    pub(in crate::reclaim) fn count_steal(
        self,
        (sc, group): (&ScanControl, GroupId),
        file: bool,
        pages: u64,
    ) {
        let by = if sc.kswapd { GroupStat::PgstealKswapd } else { GroupStat::PgstealDirect };
        self.st.lru.groups.count(group, by, pages);
        if !sc.is_group() {
            let by = if sc.kswapd { Stat::PgstealKswapd } else { Stat::PgstealDirect };
            self.st.count(by, pages as i64);
        }
        self.st.count(if file { Stat::PgstealFile } else { Stat::PgstealAnon }, pages as i64);
    }
}
