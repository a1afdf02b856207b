//! What a run has shown.

use crate::bound::BoundReport;
use crate::fragment::{Fragmented, MemoryState};
use crate::optimum::OptimumReport;
use crate::oracle::OracleReport;
use crate::profile::{ProfileNode, TaskTime};
use crate::waiting::{LineOutcome, LockOutcome};
use kernel::GroupOutcome;
use mm::OomReport;
use mm::machine::Work;
use mm::reclaim::CommandError;
use mm::stat::Stat;

/// Which direction of a metric is good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Better {
    /// Less of it.
    Lower,
    /// More of it.
    Higher,
}

/// One measured number.
#[derive(Clone, PartialEq, Debug)]
pub struct Metric {
    /// Name, for tables and JSON.
    pub name: String,
    /// The number.
    pub value: f64,
    /// Its unit; empty for a count.
    pub unit: &'static str,
    /// Which direction is good.
    pub better: Better,
    /// One line of help.
    pub help: &'static str,
}

/// Work of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkDone {
    /// The kind.
    pub work: Work,
    /// Units of it.
    pub count: u64,
    /// Nanoseconds that it took, over all CPUs.
    pub nanos: u64,
}

/// What a controller has done, until the program's end.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct SenpaiOutcome {
    /// Looks at the group.
    pub(crate) looks: u64,
    /// Those at which it asked for nothing, because tasks had waited too long.
    pub(crate) above_target: u64,
    /// Bytes that it asked for.
    pub(crate) asked: u64,
    /// Bytes that were reclaimed for it.
    pub(crate) reclaimed: u64,
    /// memory.current at each look, in bytes.
    pub(crate) current: Vec<u64>,
}

impl SenpaiOutcome {
    /// Mean of memory.current at the looks of the second half, in bytes: what the group had once the controller had
    /// come to rest.
    pub(crate) fn settled(&self) -> u64 {
        let half = &self.current[self.current.len() / 2..];
        half.iter().sum::<u64>() / half.len().max(1) as u64
    }
}

/// What a visit has shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Visited {
    /// When the commands ran.
    pub nanos: u64,
    /// The commands.
    pub commands: String,
    /// Their result.
    pub answer: Result<(), CommandError>,
    /// The file `lru_gen` after that.
    pub text: String,
}

/// A line of a file of pressure.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct StallTime {
    /// Microseconds of all time.
    pub total: u64,
    /// Averages over 10, 60 and 300 seconds when the last period of two seconds ended, in hundredths of a percent.
    pub averages: [u64; 3],
}

/// Pressure stall information of the machine or of a control group: `some` and `full` of each file.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Pressure {
    /// `memory.pressure`: tasks waited for memory.
    pub memory: [StallTime; 2],
    /// `io.pressure`: tasks waited for devices.
    pub io: [StallTime; 2],
}

/// Zones and their free memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FreeMemory {
    /// As /proc/zoneinfo shows it.
    pub zoneinfo: String,
    /// What is free.
    pub state: MemoryState,
}

/// What a run has shown, until the end of its last program task.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Simulated time until the last program task ended.
    pub nanos: u64,
    /// The memory manager's counters, all CPUs together, in table order.
    pub stats: Vec<(Stat, i64)>,
    /// What the machine has counted.
    pub metrics: Vec<Metric>,
    /// The memory manager's work, in table order.
    pub work: Vec<WorkDone>,
    /// Loads, stores and fetches.
    pub accesses: u64,
    /// What the program reported of its own work.
    pub progress: u64,
    /// Program tasks that ran.
    pub tasks: u32,
    /// What the oracle saw.
    pub oracle: OracleReport,
    /// What any safe policy would have needed, if the run counted it ([`RunConfig::bound`](crate::RunConfig::bound)).
    pub bound: Option<BoundReport>,
    /// How few refaults there could have been, if the run counted it
    /// ([`RunConfig::optimum`](crate::RunConfig::optimum)).
    pub optimum: Option<OptimumReport>,
    /// Where CPU time went, if the run kept a profile ([`RunConfig::profile`](crate::RunConfig::profile)).
    pub profile: Option<ProfileNode>,
    /// What the time of the program's tasks was, if the run kept that
    /// ([`RunConfig::task_time`](crate::RunConfig::task_time)).
    pub task_time: Option<TaskTime>,
    /// What happened at locks, if CPUs wait for each other; by whom needs the profile.
    pub locks: Vec<LockOutcome>,
    /// Cache lines that came from other CPUs, in the same case.
    pub lines: Vec<LineOutcome>,
    /// The state of memory that was created before the program began; `None`: that of a fresh machine.
    pub fragmented: Option<Fragmented>,
    /// What control groups have counted, without the root.
    pub groups: Vec<GroupOutcome>,
    /// Their pressure, in the same order.
    pub group_pressure: Vec<Pressure>,
    /// That of the machine.
    pub pressure: Pressure,
    /// Out-of-memory decisions.
    pub oom: Vec<OomReport>,
    /// Signals that ended tasks, one line each.
    pub signals: Vec<String>,
    /// What visits have shown, without those whose time had not come when the program ended.
    pub visited: Vec<Visited>,
    /// Zones when the program had ended, if the run was asked for them
    /// ([`RunConfig::free_memory`](crate::RunConfig::free_memory)).
    pub free_memory: Option<FreeMemory>,
}

impl Outcome {
    /// A counter's value.
    pub fn stat(&self, stat: Stat) -> i64 {
        self.stats.iter().find(|(s, _)| *s == stat).map_or(0, |(_, value)| *value)
    }

    /// A metric's value.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
    }
}
