//! Why nothing was imported.

use std::io;
use std::path::PathBuf;

use crate::error::TraceError;

/// Why nothing was imported. Each message is one line that names the file, the place in it and the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// A line that cannot be one of the format.
    #[error("{}:{line}: {what}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line's number, from 1.
        line: u64,
        /// What was expected, what is there, and what to do.
        what: String,
    },
    /// A record that cannot be one of the format.
    #[error("{}: at byte {at}: {what}", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// Offset of the record in bytes, in what the file holds when it is unpacked.
        at: u64,
        /// What was expected, what is there, and what to do.
        what: String,
    },
    /// A compressed file that cannot be unpacked.
    #[error(
        "{}: its {packing} data cannot be unpacked after {at} bytes: {source}; copy the file again",
        path.display()
    )]
    Packed {
        /// The file.
        path: PathBuf,
        /// How it is compressed.
        packing: &'static str,
        /// Bytes that were unpacked.
        at: u64,
        /// The unpacker's answer.
        source: io::Error,
    },
    /// A file in a compression that is not unpacked here.
    #[error(
        "{}: it is compressed with {tool}; unpack it: {tool} -dc FILE | pagefold import --format {format} - -o TRACE",
        path.display()
    )]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The program that unpacks it.
        tool: &'static str,
        /// The format that it was to be read in.
        format: &'static str,
    },
    /// The recordings of several processes in one file.
    #[error(
        "{}: it has records of several {kind} ({first}, {second}); choose one with --only, for example --only {first}",
        path.display()
    )]
    Several {
        /// The file.
        path: PathBuf,
        /// What there are several of.
        kind: &'static str,
        /// The number of the first.
        first: u64,
        /// The number of another.
        second: u64,
    },
    /// No access in the file.
    #[error("{}: no accesses in it; {remedy}", path.display())]
    Empty {
        /// The file.
        path: PathBuf,
        /// How such a file is made.
        remedy: &'static str,
    },
    /// More memory than an import may touch.
    #[error("{}: it touches more than {most} pages of 4 KiB, which is the most that can be imported", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most pages.
        most: u64,
    },
    /// The caller wanted no more.
    #[error("interrupted; nothing was written")]
    Interrupted,
    /// A file could not be read or written.
    #[error(transparent)]
    Trace(#[from] TraceError),
}
