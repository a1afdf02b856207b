//! The points at which a task of the simulated machine may be stopped (`preempt`).

use super::SimMachine;
use crate::preempt::Preempt;

impl SimMachine {
    /// Do `work`. If `open`, the task that runs may be stopped in it; else no task is.
    #[inline]
    pub(crate) fn stoppable<T>(&self, open: bool, work: impl FnOnce() -> T) -> T {
        match &self.preempt {
            Some(preempt) => preempt.while_open(open, work),
            None => work(),
        }
    }

    /// The task that runs may be stopped here.
    #[inline(always)]
    pub(crate) fn point(&self) {
        if let Some(preempt) = self.preempt.as_deref() {
            self.pass(preempt);
        }
    }

    #[cold]
    #[inline(never)]
    fn pass(&self, preempt: &Preempt) {
        let since = self.clock();
        preempt.pass(since >= self.limit.get());
        self.observers.was_away(self.clock().saturating_sub(since));
    }

    /// The current CPU has left its task. If it has stopped in it, time passes, and the task keeps the CPU.
    pub(crate) fn keep_stopped(&self) {
        if let Some(picos) = self.preempt.as_deref().and_then(Preempt::take_stop) {
            self.this_cpu().spend(picos);
            self.sched.borrow_mut().keep(self.current.get());
        }
    }
}
