//! The fewest pages that must be moved so that a zone has a free block.
//!
//! A block of 2^n frames, aligned to its size, can be had if nothing in it is fixed and as many pages are free as it
//! has: what is in use in it goes elsewhere. If folios may be split, no more is needed, and the block with the fewest
//! pages in use is the answer. If folios are to stay whole, each needs a free place of its size: the answer is the same
//! where the places outside of that block hold its folios, the largest first. Where they do not, others would have to
//! be moved for places: that is searched for in small zones; in larger ones the number is one that can not be undercut.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Larger zones are not searched.
const SMALL: usize = 64;
/// Orders of blocks and folios.
const ORDERS: usize = 12;

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Cell {
    /// Free.
    Free,
    /// It stays as it is.
    Fixed,
    /// The first page of a folio of this order.
    Folio(u8),
    /// One of its others.
    Rest,
}

/// The fewest pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fewest {
    /// No fewer will do.
    pub(crate) pages: u64,
    /// So many will do, with all folios whole.
    pub(crate) exact: bool,
}

/// Of the frames of a zone, the first of which is aligned to any size, for a block of `order`; `None`: there cannot be
/// one.
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

/// Pages in use in the block of `size` that has the fewest and nothing that is fixed.
fn least(zone: &[Cell], size: usize) -> Option<u64> {
    zone.chunks_exact(size).filter_map(in_use).min()
}

/// Pages in use in a block; `None`: one of them stays.
fn in_use(block: &[Cell]) -> Option<u64> {
    (!block.contains(&Cell::Fixed)).then(|| block.iter().filter(|&&cell| cell != Cell::Free).count() as u64)
}

/// Is there a free place outside of the block at `at` for each of its folios? Sizes are powers of two and places
/// aligned, so the largest first finds one if there is one for all.
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
        // A part of a folio that is as large or larger: that one needs no smaller place.
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

/// The largest aligned free blocks of some frames, the first of which has this number, by order.
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

/// The same by trying: always on with what has cost the least, and what it will still cost at least.
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

/// What a zone can be after one folio has been moved, and how many pages that has.
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

    /// Folios and free blocks of at most 4 pages, and fixed pages, side by side in `frames` frames.
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

    /// By going through everything that can be reached, cheapest first, without any idea of where to look.
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
        fn small_zones_are_as_going_through_everything_finds_them(zone in zones(12), order in 1..4u8) {
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
        fn in_larger_zones_no_fewer_will_do(zone in zones(12), order in 1..4u8) {
            // The same zone, as if it were too large to be searched.
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
        fn single_pages_always_have_an_answer(zone in zones(16), order in 1..4u8) {
            let single: Vec<Cell> = zone
                .iter()
                .map(|&cell| if matches!(cell, Cell::Folio(_) | Cell::Rest) { Cell::Folio(0) } else { cell })
                .collect();
            let split = fewest(&single, order);
            prop_assert_eq!(split.map(|found| found.pages), by_force(&single, 1 << order));
            prop_assert!(split.is_none_or(|found| found.exact));
            if let (Some(split), Some(whole)) = (split, fewest(&zone, order)) {
                prop_assert!(split.pages <= whole.pages, "to split folios never takes more");
            }
        }
    }

    #[test]
    fn folios_that_have_no_place_have_others_moved_for_them() {
        use Cell::{Fixed as X, Folio as F, Free as O, Rest as R};
        // A pair, and two single pages whose neighbours are free: one of them has to make room first.
        let zone = [F(1), R, O, O, F(0), O, O, F(0), X, X, X, X];
        assert_eq!(fewest(&zone, 2), Some(Fewest { pages: 2, exact: true }), "the two single pages");
        let zone = [F(1), R, O, O, F(0), O, O, X, F(0), X, X, O];
        // The pair has no place but beside itself.
        assert_eq!(fewest(&zone, 2), Some(Fewest { pages: 3, exact: true }));
        assert_eq!(fewest(&[F(0), O, X, O], 1), Some(Fewest { pages: 1, exact: true }));
        assert_eq!(fewest(&[F(0), X, F(0), O], 1), None);
        assert_eq!(fewest(&[O, O, F(0), X], 1), Some(Fewest { pages: 0, exact: true }));
    }
}
