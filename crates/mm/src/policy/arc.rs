//! ARC: folios used once and folios used more often share memory in proportions that follow what returns after its
//! eviction.
//!
//! Source: Megiddo, Modha: ARC, a Self-Tuning, Low Overhead Replacement Cache, FAST 2003, figure 4; with the clocks
//! of Bansal, Modha: CAR, Clock with Adaptive Replacement, FAST 2004, figure 2, because uses are seen only when
//! reclaim looks. A directory knows an evicted folio until as many pages have been evicted since as memory holds. The
//! number of folios of either kind in the directory is an estimate.

use super::{InsertReason, Judgement, Past, Replace, Spot, View, added_to_two, hits, list_of_two};

/// The lists of folios used once and of folios used more often.
const ONCE: usize = 0;
const OFTEN: usize = 1;
/// In the mark: the folio was used more than once.
const IS_OFTEN: u8 = 0x80;

#[derive(Default)]
pub(super) struct Arc {
    /// Target size of the list of folios used once, in pages.
    target: u64,
    /// Pages of the lists.
    sizes: [u64; 2],
    /// Pages in the directories of evicted folios.
    ghosts: [u64; 2],
}

impl Replace for Arc {
    fn lists(&self) -> usize {
        2
    }

    fn added(&mut self, folio: View<'_>, why: InsertReason) -> Spot {
        added_to_two(folio, why, IS_OFTEN)
    }

    fn returned(&mut self, folio: View<'_>, past: Past) {
        let from = match past.left {
            1 => ONCE,
            2 => OFTEN,
            _ => return,
        };
        if past.distance > past.resident {
            return;
        }
        let [ours, others] = [self.ghosts[from], self.ghosts[1 - from]];
        let step = (others / ours.max(1)).max(1) * folio.pages();
        self.target = match from {
            ONCE => (self.target + step).min(past.resident),
            _ => self.target.saturating_sub(step),
        };
        self.ghosts[from] = ours.saturating_sub(folio.pages());
        folio.set_mark(IS_OFTEN);
    }

    fn next(&mut self, sizes: &[u64]) -> Spot {
        self.sizes = [sizes[ONCE], sizes[OFTEN]];
        let once = sizes[ONCE] >= self.target.max(1) || sizes[OFTEN] == 0;
        Spot::tail(if once { ONCE } else { OFTEN })
    }

    fn judge(&mut self, folio: View<'_>) -> Judgement {
        if hits(folio) == 0 {
            return Judgement::Evict;
        }
        folio.set_mark(IS_OFTEN);
        Judgement::Move(Spot::head(OFTEN))
    }

    fn evicted(&mut self, folio: View<'_>) -> u8 {
        let (from, [once, often]) = (list_of_two(folio, IS_OFTEN), self.sizes);
        self.ghosts[from] += folio.pages();
        // The list of folios used once and its directory are together at most as large as memory, and so are both
        // directories.
        self.ghosts[ONCE] = self.ghosts[ONCE].min(often + folio.pages());
        self.ghosts[OFTEN] = self.ghosts[OFTEN].min((once + often).saturating_sub(self.ghosts[ONCE]));
        from as u8 + 1
    }
}
