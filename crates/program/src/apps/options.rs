//! The options of an application.

use super::parts::PAGE;
use crate::keys::Distribution;

/// The most tasks.
const MAX_TASKS: u32 = 1024;

/// The options of an application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppOptions {
    /// Bytes to touch.
    pub bytes: u64,
    /// Tasks, if not its default number.
    pub threads: Option<u32>,
    /// The distribution of its keys, if not its default.
    pub distribution: Option<Distribution>,
    /// Writes among a hundred operations, if not its default share.
    pub writes: Option<u32>,
}

impl AppOptions {
    /// The number of tasks, with at least 16 pages each.
    pub(super) fn tasks(&self, default: u32) -> u32 {
        let max = (self.bytes / PAGE / 16).min(u64::from(MAX_TASKS)) as u32;
        self.threads.unwrap_or(default).clamp(1, max)
    }
}
