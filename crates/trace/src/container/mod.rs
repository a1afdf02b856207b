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
//! The header is at the end because counts and index are only known there; a reader finds it through the trailer. A
//! file without a good trailer is searched from the front, frame by frame, for the damaged place. Every byte is
//! covered by a checksum or compared with a constant.
//!
//! # What a file may cost its reader
//!
//! Checksums tell of accidents; a file can also be made to cost more than it is worth. So a reader believes nothing
//! that it has not compared:
//!
//! - Frames follow each other from the preamble to the meta frame without a gap, and the index leads to each of them
//!   exactly once.
//! - A frame of events unpacks to 1 MiB and a little, its events are at most its bytes, and each thread's frames have
//!   together as many events as the header says. All that is known from the heads, when a trace is opened, before
//!   anything is unpacked.
//! - The header unpacks to 1 MiB and eight times the file's length at most; the length of no list in it is believed
//!   beyond the bytes that are left for it.
//! - Counts and changes of address spaces are counted again while events are read (see `check.rs`), and no event says
//!   what no call can have done ([`Event::possible`](crate::event::Event::possible)).
//!
//! So looking at a trace takes time in proportion to what its heads say that it unpacks to, every frame once, and
//! memory for the header, one frame for each of at most 64 threads with a number of 8 bytes for each page that three
//! bytes of it name, and some 100 bytes for each distinct page that was
//! touched, a fortieth of what the recorded program had to have for it. zstd packs at most some 20 thousand times, and
//! only what repeats itself.

mod packer;
mod reader;
mod writer;

pub use packer::Packer;
pub use reader::{Reader, Stream};
pub use writer::Writer;

/// The newest format that is read, and the one that is written. Each has all that those before it have: 2 came with
/// advice about large folios, 4 with control groups, 7 with what threads wait for, 8 with calls as [`abi::Call`] has
/// them, 11 with numbers of pages and what pages hold, 13 with samples of pages. There is no 3, 5, 6, 9, 10 or 12: no
/// format's number is one bit away from another's.
pub const VERSION: u32 = 13;

const MAGIC: [u8; 8] = *b"\x89PFT\r\n\x1a\n";
const END_MAGIC: [u8; 4] = *b"PFT.";
const PREAMBLE: usize = 16;
const HEAD: usize = 24;
const TRAILER: usize = 24;
/// The thread number of the meta frame.
const META: u32 = u32::MAX;
/// Unpacked bytes after which a frame is closed. A reader needs about this much memory per thread.
const FRAME_TARGET: usize = 1 << 20;
/// Most unpacked bytes of a frame: what the event that closes it may add, and the block's own head.
const FRAME_LIMIT: u32 = FRAME_TARGET as u32 + 128;

/// Most unpacked bytes of the header of a file of `length` bytes. Each of its entries, except the command line,
/// describes something that takes more room in the rest of the file.
const fn header_limit(length: u64) -> u64 {
    (1 << 20) + length.saturating_mul(8)
}

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
