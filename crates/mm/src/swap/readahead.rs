//! How many slots to read when one is wanted: as many as reading ahead has lately been worth.

use crate::primitive::{AtomicU32, Ordering::Relaxed};
use crate::units::SwapSlot;

/// What is remembered of the last reads.
#[derive(Default)]
pub(crate) struct SwapReadahead {
    /// Pages read ahead that were then used, since the last look.
    hits: AtomicU32,
    /// The slot that was wanted when there were no hits to judge by.
    prev: AtomicU32,
    /// The last window.
    window: AtomicU32,
}

impl SwapReadahead {
    /// A page that was read ahead has been used.
    pub(crate) fn hit(&self) {
        self.hits.fetch_add(1, Relaxed);
    }

    /// Slots to read around `slot`, a power of two of at most `max`, 1 = only this one.
    pub(crate) fn window(&self, slot: SwapSlot, max: u32) -> u32 {
        if max <= 1 {
            return 1;
        }
        let hits = self.hits.swap(0, Relaxed);
        let pages = window(self.prev.load(Relaxed), slot.0, hits, max, self.window.load(Relaxed));
        if hits == 0 {
            self.prev.store(slot.0, Relaxed);
        }
        self.window.store(pages, Relaxed);
        pages
    }
}

/// Grows with the hits; without any, two pages for neighbours and one for the rest. Shrinks by half at most.
fn window(prev: u32, slot: u32, hits: u32, max: u32, last: u32) -> u32 {
    let wanted = match hits {
        0 if slot.abs_diff(prev) == 1 => 2,
        0 => 1,
        _ => (hits + 2).next_power_of_two().max(4),
    };
    wanted.min(max).max(last / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_the_hits() {
        assert_eq!(window(10, 500, 0, 8, 0), 1);
        assert_eq!(window(10, 11, 0, 8, 0), 2);
        assert_eq!(window(10, 9, 0, 8, 0), 2);
        assert_eq!(window(10, 500, 1, 8, 0), 4);
        assert_eq!(window(10, 500, 3, 8, 0), 8);
        assert_eq!(window(10, 500, 30, 8, 0), 8);
        assert_eq!(window(10, 500, 0, 8, 8), 4);
    }

    #[test]
    fn a_page_cluster_of_one_reads_one() {
        let state = SwapReadahead::default();
        assert_eq!(state.window(SwapSlot(5), 1), 1);
        state.hit();
        assert_eq!(state.window(SwapSlot(5), 8), 4);
        assert_eq!(state.window(SwapSlot(500), 8), 2);
        assert_eq!(state.window(SwapSlot(900), 8), 1);
    }
}
