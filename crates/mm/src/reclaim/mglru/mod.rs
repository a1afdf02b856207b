//! The front end of MGLRU: ages vectors, and evicts from their oldest generations.
//!
//! Reclaim of a node visits its groups in the order of [`groups`], and [`evict`] evicts cold folios of each. A vector
//! that is short of cold folios is aged first ([`aging`]): the page tables of the group's spaces are walked, used
//! folios go to the youngest generation, and a new generation begins. A folio that eviction finds used has cost a walk
//! of the reverse map; so the entries around its entry are looked at, too ([`LookAround`]).
//!
//! It does not do what the classic front end does for a node as a whole: the balance of the two types by cost (each
//! vector has its own controller), the conclusions about the disks, and the loop for large blocks.
//!
//! Source: mm/vmscan.c of Linux 6.12 (Yu Zhao).

pub(super) mod aging;
mod bloom;
pub(super) mod command;
mod evict;
pub(super) mod groups;
mod walk;

use super::{Front, Reclaim, ScanControl};
use crate::frame::List;
use crate::knobs::Knob;
use crate::lru::mglru::LookAround;
use crate::machine::Machine;
use crate::units::*;

/// Generations.
pub(super) struct MglruFront;

impl<M: Machine> Front<M> for MglruFront {
    fn shrink_node(&self, cx: Reclaim<'_, M>, node: NodeId, sc: &mut ScanControl) -> bool {
        if !sc.is_group() {
            cx.shrink_generations(node, sc);
        }
        !sc.is_group()
    }

    fn shrink_vec(&self, cx: Reclaim<'_, M>, node: NodeId, group: GroupId, sc: &mut ScanControl) {
        sc.mm_walk = sc.kswapd;
        if cx.evict(node, group, sc) {
            cx.state.groups(node).rotate(group, groups::Turn::Young);
        }
    }

    fn age_node(&self, cx: Reclaim<'_, M>, node: NodeId, sc: &mut ScanControl) {
        let ttl = cx.core.knobs.get(Knob::LruGenMinTtlMs) * MILLISECOND;
        let lru = &cx.core.lru;
        for group in lru.groups.subtree(crate::lru::ROOT) {
            lru.groups.calculate_protection(crate::lru::ROOT, group);
        }
        cx.set_initial_priority(node, sc);
        if ttl > 0 && !lru.groups.subtree(crate::lru::ROOT).any(|group| cx.is_stale(node, group, ttl, sc)) {
            cx.spaces.thrashes();
        }
    }
}

impl<M: Machine> Reclaim<'_, M> {
    /// The state to look around used entries of isolated folios of one vector, if the vector's policy does so.
    pub(super) fn begin_look(self, node: NodeId, folios: &List, sc: &ScanControl) -> Option<LookAround> {
        let first = folios.tail()?;
        self.core.lru.look(self.core, (node, self.core.frames[first].group()), sc.mm_walk)
    }

    /// Apply the results: sizes of generations, and dense tables for the filters.
    pub(super) fn end_look(self, mut look: LookAround) {
        self.core.lru.tell_promotions(self.core, &mut look.promotions);
        let aging = self.state.aging(look.promotions.node(), look.promotions.group());
        look.dense.iter().for_each(|&table| aging.filters.add(look.seq, table));
    }

    /// Whether the oldest generation of the vector is older than `ttl`, so that evicting it does not hurt what is in
    /// use.
    fn is_stale(self, node: NodeId, group: GroupId, ttl: Nanos, sc: &ScanControl) -> bool {
        let (groups, generations) = (&self.core.lru.groups, &self.core.lru.vec(node, group).generations);
        if groups.below_min(sc.top(), group) || !self.is_sizable(node, group, sc) {
            return false;
        }
        let born = generations.born(generations.min_seq(true));
        born + ttl <= self.core.machine.now()
    }

    /// Whether the vector is large enough for a scan at this priority to find anything.
    fn is_sizable(self, node: NodeId, group: GroupId, sc: &ScanControl) -> bool {
        let can_swap = self.swappiness(node, group, sc) > 0;
        self.evictable_pages(node, group, can_swap) >> sc.priority > 0
    }

    /// Pages of a vector's generations, of the types that may be evicted.
    fn evictable_pages(self, node: NodeId, group: GroupId, can_swap: bool) -> u64 {
        let generations = &self.core.lru.vec(node, group).generations;
        let types = [false, true].into_iter().filter(|&file| file || can_swap);
        types
            .flat_map(|file| (generations.min_seq(file)..=generations.max_seq()).map(move |seq| (seq, file)))
            .map(|(seq, file)| generations.pages(seq, file))
            .sum()
    }

    /// The swappiness of a group: 0 if swapping is not allowed, or swap is nearly full.
    fn swappiness(self, node: NodeId, group: GroupId, sc: &ScanControl) -> u64 {
        let has_room = || self.core.swap.free_for(group) >= crate::lru::mglru::BATCH || self.demotes(node);
        if !sc.may_swap || !has_room() {
            return 0;
        }
        self.wanted_swappiness(group, sc)
    }
}

#[cfg(test)]
mod tests;
