//! Reclaim from an inactive list, one batch at a time.

use crate::event::Event;
use crate::lru::{LruList, Scan};
use crate::machine::{Machine, Scope};
use crate::reclaim::shrink::Shrunk;
use crate::reclaim::{Met, Reclaim, ScanControl, Throttle};
use crate::stat::Stat;
use crate::units::*;

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
        if self.too_many_isolated(node, file, sc) {
            self.throttle(node, Throttle::Isolated);
            if self.too_many_isolated(node, file, sc) {
                return 0;
            }
        }
        if !file && self.too_many_writes() {
            self.throttle(node, Throttle::Writeback);
            if self.too_many_writes() {
                return 0;
            }
        }
        let scan = Scan { list, pages, highest: sc.reclaim_idx, may_unmap: sc.may_unmap };
        let mut held = st.lru.isolate_batch(st.memory().ground(), node, group, &scan);
        self.count_scan(sc, file, held.scanned);
        if held.taken == 0 {
            return 0;
        }
        self.note_isolated(node, file, held.taken as i64);
        let shrunk = self.shrink_folio_list(node, &mut held.folios, sc, false);
        self.put_back(&mut held.folios);
        self.note_isolated(node, file, -(held.taken as i64));
        self.count_steal(sc, file, shrunk.reclaimed);
        let rotated = held.scanned - shrunk.reclaimed;
        st.lru.note_cost(node, group, file, shrunk.pageout, rotated);
        if shrunk.met.unqueued_dirty == held.taken {
            // Everything on the tail is dirty, and nobody writes it: the flusher is behind.
            st.cache.want_flusher(st.memory());
        }
        note_met(&mut sc.met, &shrunk, held.taken, file);
        let args = [node.0 as u64, held.scanned, shrunk.reclaimed, sc.priority as u64];
        st.event(Event::MmVmscanLruShrinkInactive, args);
        shrunk.reclaimed
    }

    pub(in crate::reclaim) fn count_scan(self, sc: &ScanControl, file: bool, pages: u64) {
        if !sc.is_group() {
            let by = if sc.kswapd { Stat::PgscanKswapd } else { Stat::PgscanDirect };
            self.st.count(by, pages as i64);
        }
        self.st.count(if file { Stat::PgscanFile } else { Stat::PgscanAnon }, pages as i64);
    }

    pub(in crate::reclaim) fn count_steal(self, sc: &ScanControl, file: bool, pages: u64) {
        if !sc.is_group() {
            let by = if sc.kswapd { Stat::PgstealKswapd } else { Stat::PgstealDirect };
            self.st.count(by, pages as i64);
        }
        self.st.count(if file { Stat::PgstealFile } else { Stat::PgstealAnon }, pages as i64);
    }
}

fn note_met(met: &mut Met, shrunk: &Shrunk, taken: u64, file: bool) {
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
