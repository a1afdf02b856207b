//! Loaded latency: what reads of a node take when many ask at once.
//!
//! A node may have a bandwidth for all CPUs together, and a curve that says how many times as long a read takes, the
//! busier it is. Time is cut into windows: what was read in one says how busy the node was, and in the next all reads
//! take so much longer. Where more was asked for than there is, they take longer in proportion, so that what is read
//! comes down to what there is: that is the time for which they queue. Each window goes half the way, or the factor
//! would swing between two that are wrong.
//!
//! A CPU has so many reads under way at once, so it streams in proportion to its latency: the lines that follow the
//! first take longer, too.

use crate::spec::Loaded;
use mm::machine::Reads;
use std::cell::Cell;

/// Picoseconds of a window.
const WINDOW: u64 = 20_000_000;
/// A node that is asked for far too much is slow, and not stuck.
const MOST: f64 = 1000.0;
/// Bytes of a line.
const LINE: f64 = 64.0;

/// How busy a node is.
pub(crate) struct Load {
    /// Picoseconds that a line takes of all that the node can bring.
    line: f64,
    /// Share of the bandwidth that is asked for, and how many times as long a read takes then.
    curve: Vec<[f64; 2]>,
    /// When the window began, and the lines read in it.
    begun: Cell<u64>,
    lines: Cell<u64>,
    /// How many times as long reads take now.
    factor: Cell<f64>,
    /// Picoseconds that first lines took, and how many there were.
    spent: Cell<u64>,
    reads: Cell<u64>,
}

impl Load {
    pub(crate) fn new(loaded: &Loaded) -> Load {
        Load {
            line: LINE * 1000.0 / loaded.bandwidth_gbs,
            curve: loaded.curve.clone(),
            begun: Cell::new(0),
            lines: Cell::new(0),
            factor: Cell::new(1.0),
            spent: Cell::new(0),
            reads: Cell::new(0),
        }
    }

    /// Picoseconds of a read of `lines` lines at `now`, of which the first takes `first` and all others `rest` when
    /// nobody else reads.
    pub(crate) fn read(&self, now: u64, lines: u64, first: u64, rest: u64) -> u64 {
        let past = now.saturating_sub(self.begun.get());
        if past >= WINDOW {
            self.adjust(self.lines.replace(0) as f64 * self.line / past as f64);
            self.begun.set(now);
        }
        self.lines.set(self.lines.get() + lines);
        let longer = |picos: u64| (picos as f64 * self.factor.get()) as u64;
        self.spent.set(self.spent.get() + longer(first));
        self.reads.set(self.reads.get() + 1);
        longer(first + rest)
    }

    /// In the last window so much of the bandwidth was read.
    fn adjust(&self, share: f64) {
        let factor = self.factor.get();
        let next = self.longer_at(share).max(factor * share);
        self.factor.set(((factor + next) / 2.0).min(MOST));
    }

    /// The curve at a share, straight between its points.
    fn longer_at(&self, share: f64) -> f64 {
        let after = self.curve.iter().position(|point| point[0] > share);
        let last = self.curve[self.curve.len() - 1][1];
        match after {
            None => last,
            Some(0) => self.curve[0][1],
            Some(i) => {
                let ([x0, y0], [x1, y1]) = (self.curve[i - 1], self.curve[i]);
                y0 + (y1 - y0) * (share - x0) / (x1 - x0)
            }
        }
    }

    /// First lines so far, and the nanoseconds that they took: what a memory controller counts. `idle`: of one, at
    /// rest.
    pub(crate) fn reads(&self, idle: u64) -> Reads {
        Reads { count: self.reads.get(), nanos: self.spent.get() / 1000, idle }
    }

    /// Nanoseconds that first lines took, in the mean.
    pub(crate) fn mean(&self) -> u64 {
        self.spent.get() / 1000 / self.reads.get().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 GB/s, so a line a nanosecond.
    fn load() -> Load {
        let curve = vec![[0.0, 1.0], [0.5, 1.2], [1.0, 2.0]];
        Load::new(&Loaded { bandwidth_gbs: 64.0, curve, source: "made up".into() })
    }

    /// Readers of which each waits for its read before the next: how long one takes in the end, and the share of the
    /// bandwidth.
    fn settled(readers: u64, first: u64) -> (f64, f64) {
        let load = load();
        let (mut now, mut took, mut lines) = (0, 0, 0);
        for _ in 0..20_000 {
            for _ in 0..readers {
                took = load.read(now, 1, first, 0);
            }
            now += took;
            lines = readers;
        }
        (took as f64 / first as f64, lines as f64 * load.line / took as f64)
    }

    #[test]
    fn a_lone_reader_waits_as_long_as_the_memory_takes() {
        let (longer, share) = settled(1, 100_000);
        assert!(longer < 1.01 && share < 0.011, "{longer} {share}");
    }

    #[test]
    fn the_curve_says_how_much_longer_reads_take() {
        let load = load();
        let got = [0.0, 0.25, 0.5, 0.75, 1.0, 3.0].map(|share| (load.longer_at(share) * 10.0).round());
        assert_eq!(got, [10.0, 11.0, 12.0, 16.0, 20.0, 20.0]);
        // 60 readers ask for 0.6 of it were there no load; with it for as much as the curve allows.
        let (longer, share) = settled(60, 100_000);
        assert!((longer - 0.6 / share).abs() < 0.01 && (longer - load.longer_at(share)).abs() < 0.02);
    }

    #[test]
    fn no_more_is_read_than_there_is() {
        let (longer, share) = settled(800, 100_000);
        assert!((0.97..1.01).contains(&share), "{share}");
        assert!((longer - 8.0).abs() < 0.3, "{longer}");
    }
}
