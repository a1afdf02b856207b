//! What a judge runs.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a run counts: its time in nanoseconds, its accesses, and some of the memory manager's counters.
pub type Counts = BTreeMap<String, u64>;

/// A test before it has run.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// Its name.
    pub name: String,
    /// What follows the program's name to run it: a test's name, or a case's arguments.
    pub words: String,
    /// What it must count, beside ending well.
    pub counts: Option<Counts>,
}
