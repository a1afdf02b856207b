//! How many blocks of 2 MiB all of a zone's free memory can be made into, and the fewest pages that must be moved for
//! so many.
//!
//! A block can be had if nothing in it is fixed, and what is in use in it goes to free pages of blocks that are not
//! had. Those with the fewest pages in use cost the fewest moves and leave the most places, so they are taken as long
//! as there are places. That folios are larger than pages, and have to find a place of their size, is left out of
//! account: no more blocks can be had, and no fewer moves will do.

use super::fewest::Cell;

/// Blocks of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Blocks {
    /// That are free.
    pub(super) whole: u64,
    /// That could be.
    pub(super) possible: u64,
    /// The fewest pages that must be moved for so many.
    pub(super) least: u64,
}

/// Of a zone whose first frame is aligned to any size.
pub(super) fn everything(zone: &[Cell], size: usize) -> Blocks {
    let free = |block: &[Cell]| block.iter().filter(|&&cell| cell == Cell::Free).count();
    let mut places = free(zone);
    let open = zone.chunks_exact(size).filter(|block| !block.contains(&Cell::Fixed));
    let mut used: Vec<usize> = open.map(|block| size - free(block)).collect();
    used.sort_unstable();
    let whole = used.iter().take_while(|&&used| used == 0).count() as u64;
    let (mut possible, mut least) = (0, 0);
    for used in used {
        places = match places.checked_sub(size - used) {
            Some(left) if least + used <= left => left,
            _ => break,
        };
        possible += 1;
        least += used;
    }
    Blocks { whole, possible, least: least as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The best of all choices of blocks: the most, and then the fewest moves.
    fn by_force(zone: &[Cell], size: usize) -> Blocks {
        let blocks: Vec<&[Cell]> = zone.chunks_exact(size).collect();
        let free = |block: &[Cell]| block.iter().filter(|&&cell| cell == Cell::Free).count();
        let mut best = (0, 0);
        for choice in 0..1u32 << blocks.len() {
            let chosen = |i: &usize| choice >> i & 1 == 1;
            let had: Vec<usize> = (0..blocks.len()).filter(chosen).collect();
            let moves: usize = had.iter().map(|&i| size - free(blocks[i])).sum();
            let places = free(zone) - had.iter().map(|&i| free(blocks[i])).sum::<usize>();
            let open = had.iter().all(|&i| !blocks[i].contains(&Cell::Fixed));
            if open && moves <= places && (had.len(), usize::MAX - moves) > (best.0, usize::MAX - best.1) {
                best = (had.len(), moves);
            }
        }
        let whole = blocks.iter().filter(|block| free(block) == size).count() as u64;
        Blocks { whole, possible: best.0 as u64, least: best.1 as u64 }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        #[test]
        fn it_is_the_best_of_all_choices(draws in proptest::collection::vec(0..8u8, 30)) {
            let cell = |draw| match draw {
                0 => Cell::Fixed,
                1..=4 => Cell::Free,
                _ => Cell::Folio(0),
            };
            let zone: Vec<Cell> = draws.into_iter().map(cell).collect();
            prop_assert_eq!(everything(&zone, 4), by_force(&zone, 4));
        }
    }
}
