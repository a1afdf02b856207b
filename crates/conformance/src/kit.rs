//! What all checks use.

use crate::crew;
use crate::harness::Harness;
use crate::report::{Stop, Verdict};
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
            return Err($crate::report::Stop::Failed(std_alloc::format!($($why)+)));
        }
    };
}
pub(crate) use ensure;

/// One check's hold on the kernel.
pub(crate) struct Kit<'h, H> {
    pub harness: &'h H,
    /// The check, for who must be told that it hangs.
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

    /// How often something is tried that may go wrong at times.
    pub fn times(&self, few: u32) -> u32 {
        few * self.harness.effort().max(1)
    }

    /// Run `body` on each of these CPUs at once; the first failure is the check's.
    pub fn on_each<F: Fn(CpuId) -> Verdict + Shared>(&self, cpus: &[CpuId], body: F) -> Verdict {
        let first = First::default();
        crew::on_each(self.harness, self.name, cpus, &|cpu| first.note(body(cpu)));
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

    /// Let others run until something is so. `false`: it did not become so in reasonable time.
    #[must_use]
    pub fn until(&self, is_so: impl FnMut() -> bool) -> bool {
        self.turn(|| self.harness.pause(), is_so)
    }

    /// Keep the CPU until something is so.
    #[must_use]
    pub fn spin_until(&self, is_so: impl FnMut() -> bool) -> bool {
        self.turn(|| self.harness.spin(), is_so)
    }

    fn turn(&self, turn: impl Fn(), mut is_so: impl FnMut() -> bool) -> bool {
        let end = self.machine().now().saturating_add(self.harness.patience());
        while !is_so() {
            if self.machine().now() > end {
                return false;
            }
            turn();
        }
        true
    }

    /// Wait until all `count` tasks have come to this meeting.
    pub fn meet(&self, meeting: &AtomicU32, count: usize) -> Verdict {
        meeting.fetch_add(1, AcqRel);
        ensure!(self.until(|| meeting.load(Acquire) as usize >= count), "a task did not come in time");
        Ok(())
    }
}

/// The first failure of several tasks.
#[derive(Default)]
pub(crate) struct First(Lock<Option<Stop>>);

impl First {
    pub fn note(&self, verdict: Verdict) {
        if let Err(stop) = verdict {
            self.0.lock().get_or_insert(stop);
        }
    }

    pub fn verdict(&self) -> Verdict {
        self.0.lock().take().map_or(Ok(()), Err)
    }
}

/// What `validate` says when the daemons are between two of their steps as well as when they sleep.
pub(crate) fn validate<H: Harness>(kit: &Kit<'_, H>) -> Verdict {
    let mut fault = String::new();
    let mut is_fine = || match kit.harness.mm().validate() {
        Ok(()) => true,
        Err(found) => {
            fault = found;
            false
        }
    };
    let fine = kit.until(&mut is_fine);
    ensure!(fine, "validate: {fault}");
    Ok(())
}
