//! What the machine's observers are told of its tasks.

use super::SimMachine;
use crate::cpu::Class;
use crate::observers::Context;
use crate::profile::Profiler;
use mm::machine::Scope;

impl SimMachine {
    /// Where the machine is now.
    pub(crate) fn context(&self) -> Context<'_> {
        let in_interrupt = self.class.get() == Class::Interrupt;
        Context { cpus: &self.cpus, cpu: self.current.get(), task: self.task.get(), in_interrupt }
    }

    /// Call `then` with the profile, if there is one, after it has attributed all work so far to its current place.
    #[inline]
    pub(crate) fn profiled<T>(&self, then: impl FnOnce(&Profiler) -> T) -> Option<T> {
        let profile = self.observers.profile.as_deref()?;
        profile.settle(&self.work, self.spec.costs());
        Some(then(profile))
    }

    #[cold]
    #[inline(never)]
    pub(super) fn enter_scope(&self, scope: Scope) {
        self.profiled(|profile| profile.enter(scope));
        self.observers.enter(scope, &self.context());
        self.point();
    }

    #[cold]
    #[inline(never)]
    pub(super) fn leave_scope(&self, scope: Scope) {
        self.profiled(|profile| profile.leave(scope));
        self.observers.leave(scope, &self.context());
        self.point();
    }
}
