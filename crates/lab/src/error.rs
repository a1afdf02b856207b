//! What can go wrong, and what the shell is told about it.

use std::path::Path;

/// A failure of a command. The message is one line, for people.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What the user asked for cannot be done: exit code 2.
    #[error("{0}")]
    Input(String),
    /// A run went wrong: the oracle objected, tasks waited for each other, an assertion fell. Exit code 1.
    #[error("{0}")]
    Failed(String),
    /// Ctrl-C: exit code 130, as shells expect.
    #[error("{0}")]
    Interrupted(String),
    /// Nobody reads our output any more; that is no error. Exit code 0, silently.
    #[error("standard output was closed")]
    BrokenPipe,
}

/// The result of a command.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Bad input, in words.
    pub fn input(message: impl Into<String>) -> Error {
        Error::Input(message.into())
    }

    /// A file or directory could not be used.
    pub fn file(doing: &str, path: &Path, why: impl std::fmt::Display) -> Error {
        Error::Input(format!("cannot {doing} {}: {why}", path.display()))
    }

    /// What the process says to its parent.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Input(_) => 2,
            Error::Failed(_) => 1,
            Error::Interrupted(_) => 130,
            Error::BrokenPipe => 0,
        }
    }
}
