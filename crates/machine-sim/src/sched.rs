//! Which task runs where, and when.
//!
//! Every CPU has its own clock, in picoseconds. The scheduler always continues with the earliest item: the next event
//! (the end of a transfer, a deadline), or the busy CPU with the earliest clock. That CPU may run one quantum ahead of
//! the next CPU. So no CPU ever sees another more than a quantum in its past, and a run depends on nothing but the seed
//! and the configuration: queues are FIFO, and ties go to the lower number.
//!
//! Tasks of one CPU run in the order of [`fair`]. A woken task goes to its last CPU if that is idle, else to an idle
//! CPU of the same node, then of any node, else to its last CPU's queue; it preempts the running task if it is next in
//! that order. An idle CPU takes a task from the longest queue. A busy CPU takes a task from a longer queue of its node
//! now and then: with more tasks than CPUs all tasks get the same share, as under Linux.
//!
//! **In turn.** CPUs of an emulator that has one thread for all of them share one time: while one works, that of the
//! others passes, too. A run may ask for this ([`RunConfig::in_turn`](crate::RunConfig::in_turn)): busy CPUs then have
//! turns, one after the other (`sched/turns.rs`). User mode stops where its turn ends, the kernel at the next point at
//! which it gives way. A CPU that waits for the answer of another spins and gives its turn up, and the other answers
//! when its turn begins and goes on to its end. Here the answer comes at once, since the waiting CPU may hold locks;
//! others have their turns before the CPU's next one.
//!
//! Such an emulator's disks take the host's time, of which more passes while a CPU works than while all are idle. So
//! devices may have a time of their own (`sched/devices.rs`).

mod busy;
mod devices;
mod fair;
mod keys;
mod order;
mod pressure;
mod turns;

use busy::Busy;
use devices::DevicesTime;
pub(crate) use fair::TICK;
use fair::{Entity, Fair};
use keys::Map;
use mm::machine::{Ticket, WaitKey};
use pressure::Pressure;
pub(crate) use pressure::{Collected, Stalls};
use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::rc::Rc;
use turns::Turns;

/// How far a CPU may run ahead of the next one.
pub(crate) const QUANTUM: u64 = 20_000_000;
/// The interval at which a busy CPU looks for a longer queue, for each CPU of its node: 16 ms, as in Linux 6.12
/// (balance interval of a domain in ms: its CPUs; times the busy factor).
const BALANCE: u64 = 16_000_000_000;

/// A task, by number.
pub(crate) type TaskId = u32;

/// What a task sleeps on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub(crate) enum Key {
    /// A key of the memory manager.
    Mm(WaitKey),
    /// The end of a task.
    End(TaskId),
    /// The end of a call that changes a file's size.
    File(u32),
    /// A barrier of related processes.
    Barrier(u32),
}

/// What happens at some time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Event {
    /// The requests that a CPU has sent first of those that are under way reach their devices.
    Submit(usize),
    /// A device completes the request of a tag.
    Io(usize, u32),
    /// A task's deadline, and the number of the wait that it belongs to.
    Deadline(TaskId, u64),
}

#[derive(PartialEq, Eq)]
struct Timed {
    /// The time, and in the low half the order of insertion.
    key: u128,
    event: Event,
}

impl Timed {
    fn time(&self) -> u64 {
        (self.key >> 64) as u64
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Timed) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Timed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The state of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Ready,
    Running,
    Blocked(Key),
    Ended,
}

struct Task {
    cpu: usize,
    state: State,
    /// It may not run before this.
    ready_at: u64,
    /// How long it had run when its CPU last left it, and when a CPU last picked it.
    ran: u64,
    since: u64,
    /// The number of its waits: deadlines of earlier waits do nothing.
    waits: u64,
    /// Whether a wake-up ended its last wait.
    woken: bool,
    /// Whether it must stay on its CPU.
    pinned: bool,
    fair: Entity,
}

struct Queue {
    current: Option<TaskId>,
    waiting: VecDeque<TaskId>,
    /// Tasks that sleep and were ahead of the average when they began to: until they would be next, they count.
    late: Vec<TaskId>,
    fair: Fair,
    /// Up to when what the current task has run is counted.
    counted: u64,
    /// Whether another task may have to run before the next tick.
    resched: bool,
    /// Whether the CPU has stopped in the middle of the current task's work, and must continue with it.
    kept: bool,
    /// Until when nothing stops the current task.
    kept_until: u64,
    /// When the CPU next looks for a longer queue.
    balance_at: u64,
}

impl Queue {
    fn len(&self) -> usize {
        self.waiting.len() + self.current.is_some() as usize
    }
}

/// The time of the CPU that is farthest.
fn latest(clocks: &[Rc<Cell<u64>>]) -> u64 {
    clocks.iter().map(|clock| clock.get()).max().unwrap_or(0)
}

/// The task that a CPU runs next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Picked {
    /// The task.
    pub(crate) task: TaskId,
    /// Whether it is another than before.
    pub(crate) switched: bool,
    /// The CPU's clock may not pass this.
    pub(crate) limit: u64,
}

/// The earliest item to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Next {
    /// An event, at this time.
    Event(u64, Event),
    /// This CPU runs.
    Cpu(usize),
    /// Nothing is left to do.
    Nothing,
}

/// The scheduler's state.
pub(crate) struct Sched {
    /// Clocks, by CPU.
    pub(crate) clocks: Vec<Rc<Cell<u64>>>,
    /// Time spent idle, by CPU.
    pub(crate) idle: Vec<u64>,
    nodes: Vec<u8>,
    queues: Vec<Queue>,
    /// The CPUs that have tasks.
    busy: Busy,
    /// The CPUs' turns, if they run in turn.
    turns: Option<Turns>,
    /// The devices' time, if it is another.
    devices: Option<DevicesTime>,
    tasks: Vec<Task>,
    events: BinaryHeap<Reverse<Timed>>,
    inserted: u64,
    /// Wake-ups so far, by key.
    marks: Map<Key, u64>,
    sleepers: Map<Key, Vec<TaskId>>,
    pressure: Pressure,
}

impl Sched {
    /// `nodes`: the node of each CPU.
    pub(crate) fn new(nodes: Vec<u8>) -> Sched {
        let cpus = nodes.len();
        // The CPUs of a node balance one after the other, not all at once.
        let place = |cpu: usize| nodes[..=cpu].iter().filter(|&&node| node == nodes[cpu]).count() as u64;
        let queue = |cpu| Queue {
            current: None,
            waiting: VecDeque::new(),
            late: Vec::new(),
            fair: Fair::new(cpus),
            counted: 0,
            resched: false,
            kept: false,
            kept_until: 0,
            balance_at: BALANCE * place(cpu),
        };
        Sched {
            clocks: (0..cpus).map(|_| Rc::default()).collect(),
            idle: vec![0; cpus],
            queues: (0..cpus).map(queue).collect(),
            busy: Busy::of(cpus),
            turns: None,
            devices: None,
            nodes,
            tasks: Vec::new(),
            events: BinaryHeap::new(),
            inserted: 0,
            marks: Map::default(),
            sleepers: Map::default(),
            pressure: Pressure::of(cpus),
        }
    }

    /// CPUs run in turn from now on; devices' time passes this much faster while one works.
    pub(crate) fn run_in_turn(&mut self, devices_pace: f64) {
        self.turns = Some(Turns::new(self.queues.len()));
        self.devices = DevicesTime::new(devices_pace);
    }

    /// A new task, which may run from `now` on, near `cpu` or on the first CPU of `node`.
    pub(crate) fn spawn(&mut self, now: u64, near: usize, node: Option<u8>) -> TaskId {
        let id = self.tasks.len() as TaskId;
        let near = match node {
            Some(node) => self.nodes.iter().position(|&n| n == node).unwrap_or(near),
            None => near,
        };
        let home = self.nodes[near];
        let cpu = (0..self.queues.len())
            .min_by_key(|&c| (self.queues[c].len(), c != near, self.nodes[c] != home, c))
            .expect("a machine has CPUs");
        self.add(now, cpu, false);
        id
    }

    /// A new task, which may run from `now` on, on `cpu` only.
    pub(crate) fn spawn_on(&mut self, now: u64, cpu: usize) {
        self.add(now, cpu, true);
    }

    fn add(&mut self, now: u64, cpu: usize, pinned: bool) {
        let id = self.tasks.len() as TaskId;
        self.count_run(cpu);
        let mut fair = self.queues[cpu].fair.newcomer();
        self.queues[cpu].fair.join(&mut fair);
        self.tasks.push(Task {
            fair,
            cpu,
            state: State::Ready,
            ready_at: now,
            ran: 0,
            since: now,
            waits: 0,
            woken: false,
            pinned,
        });
        self.pressure.begin(now, cpu);
        self.enqueue(cpu, id);
        self.note_busy(cpu);
        self.end_idle(cpu, now);
    }

    /// Update whether a CPU has tasks.
    fn note_busy(&mut self, cpu: usize) {
        let busy = self.queues[cpu].len() > 0;
        self.busy.set(cpu, busy);
    }

    /// The position of the last task in the queue that may go to another CPU.
    fn movable(&self, cpu: usize) -> Option<usize> {
        self.queues[cpu].waiting.iter().rposition(|&task| !self.tasks[task as usize].pinned)
    }

    /// A CPU that is idle gets work at `now`: it was idle until then.
    pub(crate) fn end_idle(&mut self, cpu: usize, now: u64) {
        if self.queues[cpu].len() <= 1 && self.queues[cpu].current.is_none() && self.clocks[cpu].get() < now {
            self.idle[cpu] += now - self.clocks[cpu].get();
            self.clocks[cpu].set(now);
        }
    }

    /// Schedule an event.
    pub(crate) fn at(&mut self, time: u64, event: Event) {
        self.inserted += 1;
        self.events.push(Reverse(Timed { key: (time as u128) << 64 | self.inserted as u128, event }));
    }

    /// Schedule the end of a device's work.
    pub(crate) fn at_devices_time(&mut self, time: u64, event: Event) {
        match &mut self.devices {
            None => self.at(time, event),
            Some(devices) => devices.at(time, event),
        }
    }

    /// The devices' time at `time`, which is about now.
    pub(crate) fn devices_time(&self, time: u64) -> u64 {
        self.devices.as_ref().map_or(time, |devices| devices.of(time))
    }

    /// The time of the next event.
    pub(crate) fn next_event(&self) -> u64 {
        let own = self.next_own_event();
        self.devices.as_ref().map_or(own, |devices| own.min(devices.next(self.works())))
    }

    /// That of those which do not come by the devices' time.
    fn next_own_event(&self) -> u64 {
        self.events.peek().map_or(u64::MAX, |Reverse(event)| event.time())
    }

    /// Whether a CPU has a task.
    fn works(&self) -> bool {
        self.busy.iter().next().is_some()
    }

    /// Remove the next event.
    fn next_of_events(&mut self) -> Next {
        let (own, works) = (self.next_own_event(), self.works());
        if let Some(devices) = &mut self.devices {
            let time = devices.next(works);
            devices.go_on_idle(time.min(own));
            if time < own
                && let Some(event) = devices.pop()
            {
                return Next::Event(time, event);
            }
        }
        match self.events.pop() {
            Some(Reverse(event)) => Next::Event(event.time(), event.event),
            None => Next::Nothing,
        }
    }

    /// The CPU waits for others that are busy to answer. If CPUs run in turn, each has a turn before it goes on.
    pub(crate) fn give_up_turn(&mut self, cpu: usize) {
        let now = self.clocks[cpu].get();
        self.turns.iter_mut().for_each(|turns| turns.wait(cpu, now));
    }

    /// The earliest item to do. Removes it if it is an event.
    pub(crate) fn next(&mut self) -> Next {
        if let Some(devices) = &mut self.devices {
            devices.go_on_working(latest(&self.clocks));
        }
        let cpu = self.next_cpu();
        let event = self.next_event();
        match cpu {
            Some(cpu) if self.comes_at(cpu) < event => {
                self.begin_turn(cpu);
                Next::Cpu(cpu)
            }
            _ => self.next_of_events(),
        }
    }

    /// The busy CPU that is next.
    fn next_cpu(&mut self) -> Option<usize> {
        let Some(turns) = &mut self.turns else {
            return self.busy.iter().min_by_key(|&cpu| (self.clocks[cpu].get(), cpu));
        };
        if let Some(cpu) = turns.holder() {
            turns.stop(self.clocks[cpu].get());
        }
        let now = latest(&self.clocks);
        turns.next(now, &self.busy)
    }

    /// When a busy CPU may go on.
    fn comes_at(&self, cpu: usize) -> u64 {
        if self.turns.is_some() { latest(&self.clocks) } else { self.clocks[cpu].get() }
    }

    fn begin_turn(&mut self, cpu: usize) {
        let now = self.comes_at(cpu);
        if let Some(turns) = &mut self.turns {
            self.clocks[cpu].set(now);
            turns.begin(cpu, now);
        }
    }

    /// Choose what `cpu` runs now, and for how long.
    pub(crate) fn pick(&mut self, cpu: usize) -> Option<Picked> {
        if self.clocks[cpu].get() >= self.queues[cpu].balance_at {
            self.balance(cpu);
        }
        let before = self.queues[cpu].current;
        let kept = std::mem::take(&mut self.queues[cpu].kept);
        let over = before.is_none() || !kept && self.is_over(cpu);
        let next = if over { self.choose(cpu) } else { before }?;
        if before != Some(next) {
            let queue = &mut self.queues[cpu];
            queue.waiting.retain(|&task| task != next);
            if let Some(before) = queue.current.replace(next) {
                queue.waiting.push_back(before);
                self.leave(cpu, before, State::Ready);
            }
            let ready = self.tasks[next as usize].ready_at;
            if self.clocks[cpu].get() < ready {
                self.idle[cpu] += ready - self.clocks[cpu].get();
                self.clocks[cpu].set(ready);
            }
            let now = self.clocks[cpu].get();
            self.queues[cpu].counted = now;
            let task = &mut self.tasks[next as usize];
            task.fair.choose();
            assert_eq!(
                task.state,
                State::Ready,
                "task {next} must be ready to run on CPU {cpu}, and run on no other"
            );
            (task.state, task.cpu, task.since) = (State::Running, cpu, now);
            self.pressure.run(now, cpu, next);
        }
        Some(Picked { task: next, switched: before != Some(next), limit: self.limit(cpu) })
    }

    /// A CPU stops running a task.
    fn leave(&mut self, cpu: usize, number: TaskId, state: State) {
        let now = self.clocks[cpu].get();
        let task = &mut self.tasks[number as usize];
        task.state = state;
        task.ran += now - task.since;
        self.pressure.leave(now, number, state);
    }

    /// When the task could run after its last sleep.
    pub(crate) fn ready_at(&self, task: TaskId) -> u64 {
        self.tasks[task as usize].ready_at
    }

    /// How long the task that runs on `cpu` has run.
    pub(crate) fn ran(&self, cpu: usize) -> u64 {
        let task = self.queues[cpu].current.map(|task| &self.tasks[task as usize]);
        task.map_or(0, |task| task.ran + self.clocks[cpu].get() - task.since)
    }

    /// Take a waiting task from the longest queue of the node, if that is longer than this one.
    #[cold]
    fn balance(&mut self, cpu: usize) {
        let home = self.nodes[cpu];
        let peers = (0..self.queues.len()).filter(|&other| self.nodes[other] == home);
        self.queues[cpu].balance_at = self.clocks[cpu].get() + BALANCE * peers.clone().count() as u64;
        let own = self.queues[cpu].len();
        let longer =
            peers.filter(|&c| self.queues[c].len() > own.max(1)).filter_map(|c| Some((c, self.movable(c)?)));
        let Some((from, at)) = longer.max_by_key(|&(c, _)| (self.queues[c].len(), Reverse(c))) else {
            return;
        };
        let task =
            self.queues[from].waiting.remove(at).expect("a task that was found in a queue must be there");
        self.note_busy(from);
        let state = &mut self.tasks[task as usize];
        // The clock of its old CPU may be ahead of this one's.
        state.ready_at = state.ready_at.max(self.clocks[from].get());
        self.move_to(task, from, cpu);
        self.note_busy(cpu);
    }

    /// How far the CPU may run.
    pub(crate) fn limit(&self, cpu: usize) -> u64 {
        let others = self.busy.iter().filter(|&other| other != cpu);
        let second = others.map(|other| self.clocks[other].get()).min();
        let ahead = |clock: u64| self.turns.as_ref().map_or(clock.saturating_add(QUANTUM), Turns::end);
        let limit = second.map_or(u64::MAX, ahead).min(self.next_event());
        let queue = &self.queues[cpu];
        match (queue.waiting.is_empty(), queue.resched) {
            (true, _) => limit,
            // At once, unless it has just been told to go on.
            (false, true) => limit.min(self.clocks[cpu].get().max(queue.kept_until)),
            (false, false) => limit.min((queue.counted - queue.counted % TICK + TICK).max(queue.kept_until)),
        }
    }

    /// The CPU stops in the middle of its task, and must continue with it before tasks that wait for the CPU.
    pub(crate) fn keep(&mut self, cpu: usize) {
        let queue = &mut self.queues[cpu];
        assert!(queue.current.is_some(), "CPU {cpu} must run a task to stop in it");
        queue.kept = true;
        // The end of the slice must not stop the task again at once.
        queue.kept_until = self.clocks[cpu].get() + QUANTUM;
    }

    /// Whether the CPU is idle. An idle CPU first tries to take a waiting task from the longest queue.
    pub(crate) fn becomes_idle(&mut self, cpu: usize) -> bool {
        if self.queues[cpu].len() > 0 {
            return false;
        }
        self.forget_late(cpu);
        let home = self.nodes[cpu];
        let crowded = (0..self.queues.len())
            .filter(|&other| self.queues[other].len() > 1)
            .filter_map(|other| Some((other, self.movable(other)?)));
        let longest =
            crowded.max_by_key(|&(c, _)| (self.queues[c].waiting.len(), self.nodes[c] == home, Reverse(c)));
        let Some((from, at)) = longest else { return true };
        let task =
            self.queues[from].waiting.remove(at).expect("a task that was found in a queue must be there");
        let since = self.clocks[cpu].get().max(self.tasks[task as usize].ready_at);
        self.move_to(task, from, cpu);
        self.note_busy(from);
        self.note_busy(cpu);
        self.end_idle(cpu, since);
        false
    }

    /// Whether the CPU has no task.
    pub(crate) fn is_idle(&self, cpu: usize) -> bool {
        self.queues[cpu].len() == 0
    }

    // --- sleeping ---

    /// The number of wake-ups of `key` so far.
    pub(crate) fn mark(&self, key: Key) -> u64 {
        self.marks.get(&key).copied().unwrap_or(0)
    }

    /// Whether there was a wake-up since the ticket was drawn.
    pub(crate) fn is_stale(&self, ticket: Ticket) -> bool {
        let mark = self.mark(Key::Mm(ticket.key));
        assert!(ticket.mark <= mark, "a ticket of {:?} must be drawn before its wait", ticket.key);
        ticket.mark != mark
    }

    /// The task that runs on `cpu` sleeps. The caller must suspend it.
    pub(crate) fn block(&mut self, cpu: usize, key: Key, deadline: Option<u64>) {
        self.count_run(cpu);
        let queue = &mut self.queues[cpu];
        let task = queue.current.take().expect("only a running task may sleep");
        let entity = &mut self.tasks[task as usize].fair;
        match queue.fair.has_others() && !queue.fair.is_eligible(entity) {
            true => queue.late.push(task),
            false => queue.fair.leave(entity),
        }
        self.note_busy(cpu);
        self.tasks[task as usize].waits += 1;
        self.leave(cpu, task, State::Blocked(key));
        self.sleepers.entry(key).or_default().push(task);
        if let Some(deadline) = deadline {
            let wait = self.tasks[task as usize].waits;
            self.at(deadline, Event::Deadline(task, wait));
        }
    }

    /// The task that runs on `cpu` goes to the end of its queue. The caller must suspend it.
    pub(crate) fn give_way(&mut self, cpu: usize) {
        if self.queues[cpu].waiting.is_empty() {
            return;
        }
        self.count_run(cpu);
        let queue = &mut self.queues[cpu];
        let task = queue.current.take().expect("only a running task may give way");
        let waiting = queue.waiting.iter().map(|&task| self.tasks[task as usize].fair);
        let latest = waiting.max_by_key(Entity::place).expect("others wait");
        queue.fair.yield_to(&mut self.tasks[task as usize].fair, &latest);
        queue.waiting.push_back(task);
        self.leave(cpu, task, State::Ready);
    }

    /// Whether a wake-up, not a deadline, ended the task's last wait.
    pub(crate) fn was_woken(&self, task: TaskId) -> bool {
        self.tasks[task as usize].woken
    }

    /// Wake all tasks that sleep on `key`; `now` is the waker's clock. Returns whether there were any.
    pub(crate) fn wake(&mut self, now: u64, key: Key) -> bool {
        *self.marks.entry(key).or_default() += 1;
        let Some(sleepers) = self.sleepers.remove(&key) else { return false };
        for task in sleepers {
            self.ready(now, task, true);
        }
        true
    }

    /// A deadline has passed.
    pub(crate) fn deadline(&mut self, now: u64, task: TaskId, wait: u64) {
        let state = &self.tasks[task as usize];
        let State::Blocked(key) = state.state else { return };
        if state.waits != wait {
            return;
        }
        if let Some(list) = self.sleepers.get_mut(&key) {
            list.retain(|&sleeper| sleeper != task);
            if list.is_empty() {
                self.sleepers.remove(&key);
            }
        }
        self.ready(now, task, false);
    }

    /// Wake a task from a sleep outside of the memory manager, because its process must end.
    pub(crate) fn kick(&mut self, now: u64, task: TaskId) {
        let State::Blocked(key) = self.tasks[task as usize].state else { return };
        if matches!(key, Key::End(_) | Key::Barrier(_) | Key::Mm(WaitKey::Timer)) {
            let wait = self.tasks[task as usize].waits;
            self.deadline(now, task, wait);
        }
    }

    fn ready(&mut self, now: u64, task: TaskId, woken: bool) {
        let last = self.tasks[task as usize].cpu;
        self.count_run(last);
        if self.queues[last].waiting.is_empty() {
            // At ticks, a task that runs alone makes those leave that sleep.
            let _current = self.next_awake(last);
        }
        let late = self.queues[last].late.iter().position(|&late| late == task);
        let cpu = if late.is_some() { last } else { self.cpu_for(task) };
        self.count_run(cpu);
        let entity = &mut self.tasks[task as usize].fair;
        match late {
            Some(at) => {
                self.queues[cpu].late.remove(at);
                self.queues[cpu].fair.wake_early(entity);
            }
            None => self.queues[cpu].fair.join(entity),
        }
        let state = &mut self.tasks[task as usize];
        assert!(matches!(state.state, State::Blocked(_)), "task {task} must sleep to be woken");
        *state = Task { cpu, state: State::Ready, ready_at: now, woken, ..*state };
        self.pressure.wake(now, task, cpu);
        self.enqueue(cpu, task);
        self.note_busy(cpu);
        self.end_idle(cpu, now);
    }

    /// Where a woken task runs.
    fn cpu_for(&self, task: TaskId) -> usize {
        let last = self.tasks[task as usize].cpu;
        let home = self.nodes[last];
        let idle = (0..self.queues.len()).filter(|&cpu| self.queues[cpu].len() == 0);
        match self.queues[last].len() {
            0 => last,
            _ if self.tasks[task as usize].pinned => last,
            _ => idle.min_by_key(|&cpu| (self.nodes[cpu] != home, cpu)).unwrap_or(last),
        }
    }

    /// The task that runs on `cpu` has ended.
    pub(crate) fn end(&mut self, cpu: usize) {
        self.count_run(cpu);
        let task = self.queues[cpu].current.take().expect("only a running task may end");
        self.queues[cpu].fair.leave(&mut self.tasks[task as usize].fair);
        self.note_busy(cpu);
        self.tasks[task as usize].state = State::Ended;
        self.pressure.end(self.clocks[cpu].get(), task);
        self.wake(self.clocks[cpu].get(), Key::End(task));
    }

    /// Whether the task has ended.
    pub(crate) fn ended(&self, task: TaskId) -> bool {
        self.tasks[task as usize].state == State::Ended
    }

    /// What the task sleeps on.
    pub(crate) fn blocked_on(&self, task: TaskId) -> Option<Key> {
        match self.tasks[task as usize].state {
            State::Blocked(key) => Some(key),
            _ => None,
        }
    }

    /// Wake all tasks that sleep, at the end of the run.
    pub(crate) fn wake_all(&mut self, now: u64) {
        let mut keys: Vec<(TaskId, Key)> =
            self.sleepers.iter().flat_map(|(&key, list)| list.iter().map(move |&task| (task, key))).collect();
        keys.sort_by_key(|&(task, _)| task);
        for (_, key) in keys {
            self.wake(now, key);
        }
    }
}

#[cfg(test)]
mod tests;
