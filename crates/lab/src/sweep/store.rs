//! The store of a sweep: its runs, and what became of each. In a directory ([`crate::kept`]) they are beside the file
//! `sweep.toml`; at the end or after an interrupt `result.*` is made of them.

use super::plan::{Sweep, What};
use crate::document::Origin;
use crate::error::{Error, Result};
use crate::kept::{Kept, Plan};
use crate::metrics::{self, Metric};
use crate::record::RunRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// Which run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// What it is made of.
    pub what: What,
    /// Its seed.
    pub seed: u64,
}

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Done {
    /// It ran: its numbers.
    Record(Box<RunRecord>),
    /// It cannot run: the reason.
    Missing(String),
}

impl Done {
    /// A run's outcome. Bad input or too little memory only mean that this cell cannot run; other failures stay
    /// failures.
    pub fn of(outcome: Result<RunRecord>) -> Result<Done> {
        match outcome {
            Ok(record) => Ok(Done::Record(Box::new(record))),
            Err(Error::Input(why) | Error::OutOfMemory(why)) => Ok(Done::Missing(why)),
            Err(other) => Err(other),
        }
    }

    /// The numbers, if it ran.
    pub fn record(&self) -> Option<&RunRecord> {
        match self {
            Done::Record(run) => Some(run),
            Done::Missing(_) => None,
        }
    }
}

/// The file that says what a directory's sweep is.
pub const FILE: &str = "sweep.toml";

/// The plan of a directory for the sweep with this text.
pub fn plan(text: &str) -> Plan<'_> {
    Plan { noun: "sweep", name: FILE, text }
}

/// Whether a directory is that of a sweep.
pub fn is_directory(path: &Path) -> bool {
    path.join(FILE).is_file()
}

/// What a sweep's directory keeps.
pub struct Loaded {
    /// The sweep.
    pub sweep: Sweep,
    /// Its file.
    pub text: String,
    /// The build that did its runs; `None` before the first.
    pub made: Option<Origin>,
    /// The runs that are done.
    pub done: BTreeMap<Key, Done>,
}

/// Read the directory of a sweep.
pub fn load(path: &Path) -> Result<Loaded> {
    let (sweep, text) = Sweep::read(&path.join(FILE))?;
    let (made, done) = Kept::read(path)?;
    Ok(Loaded { sweep, text, made, done })
}

/// The runs of a sweep that are done, by what they run and in the order of seeds.
pub struct Finished<'a> {
    runs: Vec<Vec<(u64, &'a Done)>>,
    /// Runs that are not done.
    pub left: usize,
}

impl<'a> Finished<'a> {
    /// Those of `done` that belong to `sweep`.
    pub fn of(sweep: &Sweep, done: &'a BTreeMap<Key, Done>) -> Finished<'a> {
        let seeds = sweep.seed..sweep.seed + u64::from(sweep.runs);
        let of = |what: &What| {
            let find = |seed| Some((seed, done.get(&Key { what: what.clone(), seed })?));
            seeds.clone().filter_map(find).collect()
        };
        let runs: Vec<Vec<_>> = sweep.whats.iter().map(of).collect();
        let left = runs.len() * sweep.runs as usize - runs.iter().map(Vec::len).sum::<usize>();
        Finished { runs, left }
    }

    /// The runs of one `what`, with their seeds.
    pub fn runs(&self, what: usize) -> &[(u64, &'a Done)] {
        &self.runs[what]
    }

    /// Why one of these runs has no numbers, if one has none.
    pub fn missing(&self, what: usize) -> Option<String> {
        self.runs[what].iter().find_map(|(_, done)| match done {
            Done::Missing(why) => Some(why.clone()),
            Done::Record(_) => None,
        })
    }

    /// A metric over the runs of one `what` that measured it, by seed.
    pub fn values(&self, what: usize, metric: &str) -> BTreeMap<u64, f64> {
        let value = |&(seed, done): &(u64, &Done)| {
            let run = done.record()?;
            Some((seed, metrics::find(run, metric)?.value(run)))
        };
        self.runs[what].iter().filter_map(value).collect()
    }

    /// The values of two `whats` for the seeds that both have done.
    pub fn pairs(&self, [base, other]: [usize; 2], metric: &str) -> (Vec<f64>, Vec<f64>) {
        let (base, other) = (self.values(base, metric), self.values(other, metric));
        base.iter().filter_map(|(seed, &value)| Some((value, *other.get(seed)?))).unzip()
    }

    /// What a metric is in the runs of one `what`; `None` if none of them measured it.
    pub fn metric(&self, what: usize, name: &str) -> Option<Metric> {
        self.runs[what].iter().find_map(|(_, done)| metrics::find(done.record()?, name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::run;
    use mm::stat::Stat;

    #[test]
    fn store_reads_back_what_it_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let what = What {
            program: "zipf:1M".into(),
            machine: "small".into(),
            memory: Some("50%".into()),
            profile: "lazy".into(),
            set: vec!["vm.swappiness=1".into()],
            ..What::default()
        };
        let key = |seed| Key { what: what.clone(), seed };
        let all = BTreeMap::from([
            (key(1), Done::Record(Box::new(run("lazy", 1, 5_000, &[])))),
            (key(2), Done::Missing("out of memory".into())),
        ]);
        let (mut store, _) = Kept::<Key, Done>::open(scratch.path(), plan("text")).unwrap();
        all.iter().for_each(|(key, done)| store.append(key, done).unwrap());
        drop(store);
        assert_eq!(Kept::<Key, Done>::open(scratch.path(), plan("text")).unwrap().1, all);
    }

    /// Rows of the result table are computed from counters; they have no counter of their own.
    #[test]
    fn computed_rows_are_measured() {
        let run = run("classic", 1, 2_000_000, &[(Stat::Pgfault, 9), (Stat::Pgmajfault, 4)]);
        let value = |name: &str| {
            metrics::find(&run, name).map(|metric| format!("{} {}", metric.value(&run), metric.unit))
        };
        assert_eq!(value("pgfault_minor").as_deref(), Some("5 "));
        assert_eq!(value("tlb_misses").as_deref(), Some("77 "));
        assert_eq!(value("run_time").as_deref(), Some("0.002 s"));
        assert_eq!(value("refaults").as_deref(), Some("0 pages"));
        assert_eq!(value("throughput").as_deref(), Some("5 1/s"));
        assert_eq!(value("compaction_moved"), None);
    }
}
