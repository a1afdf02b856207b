//! How long memory held up tasks of the program: time in which at least one of them reclaimed or compacted for itself,
//! or brought a page back from swap.

use machine_sim::Moment;
use mm::machine::Scope;
use std::collections::BTreeMap;

/// What tasks do only because memory is short. (The outermost counts: each has others inside.)
const HOLD_UP: [Scope; 5] = [
    Scope::TryToFreePages,
    Scope::TryToFreeMemCgroupPages,
    Scope::TryToCompactPages,
    Scope::ReclaimThrottle,
    Scope::DoSwapPage,
];

/// Adds this time up.
#[derive(Default)]
pub(super) struct Pressure {
    /// By task of the program: in how many such scopes it is.
    depths: BTreeMap<u32, u32>,
    /// Tasks that are in one.
    tasks: u32,
    /// Since when, in picoseconds.
    since: u64,
    /// Until when time has been added up. CPUs' clocks differ a little, and no time counts twice.
    told: u64,
    sum: u64,
}

impl Pressure {
    /// A task of the program exists from now on.
    pub(super) fn begin(&mut self, task: u32) {
        self.depths.insert(task, 0);
    }

    /// A task enters a scope.
    pub(super) fn enter(&mut self, at: Moment, scope: Scope) {
        let Some(depth) = self.depth_of(at, scope) else { return };
        *depth += 1;
        if *depth == 1 {
            if self.tasks == 0 {
                self.since = at.picos.max(self.told);
            }
            self.tasks += 1;
        }
    }

    /// A task leaves a scope.
    pub(super) fn leave(&mut self, at: Moment, scope: Scope) {
        let Some(depth) = self.depth_of(at, scope) else { return };
        *depth -= 1;
        if *depth == 0 {
            self.go_on(at.picos);
        }
    }

    /// The task of this moment has ended.
    pub(super) fn end(&mut self, at: Moment) {
        if at.task.and_then(|task| self.depths.remove(&task)).is_some_and(|depth| depth > 0) {
            self.go_on(at.picos);
        }
    }

    /// Picoseconds until `now`.
    pub(super) fn until(&mut self, now: u64) -> u64 {
        self.add(now);
        self.sum
    }

    fn depth_of(&mut self, at: Moment, scope: Scope) -> Option<&mut u32> {
        let task = at.task.filter(|_| HOLD_UP.contains(&scope))?;
        self.depths.get_mut(&task)
    }

    /// A task is held up no longer.
    fn go_on(&mut self, now: u64) {
        self.add(now);
        self.tasks -= 1;
    }

    fn add(&mut self, now: u64) {
        if self.tasks > 0 && now > self.since {
            self.sum += now - self.since;
            (self.since, self.told) = (now, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(task: u32, picos: u64) -> Moment {
        Moment { picos, cpu: 0, task: Some(task) }
    }

    #[test]
    fn time_counts_once_however_many_tasks_are_held_up() {
        let mut pressure = Pressure::default();
        pressure.begin(1);
        pressure.begin(2);
        pressure.enter(at(1, 100), Scope::DoSwapPage);
        pressure.enter(at(1, 110), Scope::TryToFreePages);
        pressure.enter(at(2, 120), Scope::TryToFreePages);
        pressure.leave(at(1, 130), Scope::TryToFreePages);
        pressure.leave(at(1, 140), Scope::DoSwapPage);
        assert_eq!(pressure.until(150), 50, "one of them is held up until now");
        pressure.leave(at(2, 160), Scope::TryToFreePages);
        assert_eq!(pressure.until(200), 60);
        // A CPU whose clock is behind: what was counted does not count again.
        pressure.enter(at(1, 155), Scope::DoSwapPage);
        pressure.leave(at(1, 170), Scope::DoSwapPage);
        assert_eq!(pressure.until(200), 70);
    }

    #[test]
    fn only_the_programs_tasks_count_and_only_what_memory_asks_of_them() {
        let mut pressure = Pressure::default();
        pressure.begin(1);
        pressure.enter(at(7, 100), Scope::TryToFreePages);
        pressure.leave(at(7, 200), Scope::TryToFreePages);
        pressure.enter(at(1, 100), Scope::FilemapFault);
        pressure.leave(at(1, 200), Scope::FilemapFault);
        assert_eq!(pressure.until(300), 0);
        pressure.enter(at(1, 300), Scope::DoSwapPage);
        pressure.end(at(1, 310));
        assert_eq!(pressure.until(400), 10, "a task that ends is not held up");
    }
}
