//! What reclaim's walks of page tables tell those who promote to faster tiers.

use super::{AddressSpaces, Reclaim, ReclaimState};
use crate::hot::{Asked, Limits, PageName, Used};
use crate::knobs::TierPolicy;
use crate::lru::ROOT;
use crate::machine::Machine;
use crate::stat::Stat;
use crate::store::Store;
use crate::units::*;

/// A walk has found a folio of a slower tier young.
pub(super) fn note_young<M: Machine>(st: &Store<M>, head: Pfn) {
    let frame = &st.frames[head];
    let Some(name) = PageName::of(frame) else { return };
    let to = st.tiers.nearest_top(frame.node());
    let pages = u64::from(frame.pages());
    let used = Used {
        page: head,
        name: Some(name),
        pages,
        to,
        ample: false,
        now_ms: st.machine.now() / MILLISECOND,
        limits: Limits::of(&st.knobs),
    };
    let verdict = st.hot.policy(&st.knobs).used(&used);
    if verdict.candidate {
        st.count(Stat::PgpromoteCandidate, pages as i64);
    }
    if verdict.promote {
        st.hot.ask(Asked { page: head, name, to });
    }
}

/// Look at the young bits of what slower tiers hold, if generations are what replaces pages.
pub fn look_at_slow_tiers<M: Machine>(st: &Store<M>, state: &ReclaimState, spaces: &dyn AddressSpaces) {
    let cx = Reclaim { st, state, spaces };
    if !st.lru.may_have_generations() {
        return;
    }
    let slow = (0..st.tiers.nodes() as u8)
        .map(NodeId)
        .filter(|&node| st.tiers.has_memory(node) && !st.tiers.is_top(node));
    for node in slow {
        for group in st.lru.groups.subtree(ROOT) {
            cx.look_for_young(node, group);
            st.machine.resched();
        }
    }
}

impl<M: Machine> Reclaim<'_, M> {
    /// Does a walk for a node's vectors tell of what it finds young?
    pub(super) fn tells_of_young(self, node: NodeId) -> bool {
        self.st.knobs.tier_policy() == TierPolicy::Generations && !self.st.tiers.is_top(node)
    }
}
