//! Reading a trace.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::{END_MAGIC, FRAME_LIMIT, HEAD, Head, MAGIC, META, PREAMBLE, TRAILER, VERSION, header_limit};
use crate::check::Check;
use crate::codec::Decoder;
use crate::error::TraceError;
use crate::event::{Event, Packed, ThreadId};
use crate::header::Header;
use crate::source::{Events, Source};
use crate::unpacked::Image;

/// An open trace. Cheap to clone; clones and their streams share the file and the header.
#[derive(Clone)]
pub struct Reader {
    shared: Arc<Shared>,
}

struct Shared {
    path: PathBuf,
    file: File,
    length: u64,
    /// Its format, as the preamble says.
    format: u32,
    /// Offset of the header.
    meta: u64,
    header: Header,
    /// By process, once the trace was verified: pages with what is first told of them.
    first_contents: OnceLock<Vec<BTreeMap<u64, Packed>>>,
}

impl Reader {
    /// Open the trace at `path`, read its header and compare the index with the frames' heads. What the frames hold is
    /// checked when they are read, or by [`verify`](Reader::verify).
    pub fn open(path: &Path) -> Result<Reader, TraceError> {
        let file = File::open(path).map_err(TraceError::io(path, "open"))?;
        let meta = file.metadata().map_err(TraceError::io(path, "open"))?;
        if !meta.is_file() {
            return Err(TraceError::NotATrace { path: path.to_owned() });
        }
        let raw = RawFile { path, file: &file, length: meta.len() };
        let format = raw.preamble()?;
        let (meta, header) = raw.header()?;
        raw.compare_index(&header, meta)?;
        Ok(Reader {
            shared: Arc::new(Shared {
                path: path.to_owned(),
                length: raw.length,
                format,
                meta,
                file,
                header,
                first_contents: OnceLock::new(),
            }),
        })
    }

    /// A trace that is being written at `path`, of which `file` has all frames and nothing else.
    pub(super) fn of_frames(path: &Path, file: File, length: u64, header: Header) -> Reader {
        Reader {
            shared: Arc::new(Shared {
                path: path.to_owned(),
                file,
                length,
                format: VERSION,
                meta: length,
                header,
                first_contents: OnceLock::new(),
            }),
        }
    }

    /// What the trace says about itself.
    pub fn header(&self) -> &Header {
        &self.shared.header
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// Bytes of the file.
    pub fn file_len(&self) -> u64 {
        self.shared.length
    }

    /// The trace as one piece of memory, for [`Unpacked`](crate::Unpacked). It is verified, unless that was done
    /// already.
    pub fn unpack(&self) -> Result<Vec<u8>, TraceError> {
        if self.shared.first_contents.get().is_none() {
            self.verify()?;
        }
        let contents = self.shared.first_contents.get().expect("a verified trace has its contents");
        let raw = self.shared.raw();
        let (mut packed, mut block) = (Vec::new(), Vec::new());
        let mut image = Image::default();
        let mut header = self.header().clone();
        for frame in header.threads.iter_mut().flat_map(|thread| &mut thread.frames) {
            let head = raw.frame(*frame, &mut packed, &mut block)?;
            let at = image.push(head.events, &block);
            *frame = at.ok_or_else(|| raw.damaged(*frame, "a frame is larger than any that is written"))?;
        }
        Ok(image.finish(&header, contents))
    }

    /// The events of one thread from the beginning; empty if there is no such thread.
    pub fn stream(&self, thread: ThreadId) -> Stream {
        Stream {
            shared: Arc::clone(&self.shared),
            thread,
            next_frame: 0,
            packed: Vec::new(),
            block: Vec::new(),
            decoder: Decoder::default(),
            left: 0,
            resting: false,
        }
    }

    /// Check every frame of every thread: checksums, sizes, that each event can be decoded and can have happened, and
    /// that they are what the header says. From then on it is known what each page first holds.
    pub fn verify(&self) -> Result<(), TraceError> {
        let header = self.header();
        let mut check = Check::new(header);
        let mut contents = vec![BTreeMap::new(); header.processes.len()];
        for (thread, row) in (0..).map(ThreadId).zip(&header.threads) {
            let mut stream = self.stream(thread);
            while let Some(event) = stream.next_event()? {
                check.note(header, thread, &event).map_err(|what| stream.damaged(what))?;
                if let Event::Content { page, packed } = event {
                    contents[row.process as usize].entry(page).or_insert(packed);
                }
            }
        }
        self.finish(&check)?;
        // A trace that is verified again has the same contents.
        let _ = self.shared.first_contents.set(contents);
        Ok(())
    }

    /// Check that all events, which were passed to `check`, match the header.
    pub(crate) fn finish(&self, check: &Check) -> Result<(), TraceError> {
        check.finish(self.header()).map_err(|what| self.shared.raw().damaged(self.shared.meta, what))
    }
}

impl Shared {
    fn raw(&self) -> RawFile<'_> {
        RawFile { path: &self.path, file: &self.file, length: self.length }
    }
}

/// The events of one thread, decoded frame by frame.
pub struct Stream {
    shared: Arc<Shared>,
    thread: ThreadId,
    next_frame: usize,
    packed: Vec<u8>,
    block: Vec<u8>,
    decoder: Decoder,
    left: u32,
    /// Whether the memory of its current frame was freed.
    resting: bool,
}

impl Stream {
    /// The next event, `None` at the end.
    #[inline]
    pub fn next_event(&mut self) -> Result<Option<Event>, TraceError> {
        loop {
            match self.decoder.next(&self.block) {
                Ok(Some(event)) => {
                    self.left = self.left.wrapping_sub(1);
                    return Ok(Some(event));
                }
                Ok(None) if self.left == 0 => {
                    if !self.load()? {
                        return Ok(None);
                    }
                }
                _ if self.resting => self.wake()?,
                _ => return Err(self.damaged("its events do not follow the format")),
            }
        }
    }

    /// Something is wrong with the frame that the last event came from.
    #[cold]
    pub(crate) fn damaged(&self, what: &'static str) -> TraceError {
        self.shared.raw().damaged(self.last_frame().unwrap_or(0), what)
    }

    fn last_frame(&self) -> Option<u64> {
        let thread = self.shared.header.threads.get(self.thread.0 as usize)?;
        thread.frames.get(self.next_frame.checked_sub(1)?).copied()
    }

    /// Free the memory of the frame; the next event unpacks it again. For callers that read many threads alternately.
    pub(crate) fn rest(&mut self) {
        (self.packed, self.block) = (Vec::new(), Vec::new());
        self.decoder.rest();
        self.resting = true;
    }

    /// Unpack the frame that this was in when it was laid to rest.
    #[cold]
    fn wake(&mut self) -> Result<(), TraceError> {
        self.resting = false;
        let Some(at) = self.last_frame() else { return Ok(()) };
        self.shared.raw().frame(at, &mut self.packed, &mut self.block)?;
        self.decoder.wake(&self.block).map_err(|_| self.damaged("its events do not follow the format"))
    }

    /// Unpack the next frame; `false` if there is none.
    #[cold]
    fn load(&mut self) -> Result<bool, TraceError> {
        if self.decoder.format() > self.shared.format {
            return Err(self.shared.raw().damaged(8, "its events are of a newer format than it says"));
        }
        let Some(info) = self.shared.header.threads.get(self.thread.0 as usize) else { return Ok(false) };
        let Some(&at) = info.frames.get(self.next_frame) else { return Ok(false) };
        self.next_frame += 1;
        self.resting = false;
        let head = self.shared.raw().frame(at, &mut self.packed, &mut self.block)?;
        self.decoder =
            Decoder::new(&self.block).map_err(|_| self.damaged("its events do not follow the format"))?;
        self.left = head.events;
        Ok(true)
    }
}

impl Source for Reader {
    type Stream<'a> = Stream;

    fn header(&self) -> &Header {
        Reader::header(self)
    }

    fn stream(&self, thread: ThreadId) -> Stream {
        Reader::stream(self, thread)
    }

    fn first_contents(&self, process: u32) -> impl Iterator<Item = (u64, Packed)> {
        let all = self.shared.first_contents.get().and_then(|all| all.get(process as usize));
        all.into_iter().flatten().map(|(&page, &packed)| (page, packed))
    }
}

impl Events for Stream {
    type Error = TraceError;

    #[inline]
    fn next_event(&mut self) -> Result<Option<Event>, TraceError> {
        Stream::next_event(self)
    }
}

impl Iterator for Stream {
    type Item = Result<Event, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_event().transpose()
    }
}

/// A file that may be a trace.
struct RawFile<'a> {
    path: &'a Path,
    file: &'a File,
    length: u64,
}

impl RawFile<'_> {
    fn damaged(&self, at: u64, what: &'static str) -> TraceError {
        TraceError::Damaged { path: self.path.to_owned(), at, what }
    }

    fn truncated(&self, inside: &'static str) -> TraceError {
        TraceError::Truncated { path: self.path.to_owned(), at: self.length, inside }
    }

    fn read(&self, at: u64, bytes: &mut [u8]) -> Result<(), TraceError> {
        self.file.read_exact_at(bytes, at).map_err(TraceError::io(self.path, "read"))
    }

    /// The header and its offset.
    fn header(&self) -> Result<(u64, Header), TraceError> {
        let Some(meta) = self.trailer()? else { return Err(self.search()) };
        let mut raw = Vec::new();
        let head = self.frame(meta, &mut Vec::new(), &mut raw)?;
        if head.thread != META || meta + (HEAD + TRAILER) as u64 + u64::from(head.data_len) != self.length {
            return Err(self.damaged(meta, "the trailer does not lead to the header"));
        }
        let header = Header::decode(&raw);
        Ok((meta, header.map_err(|_| self.damaged(meta, "the header does not follow the format"))?))
    }

    /// Check that the index leads to every frame once, in order, and that the frames' heads have as many events as
    /// the header says. Unpacks nothing.
    fn compare_index(&self, header: &Header, meta: u64) -> Result<(), TraceError> {
        let mut frames: Vec<(u64, usize)> = Vec::new();
        for (thread, info) in header.threads.iter().enumerate() {
            frames.extend(info.frames.iter().map(|&at| (at, thread)));
        }
        frames.sort_unstable();
        let mut events = vec![0u64; header.threads.len()];
        let mut next = PREAMBLE as u64;
        for (at, thread) in frames {
            if at != next || at >= meta {
                return Err(self.damaged(next, "the index does not lead to each frame once"));
            }
            let head = self.head(at)?;
            if head.thread as usize != thread {
                return Err(self.damaged(at, "the index leads to a frame of another thread"));
            }
            events[thread] += u64::from(head.events);
            next += HEAD as u64 + u64::from(head.data_len);
        }
        if next != meta {
            return Err(self.damaged(next, "the index does not lead to each frame once"));
        }
        let same = header.threads.iter().zip(events).all(|(thread, events)| thread.counts.events == events);
        if same {
            Ok(())
        } else {
            Err(self.damaged(meta, "a thread has more or fewer events than its header says"))
        }
    }

    /// The format.
    fn preamble(&self) -> Result<u32, TraceError> {
        let mut bytes = [0; PREAMBLE];
        let there = self.length.min(PREAMBLE as u64) as usize;
        self.read(0, &mut bytes[..there])?;
        let magic = there.min(MAGIC.len());
        if there == 0 || bytes[..magic] != MAGIC[..magic] {
            return Err(TraceError::NotATrace { path: self.path.to_owned() });
        }
        if there < PREAMBLE {
            return Err(self.truncated("the preamble"));
        }
        match u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) {
            0 | 3 | 5 | 6 | 9 | 10 | 12 => Err(self.damaged(8, "there is no such format")),
            found if found > VERSION => {
                Err(TraceError::Newer { path: self.path.to_owned(), found, known: VERSION })
            }
            _ if bytes[12..] != [0; 4] => Err(self.damaged(12, "reserved bytes are not zero")),
            format => Ok(format),
        }
    }

    /// Offset of the meta frame, `None` if the file has no trailer that holds.
    fn trailer(&self) -> Result<Option<u64>, TraceError> {
        if self.length < (PREAMBLE + HEAD + TRAILER) as u64 {
            return Ok(None);
        }
        let mut bytes = [0; TRAILER];
        self.read(self.length - TRAILER as u64, &mut bytes)?;
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let crc = u32::from_le_bytes(std::array::from_fn(|byte| bytes[16 + byte]));
        let whole = bytes[20..] == END_MAGIC
            && crc == crc32fast::hash(&bytes[..16])
            && long(8) == self.length
            && long(0) <= self.length - (HEAD + TRAILER) as u64;
        Ok(whole.then(|| long(0)))
    }

    /// Find out where a file without a good trailer went wrong.
    fn search(&self) -> TraceError {
        let (mut packed, mut raw) = (Vec::new(), Vec::new());
        let mut at = PREAMBLE as u64;
        loop {
            match self.frame(at, &mut packed, &mut raw) {
                Err(error) => return error,
                Ok(head) => {
                    at += HEAD as u64 + u64::from(head.data_len);
                    if head.thread == META {
                        break;
                    }
                }
            }
        }
        match self.length - at {
            rest if rest < TRAILER as u64 => self.truncated("the trailer"),
            _ => self.damaged(at, "the trailer does not hold"),
        }
    }

    /// Read and check the head of the frame at `at`. What it says can be believed then, but for the checksum of its
    /// data.
    fn head(&self, at: u64) -> Result<Head, TraceError> {
        let left = self.length.saturating_sub(at);
        if left < HEAD as u64 {
            return Err(self.truncated("the head of a frame"));
        }
        let mut bytes = [0; HEAD];
        self.read(at, &mut bytes)?;
        let head = Head::from_bytes(&bytes)
            .ok_or_else(|| self.damaged(at, "the head of a frame does not match its checksum"))?;
        let limit = if head.thread == META { header_limit(self.length) } else { u64::from(FRAME_LIMIT) };
        if u64::from(head.raw_len) > limit {
            return Err(self.damaged(at, "a frame is larger than any that is written"));
        }
        if head.events > head.raw_len {
            return Err(self.damaged(at, "a frame has more events than bytes"));
        }
        if left - (HEAD as u64) < u64::from(head.data_len) {
            return Err(self.truncated("a frame"));
        }
        Ok(head)
    }

    /// Read, check and unpack the frame at `at`.
    fn frame(&self, at: u64, packed: &mut Vec<u8>, raw: &mut Vec<u8>) -> Result<Head, TraceError> {
        let head = self.head(at)?;
        packed.resize(head.data_len as usize, 0);
        self.read(at + HEAD as u64, packed)?;
        if crc32fast::hash(packed) != head.data_crc {
            return Err(self.damaged(at, "a frame does not match its checksum"));
        }
        raw.clear();
        raw.reserve(head.raw_len as usize);
        let unpacked = zstd::zstd_safe::decompress(raw, packed);
        if unpacked != Ok(head.raw_len as usize) {
            return Err(self.damaged(at, "a frame cannot be unpacked"));
        }
        Ok(head)
    }
}
