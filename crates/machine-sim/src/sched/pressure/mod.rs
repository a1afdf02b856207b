//! Pressure stall information (PSI): how much of the time tasks wait for memory, or for devices, on the machine and in
//! each control group.
//!
//! CPUs have clocks of their own, so a change that one CPU makes at another may come up to a quantum too early there.

mod domain;
#[cfg(test)]
mod tests;

use super::{Sched, State, TaskId};
use domain::{Activity, Domain, KINDS};
pub(crate) use domain::{Collected, Stalls};
use mm::machine::Stall;
use mm::units::{GroupId, SpaceId};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The numbers of the domains that a task is in, from the machine (0) on; those of groups are theirs.
type Path = Rc<[usize]>;

/// What a task does.
struct Task {
    cpu: usize,
    awake: bool,
    running: bool,
    /// How many waits for memory it is in, and how many for devices; they nest.
    stalls: [u32; 2],
    space: Option<SpaceId>,
    path: Path,
}

impl Task {
    fn activity(&self) -> Activity {
        let [memory, io] = self.stalls.map(|depth| depth > 0);
        Activity {
            awake: self.awake,
            stalled: memory,
            stalled_running: memory && self.running,
            awaits_device: io && !self.awake,
        }
    }
}

/// The pressure of a machine.
pub(super) struct Pressure {
    tasks: Vec<Task>,
    /// The task that runs, by CPU.
    running: Vec<Option<TaskId>>,
    /// By number; `None`: no task has been in the group.
    domains: Vec<Option<Domain>>,
    /// Where tasks of spaces are, without the spaces of the root group.
    paths: BTreeMap<SpaceId, Path>,
    of_machine: Path,
    /// What the timeline is shown.
    shown: Collected,
}

impl Pressure {
    pub(super) fn of(cpus: usize) -> Pressure {
        Pressure {
            tasks: Vec::new(),
            running: vec![None; cpus],
            domains: vec![Some(Domain::new(cpus, 0))],
            paths: BTreeMap::new(),
            of_machine: Rc::new([0]),
            shown: Collected::of(cpus),
        }
    }

    /// A new task is ready.
    pub(super) fn begin(&mut self, now: u64, cpu: usize) {
        let path = self.of_machine.clone();
        self.tasks.push(Task { cpu, awake: false, running: false, stalls: [0; 2], space: None, path });
        self.change(now, self.tasks.len() as TaskId - 1, |task| task.awake = true);
    }

    /// A CPU begins to run a task.
    pub(super) fn run(&mut self, now: u64, cpu: usize, task: TaskId) {
        self.running[cpu] = Some(task);
        self.change(now, task, |task| task.running = true);
    }

    /// A CPU leaves its task.
    pub(super) fn leave(&mut self, now: u64, task: TaskId, state: State) {
        let awake = state == State::Ready;
        self.change(now, task, |task| (task.awake, task.running) = (awake, false));
        self.running[self.tasks[task as usize].cpu] = None;
    }

    /// A task that slept is ready, on this CPU.
    pub(super) fn wake(&mut self, now: u64, task: TaskId, cpu: usize) {
        self.change(now, task, |task| (task.awake, task.cpu) = (true, cpu));
    }

    /// A task goes to another CPU.
    pub(super) fn move_to(&mut self, now: u64, task: TaskId, cpu: usize) {
        self.change(now, task, |task| task.cpu = cpu);
    }

    /// The task that runs on a CPU begins to stall, or has ended to. Before tasks run, nothing is counted.
    fn stall(&mut self, now: u64, cpu: usize, kind: Stall, begins: bool) {
        let Some(task) = self.running[cpu] else { return };
        self.change(now, task, |task| {
            let depth = &mut task.stalls[kind as usize];
            // A run that fails drops tasks in the middle of their stalls, while others run.
            *depth = if begins { *depth + 1 } else { depth.saturating_sub(1) };
        });
    }

    /// A task has ended.
    pub(super) fn end(&mut self, now: u64, task: TaskId) {
        self.leave(now, task, State::Ended);
        self.change(now, task, |task| task.stalls = [0; 2]);
    }

    /// A task belongs to a space from now on.
    fn belong(&mut self, now: u64, task: TaskId, space: SpaceId) {
        self.tasks[task as usize].space = Some(space);
        if let Some(path) = self.paths.get(&space).cloned() {
            self.change_path(now, task, path);
        }
    }

    /// The tasks of a space are in the first of these groups from now on, and so in the others.
    fn enter(&mut self, now: u64, space: SpaceId, groups: &[GroupId]) {
        let path: Path = [0].into_iter().chain(groups.iter().map(|group| usize::from(group.0))).collect();
        match groups {
            [] => drop(self.paths.remove(&space)),
            _ => drop(self.paths.insert(space, path.clone())),
        }
        let own = |&task: &TaskId| self.tasks[task as usize].space == Some(space);
        let tasks: Vec<TaskId> = (0..self.tasks.len() as TaskId).filter(own).collect();
        tasks.into_iter().for_each(|task| self.change_path(now, task, path.clone()));
    }

    fn change_path(&mut self, now: u64, task: TaskId, path: Path) {
        self.tell_domains(now, task, |task| (task.activity(), Activity::default()));
        for &domain in path.iter() {
            if domain >= self.domains.len() {
                self.domains.resize(domain + 1, None);
            }
            self.domains[domain].get_or_insert_with(|| Domain::new(self.running.len(), now));
        }
        self.tasks[task as usize].path = path;
        self.tell_domains(now, task, |task| (Activity::default(), task.activity()));
    }

    /// Tell a task's domains that it did something until now and does something else from now on.
    fn tell_domains(&mut self, now: u64, task: TaskId, change: impl Fn(&Task) -> (Activity, Activity)) {
        let task = &self.tasks[task as usize];
        let (before, after) = change(task);
        for &domain in task.path.iter() {
            let domain = self.domains[domain].as_mut().expect("a task's groups have domains");
            domain.change(now, (task.cpu, before), (task.cpu, after));
        }
    }

    fn change(&mut self, now: u64, task: TaskId, change: impl FnOnce(&mut Task)) {
        let task = &mut self.tasks[task as usize];
        let before = (task.cpu, task.activity());
        change(task);
        let after = (task.cpu, task.activity());
        if before == after {
            return;
        }
        for &domain in task.path.iter() {
            let domain = self.domains[domain].as_mut().expect("a task's groups have domains");
            domain.change(now, before, after);
        }
    }

    fn stalls(&self, now: u64, domain: usize) -> Option<[Stalls; KINDS]> {
        Some(self.domains.get(domain)?.as_ref()?.stalls(now))
    }
}

impl Sched {
    /// The task that runs on `cpu` begins to stall, or has ended to.
    pub(crate) fn stall(&mut self, cpu: usize, kind: Stall, begins: bool) {
        self.pressure.stall(self.clocks[cpu].get(), cpu, kind, begins);
    }

    /// A new task of a space.
    pub(crate) fn belong(&mut self, now: u64, task: TaskId, space: SpaceId) {
        self.pressure.belong(now, task, space);
    }

    /// The tasks of a space are in these groups from now on ([`mm::machine::Machine::space_enters`]).
    pub(crate) fn space_enters(&mut self, now: u64, space: SpaceId, groups: &[GroupId]) {
        self.pressure.enter(now, space, groups);
    }

    /// The stalls of a group, or of the machine (the root), until now: of memory some and full, of devices some and
    /// full.
    pub(crate) fn stalls(&self, now: u64, group: GroupId) -> [Stalls; KINDS] {
        self.pressure.stalls(now, group.0.into()).unwrap_or_default()
    }

    /// Picoseconds until now in which a task of the group waited for memory, and for a device, as `own` has collected
    /// them: they never get less. A group without a task has none.
    pub(crate) fn some(&self, now: u64, group: GroupId, own: &mut Collected) -> [u64; 2] {
        let domain = self.pressure.domains.get(usize::from(group.0)).and_then(Option::as_ref);
        domain.map_or([0; 2], |domain| domain.some(own, now))
    }

    /// Picoseconds until now in which a task waited for memory, for the timeline.
    pub(crate) fn shown_pressure(&mut self, now: u64) -> u64 {
        let Some(Some(machine)) = self.pressure.domains.first() else { return 0 };
        machine.some(&mut self.pressure.shown, now)[0]
    }
}
