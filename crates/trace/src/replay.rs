//! A trace as a program.
//!
//! Each recorded thread is a role, and each task replays the events of its thread in their order, with the
//! mappings at the addresses that they had. Between threads of a process, order is kept where it matters for
//! correctness (see [`crate::event`]): change *e* of the address space is made after change *e - 1*; what a
//! thread did after it had seen change *e* comes after it; and a change that takes something away waits until
//! every other thread of the process has come to the point where it saw that change. Where the kernel made one thread
//! wait for another (a futex, a pipe, a socket, the end of a thread), it waits until that one has come to the same
//! point again. Waiting is done by short sleeps, because [`Os`] has nothing finer that fits; they are idle time,
//! never work.
//!
//! Nothing else is ordered: accesses of two threads between such points come in any order, also if the program ordered
//! them in memory of its own (spinning, atomics, a lock that was free).
//!
//! A recording can be imperfect, so an access that raises SIGSEGV or SIGBUS and a call that fails are counted in
//! [`Outcome`] and the replay goes on; [`Signal::Kill`] ends the task. After a run, ask [`Replay::outcome`].

use abi::{Call, Errno, Group, GroupLimits};
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use alloc::{format, vec};
use core::sync::atomic::{AtomicU64, Ordering};
use program::{Access, FileSpec, Os, Program, Role, Signal, TaskHandle};
use spin::Mutex;

use crate::event::{Event, FileId, PAGE_SHIFT, Run, ThreadId};
use crate::header::{FileInfo, Header, Place};
use crate::source::{Events, Source};

/// First nap of a waiting task in nanoseconds, and the longest.
const NAP: (u64, u64) = (1_000, 64_000);
/// Accesses after which progress is reported.
const PROGRESS: u64 = 4096;
/// A thread that runs no more, or not yet, has seen every change.
const ENDED: u64 = u64::MAX;

/// What a thread waits for.
#[derive(Clone, Copy)]
enum Wait {
    /// Change `epoch` of the process is made.
    Made { process: usize, epoch: u64 },
    /// All threads of the process but this one have come to where they saw change `epoch`.
    Seen { process: usize, epoch: u64, by: u32 },
    /// The thread has ended.
    End(u32),
    /// The thread has come to its mark.
    Mark { thread: u32, mark: u64 },
}

/// The waiting threads. If every live thread waits, and none of them for something that has come, nothing can come
/// any more.
#[derive(Default)]
struct Waits {
    live: usize,
    waiting: BTreeMap<u32, Wait>,
}

/// What happened in a run besides what was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Accesses that were replayed.
    pub accesses: u64,
    /// Accesses that raised SIGSEGV or SIGBUS and were left out: 0 if the recording is perfect.
    pub skipped: u64,
    /// The first of them: the thread and the address.
    pub first_skipped: Option<(ThreadId, u64)>,
    /// Calls that had succeeded when recorded and failed now.
    pub failed_calls: u64,
    /// The first of them: the thread, the call and the error.
    pub first_failed: Option<(ThreadId, &'static str, Errno)>,
    /// Times that a thread was to wait for what could not come any more, and went on.
    pub unordered: u64,
    /// Threads that the system killed.
    pub killed: u64,
    /// The trace could not be read on (the file changed under the run): the run is void.
    pub broken: Option<String>,
}

impl Outcome {
    /// Add what happened to another thread.
    fn add(&mut self, other: &Outcome) {
        self.accesses += other.accesses;
        self.skipped += other.skipped;
        self.first_skipped = self.first_skipped.or(other.first_skipped);
        self.failed_calls += other.failed_calls;
        self.first_failed = self.first_failed.or(other.first_failed);
        self.unordered += other.unordered;
        self.killed += other.killed;
        if self.broken.is_none() {
            self.broken.clone_from(&other.broken);
        }
    }

    /// What a reader of the run's numbers should know, a sentence each. That the trace is broken is none of them.
    pub fn notes(&self) -> Vec<String> {
        let skipped = self.first_skipped.map(|(thread, addr)| {
            format!(
                "{} of the trace's accesses touched memory that was not mapped and were left out (first: thread {}, address \
                 {addr:#x})",
                self.skipped, thread.0
            )
        });
        let failed = self.first_failed.map(|(thread, call, errno)| {
            format!(
                "{} system calls of the trace failed (first: {call} of thread {}: {errno:?})",
                self.failed_calls, thread.0
            )
        });
        let unordered = (self.unordered > 0).then(|| {
            format!(
                "{} times a thread of the trace was to wait for another that never came there, and went on",
                self.unordered
            )
        });
        skipped.into_iter().chain(failed).chain(unordered).collect()
    }
}

/// A trace as a program. One run at a time: its state is reset when role 0 starts. Use clones for parallel runs; they
/// share the open file.
pub struct Replay<S> {
    source: S,
    name: String,
    /// By thread: the latest change that it has come to; [`ENDED`] if it does not run.
    seen: Vec<AtomicU64>,
    /// By thread: the marks that it has come to; [`ENDED`] if it has ended.
    marks: Vec<AtomicU64>,
    /// By process: the latest change that is made.
    done: Vec<AtomicU64>,
    /// By process: its threads.
    members: Vec<Vec<u32>>,
    /// By process: its descriptors.
    open: Mutex<Vec<Descriptors>>,
    /// By the number that the trace gives them: control groups.
    groups: Mutex<BTreeMap<Group, Group>>,
    /// By thread.
    outcomes: Vec<Mutex<Outcome>>,
    waits: Mutex<Waits>,
}

type Descriptors = BTreeMap<FileId, Descriptor>;

/// A file that a process has open, with the number of times that the recorded process had it open.
#[derive(Clone, Copy)]
struct Descriptor {
    fd: u32,
    uses: u32,
}

#[cfg(feature = "std")]
impl Replay<crate::Reader> {
    /// Open a trace and check all of it, so that nothing can be wrong with it in the middle of a run.
    pub fn open(path: &std::path::Path) -> Result<Self, crate::TraceError> {
        let reader = crate::Reader::open(path)?;
        reader.verify()?;
        let name =
            path.file_stem().map_or_else(|| "trace".into(), |stem| stem.to_string_lossy().into_owned());
        Ok(Replay::new(reader, name))
    }
}

impl<S: Source> Replay<S> {
    /// Replay an open trace under a name of one's own.
    pub fn new(source: S, name: String) -> Self {
        let header = source.header();
        let mut members = vec![Vec::new(); header.processes.len()];
        for (index, thread) in header.threads.iter().enumerate() {
            members[thread.process as usize].push(index as u32);
        }
        Replay {
            seen: header.threads.iter().map(|_| AtomicU64::new(ENDED)).collect(),
            marks: header.threads.iter().map(|_| AtomicU64::new(0)).collect(),
            done: header.processes.iter().map(|_| AtomicU64::new(0)).collect(),
            members,
            open: Mutex::new(vec![BTreeMap::new(); header.processes.len()]),
            groups: Mutex::default(),
            outcomes: header.threads.iter().map(|_| Mutex::default()).collect(),
            waits: Mutex::default(),
            source,
            name,
        }
    }

    /// What the trace says about itself.
    pub fn header(&self) -> &Header {
        self.source.header()
    }

    /// The trace.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// What happened in the last run, to all threads.
    pub fn outcome(&self) -> Outcome {
        let mut sum = Outcome::default();
        self.outcomes.iter().for_each(|outcome| sum.add(&outcome.lock()));
        sum
    }

    /// What a reader of the last run's numbers should know of one thread, in one line: what went otherwise, and
    /// whether the trace is broken.
    pub fn note_of(&self, thread: ThreadId) -> Option<String> {
        let outcome = self.outcomes.get(thread.0 as usize)?.lock();
        let broken = outcome.broken.iter().map(|why| format!("thread {} of the trace: {why}", thread.0));
        let notes: Vec<String> = outcome.notes().into_iter().chain(broken).collect();
        (!notes.is_empty()).then(|| notes.join("; "))
    }

    /// The files that were there before the program began. The others it made itself, or found empty.
    pub fn files(&self) -> impl Iterator<Item = FileSpec<'_>> {
        self.header().files.iter().filter(|file| file.size > 0).map(spec)
    }

    fn begin(&self) {
        self.seen.iter().for_each(|seen| seen.store(ENDED, Ordering::Relaxed));
        self.marks.iter().for_each(|marks| marks.store(0, Ordering::Relaxed));
        self.done.iter().for_each(|done| done.store(0, Ordering::Relaxed));
        self.open.lock().iter_mut().for_each(BTreeMap::clear);
        self.groups.lock().clear();
        self.outcomes.iter().for_each(|outcome| *outcome.lock() = Outcome::default());
        *self.waits.lock() = Waits { live: 1, waiting: BTreeMap::new() };
    }

    /// Whether the event that is waited for has come.
    fn has_come(&self, wait: Wait) -> bool {
        let seen = |thread: u32| self.seen[thread as usize].load(Ordering::Acquire);
        match wait {
            Wait::Made { process, epoch } => self.done[process].load(Ordering::Acquire) >= epoch,
            Wait::Seen { process, epoch, by } => self.members[process]
                .iter()
                .filter(|&&thread| thread != by)
                .all(|&thread| seen(thread) >= epoch),
            Wait::End(thread) => seen(thread) == ENDED,
            Wait::Mark { thread, mark } => {
                self.marks.get(thread as usize).is_none_or(|marks| marks.load(Ordering::Acquire) >= mark)
            }
        }
    }

    /// Note that the thread waits. Returns whether the event can still come. A thread that waits for a mark gives up
    /// before others do: the thread with that mark may never have been started, because the system killed the one
    /// that would have started it.
    fn may_come(&self, thread: ThreadId, wait: Wait) -> bool {
        let is_mark = |wait: &Wait| matches!(wait, Wait::Mark { .. });
        let mut waits = self.waits.lock();
        waits.waiting.insert(thread.0, wait);
        waits.waiting.len() < waits.live
            || waits.waiting.values().any(|other| self.has_come(*other) || is_mark(other) && !is_mark(&wait))
    }

    /// The thread waits no more.
    fn goes_on(&self, thread: ThreadId) {
        self.waits.lock().waiting.remove(&thread.0);
    }
}

impl<S: Source + Clone> Clone for Replay<S> {
    fn clone(&self) -> Self {
        Replay::new(self.source.clone(), self.name.clone())
    }
}

impl<S: Source> Program for Replay<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn footprint(&self) -> u64 {
        self.header().footprint
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        let Some(thread) = self.header().threads.get(role as usize) else { return Ok(()) };
        if role == 0 {
            self.begin();
            self.seen[0].store(0, Ordering::Release);
        }
        let mut task = Task {
            replay: self,
            os,
            id: ThreadId(role),
            process: thread.process as usize,
            stream: self.source.stream(ThreadId(role)),
            children: Vec::new(),
            accesses: 0,
            reported: 0,
            stuck: false,
        };
        if self.members[task.process].first() == Some(&role) {
            task.tell_first_contents();
        }
        let result = task.run();
        task.end(result.is_err());
        result
    }
}

/// How the replay opens a file.
fn spec(file: &FileInfo) -> FileSpec<'_> {
    let in_memory = file.place == Place::Memory;
    FileSpec { name: &file.name, size: file.size, in_memory, writable: true }
}

/// One thread being replayed.
struct Task<'a, O, S: Source + 'a> {
    replay: &'a Replay<S>,
    os: &'a mut O,
    id: ThreadId,
    process: usize,
    stream: S::Stream<'a>,
    children: Vec<(ThreadId, TaskHandle)>,
    accesses: u64,
    reported: u64,
    /// It waits for what cannot come.
    stuck: bool,
}

impl<O: Os, S: Source> Task<'_, O, S> {
    fn run(&mut self) -> Result<(), Signal> {
        while !self.stuck {
            match self.stream.next_event() {
                Ok(Some(Event::Run(run))) => self.touch(run)?,
                Ok(Some(event)) => self.act(event),
                Ok(None) => return Ok(()),
                Err(error) => {
                    self.outcome().broken = Some(error.to_string());
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Tell what pages of the process will hold: the trace tells it only once they do, perhaps after they were evicted.
    fn tell_first_contents(&mut self) {
        for (page, packed) in self.replay.source.first_contents(self.process as u32) {
            self.os.first_content(page << PAGE_SHIFT, packed);
        }
    }

    #[inline]
    fn touch(&mut self, run: Run) -> Result<(), Signal> {
        match self.os.access(Access { addr: run.page << PAGE_SHIFT, count: run.count, mode: run.mode }) {
            Ok(()) => self.accesses += u64::from(run.count),
            Err(Signal::Kill) => return Err(Signal::Kill),
            Err(Signal::Segv { addr } | Signal::Bus { addr }) => self.skip(addr, run.count),
        }
        if self.accesses - self.reported >= PROGRESS {
            self.report();
        }
        Ok(())
    }

    #[cold]
    fn skip(&mut self, addr: u64, count: u32) {
        let mut outcome = self.outcome();
        outcome.skipped += u64::from(count);
        outcome.first_skipped.get_or_insert((self.id, addr));
    }

    /// What has happened to this thread.
    fn outcome(&self) -> spin::MutexGuard<'_, Outcome> {
        self.replay.outcomes[self.id.0 as usize].lock()
    }

    fn report(&mut self) {
        self.os.progress(self.accesses - self.reported);
        self.reported = self.accesses;
    }

    /// The task ends: no thread has to wait for it any more.
    fn end(&mut self, killed: bool) {
        self.report();
        self.replay.seen[self.id.0 as usize].store(ENDED, Ordering::Release);
        self.replay.marks[self.id.0 as usize].store(ENDED, Ordering::Release);
        self.replay.waits.lock().live -= 1;
        let mut outcome = self.outcome();
        outcome.accesses += self.accesses;
        outcome.killed += u64::from(killed);
    }

    /// Everything but runs.
    fn act(&mut self, event: Event) {
        match event {
            Event::Compute { instructions } => self.os.compute(instructions),
            Event::Idle { nanos } => self.os.sleep(nanos),
            Event::Sync { epoch } => self.wait_made(epoch),
            Event::Mark => {
                self.replay.marks[self.id.0 as usize].fetch_add(1, Ordering::AcqRel);
            }
            Event::After { thread, mark } => self.wait(Wait::Mark { thread: thread.0, mark }),
            Event::Call { epoch, call, value } => self.change(epoch, event.takes_away(), Some((call, value))),
            Event::Skip { epoch } => self.change(epoch, false, None),
            Event::Content { page, packed } => self.os.content(page << PAGE_SHIFT, packed),
            Event::Run(_) | Event::Exec => {}
        }
    }

    /// A call, in its turn if it is a change of the address space; `None`: the change failed when it was recorded.
    fn change(&mut self, epoch: u64, takes_away: bool, call: Option<(Call<'static>, u64)>) {
        let ordered = epoch != 0 && epoch <= self.replay.header().processes[self.process].epochs;
        if ordered {
            self.wait_made(epoch - 1);
            self.saw(epoch);
            if takes_away {
                self.wait(Wait::Seen { process: self.process, epoch, by: self.id.0 });
            }
        }
        if self.stuck {
            return;
        }
        if let Some((call, value)) = call {
            self.call(call, value);
        }
        if ordered {
            self.replay.done[self.process].store(epoch, Ordering::Release);
        }
    }

    fn saw(&self, epoch: u64) {
        self.replay.seen[self.id.0 as usize].fetch_max(epoch, Ordering::AcqRel);
    }

    /// Wait until change `epoch` is made.
    fn wait_made(&mut self, epoch: u64) {
        // A recording that was cut off may lack changes; what cannot come is not waited for.
        let epoch = epoch.min(self.replay.header().processes[self.process].epochs);
        self.saw(epoch);
        self.wait(Wait::Made { process: self.process, epoch });
    }

    /// Wait until it has come, unless it cannot.
    fn wait(&mut self, wait: Wait) {
        let (mut nap, longest) = NAP;
        while !self.stuck && !self.replay.has_come(wait) {
            if !self.replay.may_come(self.id, wait) {
                if let Wait::Mark { .. } = wait {
                    self.outcome().unordered += 1;
                    break;
                }
                self.stuck = true;
                // Others wait in vain for a thread that the system killed.
                if self.replay.outcome().killed > 0 {
                    break;
                }
                let name = &self.replay.name;
                let why = alloc::format!(
                    "{name}: threads of this trace wait for each other without end; record it again"
                );
                self.outcome().broken = Some(why);
                break;
            }
            self.os.sleep(nap);
            nap = (nap * 2).min(longest);
        }
        self.replay.goes_on(self.id);
    }

    /// A system call that returned `value` when it was recorded.
    fn call(&mut self, call: Call<'static>, value: u64) {
        if let Err(errno) = self.make(call, value) {
            let mut outcome = self.outcome();
            outcome.failed_calls += 1;
            outcome.first_failed.get_or_insert((self.id, call.name(), errno));
        }
    }

    fn make(&mut self, mut call: Call<'static>, value: u64) -> Result<(), Errno> {
        match &mut call {
            Call::Open(..) => return self.descriptor(FileId(value as u32), 1).map(drop),
            Call::Close(fd) => return self.close(FileId(*fd)),
            Call::Spawn(role) => return self.spawn(ThreadId(*role)),
            Call::Fork(role) => return self.fork(ThreadId(*role)),
            Call::Join(task) => return self.join(ThreadId(*task)),
            Call::GroupCreate(parent, limits) => {
                return self.group_create(Group(value as u32), *parent, *limits);
            }
            Call::Mmap(map) => map.addr = Some(value),
            Call::Mremap(remap) => {
                remap.fixed = (value != remap.addr).then_some(value);
                remap.may_move = remap.fixed.is_some();
            }
            _ => {}
        }
        if let Some(fd) = call.fd_mut() {
            *fd = self.descriptor(FileId(*fd), 0)?;
        }
        if let Some(group) = call.group_mut() {
            *group = self.group(*group)?;
        }
        let got = self.os.make(call)?;
        if matches!(call, Call::Mmap(_)) && got != value { Err(Errno::Inval) } else { Ok(()) }
    }

    /// The process's descriptor of `file`, opened if need be, with `uses` more uses.
    fn descriptor(&mut self, file: FileId, uses: u32) -> Result<u32, Errno> {
        if let Some(known) = self.replay.open.lock()[self.process].get_mut(&file) {
            known.uses = known.uses.saturating_add(uses);
            return Ok(known.fd);
        }
        let info = self.replay.header().file(file).ok_or(Errno::NoEnt)?;
        let fd = self.os.open(spec(info))?;
        self.replay.open.lock()[self.process].insert(file, Descriptor { fd, uses });
        Ok(fd)
    }

    /// One use less; the last one closes. Descriptors that were there before the recording have no uses.
    fn close(&mut self, file: FileId) -> Result<(), Errno> {
        let last = {
            let mut open = self.replay.open.lock();
            let Some(known) = open[self.process].get_mut(&file) else { return Ok(()) };
            known.uses = known.uses.saturating_sub(1);
            if known.uses > 0 {
                return Ok(());
            }
            let fd = known.fd;
            open[self.process].remove(&file);
            fd
        };
        self.os.close(last)
    }

    /// The machine's number of a group of the trace.
    fn group(&self, group: Group) -> Result<Group, Errno> {
        match group {
            Group::ROOT => Ok(group),
            group => self.replay.groups.lock().get(&group).copied().ok_or(Errno::NoEnt),
        }
    }

    fn group_create(&mut self, group: Group, parent: Group, limits: GroupLimits) -> Result<(), Errno> {
        let made = self.group(parent).and_then(|parent| self.os.group_create(parent, limits))?;
        self.replay.groups.lock().insert(group, made);
        Ok(())
    }

    fn spawn(&mut self, thread: ThreadId) -> Result<(), Errno> {
        self.start(thread, 0);
        self.replay.waits.lock().live += 1;
        let task = self.os.spawn(thread.0);
        self.started(thread, task)
    }

    fn fork(&mut self, thread: ThreadId) -> Result<(), Errno> {
        if let Some(child) = self.replay.header().threads.get(thread.0 as usize) {
            let mut open = self.replay.open.lock();
            open[child.process as usize] = open[self.process].clone();
        }
        self.start(thread, 0);
        self.replay.waits.lock().live += 1;
        let task = self.os.fork(thread.0);
        self.started(thread, task)
    }

    fn start(&self, thread: ThreadId, epoch: u64) {
        if let Some(seen) = self.replay.seen.get(thread.0 as usize) {
            seen.store(epoch, Ordering::Release);
        }
    }

    fn started(&mut self, thread: ThreadId, task: Result<TaskHandle, Errno>) -> Result<(), Errno> {
        match task {
            Ok(handle) => self.children.push((thread, handle)),
            Err(errno) => {
                self.start(thread, ENDED);
                self.replay.waits.lock().live -= 1;
                return Err(errno);
            }
        }
        Ok(())
    }

    fn join(&mut self, thread: ThreadId) -> Result<(), Errno> {
        if let Some(at) = self.children.iter().position(|&(child, _)| child == thread) {
            let (_, handle) = self.children.swap_remove(at);
            self.replay.waits.lock().waiting.insert(self.id.0, Wait::End(thread.0));
            self.os.join(handle);
            self.replay.goes_on(self.id);
        }
        Ok(())
    }
}
