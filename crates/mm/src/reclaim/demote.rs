//! Demotion: cold folios move to a slower tier of memory before they are dropped or swapped.
//!
//! Source: mm/vmscan.c of Linux 6.12 (`can_demote`, `demote_folio_list`).

use super::pass::ReclaimFate;
use super::{DEF_PRIORITY, Reclaim, ScanControl};
use crate::alloc::{Fresh, Watermark};
use crate::frame::List;
use crate::hot::PageName;
use crate::knobs::Knob;
use crate::machine::Machine;
use crate::migrate::{self, MigrateReason, Target, frame_on};
use crate::mm_core::MmCore;
use crate::stat::Stat;
use crate::units::*;

/// From this priority on, any folio may be demoted, even a hot one.
const DISTRESS: u32 = DEF_PRIORITY - 4;

/// Frames of slower tiers: of one node first, else of any other.
pub(crate) struct Slower {
    pub first: NodeId,
    /// The node that folios leave.
    pub from: NodeId,
}

impl<M: Machine> Target<M> for Slower {
    fn take(&mut self, core: &MmCore<M>, _from: Pfn, order: Order) -> Option<Fresh> {
        // Below the low mark the node's kswapd is woken, which demotes cold folios to the next tier.
        let first = frame_on(core, self.first, order, Watermark::Low);
        first.or_else(|| frame_on(core, self.first, order, Watermark::Min)).or_else(|| {
            let others = core.tiers.lower(self.from).iter().filter(|&&node| node != self.first);
            others.copied().find_map(|node| frame_on(core, node, order, Watermark::Min))
        })
    }

    fn give_back(&mut self, core: &MmCore<M>, unused: Fresh) {
        core.put(unused.into_pfn());
    }
}

impl<M: Machine> Reclaim<'_, M> {
    /// Whether cold folios of a node go to a slower tier.
    #[inline]
    pub(super) fn demotes(self, node: NodeId) -> bool {
        demotes(self.core, node)
    }

    /// Demote a folio that is cold for reclaim, unless the policy of promotion knows it as hot and reclaim is not in
    /// distress.
    #[cold]
    pub(super) fn demote_or_keep(self, pfn: Pfn, sc: &ScanControl) -> ReclaimFate {
        let (core, frame) = (self.core, &self.core.frames[pfn]);
        let name = PageName::of(frame).filter(|_| sc.priority > DISTRESS);
        if name.is_some_and(|name| core.hot.policy(&core.knobs).keeps(name)) {
            core.count(Stat::TierKept, i64::from(frame.pages()));
            return ReclaimFate::Activate;
        }
        ReclaimFate::Demote
    }

    /// Move cold folios of a node to slower tiers. Returns the pages moved, and the folios that were not.
    pub(super) fn demote(self, node: NodeId, cold: List, sc: &ScanControl) -> (u64, List) {
        let core = self.core;
        let Some(first) = core.tiers.demotion_target(node) else { return (0, cold) };
        let (done, stay) = migrate::folios_of_reclaim(
            core,
            cold,
            &mut Slower { first, from: node },
            MigrateReason::Demotion,
        );
        core.count(if sc.kswapd { Stat::PgdemoteKswapd } else { Stat::PgdemoteDirect }, done.moved as i64);
        (done.moved, stay)
    }
}

/// Whether reclaim of a node demotes.
pub(super) fn demotes<M: Machine>(core: &MmCore<M>, node: NodeId) -> bool {
    core.tiers.many() && core.knobs.get(Knob::DemotionEnabled) != 0 && core.tiers.has_lower(node)
}
