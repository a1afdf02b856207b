//! What the recorder's plugin writes: one file per image that a process runs, a sequence of chunks.
//!
//! ```text
//! chunk = kind u32, stream u32, length u32 (all little endian), then that many bytes
//! ```
//!
//! A stream is one thread. Each chunk is appended by one `write`, so a process that is killed leaves whole chunks
//! and at most one torn at the end. This file is also compiled into the plugin.

/// An image of a recorded process: the kernel's number of the process, and one that tells its images apart, and those
/// of processes that had the same number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Image {
    /// The process.
    pub pid: u32,
    /// From 0, in the order in which they began.
    pub number: u32,
}

impl Image {
    /// Its file in the recorder's directory.
    pub fn file_name(self) -> String {
        format!("process-{}-{}.raw", self.pid, self.number)
    }

    /// The image whose file in that directory this is.
    pub fn of_file(name: &str) -> Option<Image> {
        let (pid, number) = name.strip_prefix("process-")?.strip_suffix(".raw")?.split_once('-')?;
        Some(Image { pid: pid.parse().ok()?, number: number.parse().ok()? })
    }
}

/// How an image came to be.
pub mod origin {
    /// It is the first program of the recording.
    pub const FIRST: u64 = 0;
    /// Its process was forked.
    pub const FORK: u64 = 1;
    /// Its process executed it.
    pub const EXEC: u64 = 2;
}

/// Length of a chunk's head in bytes.
pub const HEAD: usize = 12;

/// Most bytes of a chunk's body; the plugin keeps well below.
pub const MAX_BODY: usize = 16 << 20;

/// Kinds of chunks.
pub mod kind {
    /// First chunk of a file. Body: varints origin, pid and number of the image that it came from; then the path of the
    /// program.
    pub const PROCESS: u32 = 1;
    /// Begin of a stream. Body: varint tid.
    pub const THREAD: u32 = 2;
    /// A file is met for the first time by this process. Body: varints number, dev, inode, size in bytes,
    /// 1 if it lives in memory; then its path.
    pub const FILE: u32 = 3;
    /// A block of events (`codec.rs`). Thread and process ids in them are the kernel's.
    pub const EVENTS: u32 = 4;
    /// The stream has ended. Empty body.
    pub const THREAD_END: u32 = 5;
    /// The process ended in good order (nothing is missing). Empty body.
    pub const PROCESS_END: u32 = 7;
    /// The process is about to become another program, which is recorded, too; nothing follows unless that fails.
    /// Body: varint count, and varints address and length of as many mappings that are gone then; varint count, and
    /// as many varints, the files of descriptors that are closed then.
    pub const EXEC: u32 = 8;
    /// The `execve` before failed. Empty body.
    pub const EXEC_FAILED: u32 = 9;
    /// [`Step`](super::Step)s of the stream, by which tasks wait for each other.
    pub const STEPS: u32 = 10;
    /// What was done since the last such chunk. Body: varints accesses and instructions of the stream in the events,
    /// and nanoseconds of CPU time of the process.
    pub const TALLY: u32 = 11;
    /// The process is about to become another program, which cannot be recorded; nothing follows unless that fails.
    /// Body: why.
    pub const UNFOLLOWED: u32 = 12;
    /// What pages hold at this point of the stream. Body: for each a varint, its number, and a byte: 0, all bytes are
    /// zero; 1, a word is repeated; 2, the page follows.
    pub const CONTENT: u32 = 13;
}

/// What a call did that others wait for, or that waited for others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deed {
    /// Waited at a futex until it was woken, or found that it need not wait.
    Wait,
    /// Woke one task that waits at a futex; `more` is the number of tasks woken.
    WakeOne,
    /// Woke all tasks that wait at a futex; `more` is their number.
    WakeAll,
    /// A task that waits at a futex waits at the futex `more` from now on.
    Requeue,
    /// Wrote `more` bytes to a pipe.
    Put,
    /// Wrote `more` bytes to a socket.
    Send,
    /// Read `more` bytes from a pipe or socket; none: it has ended.
    Take,
    /// Made the sockets `key` and `more`, or found that they are connected.
    Pair,
    /// Asked the address `key` for a connection of the socket `more`.
    Connect,
    /// Was asked at the address `key` and made the socket `more`.
    Accept,
    /// Closed a descriptor of a pipe or socket.
    Close,
    /// Started the thread `more`, at whose end there is a wake at the futex `key`.
    Start,
    /// Looked at what the thread `key` left when it had ended.
    Join,
    /// The thread `key` ended.
    End,
    /// The process ended.
    EndProcess,
}

/// All deeds; each is told as its index here.
const DEEDS: [Deed; 15] = [
    Deed::Wait,
    Deed::WakeOne,
    Deed::WakeAll,
    Deed::Requeue,
    Deed::Put,
    Deed::Send,
    Deed::Take,
    Deed::Pair,
    Deed::Connect,
    Deed::Accept,
    Deed::Close,
    Deed::Start,
    Deed::Join,
    Deed::End,
    Deed::EndProcess,
];

/// A call by which tasks wait for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Its number among such calls of its stream, from 1: that of the mark where it began.
    pub call: u64,
    /// What it did.
    pub deed: Deed,
    /// Whether `key` means the same thing in all processes.
    pub common: bool,
    /// What it did that to.
    pub key: u64,
    /// See [`Deed`].
    pub more: u64,
    /// When it began, in nanoseconds of a clock that all processes share.
    pub begin: u64,
    /// When it ended; 0: it does not return.
    pub end: u64,
}

impl Step {
    /// Append it to a chunk's body, with `put` for a number.
    pub fn encode(&self, mut put: impl FnMut(u64)) {
        let deed = DEEDS.iter().position(|&deed| deed == self.deed).unwrap_or(0);
        let what = (deed as u64) << 1 | u64::from(self.common);
        [what, self.call, self.key, self.more, self.begin, self.end].into_iter().for_each(&mut put);
    }

    /// The next one of a chunk's body, with `get` for a number.
    pub fn decode<E>(mut get: impl FnMut() -> Result<u64, E>) -> Result<Option<Step>, E> {
        let what = get()?;
        let (call, key, more, begin, end) = (get()?, get()?, get()?, get()?, get()?);
        let deed = DEEDS.get((what >> 1) as usize);
        Ok(deed.map(|&deed| Step { call, deed, common: what & 1 != 0, key, more, begin, end }))
    }
}

/// Append a chunk to `out`; `body` writes its bytes.
pub fn put_chunk(out: &mut Vec<u8>, kind: u32, stream: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&kind.to_le_bytes());
    out.extend_from_slice(&stream.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = (out.len() - start - HEAD) as u32;
    out[start + 8..start + HEAD].copy_from_slice(&length.to_le_bytes());
}

/// Kind, stream and body length out of a chunk's head.
pub fn parse_head(head: &[u8; HEAD]) -> (u32, u32, usize) {
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    (word(0), word(4), word(8) as usize)
}
