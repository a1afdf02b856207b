//! Watches a run and keeps what it was like in time. What is kept has a bounded size: when it is full, every second
//! sample goes and two columns become one, so that a long run has coarser pictures, not larger ones.

#[cfg(test)]
mod tests;
mod uses;

use crate::history::{History, Sample};
use machine_sim::{Happening, Levels, Moment, NewTask, Timeline};
use mm::stat::Stat;
use mm::units::PAGE_SIZE;
use std::collections::BTreeMap;
use uses::Counted;

/// The most samples that are kept.
pub(super) const MOST_SAMPLES: usize = 512;
/// Picoseconds between the samples of a short run: 10 us.
const FIRST_PACE: u64 = 10_000_000;

/// Keeps the history of a run while it goes on.
pub struct Historian {
    samples: Vec<Sample>,
    pace: u64,
    uses: Counted,
    /// The process that each space belongs to.
    processes: BTreeMap<u32, u32>,
}

impl Default for Historian {
    fn default() -> Historian {
        Historian {
            samples: Vec::new(),
            pace: FIRST_PACE,
            uses: Counted::default(),
            processes: BTreeMap::new(),
        }
    }
}

impl Historian {
    /// What was kept until now.
    pub fn history(&self) -> History {
        let mut samples = self.samples.clone();
        // Rates over the short time from the last regular look to the end would say little.
        if let [.., before, last] = samples[..]
            && (last.nanos - before.nanos) * 2000 < self.pace
            && samples.len() > 2
        {
            samples.remove(samples.len() - 2);
        }
        History { samples, uses: self.uses.sorted(&self.processes) }
    }

    fn look(&mut self, at: Moment, levels: &Levels<'_>) {
        if self.samples.len() >= MOST_SAMPLES {
            let mut keep = false;
            self.samples.retain(|_| {
                keep = !keep;
                keep
            });
            self.pace *= 2;
        }
        let count = |stat| (levels.stat)(stat).max(0) as u64;
        let bytes = |stat| count(stat) * PAGE_SIZE;
        self.samples.push(Sample {
            nanos: at.picos / 1000,
            free: bytes(Stat::NrFreePages),
            lists: [Stat::NrActiveAnon, Stat::NrInactiveAnon, Stat::NrActiveFile, Stat::NrInactiveFile]
                .map(bytes),
            generations: levels.generations.map(|pages| pages.iter().sum::<u64>() * PAGE_SIZE),
            faults: count(Stat::Pgfault),
            major: count(Stat::Pgmajfault),
            rounds: count(Stat::NrTlbRemoteFlush),
            receptions: count(Stat::NrTlbRemoteFlushReceived),
            decisions: [Stat::PolicyTaken, Stat::PolicyMoved].map(count),
            kswapd: levels.kswapd / 1000,
            pressure: levels.pressure / 1000,
        });
    }
}

impl Timeline for Historian {
    fn happens(&mut self, at: Moment, what: Happening<'_>) {
        match what {
            Happening::Uses { space, page, count } => self.uses.add(at.picos, (space, page), count),
            Happening::Begins(_, NewTask::Program { process, space, .. }) => {
                self.processes.insert(space, process);
            }
            Happening::Shows(levels) => self.look(at, &levels),
            _ => {}
        }
    }

    fn pace(&self) -> u64 {
        self.pace
    }

    fn watches_uses(&self) -> bool {
        true
    }
}
