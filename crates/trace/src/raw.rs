//! What the recorder's plugin writes: one file per process, a sequence of chunks.
//!
//! ```text
//! chunk = kind u32, stream u32, length u32 (all little endian), then that many bytes
//! ```
//!
//! A stream is one thread. Each chunk is appended by one `write`, so a process that is killed leaves whole chunks
//! and at most one torn at the end. This file is also compiled into the plugin.

/// The file of process `pid` in the recorder's directory.
pub fn file_name(pid: u32) -> String {
    format!("process-{pid}.raw")
}

/// Length of a chunk's head in bytes.
pub const HEAD: usize = 12;

/// Most bytes of a chunk's body; the plugin keeps well below.
pub const MAX_BODY: usize = 16 << 20;

/// Kinds of chunks.
pub mod kind {
    /// First chunk of a file. Body: varints pid, parent's pid (0 for the first process).
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
    /// The process is about to become another program by `execve`; nothing follows unless that fails. Empty body.
    pub const EXEC: u32 = 8;
    /// The `execve` before failed. Empty body.
    pub const EXEC_FAILED: u32 = 9;
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
