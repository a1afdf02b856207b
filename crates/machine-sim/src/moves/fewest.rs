//! The fewest pages that must be moved so that a zone has a free block.
//!
//! An aligned block of 2^n frames can be freed if nothing in it is fixed and the zone has 2^n free pages, to which the
//! block's pages in use can move. If folios may be split, that suffices, and the block with the fewest pages in use is
//! the answer. If folios must stay whole, each needs a free place of its size. The answer is the same if the places
//! outside of that block hold its folios, the largest first. Otherwise other folios would have to move first: in small
//! zones a search finds the best way; in larger ones the number is a lower bound.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Frames of the largest zone that is searched.
const SMALL: usize = 64;
/// Orders of blocks and folios.
const ORDERS: usize = 12;

/// The state of a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Cell {
    /// Free.
    Free,
    /// In use, and cannot be moved.
    Fixed,
    /// The first page of a folio of this order.
    Folio(u8),
    /// Another page of a folio.
    Rest,
}

/// The fewest pages to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fewest {
    /// Fewer do not suffice.
    pub(crate) pages: u64,
    /// Whether these suffice with all folios whole.
    pub(crate) exact: bool,
}

/// The fewest pages that must be moved for a free block of `order` in a zone whose first frame is aligned to every
/// order; `None`: there can be no such block.
pub(crate) fn fewest(zone: &[Cell], order: u8) -> Option<Fewest> {
    let size = 1 << order;
    let free = zone.iter().filter(|&&cell| cell == Cell::Free).count();
    if free < size {
        return None;
    }
    let pages = least(zone, size)?;
    let suits = |at: usize| in_use(&zone[at..at + size]) == Some(pages) && holds_outside(zone, at, size);
    if (0..=zone.len() - size).step_by(size).any(suits) {
        return Some(Fewest { pages, exact: true });
    }
    match zone.len() <= SMALL {
        true => search(zone, size).map(|pages| Fewest { pages, exact: true }),
        false => Some(Fewest { pages, exact: false }),
    }
}

/// The fewest pages in use in any block of `size` without fixed pages.
fn least(zone: &[Cell], size: usize) -> Option<u64> {
    zone.chunks_exact(size).filter_map(in_use).min()
}

/// Pages in use in a block; `None` if one of them is fixed.
fn in_use(block: &[Cell]) -> Option<u64> {
    (!block.contains(&Cell::Fixed)).then(|| block.iter().filter(|&&cell| cell != Cell::Free).count() as u64)
}

/// Whether each folio of the block at `at` has a free place outside of it. Sizes are powers of two and places are aligned,
/// so placing the largest first succeeds if anything does.
fn holds_outside(zone: &[Cell], at: usize, size: usize) -> bool {
    let (mut wanted, mut places) = ([0u64; ORDERS], [0u64; ORDERS]);
    let mut known = 0;
    for cell in &zone[at..at + size] {
        match *cell {
            Cell::Folio(order) => {
                wanted[order as usize] += 1;
                known += 1 << order;
            }
            Cell::Free => known += 1,
            _ => {}
        }
    }
    if known != size {
        // The block is a part of a larger folio, which needs a place of its own size.
        return false;
    }
    count_places(&zone[..at], 0, &mut places);
    count_places(&zone[at + size..], at + size, &mut places);
    let mut left = 0;
    (0..ORDERS).rev().all(|order| {
        let there = places[order] + 2 * left;
        left = there.saturating_sub(wanted[order]);
        there >= wanted[order]
    })
}

/// Count the largest aligned free blocks among frames, the first of which has number `first`, by order.
fn count_places(frames: &[Cell], first: usize, places: &mut [u64; ORDERS]) {
    let mut at = 0;
    while at < frames.len() {
        let free = frames[at..].iter().take_while(|&&cell| cell == Cell::Free).count();
        if free == 0 {
            at += 1;
            continue;
        }
        let aligned = (first + at).trailing_zeros() as usize;
        let order = aligned.min(free.ilog2() as usize).min(ORDERS - 1);
        places[order] += 1;
        at += 1 << order;
    }
}

/// The answer by A* search: continues with the state whose cost so far plus the least cost still to come is lowest.
fn search(zone: &[Cell], size: usize) -> Option<u64> {
    let mut best: BTreeMap<Vec<Cell>, u64> = BTreeMap::new();
    let mut open = BinaryHeap::new();
    best.insert(zone.to_vec(), 0);
    open.push(Reverse((least(zone, size)?, 0, zone.to_vec())));
    while let Some(Reverse((_, cost, now))) = open.pop() {
        if best[&now] < cost {
            continue;
        }
        let still = least(&now, size)?;
        if still == 0 {
            return Some(cost);
        }
        for (pages, next) in moves(&now) {
            let cost = cost + pages;
            if best.get(&next).is_none_or(|&known| cost < known) {
                best.insert(next.clone(), cost);
                open.push(Reverse((cost + least(&next, size)?, cost, next)));
            }
        }
    }
    None
}

/// The states of a zone after one folio has moved, each with the number of its pages.
fn moves(zone: &[Cell]) -> Vec<(u64, Vec<Cell>)> {
    let mut all = Vec::new();
    for (from, cell) in zone.iter().enumerate() {
        let &Cell::Folio(order) = cell else { continue };
        let size = 1 << order;
        for to in (0..=zone.len() - size).step_by(size) {
            if zone[to..to + size].iter().any(|&cell| cell != Cell::Free) {
                continue;
            }
            let mut next = zone.to_vec();
            next.copy_within(from..from + size, to);
            next[from..from + size].fill(Cell::Free);
            all.push((size as u64, next));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Zones of `frames` frames with folios and free blocks of at most 4 pages, and fixed pages.
    fn zones(frames: usize) -> impl Strategy<Value = Vec<Cell>> {
        proptest::collection::vec((0..10u8, 0..3u8), frames).prop_map(move |draws| {
            let mut zone = Vec::new();
            for (what, order) in draws {
                let order = order.min(zone.len().trailing_zeros() as u8);
                let size = 1usize << order;
                if zone.len() + size > frames {
                    break;
                }
                match what {
                    0 => zone.push(Cell::Fixed),
                    1..=4 => zone.extend(std::iter::repeat_n(Cell::Free, size)),
                    _ => {
                        zone.push(Cell::Folio(order));
                        zone.extend(std::iter::repeat_n(Cell::Rest, size - 1));
                    }
                }
            }
            zone.resize(frames, Cell::Free);
            zone
        })
    }

    /// The answer by Dijkstra's algorithm over all reachable states.
    fn by_force(zone: &[Cell], size: usize) -> Option<u64> {
        let mut open = BTreeSet::from([(0, zone.to_vec())]);
        let mut done = BTreeSet::new();
        while let Some((cost, now)) = open.pop_first() {
            if now.chunks_exact(size).any(|block| block.iter().all(|&cell| cell == Cell::Free)) {
                return Some(cost);
            }
            if done.insert(now.clone()) {
                let next = moves(&now).into_iter().filter(|(_, next)| !done.contains(next));
                open.extend(next.map(|(pages, next)| (cost + pages, next)));
            }
        }
        None
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        #[test]
        fn small_zones_agree_with_brute_force(zone in zones(12), order in 1..4u8) {
            let padded: Vec<Cell> = zone.iter().copied().chain([Cell::Fixed; 4]).collect();
            let found = fewest(&padded, order);
            let forced = by_force(&padded, 1 << order);
            match (found, forced) {
                (Some(found), Some(forced)) => {
                    prop_assert!(found.exact);
                    prop_assert_eq!(found.pages, forced);
                }
                (found, None) => prop_assert!(found.is_none(), "{found:?}"),
                (None, forced) => prop_assert!(forced.is_none(), "{forced:?}"),
            }
        }

        #[test]
        fn larger_zones_give_a_lower_bound(zone in zones(12), order in 1..4u8) {
            // The same zone, too large to be searched.
            let mut large: Vec<Cell> = zone.iter().copied().chain([Cell::Fixed; 4]).collect();
            let forced = by_force(&large, 1 << order);
            large.resize(SMALL + 64, Cell::Fixed);
            if let Some(forced) = forced {
                let found = fewest(&large, order).expect("there can be a block");
                prop_assert!(found.pages <= forced);
                prop_assert!(!found.exact || found.pages == forced);
            }
        }

        #[test]
        fn single_pages_have_an_exact_answer(zone in zones(16), order in 1..4u8) {
            let single: Vec<Cell> = zone
                .iter()
                .map(|&cell| if matches!(cell, Cell::Folio(_) | Cell::Rest) { Cell::Folio(0) } else { cell })
                .collect();
            let split = fewest(&single, order);
            prop_assert_eq!(split.map(|found| found.pages), by_force(&single, 1 << order));
            prop_assert!(split.is_none_or(|found| found.exact));
            if let (Some(split), Some(whole)) = (split, fewest(&zone, order)) {
                prop_assert!(split.pages <= whole.pages, "split folios must not need more moves");
            }
        }
    }

    #[test]
    fn other_folios_move_first_if_a_folio_has_no_place() {
        use Cell::{Fixed as X, Folio as F, Free as O, Rest as R};
        // A pair, and two single pages whose neighbours are free: one of these must move first.
        let zone = [F(1), R, O, O, F(0), O, O, F(0), X, X, X, X];
        assert_eq!(fewest(&zone, 2), Some(Fewest { pages: 2, exact: true }), "the two single pages");
        let zone = [F(1), R, O, O, F(0), O, O, X, F(0), X, X, O];
        // The only other place of the pair is next to it.
        assert_eq!(fewest(&zone, 2), Some(Fewest { pages: 3, exact: true }));
        assert_eq!(fewest(&[F(0), O, X, O], 1), Some(Fewest { pages: 1, exact: true }));
        assert_eq!(fewest(&[F(0), X, F(0), O], 1), None);
        assert_eq!(fewest(&[O, O, F(0), X], 1), Some(Fewest { pages: 0, exact: true }));
    }
}
