//! What a run is to do, and why it has no outcome if it fails.

use crate::fragment::target::Fragmentation;
use crate::spec::{FailSpec, MachineSpec, Senpai, SwapSpec};
use crate::timeline::SharedTimeline;
use crate::vary::Vary;
use kernel::GroupSpec;
use mm::knobs::Knob;
use mm::policy::MakePolicy;
use mm::units::Nanos;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A flush that goes wrong, to test the oracle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlushFault {
    /// Which flush, counted from 1 over all CPUs.
    pub nth: u64,
    /// `Some(true)` counts only flushes that another CPU asked for, `Some(false)` only the others, `None` all.
    pub remote: Option<bool>,
    /// `None`: the flush never happens. `Some`: it happens that many nanoseconds late.
    pub delay: Option<Nanos>,
}

/// A visit to the generations: commands for them, and then a look at them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Visit {
    /// Simulated nanoseconds from the start; `None`: after the program has ended.
    pub at: Option<u64>,
    /// Commands to give first, as the file `lru_gen` takes them; may be empty.
    pub commands: String,
    /// Show what `lru_gen_full` shows.
    pub full: bool,
}

/// A run's configuration. The program is given separately.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The machine.
    pub machine: MachineSpec,
    /// Bytes of memory to use instead of the machine's own, split among its nodes in the same proportion.
    pub memory: Option<u64>,
    /// The state of memory when the program begins, instead of that of a machine that has just started.
    pub fragment: Option<Fragmentation>,
    /// Control groups in addition to the machine's own, or other limits for these.
    pub groups: Vec<GroupSpec>,
    /// A controller of a control group's memory.
    pub senpai: Option<Senpai>,
    /// Swap areas instead of the machine's own; none: the machine's own.
    pub swap: Vec<SwapSpec>,
    /// Devices that fail.
    pub fail: Vec<FailSpec>,
    /// Know what pages hold although no swap is compressed: pages of zeroes need no write then.
    pub contents: bool,
    /// Knobs that differ from their defaults.
    pub knobs: Vec<(Knob, u64)>,
    /// The replacement policy that `reclaim.policy` = `custom` selects.
    pub custom: Option<MakePolicy>,
    /// Seed of all random choices.
    pub seed: u64,
    /// What differs between runs with different seeds, besides what devices and the machine draw.
    pub vary: Vary,
    /// Tasks choose as if the memory manager had this number of daemons: their seeds follow from their numbers, which
    /// come after the daemons'. `None`: the number that it has.
    pub daemons: Option<u32>,
    /// Which of several boots with this seed. Programs choose the same in all of them; devices answer at other times.
    pub boot: u32,
    /// CPUs run in turn, each for its share of 20 us, as those of an emulator with one thread do: while one works, the
    /// time of all passes.
    pub in_turn: bool,
    /// How many seconds of the devices' time pass in one in which a CPU works, if CPUs run in turn: an emulator's disks
    /// take the host's time, and so does the emulator's work. While all CPUs are idle, both times pass alike.
    pub devices_pace: f64,
    /// Let the oracle check every access.
    pub verify: bool,
    /// A flush that goes wrong.
    pub flush_fault: Option<FlushFault>,
    /// Count what any safe policy needs ([`Outcome::bound`](crate::Outcome::bound)), and fail if this run has less.
    pub bound: bool,
    /// Count how few refaults were possible ([`Outcome::optimum`](crate::Outcome::optimum)). Changes nothing else.
    pub optimum: bool,
    /// Compare compactions with the fewest pages that they must move, and measure fragmentation: metrics
    /// `compaction_...` ([`Outcome::metrics`](crate::Outcome::metrics)). Changes nothing else.
    pub moves: bool,
    /// Compare placement in memory tiers with the lowest possible cost of reads and moves: metrics `placement_...`
    /// ([`Outcome::metrics`](crate::Outcome::metrics)). Changes nothing else.
    pub placement: bool,
    /// Keep a tree of where CPU time went ([`Outcome::profile`](crate::Outcome::profile)). Changes nothing else.
    pub profile: bool,
    /// Keep a tree of what the time of the program's tasks was, from their starts to their ends
    /// ([`Outcome::task_time`](crate::Outcome::task_time)); without them, that of `profile` is there, too. Changes
    /// nothing else.
    pub task_time: bool,
    /// Keep it in phases of the program, each of this number of accesses.
    pub phase: Option<u64>,
    /// Told of everything that happens. Changes nothing else.
    pub timeline: Option<SharedTimeline>,
    /// Stop CPUs in the middle of the memory manager's work, at one point in this many on average, so that other CPUs
    /// overtake them: to find races, not to measure. The seed decides where, and for how long.
    pub preempt: Option<u32>,
    /// Validate every structure of the memory manager after every system call and fault.
    pub validate_every_op: bool,
    /// Validate them at times drawn from the seed; less often the more there is to validate, which bounds the share of
    /// the run's time. Changes nothing else.
    pub validate_sometimes: bool,
    /// Visits to the generations ([`Outcome::visited`](crate::Outcome::visited)).
    pub visits: Vec<Visit>,
    /// Show zones and their free memory at the end ([`Outcome::free_memory`](crate::Outcome::free_memory)).
    pub free_memory: bool,
    /// Give up the run when simulated time reaches this.
    pub time_limit: Option<Nanos>,
    /// Stop the run when this becomes true.
    pub interrupt: Option<Arc<AtomicBool>>,
}

impl RunConfig {
    /// Whether its runs have swap space.
    pub fn has_swap(&self) -> bool {
        !self.swap.is_empty() || self.machine.swap_areas().is_ok_and(|areas| !areas.is_empty())
    }

    /// A run on `machine` with every option at its default.
    pub fn new(machine: MachineSpec) -> RunConfig {
        RunConfig {
            machine,
            memory: None,
            fragment: None,
            groups: Vec::new(),
            senpai: None,
            swap: Vec::new(),
            fail: Vec::new(),
            contents: false,
            knobs: Vec::new(),
            custom: None,
            seed: 1,
            vary: Vary::default(),
            daemons: None,
            boot: 0,
            in_turn: false,
            devices_pace: 1.0,
            verify: false,
            flush_fault: None,
            bound: false,
            optimum: false,
            moves: false,
            placement: false,
            profile: false,
            task_time: false,
            phase: None,
            timeline: None,
            preempt: None,
            validate_every_op: false,
            validate_sometimes: false,
            visits: Vec::new(),
            free_memory: false,
            time_limit: None,
            interrupt: None,
        }
    }
}

/// Why a run has no outcome.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration cannot be run.
    #[error("{0}")]
    Input(String),
    /// The run failed: by a wrong access, a missing flush, a broken structure, or because no task could continue.
    #[error("{reason} (seed {seed})")]
    Failed {
        /// What was found.
        reason: String,
        /// The seed that finds it again.
        seed: u64,
    },
    /// The program had not ended when its time was over.
    #[error("the program had not ended after {0} ns")]
    TimeLimit(Nanos),
    /// The run was stopped from outside.
    #[error("interrupted")]
    Interrupted,
}

impl RunError {
    /// Exit code of a command that ends with this error.
    pub fn exit_code(&self) -> i32 {
        match self {
            RunError::Input(_) => 2,
            RunError::Failed { .. } | RunError::TimeLimit(_) | RunError::Interrupted => 1,
        }
    }
}
