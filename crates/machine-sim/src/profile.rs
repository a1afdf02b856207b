//! Where CPU time went: a tree of scopes, with the kinds of work that were charged in each.
//!
//! The memory manager opens scopes ([`mm::scope`]) and charges work; the machine knows the cost of each unit. The nodes
//! of the tree are paths of scopes. Each node has the kinds of work charged directly in it, by the memory manager
//! (`rmap_remove`) and by the hardware (`invlpg`), under the names of the cost table, where each number's source is.
//! The roots are what a CPU's kernel time is accounted to: a program, a daemon, or an `interrupt`.
//!
//! Nothing may be attributed twice or lost, and runs without a profile must not pay for it. So charging always works
//! the same way: it counts units by kind. The tree is updated when the place changes (a scope is entered or left, the
//! task is switched, an interrupt begins or ends): the units counted since belong to the previous place. Only costs of
//! hardware, which are not counted by kind, are recorded one by one.
//!
//! The place belongs to the task: a task that sleeps in a scope is still in it when it continues, perhaps on another
//! CPU. Sleep takes no CPU time; how long a task was away (asleep, or waiting for a CPU after that) is kept separately.
//! A CPU that waits for answers to its interrupts is busy, as under Linux: that is work, `ipi_wait`.

mod names;
mod phases;
mod tasks;

use crate::cpu::Class;
use crate::sched::TaskId;
use crate::spec::{Costs, Hardware};
use crate::waiting::LineKind;
use mm::lock::LockClass;
use mm::machine::{Scope, Work};
pub(crate) use names::About;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
pub use tasks::TaskTime;
pub(crate) use tasks::{Part, Sleep, Turn};
use tasks::{TASKS, Tasks, roots};

/// A node of the tree: a root or a scope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frame {
    /// What the time is accounted to.
    Root(Class),
    /// The program's tasks, if their time is wanted.
    Tasks,
    /// What they did in a phase of the program, from the second on; phases count from 1.
    Phase(u32),
    /// A mapping or a file, of that number, that the work below is about.
    Mapping(u32),
    /// A scope.
    Scope(Scope),
}

impl Frame {
    fn name(self) -> &'static str {
        match self {
            Frame::Tasks => "tasks",
            Frame::Phase(_) => "phase",
            Frame::Mapping(_) => "mapping",
            Frame::Root(Class::System) => "program",
            Frame::Root(Class::Kswapd) => "kswapd",
            Frame::Root(Class::Flusher) => "flusher",
            Frame::Root(Class::Interrupt) => "interrupt",
            Frame::Scope(scope) => scope.name(),
        }
    }
}

impl fmt::Display for Frame {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Frame::Phase(number) => write!(out, "phase:{number}"),
            frame => out.write_str(frame.name()),
        }
    }
}

/// A kind of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Work of the memory manager.
    Work(Work),
    /// Work of the hardware.
    Hardware(Hardware),
    /// Waiting for other CPUs to answer an interrupt.
    IpiWait,
    /// Waiting for a lock.
    LockWait(LockClass),
    /// Fetching a cache line from another CPU.
    Line(LineKind, Hardware),
    /// Time of a task in user mode, or outside of any CPU.
    Part(Part),
    /// Time that a task slept.
    Asleep(Sleep),
}

impl Kind {
    fn name(self, devices: &[String]) -> String {
        match self {
            Kind::Part(part) => part.name().into(),
            Kind::Asleep(Sleep::Other(what)) => format!("asleep:{what}"),
            Kind::Asleep(Sleep::Device { device, write }) => {
                let way = if write { "write" } else { "read" };
                format!("asleep:{way}:{}", devices[usize::from(device)])
            }
            Kind::Work(work) => work.name().into(),
            Kind::Hardware(item) => item.name().into(),
            Kind::IpiWait => "ipi_wait".into(),
            Kind::Line(LineKind::Lock, distance) => distance.name().into(),
            Kind::Line(kind, distance) => format!("{}:{}", distance.name(), kind.name()),
            Kind::LockWait(class) => format!("lock_wait:{}", class.name()),
        }
    }
}

#[derive(Clone, Copy)]
struct Share {
    kind: Kind,
    count: u64,
    picos: u64,
}

struct Node {
    frame: Frame,
    parent: usize,
    children: Vec<usize>,
    entered: u64,
    work: Vec<Share>,
    away: u64,
}

impl Node {
    fn new(frame: Frame, parent: usize) -> Node {
        Node { frame, parent, children: Vec::new(), entered: 0, work: Vec::new(), away: 0 }
    }

    fn add(&mut self, kind: Kind, count: u64, picos: u64) {
        match self.work.iter_mut().find(|share| share.kind == kind) {
            Some(share) => {
                share.count += count;
                share.picos += picos;
            }
            None => self.work.push(Share { kind, count, picos }),
        }
    }
}

/// The profile of a run. The first nodes are the roots, in the order of their classes.
pub(crate) struct Profiler {
    nodes: RefCell<Vec<Node>>,
    /// The node in which the current CPU is.
    place: Cell<usize>,
    /// The node in which each task was left.
    tasks: RefCell<Vec<Option<usize>>>,
    /// Units of work that are in the tree already.
    seen: RefCell<[u64; Work::COUNT]>,
    /// Whether to ignore what happens.
    muted: Cell<bool>,
    /// What the time of the program's tasks was, if that is wanted.
    tasks_time: Option<Tasks>,
    /// Names of devices.
    devices: Vec<String>,
}

impl Profiler {
    /// Of a machine with these devices; `tasks`: the time of the program's tasks is wanted, too, in phases of that
    /// number of accesses, or in one.
    pub(crate) fn new(devices: Vec<String>, tasks: Option<Option<u64>>) -> Profiler {
        Profiler {
            nodes: RefCell::new(roots()),
            tasks_time: tasks.map(Tasks::new),
            devices,
            place: Cell::new(0),
            tasks: RefCell::default(),
            seen: RefCell::new([0; Work::COUNT]),
            muted: Cell::new(false),
        }
    }

    /// Attribute the work counted since the last call to the current place. Must precede every change of the place.
    pub(crate) fn settle(&self, done: &[Cell<u64>; Work::COUNT], costs: &Costs) {
        if self.muted.get() {
            return;
        }
        let (mut nodes, mut seen) = (self.nodes.borrow_mut(), self.seen.borrow_mut());
        for ((&work, now), before) in Work::ALL.iter().zip(done).zip(seen.iter_mut()) {
            let count = now.get() - *before;
            if count > 0 {
                *before = now.get();
                nodes[self.place.get()].add(Kind::Work(work), count, count * costs.work(work));
            }
        }
    }

    /// Attribute time that no kind of work counts.
    pub(crate) fn note(&self, kind: Kind, count: u64, picos: u64) {
        if !self.muted.get() {
            self.nodes.borrow_mut()[self.place.get()].add(kind, count, picos);
        }
    }

    /// Attribute time that a CPU waited for a lock in another place.
    pub(crate) fn note_at(&self, place: u32, kind: Kind, picos: u64) {
        self.nodes.borrow_mut()[place as usize].add(kind, 1, picos);
    }

    /// The current place.
    pub(crate) fn place(&self) -> u32 {
        self.place.get() as u32
    }

    /// The name of a place.
    pub(crate) fn name_of(&self, place: u32) -> &'static str {
        self.nodes.borrow()[place as usize].frame.name()
    }

    /// The task enters a scope.
    pub(crate) fn enter(&self, scope: Scope) {
        self.enter_frame(Frame::Scope(scope));
    }

    /// The task enters a place below the current one.
    pub(crate) fn enter_frame(&self, frame: Frame) {
        if self.muted.get() {
            return;
        }
        let child = self.child(self.place.get(), frame);
        self.nodes.borrow_mut()[child].entered += 1;
        self.place.set(child);
    }

    /// The node for a frame below another, which may be new.
    fn child(&self, parent: usize, frame: Frame) -> usize {
        let mut nodes = self.nodes.borrow_mut();
        let found = nodes[parent].children.iter().copied().find(|&child| nodes[child].frame == frame);
        found.unwrap_or_else(|| {
            nodes.push(Node::new(frame, parent));
            let child = nodes.len() - 1;
            nodes[parent].children.push(child);
            child
        })
    }

    /// The task leaves a scope.
    pub(crate) fn leave(&self, scope: Scope) {
        self.leave_frame(Frame::Scope(scope));
    }

    /// The task leaves a place.
    pub(crate) fn leave_frame(&self, frame: Frame) {
        if self.muted.get() {
            return;
        }
        let nodes = self.nodes.borrow();
        let here = &nodes[self.place.get()];
        debug_assert_eq!(here.frame, frame, "a task must leave the place that it entered last");
        self.place.set(here.parent);
    }

    /// The CPU begins to work for `class`. Returns the place before.
    pub(crate) fn go_to_root(&self, class: Class) -> usize {
        let of_program = self.tasks_time.as_ref().filter(|_| class == Class::System && self.in_program());
        self.place.replace(of_program.map_or(class as usize, Tasks::root))
    }

    /// The CPU returns to a place.
    pub(crate) fn go_to(&self, place: usize) {
        self.place.set(place);
    }

    /// The CPU continues a task.
    pub(crate) fn resume(&self, task: TaskId) {
        // A task in user mode goes on in the current phase.
        if let Some(place) = self.left_at(task).filter(|&place| !self.is_root(place)) {
            self.place.set(place);
        }
    }

    /// Where a task was left.
    fn left_at(&self, task: TaskId) -> Option<usize> {
        self.tasks.borrow().get(task as usize).copied().flatten()
    }

    /// The CPU leaves a task.
    pub(crate) fn suspend(&self, task: TaskId) {
        let (mut tasks, task) = (self.tasks.borrow_mut(), task as usize);
        if tasks.len() <= task {
            tasks.resize(task + 1, None);
        }
        tasks[task] = Some(self.place.get());
    }

    /// The running task was away. Waits outside of any scope (of daemons for work, of programs for each other) delay
    /// no operation and are not counted.
    pub(crate) fn was_away(&self, picos: u64) {
        let place = self.place.get();
        if !self.is_root(place) {
            self.nodes.borrow_mut()[place].away += picos;
        }
    }

    fn is_root(&self, place: usize) -> bool {
        matches!(self.nodes.borrow()[place].frame, Frame::Root(_) | Frame::Tasks | Frame::Phase(_))
    }

    /// Whether to ignore what happens from now on.
    pub(crate) fn mute(&self, muted: bool) {
        assert_ne!(self.muted.replace(muted), muted, "work without accounting must not nest");
    }

    /// The current tree, without the program's tasks if their time is wanted ([`Profiler::task_time`]); `user` is the
    /// CPU time of programs themselves.
    pub(crate) fn tree(&self, user: u64) -> ProfileNode {
        let nodes = self.nodes.borrow();
        let mut roots: Vec<ProfileNode> = (0..TASKS).map(|root| describe(&nodes, root, self)).collect();
        if self.tasks_time.is_none() {
            roots[0].work.push(ProfileWork { name: "user".into(), count: 0, picos: user });
        }
        roots.retain(|root| root.total() > 0);
        ProfileNode { name: "cpu".into(), entered: 0, work: Vec::new(), away: 0, children: roots }
    }
}

fn describe(nodes: &[Node], at: usize, profile: &Profiler) -> ProfileNode {
    let node = &nodes[at];
    let work = |share: &Share| ProfileWork {
        name: share.kind.name(&profile.devices),
        count: share.count,
        picos: share.picos,
    };
    ProfileNode {
        name: match node.frame {
            Frame::Mapping(number) => profile.mapping(number).into(),
            frame => frame.to_string().into(),
        },
        entered: node.entered,
        work: node.work.iter().map(work).collect(),
        away: node.away,
        children: node.children.iter().map(|&child| describe(nodes, child, profile)).collect(),
    }
}

/// Work of one kind in one node of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileWork {
    /// The kind's name in the cost table; or `user`: programs; `ipi_wait`: waiting for other CPUs' answers;
    /// `lock_wait:CLASS`: waiting for a lock; `line_socket:LINE` and `line_remote:LINE`: fetching such a line.
    pub name: String,
    /// Units of it; 0 if it has none.
    pub count: u64,
    /// Picoseconds that it took.
    pub picos: u64,
}

/// One node of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileNode {
    /// The scope; `cpu` for the root, and below it what the time is accounted to.
    pub name: Cow<'static, str>,
    /// How often it was entered.
    pub entered: u64,
    /// Work done directly in it, by kind.
    pub work: Vec<ProfileWork>,
    /// Picoseconds in which tasks slept in it, or waited for a CPU after that. This is not CPU time, and in no sum.
    pub away: u64,
    /// Scopes entered from it.
    pub children: Vec<ProfileNode>,
}

impl ProfileNode {
    /// Picoseconds of CPU time spent directly in it.
    pub fn own(&self) -> u64 {
        self.work.iter().map(|work| work.picos).sum()
    }

    /// Picoseconds of CPU time spent in it and below.
    pub fn total(&self) -> u64 {
        self.own() + self.children.iter().map(ProfileNode::total).sum::<u64>()
    }
}
