//! Recorded programs: the container `.pft`, the recorder, importers, and replay as a [`program::Program`].
//!
//! A trace holds what each thread of a real program did to memory: runs of accesses to pages, the system calls
//! that shape memory and use files, and instructions in between ([`event`]). It is made by [`mod@record`] or
//! [`import`], looked at with [`info`] and run with [`Replay`].
#![forbid(unsafe_code)]

pub mod codec;
pub mod container;
pub mod event;
pub mod import;
pub mod info;
pub mod raw;
pub mod record;

mod error;
mod footprint;
mod pages;
mod replay;

pub use container::{Header, Reader, Writer};
pub use error::TraceError;
pub use import::ImportError;
pub use info::Info;
pub use record::{RecordError, RecordOptions, record};
pub use replay::{Outcome, Replay};
