//! The lowest part of the format: preamble, frames, trailer.

use std::io::{self, Write};

use super::{END_MAGIC, Head, MAGIC, META, TRAILER, VERSION};
use crate::header::Header;

/// Puts frames and a header into a container. It takes what it is given: it is the [`Writer`](super::Writer) that knows
/// what belongs into a trace. (Tests give it what no writer would.)
pub struct Packer<W> {
    out: W,
    offset: u64,
    level: i32,
}

impl<W: Write> Packer<W> {
    /// Begin a container. `level` is zstd's (1 to 22).
    pub fn new(out: W, level: i32) -> io::Result<Packer<W>> {
        let mut packer = Packer { out, offset: 0, level };
        let mut preamble = MAGIC.to_vec();
        preamble.extend_from_slice(&VERSION.to_le_bytes());
        preamble.extend_from_slice(&[0; 4]);
        packer.write(&preamble)?;
        Ok(packer)
    }

    /// Add a frame of a thread. Returns its offset.
    pub fn frame(&mut self, thread: u32, events: u32, raw: &[u8]) -> io::Result<u64> {
        let at = self.offset;
        let data = zstd::bulk::compress(raw, self.level)?;
        let largest = raw.len().max(data.len());
        assert!(u32::try_from(largest).is_ok(), "a frame must be shorter than 4 GiB, not {largest} bytes");
        let head = Head {
            thread,
            events,
            raw_len: raw.len() as u32,
            data_len: data.len() as u32,
            data_crc: crc32fast::hash(&data),
        };
        self.write(&head.to_bytes())?;
        self.write(&data)?;
        Ok(at)
    }

    /// Where the frames so far are, all written out, and their length.
    pub(super) fn written(&mut self) -> io::Result<(&W, u64)> {
        self.out.flush()?;
        Ok((&self.out, self.offset))
    }

    /// Add the header and the trailer.
    pub fn finish(self, header: &Header) -> io::Result<W> {
        self.finish_raw(&header.encode())
    }

    /// Add a header that is encoded already, and the trailer.
    pub fn finish_raw(mut self, header: &[u8]) -> io::Result<W> {
        let meta = self.frame(META, 0, header)?;
        let mut trailer = meta.to_le_bytes().to_vec();
        trailer.extend_from_slice(&(self.offset + TRAILER as u64).to_le_bytes());
        trailer.extend_from_slice(&crc32fast::hash(&trailer).to_le_bytes());
        trailer.extend_from_slice(&END_MAGIC);
        self.write(&trailer)?;
        Ok(self.out)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.offset += bytes.len() as u64;
        self.out.write_all(bytes)
    }
}
