//! The system as a task in ring 3 sees it: calls go to ring 0, memory is accessed by real instructions, and
//! the checker, if there is one, sees both.

use super::buffer::Buffer;
use super::check::access::CheckedAccess;
use super::check::backoff::Backoff;
use super::check::file_io::{FileRead, FileWrite, whole_stamps};
use super::check::page::Page;
use super::check::space::{Map as Shadow, Region, Source};
use super::check::{Checker, Memory, Open, Process, Tally, Violation};
use super::{Ring, Settings};
use abi::call::{self, Exit, Tell, unpair};
use abi::{Buffer as Bytes, Call, Forget, Text};
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use kernel::{ADDRESS_BITS, TaskStart, range};
use program::{
    Access, AccessKind, Advice, Errno, FileSpec, Map, MapSource, Os, Prot, Remap, Role, Signal, TaskHandle,
};

const PAGE: u64 = 4096;
/// The most bytes of one read or write.
const LARGEST_TRANSFER: u64 = 64 << 20;

/// One task's view of the system.
pub struct UserOs<'w, R> {
    ring: &'w R,
    watch: Option<Watch<'w>>,
    start: TaskStart,
    settings: Settings,
    transfer: Buffer,
    accesses: u64,
    progress: u64,
    tally: Tally,
}

/// The checker, and the shadow of the task's process.
struct Watch<'w> {
    checker: &'w Checker,
    process: Arc<Process>,
}

/// Memory and waiting through a ring.
struct RingMemory<'a, R>(&'a R);

impl<R: Ring> Memory for RingMemory<'_, R> {
    fn load(&self, addr: u64) -> Result<u64, Signal> {
        self.0.load(addr)
    }

    fn store(&self, addr: u64, word: u64) -> Result<(), Signal> {
        self.0.store(addr, word)
    }

    fn fetch(&self, addr: u64) -> Result<(), Signal> {
        self.0.fetch(addr)
    }

    fn dying(&self) -> bool {
        syscall(self.0, Call::Yield()) == Ok(1)
    }
}

impl<R: Ring> Backoff for RingMemory<'_, R> {
    fn yield_now(&self) {
        let _ = syscall(self.0, Call::Yield());
    }
}

fn syscall<R: Ring>(ring: &R, what: Call<'_>) -> Result<u64, Errno> {
    let mut text = Buffer::default();
    let (number, args) = what.encode(|said| text.store_text(said));
    call::decode_answer(ring.call(number, args))
}

/// First page and number of pages of a range in bytes, or `None` if the kernel refuses it.
fn pages(addr: u64, len: u64) -> Option<(u64, u64)> {
    range(addr, len).map(|(start, pages)| (start.0, pages)).ok()
}

impl<'w, R: Ring> UserOs<'w, R> {
    /// The view of a task that starts.
    pub fn new(
        settings: Settings,
        checker: Option<&'w Checker>,
        ring: &'w R,
        start: TaskStart,
    ) -> UserOs<'w, R> {
        let process = |checker: &Checker| checker.process(start.process, &RingMemory(ring));
        UserOs {
            ring,
            watch: checker.map(|checker| Watch { checker, process: process(checker) }),
            start,
            settings,
            transfer: Buffer::default(),
            accesses: 0,
            progress: 0,
            tally: Tally::default(),
        }
    }

    /// Make the task's last call.
    pub fn exit(self, signal: Option<Signal>) {
        if let Some(Watch { checker, process }) = &self.watch {
            checker.leave(process, &RingMemory(self.ring));
        }
        let (accesses, progress) = (self.accesses, self.progress);
        let Tally { checked, violations } = self.tally;
        let _ = self.syscall(Call::Exit(Exit { signal, accesses, progress, checked, violations }));
    }

    /// Send a note to the readers of the run's numbers.
    pub fn note(&self, text: &str) {
        self.tell(Tell::Note, text);
    }

    fn syscall(&self, what: Call<'_>) -> Result<u64, Errno> {
        syscall(self.ring, what)
    }

    fn tell(&self, what: Tell, text: &str) {
        let _ = self.syscall(Call::Tell(what, Text::Said(text)));
    }

    fn report(&self, Violation(text): &Violation) {
        if let Some(watch) = &self.watch
            && watch.checker.should_report()
        {
            self.tell(Tell::Violation, &format!("task {}, {text}", self.start.task));
        }
    }

    /// Access the words of a page in order, from that of the address on, wrapping around.
    fn touch(&self, access: Access) -> Result<(), Signal> {
        let page = access.addr & !(PAGE - 1);
        for i in 0..access.count as u64 {
            let addr = page | (access.addr + 8 * i) & (PAGE - 8);
            match access.mode {
                AccessKind::Load => drop(self.ring.load(addr)?),
                AccessKind::Store => self.ring.store(addr, addr)?,
                AccessKind::Fetch => self.ring.fetch(addr)?,
            }
        }
        Ok(())
    }

    /// The content of a new mapping, for the checker.
    fn source(&self, watch: &Watch<'_>, map: &Map) -> Result<Source, Errno> {
        match map.source {
            MapSource::Anonymous => Ok(Source::Anonymous),
            MapSource::AnonymousShared => {
                let size = map.len.next_multiple_of(PAGE);
                Ok(Source::File { file: watch.checker.unnamed(size), offset: 0, shared: true })
            }
            MapSource::File { fd, offset, shared } => {
                let open = watch.process.file(fd, &RingMemory(self.ring)).ok_or(Errno::BadF)?;
                Ok(Source::File { file: open.file, offset: offset / PAGE, shared })
            }
        }
    }

    /// Make a call about a range of bytes; `begin` and `end` tell the process's shadow of it, the latter also
    /// whether it succeeded.
    fn changing<T>(
        &self,
        (addr, len): (u64, u64),
        what: Call<'_>,
        begin: impl FnOnce(&mut Shadow, u64, u64) -> T,
        end: impl FnOnce(&mut Shadow, T, bool, &dyn Backoff),
    ) -> Result<(), Errno> {
        let (Some(Watch { process, .. }), Some((start, pages))) = (&self.watch, pages(addr, len)) else {
            return self.syscall(what).map(drop);
        };
        let backoff = &RingMemory(self.ring);
        let _held = process.call(backoff);
        let change = begin(&mut process.map(backoff), start, pages);
        let result = self.syscall(what);
        end(&mut process.map(backoff), change, result.is_ok(), backoff);
        result.map(drop)
    }

    fn open_for_writing(&self, fd: u32) -> Option<(&Watch<'w>, Open)> {
        let watch = self.watch.as_ref()?;
        let open = watch.process.file(fd, &RingMemory(self.ring)).filter(|open| open.writable)?;
        Some((watch, open))
    }

    /// The part of the transfer buffer for `[offset, offset + len)` of a file, aligned so that words of the
    /// file are words of the buffer.
    fn transfer(&mut self, offset: u64, len: u64) -> Bytes {
        self.transfer.reserve(offset % 8 + len);
        Bytes { addr: self.transfer.addr() + offset % 8, len }
    }
}

/// Index of the buffer's word for a position in the file, if the transfer begins at `offset`.
fn word_at(offset: u64, at: u64) -> u64 {
    (at - (offset - offset % 8)) / 8
}

impl<R: Ring> Os for UserOs<'_, R> {
    #[inline]
    fn access(&mut self, access: Access) -> Result<(), Signal> {
        self.accesses += access.count as u64;
        let addr = access.addr;
        if addr >> ADDRESS_BITS != 0 {
            return Err(Signal::Segv { addr });
        }
        let Some(watch) = &self.watch else { return self.touch(access) };
        let memory = &RingMemory(self.ring);
        let mut touch = CheckedAccess { memory, backoff: memory, tally: &mut self.tally };
        match touch.access(&watch.process, addr, access.mode) {
            Ok(outcome) => outcome,
            Err(violation) => {
                self.report(&violation);
                Ok(())
            }
        }
    }

    fn compute(&mut self, instructions: u64) {
        self.ring.compute(instructions);
    }

    fn call(&mut self, what: Call<'_>) -> Result<u64, Errno> {
        self.syscall(what)
    }

    fn mmap(&mut self, map: Map) -> Result<u64, Errno> {
        let range = pages(map.addr.unwrap_or(0), map.len);
        let (Some(watch), Some((start, pages))) = (&self.watch, range) else {
            return self.syscall(Call::Mmap(map));
        };
        let (process, backoff) = (&watch.process, &RingMemory(self.ring));
        let source = self.source(watch, &map)?;
        let mut copied = Vec::new();
        if let (Source::File { file, offset, shared: false }, true) = (&source, map.populate || map.locked) {
            copied.extend((0..pages).map(|page| file.page(offset + page).map(Page::before)));
        }
        let _held = process.call(backoff);
        let incoming = match &source {
            Source::File { file, offset, shared: true } => Some((file.clone(), *offset)),
            _ => None,
        };
        let change = map.addr.map(|_| process.map(backoff).begin_replace(start, pages, incoming));
        let result = self.syscall(Call::Mmap(map));
        let mut shadow = process.map(backoff);
        if let Ok(addr) = result {
            shadow.insert(addr / PAGE, Region::new(addr / PAGE, pages, map.prot, source));
        }
        if let Some(change) = change {
            shadow.end_replace(change, result.is_ok(), backoff);
        }
        // Only now, to skip pages that another call is still changing.
        if let Ok(addr) = result {
            let copied = (addr / PAGE..).zip(copied).filter_map(|(page, before)| Some((page, before?)));
            shadow.end_populate(&copied.collect::<Vec<_>>(), backoff);
        }
        result
    }

    fn munmap(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        self.changing((addr, len), Call::Munmap(addr, len), Shadow::begin_take, Shadow::end_take)
    }

    fn mprotect(&mut self, addr: u64, len: u64, prot: Prot) -> Result<(), Errno> {
        let what = Call::Mprotect(addr, len, prot);
        self.changing((addr, len), what, Shadow::begin_change, |map, change, done, backoff| {
            map.end_protect(change, prot, done, backoff)
        })
    }

    fn mremap(&mut self, remap: Remap) -> Result<u64, Errno> {
        let what = Call::Mremap(remap);
        let ranges = pages(remap.addr, remap.old_len).zip(pages(remap.fixed.unwrap_or(0), remap.new_len));
        let (Some(Watch { process, .. }), Some(((start, old), (to, new)))) = (&self.watch, ranges) else {
            return self.syscall(what);
        };
        let backoff = &RingMemory(self.ring);
        let _held = process.call(backoff);
        let (from, target) = {
            let mut map = process.map(backoff);
            let incoming = map.find(start).region.and_then(|(region, at)| region.shared(at));
            (map.begin_take(start, old), remap.fixed.map(|_| map.begin_replace(to, new, incoming)))
        };
        let result = self.syscall(what);
        let mut map = process.map(backoff);
        match result {
            Ok(addr) => map.end_move(from, addr / PAGE, new, backoff),
            Err(_) => map.end_take(from, false, backoff),
        }
        if let Some(target) = target {
            map.end_replace(target, result.is_ok(), backoff);
        }
        result
    }

    fn madvise(&mut self, addr: u64, len: u64, advice: Advice) -> Result<(), Errno> {
        let what = Call::Madvise(addr, len, advice);
        let forget = advice.forgets();
        if forget == Forget::Not {
            return self.syscall(what).map(drop);
        }
        self.changing((addr, len), what, Shadow::begin_change, |map, change, done, backoff| {
            map.end_forget(change, if done { forget } else { Forget::Perhaps }, backoff)
        })
    }

    fn mlock(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        let begin = |map: &mut Shadow, start, pages| map.begin_populate(start, pages);
        self.changing((addr, len), Call::Mlock(addr, len), begin, |map, before, _, backoff| {
            map.end_populate(&before, backoff)
        })
    }

    fn open(&mut self, spec: FileSpec<'_>) -> Result<u32, Errno> {
        let FileSpec { name, size, in_memory, writable } = spec;
        let call = Call::Open(Text::Said(name), size, in_memory, writable);
        let (fd, number) = unpair(self.syscall(call)?);
        if let Some(Watch { checker, process }) = &self.watch {
            let backoff = &RingMemory(self.ring);
            let file = checker.file(number, size, backoff);
            process.set_file(fd, Some(Open { file, writable }), backoff);
        }
        Ok(fd)
    }

    fn close(&mut self, fd: u32) -> Result<(), Errno> {
        // Removed first: the next open may get the same descriptor at once.
        let known = self.watch.as_ref().and_then(|watch| {
            let open = watch.process.file(fd, &RingMemory(self.ring))?;
            watch.process.set_file(fd, None, &RingMemory(self.ring));
            Some((watch, open))
        });
        let result = self.syscall(Call::Close(fd));
        if let (Some((watch, open)), Err(_)) = (known, result) {
            watch.process.set_file(fd, Some(open), &RingMemory(self.ring));
        }
        result.map(drop)
    }

    fn pread(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        let buffer = self.transfer(offset, len.min(LARGEST_TRANSFER));
        let what = Call::Pread(fd, buffer, offset);
        let open = self.watch.as_ref().and_then(|watch| watch.process.file(fd, &RingMemory(self.ring)));
        let Some(Open { file, .. }) = open else { return self.syscall(what) };
        let reading = FileRead::begin(&file, offset, buffer.len);
        let got = self.syscall(what)?;
        let word = |at| self.transfer.word(word_at(offset, at));
        if let Err(violation) = reading.end(offset, got, word, &mut self.tally) {
            self.report(&violation);
        }
        Ok(got)
    }

    fn pwrite(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        let len = len.min(LARGEST_TRANSFER);
        if self.open_for_writing(fd).is_none() || len == 0 || offset.checked_add(len + PAGE).is_none() {
            let buffer = self.transfer(offset, len);
            return self.syscall(Call::Pwrite(fd, buffer, offset));
        }
        let (from, more) = whole_stamps(offset, len);
        let buffer = self.transfer(from, more);
        let Some((_, Open { file, .. })) = self.open_for_writing(fd) else { return Err(Errno::BadF) };
        let backoff = &RingMemory(self.ring);
        file.ensure(from + more);
        let held = file.change(backoff);
        let writing = FileWrite::begin(&file, from, more, backoff, |at, word| {
            self.transfer.set_word(word_at(from, at), word);
        });
        let result = self.syscall(Call::Pwrite(fd, buffer, from));
        match result {
            Ok(written) => {
                writing.end(from, Some(written));
                file.grow(if written > 0 { from + written } else { 0 }, &held);
            }
            Err(Errno::BadF | Errno::NoSpc | Errno::Inval) => writing.cancel(),
            Err(_) => writing.end(from, None),
        }
        result.map(|written| (from + written).saturating_sub(offset).min(len))
    }

    fn ftruncate(&mut self, fd: u32, size: u64) -> Result<(), Errno> {
        let what = Call::Ftruncate(fd, size);
        let Some((watch, Open { file, .. })) = self.open_for_writing(fd) else {
            return self.syscall(what).map(drop);
        };
        let backoff = &RingMemory(self.ring);
        let held = file.change(backoff);
        let truncation = file.begin_truncate(size, &held);
        if truncation.is_none() {
            // Other tasks may touch the new pages before the call has returned here.
            file.ensure(size);
        }
        let result = self.syscall(what);
        match truncation {
            Some(truncation) => watch.checker.end_truncate(&file, truncation, result.is_ok(), backoff),
            None if result.is_ok() => file.set_size(size, &held),
            None => {}
        }
        result.map(drop)
    }

    fn spawn(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        if let Some(watch) = &self.watch {
            watch.process.enter();
        }
        let result = self.syscall(Call::Spawn(role));
        if let (Some(Watch { checker, process }), Err(_)) = (&self.watch, result) {
            checker.leave(process, &RingMemory(self.ring));
        }
        result.map(|task| TaskHandle(task as u32))
    }

    fn fork(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        let Some(Watch { checker, process }) = &self.watch else {
            return self.syscall(Call::Fork(role)).map(|pair| TaskHandle(unpair(pair).0));
        };
        let backoff = &RingMemory(self.ring);
        let _held = process.forking(backoff);
        let fork_state = process.map(backoff).begin_fork();
        let (task, child) = unpair(self.syscall(Call::Fork(role))?);
        checker.fork(process, child, &fork_state, backoff);
        Ok(TaskHandle(task))
    }

    fn now(&self) -> u64 {
        self.syscall(Call::Now()).unwrap_or(0)
    }

    fn cpus(&self) -> u32 {
        self.settings.cpus
    }

    fn memory(&self) -> u64 {
        self.settings.memory
    }

    fn seed(&self) -> u64 {
        program::rng::task_seed(self.settings.seed, self.start.task)
    }

    fn progress(&mut self, units: u64) {
        self.progress += units;
    }
}
