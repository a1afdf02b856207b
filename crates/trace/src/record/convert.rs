//! From the plugin's raw files to a trace, chunk by chunk.
//!
//! The kernel's numbers become the trace's: a `clone` records the new thread's id, and that thread's stream records
//! the same id; a `fork` records the child's process id, which names its file. Ids may be reused, so the first use of
//! one is matched with the first, the second with the second.
//!
//! A process that becomes another program has a file for each of its images. In the trace they are one process: the
//! thread that called `execve` goes on as the first thread of the new image, whose changes of the address space are
//! counted on from the old one's last. In between, all of the old image's mappings are unmapped.
//!
//! A first pass over all files finds threads and what they waited for: a thread can wait for one of a process whose
//! file is converted later.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::content::Contents;
use super::order::{Order, Stream};
use super::{RecordError, io_error};
use crate::codec::{Decoder, Malformed, varint};
use crate::container::Writer;
use crate::event::{Event, FileId, ThreadId};
use crate::header::Place;
use crate::raw::{HEAD, Image, MAX_BODY, Step, kind, origin, parse_head};
use abi::Call;

/// Files by device, inode and path: the same for all processes.
type Files = HashMap<(u64, u64, String), FileId>;

/// Convert the recording whose first process is `pid`. Returns a sentence for each program that could not be followed.
pub(super) fn convert(folder: &Path, pid: u32, writer: &mut Writer) -> Result<Vec<String>, RecordError> {
    let look = Look::at(folder, pid, writer)?;
    let mut files = Files::new();
    let mut contents = Contents::new().map_err(io_error(folder, "prepare compressors for"))?;
    let mut unfollowed = Vec::new();
    for (number, chain) in look.processes.iter().enumerate() {
        let mut process = Process {
            look: &look,
            writer,
            files: &mut files,
            contents: &mut contents,
            number: number as u32,
            base: 0,
            children: Vec::new(),
        };
        let mut last = Ending::Killed;
        for &image in chain {
            last = process.image(folder, image, Some(&image) == chain.last())?;
        }
        let name = chain.last().map_or_else(String::new, |&image| look.images[image as usize].name());
        match last {
            Ending::Good => {}
            Ending::Killed => {
                writer
                    .warn(format!("{name} (process {number}) was killed: the end of what it did is missing"));
            }
            Ending::Unfollowed(what) => {
                let text = format!("{name} (process {number}) became {what}, which was not recorded");
                writer.warn(text.clone());
                unfollowed.push(text);
            }
        }
        for &image in chain {
            look.streams(image).try_for_each(|thread| writer.end_thread(thread))?;
        }
    }
    Ok(unfollowed)
}

/// How an image ended.
enum Ending {
    /// In good order, or by becoming another image.
    Good,
    Killed,
    /// It became the program that the text names.
    Unfollowed(String),
}

/// An image, as the first chunk of its file describes it.
struct Known {
    image: Image,
    origin: u64,
    from: Image,
    path: String,
}

impl Known {
    /// The program's name.
    fn name(&self) -> String {
        self.path.rsplit('/').next().unwrap_or_default().to_owned()
    }
}

/// What the conversion of the first process must know about all.
struct Look {
    images: Vec<Known>,
    /// By process: the indices of its images in that list.
    processes: Vec<Vec<u32>>,
    threads: HashMap<Stream, ThreadId>,
    /// By image: its other threads, by the kernel's ids, in their order.
    begun: HashMap<u32, HashMap<u32, VecDeque<ThreadId>>>,
    /// By image and kernel id: the first images of processes that it forked.
    forked: HashMap<(u32, u32), VecDeque<u32>>,
    order: Order,
    /// Marks that the thread has made in earlier images.
    marks: HashMap<Stream, u64>,
}

impl Look {
    /// Find all processes that come from `pid`, and give the writer their threads.
    fn at(folder: &Path, pid: u32, writer: &mut Writer) -> Result<Look, RecordError> {
        let images = known(folder)?;
        let place: HashMap<Image, u32> = (0..).zip(&images).map(|(at, known)| (known.image, at)).collect();
        let (mut forks, mut execs) = (BTreeMap::<Image, Vec<u32>>::new(), HashMap::new());
        for (at, known) in (0..).zip(&images) {
            match known.origin {
                origin::FORK => forks.entry(known.from).or_default().push(at),
                origin::EXEC => drop(execs.insert(known.from, at)),
                _ => {}
            }
        }
        let mut look = Look {
            images,
            processes: Vec::new(),
            threads: HashMap::new(),
            begun: HashMap::new(),
            forked: HashMap::new(),
            order: Order::default(),
            marks: HashMap::new(),
        };
        let (mut steps, mut continued) = (Vec::new(), Vec::new());
        let mut process_of = vec![0; look.images.len()];
        let mut queue = VecDeque::from_iter(place.get(&Image { pid, number: 0 }).copied());
        while let Some(root) = queue.pop_front() {
            let first = writer.add_process(None);
            let (mut at, mut chain, mut thread) = (root, Vec::new(), first);
            loop {
                process_of[at as usize] = look.processes.len() as u32;
                chain.push(at);
                look.threads.insert((at, 0), thread);
                let exec = look.image(folder, at, first, writer, &mut steps)?;
                let image = look.images[at as usize].image;
                for &child in forks.get(&image).into_iter().flatten() {
                    let pid = look.images[child as usize].image.pid;
                    look.forked.entry((at, pid)).or_default().push_back(child);
                    queue.push_back(child);
                }
                match (exec, execs.remove(&image)) {
                    (Some(stream), Some(next)) => {
                        continued.push(((at, stream), (next, 0)));
                        thread = look.threads.get(&(at, stream)).copied().unwrap_or(first);
                        at = next;
                    }
                    _ => break,
                }
            }
            look.processes.push(chain);
        }
        look.order = Order::new(&steps, &process_of);
        for (from, to) in continued {
            let marks = look.marks.get(&from).copied().unwrap_or(0) + look.order.marks_of(from);
            look.marks.insert(to, marks);
        }
        Ok(look)
    }

    /// Look through the file of an image; returns the stream that became another image.
    fn image(
        &mut self,
        folder: &Path,
        at: u32,
        first: ThreadId,
        writer: &mut Writer,
        steps: &mut Vec<(Stream, Step)>,
    ) -> Result<Option<u32>, RecordError> {
        let (mut body, mut exec) = (Vec::new(), None);
        let mut input = Input::open(folder, self.images[at as usize].image)?;
        while let Some((kind, stream)) = input.chunk(&mut body)? {
            match kind {
                kind::THREAD if stream != 0 => {
                    let tid = varint(&body, &mut 0).map_err(|Malformed| input.bad())? as u32;
                    let thread = writer.add_thread(first);
                    self.threads.insert((at, stream), thread);
                    self.begun.entry(at).or_default().entry(tid).or_default().push_back(thread);
                }
                kind::STEPS => read_steps((at, stream), &body, steps).map_err(|Malformed| input.bad())?,
                kind::EXEC => exec = Some(stream),
                kind::EXEC_FAILED => exec = None,
                _ => {}
            }
        }
        Ok(exec)
    }

    /// The threads of an image.
    fn streams(&self, image: u32) -> impl Iterator<Item = ThreadId> {
        let first = self.threads.get(&(image, 0)).copied();
        let others = self.begun.get(&image).into_iter().flat_map(|begun| begun.values().flatten().copied());
        first.into_iter().chain(others)
    }
}

/// All images.
fn known(folder: &Path) -> Result<Vec<Known>, RecordError> {
    let mut images = Vec::new();
    for entry in fs::read_dir(folder).map_err(io_error(folder, "list"))? {
        let name = entry.map_err(io_error(folder, "list"))?.file_name();
        let Some(image) = name.to_str().and_then(Image::of_file) else { continue };
        let (mut input, mut body) = (Input::open(folder, image)?, Vec::new());
        if let Some((kind::PROCESS, _)) = input.chunk(&mut body)? {
            let mut at = 0;
            let mut number = || varint(&body, &mut at).map_err(|Malformed| input.bad());
            let (origin, pid, number) = (number()?, number()? as u32, number()? as u32);
            let path = String::from_utf8_lossy(&body[at..]).into_owned();
            images.push(Known { image, origin, from: Image { pid, number }, path });
        }
    }
    images.sort_unstable_by_key(|known| known.image);
    Ok(images)
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
    fn open(folder: &Path, image: Image) -> Result<Input, RecordError> {
        let path = folder.join(image.file_name());
        let file = File::open(&path).map_err(io_error(&path, "open"))?;
        Ok(Input { path, reader: BufReader::with_capacity(1 << 18, file), at: 0 })
    }

    /// Read all of `bytes`. Returns `false` if the file ends before that.
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

    /// The next chunk's kind and stream; `None` at the end, also at a torn chunk.
    fn chunk(&mut self, body: &mut Vec<u8>) -> Result<Option<(u32, u32)>, RecordError> {
        let mut head = [0; HEAD];
        if !self.fill(&mut head)? {
            return Ok(None);
        }
        let (kind, stream, length) = parse_head(&head);
        if length > MAX_BODY {
            return Err(self.bad());
        }
        body.resize(length, 0);
        Ok(self.fill(body)?.then_some((kind, stream)))
    }
}

/// A process being converted.
struct Process<'a> {
    look: &'a Look,
    writer: &'a mut Writer,
    files: &'a mut Files,
    contents: &'a mut Contents,
    number: u32,
    /// Changes of the address space in earlier images.
    base: u64,
    /// Forked processes: their ids and first threads.
    children: Vec<(u32, ThreadId)>,
}

impl Process<'_> {
    /// Convert what an image did; `last` is true if no other image comes after it.
    fn image(&mut self, folder: &Path, at: u32, last: bool) -> Result<Ending, RecordError> {
        let look = self.look;
        let mut running = Running {
            at,
            last,
            input: Input::open(folder, look.images[at as usize].image)?,
            numbers: HashMap::new(),
            begun: look.begun.get(&at).cloned().unwrap_or_default(),
            forked: HashMap::new(),
            calls: HashMap::new(),
            epochs: 0,
            process: self,
        };
        let ending = running.run()?;
        let epochs = running.epochs;
        self.base += epochs;
        Ok(ending)
    }
}

/// An image being converted.
struct Running<'a, 'b> {
    at: u32,
    last: bool,
    input: Input,
    process: &'a mut Process<'b>,
    /// The image's file numbers.
    numbers: HashMap<u32, FileId>,
    /// Threads that no `clone` has announced yet, by kernel id.
    begun: HashMap<u32, VecDeque<ThreadId>>,
    /// By kernel id: how many processes of that id it has forked.
    forked: HashMap<u32, usize>,
    /// By stream: calls with marks so far.
    calls: HashMap<u32, u64>,
    /// Changes of the address space so far.
    epochs: u64,
}

impl Running<'_, '_> {
    fn run(&mut self) -> Result<Ending, RecordError> {
        let mut body = Vec::new();
        let (mut ending, mut exec, mut unfollowed) = (Ending::Killed, None, None);
        while let Some((kind, stream)) = self.input.chunk(&mut body)? {
            match kind {
                kind::PROCESS | kind::THREAD | kind::STEPS | kind::TALLY => {}
                kind::FILE => self.describe(&body).map_err(|Malformed| self.input.bad())?,
                kind::EVENTS => self.events(stream, &body)?,
                kind::CONTENT => self.contents(stream, &body)?,
                kind::THREAD_END => {}
                kind::PROCESS_END => ending = Ending::Good,
                kind::EXEC => exec = Some((self.thread(stream)?, body.clone())),
                kind::UNFOLLOWED => {
                    exec = None;
                    unfollowed = Some((self.thread(stream)?, String::from_utf8_lossy(&body).into_owned()));
                }
                kind::EXEC_FAILED => (exec, unfollowed) = (None, None),
                _ => return Err(self.input.bad()),
            }
        }
        if let Some((thread, what)) = unfollowed {
            self.process.writer.push(thread, &Event::Exec)?;
            ending = Ending::Unfollowed(what);
        }
        if let Some((thread, body)) = exec {
            self.process.writer.push(thread, &Event::Exec)?;
            ending = match self.last {
                false => Ending::Good,
                true => Ending::Unfollowed("another program (the emulator did not start it)".to_owned()),
            };
            self.replace(thread, &body)?;
        }
        Ok(ending)
    }

    /// Remove the old image's mappings, and close the descriptors that `execve` closes.
    fn replace(&mut self, thread: ThreadId, body: &[u8]) -> Result<(), RecordError> {
        let mut at = 0;
        let mut number = || varint(body, &mut at).map_err(|Malformed| self.input.bad());
        let (mut ranges, mut files) = (Vec::new(), Vec::new());
        for _ in 0..number()? {
            ranges.push((number()?, number()?));
        }
        for _ in 0..number()? {
            files.push(number()? as u32);
        }
        for (addr, len) in ranges {
            self.epochs += 1;
            let epoch = self.process.base + self.epochs;
            self.process.writer.push(thread, &Event::change(epoch, Call::Munmap(addr, len)))?;
        }
        for file in files.iter().filter_map(|file| self.numbers.get(file)) {
            self.process.writer.push(thread, &Event::call(Call::Close(file.0)))?;
        }
        Ok(())
    }

    fn thread(&self, stream: u32) -> Result<ThreadId, RecordError> {
        self.process.look.threads.get(&(self.at, stream)).copied().ok_or_else(|| self.input.bad())
    }

    fn describe(&mut self, body: &[u8]) -> Result<(), Malformed> {
        let mut at = 0;
        let mut number = || varint(body, &mut at);
        let (id, dev, inode, size, memory) = (number()?, number()?, number()?, number()?, number()?);
        let path = String::from_utf8_lossy(&body[at..]).into_owned();
        let place = if memory == 0 { Place::Regular } else { Place::Memory };
        let Process { writer, files, .. } = &mut *self.process;
        let file = *files
            .entry((dev, inode, path))
            .or_insert_with_key(|(_, _, path)| writer.add_file(path, size, place));
        self.numbers.insert(id as u32, file);
        Ok(())
    }

    fn events(&mut self, stream: u32, block: &[u8]) -> Result<(), RecordError> {
        let thread = self.thread(stream)?;
        let mut decoder = Decoder::new(block).map_err(|Malformed| self.input.bad())?;
        while let Some(event) = decoder.next(block).map_err(|Malformed| self.input.bad())? {
            match event {
                Event::Mark => self.mark(thread, stream)?,
                Event::After { mark, .. } => self.after(thread, stream, mark)?,
                _ => {
                    if let Some(event) = self.translate(event)? {
                        self.process.writer.push(thread, &event)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn contents(&mut self, stream: u32, body: &[u8]) -> Result<(), RecordError> {
        let thread = self.thread(stream)?;
        let Process { writer, contents, number, .. } = &mut *self.process;
        let events = contents.events(*number, body).map_err(|Malformed| self.input.bad())?;
        Ok(events.iter().try_for_each(|event| writer.push(thread, event))?)
    }

    fn mark(&mut self, thread: ThreadId, stream: u32) -> Result<(), RecordError> {
        let calls = self.calls.entry(stream).or_default();
        *calls += 1;
        let (call, look) = (*calls, self.process.look);
        for (other, mark) in look.order.joined_by((self.at, stream), call) {
            self.wait(thread, other, mark)?;
        }
        if look.order.is_awaited((self.at, stream), call) {
            self.process.writer.push(thread, &Event::Mark)?;
        }
        Ok(())
    }

    fn after(&mut self, thread: ThreadId, stream: u32, call: u64) -> Result<(), RecordError> {
        let look = self.process.look;
        for (other, mark) in look.order.awaited_by((self.at, stream), call) {
            self.wait(thread, other, mark)?;
        }
        Ok(())
    }

    fn wait(&mut self, thread: ThreadId, other: Stream, mark: u64) -> Result<(), RecordError> {
        let Process { look, writer, .. } = &mut *self.process;
        let mark = look.marks.get(&other).copied().unwrap_or(0) + mark;
        match look.threads.get(&other) {
            // In an earlier image.
            Some(&other) if other == thread => Ok(()),
            Some(&other) => Ok(writer.push(thread, &Event::After { thread: other, mark })?),
            None => Ok(()),
        }
    }

    /// The trace's number of a file of this process.
    fn number(&self, file: u32) -> Result<FileId, RecordError> {
        self.numbers.get(&file).copied().ok_or_else(|| self.input.bad())
    }

    /// The event with the trace's numbers; `None` if it is about something outside the trace.
    fn translate(&mut self, mut event: Event) -> Result<Option<Event>, RecordError> {
        if let Event::Sync { epoch } | Event::Skip { epoch } | Event::Call { epoch, .. } = &mut event {
            self.epochs = self.epochs.max(*epoch);
            // Without a number, it is about a mapping that existed when the image began.
            if *epoch > 0 {
                *epoch += self.process.base;
            }
        }
        let Event::Call { epoch, call, value } = &mut event else { return Ok(Some(event)) };
        match call {
            Call::Open(..) => *value = self.number(*value as u32)?.0.into(),
            Call::Spawn(role) => {
                let Some(started) = self.begun.get_mut(role).and_then(VecDeque::pop_front) else {
                    // The thread ended before it did anything.
                    return Ok(None);
                };
                *role = started.0;
            }
            Call::Fork(role) => {
                let Some(child) = self.child(*role) else {
                    return Ok(Some(Event::Skip { epoch: *epoch }));
                };
                self.process.children.push((*role, child));
                *role = child.0;
            }
            Call::Join(task) => {
                let children = &self.process.children;
                let Some(&(_, child)) = children.iter().rev().find(|(pid, _)| pid == task) else {
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

    /// The first thread of the next process with this id that the image has forked.
    fn child(&mut self, pid: u32) -> Option<ThreadId> {
        let nth = self.forked.entry(pid).or_default();
        let image = *self.process.look.forked.get(&(self.at, pid))?.get(*nth)?;
        *nth += 1;
        self.process.look.threads.get(&(image, 0)).copied()
    }
}
