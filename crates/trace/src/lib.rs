//! Recorded programs: the container `.pft`, the recorder, imports, and replay as a [`program::Program`].
//!
//! A trace holds what each thread of a real program did to memory: runs of accesses to pages, the system calls
//! that shape memory and use files, and instructions in between ([`event`]). It is made by `record` or
//! `import`, looked at with `info` and run with [`Replay`].
//!
//! Without the feature `std` the crate is what a machine needs that has neither files nor a system: [`Replay`] of an
//! [`Unpacked`] trace.
#![cfg_attr(not(feature = "std"), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod codec;
pub mod event;
pub mod header;

mod replay;
mod source;
mod unpacked;

pub use header::Header;
pub use replay::{Outcome, Replay};
pub use source::{Events, Source};
pub use unpacked::{Image, Unpacked};

#[cfg(feature = "std")]
pub mod container;
#[cfg(feature = "std")]
pub mod import;
#[cfg(feature = "std")]
pub mod info;
#[cfg(feature = "std")]
pub mod raw;
#[cfg(feature = "std")]
pub mod record;

#[cfg(feature = "std")]
mod ask;
#[cfg(feature = "std")]
mod check;
#[cfg(feature = "std")]
mod error;
#[cfg(feature = "std")]
mod footprint;
#[cfg(feature = "std")]
mod image;
#[cfg(feature = "std")]
mod layout;
#[cfg(feature = "std")]
mod pages;
#[cfg(feature = "std")]
mod ranges;
#[cfg(feature = "std")]
mod walk;

#[cfg(feature = "std")]
pub use container::{Reader, Writer};
#[cfg(feature = "std")]
pub use error::TraceError;
#[cfg(feature = "std")]
pub use import::ImportError;
#[cfg(feature = "std")]
pub use info::Info;
#[cfg(feature = "std")]
pub use layout::{Elsewhere, Islands};
#[cfg(feature = "std")]
pub use record::{RecordError, RecordOptions, record};
