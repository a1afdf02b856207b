//! Swap readahead: how many slots to read with the wanted one, depending on how useful readahead has been lately. The
//! slots are its neighbours in swap, or those of its neighbours in the address space; each range has its own state.

use crate::primitive::{AtomicU32, Ordering::Relaxed};
use crate::units::{SwapSlot, Vpn};
use core::ops::Range;

/// State of readahead by slot.
#[derive(Default)]
pub(crate) struct SwapReadahead {
    /// Pages read ahead and then used, since the last window.
    hits: AtomicU32,
    /// The slot wanted when the window was last chosen without hits.
    prev: AtomicU32,
    window: AtomicU32,
}

impl SwapReadahead {
    /// Record that a page read ahead has been used.
    pub(crate) fn hit(&self) {
        self.hits.fetch_add(1, Relaxed);
    }

    /// Number of slots that are worth reading around `slot`: a power of two of at most `max`, 1 = only this one.
    pub(crate) fn window(&self, slot: SwapSlot, max: u32) -> u32 {
        if max <= 1 {
            return 1;
        }
        let [prev, hits, last] = [&self.prev, &self.hits, &self.window].map(|value| value.load(Relaxed));
        window(prev.into(), slot.0.into(), hits, max, last)
    }

    /// Record that the window is being read.
    pub(crate) fn read(&self, slot: SwapSlot, max: u32) {
        if max <= 1 {
            return;
        }
        let [prev, last] = [&self.prev, &self.window].map(|value| value.load(Relaxed));
        let hits = self.hits.swap(0, Relaxed);
        self.window.store(window(prev.into(), slot.0.into(), hits, max, last), Relaxed);
        if hits == 0 {
            self.prev.store(slot.0, Relaxed);
        }
    }
}

/// Maximum of hits remembered per range.
const RANGE_HITS: u32 = 63;
/// Hits that a range starts with, so that readahead is tried.
const FIRST_HITS: u32 = 4;

/// State of readahead in a range of an address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RangeReadahead {
    /// The last page.
    prev: u64,
    window: u32,
    hits: u32,
}

impl Default for RangeReadahead {
    fn default() -> RangeReadahead {
        RangeReadahead { prev: 0, window: 0, hits: FIRST_HITS }
    }
}

impl RangeReadahead {
    /// Record that a page was found in the swap cache; `ahead`: it had been read ahead.
    pub fn found(&mut self, page: Vpn, ahead: bool) {
        self.hits = (self.hits + u32::from(ahead)).min(RANGE_HITS);
        self.prev = page.0;
    }

    /// The pages, at most `max`, that are worth reading with a page that must be read: in the direction of the faults,
    /// or around it. `None`: only this one.
    pub fn window(&self, page: Vpn, max: u32) -> Option<Range<u64>> {
        let (prev, pages) = (self.prev, self.pages(page, max));
        let before = match page.0 {
            at if at == prev.wrapping_add(1) => 0,
            at if at.wrapping_add(1) == prev => pages - 1,
            _ => (pages - 1) / 2,
        };
        let first = page.0.wrapping_sub(before.into());
        let end = first.wrapping_add(pages.into());
        (pages > 1).then_some(if first > page.0 { 0..end } else { first..end })
    }

    /// Record that the window of a page is being read.
    pub fn read(&mut self, page: Vpn, max: u32) {
        if max > 1 {
            *self = RangeReadahead { prev: page.0, window: self.pages(page, max), hits: 0 };
        }
    }

    fn pages(&self, page: Vpn, max: u32) -> u32 {
        if max <= 1 { 1 } else { window(self.prev, page.0, self.hits, max, self.window) }
    }
}

/// The window grows with the hits; without any, it is two pages for neighbours and one otherwise. It shrinks by half
/// at most.
fn window(prev: u64, place: u64, hits: u32, max: u32, last: u32) -> u32 {
    let wanted = match hits {
        0 if place.abs_diff(prev) == 1 => 2,
        0 => 1,
        _ => (hits + 2).next_power_of_two().max(4),
    };
    wanted.min(max).max(last / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_follows_the_hits() {
        assert_eq!(window(10, 500, 0, 8, 0), 1);
        assert_eq!(window(10, 11, 0, 8, 0), 2);
        assert_eq!(window(10, 9, 0, 8, 0), 2);
        assert_eq!(window(10, 500, 1, 8, 0), 4);
        assert_eq!(window(10, 500, 3, 8, 0), 8);
        assert_eq!(window(10, 500, 30, 8, 0), 8);
        assert_eq!(window(10, 500, 0, 8, 8), 4);
    }

    #[test]
    fn page_cluster_of_one_reads_one_slot() {
        let state = SwapReadahead::default();
        let read = |slot, max| {
            let pages = state.window(SwapSlot(slot), max);
            assert_eq!(state.window(SwapSlot(slot), max), pages, "a plan changes nothing");
            state.read(SwapSlot(slot), max);
            pages
        };
        assert_eq!(read(5, 1), 1);
        state.hit();
        assert_eq!(read(5, 8), 4);
        assert_eq!(read(500, 8), 2);
        assert_eq!(read(900, 8), 1);
    }

    #[test]
    fn range_reads_ahead_in_the_direction_of_its_faults() {
        let mut state = RangeReadahead::default();
        let missed = |state: &mut RangeReadahead, page, max| {
            let window = state.window(Vpn(page), max);
            state.read(Vpn(page), max);
            window
        };
        assert_eq!(missed(&mut state, 100, 8), Some(97..105), "a first miss reads around the page");
        assert_eq!(missed(&mut state, 101, 8), Some(101..105), "without hits the window halves, upwards");
        (102..105).for_each(|page| state.found(Vpn(page), true));
        assert_eq!(missed(&mut state, 105, 8), Some(105..113));
        assert_eq!(missed(&mut state, 104, 8), Some(101..105), "downwards");
        assert_eq!(missed(&mut state, 900, 8), Some(900..902), "the window shrinks by half at most");
        assert_eq!(missed(&mut state, 500, 8), None);
        assert_eq!(missed(&mut state, 500, 1), None);
        assert_eq!(RangeReadahead::default().window(Vpn(2), 8), Some(0..7));
    }
}
