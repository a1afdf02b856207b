//! What reclaim's walks of page tables report for promotion to faster tiers.

use super::{AddressSpaces, Reclaim, ReclaimState};
use crate::hot::{Asked, HotAccess, HotLimits, PageName};
use crate::knobs::TierPolicy;
use crate::lru::ROOT;
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::stat::Stat;
use crate::units::*;

/// A walk has found a folio of a slower tier young.
pub(super) fn note_young<M: Machine>(core: &MmCore<M>, head: Pfn) {
    let frame = &core.frames[head];
    let Some(name) = PageName::of(frame) else { return };
    let to = core.tiers.nearest_top(frame.node());
    let pages = u64::from(frame.pages());
    let used = HotAccess {
        page: head,
        name: Some(name),
        pages,
        to,
        ample: false,
        now_ms: core.machine.now() / MILLISECOND,
        limits: HotLimits::of(&core.knobs),
    };
    let verdict = core.hot.policy(&core.knobs).used(&used);
    if verdict.candidate {
        core.count(Stat::PgpromoteCandidate, pages as i64);
    }
    if verdict.promote {
        core.hot.ask(Asked { page: head, name, to });
    }
}

/// Look at the young bits of the folios in slower tiers, if the policy is generations.
pub(crate) fn look_at_slow_tiers<M: Machine>(
    core: &MmCore<M>,
    state: &ReclaimState,
    spaces: &dyn AddressSpaces,
) {
    let cx = Reclaim { core, state, spaces };
    if !core.lru.may_have_generations() {
        return;
    }
    let slow = (0..core.tiers.nodes() as u8)
        .map(NodeId)
        .filter(|&node| core.tiers.has_memory(node) && !core.tiers.is_top(node));
    for node in slow {
        for group in core.lru.groups.subtree(ROOT) {
            cx.look_for_young(node, group);
            core.machine.resched();
        }
    }
}

impl<M: Machine> Reclaim<'_, M> {
    /// Whether a walk for a node's vectors reports young folios.
    pub(super) fn tells_of_young(self, node: NodeId) -> bool {
        self.core.knobs.tier_policy() == TierPolicy::Generations && !self.core.tiers.is_top(node)
    }
}
