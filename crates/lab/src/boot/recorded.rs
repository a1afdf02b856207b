//! A recorded program on its way into the guest.
//!
//! The guest has no files to read a trace from, so it gets it unpacked, as one file that QEMU puts into its memory.

use crate::error::{Error, Result};
use program::Call;
use std::fmt;
use std::sync::Arc;
use trace::Reader;
use trace::event::{Event, ThreadId};

/// A trace, and what a machine for it has to know.
#[derive(Clone, PartialEq, Eq)]
pub struct Recorded {
    image: Arc<Vec<u8>>,
    /// Bytes that the program touches.
    pub footprint: u64,
    /// Bytes of all mappings that it makes.
    pub mapped: u64,
    /// Its threads, of all processes.
    pub threads: u64,
    /// Its files.
    pub files: u64,
}

impl Recorded {
    /// Unpack a trace.
    pub fn new(trace: &Reader) -> Result<Recorded> {
        let header = trace.header();
        let input = |error: trace::TraceError| Error::Input(error.to_string());
        let mut mapped = 0u64;
        for thread in 0..header.threads.len() as u32 {
            for event in trace.stream(ThreadId(thread)) {
                if let Event::Call { call: Call::Mmap(map), .. } = event.map_err(input)? {
                    mapped = mapped.saturating_add(map.len);
                }
            }
        }
        Ok(Recorded {
            image: Arc::new(trace.unpack().map_err(input)?),
            footprint: header.footprint,
            mapped,
            threads: header.threads.len() as u64,
            files: header.files.len() as u64,
        })
    }

    /// What the guest is given, as [`trace::Unpacked`] reads it.
    pub fn image(&self) -> &[u8] {
        &self.image
    }
}

impl fmt::Debug for Recorded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a trace of {} bytes", self.image.len())
    }
}
