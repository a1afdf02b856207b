//! The files of this process's descriptors.

use std::collections::HashMap;
use std::fs::{self, File, Metadata};
use std::io::Seek;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::MetadataExt;

use crate::codec::put_varint;
use crate::event::FileId;
use crate::raw;
use crate::sample::mix;

/// A file that was used.
struct Known {
    dev: u64,
    inode: u64,
    size: u64,
    memory: bool,
    path: String,
}

#[derive(Clone, Copy, PartialEq)]
enum Slot {
    Unknown,
    /// Not a file of interest: a socket, a pipe, a device, /proc.
    Other(Channel),
    File(FileId),
}

/// How a descriptor orders tasks. The numbers are the kernel's, the same in all processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Channel {
    /// In no known way.
    None,
    /// A pipe.
    Pipe(u64),
    /// A socket.
    Socket(u64),
    /// An eventfd: a count, which a read takes as a whole.
    Count(u64),
}

#[derive(Default)]
pub struct Files {
    slots: Vec<Slot>,
    known: Vec<Known>,
    ids: HashMap<(u64, u64, String), FileId>,
    /// Chunks that describe the files found since the chunks were last written out.
    pub fresh: Vec<u8>,
}

/// What is known of an open descriptor.
pub struct Held {
    pub fd: i32,
    pub file: Option<FileId>,
    pub channel: Channel,
}

/// A descriptor as a `File` that is not closed.
fn borrow(fd: i32) -> ManuallyDrop<File> {
    // SAFETY: the descriptor is only used for queries and never closed through this `File`; if it is not open, they
    // fail with EBADF.
    ManuallyDrop::new(unsafe { File::from_raw_fd(fd) })
}

/// The descriptor's file offset.
pub fn offset(fd: i32) -> Option<u64> {
    (&*borrow(fd)).stream_position().ok()
}

/// The size of the descriptor's file.
pub fn size(fd: i32) -> Option<u64> {
    borrow(fd).metadata().ok().map(|meta| meta.len())
}

/// Whether a path leads to something without pages of its own, or to QEMU's own files.
fn ignored(path: &str) -> bool {
    let in_memory = path.starts_with("/dev/shm/");
    ["/proc/", "/sys/", "/tmp/qemu-open.", "/memfd:qemu-open"].iter().any(|prefix| path.starts_with(prefix))
        || (path.starts_with("/dev/") && !in_memory)
}

impl Files {
    /// The file behind `fd`, if it is of interest. A new file is also described in `fresh`.
    pub fn lookup(&mut self, fd: i32) -> Option<FileId> {
        let at = usize::try_from(fd).ok()?;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, Slot::Unknown);
        }
        if self.slots[at] == Slot::Unknown {
            self.slots[at] = self.resolve(fd).map_or_else(|| Slot::Other(channel(fd)), Slot::File);
        }
        match self.slots[at] {
            Slot::File(id) => Some(id),
            _ => None,
        }
    }

    /// How `fd` orders tasks.
    pub fn channel(&mut self, fd: i32) -> Channel {
        self.lookup(fd);
        match usize::try_from(fd).ok().and_then(|at| self.slots.get(at)) {
            Some(&Slot::Other(channel)) => channel,
            _ => Channel::None,
        }
    }

    /// The file behind `fd`, if that is known without asking the system.
    pub fn cached(&self, fd: i32) -> Option<FileId> {
        match usize::try_from(fd).ok().and_then(|at| self.slots.get(at)) {
            Some(&Slot::File(id)) => Some(id),
            _ => None,
        }
    }

    /// All descriptors that have been looked up.
    pub fn held(&self) -> Vec<Held> {
        let slots = self.slots.iter().enumerate();
        let held = slots.filter_map(|(at, &slot)| match slot {
            Slot::Unknown => None,
            Slot::Other(channel) => Some(Held { fd: at as i32, file: None, channel }),
            Slot::File(file) => Some(Held { fd: at as i32, file: Some(file), channel: Channel::None }),
        });
        held.collect()
    }

    /// Forget the descriptors from `first` to `last`: they may lead to other files from now on.
    pub fn forget(&mut self, first: u64, last: u64) {
        let slots = self.slots.len() as u64;
        for at in first.min(slots)..last.saturating_add(1).min(slots) {
            self.slots[at as usize] = Slot::Unknown;
        }
    }

    /// A number of the file that is the same in all processes.
    pub fn number(&self, file: u32) -> u64 {
        self.known.get(file as usize).map_or(0, |known| mix(known.dev, known.inode))
    }

    /// Number of known files.
    pub fn count(&self) -> usize {
        self.known.len()
    }

    fn resolve(&mut self, fd: i32) -> Option<FileId> {
        let meta = borrow(fd).metadata().ok()?;
        let path = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        self.add(&meta, &path.to_string_lossy())
    }

    /// The number of the mapped file at `path`.
    pub fn by_path(&mut self, path: &str) -> Option<FileId> {
        self.add(&fs::metadata(path).ok()?, path)
    }

    fn add(&mut self, meta: &Metadata, path: &str) -> Option<FileId> {
        let path = path.strip_suffix(" (deleted)").unwrap_or(path);
        if !meta.is_file() || ignored(path) {
            return None;
        }
        let key = (meta.dev(), meta.ino(), path.to_owned());
        if let Some(&id) = self.ids.get(&key) {
            return Some(id);
        }
        let id = FileId(self.known.len() as u32);
        let memory = path.starts_with("/dev/shm/") || path.starts_with("/memfd:");
        let known = Known { dev: key.0, inode: key.1, size: meta.len(), memory, path: key.2.clone() };
        describe(&mut self.fresh, id, &known);
        self.known.push(known);
        self.ids.insert(key, id);
        Some(id)
    }

    /// Describe all files again: a child's output must be complete in itself.
    pub fn describe_all(&mut self) {
        self.fresh.clear();
        for (at, known) in self.known.iter().enumerate() {
            describe(&mut self.fresh, FileId(at as u32), known);
        }
    }
}

fn channel(fd: i32) -> Channel {
    use std::os::unix::fs::FileTypeExt;
    let Ok(meta) = borrow(fd).metadata() else { return Channel::None };
    // Device numbers are small.
    let number = meta.ino() ^ meta.dev().rotate_right(20);
    match meta.file_type() {
        kind if kind.is_fifo() => Channel::Pipe(number),
        kind if kind.is_socket() => Channel::Socket(number),
        _ => count(fd).map_or(Channel::None, Channel::Count),
    }
}

/// The number of an eventfd.
fn count(fd: i32) -> Option<u64> {
    let link = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    if link.to_str()? != "anon_inode:[eventfd]" {
        return None;
    }
    let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    text.lines().find_map(|line| line.strip_prefix("eventfd-id:"))?.trim().parse().ok()
}

fn describe(out: &mut Vec<u8>, id: FileId, known: &Known) {
    raw::put_chunk(out, raw::kind::FILE, 0, |body| {
        for number in [u64::from(id.0), known.dev, known.inode, known.size, u64::from(known.memory)] {
            put_varint(body, number);
        }
        body.extend_from_slice(known.path.as_bytes());
    });
}
