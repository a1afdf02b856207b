//! The queue of ready tasks, and the lists of sleeping ones. One lock protects all of them.
//!
//! Tasks are linked by slot number, so only [`Queue::add`] allocates.

use super::task::{BUCKETS, Key, Task};
use crate::arch::cpu::{self, MAX_CPUS};
use alloc::vec::Vec;
use mm::units::{CpuId, Nanos};

/// The state of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// The idle task of a CPU.
    Idle,
    /// In the queue.
    Ready,
    /// On a CPU.
    Running,
    /// Asleep.
    Blocked(Key),
    /// Ended; its slot can be reused.
    Ended,
}

const NONE: u32 = u32::MAX;

struct Entry {
    task: &'static Task,
    state: State,
    /// The next task in its list.
    next: u32,
    deadline: Nanos,
    last_cpu: CpuId,
}

/// The queue; see the module.
pub struct Queue {
    entries: Vec<Entry>,
    first: u32,
    last: u32,
    sleepers: [u32; BUCKETS],
    /// Ended tasks whose slots can be reused.
    ended: Vec<&'static Task>,
    /// CPUs that are idle.
    idle_cpus: [u64; MAX_CPUS.div_ceil(64)],
}

impl Queue {
    /// An empty queue.
    pub const fn new() -> Queue {
        Queue {
            entries: Vec::new(),
            first: NONE,
            last: NONE,
            sleepers: [NONE; BUCKETS],
            ended: Vec::new(),
            idle_cpus: [0; MAX_CPUS.div_ceil(64)],
        }
    }

    /// Add a new task, or one that reuses a slot.
    pub fn add(&mut self, task: &'static Task, state: State, cpu: CpuId) {
        let entry = Entry { task, state, next: NONE, deadline: Nanos::MAX, last_cpu: cpu };
        self.ended.reserve(self.entries.len() + 1);
        match self.entries.get_mut(task.slot) {
            Some(slot) => *slot = entry,
            None => {
                // Slots are allocated in order, but may be added here in another order.
                while self.entries.len() < task.slot {
                    let hole =
                        Entry { task, state: State::Ended, next: NONE, deadline: Nanos::MAX, last_cpu: cpu };
                    self.entries.push(hole);
                }
                self.entries.push(entry);
            }
        }
    }

    fn entry(&mut self, task: &Task) -> &mut Entry {
        &mut self.entries[task.slot]
    }

    /// Set the state of a task.
    pub fn set_state(&mut self, task: &Task, state: State) {
        self.entry(task).state = state;
    }

    /// End a running task. Its slot can be reused as soon as the lock is released, which is after it has left
    /// its stack.
    pub fn end(&mut self, task: &'static Task) {
        self.set_state(task, State::Ended);
        self.ended.push(task);
    }

    /// Take an ended task to reuse it.
    pub fn take_ended(&mut self) -> Option<&'static Task> {
        self.ended.pop()
    }

    /// Whether a ready task may run on `cpu`.
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

    /// Remove the first ready task that may run on `cpu` from the queue.
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

    /// Add a task at the queue's end.
    pub fn push_back(&mut self, task: &Task) {
        let number = task.slot as u32;
        self.entry(task).next = NONE;
        match self.last {
            NONE => self.first = number,
            last => self.entries[last as usize].next = number,
        }
        self.last = number;
    }

    /// Add a task at the queue's head.
    pub fn push_front(&mut self, task: &Task) {
        let first = self.first;
        self.entry(task).next = first;
        self.first = task.slot as u32;
        if self.last == NONE {
            self.last = self.first;
        }
    }

    /// The idle task of a CPU.
    pub fn idle_task(&self, cpu: CpuId) -> &'static Task {
        self.entries
            .iter()
            .find(|entry| entry.state == State::Idle && entry.last_cpu == cpu)
            .expect("every CPU must have an idle task")
            .task
    }

    /// Whether it is an idle task.
    pub fn is_idle_task(&self, task: &Task) -> bool {
        self.entries[task.slot].state == State::Idle
    }

    // --- CPUs ---

    /// Record the CPU that runs a task.
    pub fn ran_on(&mut self, task: &Task, cpu: CpuId) {
        self.entry(task).last_cpu = cpu;
    }

    /// The CPU that a task ran on last.
    pub fn last_cpu(&self, task: &Task) -> CpuId {
        self.entries[task.slot].last_cpu
    }

    /// Mark a CPU as idle.
    pub fn set_idle(&mut self, cpu: CpuId) {
        self.idle_cpus[cpu.index() / 64] |= 1 << (cpu.0 % 64);
    }

    /// Mark a CPU as not idle.
    pub fn clear_idle(&mut self, cpu: CpuId) {
        self.idle_cpus[cpu.index() / 64] &= !(1 << (cpu.0 % 64));
    }

    fn is_idle(&self, cpu: CpuId) -> bool {
        self.idle_cpus[cpu.index() / 64] & 1 << (cpu.0 % 64) != 0
    }

    /// Take an idle CPU for a task, as near as possible to where it ran last; it is no longer marked as idle.
    pub fn take_idle(&mut self, task: &Task) -> Option<CpuId> {
        if self.idle_cpus == [0; MAX_CPUS.div_ceil(64)] {
            return None;
        }
        let last = self.last_cpu(task);
        let node = cpu::all()[last.index()].node();
        let idle = cpu::all().iter().filter(|cpu| self.is_idle(cpu.id()) && task.may_run_on(cpu.id()));
        let nearest = idle.min_by_key(|cpu| (cpu.id() != last, cpu.node() != node, cpu.id()))?.id();
        self.clear_idle(nearest);
        Some(nearest)
    }

    // --- sleepers ---

    /// Put a task to sleep.
    pub fn block(&mut self, task: &Task, key: Key, deadline: Option<Nanos>) {
        let head = core::mem::replace(&mut self.sleepers[key.bucket()], task.slot as u32);
        let entry = self.entry(task);
        entry.state = State::Blocked(key);
        entry.deadline = deadline.unwrap_or(Nanos::MAX);
        entry.next = head;
    }

    /// Remove the first sleeping task of a bucket for which `wanted` is true.
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

    /// Remove a task that sleeps on `key`.
    pub fn take_sleeper(&mut self, key: Key) -> Option<&'static Task> {
        self.take_from(key.bucket(), |entry| entry.state == State::Blocked(key))
    }

    /// Remove a task that waits for more than a time.
    pub fn take_waiter(&mut self) -> Option<&'static Task> {
        let waits = |entry: &Entry| matches!(entry.state, State::Blocked(key) if !key.is_time());
        (0..BUCKETS).find_map(|bucket| self.take_from(bucket, waits))
    }

    /// Remove a task whose deadline has passed.
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

    /// Describe all tasks that have not ended: state, and what they sleep on.
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

    /// Number of tasks that have not ended.
    pub fn alive(&self) -> usize {
        self.entries.iter().filter(|entry| !matches!(entry.state, State::Idle | State::Ended)).count()
    }
}
