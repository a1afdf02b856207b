//! Writing a trace.

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use super::{FRAME_TARGET, Packer, Reader};
use crate::codec::Encoder;
use crate::error::TraceError;
use crate::event::{Event, FileId, ThreadId};
use crate::footprint::Footprint;
use crate::header::{Counts, FileInfo, Header, Place, ProcessInfo, ThreadInfo};

/// Writes a trace to a temporary file beside its path; [`finish`](Writer::finish) puts it in place in one step,
/// so what was there before stays whole until then, and stays for good if the writer is dropped.
///
/// Threads may be written in any interleaving; memory use is a frame (1 MiB) per thread.
pub struct Writer {
    path: PathBuf,
    packer: Packer<BufWriter<NamedTempFile>>,
    header: Header,
    threads: Vec<Building>,
    epochs: Vec<Epochs>,
    names: HashMap<String, u32>,
    raw: Vec<u8>,
}

/// A thread's frame that is being filled.
#[derive(Default)]
struct Building {
    encoder: Encoder,
    events: u32,
}

/// Which address-space changes of a process were written.
#[derive(Default)]
struct Epochs {
    /// All up to this one.
    through: u64,
    /// And these, not adjacent to it yet.
    ahead: std::collections::BTreeSet<u64>,
}

impl Epochs {
    fn note(&mut self, epoch: u64) {
        self.ahead.insert(epoch);
        while self.ahead.remove(&(self.through + 1)) {
            self.through += 1;
        }
    }
}

impl Writer {
    /// Begin a trace at `path`. `level` is zstd's (1 to 22).
    pub fn create(path: &Path, recorder: &str, command: &[String], level: i32) -> Result<Writer, TraceError> {
        let path = &destination(path)?;
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            let why = std::io::Error::other(format!("the folder {} does not exist", folder.display()));
            return Err(TraceError::io(path, "write")(why));
        }
        let file = part_in(folder).map_err(TraceError::io(path, "write beside it"))?;
        let packer = Packer::new(BufWriter::with_capacity(1 << 16, file), level);
        Ok(Writer {
            path: path.to_owned(),
            packer: packer.map_err(TraceError::io(path, "write"))?,
            header: Header {
                recorder: recorder.to_owned(),
                command: command.to_vec(),
                sample: 1,
                ..Header::default()
            },
            threads: Vec::new(),
            epochs: Vec::new(),
            names: HashMap::new(),
            raw: Vec::new(),
        })
    }

    /// Say how many pages the recorder's window had.
    pub fn set_window(&mut self, pages: u64) {
        self.header.window = pages;
    }

    /// Say that one in `pages` pages is in the trace.
    pub fn set_sample(&mut self, pages: u64) {
        self.header.sample = pages;
    }

    /// Add a sentence that users of the trace should see.
    pub fn warn(&mut self, text: String) {
        if !self.header.warnings.contains(&text) {
            self.header.warnings.push(text);
        }
    }

    /// Add a process and its first thread. `forked_by` is `None` for the very first process, and if only the fork's
    /// event names the parent.
    pub fn add_process(&mut self, forked_by: Option<ThreadId>) -> ThreadId {
        let process = self.header.processes.len() as u32;
        let thread = self.push_thread(process, forked_by);
        self.header.processes.push(ProcessInfo { forked_by, first_thread: thread, epochs: 0 });
        self.epochs.push(Epochs::default());
        thread
    }

    /// Add a thread to the process of `started_by`.
    ///
    /// # Panics
    /// If `started_by` was not returned by this writer.
    pub fn add_thread(&mut self, started_by: ThreadId) -> ThreadId {
        self.assert_own(started_by);
        let process = self.header.threads[started_by.0 as usize].process;
        self.push_thread(process, Some(started_by))
    }

    fn assert_own(&self, thread: ThreadId) {
        let threads = self.threads.len();
        assert!((thread.0 as usize) < threads, "thread {} must be one of this writer's {threads}", thread.0);
    }

    fn push_thread(&mut self, process: u32, started_by: Option<ThreadId>) -> ThreadId {
        let id = ThreadId(self.threads.len() as u32);
        self.threads.push(Building::default());
        self.header.threads.push(ThreadInfo {
            process,
            started_by,
            counts: Counts::default(),
            frames: Vec::new(),
        });
        id
    }

    /// Add a file of `size` bytes. Of `name`, which may be a path, only the last component is kept.
    pub fn add_file(&mut self, name: &str, size: u64, place: Place) -> FileId {
        let base = name.rsplit('/').next().filter(|base| !base.is_empty()).unwrap_or("file");
        let uses = self.names.entry(base.to_owned()).or_insert(0);
        *uses += 1;
        let name = if *uses == 1 { base.to_owned() } else { format!("{base}#{uses}") };
        self.header.files.push(FileInfo { name, size, place });
        FileId(self.header.files.len() as u32 - 1)
    }

    /// Add an event to `thread`.
    ///
    /// # Panics
    /// If `thread` was not returned by this writer.
    pub fn push(&mut self, thread: ThreadId, event: &Event) -> Result<(), TraceError> {
        self.assert_own(thread);
        // What the footprint keeps of files has a place for each number up to the largest.
        let unknown = |file: FileId| file.0 as usize >= self.header.files.len();
        if !event.possible() || event.file().is_some_and(unknown) {
            return Err(TraceError::Impossible { path: self.path.clone(), event: *event });
        }
        if let Some(started) = event.starts() {
            self.started(thread, started);
        }
        let info = &mut self.header.threads[thread.0 as usize];
        info.counts.note(event);
        if let Some(epoch) = event.epoch().filter(|&epoch| epoch > 0) {
            self.epochs[info.process as usize].note(epoch);
        }
        let building = &mut self.threads[thread.0 as usize];
        building.encoder.push(event);
        building.events += 1;
        if building.encoder.len() >= FRAME_TARGET { self.flush(thread) } else { Ok(()) }
    }

    /// `thread` was started by `by`: with a process if it is its first.
    fn started(&mut self, by: ThreadId, thread: ThreadId) {
        let parent = self.header.threads[by.0 as usize].process;
        let Some(info) = self.header.threads.get_mut(thread.0 as usize) else { return };
        info.started_by = Some(by);
        let (child, process) = (info.process, &mut self.header.processes[info.process as usize]);
        if process.first_thread == thread && child != parent && process.forked_by.is_none() {
            process.forked_by = Some(by);
        }
    }

    fn flush(&mut self, thread: ThreadId) -> Result<(), TraceError> {
        let building = &mut self.threads[thread.0 as usize];
        if building.encoder.is_empty() {
            return Ok(());
        }
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        building.encoder.finish(&mut raw);
        let events = std::mem::take(&mut building.events);
        let at = self.packer.frame(thread.0, events, &raw).map_err(TraceError::io(&self.path, "write"))?;
        let frames = &mut self.header.threads[thread.0 as usize].frames;
        assert!(
            frames.last() < Some(&at),
            "the frames of thread {} must be in the order of the file",
            thread.0
        );
        frames.push(at);
        self.raw = raw;
        Ok(())
    }

    /// The thread does no more: what is kept for it is written and given back.
    ///
    /// # Panics
    /// If `thread` was not returned by this writer.
    pub fn end_thread(&mut self, thread: ThreadId) -> Result<(), TraceError> {
        self.flush(thread)?;
        self.threads[thread.0 as usize] = Building::default();
        Ok(())
    }

    /// Write what is left, the header and the trailer, and put the file in place. Returns the header.
    pub fn finish(mut self) -> Result<Header, TraceError> {
        for thread in 0..self.threads.len() as u32 {
            self.flush(ThreadId(thread))?;
        }
        for (process, epochs) in self.header.processes.iter_mut().zip(&self.epochs) {
            process.epochs = epochs.through;
        }
        let Writer { path, mut packer, mut header, .. } = self;
        let written = packer.written().and_then(|(out, length)| Ok((out.get_ref().reopen()?, length)));
        let (file, length) = written.map_err(TraceError::io(&path, "write"))?;
        Footprint::of(&Reader::of_frames(&path, file, length, header.clone()))?.report(&mut header);
        let out = packer.finish(&header).map_err(TraceError::io(&path, "write"))?;
        let file = out.into_inner().map_err(|error| TraceError::io(&path, "write")(error.into_error()))?;
        open_to_readers(file.as_file()).map_err(TraceError::io(&path, "set its rights"))?;
        file.persist(&path).map_err(|error| TraceError::io(&path, "put it in place")(error.error))?;
        Ok(header)
    }
}

const PART: (&str, &str) = (".pagefold-", ".pft.part");

/// A temporary file in `folder`. It is locked for as long as it is written, so that those that were left when their
/// writer was killed are known, and are removed here.
fn part_in(folder: &Path) -> std::io::Result<NamedTempFile> {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_part = |name: &str| name.starts_with(PART.0) && name.ends_with(PART.1);
        if entry.file_name().to_str().is_some_and(is_part)
            && let Ok(left) = File::open(entry.path())
            && left.try_lock().is_ok()
        {
            let _ = std::fs::remove_file(entry.path());
        }
    }
    loop {
        let file = tempfile::Builder::new().prefix(PART.0).suffix(PART.1).tempfile_in(folder)?;
        file.as_file().lock()?;
        // Another writer may have taken it for one that was left, just before it was locked.
        if file.path().exists() {
            return Ok(file);
        }
    }
}

/// Where a file that is to replace `path` goes: a link stays, and what it leads to is replaced. Only a regular file may
/// be: the new one takes its name, and a device or a pipe of that name would be gone.
fn destination(path: &Path) -> Result<PathBuf, TraceError> {
    let refuse = |why: &str| TraceError::io(path, "write")(std::io::Error::other(why.to_owned()));
    let end = match std::fs::symlink_metadata(path) {
        Ok(found) if found.is_symlink() => {
            std::fs::canonicalize(path).map_err(|_| refuse("it is a link that leads nowhere"))?
        }
        _ => path.to_owned(),
    };
    match std::fs::metadata(&end) {
        Ok(found) if found.is_dir() => Err(refuse("it is a directory")),
        Ok(found) if !found.is_file() => {
            Err(refuse("it is not a regular file, and would be replaced by one"))
        }
        _ => Ok(end),
    }
}

/// Temporary files are made private; a trace is an ordinary file.
fn open_to_readers(file: &File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}
