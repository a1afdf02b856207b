//! The front end of policies that propose: it asks for folios until enough pages are free.
//!
//! How much of a vector is scanned depends on its size and the priority, as for the classic lists; the policy chooses
//! the folios. Anonymous memory is skipped if it cannot be swapped, or if `vm.swappiness` is 0.

use super::balance::unprotected;
use super::classic::inactive::IsolatedFolios;
use super::pass::ReferenceRule;
use super::{DEF_PRIORITY, Front, Reclaim, SWAP_CLUSTER_MAX, ScanControl};
use crate::frame::List;
use crate::lru::{Ask, LruList};
use crate::machine::{Machine, Scope};
use crate::units::*;

pub(super) struct ProposedFront;

impl<M: Machine> Front<M> for ProposedFront {
    fn shrink_vec(&self, cx: Reclaim<'_, M>, node: NodeId, group: GroupId, sc: &mut ScanControl) {
        let swappiness = cx.wanted_swappiness(group, sc);
        let anon = sc.may_swap && swappiness > 0 && cx.can_swap(node, group);
        let target = target(cx, node, group, anon, sc);
        // As for the classic lists: no emergency yet, so the whole share is scanned at once.
        let whole = !sc.is_group() && !sc.kswapd && sc.priority == DEF_PRIORITY;
        let (mut looked, mut reclaimed) = (0, 0);
        while looked < target && (whole || reclaimed < sc.nr_to_reclaim) {
            let Some(batch) = cx.shrink_proposed(node, group, anon, sc) else { break };
            looked += batch.looked;
            reclaimed += batch.reclaimed;
            cx.core.machine.resched();
        }
        sc.nr_reclaimed += reclaimed;
    }
}

/// Number of pages of a vector to scan.
fn target<M: Machine>(
    cx: Reclaim<'_, M>,
    node: NodeId,
    group: GroupId,
    anon: bool,
    sc: &mut ScanControl,
) -> u64 {
    let (vec, groups) = (cx.core.lru.vec(node, group), &cx.core.lru.groups);
    let lists = LruList::EVICTABLE.into_iter().filter(|list| anon || list.is_file());
    let size = lists.map(|list| vec.own_pages(list, sc.reclaim_idx)).sum();
    let (open, skipped) =
        unprotected(size, groups.usage(group), groups.protection(sc.top(), group), sc.memcg_low_reclaim);
    sc.memcg_low_skipped |= skipped;
    open >> sc.priority
}

/// The result of a batch, in pages.
struct BatchResult {
    looked: u64,
    reclaimed: u64,
}

impl<M: Machine> Reclaim<'_, M> {
    /// Reclaim one batch of a vector. `None`: nothing is left to reclaim now.
    fn shrink_proposed(
        self,
        node: NodeId,
        group: GroupId,
        anon: bool,
        sc: &mut ScanControl,
    ) -> Option<BatchResult> {
        let _scope = self.core.scope(Scope::ShrinkInactiveList);
        let core = self.core;
        let anon = anon && !self.must_wait(node, false, sc);
        if self.must_wait(node, true, sc) {
            return None;
        }
        let ask = Ask { pages: SWAP_CLUSTER_MAX, highest: sc.reclaim_idx, anon, may_unmap: sc.may_unmap };
        let mut got = core.lru.isolate_proposed(core, node, group, ask);
        let rule = if got.checks_references { ReferenceRule::AnyUse } else { ReferenceRule::Nothing };
        let mut reclaimed = 0;
        for (file, folios) in [false, true].into_iter().zip(&mut got.folios) {
            let taken = got.taken[file as usize];
            self.count_scan((sc, group), file, taken);
            if taken > 0 {
                let held = IsolatedFolios { folios, file, scanned: taken, taken };
                reclaimed += self.shrink_isolated((node, group), held, sc, rule);
            }
        }
        (got.looked > 0).then_some(BatchResult { looked: got.looked, reclaimed })
    }

    /// Put back the proposed folios that were not freed.
    pub(super) fn put_back_proposed(self, folios: &mut List) {
        let _scope = self.core.scope(Scope::MoveFoliosToLru);
        self.free_dead(self.core.lru.putback_proposed(self.core, folios));
    }
}
