//! A set of page numbers: a bitmap in pieces of a word, so that a page far from all others takes little room, too.

use std::collections::HashMap;

/// Pages of a piece.
const PIECE: u64 = 64;

/// A set of page numbers.
#[derive(Default)]
pub(crate) struct PageSet {
    pieces: HashMap<u64, u64>,
    len: u64,
}

/// The page's piece, and its bit there.
const fn place(page: u64) -> (u64, u64) {
    (page / PIECE, 1 << (page % PIECE))
}

impl PageSet {
    /// Number of pages.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Add a page. Returns whether it is new.
    pub fn insert(&mut self, page: u64) -> bool {
        let (piece, bit) = place(page);
        let word = self.pieces.entry(piece).or_default();
        let new = *word & bit == 0;
        *word |= bit;
        self.len += u64::from(new);
        new
    }

    /// Whether the page is in the set.
    pub fn contains(&self, page: u64) -> bool {
        let (piece, bit) = place(page);
        self.pieces.get(&piece).is_some_and(|word| word & bit != 0)
    }

    /// All pages, from the lowest to the highest.
    pub fn ascending(&self) -> impl Iterator<Item = u64> {
        let mut pieces: Vec<(u64, u64)> = self.pieces.iter().map(|(&piece, &word)| (piece, word)).collect();
        pieces.sort_unstable();
        pieces.into_iter().flat_map(|(piece, word)| {
            (0..PIECE).filter(move |bit| word >> bit & 1 != 0).map(move |bit| piece * PIECE + bit)
        })
    }

    /// Remove a range of pages; returns those that were there.
    pub fn take(&mut self, start: u64, end: u64) -> Vec<u64> {
        let mut touched: Vec<u64> = if (end.saturating_sub(start)) / PIECE > self.pieces.len() as u64 {
            self.pieces
                .keys()
                .copied()
                .filter(|piece| (start / PIECE..=end / PIECE).contains(piece))
                .collect()
        } else {
            (start / PIECE..=end / PIECE).filter(|piece| self.pieces.contains_key(piece)).collect()
        };
        touched.sort_unstable();
        let mut taken = Vec::new();
        for piece in touched {
            let word = self.pieces.get_mut(&piece).expect("only pieces that are there were collected");
            for page in start.max(piece * PIECE)..end.min((piece + 1) * PIECE) {
                let (_, bit) = place(page);
                if *word & bit != 0 {
                    *word &= !bit;
                    taken.push(page);
                }
            }
            if *word == 0 {
                self.pieces.remove(&piece);
            }
        }
        self.len -= taken.len() as u64;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_counts_and_takes() {
        let mut set = PageSet::default();
        assert!([5, 4095, 4096, 1 << 40].into_iter().all(|page| set.insert(page)));
        assert!(set.ascending().eq([5, 4095, 4096, 1 << 40]));
        assert!(!set.insert(5) && set.contains(4096) && !set.contains(6));
        assert_eq!(set.take(6, 1 << 41), vec![4095, 4096, 1 << 40]);
        assert_eq!((set.len(), set.take(0, 10)), (1, vec![5]));
    }
}
