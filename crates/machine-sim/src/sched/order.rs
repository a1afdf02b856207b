//! Which of its tasks a CPU runs.

use super::fair::TICK;
use super::{Sched, TaskId};

impl Sched {
    /// Count what the current task has run. At the last tick and now its slice may have ended; another task may be next
    /// then.
    pub(super) fn count_run(&mut self, cpu: usize) {
        let now = self.clocks[cpu].get();
        self.count_until(cpu, now - now % TICK);
        self.count_until(cpu, now);
    }

    fn count_until(&mut self, cpu: usize, until: u64) {
        let queue = &mut self.queues[cpu];
        if let Some(task) = queue.current
            && until > queue.counted
        {
            let ended = queue.fair.run(&mut self.tasks[task as usize].fair, until - queue.counted);
            queue.resched |= ended && !queue.waiting.is_empty();
            queue.counted = until;
        }
    }

    /// Whether the current task may have to make way, because a slice ended at a tick, or for a woken task.
    pub(super) fn is_over(&mut self, cpu: usize) -> bool {
        let now = self.clocks[cpu].get();
        self.count_until(cpu, now - now % TICK);
        self.queues[cpu].resched && !self.queues[cpu].waiting.is_empty()
    }

    /// The task that runs next. Tasks that sleep leave the queue when they would be next.
    pub(super) fn choose(&mut self, cpu: usize) -> Option<TaskId> {
        self.count_run(cpu);
        self.queues[cpu].resched = false;
        if self.queues[cpu].waiting.is_empty() && self.queues[cpu].current.is_none() {
            self.forget_late(cpu);
        }
        self.next_awake(cpu)
    }

    /// The first task that does not sleep. Those before it leave the queue.
    pub(super) fn next_awake(&mut self, cpu: usize) -> Option<TaskId> {
        loop {
            let next = self.first(cpu)?;
            let Some(at) = self.queues[cpu].late.iter().position(|&task| task == next) else {
                return Some(next);
            };
            self.queues[cpu].late.remove(at);
            self.queues[cpu].fair.leave_late(&mut self.tasks[next as usize].fair);
        }
    }

    /// Sleeping tasks leave the queue.
    pub(super) fn forget_late(&mut self, cpu: usize) {
        let queue = &mut self.queues[cpu];
        for task in queue.late.drain(..) {
            queue.fair.leave_late(&mut self.tasks[task as usize].fair);
        }
    }

    /// The first task in the order of the queue, whether it sleeps or not.
    fn first(&self, cpu: usize) -> Option<TaskId> {
        let queue = &self.queues[cpu];
        let entity = |task: TaskId| &self.tasks[task as usize].fair;
        let eligible = |task: &TaskId| queue.fair.is_eligible(entity(*task));
        let current = queue.current.filter(eligible);
        if let Some(task) = current
            && entity(task).is_protected()
        {
            return current;
        }
        let others = queue.waiting.iter().chain(&queue.late).copied().filter(eligible);
        // Others come before it if deadlines are the same.
        others.chain(current).min_by_key(|&task| entity(task).deadline())
    }

    /// A waiting task goes from one queue to another.
    pub(super) fn move_to(&mut self, task: TaskId, from: usize, to: usize) {
        self.count_run(from);
        self.count_run(to);
        let entity = &mut self.tasks[task as usize].fair;
        self.queues[from].fair.move_away(entity);
        self.queues[to].fair.join(entity);
        self.pressure.move_to(self.clocks[to].get(), task, to);
        self.enqueue(to, task);
    }

    /// A task that has joined the queue waits for the CPU. It is next if that is its place.
    pub(super) fn enqueue(&mut self, cpu: usize, task: TaskId) {
        self.queues[cpu].waiting.push_back(task);
        let preempts = self.queues[cpu].current.is_some() && self.first(cpu) == Some(task);
        self.queues[cpu].resched |= preempts;
    }
}
