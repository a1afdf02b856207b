//! Loaded latency: how long reads of a node's memory take when many CPUs read at once.
//!
//! A node may have a bandwidth for all CPUs together, and a curve of factors by which reads take longer the busier it is.
//! Time is divided into windows: the lines read in one window give the load, and in the next window all reads take longer
//! by the factor for that load. If the load exceeds the bandwidth, reads take proportionally longer, which stands for
//! queueing and brings the load down to the bandwidth. Each window moves the factor halfway to its new value, or it would
//! oscillate.
//!
//! A CPU has a fixed number of outstanding reads, so its streaming rate depends on the latency: the lines after the first
//! take longer, too.

use crate::spec::Loaded;
use mm::machine::Reads;
use std::cell::Cell;

/// Picoseconds in a window.
const WINDOW: u64 = 20_000_000;
/// The largest factor: an overloaded node is slow, not stuck.
const MOST: f64 = 1000.0;
/// Bytes of a line.
const LINE: f64 = 64.0;

/// The load of a node.
pub(crate) struct Load {
    /// Picoseconds in which the node can deliver a line.
    line: f64,
    /// Points: a share of the bandwidth, and the factor by which reads take longer at that load.
    curve: Vec<[f64; 2]>,
    /// When the current window began, and the lines read in it.
    begun: Cell<u64>,
    lines: Cell<u64>,
    /// The factor by which reads take longer now.
    factor: Cell<f64>,
    /// Picoseconds that first lines took, and their number.
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

    /// Picoseconds of a read of `lines` lines at `now`. At rest, the first takes `first` and all others together `rest`.
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

    /// In the last window this share of the bandwidth was used.
    fn adjust(&self, share: f64) {
        let factor = self.factor.get();
        let next = self.longer_at(share).max(factor * share);
        self.factor.set(((factor + next) / 2.0).min(MOST));
    }

    /// The curve at a share, by linear interpolation.
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

    /// The number of first lines so far, and the nanoseconds that they took, as a memory controller counts them. `idle`:
    /// nanoseconds of one at rest.
    pub(crate) fn reads(&self, idle: u64) -> Reads {
        Reads { count: self.reads.get(), nanos: self.spent.get() / 1000, idle }
    }

    /// The mean nanoseconds of a first line.
    pub(crate) fn mean(&self) -> u64 {
        self.spent.get() / 1000 / self.reads.get().max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 64 GB/s, so one line per nanosecond.
    fn load() -> Load {
        let curve = vec![[0.0, 1.0], [0.5, 1.2], [1.0, 2.0]];
        Load::new(&Loaded { bandwidth_gbs: 64.0, curve, source: "made up".into() })
    }

    /// The factor and the share of the bandwidth in the steady state of readers that each wait for a read before the next.
    fn steady_state(readers: u64, first: u64) -> (f64, f64) {
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
    fn a_single_reader_has_the_latency_at_rest() {
        let (longer, share) = steady_state(1, 100_000);
        assert!(longer < 1.01 && share < 0.011, "{longer} {share}");
    }

    #[test]
    fn reads_take_longer_by_the_curve() {
        let load = load();
        let got = [0.0, 0.25, 0.5, 0.75, 1.0, 3.0].map(|share| (load.longer_at(share) * 10.0).round());
        assert_eq!(got, [10.0, 11.0, 12.0, 16.0, 20.0, 20.0]);
        // 60 readers would use 0.6 of the bandwidth at rest; the curve slows them down.
        let (longer, share) = steady_state(60, 100_000);
        assert!((longer - 0.6 / share).abs() < 0.01 && (longer - load.longer_at(share)).abs() < 0.02);
    }

    #[test]
    fn reads_do_not_exceed_the_bandwidth() {
        let (longer, share) = steady_state(800, 100_000);
        assert!((0.97..1.01).contains(&share), "{share}");
        assert!((longer - 8.0).abs() < 0.3, "{longer}");
    }
}
