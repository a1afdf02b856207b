//! The setup, and the programs that make system calls.

use super::{Area, BASE, Builtin, CHILD, PAGE, Pattern, must};
use crate::rng::Rng;
use crate::{Access, AccessKind, Advice, FileSpec, Map, MapSource, Os, Prot, Signal};
use alloc::collections::VecDeque;

/// Bytes of one pread.
const CHUNK: u64 = 128 << 10;
/// Largest area of `map-storm`, in pages.
const MAX_AREA: u64 = 64;
/// Accesses to a page.
const ACCESSES: u32 = 8;

impl Builtin {
    /// Map the area that all tasks share.
    pub(super) fn set_up<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        if matches!(self.pattern, Pattern::MapStorm | Pattern::ReadStream) {
            return Ok(());
        }
        let writes = !matches!(self.pattern, Pattern::Stream | Pattern::ZipfAndScan | Pattern::HotAndStream);
        let (source, prot) = match self.area {
            Area::File => {
                let fd = must(os.open(self.file_spec(writes)))?;
                let prot = if writes { Prot::RW } else { Prot::READ };
                (MapSource::File { fd, offset: 0, shared: true }, prot)
            }
            Area::Anon | Area::HugePage => (MapSource::Anonymous, Prot::RW),
        };
        let (addr, len) = (Some(BASE), self.footprint);
        let at = must(os.mmap(Map { addr, len, prot, source, populate: false, locked: false }))?;
        assert_eq!(at, BASE, "a fixed mapping must be at the requested address");
        if self.area == Area::HugePage {
            must(os.madvise(BASE, self.footprint, Advice::HugePage))?;
        }
        Ok(())
    }

    pub(super) fn file_spec(&self, writable: bool) -> FileSpec<'static> {
        FileSpec { name: "builtin", size: self.footprint, in_memory: false, writable }
    }

    /// Run thread `thread`.
    pub(super) fn thread<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        match self.pattern {
            Pattern::ForkWrite => self.fork_write(os, thread),
            Pattern::ForkStorm => self.fork_storm(os, thread),
            Pattern::SharedWriters => self.shared_writers(os, thread),
            Pattern::MapStorm => self.map_storm(os),
            Pattern::ReadStream => self.read_stream(os, thread),
            Pattern::HotAndStream => self.hot_and_stream(os, thread),
            _ => self.walk(os, thread),
        }
    }

    /// A thread's part of the pages.
    pub(super) fn part(&self, thread: u32) -> core::ops::Range<u64> {
        let part = |i: u64| self.pages() * i / self.threads as u64;
        part(thread as u64)..part(thread as u64 + 1)
    }

    /// Fill this thread's part; then fork in every pass, and write every fourth page while the child works.
    fn fork_write<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        let touch = |os: &mut O, page: u64| {
            os.access(Access { addr: BASE + page * PAGE, count: ACCESSES, mode: AccessKind::Store })
        };
        self.part(thread).try_for_each(|page| touch(os, page))?;
        for _ in 0..self.passes {
            let child = must(os.fork(CHILD + thread))?;
            self.part(thread).step_by(4).try_for_each(|page| touch(os, page))?;
            os.join(child);
        }
        os.progress((self.part(thread).end - self.part(thread).start) * self.passes as u64);
        Ok(())
    }

    /// Run the child of a thread.
    pub(super) fn child<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        match self.pattern {
            Pattern::ForkStorm => self.brief_child(os, thread),
            Pattern::SharedWriters => self.shared_writer(os, thread),
            _ => self.read_and_write(os, thread),
        }
    }

    /// Read the child's part and write every second page of it.
    fn read_and_write<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        for page in self.part(thread) {
            let mode = if page.is_multiple_of(2) { AccessKind::Store } else { AccessKind::Load };
            os.access(Access { addr: BASE + page * PAGE, count: ACCESSES, mode })?;
        }
        Ok(())
    }

    /// Keep a queue of small areas that together fill this thread's share; unmap the oldest for every new
    /// one.
    fn map_storm<O: Os>(&self, os: &mut O) -> Result<(), Signal> {
        let mut rng = Rng::new(os.seed());
        let share = self.pages() / self.threads as u64;
        let (mut mapped, mut touched, mut areas) = (0, 0, VecDeque::new());
        while touched < share * self.passes as u64 {
            let pages = 1 + rng.below(MAX_AREA.min(share));
            while mapped + pages > share {
                let (addr, old): (u64, u64) = areas.pop_front().expect("an area must be mapped");
                must(os.munmap(addr, old * PAGE))?;
                mapped -= old;
            }
            let addr = must(os.mmap(Map::anonymous(pages * PAGE)))?;
            for page in 0..pages {
                os.access(Access { addr: addr + page * PAGE, count: ACCESSES, mode: AccessKind::Store })?;
            }
            if rng.below(4) == 0 {
                must(os.mprotect(addr, pages * PAGE, Prot::READ))?;
                os.load(addr)?;
            }
            areas.push_back((addr, pages));
            mapped += pages;
            touched += pages;
        }
        os.progress(touched);
        areas.into_iter().try_for_each(|(addr, pages)| must(os.munmap(addr, pages * PAGE)))
    }

    fn read_stream<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        let fd = must(os.open(self.file_spec(false)))?;
        let part = self.part(thread);
        let (from, to) = (part.start * PAGE, part.end * PAGE);
        for _ in 0..self.passes {
            let mut at = from;
            while at < to {
                let want = CHUNK.min(to - at);
                let got = must(os.pread(fd, at, want))?;
                assert_eq!(got, want, "the file must have the size that it was created with");
                at += got;
            }
            os.progress((to - from) / PAGE);
        }
        must(os.close(fd))
    }

    /// In every pass, read this thread's cold part from end to end, and after each chunk as many hot pages as
    /// it has.
    fn hot_and_stream<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        let mut rng = Rng::new(os.seed());
        let fd = must(os.open(self.file_spec(false)))?;
        let hot = self.pages() / 4;
        let cold = |page: u64| hot + page * (self.pages() - hot) / self.pages();
        let part = self.part(thread);
        let (from, to) = (cold(part.start) * PAGE, cold(part.end) * PAGE);
        for _ in 0..self.passes {
            for at in (from..to).step_by(CHUNK as usize) {
                let want = CHUNK.min(to - at);
                let got = must(os.pread(fd, at, want))?;
                assert_eq!(got, want, "the file must have the size that it was created with");
                for _ in 0..want / PAGE {
                    let addr = BASE + rng.below(hot) * PAGE;
                    os.access(Access { addr, count: ACCESSES, mode: AccessKind::Load })?;
                }
            }
            os.progress((to - from) / PAGE * 2);
        }
        must(os.close(fd))
    }
}
