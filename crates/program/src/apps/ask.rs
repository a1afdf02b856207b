//! What an application is asked to be.

use super::parts::PAGE;
use crate::keys::Law;

/// Most tasks.
const THREADS: u32 = 1024;

/// What an application is asked to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ask {
    /// Bytes to touch.
    pub bytes: u64,
    /// Tasks, if not as many as it has by itself.
    pub threads: Option<u32>,
    /// The distribution of its keys, if not its own.
    pub law: Option<Law>,
    /// Writes among a hundred operations, if not its own share.
    pub writes: Option<u32>,
}

impl Ask {
    /// At least 16 pages for each task.
    pub(super) fn tasks(&self, usual: u32) -> u32 {
        let most = (self.bytes / PAGE / 16).min(u64::from(THREADS)) as u32;
        self.threads.unwrap_or(usual).clamp(1, most)
    }
}
