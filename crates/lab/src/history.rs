//! A run in time, of bounded size: levels and counts at about equal distances, and which addresses were used when.

use crate::tree::Tree;

/// A run of one profile that was watched from beginning to end.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The name of its profile.
    pub profile: String,
    /// What it was like in time.
    pub history: History,
    /// Where its CPU time went.
    pub tree: Option<Tree>,
}

/// What a run was like in time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct History {
    /// Looks at the machine, in the order of time; the last one is at the program's end.
    pub samples: Vec<Sample>,
    /// Which addresses were used when.
    pub uses: Uses,
}

/// A look at the machine. Counts are those since the run began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Nanoseconds since the run began.
    pub nanos: u64,
    /// Bytes that are free.
    pub free: u64,
    /// Bytes on the lists, by [`LISTS`].
    pub lists: [u64; LISTS.len()],
    /// Bytes in generations, by [`GENERATIONS`]; all 0 where a policy has none.
    pub generations: [u64; GENERATIONS.len()],
    /// Page faults.
    pub faults: u64,
    /// Those that needed a device.
    pub major: u64,
    /// Requests of CPUs to others to flush.
    pub rounds: u64,
    /// Flushes of CPUs for such a request.
    pub receptions: u64,
    /// Folios that a policy that proposes let reclaim have, and those that it moved instead.
    pub decisions: [u64; 2],
    /// Nanoseconds of CPU time of the kswapd daemons.
    pub kswapd: u64,
    /// Nanoseconds in which at least one task waited for memory.
    pub pressure: u64,
}

/// The lists of [`Sample::lists`].
pub const LISTS: [&str; 4] = ["active anonymous", "inactive anonymous", "active file", "inactive file"];

/// The generations of [`Sample::generations`].
pub const GENERATIONS: [&str; 4] = ["youngest", "second", "third", "fourth"];

/// Accesses by address and time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Uses {
    /// Nanoseconds of a column.
    pub column: u64,
    /// Pages of a row.
    pub pages: u64,
    /// Rows with accesses, in the order of processes and addresses.
    pub rows: Vec<UsedRow>,
}

/// Consecutive pages of a process.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UsedRow {
    /// The process; the first is 0.
    pub process: u32,
    /// The number of the first page in the process's space.
    pub page: u64,
    /// Accesses in each column; columns that are missing at the end have none.
    pub counts: Vec<u64>,
}
