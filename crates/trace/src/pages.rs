//! A set of page numbers: a bitmap in pieces, for sets that are dense in places.

use std::collections::HashMap;

/// Pages of a piece (64 words of 64 bits).
const PIECE: u64 = 4096;

/// A set of page numbers.
#[derive(Default)]
pub(crate) struct PageSet {
    pieces: HashMap<u64, Box<[u64; 64]>>,
    len: u64,
}

const fn place(page: u64) -> (u64, usize, u64) {
    (page / PIECE, (page % PIECE / 64) as usize, 1 << (page % 64))
}

impl PageSet {
    /// Number of pages.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Add a page; was it new?
    pub fn insert(&mut self, page: u64) -> bool {
        let (piece, word, bit) = place(page);
        let word = &mut self.pieces.entry(piece).or_insert_with(|| Box::new([0; 64]))[word];
        let new = *word & bit == 0;
        *word |= bit;
        self.len += u64::from(new);
        new
    }

    /// Is the page in the set?
    pub fn contains(&self, page: u64) -> bool {
        let (piece, word, bit) = place(page);
        self.pieces.get(&piece).is_some_and(|words| words[word] & bit != 0)
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
            let words = self.pieces.get_mut(&piece).expect("only pieces that are there were collected");
            for page in start.max(piece * PIECE)..end.min((piece + 1) * PIECE) {
                let (_, word, bit) = place(page);
                if words[word] & bit != 0 {
                    words[word] &= !bit;
                    taken.push(page);
                }
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
        assert!(!set.insert(5) && set.contains(4096) && !set.contains(6));
        assert_eq!(set.take(6, 1 << 41), vec![4095, 4096, 1 << 40]);
        assert_eq!((set.len(), set.take(0, 10)), (1, vec![5]));
    }
}
