//! From the plugin's raw files to a trace, chunk by chunk.
//!
//! The kernel's numbers become the trace's: a `clone` tells the new thread's id, and the stream of that thread
//! says the same id; a `fork` tells the child's process id, which names its file. Which comes first is chance,
//! and ids may be used again, so they are matched first to first.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::{RecordError, io_error};
use crate::codec::{Decoder, Malformed, varint};
use crate::container::Writer;
use crate::event::{Backing, Event, FileId, ThreadId};
use crate::header::Place;
use crate::raw::{self, HEAD, MAX_BODY, kind};

/// Files by device, inode and path: the same for all processes.
type Files = HashMap<(u64, u64, String), FileId>;

/// Convert the recording whose first process is `pid`.
pub(super) fn convert(folder: &Path, pid: u32, writer: &mut Writer) -> Result<(), RecordError> {
    let mut files = Files::new();
    let mut queue = VecDeque::from([(pid, writer.add_process(None))]);
    let mut first = true;
    while let Some((pid, thread)) = queue.pop_front() {
        let path = folder.join(raw::file_name(pid));
        let file = File::open(&path).map_err(io_error(&path, "open"))?;
        let mut process = Process {
            folder,
            input: Input { path, reader: BufReader::with_capacity(1 << 18, file), at: 0 },
            writer,
            files: &mut files,
            numbers: HashMap::new(),
            first: thread,
            streams: HashMap::new(),
            told: HashMap::new(),
            begun: HashMap::new(),
            children: Vec::new(),
            ended: false,
            replaced: None,
        };
        process.run()?;
        if first && process.replaced.is_some() {
            return Err(RecordError::Replaced);
        }
        process.remark(pid);
        queue.extend(std::mem::take(&mut process.children));
        first = false;
    }
    Ok(())
}

/// A raw file being read.
struct Input {
    path: PathBuf,
    reader: BufReader<File>,
    at: u64,
}

impl Input {
    /// Read all of `bytes`; `false` if the file ends before.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<bool, RecordError> {
        match self.reader.read_exact(bytes) {
            Ok(()) => {
                self.at += bytes.len() as u64;
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(io_error(&self.path, "read")(error)),
        }
    }

    fn bad(&self) -> RecordError {
        RecordError::Raw { path: self.path.clone(), at: self.at }
    }

    /// The next chunk's kind and stream; `None` at the end, also if a torn chunk is there.
    fn chunk(&mut self, body: &mut Vec<u8>) -> Result<Option<(u32, u32)>, RecordError> {
        let mut head = [0; HEAD];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let (kind, stream, length) = raw::parse_head(&head);
        if length > MAX_BODY {
            return Err(self.bad());
        }
        body.resize(length, 0);
        Ok(self.fill(body)?.then_some((kind, stream)))
    }
}

struct Process<'a> {
    folder: &'a Path,
    input: Input,
    writer: &'a mut Writer,
    files: &'a mut Files,
    /// This process's file numbers.
    numbers: HashMap<u32, FileId>,
    first: ThreadId,
    streams: HashMap<u32, ThreadId>,
    /// Threads that a `clone` told of and whose stream has not begun, by kernel id.
    told: HashMap<u32, VecDeque<ThreadId>>,
    /// Threads whose stream has begun and that no `clone` told of yet.
    begun: HashMap<u32, VecDeque<ThreadId>>,
    /// Processes that were forked: their id and first thread.
    children: Vec<(u32, ThreadId)>,
    ended: bool,
    /// The thread that called `execve`, if nothing followed.
    replaced: Option<ThreadId>,
}

impl Process<'_> {
    fn run(&mut self) -> Result<(), RecordError> {
        let mut body = Vec::new();
        while let Some((kind, stream)) = self.input.chunk(&mut body)? {
            match kind {
                kind::PROCESS => {}
                kind::THREAD => self.begin(stream, &body)?,
                kind::FILE => self.describe(&body).map_err(|Malformed| self.input.bad())?,
                kind::EVENTS => self.events(stream, &body)?,
                kind::THREAD_END => {}
                kind::PROCESS_END => self.ended = true,
                kind::EXEC => self.replaced = self.streams.get(&stream).copied(),
                kind::EXEC_FAILED => self.replaced = None,
                _ => return Err(self.input.bad()),
            }
        }
        if let Some(thread) = self.replaced {
            self.writer.push(thread, &Event::Exec)?;
        }
        Ok(())
    }

    /// What users should know about this process.
    fn remark(&mut self, pid: u32) {
        if self.replaced.is_some() {
            self.writer.warn(format!(
                "process {pid} became another program (execve), which was not followed; record that program itself"
            ));
        } else if !self.ended {
            self.writer.warn(format!("process {pid} was killed: the end of what it did is missing"));
        }
    }

    fn begin(&mut self, stream: u32, body: &[u8]) -> Result<(), RecordError> {
        let tid = varint(body, &mut 0).map_err(|Malformed| self.input.bad())? as u32;
        let thread = if stream == 0 {
            self.first
        } else if let Some(thread) = self.told.get_mut(&tid).and_then(VecDeque::pop_front) {
            thread
        } else {
            let thread = self.writer.add_thread(self.first);
            self.begun.entry(tid).or_default().push_back(thread);
            thread
        };
        self.streams.insert(stream, thread);
        Ok(())
    }

    fn describe(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let mut at = 0;
        let mut number = || varint(body, &mut at);
        let (id, dev, inode, size, memory) = (number()?, number()?, number()?, number()?, number()?);
        let path = String::from_utf8_lossy(&body[at..]).into_owned();
        let place = if memory == 0 { Place::Regular } else { Place::Memory };
        let writer = &mut *self.writer;
        let file = *self
            .files
            .entry((dev, inode, path))
            .or_insert_with_key(|(_, _, path)| writer.add_file(path, size, place));
        self.numbers.insert(id as u32, file);
        Ok(())
    }

    fn events(&mut self, stream: u32, block: &[u8]) -> Result<(), RecordError> {
        let thread = *self.streams.get(&stream).ok_or_else(|| self.input.bad())?;
        let mut decoder = Decoder::new(block).map_err(|Malformed| self.input.bad())?;
        while let Some(event) = decoder.next(block).map_err(|Malformed| self.input.bad())? {
            let Some(event) = self.translate(thread, event)? else { continue };
            self.writer.push(thread, &event)?;
        }
        Ok(())
    }

    /// The event with the trace's numbers; `None` if it is about something that is not in the trace.
    fn translate(&mut self, by: ThreadId, mut event: Event) -> Result<Option<Event>, RecordError> {
        match &mut event {
            Event::Run(_) | Event::Compute { .. } => {}
            Event::Map { backing: Backing::File { file, .. }, .. }
            | Event::Open { file }
            | Event::Close { file }
            | Event::Read { file, .. }
            | Event::Write { file, .. }
            | Event::Fsync { file }
            | Event::Truncate { file, .. }
            | Event::FileAdvise { file, .. } => {
                *file = *self.numbers.get(&file.0).ok_or_else(|| self.input.bad())?;
            }
            Event::Spawn { thread } => *thread = self.spawned(thread.0, by),
            &mut Event::Fork { epoch, thread } => {
                let path = self.folder.join(raw::file_name(thread.0));
                if !path.exists() {
                    return Ok(Some(Event::Skip { epoch }));
                }
                let child = self.writer.add_process(Some(by));
                self.children.push((thread.0, child));
                event = Event::Fork { epoch, thread: child };
            }
            Event::Join { thread } => {
                let Some(&(_, child)) = self.children.iter().rev().find(|(pid, _)| *pid == thread.0) else {
                    return Ok(None);
                };
                *thread = child;
            }
            _ => {}
        }
        Ok(Some(event))
    }

    fn spawned(&mut self, tid: u32, by: ThreadId) -> ThreadId {
        if let Some(thread) = self.begun.get_mut(&tid).and_then(VecDeque::pop_front) {
            return thread;
        }
        let thread = self.writer.add_thread(by);
        self.told.entry(tid).or_default().push_back(thread);
        thread
    }
}
