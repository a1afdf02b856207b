//! How much memory a trace touches: distinct pages, and the most that existed at once.
//!
//! A page has an identity: a page of a file is the same in every process, a page of anonymous memory belongs to its
//! process. A forked child that only reads a page which its parent had touched reads the parent's. When a process has
//! ended, its pages are gone, except those that its children still show.
//!
//! Events of several threads come in an order in which they can have happened (`walk.rs`). On another machine they
//! would come in another, so for programs with threads the peak is one of several that there can be.

use crate::container::Reader;
use crate::error::TraceError;
use crate::event::{Event, FileId, PAGE_SHIFT, PAGE_SIZE, Run};
use crate::header::Header;
use crate::pages::PageSet;
use crate::ranges::Ranges;
use crate::walk::{Moment, Walk, What};
use abi::{AccessKind, Call, Forget, MapSource};

/// The backing of a mapping's pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Anonymous,
    /// Page `n` of the address space is page `n - base` (wrapping) of the file.
    File {
        file: FileId,
        base: u64,
        shared: bool,
    },
}

/// Runs that are remembered, by some bits of their pages.
const KNOWN: u64 = 256;

/// The page of a run, and whether it is written: what the footprint looks at.
const fn key(run: Run) -> u64 {
    run.page << 1 | (run.mode as u8 == AccessKind::Store as u8) as u64
}

#[derive(Default)]
struct Process {
    parent: Option<u32>,
    /// Children that are not gone.
    children: u32,
    /// Whether its threads have ended; another may begin later if the trace lacks the event that starts it.
    ended: bool,
    /// Whether its parent has been told that it and its children have ended.
    gone: bool,
    /// What is not in here counts as anonymous.
    maps: Ranges<Kind>,
    /// The mapping that was used last: first page, end page, kind.
    recent: Option<(u64, u64, Option<Kind>)>,
    /// Keys of runs since the last change of the address space. Another run like one of them changes nothing.
    known: Vec<u64>,
    ever: PageSet,
    live: PageSet,
}

/// Follows the events of a trace and counts its pages.
#[derive(Default)]
pub(crate) struct Footprint {
    processes: Vec<Process>,
    files: Vec<PageSet>,
    data: u64,
    file: u64,
    live: u64,
    peak: u64,
}

const fn pages(addr: u64, len: u64) -> (u64, u64) {
    (addr >> PAGE_SHIFT, addr.saturating_add(len).saturating_add(PAGE_SIZE - 1) >> PAGE_SHIFT)
}

impl Footprint {
    /// Of a trace, whose processes have not begun.
    pub fn of(reader: &Reader) -> Result<Footprint, TraceError> {
        let mut footprint = Footprint::new(reader.header().processes.len());
        let mut walk = Walk::new(reader);
        while let Some(Moment { process, what, .. }) = walk.next()? {
            match what {
                What::Event(Event::Call { call: Call::Fork(role), .. }) => {
                    let child = reader.header().threads.get(role as usize).map(|thread| thread.process);
                    child.into_iter().for_each(|child| footprint.fork(process, child));
                }
                What::Event(event) => footprint.note(process, &event),
                What::End { last: true } => footprint.end(process),
                What::End { last: false } => {}
            }
        }
        Ok(footprint)
    }

    fn new(processes: usize) -> Footprint {
        Footprint { processes: (0..processes).map(|_| Process::default()).collect(), ..Footprint::default() }
    }

    /// A process begins as a child, with its parent's mappings.
    fn fork(&mut self, parent: u32, child: u32) {
        if parent == child || self.processes[child as usize].parent.is_some() {
            return;
        }
        self.processes[parent as usize].children += 1;
        let maps = self.processes[parent as usize].maps.clone();
        let process = &mut self.processes[child as usize];
        (process.maps, process.parent, process.recent) = (maps, Some(parent), None);
    }

    /// A process ends.
    fn end(&mut self, process: u32) {
        self.processes[process as usize].ended = true;
        let mut at = Some(process);
        while let Some(index) = at {
            let process = &mut self.processes[index as usize];
            if !process.ended || process.children > 0 {
                break;
            }
            self.live -= std::mem::take(&mut process.live).len();
            process.maps = Ranges::default();
            at = process.parent.filter(|_| !std::mem::replace(&mut process.gone, true));
            if let Some(parent) = at {
                self.processes[parent as usize].children -= 1;
            }
        }
    }

    /// Write the results into a header.
    pub fn report(&self, header: &mut Header) {
        header.data_pages = self.data;
        header.file_pages = self.file;
        header.footprint = (self.data + self.file) * PAGE_SIZE;
        header.peak = self.peak * PAGE_SIZE;
    }

    /// An event of `process`.
    fn note(&mut self, process: u32, event: &Event) {
        match *event {
            Event::Run(run) => self.run(process, run),
            Event::Call { call, value, .. } => self.call(process, call, value),
            _ => {}
        }
    }

    fn call(&mut self, process: u32, call: Call<'_>, value: u64) {
        match call {
            Call::Mmap(map) => {
                let (start, end) = pages(value, map.len);
                let kind = match map.source {
                    MapSource::File { fd, offset, shared } => {
                        let base = start.wrapping_sub(offset >> PAGE_SHIFT);
                        Kind::File { file: FileId(fd), base, shared }
                    }
                    _ => Kind::Anonymous,
                };
                self.drop_pages(process, start, end);
                self.changed(process).insert(start, end, kind);
            }
            Call::Munmap(addr, len) => {
                let (start, end) = pages(addr, len);
                self.drop_pages(process, start, end);
                self.changed(process).remove(start, end);
            }
            Call::Mremap(remap) => {
                self.remap(process, pages(remap.addr, remap.old_len), pages(value, remap.new_len));
            }
            Call::Madvise(addr, len, advice) if advice.forgets() != Forget::Not => {
                let (start, end) = pages(addr, len);
                self.drop_pages(process, start, end);
            }
            Call::Pread(fd, buffer, offset) | Call::Pwrite(fd, buffer, offset) if buffer.len > 0 => {
                let (start, end) = (offset >> PAGE_SHIFT, (offset + buffer.len - 1) >> PAGE_SHIFT);
                (start..=end).for_each(|page| self.touch_file(FileId(fd), page));
            }
            _ => {}
        }
    }

    fn changed(&mut self, process: u32) -> &mut Ranges<Kind> {
        let process = &mut self.processes[process as usize];
        process.recent = None;
        process.known.clear();
        &mut process.maps
    }

    fn drop_pages(&mut self, process: u32, start: u64, end: u64) {
        self.processes[process as usize].known.clear();
        self.live -= self.processes[process as usize].live.take(start, end).len() as u64;
    }

    fn remap(&mut self, process: u32, old: (u64, u64), new: (u64, u64)) {
        let (_, _, kind) = self.processes[process as usize].maps.of(old.0);
        let shift = new.0.wrapping_sub(old.0);
        let moved = self.processes[process as usize].live.take(old.0, old.1);
        self.live -= moved.len() as u64;
        if shift != 0 {
            self.drop_pages(process, new.0, new.1);
        }
        let kind = match kind {
            Some(Kind::File { file, base, shared }) => {
                Kind::File { file, base: base.wrapping_add(shift), shared }
            }
            _ => Kind::Anonymous,
        };
        let maps = self.changed(process);
        maps.remove(old.0, old.1);
        maps.insert(new.0, new.1, kind);
        // The same frames under new numbers: they are not counted as new.
        let process = &mut self.processes[process as usize];
        for page in moved.into_iter().map(|page| page.wrapping_add(shift)).filter(|&page| page < new.1) {
            process.ever.insert(page);
            self.live += u64::from(process.live.insert(page));
        }
    }

    fn run(&mut self, index: u32, run: Run) {
        let process = &mut self.processes[index as usize];
        let key = key(run);
        if process.known.is_empty() {
            // No page has this number.
            process.known.resize(KNOWN as usize, u64::MAX);
        }
        if std::mem::replace(&mut process.known[(key % KNOWN) as usize], key) == key {
            return;
        }
        let kind = match process.recent {
            Some((start, end, kind)) if (start..end).contains(&run.page) => kind,
            _ => {
                let found = process.maps.of(run.page);
                process.recent = Some(found);
                found.2
            }
        };
        match kind {
            Some(Kind::File { file, base, shared }) if shared || run.mode != AccessKind::Store => {
                self.touch_file(file, run.page.wrapping_sub(base));
            }
            _ if run.mode != AccessKind::Store && self.inherited(index, run.page) => {}
            _ => self.touch_data(index, run.page),
        }
    }

    /// Whether this page of a child is still its parent's.
    fn inherited(&self, index: u32, page: u64) -> bool {
        let mut parent = self.processes[index as usize].parent;
        if parent.is_none() || self.processes[index as usize].live.contains(page) {
            return false;
        }
        while let Some(at) = parent {
            let process = &self.processes[at as usize];
            if process.ever.contains(page) {
                return true;
            }
            parent = process.parent;
        }
        false
    }

    fn touch_data(&mut self, index: u32, page: u64) {
        let process = &mut self.processes[index as usize];
        if process.live.insert(page) {
            self.live += 1;
            self.data += u64::from(process.ever.insert(page));
            self.peak = self.peak.max(self.live);
        }
    }

    fn touch_file(&mut self, file: FileId, page: u64) {
        let at = file.0 as usize;
        if self.files.len() <= at {
            self.files.resize_with(at + 1, PageSet::default);
        }
        if self.files[at].insert(page) {
            self.file += 1;
            self.live += 1;
            self.peak = self.peak.max(self.live);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use abi::{Buffer, Map, Remap};

    fn touch(footprint: &mut Footprint, process: u32, mode: AccessKind, pages: std::ops::Range<u64>) {
        for page in pages {
            footprint.note(process, &Event::Run(Run { page, count: 1, mode }));
        }
    }

    fn map(start: u64, len: u64, source: MapSource) -> Event {
        let (addr, len) = (start * PAGE_SIZE, len * PAGE_SIZE);
        Event::mapped(1, addr, Map { source, ..Map::anonymous(len) })
    }

    #[test]
    fn memory_that_is_given_back_counts_once_in_the_peak() {
        let mut footprint = Footprint::new(1);
        footprint.note(0, &map(100, 50, MapSource::Anonymous));
        touch(&mut footprint, 0, AccessKind::Store, 100..110);
        footprint.note(0, &Event::change(2, Call::Munmap(100 * PAGE_SIZE, 50 * PAGE_SIZE)));
        footprint.note(0, &map(200, 50, MapSource::Anonymous));
        touch(&mut footprint, 0, AccessKind::Store, 200..212);
        assert_eq!((footprint.data, footprint.peak, footprint.live), (22, 12, 12));
    }

    #[test]
    fn memory_that_is_given_back_and_touched_again_is_there_again() {
        let mut footprint = Footprint::new(2);
        let advice = Call::Madvise(100 * PAGE_SIZE, 4 * PAGE_SIZE, abi::Advice::DontNeed);
        for (epoch, call) in [(2, Call::Munmap(100 * PAGE_SIZE, 4 * PAGE_SIZE)), (0, advice)] {
            footprint.note(0, &map(100, 4, MapSource::Anonymous));
            touch(&mut footprint, 0, AccessKind::Store, 100..104);
            assert_eq!(footprint.live, 4);
            footprint.note(0, &Event::change(epoch, call));
            assert_eq!(footprint.live, 0);
            touch(&mut footprint, 0, AccessKind::Store, 100..102);
            assert_eq!((footprint.live, footprint.data), (2, 4));
        }
        // A page that was read and is written then is another one, if it was a file's.
        footprint.note(0, &map(100, 4, MapSource::File { fd: 0, offset: 0, shared: false }));
        touch(&mut footprint, 0, AccessKind::Load, 100..102);
        touch(&mut footprint, 0, AccessKind::Store, 100..102);
        assert_eq!((footprint.file, footprint.live), (2, 4));
    }

    #[test]
    fn a_file_page_is_one_page_however_it_is_reached() {
        let mut footprint = Footprint::new(1);
        let file = FileId(0);
        footprint.note(0, &map(100, 8, MapSource::File { fd: file.0, offset: 4 * PAGE_SIZE, shared: false }));
        touch(&mut footprint, 0, AccessKind::Load, 100..104);
        footprint.note(0, &Event::call(Call::Pread(file.0, Buffer::anywhere(5 * PAGE_SIZE), 0)));
        assert_eq!((footprint.file, footprint.data), (8, 0));
        touch(&mut footprint, 0, AccessKind::Store, 100..101);
        assert_eq!((footprint.file, footprint.data), (8, 1));
    }

    #[test]
    fn a_child_reads_its_parents_pages_and_owns_what_it_writes() {
        let mut footprint = Footprint::new(2);
        footprint.note(0, &map(100, 50, MapSource::Anonymous));
        touch(&mut footprint, 0, AccessKind::Store, 100..110);
        footprint.fork(0, 1);
        touch(&mut footprint, 1, AccessKind::Load, 100..110);
        touch(&mut footprint, 1, AccessKind::Store, 100..103);
        assert_eq!((footprint.data, footprint.live), (13, 13));
        // The child shows what the parent had; when it ends, too, all is gone.
        footprint.end(0);
        assert_eq!(footprint.live, 13);
        footprint.end(1);
        assert_eq!((footprint.live, footprint.peak), (0, 13));
    }

    #[test]
    fn moved_memory_is_the_same_memory() {
        let mut footprint = Footprint::new(1);
        footprint.note(0, &map(100, 10, MapSource::Anonymous));
        touch(&mut footprint, 0, AccessKind::Store, 100..110);
        let (addr, old_len, new_len) = (100 * PAGE_SIZE, 10 * PAGE_SIZE, 20 * PAGE_SIZE);
        let remap = Remap { addr, old_len, new_len, may_move: true, fixed: None };
        footprint.note(0, &Event::Call { epoch: 2, call: Call::Mremap(remap), value: 300 * PAGE_SIZE });
        touch(&mut footprint, 0, AccessKind::Load, 300..320);
        assert_eq!((footprint.data, footprint.peak), (20, 20));
    }
}
