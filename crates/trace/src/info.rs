//! What is in a trace, for `pagefold info`: tables, totals and the working-set curve.
//!
//! **The curve.** The trace's accesses are cut into windows of equal length, and the distinct pages that each
//! window touches are counted, as are those touched up to its end. Threads have no common clock in a trace, so
//! they are taken to advance in proportion: window *i* of *n* has the *i*-th *n*-th of every thread's accesses.
//! Pages are counted by process and address, so a page that two processes share counts twice here.

use std::collections::HashSet;

use crate::check::Check;
use crate::container::{Reader, Stream};
use crate::error::TraceError;
use crate::event::{Backing, Event, Run, ThreadId};
use crate::header::{Counts, FileInfo, Header};
use crate::pages::PageSet;

/// Windows of the curve.
pub const WINDOWS: u64 = 64;

/// Threads up to which each keeps its unpacked frame from window to window. Of more, each unpacks it again when its
/// turn comes, so that a trace of many threads needs no more memory.
const AWAKE: usize = 64;

/// What is in a trace.
#[derive(Clone, Debug, serde::Serialize)]
pub struct Info {
    /// The file's path.
    pub path: String,
    /// The file's bytes.
    pub file_bytes: u64,
    /// What made it.
    pub recorder: String,
    /// The command that was recorded.
    pub command: Vec<String>,
    /// Pairs of page and mode in the recorder's window.
    pub window: u64,
    /// Distinct bytes of memory and files that were touched.
    pub footprint: u64,
    /// The most of them that existed at once, in bytes.
    pub peak: u64,
    /// Distinct pages of anonymous memory.
    pub data_pages: u64,
    /// Distinct pages of files.
    pub file_pages: u64,
    /// Sums over all threads.
    pub totals: Counts,
    /// Loads, stores and fetches.
    pub accesses: u64,
    /// Runs of loads, stores and fetches.
    pub runs: [u64; 3],
    /// Bytes that were read from files by system calls.
    pub bytes_read: u64,
    /// Bytes that were written to files by system calls.
    pub bytes_written: u64,
    /// Processes.
    pub processes: Vec<ProcessRow>,
    /// Threads.
    pub threads: Vec<ThreadRow>,
    /// Files.
    pub files: Vec<FileInfo>,
    /// The working-set curve.
    pub curve: Vec<CurvePoint>,
    /// What the recorder could not follow.
    pub warnings: Vec<String>,
}

/// A process.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ProcessRow {
    /// Its index.
    pub process: u32,
    /// The thread that forked it.
    pub forked_by: Option<u32>,
    /// Number of its threads.
    pub threads: u32,
    /// Mappings that were made, by what stands behind them: anonymous, shared anonymous, private file, shared
    /// file.
    pub maps: [u64; 4],
    /// Bytes of all of them.
    pub mapped_bytes: u64,
    /// Changes of the address space.
    pub changes: u64,
}

/// A thread.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ThreadRow {
    /// Its index, which is its role when replayed.
    pub thread: u32,
    /// Its process.
    pub process: u32,
    /// The thread that started it.
    pub started_by: Option<u32>,
    /// What it did.
    pub counts: Counts,
}

/// A window of the working-set curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CurvePoint {
    /// Accesses up to the end of the window.
    pub accesses: u64,
    /// Distinct pages that the window touched.
    pub pages: u64,
    /// Distinct pages that were touched up to its end.
    pub cumulative: u64,
}

impl Info {
    /// Read all of a trace. Fails if it does not hold what its header says.
    pub fn read(reader: &Reader) -> Result<Info, TraceError> {
        let header = reader.header();
        let totals = header.counts();
        let mut info = Info {
            path: reader.path().display().to_string(),
            file_bytes: reader.file_len(),
            recorder: header.recorder.clone(),
            command: header.command.clone(),
            window: header.window,
            footprint: header.footprint,
            peak: header.peak,
            data_pages: header.data_pages,
            file_pages: header.file_pages,
            totals,
            accesses: totals.accesses(),
            runs: [0; 3],
            bytes_read: 0,
            bytes_written: 0,
            processes: processes(header),
            threads: threads(header),
            files: header.files.clone(),
            curve: Vec::new(),
            warnings: header.warnings.clone(),
        };
        info.follow(reader)?;
        Ok(info)
    }

    fn follow(&mut self, reader: &Reader) -> Result<(), TraceError> {
        let mut cursors: Vec<Cursor> = (0..reader.header().threads.len() as u32)
            .map(|thread| Cursor { stream: reader.stream(ThreadId(thread)), done: 0 })
            .collect();
        let header = reader.header();
        let mut sets: Vec<Sets> = header.processes.iter().map(|_| Sets::default()).collect();
        let mut check = Check::new(header);
        let many = cursors.len() > AWAKE;
        for window in 1..=WINDOWS {
            let mut accesses = 0u64;
            for ((thread, info), cursor) in (0..).map(ThreadId).zip(&header.threads).zip(&mut cursors) {
                let total = info.counts.accesses();
                // In the last window also the calls after the last access.
                let last = window == WINDOWS;
                let until = part(total, window);
                let set = &mut sets[info.process as usize];
                while (last || cursor.done < until)
                    && let Some(event) = cursor.stream.next_event()?
                {
                    check.note(header, thread, &event).map_err(|what| cursor.stream.damaged(what))?;
                    if let Event::Run(run) = event {
                        cursor.done = cursor.done.saturating_add(u64::from(run.count));
                        self.runs[run.mode as usize] += 1;
                        set.touch(run);
                    } else {
                        self.note(info.process, &event);
                    }
                }
                if many {
                    cursor.stream.rest();
                }
                accesses = accesses.saturating_add(cursor.done);
            }
            let pages = sets.iter().map(|set| set.window.len() as u64).sum();
            let cumulative = sets.iter().map(|set| set.ever.len()).sum();
            sets.iter_mut().for_each(|set| set.window.clear());
            self.curve.push(CurvePoint { accesses, pages, cumulative });
        }
        reader.finish(&check)
    }

    fn note(&mut self, process: u32, event: &Event) {
        let row = &mut self.processes[process as usize];
        row.changes += u64::from(event.epoch().is_some_and(|epoch| epoch > 0));
        match *event {
            Event::Map { len, backing, .. } => {
                let kind = match backing {
                    Backing::Anonymous => 0,
                    Backing::AnonymousShared => 1,
                    Backing::File { shared: false, .. } => 2,
                    Backing::File { shared: true, .. } => 3,
                };
                row.maps[kind] += 1;
                row.mapped_bytes = row.mapped_bytes.saturating_add(len);
            }
            Event::Read { len, .. } => self.bytes_read = self.bytes_read.saturating_add(len),
            Event::Write { len, .. } => self.bytes_written = self.bytes_written.saturating_add(len),
            _ => {}
        }
    }
}

/// `total × window / WINDOWS` without overflow.
fn part(total: u64, window: u64) -> u64 {
    (u128::from(total) * u128::from(window) / u128::from(WINDOWS)) as u64
}

struct Cursor {
    stream: Stream,
    done: u64,
}

/// Pages of one process.
#[derive(Default)]
struct Sets {
    ever: PageSet,
    window: HashSet<u64>,
    last: [Option<u64>; 3],
}

impl Sets {
    fn touch(&mut self, run: Run) {
        let last = &mut self.last[run.mode as usize];
        if *last == Some(run.page) && self.window.contains(&run.page) {
            return;
        }
        *last = Some(run.page);
        if self.window.insert(run.page) {
            self.ever.insert(run.page);
        }
    }
}

fn processes(header: &Header) -> Vec<ProcessRow> {
    let mut threads = vec![0; header.processes.len()];
    header.threads.iter().for_each(|thread| threads[thread.process as usize] += 1);
    let rows = header.processes.iter().zip(0..).map(|(process, index)| ProcessRow {
        process: index,
        forked_by: process.forked_by.map(|thread| thread.0),
        threads: threads[index as usize],
        maps: [0; 4],
        mapped_bytes: 0,
        changes: 0,
    });
    rows.collect()
}

fn threads(header: &Header) -> Vec<ThreadRow> {
    let rows = header.threads.iter().zip(0..).map(|(thread, index)| ThreadRow {
        thread: index,
        process: thread.process,
        started_by: thread.started_by.map(|thread| thread.0),
        counts: thread.counts,
    });
    rows.collect()
}
