//! Flushes that are to go wrong: the oracle's own test.

use super::{Class, SimMachine};
use mm::machine::Flush;

impl SimMachine {
    /// Should this flush go wrong? It then is dropped, or kept for later.
    pub(super) fn goes_wrong(&self, what: Flush) -> bool {
        let Some(fault) = self.fault else { return false };
        if fault.remote.is_some_and(|remote| remote != (self.class.get() == Class::Interrupt)) {
            return false;
        }
        self.flushes.set(self.flushes.get() + 1);
        if self.flushes.get() != fault.nth {
            return false;
        }
        if let Some(delay) = fault.delay {
            let cpu = self.current.get();
            let due = self.here().clock.get() + delay * 1000;
            self.late.borrow_mut().push((due, cpu, what, self.asid[cpu].get()));
        }
        true
    }

    /// Flushes that were delayed and are due on the current CPU take place.
    pub(crate) fn late_flushes(&self) {
        let (cpu, now) = (self.current.get(), self.here().clock.get());
        self.late.borrow_mut().retain(|&(due, on, what, asid)| {
            let here = on == cpu && due <= now;
            if here && asid == self.asid[cpu].get() {
                self.here().tlb.flush(what);
            } else if here {
                self.here().tlb.flush(Flush::All);
            }
            !here
        });
    }
}
