//! A run as it happens, for tools that draw it.
//!
//! A timeline is told of what happens in the order in which the simulator does it. For each CPU and for each task that
//! is the order of time; one CPU may be ahead of another by what it did in one go. It changes nothing.

use mm::event::Event;
use mm::machine::{CpuSet, Io, Scope};
use mm::stat::Stat;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Draws a run.
pub trait Timeline: Send {
    /// Something happens.
    fn happens(&mut self, at: Moment, what: Happening<'_>);

    /// Picoseconds from one look at the machine to the next. May change while it draws.
    fn pace(&self) -> u64 {
        MILLISECOND
    }

    /// Whether it is told of [`Happening::Uses`], which slows the run down. Asked once.
    fn watches_uses(&self) -> bool {
        false
    }
}

/// When and where something happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// Picoseconds since the run began.
    pub picos: u64,
    /// The CPU; 0 if none does it.
    pub cpu: u32,
    /// The task that runs on the CPU; `None`: an interrupt does it, or no CPU.
    pub task: Option<u32>,
}

/// Why a task stops running.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stop {
    /// Another one runs in its place; it waits for a CPU.
    Preempted,
    /// It sleeps.
    Sleeps,
    /// It has ended.
    Ends,
}

/// A task as it is when it begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NewTask {
    /// A task of a program.
    Program {
        /// Its process; the first is 0.
        process: u32,
        /// The number that the memory manager's events have for the process.
        space: u32,
        /// Its role in the program.
        role: u32,
    },
    /// A task of the kernel, with its name under Linux.
    Kernel(String),
}

/// Pages of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessPages {
    /// The process; the first is 0.
    pub process: u32,
    /// Resident anonymous pages.
    pub anon: u64,
    /// Resident pages of files.
    pub file: u64,
    /// Resident pages of shmem.
    pub shmem: u64,
    /// Pages in swap.
    pub swap: u64,
}

/// What a look at the machine shows.
pub struct Levels<'a> {
    /// The value of a counter.
    pub stat: &'a dyn Fn(Stat) -> i64,
    /// Pages of memory.
    pub memory: u64,
    /// Pages of all swap areas, and those of them that are free.
    pub swap: (u64, u64),
    /// Pages of generations by age, the youngest first: anonymous pages, and those of files. All are 0 where a policy
    /// has no generations.
    pub generations: [[u64; 2]; 4],
    /// Picoseconds of CPU time of the kswapd daemons until now.
    pub kswapd: u64,
    /// Picoseconds until now in which a task waited for memory: `some` of `/proc/pressure/memory`.
    pub pressure: u64,
    /// Processes that have not ended.
    pub processes: &'a [ProcessPages],
}

/// What happens.
pub enum Happening<'a> {
    /// This task exists from now on, whatever task runs now.
    Begins(u32, NewTask),
    /// The CPU begins to run the task, or goes on after it was told that the task stops.
    Runs,
    /// The task does not run any more.
    Stops(Stop),
    /// The CPU has nothing to run.
    Idles,
    /// A scope of the memory manager begins.
    Enters(Scope),
    /// It ends.
    Leaves(Scope),
    /// An event of the memory manager, with its arguments.
    Event(Event, [u64; 4]),
    /// The CPU asks others to flush, in the round of this number.
    Asks(u64, &'a CpuSet),
    /// An interrupt tells the CPU of this round, the one that was asked for last.
    Receives(u64),
    /// The CPU has done its part of it.
    Answers,
    /// A device has ended a transfer that was submitted at a time in picoseconds. `done`: it has not failed.
    Transfers {
        /// The transfer.
        io: &'a Io,
        /// When it was submitted.
        since: u64,
        /// Whether it has not failed.
        done: bool,
    },
    /// The program accesses a page, in one go.
    Uses {
        /// The number that the memory manager's events have for the process.
        space: u32,
        /// The page, by its virtual address.
        page: u64,
        /// How often.
        count: u32,
    },
    /// A look at the machine, at equal distances in time. The last one is when the program has ended.
    Shows(Levels<'a>),
}

/// A timeline that a run and its caller share.
#[derive(Clone)]
pub struct SharedTimeline(pub Arc<Mutex<dyn Timeline>>);

impl fmt::Debug for SharedTimeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedTimeline")
    }
}

const MILLISECOND: u64 = 1_000_000_000;

/// Tells a timeline of what the machine reports.
pub(crate) struct Teller {
    timeline: SharedTimeline,
    /// Rounds so far.
    rounds: u64,
    /// When transfers were submitted, by device, direction and block.
    submitted: BTreeMap<(u8, bool, u64), u64>,
    next_look: u64,
    /// How many reasons there are to tell nothing. The first is that the run has not begun.
    muted: u32,
}

impl Teller {
    pub(crate) fn new(timeline: SharedTimeline) -> Teller {
        Teller { timeline, rounds: 0, submitted: BTreeMap::new(), next_look: 0, muted: 1 }
    }

    /// Tell of what no CPU does.
    pub(crate) fn tell_without_cpu(&self, now: u64, what: Happening<'_>) {
        self.tell(Moment { picos: now, cpu: 0, task: None }, what);
    }

    pub(crate) fn mute(&mut self, mute: bool) {
        self.muted = if mute { self.muted + 1 } else { self.muted - 1 };
    }

    pub(crate) fn tell(&self, moment: Moment, what: Happening<'_>) {
        if self.muted > 0 {
            return;
        }
        self.timeline.0.lock().expect("a timeline does not panic").happens(moment, what);
    }

    pub(crate) fn asks(&mut self, at: Moment, targets: &CpuSet) {
        self.rounds += 1;
        self.tell(at, Happening::Asks(self.rounds, targets));
    }

    pub(crate) fn receives(&self, at: Moment) {
        self.tell(at, Happening::Receives(self.rounds));
    }

    pub(crate) fn submitted(&mut self, now: u64, io: &Io) {
        self.submitted.insert((io.device.0, io.write, io.block), now);
    }

    pub(crate) fn transferred(&mut self, now: u64, io: &Io, done: bool) {
        let since = self.submitted.remove(&(io.device.0, io.write, io.block)).unwrap_or(now);
        self.tell_without_cpu(now, Happening::Transfers { io, since, done });
    }

    /// Whether the next look at the machine is due.
    pub(crate) fn is_due(&mut self, now: u64) -> bool {
        let due = now >= self.next_look;
        if due {
            let pace = self.timeline.0.lock().expect("a timeline does not panic").pace();
            self.next_look = now - now % pace + pace;
        }
        due
    }
}
