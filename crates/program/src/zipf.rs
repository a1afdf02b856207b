//! Zipf's law in integers, so that every machine draws the same numbers.

use crate::rng::Rng;

/// Ranks `0..n`, rank `i` with weight `1 / (i + 1)`.
///
/// Drawn by rejection, without a table: choose an octave `[2^k, 2^(k+1))` at random and a rank `r` in it at
/// random, and keep it with probability `2^k / r`. The weight of every rank is then exactly `1 / r`.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    n: u64,
    octaves: u64,
}

impl Zipf {
    /// Over `n` ranks, at least 1 and at most 2^40.
    pub fn new(n: u64) -> Zipf {
        assert!((1..=1 << 40).contains(&n), "{n} ranks");
        Zipf { n, octaves: (64 - n.leading_zeros()) as u64 }
    }

    /// The next rank.
    pub fn next(&self, rng: &mut Rng) -> u64 {
        loop {
            let first = 1 << rng.below(self.octaves);
            let rank = first + rng.below(first);
            if rank <= self.n && rng.below(rank) < first {
                return rank - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_drawn_with_weight_one_over_rank() {
        let (zipf, mut rng) = (Zipf::new(100), Rng::new(7));
        let mut seen = [0u32; 100];
        for _ in 0..520_000 {
            seen[zipf.next(&mut rng) as usize] += 1;
        }
        // The harmonic number of 100 is 5.187, so rank 0 should come 100,250 times.
        for rank in [0, 1, 9, 99] {
            let expected = 100_250 / (rank as u32 + 1);
            assert!(seen[rank].abs_diff(expected) < expected / 10 + 20, "rank {rank}: {}", seen[rank]);
        }
    }

    #[test]
    fn a_single_rank_is_always_drawn() {
        assert_eq!(Zipf::new(1).next(&mut Rng::new(1)), 0);
    }
}
