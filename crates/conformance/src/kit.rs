//! Helpers that all checks use.

use crate::harness::Harness;
use crate::report::{NotPassed, Verdict};
use crate::workers;
use mm::lock::Lock;
use mm::machine::Machine;
use mm::primitive::{AtomicU32, Ordering::*, Shared};
use mm::units::*;
use std_alloc::string::String;
use std_alloc::vec::Vec;

/// End a check as failed unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($why:tt)+) => {
        if !$condition {
            return Err($crate::report::NotPassed::Failed(std_alloc::format!($($why)+)));
        }
    };
}
pub(crate) use ensure;

/// What one check is given.
pub(crate) struct Kit<'h, H> {
    pub harness: &'h H,
    /// The check, for the message when it hangs.
    pub name: &'static str,
}

impl<'h, H: Harness> Kit<'h, H> {
    pub fn machine(&self) -> &'h H::Machine {
        self.harness.mm().machine()
    }

    /// All CPUs.
    pub fn cpus(&self) -> Vec<CpuId> {
        (0..self.machine().cpus()).map(|cpu| CpuId(cpu as u16)).collect()
    }

    /// How often to repeat what goes wrong only at times.
    pub fn times(&self, few: u32) -> u32 {
        few * self.harness.effort().max(1)
    }

    /// Run `body` on each of these CPUs at once. The check fails with the first failure.
    pub fn on_each<F: Fn(CpuId) -> Verdict + Shared>(&self, cpus: &[CpuId], body: F) -> Verdict {
        let first = First::default();
        workers::on_each(self.harness, self.name, cpus, &|cpu| first.note(body(cpu)));
        first.verdict()
    }

    /// Run `body` on one CPU.
    pub fn on<F: Fn() -> Verdict + Shared>(&self, cpu: CpuId, body: F) -> Verdict {
        self.on_each(&[cpu], |_| body())
    }

    /// Run `body` on each CPU, one CPU after the other.
    pub fn on_each_in_turn<F: Fn(CpuId) -> Verdict + Shared>(&self, body: F) -> Verdict {
        self.cpus().into_iter().try_for_each(|cpu| self.on_each(&[cpu], &body))
    }

    /// Let other tasks run until `condition` is true. Returns `false` if that takes too long.
    #[must_use]
    pub fn until(&self, condition: impl FnMut() -> bool) -> bool {
        self.poll(|| self.harness.pause(), condition)
    }

    /// Keep the CPU until `condition` is true. Returns `false` if that takes too long.
    #[must_use]
    pub fn spin_until(&self, condition: impl FnMut() -> bool) -> bool {
        self.poll(|| self.harness.spin(), condition)
    }

    fn poll(&self, wait: impl Fn(), mut condition: impl FnMut() -> bool) -> bool {
        let end = self.machine().now().saturating_add(self.harness.patience());
        while !condition() {
            if self.machine().now() > end {
                return false;
            }
            wait();
        }
        true
    }

    /// Wait until `count` tasks have arrived here.
    pub fn barrier(&self, arrived: &AtomicU32, count: usize) -> Verdict {
        self.meet(arrived, count, || self.harness.pause())
    }

    /// The same for tasks that keep their CPUs, of which each has one of its own.
    pub fn spin_barrier(&self, arrived: &AtomicU32, count: usize) -> Verdict {
        self.meet(arrived, count, || self.harness.spin())
    }

    fn meet(&self, arrived: &AtomicU32, count: usize, wait: impl Fn()) -> Verdict {
        arrived.fetch_add(1, AcqRel);
        let came = self.poll(wait, || arrived.load(Acquire) as usize >= count);
        ensure!(came, "a task did not come in time");
        Ok(())
    }
}

/// The first failure of several tasks.
#[derive(Default)]
pub(crate) struct First(Lock<Option<NotPassed>>);

impl First {
    pub fn note(&self, verdict: Verdict) {
        if let Err(reason) = verdict {
            self.0.lock().get_or_insert(reason);
        }
    }

    pub fn verdict(&self) -> Verdict {
        self.0.lock().take().map_or(Ok(()), Err)
    }
}

/// Run `validate` until it passes: the daemons may be in the middle of a step.
pub(crate) fn validate<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let mut error = String::new();
    let mut is_valid = || match kit.harness.mm().validate() {
        Ok(()) => true,
        Err(found) => {
            error = found;
            false
        }
    };
    let valid = kit.until(&mut is_valid);
    ensure!(valid, "validate: {error}");
    Ok(())
}
