//! The queue of tasks that could run, and the lists of those that sleep. All under one lock.
//!
//! Tasks are linked by number, so that nothing here allocates but [`Queue::add`].

use super::task::{BUCKETS, Key, Task};
use crate::arch::cpu::{self, MAX_CPUS};
use alloc::vec::Vec;
use mm::units::{CpuId, Nanos};

/// Where a task is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// What a CPU runs that has nothing to do.
    Idle,
    /// In the queue.
    Ready,
    /// On a CPU.
    Running,
    /// Asleep.
    Blocked(Key),
    /// Over; its place may be given to another.
    Ended,
}

const NONE: u32 = u32::MAX;

struct Entry {
    task: &'static Task,
    state: State,
    /// The next of the list that it is on.
    next: u32,
    deadline: Nanos,
    last_cpu: CpuId,
}

/// See the module.
pub struct Queue {
    entries: Vec<Entry>,
    first: u32,
    last: u32,
    sleepers: [u32; BUCKETS],
    /// Tasks whose places can be used again.
    ended: Vec<&'static Task>,
    /// CPUs that sleep.
    resting: [u64; MAX_CPUS.div_ceil(64)],
}

impl Queue {
    /// No tasks.
    pub const fn new() -> Queue {
        Queue {
            entries: Vec::new(),
            first: NONE,
            last: NONE,
            sleepers: [NONE; BUCKETS],
            ended: Vec::new(),
            resting: [0; MAX_CPUS.div_ceil(64)],
        }
    }

    /// A task is new, or begins anew.
    pub fn add(&mut self, task: &'static Task, state: State, cpu: CpuId) {
        let entry = Entry { task, state, next: NONE, deadline: Nanos::MAX, last_cpu: cpu };
        self.ended.reserve(self.entries.len() + 1);
        match self.entries.get_mut(task.place()) {
            Some(place) => *place = entry,
            None => {
                // Places are given out in order, but may arrive here in another.
                while self.entries.len() < task.place() {
                    let hole =
                        Entry { task, state: State::Ended, next: NONE, deadline: Nanos::MAX, last_cpu: cpu };
                    self.entries.push(hole);
                }
                self.entries.push(entry);
            }
        }
    }

    fn entry(&mut self, task: &Task) -> &mut Entry {
        &mut self.entries[task.place()]
    }

    /// The task is in another state now.
    pub fn set_state(&mut self, task: &Task, state: State) {
        self.entry(task).state = state;
    }

    /// A running task is over. Its place can be used again as soon as the lock is open, which is after it has left its
    /// stack.
    pub fn end(&mut self, task: &'static Task) {
        self.set_state(task, State::Ended);
        self.ended.push(task);
    }

    /// A task that is over, and will not be shown here again.
    pub fn take_ended(&mut self) -> Option<&'static Task> {
        self.ended.pop()
    }

    /// Is somebody ready that may run on `cpu`?
    pub fn has_work_for(&self, cpu: CpuId) -> bool {
        let mut at = self.first;
        while let Some(entry) = self.entries.get(at as usize) {
            if entry.task.may_run_on(cpu) {
                return true;
            }
            at = entry.next;
        }
        false
    }

    /// The first ready task that may run on `cpu` leaves the queue.
    pub fn pop(&mut self, cpu: CpuId) -> Option<&'static Task> {
        let (mut before, mut at) = (NONE, self.first);
        while let Some(entry) = self.entries.get_mut(at as usize) {
            if !entry.task.may_run_on(cpu) {
                (before, at) = (at, entry.next);
                continue;
            }
            let (task, next) = (entry.task, core::mem::replace(&mut entry.next, NONE));
            match before {
                NONE => self.first = next,
                before => self.entries[before as usize].next = next,
            }
            if self.last == at {
                self.last = before;
            }
            return Some(task);
        }
        None
    }

    /// A task comes to the queue's end.
    pub fn push_back(&mut self, task: &Task) {
        let number = task.place() as u32;
        self.entry(task).next = NONE;
        match self.last {
            NONE => self.first = number,
            last => self.entries[last as usize].next = number,
        }
        self.last = number;
    }

    /// A task comes to the queue's head.
    pub fn push_front(&mut self, task: &Task) {
        let first = self.first;
        self.entry(task).next = first;
        self.first = task.place() as u32;
        if self.last == NONE {
            self.last = self.first;
        }
    }

    /// The task that a CPU runs when there is nothing to do.
    pub fn idle_task(&self, cpu: CpuId) -> &'static Task {
        self.entries
            .iter()
            .find(|entry| entry.state == State::Idle && entry.last_cpu == cpu)
            .expect("adopted")
            .task
    }

    /// Is it one of those?
    pub fn is_idle_task(&self, task: &Task) -> bool {
        self.entries[task.place()].state == State::Idle
    }

    // --- CPUs ---

    /// A CPU runs a task.
    pub fn ran_on(&mut self, task: &Task, cpu: CpuId) {
        self.entry(task).last_cpu = cpu;
    }

    /// The CPU that a task ran on last.
    pub fn last_cpu(&self, task: &Task) -> CpuId {
        self.entries[task.place()].last_cpu
    }

    /// A CPU goes to sleep.
    pub fn set_resting(&mut self, cpu: CpuId) {
        self.resting[cpu.index() / 64] |= 1 << (cpu.0 % 64);
    }

    /// A CPU is up again.
    pub fn clear_resting(&mut self, cpu: CpuId) {
        self.resting[cpu.index() / 64] &= !(1 << (cpu.0 % 64));
    }

    fn is_resting(&self, cpu: CpuId) -> bool {
        self.resting[cpu.index() / 64] & 1 << (cpu.0 % 64) != 0
    }

    /// A sleeping CPU for a task, as near as can be to where it ran last; it counts as up from now on.
    pub fn take_resting(&mut self, task: &Task) -> Option<CpuId> {
        if self.resting == [0; MAX_CPUS.div_ceil(64)] {
            return None;
        }
        let last = self.last_cpu(task);
        let home = cpu::all()[last.index()].node();
        let resting = cpu::all().iter().filter(|cpu| self.is_resting(cpu.id()) && task.may_run_on(cpu.id()));
        let nearest = resting.min_by_key(|cpu| (cpu.id() != last, cpu.node() != home, cpu.id()))?.id();
        self.clear_resting(nearest);
        Some(nearest)
    }

    // --- sleepers ---

    /// A task goes to sleep.
    pub fn block(&mut self, task: &Task, key: Key, deadline: Option<Nanos>) {
        let head = core::mem::replace(&mut self.sleepers[key.bucket()], task.place() as u32);
        let entry = self.entry(task);
        entry.state = State::Blocked(key);
        entry.deadline = deadline.unwrap_or(Nanos::MAX);
        entry.next = head;
    }

    /// Take the first sleeper out of a bucket that `wanted` names.
    fn take_from(&mut self, bucket: usize, wanted: impl Fn(&Entry) -> bool) -> Option<&'static Task> {
        let (mut before, mut at) = (NONE, self.sleepers[bucket]);
        while at != NONE {
            let next = self.entries[at as usize].next;
            if wanted(&self.entries[at as usize]) {
                match before {
                    NONE => self.sleepers[bucket] = next,
                    before => self.entries[before as usize].next = next,
                }
                let entry = &mut self.entries[at as usize];
                entry.next = NONE;
                entry.deadline = Nanos::MAX;
                return Some(entry.task);
            }
            (before, at) = (at, next);
        }
        None
    }

    /// Take a task out that sleeps on `key`.
    pub fn take_sleeper(&mut self, key: Key) -> Option<&'static Task> {
        self.take_from(key.bucket(), |entry| entry.state == State::Blocked(key))
    }

    /// Take a task out that waits for more than the time.
    pub fn take_waiter(&mut self) -> Option<&'static Task> {
        let waits = |entry: &Entry| matches!(entry.state, State::Blocked(key) if !key.is_time());
        (0..BUCKETS).find_map(|bucket| self.take_from(bucket, waits))
    }

    /// Take a task out whose deadline has come.
    pub fn take_overdue(&mut self, now: Nanos) -> Option<&'static Task> {
        let key = self.entries.iter().find_map(|entry| match entry.state {
            State::Blocked(key) if entry.deadline <= now => Some(key),
            _ => None,
        })?;
        self.take_from(key.bucket(), |entry| entry.deadline <= now)
    }

    /// The first deadline.
    pub fn earliest(&self) -> Nanos {
        self.entries.iter().map(|entry| entry.deadline).min().unwrap_or(Nanos::MAX)
    }

    // --- looking ---

    /// Show all living tasks with their state, and what they sleep on.
    pub fn describe(&self, mut line: impl FnMut(&Task, &'static str, Option<Key>)) {
        for entry in &self.entries {
            match entry.state {
                State::Ready => line(entry.task, "ready", None),
                State::Running => line(entry.task, "running", None),
                State::Blocked(key) => line(entry.task, "asleep", Some(key)),
                State::Idle | State::Ended => {}
            }
        }
    }

    /// Tasks that live.
    pub fn alive(&self) -> usize {
        self.entries.iter().filter(|entry| !matches!(entry.state, State::Idle | State::Ended)).count()
    }
}
