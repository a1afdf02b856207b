//! Where CPU time went: a tree of scopes, with the kinds of work that were charged in each.
//!
//! The memory manager opens scopes ([`mm::scope`]) and charges work; the machine knows what each unit costs. The tree's
//! nodes are scopes by path; at each stand the kinds of work that were charged right there, of the memory manager
//! (`rmap_remove`) and of the hardware (`invlpg`), under the names of the cost table, so that every number's source can
//! be looked up. The roots say on whose behalf a CPU works: a program's, a daemon's, or another CPU's or a device's
//! (`interrupt`).
//!
//! Nothing may be charged twice or forgotten, and who does not profile must not pay. So charging itself is as it always
//! is: it counts units by kind. The tree is brought up to date where the place changes (a scope is entered or left, a
//! task switched, an interrupt begins or ends): what was counted since belongs to the place before. Only hardware's
//! costs, which nobody counts by kind, are noted one by one.
//!
//! The place belongs to the task: a task that sleeps in a scope is still in it when it goes on, perhaps on another CPU.
//! Sleeping takes no CPU time; how long a task was away (asleep, or waiting for a CPU after that) is kept beside the
//! work. A CPU that waits for others to answer its interrupt is busy, as under Linux: that is work, `ipi_wait`.

use crate::cpu::Class;
use crate::sched::TaskId;
use crate::spec::{Costs, Hardware};
use mm::machine::{Scope, Work};
use std::cell::{Cell, RefCell};

/// What a node of the tree stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Frame {
    /// On whose behalf.
    Root(Class),
    /// Inside of what.
    Scope(Scope),
}

impl Frame {
    fn name(self) -> &'static str {
        match self {
            Frame::Root(Class::System) => "program",
            Frame::Root(Class::Kswapd) => "kswapd",
            Frame::Root(Class::Flusher) => "flusher",
            Frame::Root(Class::Interrupt) => "interrupt",
            Frame::Scope(scope) => scope.name(),
        }
    }
}

/// A kind of work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// The memory manager's.
    Work(Work),
    /// The hardware's.
    Hardware(Hardware),
    /// Waiting until other CPUs have answered an interrupt.
    IpiWait,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::Work(work) => work.name(),
            Kind::Hardware(item) => item.name(),
            Kind::IpiWait => "ipi_wait",
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

/// The classes in the order of their roots, which are the first nodes.
const ROOTS: [Class; 4] = [Class::System, Class::Kswapd, Class::Flusher, Class::Interrupt];

/// The tree of a run that goes on.
pub(crate) struct Profiler {
    nodes: RefCell<Vec<Node>>,
    /// Where the current CPU is.
    place: Cell<usize>,
    /// Where each task is that does not run.
    tasks: RefCell<Vec<Option<usize>>>,
    /// Units of work that are in the tree.
    seen: RefCell<[u64; Work::COUNT]>,
    /// What happens now is not to be seen.
    muted: Cell<bool>,
}

impl Profiler {
    pub(crate) fn new() -> Profiler {
        let nodes = ROOTS.iter().enumerate().map(|(at, &class)| Node::new(Frame::Root(class), at)).collect();
        Profiler {
            nodes: RefCell::new(nodes),
            place: Cell::new(0),
            tasks: RefCell::default(),
            seen: RefCell::new([0; Work::COUNT]),
            muted: Cell::new(false),
        }
    }

    /// What was counted since the last call belongs to the place where the CPU is.
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

    /// Time of a kind that is not counted elsewhere.
    pub(crate) fn note(&self, kind: Kind, count: u64, picos: u64) {
        if !self.muted.get() {
            self.nodes.borrow_mut()[self.place.get()].add(kind, count, picos);
        }
    }

    /// The task goes into a scope. All is settled.
    pub(crate) fn enter(&self, scope: Scope) {
        if self.muted.get() {
            return;
        }
        let mut nodes = self.nodes.borrow_mut();
        let (parent, frame) = (self.place.get(), Frame::Scope(scope));
        let found = nodes[parent].children.iter().copied().find(|&child| nodes[child].frame == frame);
        let child = found.unwrap_or_else(|| {
            nodes.push(Node::new(frame, parent));
            let child = nodes.len() - 1;
            nodes[parent].children.push(child);
            child
        });
        nodes[child].entered += 1;
        self.place.set(child);
    }

    /// It comes out again. All is settled.
    pub(crate) fn leave(&self, scope: Scope) {
        if self.muted.get() {
            return;
        }
        let nodes = self.nodes.borrow();
        let here = &nodes[self.place.get()];
        debug_assert_eq!(here.frame, Frame::Scope(scope), "scopes are left in the order of entering");
        self.place.set(here.parent);
    }

    /// The CPU begins something on another's behalf; returns where it was. All is settled.
    pub(crate) fn go_to_root(&self, class: Class) -> usize {
        self.place.replace(class as usize)
    }

    /// The CPU goes back to where it was. All is settled.
    pub(crate) fn go_to(&self, place: usize) {
        self.place.set(place);
    }

    /// The CPU goes on with a task. All is settled.
    pub(crate) fn resume(&self, task: TaskId) {
        if let Some(&Some(place)) = self.tasks.borrow().get(task as usize) {
            self.place.set(place);
        }
    }

    /// The task is left where it is. All is settled.
    pub(crate) fn suspend(&self, task: TaskId) {
        let (mut tasks, task) = (self.tasks.borrow_mut(), task as usize);
        if tasks.len() <= task {
            tasks.resize(task + 1, None);
        }
        tasks[task] = Some(self.place.get());
    }

    /// The running task was away. What it does outside of any scope, as daemons wait for work and programs for each
    /// other, is nobody's delay.
    pub(crate) fn was_away(&self, picos: u64) {
        let place = self.place.get();
        if place >= ROOTS.len() {
            self.nodes.borrow_mut()[place].away += picos;
        }
    }

    /// Is what happens to be seen?
    pub(crate) fn mute(&self, muted: bool) {
        self.muted.set(muted);
    }

    /// The tree as it is. All is settled; `user` is the CPU time of programs themselves.
    pub(crate) fn tree(&self, user: u64) -> ProfileNode {
        let nodes = self.nodes.borrow();
        let mut roots: Vec<ProfileNode> = (0..ROOTS.len()).map(|root| describe(&nodes, root)).collect();
        roots[0].work.push(ProfileWork { name: "user", count: 0, picos: user });
        roots.retain(|root| root.total() > 0);
        ProfileNode { name: "cpu", entered: 0, work: Vec::new(), away: 0, children: roots }
    }
}

fn describe(nodes: &[Node], at: usize) -> ProfileNode {
    let node = &nodes[at];
    let work =
        |share: &Share| ProfileWork { name: share.kind.name(), count: share.count, picos: share.picos };
    ProfileNode {
        name: node.frame.name(),
        entered: node.entered,
        work: node.work.iter().map(work).collect(),
        away: node.away,
        children: node.children.iter().map(|&child| describe(nodes, child)).collect(),
    }
}

/// Work of one kind, done in one place of the tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileWork {
    /// The kind, as the cost table names it; `user`: programs themselves; `ipi_wait`: waiting for other CPUs' answers.
    pub name: &'static str,
    /// Units of it; 0 where it is not done in units.
    pub count: u64,
    /// Picoseconds that it took.
    pub picos: u64,
}

/// One place of the tree: a scope inside of scopes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProfileNode {
    /// The scope; at the root `cpu`, and below it who the CPUs worked for.
    pub name: &'static str,
    /// How often it was entered.
    pub entered: u64,
    /// Work that was done right here, by kind.
    pub work: Vec<ProfileWork>,
    /// Picoseconds in which tasks slept right here, or waited for a CPU after that. Not CPU time: not in any sum.
    pub away: u64,
    /// Scopes that were entered from here.
    pub children: Vec<ProfileNode>,
}

impl ProfileNode {
    /// Picoseconds of CPU time spent right here.
    pub fn own(&self) -> u64 {
        self.work.iter().map(|work| work.picos).sum()
    }

    /// Picoseconds of CPU time spent here and below.
    pub fn total(&self) -> u64 {
        self.own() + self.children.iter().map(ProfileNode::total).sum::<u64>()
    }
}
