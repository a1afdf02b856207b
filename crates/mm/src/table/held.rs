//! What a task holds of a tree: its gate, and the lock of one table.
//!
//! *Problem.* Tasks of one space that fault in different tables, and reclaim, which walks to its entries from outside,
//! have nothing to do with each other. One lock for the tree makes them wait.
//!
//! *Rule.* Each table has a lock, which keeps its entries, their number and its debt. A task that needs one table at a
//! time goes through the tree's gate with others and locks the table that it has found; when it goes on to another
//! table, it unlocks this one first. A task that links or unlinks tables, or that must find several tables unchanged,
//! is in alone and needs no table's lock. Tables are linked and unlinked only so, so a table stays where it was found
//! as long as somebody is inside. An entry that leads to a table, or a hole in its place, is read without a lock: it
//! changes only alone, or, from a hole to an entry of 2 MiB or back, under the lock of the table that holds it, and is
//! then read again.
//!
//! *Simulated time.* What Linux has no lock for takes none: the gate is not timed. Each table's lock is, also for a
//! task that is in alone: Linux's counterpart holds the lock of each table that it comes to.
//!
//! *Where the lock is.* In the record of the table's frame: as a word that CPUs spin on, or, on one thread, as the
//! number of a lock that somebody watches or times. If nobody does, there is none.

use crate::frame::Frame;
use crate::lock::GateGuard;
use core::cell::Cell;

#[cfg(feature = "one-thread")]
pub(super) use numbered::{TableHold, TableLocks};
#[cfg(not(feature = "one-thread"))]
pub(super) use spinning::{TableHold, TableLocks};

#[cfg(not(feature = "one-thread"))]
mod spinning {
    use super::*;

    /// The locks of a tree's tables are in their frames' records.
    #[derive(Default)]
    pub(in crate::table) struct TableLocks;

    impl TableLocks {
        pub fn begin(&self) {}

        /// The table of this record, which no task has locked, is no longer one.
        #[inline(always)]
        pub fn end(&self, _table: &Frame) {}
    }

    /// The gate, and the record of the table that is locked.
    pub(in crate::table) struct TableHold<'a> {
        gate: GateGuard<'a>,
        locked: Cell<Option<&'a Frame>>,
    }

    impl<'a> TableHold<'a> {
        #[inline(always)]
        pub fn new(_locks: &'a TableLocks, gate: GateGuard<'a>) -> TableHold<'a> {
            TableHold { gate, locked: Cell::new(None) }
        }

        #[inline(always)]
        pub(crate) fn is_alone(&self) -> bool {
            self.gate.is_alone()
        }

        /// Lock the table of this record in place of the one before. Returns whether others may have locked that one
        /// since.
        #[inline(always)]
        pub fn enter(&self, table: &'a Frame) -> bool {
            if self.is_alone() {
                return false;
            }
            match self.locked.get() {
                None => {
                    table.lock_table();
                    self.locked.set(Some(table));
                    false
                }
                Some(before) if core::ptr::eq(before, table) => false,
                Some(before) => {
                    go_on(before, table);
                    self.locked.set(Some(table));
                    true
                }
            }
        }

        /// The same if no task has locked it; no table is locked yet.
        #[inline(always)]
        pub(crate) fn try_enter(&self, table: &'a Frame) -> bool {
            if self.is_alone() {
                return true;
            }
            let entered = table.try_lock_table();
            if entered {
                self.locked.set(Some(table));
            }
            entered
        }

        /// Unlock the table.
        #[inline(always)]
        pub fn leave(&self) {
            if let Some(table) = self.locked.take() {
                table.unlock_table();
            }
        }

        /// A walk that is in alone has come to the end of a table.
        #[inline(always)]
        pub fn pass(&self) {}

        /// Charge work.
        #[inline(always)]
        pub fn between(&mut self, charge: impl FnOnce()) {
            charge();
        }

        pub(crate) fn become_alone(&mut self) {
            self.leave();
            self.gate.become_alone();
        }
    }

    impl Drop for TableHold<'_> {
        #[inline(always)]
        fn drop(&mut self) {
            if let Some(table) = self.locked.get() {
                table.unlock_table();
            }
        }
    }

    // Not a method: what is passed by address cannot be kept in registers, which costs every caller.
    #[cold]
    #[inline(never)]
    fn go_on(before: &Frame, table: &Frame) {
        before.unlock_table();
        table.lock_table();
    }
}

#[cfg(feature = "one-thread")]
mod numbered {
    use super::*;
    use crate::arena::Arena;
    use crate::lock::{Guard, Lock, LockClass, is_timing, is_watching};
    use core::cell::OnceCell;

    /// The lock of a table.
    struct TableLock(Lock<TableEntries>);

    /// What it keeps, which is not in it.
    struct TableEntries;

    impl Default for TableLock {
        fn default() -> TableLock {
            TableLock(Lock::of(LockClass::PageTable, TableEntries))
        }
    }

    /// What must be told of locks.
    #[derive(Clone, Copy, PartialEq, Eq, Default)]
    enum Asks {
        #[default]
        Nobody,
        Clock,
        Watch,
    }

    /// The locks of a tree's tables, by the number in a table's record, from 1 on.
    #[derive(Default)]
    pub(in crate::table) struct TableLocks {
        asks: Cell<Asks>,
        locks: OnceCell<Arena<TableLock>>,
    }

    impl TableLocks {
        /// The tree is for a new space.
        pub fn begin(&self) {
            self.asks.set(match () {
                () if is_watching() => Asks::Watch,
                () if is_timing() => Asks::Clock,
                () => Asks::Nobody,
            });
        }

        fn of(&self, table: &Frame) -> &Lock<TableEntries> {
            let locks = self.locks.get_or_init(Arena::default);
            if table.table_lock() == 0 {
                table.set_table_lock(locks.claim() + 1);
            }
            &locks[table.table_lock() - 1].0
        }

        /// The table of this record, which no task has locked, is no longer one.
        pub fn end(&self, table: &Frame) {
            let number = table.table_lock();
            if let (Some(locks), true) = (self.locks.get(), number > 0) {
                locks[number - 1].0.renew();
                locks.release(number - 1);
                table.set_table_lock(0);
            }
        }
    }

    /// The gate, the record of the table that was entered last, and its lock if somebody asks for it.
    pub(in crate::table) struct TableHold<'a> {
        guard: Cell<Option<Guard<'a, TableEntries>>>,
        gate: GateGuard<'a>,
        locks: &'a TableLocks,
        asks: Asks,
        at: Cell<Option<&'a Frame>>,
    }

    impl<'a> TableHold<'a> {
        #[inline(always)]
        pub fn new(locks: &'a TableLocks, gate: GateGuard<'a>) -> TableHold<'a> {
            let asks = locks.asks.get();
            TableHold { guard: Cell::new(None), gate, locks, asks, at: Cell::new(None) }
        }

        #[inline(always)]
        pub(crate) fn is_alone(&self) -> bool {
            self.gate.is_alone()
        }

        /// Lock the table of this record in place of the one before. Returns whether others may have locked that one
        /// since.
        #[inline(always)]
        pub fn enter(&self, table: &'a Frame) -> bool {
            let before = self.at.get();
            if before.is_some_and(|before| core::ptr::eq(before, table)) {
                return false;
            }
            if self.asks != Asks::Nobody {
                self.lock(table);
            }
            self.at.set(Some(table));
            before.is_some() && !self.is_alone()
        }

        /// The same if no task has locked it; no table is locked yet.
        #[inline]
        pub(crate) fn try_enter(&self, table: &'a Frame) -> bool {
            if self.asks != Asks::Nobody && !self.is_met_by_none() {
                let Some(guard) = self.locks.of(table).try_lock() else { return false };
                self.guard.set(Some(guard));
            }
            self.at.set(Some(table));
            true
        }

        #[cold]
        #[inline(never)]
        fn lock(&self, table: &'a Frame) {
            self.leave();
            if !self.is_met_by_none() {
                self.guard.set(Some(self.locks.of(table).lock()));
            }
        }

        /// A watch looks for tasks that meet, which a task that is in alone does not.
        fn is_met_by_none(&self) -> bool {
            self.asks == Asks::Watch && self.is_alone()
        }

        /// Unlock the table.
        #[inline(always)]
        pub fn leave(&self) {
            if self.asks != Asks::Nobody {
                self.guard.set(None);
            }
            self.at.set(None);
        }

        /// Charge work for which the locked table is unlocked in simulated time.
        #[inline(always)]
        pub fn between(&mut self, mut charge: impl FnMut()) {
            match self.guard.get_mut() {
                Some(guard) if self.asks == Asks::Clock => guard.pause(charge),
                _ => charge(),
            }
        }

        /// A walk that is in alone has come to the end of a table.
        #[inline(always)]
        pub fn pass(&self) {
            if self.is_alone() {
                self.leave();
            }
        }

        pub(crate) fn become_alone(&mut self) {
            self.leave();
            self.gate.become_alone();
        }
    }
}
