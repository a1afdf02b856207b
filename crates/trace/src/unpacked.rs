//! A trace as one piece of memory, for machines that have no files to read it from.
//!
//! ```text
//! image = length of the header u64, header (see `header.rs`), frame*     (all integers little endian)
//! frame = events u32, length of the block u32, a block of events (see `codec.rs`)
//! ```
//!
//! The header's offsets count from the end of the header. There are no checksums and no compression: the maker of the
//! image has just checked the trace and passes it on at once.

use crate::codec::{Decoder, Malformed};
use crate::event::{Event, ThreadId};
use crate::header::Header;
use crate::source::{Events, Source};
use alloc::string::String;
use alloc::vec::Vec;

/// Bytes before a frame's block.
const HEAD: usize = 8;

/// A trace in memory.
#[derive(Clone, Debug)]
pub struct Unpacked<'a> {
    header: Header,
    frames: &'a [u8],
}

impl<'a> Unpacked<'a> {
    /// The trace whose image is `image`. Fails if that is no image, in whole or in part.
    pub fn new(image: &'a [u8]) -> Result<Unpacked<'a>, Malformed> {
        let (len, rest) = image.split_first_chunk().ok_or(Malformed)?;
        let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| Malformed)?;
        let (header, frames) = rest.split_at_checked(len).ok_or(Malformed)?;
        let trace = Unpacked { header: Header::decode(header)?, frames };
        let starts = trace.header.threads.iter().flat_map(|thread| &thread.frames);
        for &at in starts {
            let (_, block) = trace.frame(at).ok_or(Malformed)?;
            Decoder::new(block)?;
        }
        Ok(trace)
    }

    /// Number of events, and block, of the frame at `at`.
    fn frame(&self, at: u64) -> Option<(u32, &'a [u8])> {
        let frame = self.frames.get(usize::try_from(at).ok()?..)?;
        let (head, rest) = frame.split_first_chunk::<HEAD>()?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        Some((word(0), rest.get(..word(4) as usize)?))
    }
}

impl<'a> Source for Unpacked<'a> {
    type Stream<'b>
        = Stream<'b>
    where
        Self: 'b;

    fn header(&self) -> &Header {
        &self.header
    }

    fn stream(&self, thread: ThreadId) -> Stream<'_> {
        Stream { trace: self, thread, next_frame: 0, block: &[], decoder: Decoder::default(), left: 0 }
    }
}

/// The events of one thread.
pub struct Stream<'a> {
    trace: &'a Unpacked<'a>,
    thread: ThreadId,
    next_frame: usize,
    block: &'a [u8],
    decoder: Decoder,
    left: u32,
}

impl Events for Stream<'_> {
    type Error = String;

    #[inline]
    fn next_event(&mut self) -> Result<Option<Event>, String> {
        loop {
            match self.decoder.next(self.block) {
                Ok(Some(event)) => {
                    self.left = self.left.wrapping_sub(1);
                    return Ok(Some(event));
                }
                Ok(None) if self.left == 0 => {
                    if !self.load() {
                        return Ok(None);
                    }
                }
                _ => return Err(self.bad_frame()),
            }
        }
    }
}

impl Stream<'_> {
    /// Go on with the next frame; `false` if there is none.
    #[cold]
    fn load(&mut self) -> bool {
        let thread = self.trace.header.threads.get(self.thread.0 as usize);
        let frame = thread.and_then(|info| info.frames.get(self.next_frame));
        let Some((events, block)) = frame.and_then(|&at| self.trace.frame(at)) else { return false };
        self.next_frame += 1;
        (self.left, self.block) = (events, block);
        self.decoder = Decoder::new(block).expect("all frames were looked at");
        true
    }

    #[cold]
    fn bad_frame(&self) -> String {
        alloc::format!("frame {} of thread {} does not follow the format", self.next_frame, self.thread.0)
    }
}

/// Builds the image of a trace, for [`Unpacked`].
#[derive(Default)]
pub struct Image {
    frames: Vec<u8>,
}

impl Image {
    /// Add a frame. Returns its offset. Fails if a frame is too large.
    pub fn push(&mut self, events: u32, block: &[u8]) -> Option<u64> {
        let at = self.frames.len() as u64;
        let len = u32::try_from(block.len()).ok()?;
        self.frames.extend_from_slice(&events.to_le_bytes());
        self.frames.extend_from_slice(&len.to_le_bytes());
        self.frames.extend_from_slice(block);
        Some(at)
    }

    /// The image. `header` has the offsets that [`push`](Image::push) returned.
    pub fn finish(self, header: &Header) -> Vec<u8> {
        let (mut starts, end) =
            (header.threads.iter().flat_map(|thread| &thread.frames), self.frames.len() as u64);
        assert!(starts.all(|&at| at < end), "an image of {end} bytes must have all frames of its header");
        let header = header.encode();
        let mut image = Vec::with_capacity(8 + header.len() + self.frames.len());
        image.extend_from_slice(&(header.len() as u64).to_le_bytes());
        image.extend_from_slice(&header);
        image.extend_from_slice(&self.frames);
        image
    }
}
