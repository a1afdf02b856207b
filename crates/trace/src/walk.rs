//! All events of a trace in one order in which they can have happened.
//!
//! Threads have no common clock in a trace. Here each has a clock that counts its accesses; a thread begins at the
//! time of the thread that started it, and a thread that waits for another continues at the time when that one has
//! arrived there, as in a replay. Of the threads that may continue, the one with the smallest clock does. It may be
//! ahead of others by some accesses, so that not every event switches threads.
//!
//! A file can be crafted so that threads wait for something that never comes, or switch without end. If no thread may
//! continue, the one with the smallest clock does anyway; and when threads' frames have been unpacked again more
//! often than is reasonable, each thread continues to its end.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use crate::container::{Reader, Stream};
use crate::error::TraceError;
use crate::event::{Event, ThreadId};
use crate::header::Header;
use abi::Call;

/// A thread that runs no more, or not yet, has seen every change.
const NOT_RUNNING: u64 = u64::MAX;
/// The share of all accesses that a thread may be ahead of others: one in this many.
const AHEAD: u64 = 4096;
/// Threads that keep their unpacked frames: those that went on last. Others unpack theirs again, so that a trace of
/// many threads needs no more memory.
const AWAKE: usize = 64;

/// What a thread waits for.
#[derive(Clone, Copy)]
enum Wait {
    Made(u64),
    /// Its own change, which takes something away, waits until all others have seen it.
    Seen(u64),
    Mark(usize, u64),
    End(usize),
}

/// What happened.
pub(crate) enum What {
    Event(Event),
    /// The thread ended, and was the last of its process or not.
    End {
        last: bool,
    },
}

/// Something that a thread did.
pub(crate) struct Moment {
    pub thread: ThreadId,
    pub process: u32,
    /// The thread's time, before its accesses if these are some.
    pub time: u64,
    pub what: What,
}

struct Thread {
    stream: Stream,
    process: usize,
    time: u64,
    started: bool,
    ended: bool,
    /// The event before which it waits.
    held: Option<Event>,
    /// It is among those that may go on.
    queued: bool,
    /// It goes on although what it waits for has not come.
    forced: bool,
    /// Its frame has to be unpacked again.
    asleep: bool,
    seen: u64,
    marks: u64,
    /// Waiting threads by its mark.
    awaited: BTreeMap<u64, Vec<usize>>,
    /// Threads that wait for its end, or until it has seen a change.
    watchers: Vec<(usize, Wait)>,
}

#[derive(Default)]
struct Process {
    members: Vec<usize>,
    running: usize,
    done: u64,
    /// Waiting threads by change.
    awaited: BTreeMap<u64, Vec<usize>>,
}

/// Goes through a trace.
pub(crate) struct Walk<'a> {
    header: &'a Header,
    threads: Vec<Thread>,
    processes: Vec<Process>,
    ready: BinaryHeap<Reverse<(u64, usize)>>,
    /// The thread that goes on, and until when.
    now: Option<(usize, u64)>,
    ahead: u64,
    /// Time that has passed for all.
    floor: u64,
    /// How often frames may be unpacked again.
    budget: u64,
    /// Threads that have unpacked frames and do not go on now.
    awake: VecDeque<usize>,
}

impl<'a> Walk<'a> {
    pub fn new(reader: &'a Reader) -> Walk<'a> {
        let header = reader.header();
        let thread = |(at, info): (usize, &crate::header::ThreadInfo)| Thread {
            stream: reader.stream(ThreadId(at as u32)),
            process: info.process as usize,
            time: 0,
            started: false,
            ended: false,
            held: None,
            queued: false,
            forced: false,
            asleep: false,
            seen: NOT_RUNNING,
            marks: 0,
            awaited: BTreeMap::new(),
            watchers: Vec::new(),
        };
        let threads: Vec<Thread> = header.threads.iter().enumerate().map(thread).collect();
        let mut processes: Vec<Process> = header.processes.iter().map(|_| Process::default()).collect();
        for (at, thread) in threads.iter().enumerate() {
            processes[thread.process].members.push(at);
        }
        let frames: u64 = header.threads.iter().map(|thread| thread.frames.len() as u64).sum();
        let mut walk = Walk {
            header,
            threads,
            processes,
            ready: BinaryHeap::new(),
            now: None,
            ahead: header.counts().accesses() / AHEAD,
            floor: 0,
            budget: 64 * (frames + header.threads.len() as u64),
            awake: VecDeque::new(),
        };
        walk.start(0, 0);
        walk
    }

    /// Nothing that is still to come is before this time.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// Something is wrong with what this thread did last.
    pub fn damaged(&self, thread: ThreadId, what: &'static str) -> TraceError {
        self.threads[thread.0 as usize].stream.damaged(what)
    }

    /// What happens next; `None`: that was all.
    pub fn next(&mut self) -> Result<Option<Moment>, TraceError> {
        loop {
            let Some((at, until)) = self.now.or_else(|| self.choose()) else { return Ok(None) };
            self.now = Some((at, until));
            let thread = &mut self.threads[at];
            let (time, process) = (thread.time, thread.process as u32);
            if time > until {
                self.leave(at);
                self.queue(at);
                continue;
            }
            let event = match thread.held.take() {
                Some(event) => Some(event),
                None => thread.stream.next_event()?,
            };
            let forced = std::mem::take(&mut thread.forced);
            let what = match event {
                Some(event) if !forced && self.waits(at, &event) => {
                    self.threads[at].held = Some(event);
                    self.leave(at);
                    continue;
                }
                Some(event) => {
                    self.pass(at, &event);
                    What::Event(event)
                }
                None => What::End { last: self.end(at) },
            };
            return Ok(Some(Moment { thread: ThreadId(at as u32), process, time, what }));
        }
    }

    /// The thread whose turn it is.
    fn choose(&mut self) -> Option<(usize, u64)> {
        let at = match self.ready.pop() {
            Some(Reverse((_, at))) => at,
            None => self.insist()?,
        };
        self.awake.retain(|&awake| awake != at);
        let thread = &mut self.threads[at];
        assert!(!thread.ended, "thread {at} must not run after its end");
        thread.queued = false;
        self.floor = self.floor.max(thread.time);
        if std::mem::take(&mut thread.asleep) {
            self.budget = self.budget.saturating_sub(1);
        }
        let next = self.ready.peek().map_or(u64::MAX, |Reverse((time, _))| *time);
        Some((at, if self.budget == 0 { u64::MAX } else { next.saturating_add(self.ahead) }))
    }

    /// No thread may continue: let a waiting one continue anyway, or start one that was never started.
    fn insist(&mut self) -> Option<usize> {
        let waiting = (0..self.threads.len()).filter(|&at| self.threads[at].held.is_some());
        if let Some(at) = waiting.min_by_key(|&at| self.threads[at].time) {
            self.threads[at].forced = true;
            return Some(at);
        }
        let at = self.threads.iter().position(|thread| !thread.started)?;
        self.start(at, self.floor);
        self.ready.pop().map(|Reverse((_, at))| at)
    }

    /// Another thread's turn comes.
    fn leave(&mut self, at: usize) {
        self.now = None;
        self.awake.push_back(at);
        if self.awake.len() > AWAKE
            && let Some(longest) = self.awake.pop_front()
        {
            self.threads[longest].asleep = true;
            self.threads[longest].stream.rest();
        }
    }

    /// The thread may go on.
    fn queue(&mut self, at: usize) {
        let time = self.threads[at].time;
        let queued = std::mem::replace(&mut self.threads[at].queued, true);
        assert!(!queued, "thread {at} must not be queued twice");
        self.ready.push(Reverse((time, at)));
        if let Some((_, until)) = &mut self.now
            && self.budget > 0
        {
            *until = time.saturating_add(self.ahead).min(*until);
        }
    }

    fn start(&mut self, at: usize, time: u64) {
        let Some(thread) = self.threads.get_mut(at).filter(|thread| !thread.started) else { return };
        (thread.started, thread.time, thread.seen) = (true, time, 0);
        self.processes[thread.process].running += 1;
        self.queue(at);
    }

    /// Whether the thread must wait before this event.
    fn waits(&mut self, at: usize, event: &Event) -> bool {
        let process = self.threads[at].process;
        let epochs = self.header.processes[process].epochs;
        let wait = match *event {
            Event::Sync { epoch } => {
                self.saw(at, epoch.min(epochs));
                Wait::Made(epoch.min(epochs))
            }
            Event::After { thread, mark } => Wait::Mark(thread.0 as usize, mark),
            Event::Call { call: Call::Join(task), .. } => Wait::End(task as usize),
            _ => match event.epoch() {
                Some(epoch) if epoch <= epochs => {
                    if self.register(at, Wait::Made(epoch - 1)) {
                        return true;
                    }
                    self.saw(at, epoch);
                    if !event.takes_away() {
                        return false;
                    }
                    Wait::Seen(epoch)
                }
                _ => return false,
            },
        };
        self.register(at, wait)
    }

    /// Note what a thread waits for. `false`: it has come, or threads no longer wait.
    fn register(&mut self, at: usize, wait: Wait) -> bool {
        if self.budget == 0 {
            return false;
        }
        let process = self.threads[at].process;
        match wait {
            Wait::Made(epoch) if self.processes[process].done < epoch => {
                self.processes[process].awaited.entry(epoch).or_default().push(at);
            }
            Wait::Mark(other, mark) if self.threads.get(other).is_some_and(|other| other.marks < mark) => {
                self.threads[other].awaited.entry(mark).or_default().push(at);
            }
            Wait::End(other)
                if self.threads.get(other).is_some_and(|other| other.started && !other.ended) =>
            {
                self.threads[other].watchers.push((at, wait));
            }
            Wait::Seen(epoch) => {
                let behind = |&&other: &&usize| other != at && self.threads[other].seen < epoch;
                let Some(&other) = self.processes[process].members.iter().find(behind) else { return false };
                self.threads[other].watchers.push((at, wait));
            }
            _ => return false,
        }
        true
    }

    /// The thread has seen a change.
    fn saw(&mut self, at: usize, epoch: u64) {
        self.threads[at].seen = self.threads[at].seen.max(epoch);
        let watchers = std::mem::take(&mut self.threads[at].watchers);
        for (waiter, wait) in watchers {
            if !self.register(waiter, wait) {
                self.release(waiter, at);
            }
        }
    }

    /// What a thread waited for has come, by another.
    fn release(&mut self, waiter: usize, by: usize) {
        let time = self.threads[by].time;
        let thread = &mut self.threads[waiter];
        // A thread that was made to continue does not wait any more, or waits for something else: then it checks
        // again.
        if thread.held.is_some() && !thread.queued {
            thread.time = thread.time.max(time);
            self.queue(waiter);
        }
    }

    /// The event happens.
    fn pass(&mut self, at: usize, event: &Event) {
        match *event {
            Event::Run(run) => {
                let time = &mut self.threads[at].time;
                *time = time.saturating_add(run.count.into());
                return;
            }
            Event::Mark => {
                self.threads[at].marks += 1;
                self.marked(at);
            }
            _ => {}
        }
        if let Some(thread) = event.starts() {
            self.start(thread.0 as usize, self.threads[at].time);
        }
        let process = self.threads[at].process;
        if let Some(epoch) = event.epoch().filter(|&epoch| epoch <= self.header.processes[process].epochs) {
            let state = &mut self.processes[process];
            state.done = state.done.max(epoch);
            let later = state.awaited.split_off(&(state.done + 1));
            let come = std::mem::replace(&mut state.awaited, later);
            come.into_values().flatten().for_each(|waiter| self.release(waiter, at));
        }
    }

    /// Let threads continue that wait for marks which the thread has reached.
    fn marked(&mut self, at: usize) {
        let thread = &mut self.threads[at];
        let later = match thread.marks.checked_add(1) {
            Some(next) => thread.awaited.split_off(&next),
            None => BTreeMap::new(),
        };
        let come = std::mem::replace(&mut thread.awaited, later);
        come.into_values().flatten().for_each(|waiter| self.release(waiter, at));
    }

    /// End the thread. Returns whether it was the last running one of its process.
    fn end(&mut self, at: usize) -> bool {
        self.now = None;
        let thread = &mut self.threads[at];
        assert!(thread.started && !thread.ended, "thread {at} must run to end");
        (thread.ended, thread.marks) = (true, u64::MAX);
        thread.stream.rest();
        self.marked(at);
        self.saw(at, NOT_RUNNING);
        let process = &mut self.processes[self.threads[at].process];
        process.running -= 1;
        process.running == 0
    }
}
