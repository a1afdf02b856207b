//! Flushes that go wrong on purpose, to test the oracle.

use crate::config::FlushFault;
use crate::cpu::{Cpu, add};
use mm::machine::{Asid, Flush};
use std::cell::{Cell, RefCell};

/// A flush that was delayed.
struct LateFlush {
    due: u64,
    cpu: usize,
    what: Flush,
    /// The address-space number that was loaded when the flush should have happened.
    asid: Asid,
}

/// Counts flushes, and drops or delays the one that the configuration names.
pub(crate) struct FlushFaults {
    fault: Option<FlushFault>,
    flushes: Cell<u64>,
    late: RefCell<Vec<LateFlush>>,
}

impl FlushFaults {
    pub(crate) fn new(fault: Option<FlushFault>) -> FlushFaults {
        FlushFaults { fault, flushes: Cell::new(0), late: RefCell::default() }
    }

    /// Whether the flush that `cpu` begins now goes wrong; it is then dropped, or kept for later. `remote`: another CPU
    /// asked for it.
    pub(crate) fn strikes(&self, (number, cpu): (usize, &Cpu), what: Flush, remote: bool) -> bool {
        let Some(fault) = self.fault else { return false };
        if fault.remote.is_some_and(|only| only != remote) {
            return false;
        }
        add(&self.flushes, 1);
        if self.flushes.get() != fault.nth {
            return false;
        }
        if let Some(delay) = fault.delay {
            let due = cpu.clock.get() + delay * 1000;
            self.late.borrow_mut().push(LateFlush { due, cpu: number, what, asid: cpu.asid.get() });
        }
        true
    }

    /// Delayed flushes of `cpu` that are due happen.
    pub(crate) fn run_late(&self, (number, cpu): (usize, &Cpu)) {
        self.late.borrow_mut().retain(|late| {
            let due = late.cpu == number && late.due <= cpu.clock.get();
            if due {
                cpu.tlb.flush(if late.asid == cpu.asid.get() { late.what } else { Flush::All });
            }
            !due
        });
    }
}
