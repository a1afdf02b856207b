//! What is in a trace, for `pagefold info`: tables, totals and the working-set curve.
//!
//! **The curve.** The time that the trace takes is cut into windows of equal length, and the distinct pages that each
//! window touches are counted, as are those touched up to its end. Time is what `walk.rs` says it is: threads that do
//! not wait for each other run beside each other, and an access takes as long as another. A run takes as long as it has
//! accesses, and its page is touched all that time.
//! Pages are counted by process and address, so a page that two processes share counts twice here.

use std::collections::{HashMap, HashSet, VecDeque};

use crate::check::Check;
use crate::container::Reader;
use crate::error::TraceError;
use crate::event::{Event, FileId, Packed, Run};
use crate::header::{Counts, FileInfo, Header};
use crate::pages::PageSet;
use crate::walk::{Moment, Walk, What};
use abi::PACKED_UNIT;
use abi::{Call, Map, MapSource};

/// Windows of the curve.
pub const WINDOWS: u64 = 64;

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
    /// One in this many pages is in the trace; 1: all.
    pub sample: u64,
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
    /// What compressors make of the pages that were written; all 0 in a trace that does not tell.
    pub content: ContentRow,
    /// The working-set curve.
    pub curve: Vec<CurvePoint>,
    /// What the recorder could not follow.
    pub warnings: Vec<String>,
}

/// What compressors made of pages when they were last looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ContentRow {
    /// Pages, by process and address.
    pub pages: u64,
    /// Times that one of them was told of.
    pub told: u64,
    /// Those of which all bytes are zero.
    pub zero: u64,
    /// Those that repeat a word that is not zero.
    pub same: u64,
    /// The others with LZ4.
    pub lz4: PackedRow,
    /// The others with zstd.
    pub zstd: PackedRow,
}

/// What a compressor makes of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PackedRow {
    /// Bytes of all that get smaller.
    pub bytes: u64,
    /// Pages that do not get smaller.
    pub whole: u64,
}

impl ContentRow {
    fn of(told: u64, contents: &HashMap<(u32, u64), Packed>) -> ContentRow {
        let mut row = ContentRow { pages: contents.len() as u64, told, ..ContentRow::default() };
        for &packed in contents.values() {
            match packed {
                Packed::ZERO => row.zero += 1,
                Packed::SAME => row.same += 1,
                Packed { lz4, zstd } => {
                    row.lz4.note(lz4);
                    row.zstd.note(zstd);
                }
            }
        }
        row
    }
}

impl PackedRow {
    fn note(&mut self, units: u8) {
        match units {
            Packed::WHOLE => self.whole += 1,
            units => self.bytes += u64::from(units) * PACKED_UNIT,
        }
    }
}

/// A process.
#[derive(Clone, Debug, serde::Serialize)]
pub struct ProcessRow {
    /// Its index.
    pub process: u32,
    /// The programs that it ran, one after the other: names of files. A fork begins with its parent's.
    pub programs: Vec<String>,
    /// The thread that forked it.
    pub forked_by: Option<u32>,
    /// Number of its threads.
    pub threads: u32,
    /// Number of mappings by backing: anonymous, shared anonymous, private file, shared file.
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
            sample: header.sample.max(1),
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
            content: ContentRow::default(),
            curve: Vec::new(),
            warnings: header.warnings.clone(),
        };
        info.follow(reader)?;
        Ok(info)
    }

    /// Read all twice: to know how long it takes, and for the curve.
    fn follow(&mut self, reader: &Reader) -> Result<(), TraceError> {
        let header = reader.header();
        let mut check = Check::new(header);
        let mut walk = Walk::new(reader);
        let mut length = 0;
        let mut names = Names::new(header);
        let (mut told, mut contents) = (0, HashMap::new());
        while let Some(Moment { thread, process, time, what }) = walk.next()? {
            let What::Event(event) = what else { continue };
            check.note(header, thread, &event).map_err(|what| walk.damaged(thread, what))?;
            match event {
                Event::Run(run) => {
                    length = length.max(time.saturating_add(run.count.into()));
                    self.runs[run.mode as usize] += 1;
                }
                Event::Content { page, packed } => {
                    told += 1;
                    contents.insert((process, page), packed);
                }
                _ => {
                    names.note(header, process, &event);
                    self.note(process, &event);
                }
            }
        }
        reader.finish(&check)?;
        self.content = ContentRow::of(told, &contents);
        self.processes.iter_mut().zip(names.programs).for_each(|(row, programs)| row.programs = programs);
        let mut curve = Curve::new(length, header.processes.len());
        let mut walk = Walk::new(reader);
        while let Some(Moment { process, time, what, .. }) = walk.next()? {
            if let What::Event(Event::Run(run)) = what {
                curve.come_to(walk.floor());
                curve.touch(process, time, run);
            }
        }
        self.curve = curve.finish();
        Ok(())
    }

    fn note(&mut self, process: u32, event: &Event) {
        let row = &mut self.processes[process as usize];
        row.changes += u64::from(event.epoch().is_some_and(|epoch| epoch > 0));
        let Event::Call { call, .. } = event else { return };
        match call {
            Call::Mmap(map) => {
                let kind = match map.source {
                    MapSource::Anonymous => 0,
                    MapSource::AnonymousShared => 1,
                    MapSource::File { shared: false, .. } => 2,
                    MapSource::File { shared: true, .. } => 3,
                };
                row.maps[kind] += 1;
                row.mapped_bytes = row.mapped_bytes.saturating_add(map.len);
            }
            Call::Pread(_, buffer, _) => self.bytes_read = self.bytes_read.saturating_add(buffer.len),
            Call::Pwrite(_, buffer, _) => self.bytes_written = self.bytes_written.saturating_add(buffer.len),
            _ => {}
        }
    }
}

/// The programs that processes run: of an image that begins, the program is the first file that is mapped.
struct Names {
    programs: Vec<Vec<String>>,
    /// By process: whether an image has begun whose program is not known yet.
    begins: Vec<bool>,
}

impl Names {
    fn new(header: &Header) -> Names {
        let processes = header.processes.len();
        let begins = (0..processes).map(|process| process == 0).collect();
        Names { programs: vec![Vec::new(); processes], begins }
    }

    fn note(&mut self, header: &Header, process: u32, event: &Event) {
        let process = process as usize;
        match *event {
            Event::Exec => self.begins[process] = true,
            Event::Call { call: Call::Mmap(Map { source: MapSource::File { fd, .. }, .. }), .. }
                if self.begins[process] =>
            {
                self.begins[process] = false;
                self.programs[process].extend(header.file(FileId(fd)).map(|file| file.name.clone()));
            }
            Event::Call { call: Call::Fork(role), .. } => {
                let Some(child) = header.threads.get(role as usize) else { return };
                self.programs[child.process as usize] =
                    self.programs[process].last().cloned().into_iter().collect();
            }
            _ => {}
        }
    }
}

/// The working-set curve while it is made.
struct Curve {
    /// Where each window begins, and where the last one ends.
    begins: Vec<u64>,
    rows: Vec<Row>,
    /// Pages that each process has touched.
    ever: Vec<PageSet>,
    /// The first window that is not over, and the pages of this one and those after it.
    first: usize,
    open: VecDeque<HashSet<(u32, u64)>>,
    /// Runs that reach into later windows: the first and the last of them, the process, the page.
    long: Vec<(usize, usize, u32, u64)>,
    /// By mode, what was touched last: window, process, page.
    last: [Option<(usize, u32, u64)>; 3],
}

/// A window.
#[derive(Clone, Copy, Default)]
struct Row {
    accesses: u64,
    pages: u64,
    /// Pages that were met for the first time.
    new: u64,
}

impl Curve {
    fn new(length: u64, processes: usize) -> Curve {
        Curve {
            begins: (0..=WINDOWS).map(|window| part(length, window)).collect(),
            rows: vec![Row::default(); WINDOWS as usize],
            ever: (0..processes).map(|_| PageSet::default()).collect(),
            first: 0,
            open: VecDeque::new(),
            long: Vec::new(),
            last: [None; 3],
        }
    }

    /// Nothing comes any more that is before this time.
    fn come_to(&mut self, time: u64) {
        while self.first + 1 < self.rows.len() && time >= self.begins[self.first + 1] {
            self.close();
        }
    }

    /// The first window that is not over is.
    fn close(&mut self) {
        let (window, mut pages) = (self.first, self.open.pop_front().unwrap_or_default());
        let through = self.long.iter().filter(|(from, to, ..)| (*from..=*to).contains(&window));
        pages.extend(through.map(|&(_, _, process, page)| (process, page)));
        self.long.retain(|(_, to, ..)| *to > window);
        self.rows[window].pages = pages.len() as u64;
        self.first += 1;
    }

    /// The last window that begins at `time` or before, from `window` on.
    fn window(&self, mut window: usize, time: u64) -> usize {
        while window + 1 < self.rows.len() && time >= self.begins[window + 1] {
            window += 1;
        }
        window
    }

    /// A run begins at `time` and takes as long as it has accesses.
    fn touch(&mut self, process: u32, time: u64, run: Run) {
        let end = time.saturating_add(run.count.into());
        let from = self.window(self.first, time);
        let to = self.window(from, end.saturating_sub(1));
        for window in from..=to {
            let (begin, over) = (self.begins[window].max(time), self.begins[window + 1].min(end));
            self.rows[window].accesses += over.saturating_sub(begin);
        }
        if to > from {
            self.long.push((from + 1, to, process, run.page));
        }
        let last = Some((from, process, run.page));
        if std::mem::replace(&mut self.last[run.mode as usize], last) == last {
            return;
        }
        let at = from - self.first;
        if self.open.len() <= at {
            self.open.resize_with(at + 1, HashSet::new);
        }
        if self.open[at].insert((process, run.page)) {
            self.rows[from].new += u64::from(self.ever[process as usize].insert(run.page));
        }
    }

    fn finish(mut self) -> Vec<CurvePoint> {
        (self.first..self.rows.len()).for_each(|_| self.close());
        let (mut accesses, mut cumulative) = (0, 0);
        let points = self.rows.iter().map(|row| {
            accesses += row.accesses;
            cumulative += row.new;
            CurvePoint { accesses, pages: row.pages, cumulative }
        });
        points.collect()
    }
}

/// `total × window / WINDOWS` without overflow.
fn part(total: u64, window: u64) -> u64 {
    (u128::from(total) * u128::from(window) / u128::from(WINDOWS)) as u64
}

fn processes(header: &Header) -> Vec<ProcessRow> {
    let mut threads = vec![0; header.processes.len()];
    header.threads.iter().for_each(|thread| threads[thread.process as usize] += 1);
    let rows = header.processes.iter().zip(0..).map(|(process, index)| ProcessRow {
        process: index,
        programs: Vec::new(),
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
