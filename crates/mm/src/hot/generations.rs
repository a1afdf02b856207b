//! Young bits: a page that MGLRU's page-table walks found used in two consecutive rounds is hot.
//!
//! In each round the promotion daemon has the tables of all spaces walked for the vectors of slower tiers. The walks,
//! which move used folios to the youngest generation, report each folio that they find young. They start no new
//! generation: reclaim does so when it needs cold folios in order. The cost is a look at every entry, and a page is
//! reported once per round, however often it was used.
//!
//! Source: the idea of klruscand (Kinsey Ho, linux-mm, 2025: MGLRU's walks as source of promotion; a page that is
//! found twice within a window is promoted).

use super::table::Table;
use super::{HotAccess, HotPolicy, PageName, PromoteVerdict};
use crate::knobs::Knobs;
use crate::primitive::{AtomicU32, Ordering::Relaxed};

/// State of the policy of young bits.
pub(crate) struct HotGenerations {
    /// The round in which a page was last found young.
    seen: Table,
    round: AtomicU32,
}

impl HotGenerations {
    pub(super) fn new(frames: u64) -> HotGenerations {
        HotGenerations { seen: Table::new(frames), round: AtomicU32::new(1) }
    }

    fn note(&self, name: PageName) -> bool {
        let (place, round) = (self.seen.place(name), self.round.load(Relaxed));
        let before = place.own();
        place.set(round);
        before == Some(round - 1)
    }
}

impl HotPolicy for HotGenerations {
    fn used(&self, used: &HotAccess) -> PromoteVerdict {
        let hot = used.name.is_some_and(|name| self.note(name));
        PromoteVerdict { promote: hot, candidate: hot }
    }

    fn round(&self, _fast: u64, _knobs: &Knobs) {
        self.round.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hot::{HotLimits, PageName};
    use crate::units::*;

    #[test]
    fn page_used_in_two_consecutive_rounds_is_hot() {
        let generations = HotGenerations::new(64);
        let knobs = Knobs::default();
        let limits = HotLimits::of(&knobs);
        let used = |page: u64| {
            let name = Some(PageName(page << 32 | page));
            let used =
                HotAccess { page: Pfn(1), name, pages: 1, to: NodeId(0), ample: false, now_ms: 0, limits };
            generations.used(&used).promote
        };
        let rounds: std_alloc::vec::Vec<[bool; 2]> = (0..4)
            .map(|round| {
                generations.round(0, &knobs);
                // One page is used in every round, the other in every second; the first twice in round 0.
                let often = used(1) | (round == 0 && used(1));
                [often, round % 2 == 0 && used(2)]
            })
            .collect();
        assert_eq!(rounds, [[false, false], [true, false], [true, false], [true, false]]);
    }
}
