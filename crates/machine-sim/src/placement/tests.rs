//! The bound compared with all plans, for few pages.

use super::*;
use program::rng::Rng;

const SAVED: f64 = 100.0;
/// Pages of a small case; page `p` is read in frame `p`.
const PAGES: usize = 4;

/// A read of a page, and whether the page is new.
type Small = (usize, bool);

fn bound(reads: &[Small], capacity: u64, move_cost: f64) -> PlacementReport {
    let mut placement = Placement::new(PAGES, capacity, SAVED, move_cost);
    for &(page, new) in reads {
        if new {
            placement.event(Event::MmPageAlloc, [page as u64, 0, 0, 0]);
        }
        let frame = Pfn(page as u32);
        placement.read(Read { page: page as u64, frame, fast: false, lines: 1, longer: SAVED });
    }
    placement.report()
}

/// The cost of the cheapest plan, by brute force over the sets of pages in fast memory at each read.
fn cheapest(reads: &[Small], capacity: u64, move_cost: f64) -> f64 {
    let mut costs = vec![f64::INFINITY; 1 << PAGES];
    costs[0] = 0.0;
    let mut known = 0u32;
    for &(page, new) in reads {
        let mut next = vec![f64::INFINITY; 1 << PAGES];
        for (before, &cost) in costs.iter().enumerate().filter(|(_, cost)| cost.is_finite()) {
            for (after, best) in
                next.iter_mut().enumerate().filter(|(after, _)| u64::from(after.count_ones()) <= capacity)
            {
                let mut moved = (before ^ after) as u32 & known;
                if new {
                    moved &= !(1 << page);
                }
                let slow = if after >> page & 1 == 0 { SAVED } else { 0.0 };
                // A page that was never read is in neither tier.
                if after as u32 & !(known | 1 << page) == 0 {
                    *best = best.min(cost + f64::from(moved.count_ones()) * move_cost + slow);
                }
            }
        }
        known |= 1 << page;
        costs = next;
    }
    costs.into_iter().fold(f64::INFINITY, f64::min)
}

fn reads(rng: &mut Rng, count: u64) -> Vec<Small> {
    let mut read = || {
        // Some pages more often than others.
        let page = rng.below(PAGES as u64).min(rng.below(PAGES as u64)).min(rng.below(PAGES as u64));
        (page as usize, rng.below(12) == 0)
    };
    (0..count).map(|_| read()).collect()
}

#[test]
fn no_plan_is_cheaper_than_the_bound() {
    let mut rng = Rng::new(7);
    let (mut bounds, mut best) = (0.0, 0.0);
    for case in 0..600 {
        let capacity = 1 + rng.below(3);
        let move_cost = [10.0, 60.0, 150.0, 400.0][case % 4];
        let count = 8 + rng.below(12);
        let reads = reads(&mut rng, count);
        let (least, exact) =
            (bound(&reads, capacity, move_cost).least, cheapest(&reads, capacity, move_cost));
        assert!(
            least <= exact + 1e-6,
            "{least} > {exact}: capacity {capacity}, a move {move_cost}, {reads:?}"
        );
        (bounds, best) = (bounds + least, best + exact);
    }
    // Frames that are empty at the begin cost their price, too, which is much for short histories.
    assert!(bounds > 0.4 * best, "{bounds} of {best}");
}

#[test]
fn long_histories_bring_the_best_plan_near_the_bound() {
    let mut rng = Rng::new(11);
    for (capacity, move_cost) in [(1, 150.0), (1, 400.0), (2, 400.0)] {
        let reads = reads(&mut rng, 2000);
        let (least, exact) =
            (bound(&reads, capacity, move_cost).least, cheapest(&reads, capacity, move_cost));
        assert!(
            least <= exact && least > 0.75 * exact,
            "capacity {capacity}, a move {move_cost}: {least} of {exact}"
        );
    }
}

#[test]
fn capacity_for_all_pages_costs_nothing() {
    let reads: Vec<Small> = (0..40).map(|i| (i * 7 % 4, false)).collect();
    let report = bound(&reads, 4, 50.0);
    assert_eq!((report.least, report.least_share, cheapest(&reads, 4, 50.0)), (0.0, 1.0, 0.0));
}

#[test]
fn moves_of_the_run_are_counted_and_so_is_ping_pong() {
    let mut placement = Placement::new(4, 1, SAVED, 50.0);
    let read = |placement: &mut Placement, frame, fast| {
        placement.read(Read { page: 1, frame: Pfn(frame), fast, lines: 1, longer: SAVED });
    };
    placement.event(Event::MmPageAlloc, [0, 0, 0, 0]);
    read(&mut placement, 0, true);
    for (to, from, fast) in [(1, 0, [false, true]), (2, 1, [true, false])] {
        placement.event(Event::MmPageAlloc, [to, 0, 0, 0]);
        placement.copied(Pfn(to as u32), Pfn(from), 1, fast);
    }
    read(&mut placement, 2, true);
    let report = placement.report();
    assert_eq!((report.own, report.moves, report.back), (100.0, 2, 1));
    assert!(report.check().is_ok());
}
