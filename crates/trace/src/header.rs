//! The header of a trace: what it is of, its tables, counts and index.
//!
//! Encoded as varints (as in `codec.rs`) and strings (varint length, UTF-8 bytes), in the order of the fields:
//!
//! ```text
//! header  = recorder string, n, n × argument string, window, footprint, peak, data_pages, file_pages,
//!           n, n × file (name string, size, kind 0 regular or 1 memory),
//!           n, n × process (0 or 1 + the thread that forked it, its first thread, epochs),
//!           n, n × thread (process, 0 or 1 + the thread that started it, counts, n, n × frame),
//!           n, n × warning string, sample (from format 13 on)
//! counts  = events, runs, loads, stores, fetches, instructions, idle_nanos
//! frame   = distance of its offset from that of the thread's frame before
//! ```
//!
//! A header is refused if its tables refer to what is not there, if a thread's frames do not follow each other, or if a
//! number cannot be: footprint that is not that of its pages, files larger than the kernel allows, more changes than
//! events.

use crate::codec::{Malformed, put_varint, varint};
use crate::event::{Event, FileId, MAX_FILE_SIZE, PAGE_SIZE, Run, ThreadId};
use abi::AccessKind;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// Where a file lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "std", derive(serde::Serialize), serde(rename_all = "lowercase"))]
pub enum Place {
    /// On a file system.
    Regular,
    /// In memory and swap only (memfd, /dev/shm).
    Memory,
}

/// A file of the recorded program.
#[derive(Clone, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "std", derive(serde::Serialize))]
pub struct FileInfo {
    /// The last component of its path, made unique in the trace by `#2`, `#3`. Folders are not kept.
    pub name: String,
    /// Bytes when it was first used.
    pub size: u64,
    /// Where it lives.
    pub place: Place,
}

/// A process of the trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessInfo {
    /// The thread that forked it; `None` for the first process.
    pub forked_by: Option<ThreadId>,
    /// Its first thread.
    pub first_thread: ThreadId,
    /// Address-space changes 1 to this number are all in the trace, each once.
    pub epochs: u64,
}

/// What was counted, over a thread or the whole trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "std", derive(serde::Serialize))]
pub struct Counts {
    /// Events of all kinds.
    pub events: u64,
    /// Runs of accesses among them.
    pub runs: u64,
    /// Data reads.
    pub loads: u64,
    /// Data writes.
    pub stores: u64,
    /// Instruction fetches (blocks entered).
    pub fetches: u64,
    /// Instructions executed.
    pub instructions: u64,
    /// Nanoseconds slept.
    pub idle_nanos: u64,
}

impl Counts {
    /// Loads, stores and fetches.
    pub fn accesses(&self) -> u64 {
        self.loads.saturating_add(self.stores).saturating_add(self.fetches)
    }

    /// Count an event. What a trace says may be any number, so counts end where 64 bits do, here and wherever they are
    /// added.
    pub fn note(&mut self, event: &Event) {
        let (sum, more) = match *event {
            Event::Run(Run { count, mode, .. }) => {
                self.runs += 1;
                let sum = match mode {
                    AccessKind::Load => &mut self.loads,
                    AccessKind::Store => &mut self.stores,
                    AccessKind::Fetch => &mut self.fetches,
                };
                (sum, u64::from(count))
            }
            Event::Compute { instructions } => (&mut self.instructions, instructions),
            Event::Idle { nanos } => (&mut self.idle_nanos, nanos),
            _ => (&mut self.events, 0),
        };
        *sum = sum.saturating_add(more);
        self.events += 1;
    }

    fn fields(&mut self) -> [&mut u64; 7] {
        [
            &mut self.events,
            &mut self.runs,
            &mut self.loads,
            &mut self.stores,
            &mut self.fetches,
            &mut self.instructions,
            &mut self.idle_nanos,
        ]
    }

    /// Add `other` to this.
    pub fn add(&mut self, mut other: Counts) {
        for (mine, theirs) in self.fields().into_iter().zip(other.fields()) {
            *mine = mine.saturating_add(*theirs);
        }
    }
}

/// A thread of the trace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThreadInfo {
    /// Index of its process.
    pub process: u32,
    /// The thread that started it; `None` for the first thread of the first process.
    pub started_by: Option<ThreadId>,
    /// What it did.
    pub counts: Counts,
    /// Offsets of its frames in the file, in order.
    pub frames: Vec<u64>,
}

/// All that a trace says about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// What made it.
    pub recorder: String,
    /// The command line that was recorded.
    pub command: Vec<String>,
    /// Pages in the recorder's window (see the module `record`); 0 if each access was kept in order.
    pub window: u64,
    /// Bytes of distinct memory and file pages that were touched.
    pub footprint: u64,
    /// The most bytes of them that existed at once.
    pub peak: u64,
    /// Distinct pages of anonymous memory.
    pub data_pages: u64,
    /// Distinct pages of files.
    pub file_pages: u64,
    /// Files, by [`FileId`].
    pub files: Vec<FileInfo>,
    /// Processes.
    pub processes: Vec<ProcessInfo>,
    /// Threads, by [`ThreadId`].
    pub threads: Vec<ThreadInfo>,
    /// What the recorder could not follow, one sentence each.
    pub warnings: Vec<String>,
    /// One in this many pages was recorded; at most 1: all.
    pub sample: u64,
}

impl Header {
    /// The sum over all threads.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        for thread in &self.threads {
            sum.add(thread.counts);
        }
        sum
    }

    /// What the numbers of a sample stand for.
    pub fn sampled(&self) -> Option<String> {
        let times = self.sample;
        (times > 1).then(|| {
            format!(
                "one in {times} pages was recorded: memory and what is counted by pages stand for {times} times as much \
                 of the whole program; instructions and calls are all there, so times are not a part of its times"
            )
        })
    }

    /// The file that `id` names.
    pub fn file(&self, id: FileId) -> Option<&FileInfo> {
        self.files.get(id.0 as usize)
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Out(Vec::new());
        out.string(&self.recorder);
        out.list(&self.command, |out, word| out.string(word));
        for number in [self.window, self.footprint, self.peak, self.data_pages, self.file_pages] {
            out.number(number);
        }
        out.list(&self.files, |out, file| {
            out.string(&file.name);
            out.number(file.size);
            out.number(u64::from(file.place == Place::Memory));
        });
        out.list(&self.processes, |out, process| {
            out.thread(process.forked_by);
            out.number(u64::from(process.first_thread.0));
            out.number(process.epochs);
        });
        out.list(&self.threads, |out, thread| {
            out.number(u64::from(thread.process));
            out.thread(thread.started_by);
            let mut counts = thread.counts;
            counts.fields().into_iter().for_each(|field| out.number(*field));
            let mut last = 0;
            out.list(&thread.frames, |out, &offset| {
                out.number(offset - last);
                last = offset;
            });
        });
        out.list(&self.warnings, |out, text| out.string(text));
        out.number(self.sample);
        out.0
    }

    /// From bytes, all of which must belong to it, and whose tables may refer only to what is there.
    pub fn decode(bytes: &[u8]) -> Result<Header, Malformed> {
        let mut from = In { bytes, at: 0 };
        let header = Header {
            recorder: from.string()?,
            command: from.list(In::string)?,
            window: from.number()?,
            footprint: from.number()?,
            peak: from.number()?,
            data_pages: from.number()?,
            file_pages: from.number()?,
            files: from.list(|from| {
                let (name, size) = (from.string()?, from.number()?);
                let place = if from.number()? == 0 { Place::Regular } else { Place::Memory };
                Ok(FileInfo { name, size, place })
            })?,
            processes: from.list(|from| {
                let forked_by = from.thread()?;
                Ok(ProcessInfo { forked_by, first_thread: ThreadId(from.small()?), epochs: from.number()? })
            })?,
            threads: from.list(thread)?,
            warnings: from.list(In::string)?,
            sample: if from.at == bytes.len() { 1 } else { from.number()? },
        };
        if from.at == bytes.len() && header.consistent() { Ok(header) } else { Err(Malformed) }
    }

    /// Whether the tables refer only to what exists.
    fn consistent(&self) -> bool {
        let known = |thread: ThreadId| (thread.0 as usize) < self.threads.len();
        !self.threads.is_empty()
            && self.processes.iter().all(|p| known(p.first_thread) && p.forked_by.is_none_or(known))
            && self.threads.iter().all(|t| (t.process as usize) < self.processes.len())
            && self.threads.iter().all(|t| t.started_by.is_none_or(known))
            && self.possible()
    }

    /// Whether these numbers are possible. Code that adds or multiplies them later relies on it.
    fn possible(&self) -> bool {
        let mut events = vec![0u64; self.processes.len()];
        for thread in &self.threads {
            let sum = &mut events[thread.process as usize];
            *sum = sum.saturating_add(thread.counts.events);
        }
        let pages = self.data_pages.checked_add(self.file_pages);
        pages.and_then(|pages| pages.checked_mul(PAGE_SIZE)) == Some(self.footprint)
            && self.files.iter().all(|file| file.size <= MAX_FILE_SIZE)
            && self.processes.iter().zip(events).all(|(process, events)| process.epochs <= events)
    }
}

fn thread(from: &mut In<'_>) -> Result<ThreadInfo, Malformed> {
    let (process, started_by) = (from.small()?, from.thread()?);
    let mut counts = Counts::default();
    for field in counts.fields() {
        *field = from.number()?;
    }
    let mut last: Option<u64> = None;
    let frames = from.list(|from| {
        let distance = from.number()?;
        let at = match last {
            Some(last) if distance > 0 => last.checked_add(distance).ok_or(Malformed)?,
            Some(_) => return Err(Malformed),
            None => distance,
        };
        last = Some(at);
        Ok(at)
    })?;
    Ok(ThreadInfo { process, started_by, counts, frames })
}

struct Out(Vec<u8>);

impl Out {
    fn number(&mut self, value: u64) {
        put_varint(&mut self.0, value);
    }
    fn thread(&mut self, thread: Option<ThreadId>) {
        self.number(thread.map_or(0, |thread| u64::from(thread.0) + 1));
    }
    fn string(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }
    fn list<T>(&mut self, items: &[T], mut each: impl FnMut(&mut Out, &T)) {
        self.number(items.len() as u64);
        items.iter().for_each(|item| each(self, item));
    }
}

struct In<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl In<'_> {
    fn number(&mut self) -> Result<u64, Malformed> {
        varint(self.bytes, &mut self.at)
    }
    fn small(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.number()?).map_err(|_| Malformed)
    }
    fn thread(&mut self) -> Result<Option<ThreadId>, Malformed> {
        Ok(self.small()?.checked_sub(1).map(ThreadId))
    }
    fn length(&mut self) -> Result<usize, Malformed> {
        // Each item takes at least a byte, so a length beyond the rest is damage, not a wish for memory.
        let length = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        if length <= self.bytes.len() - self.at { Ok(length) } else { Err(Malformed) }
    }
    fn string(&mut self) -> Result<String, Malformed> {
        let length = self.length()?;
        let text = core::str::from_utf8(&self.bytes[self.at..self.at + length]).map_err(|_| Malformed)?;
        self.at += length;
        Ok(text.to_owned())
    }
    fn list<T>(
        &mut self,
        mut each: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let length = self.length()?;
        (0..length).map(|_| each(self)).collect()
    }
}
