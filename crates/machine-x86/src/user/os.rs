//! The system as a task in ring 3 sees it: calls go to ring 0, memory is touched by real instructions, and the checker,
//! if there is one, is told of both.

use super::buffer::Buffer;
use super::check::access::Touch;
use super::check::file_io::{Reading, Writing, whole_stamps};
use super::check::page::Page;
use super::check::patience::Patience;
use super::check::space::{Region, Source};
use super::check::{Checker, Memory, Open, Process, Tally, Violation};
use super::world::World;
use super::{Ring, check};
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
/// Most bytes of one read or write.
const LARGEST_TRANSFER: u64 = 64 << 20;

/// One task's view.
pub struct UserOs<'w, R> {
    ring: &'w R,
    watch: Option<Watch<'w>>,
    start: TaskStart,
    seed: u64,
    cpus: u32,
    memory: u64,
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

/// Memory and patience of a ring.
struct Hands<'a, R>(&'a R);

impl<R: Ring> Memory for Hands<'_, R> {
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
        ask(self.0, Call::Yield()) == Ok(1)
    }
}

impl<R: Ring> Patience for Hands<'_, R> {
    fn give_way(&self) {
        let _ = ask(self.0, Call::Yield());
    }
}

fn ask<R: Ring>(ring: &R, what: Call<'_>) -> Result<u64, Errno> {
    let mut text = Buffer::default();
    let (number, args) = what.encode(|said| text.hold(said));
    call::decode_answer(ring.call(number, args))
}

/// Pages of a range given in bytes: the first and their number, if the kernel will not refuse it at once.
fn pages(addr: u64, len: u64) -> Option<(u64, u64)> {
    range(addr, len).map(|(start, pages)| (start.0, pages)).ok()
}

impl<'w, R: Ring> UserOs<'w, R> {
    /// The view of a task that begins to live.
    pub fn new<P>(world: &'w World<P>, ring: &'w R, start: TaskStart) -> UserOs<'w, R> {
        let watch = world
            .checker
            .as_ref()
            .map(|checker| Watch { checker, process: checker.process(start.process, &Hands(ring)) });
        UserOs {
            ring,
            watch,
            start,
            seed: world.seed,
            cpus: world.cpus,
            memory: world.memory,
            transfer: Buffer::default(),
            accesses: 0,
            progress: 0,
            tally: Tally::default(),
        }
    }

    /// The task's last call.
    pub fn exit(self, signal: Option<Signal>) {
        if let Some(Watch { checker, process }) = &self.watch {
            checker.leave(process, &Hands(self.ring));
        }
        let (accesses, progress) = (self.accesses, self.progress);
        let check::Tally { checked, violations } = self.tally;
        let _ = self.ask(Call::Exit(Exit { signal, accesses, progress, checked, violations }));
    }

    /// Tell a reader of the run's numbers something.
    pub fn note(&self, text: &str) {
        self.tell(Tell::Note, text);
    }

    fn ask(&self, what: Call<'_>) -> Result<u64, Errno> {
        ask(self.ring, what)
    }

    fn tell(&self, what: Tell, text: &str) {
        let _ = self.ask(Call::Tell(what, Text::Said(text)));
    }

    fn object(&self, Violation(text): &Violation) {
        if let Some(watch) = &self.watch
            && watch.checker.tells()
        {
            self.tell(Tell::Violation, &format!("task {}, {text}", self.start.task));
        }
    }

    /// Touch words of a page one after the other, from the first on.
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

    /// What a mapping shows, for the checker.
    fn source(&self, watch: &Watch<'_>, map: &Map) -> Result<Source, Errno> {
        match map.source {
            MapSource::Anonymous => Ok(Source::Anonymous),
            MapSource::AnonymousShared => {
                let size = map.len.next_multiple_of(PAGE);
                Ok(Source::File { file: watch.checker.nameless(size), offset: 0, shared: true })
            }
            MapSource::File { fd, offset, shared } => {
                let open = watch.process.file(fd, &Hands(self.ring)).ok_or(Errno::BadF)?;
                Ok(Source::File { file: open.file, offset: offset / PAGE, shared })
            }
        }
    }

    /// A call on a range whose content or rights change: judged neither before it has ended nor while it begins.
    fn changing(
        &self,
        range: Option<(u64, u64)>,
        what: Call<'_>,
        end: impl FnOnce(&mut check::space::Map, check::space::InFlux, bool, &dyn Patience),
    ) -> Result<u64, Errno> {
        let (Some(Watch { process, .. }), Some((start, pages))) = (&self.watch, range) else {
            return self.ask(what);
        };
        let patience = &Hands(self.ring);
        let _held = process.call(patience);
        let flux = process.map(patience).begin_change(start, pages);
        let result = self.ask(what);
        end(&mut process.map(patience), flux, result.is_ok(), patience);
        result
    }

    fn open_for_writing(&self, fd: u32) -> Option<(&Watch<'w>, Open)> {
        let watch = self.watch.as_ref()?;
        let open = watch.process.file(fd, &Hands(self.ring)).filter(|open| open.writable)?;
        Some((watch, open))
    }

    /// The part of the transfer buffer that stands for `[offset, offset + len)` of a file, so that words of the file
    /// are words of the buffer.
    fn transfer(&mut self, offset: u64, len: u64) -> Bytes {
        self.transfer.reserve(offset % 8 + len);
        Bytes { addr: self.transfer.addr() + offset % 8, len }
    }
}

/// The word of the transfer buffer for a position in the file, when the transfer began at `offset`.
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
        let hands = &Hands(self.ring);
        let mut touch = Touch { memory: hands, patience: hands, tally: &mut self.tally };
        match touch.access(&watch.process, addr, access.mode) {
            Ok(outcome) => outcome,
            Err(violation) => {
                self.object(&violation);
                Ok(())
            }
        }
    }

    fn compute(&mut self, instructions: u64) {
        self.ring.compute(instructions);
    }

    fn call(&mut self, what: Call<'_>) -> Result<u64, Errno> {
        self.ask(what)
    }

    fn mmap(&mut self, map: Map) -> Result<u64, Errno> {
        let range = pages(map.addr.unwrap_or(0), map.len);
        let (Some(watch), Some((start, pages))) = (&self.watch, range) else {
            return self.ask(Call::Mmap(map));
        };
        let (process, patience) = (&watch.process, &Hands(self.ring));
        let source = self.source(watch, &map)?;
        let mut copied = Vec::new();
        if let (Source::File { file, offset, shared: false }, true) = (&source, map.populate || map.locked) {
            copied.extend((0..pages).map(|page| file.page(offset + page).map(Page::before)));
        }
        let _held = process.call(patience);
        let coming = match &source {
            Source::File { file, offset, shared: true } => Some((file.clone(), *offset)),
            _ => None,
        };
        let flux = map.addr.map(|_| process.map(patience).begin_replace(start, pages, coming));
        let result = self.ask(Call::Mmap(map));
        let mut shadow = process.map(patience);
        if let Ok(addr) = result {
            shadow.insert(addr / PAGE, Region::new(addr / PAGE, pages, map.prot, source));
        }
        if let Some(flux) = flux {
            shadow.end_replace(flux, result.is_ok(), patience);
        }
        // Not before: pages that a call is still changing are left out.
        if let Ok(addr) = result {
            let copied = (addr / PAGE..).zip(copied).filter_map(|(page, before)| Some((page, before?)));
            shadow.end_populate(&copied.collect::<Vec<_>>(), patience);
        }
        result
    }

    fn munmap(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        let what = Call::Munmap(addr, len);
        let (Some(Watch { process, .. }), Some((start, pages))) = (&self.watch, pages(addr, len)) else {
            return self.ask(what).map(drop);
        };
        let patience = &Hands(self.ring);
        let _held = process.call(patience);
        let flux = process.map(patience).begin_take(start, pages);
        let result = self.ask(what);
        process.map(patience).end_take(flux, result.is_ok(), patience);
        result.map(drop)
    }

    fn mprotect(&mut self, addr: u64, len: u64, prot: Prot) -> Result<(), Errno> {
        let result =
            self.changing(pages(addr, len), Call::Mprotect(addr, len, prot), |map, flux, done, p| {
                map.end_protect(flux, prot, done, p)
            });
        result.map(drop)
    }

    fn mremap(&mut self, remap: Remap) -> Result<u64, Errno> {
        let what = Call::Mremap(remap);
        let ranges = pages(remap.addr, remap.old_len).zip(pages(remap.fixed.unwrap_or(0), remap.new_len));
        let (Some(Watch { process, .. }), Some(((start, old), (to, new)))) = (&self.watch, ranges) else {
            return self.ask(what);
        };
        let patience = &Hands(self.ring);
        let _held = process.call(patience);
        let (from, there) = {
            let mut map = process.map(patience);
            let coming = map.find(start).region.and_then(|(region, at)| region.shared(at));
            (map.begin_take(start, old), remap.fixed.map(|_| map.begin_replace(to, new, coming)))
        };
        let result = self.ask(what);
        let mut map = process.map(patience);
        match result {
            Ok(addr) => map.end_move(from, addr / PAGE, new, patience),
            Err(_) => map.end_take(from, false, patience),
        }
        if let Some(there) = there {
            map.end_replace(there, result.is_ok(), patience);
        }
        result
    }

    fn madvise(&mut self, addr: u64, len: u64, advice: Advice) -> Result<(), Errno> {
        let what = Call::Madvise(addr, len, advice);
        let forget = advice.forgets();
        if forget == Forget::Not {
            return self.ask(what).map(drop);
        }
        let result = self.changing(pages(addr, len), what, |map, flux, done, patience| {
            map.end_forget(flux, if done { forget } else { Forget::Perhaps }, patience)
        });
        result.map(drop)
    }

    fn mlock(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        let what = Call::Mlock(addr, len, true);
        let (Some(Watch { process, .. }), Some((start, pages))) = (&self.watch, pages(addr, len)) else {
            return self.ask(what).map(drop);
        };
        let patience = &Hands(self.ring);
        let _held = process.call(patience);
        let before = process.map(patience).begin_populate(start, pages);
        let result = self.ask(what);
        process.map(patience).end_populate(&before, patience);
        result.map(drop)
    }

    fn open(&mut self, spec: FileSpec<'_>) -> Result<u32, Errno> {
        let FileSpec { name, size, in_memory, writable } = spec;
        let call = Call::Open(Text::Said(name), size, in_memory, writable);
        let (fd, number) = unpair(self.ask(call)?);
        if let Some(Watch { checker, process }) = &self.watch {
            let patience = &Hands(self.ring);
            let file = checker.file(number, size, patience);
            process.set_file(fd, Some(Open { file, writable }), patience);
        }
        Ok(fd)
    }

    fn close(&mut self, fd: u32) -> Result<(), Errno> {
        // Forgotten first: the next to open may get the same descriptor at once.
        let known = self.watch.as_ref().and_then(|watch| {
            let open = watch.process.file(fd, &Hands(self.ring))?;
            watch.process.set_file(fd, None, &Hands(self.ring));
            Some((watch, open))
        });
        let result = self.ask(Call::Close(fd));
        if let (Some((watch, open)), Err(_)) = (known, result) {
            watch.process.set_file(fd, Some(open), &Hands(self.ring));
        }
        result.map(drop)
    }

    fn pread(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        let buffer = self.transfer(offset, len.min(LARGEST_TRANSFER));
        let what = Call::Pread(fd, offset, buffer);
        let open = self.watch.as_ref().and_then(|watch| watch.process.file(fd, &Hands(self.ring)));
        let Some(Open { file, .. }) = open else { return self.ask(what) };
        let reading = Reading::begin(&file, offset, buffer.len);
        let got = self.ask(what)?;
        let word = |at| self.transfer.word(word_at(offset, at));
        if let Err(violation) = reading.end(offset, got, word, &mut self.tally) {
            self.object(&violation);
        }
        Ok(got)
    }

    fn pwrite(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        let len = len.min(LARGEST_TRANSFER);
        if self.open_for_writing(fd).is_none() || len == 0 || offset.checked_add(len + PAGE).is_none() {
            let buffer = self.transfer(offset, len);
            return self.ask(Call::Pwrite(fd, offset, buffer));
        }
        let (from, more) = whole_stamps(offset, len);
        let buffer = self.transfer(from, more);
        let Some((_, Open { file, .. })) = self.open_for_writing(fd) else { return Err(Errno::BadF) };
        let patience = &Hands(self.ring);
        file.ensure(from + more);
        let held = file.change(patience);
        let writing = Writing::begin(&file, from, more, patience, |at, word| {
            self.transfer.set_word(word_at(from, at), word);
        });
        let result = self.ask(Call::Pwrite(fd, from, buffer));
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
            return self.ask(what).map(drop);
        };
        let patience = &Hands(self.ring);
        let held = file.change(patience);
        let cut = file.begin_cut(size, &held);
        if cut.is_none() {
            // Others may touch the new pages before the call has returned here.
            file.ensure(size);
        }
        let result = self.ask(what);
        match cut {
            Some(cut) => watch.checker.end_cut(&file, cut, result.is_ok(), patience),
            None if result.is_ok() => file.set_size(size, &held),
            None => {}
        }
        result.map(drop)
    }

    fn spawn(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        if let Some(watch) = &self.watch {
            watch.process.enter();
        }
        let result = self.ask(Call::Spawn(role));
        if let (Some(Watch { checker, process }), Err(_)) = (&self.watch, result) {
            checker.leave(process, &Hands(self.ring));
        }
        result.map(|task| TaskHandle(task as u32))
    }

    fn fork(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        let Some(Watch { checker, process }) = &self.watch else {
            return self.ask(Call::Fork(role)).map(|pair| TaskHandle(unpair(pair).0));
        };
        let patience = &Hands(self.ring);
        let _held = process.forking(patience);
        let begun = process.map(patience).begin_fork();
        let (task, child) = unpair(self.ask(Call::Fork(role))?);
        checker.fork(process, child, &begun, patience);
        Ok(TaskHandle(task))
    }

    fn now(&self) -> u64 {
        self.ask(Call::Now()).unwrap_or(0)
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn memory(&self) -> u64 {
        self.memory
    }

    fn seed(&self) -> u64 {
        program::rng::task_seed(self.seed, self.start.task)
    }

    fn progress(&mut self, units: u64) {
        self.progress += units;
    }
}
