//! How many free blocks of 2 MiB the compaction of a whole zone can make, and the fewest pages that must move for that.
//!
//! A block can be freed if nothing in it is fixed and its pages in use fit into the free pages of other blocks. The
//! blocks with the fewest pages in use cost the fewest moves and leave the most free pages, so they are taken first, as
//! long as there are free pages. That a folio must stay whole is ignored, which can only give more blocks and fewer moves.

use super::fewest::Cell;

/// The blocks of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Blocks {
    /// Free blocks.
    pub(super) whole: u64,
    /// The most free blocks that there could be.
    pub(super) possible: u64,
    /// The fewest pages that must be moved for that many.
    pub(super) least: u64,
}

/// The blocks of `size` frames of a zone whose first frame is aligned to every order.
pub(super) fn blocks(zone: &[Cell], size: usize) -> Blocks {
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

    /// The best of all choices of blocks: most blocks, then fewest moves.
    fn by_force(zone: &[Cell], size: usize) -> Blocks {
        let blocks: Vec<&[Cell]> = zone.chunks_exact(size).collect();
        let free = |block: &[Cell]| block.iter().filter(|&&cell| cell == Cell::Free).count();
        let mut best = (0, 0);
        for choice in 0..1u32 << blocks.len() {
            let chosen = |i: &usize| choice >> i & 1 == 1;
            let chosen_blocks: Vec<usize> = (0..blocks.len()).filter(chosen).collect();
            let moves: usize = chosen_blocks.iter().map(|&i| size - free(blocks[i])).sum();
            let places = free(zone) - chosen_blocks.iter().map(|&i| free(blocks[i])).sum::<usize>();
            let open = chosen_blocks.iter().all(|&i| !blocks[i].contains(&Cell::Fixed));
            if open
                && moves <= places
                && (chosen_blocks.len(), usize::MAX - moves) > (best.0, usize::MAX - best.1)
            {
                best = (chosen_blocks.len(), moves);
            }
        }
        let whole = blocks.iter().filter(|block| free(block) == size).count() as u64;
        Blocks { whole, possible: best.0 as u64, least: best.1 as u64 }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

        #[test]
        fn the_greedy_choice_agrees_with_brute_force(draws in proptest::collection::vec(0..8u8, 30)) {
            let cell = |draw| match draw {
                0 => Cell::Fixed,
                1..=4 => Cell::Free,
                _ => Cell::Folio(0),
            };
            let zone: Vec<Cell> = draws.into_iter().map(cell).collect();
            prop_assert_eq!(blocks(&zone, 4), by_force(&zone, 4));
        }
    }
}
