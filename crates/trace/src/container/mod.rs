//! The file format `.pft`.
//!
//! ```text
//! file     = preamble, frame*, meta, trailer          (all integers little endian)
//! preamble = magic 89 'P' 'F' 'T' 0D 0A 1A 0A, version u32, reserved u32 (0)
//! frame    = head, data
//! head     = thread u32, events u32, raw_len u32, data_len u32, crc32 of these 16 bytes, crc32 of data
//! data     = one zstd frame that unpacks to raw_len bytes: a block of events (see `codec.rs`)
//! meta     = a frame with thread FFFFFFFF that unpacks to the header (see [`crate::header`]), index included
//! trailer  = offset of meta u64, length of the file u64, crc32 of these 16 bytes, 'P' 'F' 'T' '.'
//! ```
//!
//! The header stands at the end because counts and index are only known there; a reader finds it through the
//! trailer. A file without a good trailer is searched from the front, frame by frame, for the place where it
//! went wrong. Every byte is covered by a checksum or compared with a constant.

mod reader;
mod writer;

pub use reader::{Reader, Stream};
pub use writer::Writer;

/// The newest format that is read, and the one that is written. Each has all that those before it have: 2 came with advice about
/// large folios.
pub const VERSION: u32 = 2;

const MAGIC: [u8; 8] = *b"\x89PFT\r\n\x1a\n";
const END_MAGIC: [u8; 4] = *b"PFT.";
const PREAMBLE: usize = 16;
const HEAD: usize = 24;
const TRAILER: usize = 24;
/// The thread number of the meta frame.
const META: u32 = u32::MAX;
/// Unpacked bytes after which a frame is closed. A reader needs about this much memory per thread.
const FRAME_TARGET: usize = 1 << 20;
/// Unpacked bytes above which a frame is taken for damage instead of being unpacked.
const FRAME_LIMIT: u32 = 64 << 20;

/// The head of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Head {
    thread: u32,
    events: u32,
    raw_len: u32,
    data_len: u32,
    data_crc: u32,
}

impl Head {
    fn to_bytes(self) -> [u8; HEAD] {
        let mut bytes = [0; HEAD];
        for (at, word) in [self.thread, self.events, self.raw_len, self.data_len].into_iter().enumerate() {
            bytes[at * 4..at * 4 + 4].copy_from_slice(&word.to_le_bytes());
        }
        let crc = crc32fast::hash(&bytes[..16]);
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        bytes[20..].copy_from_slice(&self.data_crc.to_le_bytes());
        bytes
    }

    /// `None` if the head's own checksum does not hold.
    fn from_bytes(bytes: &[u8; HEAD]) -> Option<Head> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        (crc32fast::hash(&bytes[..16]) == word(16)).then(|| Head {
            thread: word(0),
            events: word(4),
            raw_len: word(8),
            data_len: word(12),
            data_crc: word(20),
        })
    }
}
