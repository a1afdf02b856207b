//! Which tier answers faster just now, and how much of the reads should go elsewhere.
//!
//! Fast memory that everybody reads is not fast. So the machine says, for the top tiers and for those below, how many
//! reads there were and what they took, and the share of reads that the top tiers serve is moved towards the point
//! where both take the same: up while the top tiers are faster, down while they are slower. What is known of that point
//! is an interval; each measurement halves it, and one that has become too small is opened again at the side to which
//! the point has gone.
//!
//! Source: Colloid (Vuppalapati and Agarwal, SOSP 2024): its principle and its search for the share; it calls the two
//! margins delta and epsilon.

use crate::machine::Reads;
use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// A share of reads, in parts of [`ALL`].
pub type ReadShare = u64;

/// All reads.
pub const ALL: ReadShare = 1 << 20;
/// Latencies that differ by less than one part in so many are the same.
const SAME: u64 = 20;
/// The least interval in which the share is searched.
const NARROW: ReadShare = ALL / 100;
/// Fewer reads tell nothing.
const FEW: u64 = 100;

/// What is to be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shift {
    /// Pages that so much of the reads go to, up.
    Up(ReadShare),
    /// The same, down.
    Down(ReadShare),
    /// Nothing.
    None,
}

/// What is known of the right share.
#[derive(Default)]
pub struct Balance {
    /// It lies between these.
    low: AtomicU64,
    /// 0: nothing is known.
    high: AtomicU64,
    /// Reads before this round, of the top tiers and of the others.
    before: [[AtomicU64; 2]; 2],
}

impl Balance {
    /// A round begins: what should go where? `top`, `below`: all reads so far.
    pub fn round(&self, top: Reads, below: Reads) -> Shift {
        let [top, below] = [self.new_reads(0, top), self.new_reads(1, below)];
        if top.count + below.count < FEW {
            return Shift::None;
        }
        // Memory that hardly anybody reads is as fast as it can be.
        let latency = |reads: Reads| if reads.count < FEW { reads.idle } else { reads.nanos / reads.count };
        self.shift(ALL * top.count / (top.count + below.count), latency(top), latency(below))
    }

    fn new_reads(&self, of: usize, now: Reads) -> Reads {
        let [count, nanos] = &self.before[of];
        let before = [count.swap(now.count, Relaxed), nanos.swap(now.nanos, Relaxed)];
        Reads { count: now.count.wrapping_sub(before[0]), nanos: now.nanos.wrapping_sub(before[1]), ..now }
    }

    fn shift(&self, share: ReadShare, near: u64, far: u64) -> Shift {
        if near.abs_diff(far) * SAME < near {
            return Shift::None;
        }
        let up = near < far;
        let (mut low, mut high) = (self.low.load(Relaxed), self.high.load(Relaxed));
        if high == 0 {
            (low, high) = (0, ALL);
        }
        if up {
            low = share
        } else {
            high = share
        }
        if high.saturating_sub(low) < NARROW {
            if up { high = ALL } else { low = 0 }
        }
        self.low.store(low, Relaxed);
        self.high.store(high.max(1), Relaxed);
        let middle = (low + high) / 2;
        if up { Shift::Up(middle.saturating_sub(share)) } else { Shift::Down(share.saturating_sub(middle)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two memories that serve 1000 reads a round, of which the near one takes longer the more it is asked for: the
    /// share after so many rounds.
    fn settled(far: u64, near: impl Fn(ReadShare) -> u64, rounds: u32) -> ReadShare {
        let balance = Balance::default();
        let at_rest = |idle| Reads { idle, ..Reads::default() };
        let (mut share, mut top, mut below) = (ALL, at_rest(near(0)), at_rest(far));
        for _ in 0..rounds {
            let reads = 100_000 * share / ALL;
            top = top.and(Reads { count: reads, nanos: reads * near(share), idle: 0 });
            below = below.and(Reads { count: 100_000 - reads, nanos: (100_000 - reads) * far, idle: 0 });
            share = match balance.round(top, below) {
                Shift::Up(by) => (share + by).min(ALL),
                Shift::Down(by) => share - by,
                Shift::None => share,
            };
        }
        share
    }

    #[test]
    fn the_share_goes_to_where_both_take_the_same() {
        // 70 ns alone, 270 ns for everything: 135 ns at about a third.
        let third = settled(135, |share| 70 + 200 * share / ALL, 40);
        assert!((ALL * 28 / 100..ALL * 37 / 100).contains(&third), "{third}");
        // Never as slow as the other: all of it.
        assert!(settled(300, |share| 70 + 200 * share / ALL, 40) > ALL * 98 / 100);
    }

    #[test]
    fn where_the_point_moves_it_is_followed() {
        let balance = Balance::default();
        let shift = |share, near, far| balance.shift(share, near, far);
        assert_eq!(shift(ALL, 200, 100), Shift::Down(ALL / 2));
        assert_eq!(shift(ALL / 2, 100, 100), Shift::None);
        // It is faster again: all that lies above the middle is open only up to where it was slower.
        assert_eq!(shift(ALL / 2, 50, 100), Shift::Up(ALL / 4));
        for _ in 0..20 {
            shift(ALL - 1, 50, 100);
        }
        assert_eq!(shift(ALL / 2, 50, 100), Shift::Up(ALL / 4));
    }
}
