//! The record of a run: plain data that can be written, read and compared.

use crate::human;
use crate::locks::{LineRecord, LockRecord};
use crate::statistics::{Change, Interval};
use crate::tree::{TaskTime, Tree};
use mm::stat::Stat;
use mm::units::PAGE_SIZE;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

/// Which direction is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// Less is better.
    Lower,
    /// More is better.
    Higher,
}

impl Better {
    /// A ratio to the base as a change in per cent: positive = better.
    pub fn percent(self, ratio: f64) -> f64 {
        match self {
            Better::Lower => (1.0 - ratio) * 100.0,
            Better::Higher => (ratio - 1.0) * 100.0,
        }
    }

    /// The same of an interval.
    pub fn percent_interval(self, [low, high]: Interval) -> Interval {
        match self {
            // What is less is better: the ends change places.
            Better::Lower => [self.percent(high), self.percent(low)],
            Better::Higher => [self.percent(low), self.percent(high)],
        }
    }

    /// A change in per cent, and its interval.
    pub fn of(self, change: &Change) -> (Option<f64>, Option<Interval>) {
        let percent = change.ratio.map(|ratio| self.percent(ratio));
        (percent, change.ratio_interval.map(|interval| self.percent_interval(interval)))
    }
}

/// Everything that one run measured. All of it is a function of (seed, configuration, commit).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// The profile's name.
    pub profile: String,
    /// The seed.
    pub seed: u64,
    /// Simulated nanoseconds from start to end.
    pub nanos: u64,
    /// What was done.
    #[serde(flatten)]
    pub work: WorkDone,
    /// Counters by name, as at the end of the run.
    pub counters: BTreeMap<String, i64>,
    /// What the machine measured beyond the counters.
    pub metrics: Vec<Measured>,
    /// Kernel work by kind.
    pub costs: BTreeMap<String, CostRecord>,
    /// What the oracle saw.
    pub oracle: OracleRecord,
    /// What the random program has met: `chaos:OPERATION/OUTCOME`, counters, kinds of work.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub covered: BTreeMap<String, u64>,
    /// What any safe policy would have needed, if that was asked for.
    #[serde(default)]
    pub bound: Option<BoundRecord>,
    /// How few refaults there could have been, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimum: Option<OptimumRecord>,
    /// Where CPU time went, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_tree: Option<Tree>,
    /// What the time of the program's tasks was, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_time: Option<TaskTime>,
    /// What happened at locks; empty if CPUs did not wait for each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub locks: Vec<LockRecord>,
    /// Which cache lines came from other CPUs; empty if CPUs did not wait for each other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<LineRecord>,
    /// Generations as visits saw them, if that was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lru_gen: Vec<LruGenRecord>,
    /// The state that memory was brought into before the program began, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fragmented: Option<FragmentedRecord>,
    /// What control groups have counted; empty if there were none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupRecord>,
    /// Files of /proc at the end, if they were asked for.
    #[serde(default, skip_serializing_if = "ProcFiles::is_empty")]
    pub proc_files: ProcFiles,
    /// What a reader of the numbers should know, one sentence each.
    pub warnings: Vec<String>,
}

impl RunRecord {
    /// A counter of the memory manager; 0 if the run does not have it.
    pub fn counter(&self, stat: Stat) -> f64 {
        self.counters.get(stat.name()).copied().unwrap_or(0) as f64
    }

    /// Bytes that `memory` leaves to the program and its page tables: kswapd keeps the others free. `None` if the
    /// machine does not tell how many.
    pub fn left_of(&self, memory: u64) -> Option<u64> {
        let kept = self.metrics.iter().find(|metric| metric.name == "watermark_high")?;
        Some(memory.saturating_sub(kept.value as u64 * PAGE_SIZE))
    }

    /// A number that the machine measured; 0 if it did not.
    pub fn metric(&self, name: &str) -> f64 {
        self.metrics.iter().find(|metric| metric.name == name).map_or(0.0, |metric| metric.value)
    }
}

/// What the files of a control group said at the end of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupRecord {
    /// Its path; groups that the program has made are called by their numbers.
    pub group: String,
    /// Limits in bytes by the names of their files; a limit of `None` is `max`. `None`: the program has removed it.
    pub limits: Option<BTreeMap<String, Option<u64>>>,
    /// Bytes, by the names of their files.
    pub usage: BTreeMap<String, u64>,
    /// memory.stat.
    pub stat: BTreeMap<String, u64>,
    /// memory.events.
    pub events: BTreeMap<String, u64>,
    /// memory.pressure and io.pressure; empty where the machine does not tell.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pressure: PressureFiles,
}

/// Files by their paths under /proc.
pub type ProcFiles = BTreeMap<String, String>;

/// Files of pressure by name, and their lines `some` and `full`.
pub type PressureFiles = BTreeMap<String, BTreeMap<String, PressureLine>>;

/// A line of a file of pressure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PressureLine {
    /// Percent of the last 10 seconds, as Linux averages it.
    pub avg10: f64,
    /// Of the last 60 seconds.
    pub avg60: f64,
    /// Of the last 300 seconds.
    pub avg300: f64,
    /// Microseconds of all time.
    pub total: f64,
}

impl PressureLine {
    /// The mean of several.
    pub fn mean(lines: &[PressureLine]) -> PressureLine {
        let of = |pick: fn(&PressureLine) -> f64| lines.iter().map(pick).sum::<f64>() / lines.len() as f64;
        PressureLine {
            avg10: of(|line| line.avg10),
            avg60: of(|line| line.avg60),
            avg300: of(|line| line.avg300),
            total: of(|line| line.total),
        }
    }
}

impl Display for PressureLine {
    /// In the shape that Linux's files have, without the first word.
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        let PressureLine { avg10, avg60, avg300, total } = self;
        write!(out, "avg10={avg10:.2} avg60={avg60:.2} avg300={avg300:.2} total={total:.0}")
    }
}

/// A state of memory that a run began with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FragmentedRecord {
    /// As it was asked for.
    pub asked: String,
    /// Frames that were taken for it: as memory that can be moved.
    pub held_movable: u64,
    /// As a kernel's own, which cannot.
    pub held_by_kernel: u64,
    /// Memory of the machine that has just started.
    pub before: StateRecord,
    /// Memory when the program began.
    pub after: StateRecord,
}

/// What free memory looks like.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StateRecord {
    /// Free pages, those on CPUs' lists left out: there are none.
    pub free_pages: u64,
    /// Share of them that is of no use for a block of 2 MiB.
    pub unusable_pct: f64,
    /// Zone by zone.
    pub zones: Vec<ZoneRecord>,
    /// As /proc/buddyinfo shows it.
    pub buddyinfo: String,
    /// As /proc/pagetypeinfo shows it.
    pub pagetypeinfo: String,
}

/// Free blocks and page blocks of a zone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZoneRecord {
    /// Its node.
    pub node: u8,
    /// Its name.
    pub zone: String,
    /// By mobility group: free blocks of each order.
    pub free: BTreeMap<String, Vec<u64>>,
    /// By mobility group: page blocks.
    pub pageblocks: BTreeMap<String, u64>,
}

/// A look at the generations, as Linux's debugfs file `lru_gen` shows them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LruGenRecord {
    /// Simulated nanoseconds from the start.
    pub nanos: u64,
    /// Commands that were given before; empty: none.
    pub commands: String,
    /// The error that they ended with, `EINVAL` or `ERANGE`.
    pub error: Option<String>,
    /// The file.
    pub text: String,
}

/// Counts that prove that two runs did the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkDone {
    /// Loads, stores and fetches.
    pub accesses: u64,
    /// Units of the program's own work.
    pub progress: u64,
    /// Tasks that ran.
    pub tasks: u64,
}

impl WorkDone {
    /// The sum over runs.
    pub fn of(runs: &[RunRecord]) -> WorkDone {
        let mut work = WorkDone::default();
        runs.iter().for_each(|run| work += run.work);
        work
    }

    /// For people.
    pub fn to_text(self) -> String {
        format!(
            "{} accesses, {} progress, {}",
            human::grouped(self.accesses),
            human::grouped(self.progress),
            human::plural(self.tasks, "task", "tasks")
        )
    }
}

impl std::ops::AddAssign for WorkDone {
    fn add_assign(&mut self, other: WorkDone) {
        self.accesses += other.accesses;
        self.progress += other.progress;
        self.tasks += other.tasks;
    }
}

/// One number that the machine measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Its name.
    pub name: String,
    /// The number.
    pub value: f64,
    /// Its unit; empty for a count.
    pub unit: String,
    /// Which direction is good.
    pub better: Better,
}

/// How often one kind of work was done, and how long it took in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CostRecord {
    /// Units of work.
    pub count: u64,
    /// Simulated nanoseconds, summed over CPUs.
    pub nanos: u64,
}

/// The oracle's account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OracleRecord {
    /// Loads whose value was checked; 0 without `--verify`.
    pub checked: u64,
    /// Loads that did not return the last store.
    pub violations: u64,
}

/// Flushes of a run, and the least that any safe policy needs on its trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BoundRecord {
    /// Requests that the run sent to other CPUs.
    pub rounds: u64,
    /// CPUs that flushed for a request.
    pub receptions: u64,
    /// The least with the latest safe moments as deadlines.
    pub l1: LevelRecord,
    /// The least with the moments at which the memory manager looks.
    pub l2: LevelRecord,
    /// Translations that went stale while a CPU could hold them.
    pub stale: u64,
    /// The most of them that were open at once.
    pub open_max: u64,
}

/// Refaults of a run, and the fewest that there can be on its accesses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OptimumRecord {
    /// Uses of pages; those of one page in a row are one.
    pub uses: u64,
    /// Pages that were used.
    pub pages: u64,
    /// Frames of the machine.
    pub frames: u64,
    /// Refaults of the run.
    pub refaults: u64,
    /// The fewest.
    pub optimum: u64,
    /// The fewest if a page stays from a use until its young bit is looked at.
    pub young: u64,
}

/// One level of the bound.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LevelRecord {
    /// Rounds at least.
    pub rounds: u64,
    /// Receptions at least.
    pub receptions: u64,
    /// What made them necessary.
    pub causes: BTreeMap<String, CauseRecord>,
}

/// One reason why stale translations had to be flushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CauseRecord {
    /// Stale translations that were due for it and that some CPU had not dropped by itself.
    pub deadlines: u64,
    /// Rounds that it forced.
    pub rounds: u64,
}

impl std::ops::AddAssign for OracleRecord {
    fn add_assign(&mut self, other: OracleRecord) {
        self.checked += other.checked;
        self.violations += other.violations;
    }
}
