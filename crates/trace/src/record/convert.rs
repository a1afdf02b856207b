//! From the plugin's raw files to a trace, chunk by chunk.
//!
//! The kernel's numbers become the trace's: a `clone` tells the new thread's id, and the stream of that thread
//! says the same id; a `fork` tells the child's process id, which names its file. Ids may be used again, so they are
//! matched first to first.
//!
//! All files are looked through first, for threads and for what they waited for: a thread can wait for one of a process
//! whose file is converted later.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::order::{Order, Stream};
use super::{RecordError, io_error};
use crate::codec::{Decoder, Malformed, varint};
use crate::container::Writer;
use crate::event::{Event, FileId, ThreadId};
use crate::header::Place;
use crate::raw::{self, HEAD, MAX_BODY, Step, kind};
use abi::Call;

/// Files by device, inode and path: the same for all processes.
type Files = HashMap<(u64, u64, String), FileId>;

/// Convert the recording whose first process is `pid`.
pub(super) fn convert(folder: &Path, pid: u32, writer: &mut Writer) -> Result<(), RecordError> {
    let look = Look::at(folder, pid, writer)?;
    let mut files = Files::new();
    let mut queue = VecDeque::from([pid]);
    let mut first = true;
    while let Some(pid) = queue.pop_front() {
        let mut process = Process {
            pid,
            look: &look,
            input: Input::open(folder, pid)?,
            writer,
            files: &mut files,
            numbers: HashMap::new(),
            begun: look.begun.get(&pid).cloned().unwrap_or_default(),
            calls: HashMap::new(),
            children: Vec::new(),
            ended: false,
            replaced: None,
        };
        process.run()?;
        if first && process.replaced.is_some() {
            return Err(RecordError::Replaced);
        }
        process.remark(pid);
        queue.extend(process.children.iter().map(|&(pid, _)| pid));
        first = false;
    }
    Ok(())
}

/// What must be known of all processes before the first is converted.
struct Look {
    threads: HashMap<Stream, ThreadId>,
    /// By process: its other threads, by the kernel's ids and in their order.
    begun: HashMap<u32, HashMap<u32, VecDeque<ThreadId>>>,
    order: Order,
}

impl Look {
    /// Find all processes that come from `pid`, and give the writer their threads.
    fn at(folder: &Path, pid: u32, writer: &mut Writer) -> Result<Look, RecordError> {
        let mut look = Look { threads: HashMap::new(), begun: HashMap::new(), order: Order::default() };
        let (mut steps, mut body) = (Vec::new(), Vec::new());
        let families = families(folder)?;
        let mut queue = VecDeque::from([pid]);
        while let Some(pid) = queue.pop_front() {
            let mut input = Input::open(folder, pid)?;
            let first = writer.add_process(None);
            while let Some((kind, stream)) = input.chunk(&mut body)? {
                match kind {
                    kind::THREAD if stream == 0 => drop(look.threads.insert((pid, 0), first)),
                    kind::THREAD => {
                        let tid = varint(&body, &mut 0).map_err(|Malformed| input.bad())? as u32;
                        let thread = writer.add_thread(first);
                        look.threads.insert((pid, stream), thread);
                        look.begun.entry(pid).or_default().entry(tid).or_default().push_back(thread);
                    }
                    kind::STEPS => {
                        read_steps((pid, stream), &body, &mut steps).map_err(|Malformed| input.bad())?
                    }
                    _ => {}
                }
            }
            queue.extend(families.get(&pid).into_iter().flatten());
        }
        look.order = Order::new(&steps);
        Ok(look)
    }
}

/// The children of each process.
fn families(folder: &Path) -> Result<BTreeMap<u32, Vec<u32>>, RecordError> {
    let mut families: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(io_error(folder, "list"))? {
        let name = entry.map_err(io_error(folder, "list"))?.file_name();
        let Some(pid) = name.to_str().and_then(raw::pid_of) else { continue };
        let (mut input, mut body) = (Input::open(folder, pid)?, Vec::new());
        if let Some((kind::PROCESS, _)) = input.chunk(&mut body)? {
            let mut at = 0;
            let mut number = || varint(&body, &mut at);
            let parent = number().and_then(|_| number()).map_err(|Malformed| input.bad())?;
            families.entry(parent as u32).or_default().push(pid);
        }
    }
    families.values_mut().for_each(|children| children.sort_unstable());
    Ok(families)
}

fn read_steps(stream: Stream, body: &[u8], steps: &mut Vec<(Stream, Step)>) -> Result<(), Malformed> {
    let mut at = 0;
    while at < body.len() {
        steps.push((stream, Step::decode(|| varint(body, &mut at))?.ok_or(Malformed)?));
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
    fn open(folder: &Path, pid: u32) -> Result<Input, RecordError> {
        let path = folder.join(raw::file_name(pid));
        let file = File::open(&path).map_err(io_error(&path, "open"))?;
        Ok(Input { path, reader: BufReader::with_capacity(1 << 18, file), at: 0 })
    }

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
    pid: u32,
    look: &'a Look,
    input: Input,
    writer: &'a mut Writer,
    files: &'a mut Files,
    /// This process's file numbers.
    numbers: HashMap<u32, FileId>,
    /// Threads that no `clone` told of yet, by kernel id.
    begun: HashMap<u32, VecDeque<ThreadId>>,
    /// By stream: calls so far that have marks.
    calls: HashMap<u32, u64>,
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
                kind::PROCESS | kind::THREAD | kind::STEPS | kind::TALLY => {}
                kind::FILE => self.describe(&body).map_err(|Malformed| self.input.bad())?,
                kind::EVENTS => self.events(stream, &body)?,
                kind::THREAD_END => {}
                kind::PROCESS_END => self.ended = true,
                kind::EXEC => self.replaced = self.look.threads.get(&(self.pid, stream)).copied(),
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
        let thread = *self.look.threads.get(&(self.pid, stream)).ok_or_else(|| self.input.bad())?;
        let mut decoder = Decoder::new(block).map_err(|Malformed| self.input.bad())?;
        while let Some(event) = decoder.next(block).map_err(|Malformed| self.input.bad())? {
            match event {
                Event::Mark => self.mark(thread, stream)?,
                Event::After { mark, .. } => self.after(thread, stream, mark)?,
                _ => {
                    if let Some(event) = self.translate(event)? {
                        self.writer.push(thread, &event)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn mark(&mut self, thread: ThreadId, stream: u32) -> Result<(), RecordError> {
        let calls = self.calls.entry(stream).or_default();
        *calls += 1;
        let call = *calls;
        for (other, mark) in self.look.order.joined_by((self.pid, stream), call) {
            self.wait(thread, other, mark)?;
        }
        if self.look.order.is_awaited((self.pid, stream), call) {
            self.writer.push(thread, &Event::Mark)?;
        }
        Ok(())
    }

    fn after(&mut self, thread: ThreadId, stream: u32, call: u64) -> Result<(), RecordError> {
        for (other, mark) in self.look.order.awaited_by((self.pid, stream), call) {
            self.wait(thread, other, mark)?;
        }
        Ok(())
    }

    fn wait(&mut self, thread: ThreadId, other: Stream, mark: u64) -> Result<(), RecordError> {
        match self.look.threads.get(&other) {
            Some(&other) => Ok(self.writer.push(thread, &Event::After { thread: other, mark })?),
            None => Ok(()),
        }
    }

    /// The trace's number of a file of this process.
    fn number(&self, file: u32) -> Result<FileId, RecordError> {
        self.numbers.get(&file).copied().ok_or_else(|| self.input.bad())
    }

    /// The event with the trace's numbers; `None` if it is about something that is not in the trace.
    fn translate(&mut self, mut event: Event) -> Result<Option<Event>, RecordError> {
        let Event::Call { epoch, call, value } = &mut event else { return Ok(Some(event)) };
        match call {
            Call::Open(..) => *value = self.number(*value as u32)?.0.into(),
            Call::Spawn(role) => {
                let Some(started) = self.begun.get_mut(role).and_then(VecDeque::pop_front) else {
                    // It ended before it did anything.
                    return Ok(None);
                };
                *role = started.0;
            }
            Call::Fork(role) => {
                let Some(&child) = self.look.threads.get(&(*role, 0)) else {
                    return Ok(Some(Event::Skip { epoch: *epoch }));
                };
                self.children.push((*role, child));
                *role = child.0;
            }
            Call::Join(task) => {
                let Some(&(_, child)) = self.children.iter().rev().find(|(pid, _)| pid == task) else {
                    return Ok(None);
                };
                *task = child.0;
            }
            _ => {
                if let Some(fd) = call.fd_mut() {
                    *fd = self.number(*fd)?.0;
                }
            }
        }
        Ok(Some(event))
    }
}
