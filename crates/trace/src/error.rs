//! What can be wrong with a trace file.

use std::io;
use std::path::{Path, PathBuf};

use crate::event::Event;

/// Why a trace could not be read or written. Each message is one line that names the file, the position and
/// what to do.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file does not begin like a trace.
    #[error(
        "{}: not a Pagefold trace; make one with `pagefold record -o FILE -- COMMAND` or `pagefold import`",
        path.display()
    )]
    NotATrace {
        /// The file.
        path: PathBuf,
    },
    /// The file is of a format that this version does not know.
    #[error(
        "{}: trace format {found}, but this pagefold reads up to {known}; update pagefold or record again",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The newest version that can be read.
        known: u32,
    },
    /// The file ends too early.
    #[error(
        "{}: truncated: the file ends at byte {at}, inside {inside}; copy or record it again",
        path.display()
    )]
    Truncated {
        /// The file.
        path: PathBuf,
        /// Its length in bytes.
        at: u64,
        /// What was not complete.
        inside: &'static str,
    },
    /// A checksum or a rule of the format does not hold.
    #[error("{}: damaged at byte {at}: {what}; copy or record it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset of the damaged piece from the start of the file, in bytes.
        at: u64,
        /// What does not hold.
        what: &'static str,
    },
    /// An event that is to be written cannot have happened.
    #[error("{}: nothing can have done this: {event:?}; the recording is damaged, record again", path.display())]
    Impossible {
        /// The trace that is written.
        path: PathBuf,
        /// What was to be written.
        event: Event,
    },
    /// The system refused.
    #[error("{}: cannot {action}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// The system's answer.
        source: io::Error,
    },
}

impl TraceError {
    pub(crate) fn io<'a>(path: &'a Path, action: &'static str) -> impl FnOnce(io::Error) -> TraceError + 'a {
        move |source| TraceError::Io { path: path.to_owned(), action, source }
    }
}
