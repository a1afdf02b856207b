//! One thread of the program: its window, its events, its current call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::calls::Call;
use crate::codec::{Encoder, put_varint};
use crate::content::Written;
use crate::event::{Event, PAGE_SHIFT, Run, ThreadId};
use crate::order::{self, Begun};
use crate::raw::{self, Step, kind};
use crate::sample::Sample;
use crate::shared;
use crate::window::Window;
use abi::AccessKind;

/// Bytes of events after which they are written out.
const FLUSH: usize = 256 << 10;
/// Age up to which events may stay unwritten when a call begins that may wait.
const STALE: Duration = Duration::from_millis(50);
/// Instructions after which they are recorded; fewer wait, so that not every run needs a second event.
const GRAIN: u64 = 1024;
/// Most pages that a thread watches for ends of threads: no thread waits for one that ended long ago.
const MOST_WATCHED: usize = 16;
/// The kernel's copies to and from user memory count as one access per this many bytes: a cache line.
const COPY_UNIT: u64 = 64;

/// A system call between its beginning and its return.
pub struct Pending {
    pub call: Call,
    pub args: [u64; 6],
    /// Its number if it is an address-space change, else 0.
    pub epoch: u64,
    /// The file offset when it began, if it uses one.
    pub offset: Option<u64>,
    pub since: Instant,
    /// How tasks may wait for each other through it.
    pub order: Option<Begun>,
}

pub struct Thread {
    stream: u32,
    encoder: Encoder,
    pub window: Window,
    /// Instruction and address of the last load that was not of a page in the window.
    pub loaded: (u64, u64),
    written: Written,
    /// Which pages are recorded.
    pub sample: Sample,
    /// Whether accesses are not recorded yet.
    quiet: bool,
    /// Accesses and instructions that were recorded but not written out.
    accesses: u64,
    told: u64,
    /// When events were last written out.
    flushed: Instant,
    /// Executed but not recorded yet.
    pub instructions: u64,
    /// The last address-space change that this thread has seen.
    pub seen: u64,
    /// The value of `NEWS` at its last look.
    pub news: u64,
    /// Number of ends of threads that it has learned of.
    heard: usize,
    /// The kernel's number of the thread.
    pub tid: u64,
    /// Marks so far, and the steps that are not written out yet.
    pub marks: u64,
    steps: Vec<u8>,
    pub pending: Option<Pending>,
    /// Whether the thread is inside a system-call callback. The end of the process waits for that.
    pub busy: AtomicBool,
}

/// The kernel's number of the calling thread.
fn tid() -> u64 {
    let link = std::fs::read_link("/proc/thread-self").unwrap_or_default();
    let name = link.file_name().and_then(|name| name.to_str()?.parse().ok());
    name.unwrap_or(u64::from(std::process::id()))
}

impl Thread {
    /// Begin the calling thread.
    pub fn begin(window: usize) -> Thread {
        let mut thread = Thread {
            stream: 0,
            encoder: Encoder::default(),
            window: Window::new(window),
            loaded: (0, 0),
            written: Written::new(),
            sample: Sample::new(shared::rule(), shared::with_threads(|threads| threads.places.clone())),
            quiet: shared::QUIET.load(Ordering::Relaxed) > 0,
            accesses: 0,
            told: 0,
            flushed: Instant::now(),
            instructions: 0,
            seen: 0,
            news: 0,
            heard: 0,
            tid: 0,
            marks: 0,
            steps: Vec::new(),
            pending: None,
            busy: AtomicBool::new(false),
        };
        thread.begin_stream();
        thread
    }

    fn begin_stream(&mut self) {
        self.stream = shared::STREAMS.fetch_add(1, Ordering::Relaxed);
        self.tid = tid();
        self.chunk(kind::THREAD, |body| put_varint(body, self.tid));
    }

    /// Whether this is the process's first thread.
    pub fn is_first(&self) -> bool {
        self.stream == 0
    }

    /// Begin a child after `fork`: the parent writes out all earlier events.
    pub fn begin_child(&mut self) {
        self.encoder.clear();
        self.window.drain(drop);
        self.window.watched.clear();
        // What the child has of these pages is what the parent had: the parent looks at them. Unless nothing of them is
        // recorded yet: then the child must write them, too.
        if !self.quiet {
            self.written = Written::new();
        }
        self.instructions = 0;
        (self.seen, self.heard, self.marks) = (0, 0, 0);
        self.steps.clear();
        (self.accesses, self.told) = (0, 0);
        self.begin_stream();
    }

    /// Write a small chunk.
    pub fn chunk(&self, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        raw::put_chunk(&mut out, kind, self.stream, body);
        shared::write(&out);
    }

    /// Count accesses to a page.
    pub fn touch(&mut self, page: u64, mode: AccessKind, count: u32) {
        if let Some(run) = self.window.touch(page, mode, count) {
            if run.count == 0 {
                self.meet(page);
                self.touch(page, mode, count);
            } else {
                self.emit_run(run);
            }
        }
    }

    /// Note that the thread touches a page that another's end has written: it may have waited for that without a call.
    #[cold]
    #[inline(never)]
    fn meet(&mut self, page: u64) {
        self.window.watched.retain(|&watched| watched != page);
        let ended = shared::with_threads(|threads| {
            threads.ended.iter().rev().find(|&&(left, _)| left == page).map(|&(_, tid)| tid)
        });
        if let Some(tid) = ended {
            self.drain();
            order::joined(self, tid);
        }
    }

    #[inline(never)]
    fn emit_run(&mut self, run: Run) {
        if !self.sample.keeps(run.page) {
            return;
        }
        if run.mode == AccessKind::Store {
            self.written.note(run.page);
        }
        if self.quiet {
            return self.pass_quietly();
        }
        self.accesses += u64::from(run.count);
        if self.instructions >= GRAIN {
            self.tell_instructions();
        }
        self.push(&Event::Run(run));
    }

    /// An access that is not recorded. When recording begins, what the thread has written before must be there: a
    /// replay that only read it would find pages of zeroes.
    fn pass_quietly(&mut self) {
        if shared::quietly(std::mem::take(&mut self.instructions)) {
            self.quiet = false;
            let pages = self.written.pages();
            self.write_once(&pages);
        }
    }

    /// These pages are about to be protected from writing: what was written must be recorded before.
    pub fn protects(&mut self, pages: (u64, u64)) {
        if self.quiet {
            let mut pages = self.written.take(pages);
            pages.sort_unstable();
            self.write_once(&pages);
        }
    }

    fn write_once(&mut self, pages: &[u64]) {
        self.accesses += pages.len() as u64;
        for &page in pages {
            self.push(&Event::Run(Run { page, count: 1, mode: AccessKind::Store }));
        }
    }

    fn tell_instructions(&mut self) {
        if self.instructions > 0 {
            let instructions = std::mem::take(&mut self.instructions);
            self.told += instructions;
            self.push(&Event::Compute { instructions });
            if self.written.is_due(instructions) {
                self.look(None);
            }
        }
    }

    /// Look at what the pages of this range hold that the thread has written, or at all of them.
    pub fn look(&mut self, range: Option<(u64, u64)>) {
        let (stream, encoder, written) = (self.stream, &mut self.encoder, &mut self.written);
        written.look(range, |body| {
            if !body.is_empty() {
                let mut out = Vec::with_capacity(encoder.len() + body.len() + 64);
                if !encoder.is_empty() {
                    raw::put_chunk(&mut out, kind::EVENTS, stream, |body| encoder.finish(body));
                }
                raw::put_chunk(&mut out, kind::CONTENT, stream, |out| out.extend_from_slice(body));
                shared::write(&out);
            }
        });
    }

    /// Count the kernel's copy to (`Store`) or from (`Load`) user memory.
    pub fn copied(&mut self, addr: u64, len: u64, mode: AccessKind) {
        let end = addr.saturating_add(len);
        let mut at = addr;
        while at < end {
            let next = ((at >> PAGE_SHIFT) + 1) << PAGE_SHIFT;
            let bytes = next.min(end) - at;
            self.touch(at >> PAGE_SHIFT, mode, bytes.div_ceil(COPY_UNIT) as u32);
            at = next;
        }
    }

    /// Take note of other threads' changes since the last time.
    #[inline]
    pub fn follow(&mut self) {
        let news = shared::NEWS.load(Ordering::Relaxed);
        if news != self.news {
            self.catch_up(news);
        }
    }

    /// Something happened in another thread: earlier accesses must stay before it.
    #[cold]
    #[inline(never)]
    fn catch_up(&mut self, news: u64) {
        self.drain();
        self.news = news;
        let epoch = shared::EPOCH.load(Ordering::Acquire);
        if epoch != self.seen {
            self.seen = epoch;
            self.push(&Event::Sync { epoch });
        }
        let (heard, watched, sample) = (&mut self.heard, &mut self.window.watched, &mut self.sample);
        shared::with_threads(|threads| {
            sample.follow(&threads.places);
            watched.extend(threads.ended[*heard..].iter().map(|&(page, _)| page));
            *heard = threads.ended.len();
        });
        watched.drain(..watched.len().saturating_sub(MOST_WATCHED));
    }

    /// Begin a call through which tasks may wait for each other; returns its number.
    pub fn mark(&mut self) -> u64 {
        self.push(&Event::Mark);
        self.marks += 1;
        self.marks
    }

    /// Note that the call that began at mark `call` has ended and may have waited.
    pub fn after(&mut self, call: u64) {
        self.event(&Event::After { thread: ThreadId(0), mark: call });
    }

    /// Record a call through which tasks wait for each other.
    pub fn step(&mut self, step: &Step) {
        let steps = &mut self.steps;
        step.encode(|number| put_varint(steps, number));
        if steps.len() >= FLUSH {
            self.flush();
        }
    }

    /// Empty the window and record the instructions.
    pub fn drain(&mut self) {
        let Thread { window, encoder, accesses, written, sample, quiet, .. } = self;
        window.drain(|run| {
            if !sample.keeps(run.page) {
                return;
            }
            if run.mode == AccessKind::Store {
                written.note(run.page);
            }
            if !*quiet {
                *accesses += u64::from(run.count);
                encoder.push(&Event::Run(run));
            }
        });
        match self.quiet {
            true => self.pass_quietly(),
            false => self.tell_instructions(),
        }
    }

    /// Add an event after all accesses in the window.
    pub fn event(&mut self, event: &Event) {
        self.drain();
        self.push(event);
    }

    /// Add a call that has changed the address space. The lock is `held`, or not.
    pub fn changed(&mut self, held: bool, event: &Event) {
        self.event(event);
        shared::changed(held, event);
        self.know_places();
    }

    /// Learn of all changes so far. The window must be empty.
    pub fn know_places(&mut self) {
        let sample = &mut self.sample;
        shared::with_threads(|threads| sample.follow(&threads.places));
    }

    fn push(&mut self, event: &Event) {
        self.encoder.push(event);
        if self.encoder.len() >= FLUSH {
            self.flush();
        }
    }

    /// Write out old events, as the thread may be about to wait for long, or for ever, and they should not be lost.
    pub fn rest(&mut self) {
        if self.flushed.elapsed() > STALE {
            self.flush();
        }
    }

    /// Write out all pushed events.
    pub fn flush(&mut self) {
        self.flushed = Instant::now();
        let mut out = Vec::with_capacity(self.encoder.len() + self.steps.len() + 64);
        if !self.encoder.is_empty() {
            raw::put_chunk(&mut out, kind::EVENTS, self.stream, |body| self.encoder.finish(body));
        }
        if self.accesses > 0 {
            let (accesses, told) = (std::mem::take(&mut self.accesses), std::mem::take(&mut self.told));
            raw::put_chunk(&mut out, kind::TALLY, self.stream, |body| {
                [accesses, told, shared::more_cpu_time()]
                    .into_iter()
                    .for_each(|number| put_varint(body, number));
            });
        }
        if !self.steps.is_empty() {
            raw::put_chunk(&mut out, kind::STEPS, self.stream, |body| body.append(&mut self.steps));
        }
        shared::write(&out);
    }

    /// End the thread.
    pub fn end(&mut self) {
        self.drain();
        self.look(None);
        self.flush();
        self.chunk(kind::THREAD_END, |_| ());
    }
}
