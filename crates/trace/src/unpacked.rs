//! A trace as one piece of memory, for machines that have no files to read it from.
//!
//! ```text
//! image = length of the header u64, header (see `header.rs`),             (all integers little endian)
//!         length of the contents u64, contents of each process, frame*
//! contents = pages u32, (page u64, units of lz4 u8, of zstd u8)*: what each page first holds
//! frame = events u32, length of the block u32, a block of events (see `codec.rs`)
//! ```
//!
//! The header's offsets count from the first frame. There are no checksums and no compression: the maker of the
//! image has just checked the trace and passes it on at once.

use crate::codec::{Decoder, Malformed};
use crate::event::{Event, Packed, ThreadId};
use crate::header::Header;
use crate::source::{Events, Source};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// Bytes before a frame's block.
const HEAD: usize = 8;
/// Bytes of a page's content.
const CONTENT: usize = 10;

/// A trace in memory.
#[derive(Clone, Debug)]
pub struct Unpacked<'a> {
    header: Header,
    /// By process: what its pages first hold.
    contents: Vec<&'a [u8]>,
    frames: &'a [u8],
}

impl<'a> Unpacked<'a> {
    /// The trace whose image is `image`. Fails if that is no image, in whole or in part.
    pub fn new(image: &'a [u8]) -> Result<Unpacked<'a>, Malformed> {
        let (header, rest) = sized(image)?;
        let (contents, frames) = sized(rest)?;
        let header = Header::decode(header)?;
        let contents = by_process(contents, header.processes.len())?;
        let trace = Unpacked { header, contents, frames };
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

/// What begins with its length, and the rest.
fn sized(bytes: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let (len, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
    let len = usize::try_from(u64::from_le_bytes(*len)).map_err(|_| Malformed)?;
    rest.split_at_checked(len).ok_or(Malformed)
}

/// What the pages of each of `processes` processes first hold.
fn by_process(mut bytes: &[u8], processes: usize) -> Result<Vec<&[u8]>, Malformed> {
    let mut one = || {
        let (pages, rest) = bytes.split_first_chunk().ok_or(Malformed)?;
        let len = (u32::from_le_bytes(*pages) as usize).checked_mul(CONTENT).ok_or(Malformed)?;
        let (own, rest) = rest.split_at_checked(len).ok_or(Malformed)?;
        bytes = rest;
        Ok(own)
    };
    let all = (0..processes).map(|_| one()).collect::<Result<Vec<&[u8]>, Malformed>>()?;
    if bytes.is_empty() { Ok(all) } else { Err(Malformed) }
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

    fn first_contents(&self, process: u32) -> impl Iterator<Item = (u64, Packed)> {
        let own = self.contents.get(process as usize).copied().unwrap_or_default();
        own.as_chunks::<CONTENT>()
            .0
            .iter()
            .map(|&[page @ .., lz4, zstd]| (u64::from_le_bytes(page), Packed { lz4, zstd }))
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

    /// The image. `header` has the offsets that [`push`](Image::push) returned; of each process, or of none,
    /// `contents` says what pages first hold.
    pub fn finish(self, header: &Header, contents: &[BTreeMap<u64, Packed>]) -> Vec<u8> {
        let (mut starts, end) =
            (header.threads.iter().flat_map(|thread| &thread.frames), self.frames.len() as u64);
        assert!(starts.all(|&at| at < end), "an image of {end} bytes must have all frames of its header");
        let contents = encoded(contents, header.processes.len());
        let header = header.encode();
        let mut image = Vec::with_capacity(16 + header.len() + contents.len() + self.frames.len());
        for part in [&header, &contents] {
            image.extend_from_slice(&(part.len() as u64).to_le_bytes());
            image.extend_from_slice(part);
        }
        image.extend_from_slice(&self.frames);
        image
    }
}

/// What the pages of `processes` processes first hold.
fn encoded(contents: &[BTreeMap<u64, Packed>], processes: usize) -> Vec<u8> {
    let none = BTreeMap::new();
    let mut bytes = Vec::new();
    for own in (0..processes).map(|process| contents.get(process).unwrap_or(&none)) {
        bytes.extend_from_slice(&(own.len() as u32).to_le_bytes());
        for (page, packed) in own {
            bytes.extend_from_slice(&page.to_le_bytes());
            bytes.extend_from_slice(&[packed.lz4, packed.zstd]);
        }
    }
    bytes
}
