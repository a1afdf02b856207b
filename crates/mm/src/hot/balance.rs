//! Balances reads between tiers by their current latency.
//!
//! Fast memory that serves every read is not fast. The machine reports, for the top tiers and for those below, how
//! many reads there were and how long they took. The share of reads that the top tiers serve is moved towards the
//! point where both take the same time: up while the top tiers are faster, down while they are slower. That point is
//! known as an interval; each measurement halves it, and an interval that has become too small is widened again on the
//! side to which the point has moved.
//!
//! Source: Colloid (Vuppalapati and Agarwal, SOSP 2024): its principle and its search for the share; it calls the two
//! margins delta and epsilon.

use crate::machine::Reads;
use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// A share of reads, in parts of [`ALL`].
pub type ReadShare = u64;

/// All reads.
pub const ALL: ReadShare = 1 << 20;
/// Latencies that differ by less than one part in this many are equal.
const SAME: u64 = 20;
/// The smallest interval in which the share is searched.
const NARROW: ReadShare = ALL / 100;
/// Fewer reads than this are no evidence.
const FEW: u64 = 100;

/// What to move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shift {
    /// Move pages with this share of the reads up.
    Up(ReadShare),
    /// Move pages with this share of the reads down.
    Down(ReadShare),
    /// Move nothing.
    None,
}

/// The interval that contains the right share.
#[derive(Default)]
pub struct Balance {
    /// Lower end of the interval.
    low: AtomicU64,
    /// Upper end; 0: nothing is known.
    high: AtomicU64,
    /// Reads before this round, of the top tiers and of the others.
    before: [[AtomicU64; 2]; 2],
}

impl Balance {
    /// Begin a round, and decide what to move. `top`, `below`: all reads so far.
    pub fn round(&self, top: Reads, below: Reads) -> Shift {
        let [top, below] = [self.new_reads(0, top), self.new_reads(1, below)];
        if top.count + below.count < FEW {
            return Shift::None;
        }
        // Memory with hardly any reads has its idle latency.
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

    /// The share after `rounds` rounds with two memories that serve 1000 reads a round, the near one slower the more
    /// reads it serves.
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
    fn share_settles_where_latencies_are_equal() {
        // 70 ns alone, 270 ns for everything: 135 ns at about a third.
        let third = settled(135, |share| 70 + 200 * share / ALL, 40);
        assert!((ALL * 28 / 100..ALL * 37 / 100).contains(&third), "{third}");
        // The near memory is never as slow as the far one: it serves all reads.
        assert!(settled(300, |share| 70 + 200 * share / ALL, 40) > ALL * 98 / 100);
    }

    #[test]
    fn share_follows_a_moving_point() {
        let balance = Balance::default();
        let shift = |share, near, far| balance.shift(share, near, far);
        assert_eq!(shift(ALL, 200, 100), Shift::Down(ALL / 2));
        assert_eq!(shift(ALL / 2, 100, 100), Shift::None);
        // The near memory is faster again: the interval widens only up to the share at which it was slower.
        assert_eq!(shift(ALL / 2, 50, 100), Shift::Up(ALL / 4));
        for _ in 0..20 {
            shift(ALL - 1, 50, 100);
        }
        assert_eq!(shift(ALL / 2, 50, 100), Shift::Up(ALL / 4));
    }
}
