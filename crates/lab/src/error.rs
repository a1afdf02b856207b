//! Errors of commands and their exit codes.

use std::io::ErrorKind;
use std::path::Path;

/// The most characters of a message about bad input.
pub const LONGEST: usize = 300;
/// What a message that was cut ends with.
const CUT: &str = " ...";

/// A failure of a command. The message is one line, for people.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Bad input: exit code 2.
    #[error("{0}")]
    Input(String),
    /// The program ran out of memory: exit code 2, as the remedy is another input.
    #[error("{0}")]
    OutOfMemory(String),
    /// The program had not ended when its time was over: exit code 2, for the same reason.
    #[error("{0}")]
    TimeLimit(String),
    /// A failed run: the oracle found a violation, tasks deadlocked, or an assertion failed. Exit code 1.
    #[error("{0}")]
    Failed(String),
    /// There is no room for a file: exit code 1, since that is no fault of the input.
    #[error("{0}")]
    Full(String),
    /// Ctrl-C: exit code 130, as shells expect.
    #[error("{0}")]
    Interrupted(String),
    /// The reader of standard output is gone, which is no error. Exit code 0, without a message.
    #[error("standard output was closed")]
    BrokenPipe,
}

/// The result of a command.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Bad input with this message.
    pub fn input(message: impl Into<String>) -> Error {
        Error::Input(message.into())
    }

    /// A file or directory that cannot be used.
    pub fn file(doing: &str, path: &Path, why: impl std::fmt::Display) -> Error {
        Error::Input(format!("cannot {doing} {}: {why}", path.display()))
    }

    /// The error of one side of a comparison.
    pub fn of(self, profile: &str) -> Error {
        match self {
            Error::Input(why) => Error::Input(format!("{profile}: {why}")),
            Error::OutOfMemory(why) => Error::OutOfMemory(format!("{profile}: {why}")),
            Error::TimeLimit(why) => Error::TimeLimit(format!("{profile}: {why}")),
            Error::Failed(why) => Error::Failed(format!("{profile}: {why}")),
            Error::Full(why) => Error::Full(format!("{profile}: {why}")),
            other => other,
        }
    }

    /// Exit code 1 instead of 2: the input was good for something else.
    pub fn failed(self) -> Error {
        match self {
            Error::Input(why) | Error::OutOfMemory(why) | Error::TimeLimit(why) => Error::Failed(why),
            other => other,
        }
    }

    /// A file that cannot be written. That there is no room for it is no fault of the input.
    pub fn write(path: &Path, why: &std::io::Error) -> Error {
        Error::output("write", path, why)
    }

    /// The same of another use than writing.
    pub fn output(doing: &str, path: &Path, why: &std::io::Error) -> Error {
        Error::full(why.kind(), Error::file(doing, path, why))
    }

    /// `error`, unless `kind` says that there is no room for a file.
    pub fn full(kind: ErrorKind, error: Error) -> Error {
        match kind {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => match error {
                Error::Input(why) | Error::Failed(why) => Error::Full(why),
                other => other,
            },
            _ => error,
        }
    }

    /// Add the command line that replays a failed run.
    pub fn with_replay(self, command: impl FnOnce() -> String) -> Error {
        match self {
            Error::Failed(why) => Error::Failed(format!("{why}\nreplay: {}", command())),
            other => other,
        }
    }

    /// The message as it is printed. What was wrong with an input may quote the input, which has any length: of such a
    /// line the first [`LONGEST`] characters are kept. A run that ended tells all that it knows.
    pub fn line(&self) -> String {
        let text = self.to_string();
        if !matches!(self, Error::Input(_)) {
            return text;
        }
        match text.char_indices().nth(LONGEST) {
            None => text,
            Some(_) => text.chars().take(LONGEST - CUT.chars().count()).chain(CUT.chars()).collect(),
        }
    }

    /// The exit code of the process.
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Input(_) | Error::OutOfMemory(_) | Error::TimeLimit(_) => 2,
            Error::Failed(_) | Error::Full(_) => 1,
            Error::Interrupted(_) => 130,
            Error::BrokenPipe => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_about_input_has_300_characters_at_most() {
        let quoted = |count| Error::input("\u{fc}".repeat(count)).line();
        assert_eq!(quoted(LONGEST), "\u{fc}".repeat(LONGEST));
        let cut = quoted(LONGEST + 1);
        assert!(cut.chars().count() == LONGEST && cut.ends_with("\u{fc} ..."), "{cut}");
        for ended in [Error::Failed, Error::OutOfMemory] {
            assert_eq!(ended("x".repeat(5000)).line().len(), 5000, "a run that ended tells all");
        }
    }
}
