//! Demotion: what is cold goes to a slower tier of memory, before it is dropped or swapped.
//!
//! Source: mm/vmscan.c of Linux 6.12 (`can_demote`, `demote_folio_list`).

use super::shrink::Fate;
use super::{DEF_PRIORITY, Reclaim, ScanControl};
use crate::alloc::{Fresh, Mark};
use crate::frame::List;
use crate::hot::PageName;
use crate::knobs::Knob;
use crate::machine::Machine;
use crate::migrate::{self, Target, Why, frame_on};
use crate::stat::Stat;
use crate::store::Store;
use crate::units::*;

/// From this priority of reclaim on nothing is too hot to be demoted.
const DISTRESS: u32 = DEF_PRIORITY - 4;

/// Frames of slower tiers: of the node whose turn it is, or of any.
pub struct Slower {
    /// The node whose turn it is.
    pub first: NodeId,
    /// The node that is left.
    pub from: NodeId,
}

impl<M: Machine> Target<M> for Slower {
    fn take(&mut self, st: &Store<M>, _from: Pfn, order: Order) -> Option<Fresh> {
        // If there is too little above the low mark, the node's kswapd is woken: what is cold there goes on to the next
        // tier.
        let first = frame_on(st, self.first, order, Mark::Low);
        first.or_else(|| frame_on(st, self.first, order, Mark::Min)).or_else(|| {
            let others = st.tiers.lower(self.from).iter().filter(|&&node| node != self.first);
            others.copied().find_map(|node| frame_on(st, node, order, Mark::Min))
        })
    }

    fn give_back(&mut self, st: &Store<M>, unused: Fresh) {
        st.put(unused.into_pfn());
    }
}

impl<M: Machine> Reclaim<'_, M> {
    /// Does what is cold on a node go to a slower tier?
    #[inline]
    pub(super) fn demotes(self, node: NodeId) -> bool {
        demotes(self.st, node)
    }

    /// What is cold to reclaim may be hot to who decides about promotion: it stays, as long as there is no distress.
    #[cold]
    pub(super) fn demote_or_keep(self, pfn: Pfn, sc: &ScanControl) -> Fate {
        let (st, frame) = (self.st, &self.st.frames[pfn]);
        let name = PageName::of(frame).filter(|_| sc.priority > DISTRESS);
        if name.is_some_and(|name| st.hot.policy(&st.knobs).keeps(name)) {
            st.count(Stat::TierKept, i64::from(frame.pages()));
            return Fate::Activate;
        }
        Fate::Demote
    }

    /// Move cold folios of a node to slower tiers. Returns the pages moved, and what is not moved.
    pub(super) fn demote(self, node: NodeId, cold: List, sc: &ScanControl) -> (u64, List) {
        let st = self.st;
        let Some(first) = st.tiers.demotion_target(node) else { return (0, cold) };
        let (done, stay) =
            migrate::folios_of_reclaim(st, cold, &mut Slower { first, from: node }, Why::Demotion);
        st.count(if sc.kswapd { Stat::PgdemoteKswapd } else { Stat::PgdemoteDirect }, done.moved as i64);
        (done.moved, stay)
    }
}

/// Does reclaim of a node demote?
pub(super) fn demotes<M: Machine>(st: &Store<M>, node: NodeId) -> bool {
    st.tiers.many() && st.knobs.get(Knob::DemotionEnabled) != 0 && st.tiers.has_lower(node)
}
