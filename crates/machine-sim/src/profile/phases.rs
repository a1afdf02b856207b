//! Phases of a program, by the accesses of all its tasks: each has a node of its own below that of the tasks.

use std::cell::{Cell, RefCell};

/// A phase: its node, and what the tree does not have of it by itself.
#[derive(Clone, Copy)]
pub(super) struct Phase {
    pub(super) node: usize,
    /// Picoseconds in user mode.
    pub(super) user: u64,
    pub(super) accesses: u64,
}

/// The phases so far.
pub(super) struct Phases {
    /// Accesses of a phase; `None`: there is one.
    length: Option<u64>,
    accesses: Cell<u64>,
    all: RefCell<Vec<Phase>>,
}

impl Phases {
    /// Phases of `length` accesses each. `node`: that of the tasks.
    pub(super) fn new(length: Option<u64>, node: usize) -> Phases {
        let first = Phase { node, user: 0, accesses: 0 };
        Phases { length, accesses: Cell::new(0), all: RefCell::new(vec![first]) }
    }

    /// The node of the current phase.
    pub(super) fn node(&self) -> usize {
        self.now(|phase| phase.node)
    }

    /// Whether what follows belongs to a phase that has no node yet. The first has one only if there are others.
    pub(super) fn is_new(&self) -> bool {
        let begun = self.all.borrow().len() as u64;
        self.length.is_some_and(|length| self.accesses.get() / length.max(1) >= begun)
    }

    /// The next phase begins.
    pub(super) fn begin(&self, node: usize) {
        self.all.borrow_mut().push(Phase { node, user: 0, accesses: 0 });
    }

    /// The program has made accesses.
    pub(super) fn accessed(&self, count: u64) {
        self.accesses.set(self.accesses.get() + count);
        self.now(|phase| phase.accesses += count);
    }

    /// Picoseconds in user mode.
    pub(super) fn ran(&self, picos: u64) {
        self.now(|phase| phase.user += picos);
    }

    /// The phases.
    pub(super) fn all(&self) -> Vec<Phase> {
        self.all.borrow().clone()
    }

    fn now<T>(&self, then: impl FnOnce(&mut Phase) -> T) -> T {
        then(self.all.borrow_mut().last_mut().expect("the first phase has begun"))
    }
}
