//! The order of one CPU's tasks: EEVDF, as in Linux since 6.6, of tasks that all have the same weight.
//!
//! A task's virtual time is what it has run. It is owed what it has run less than the average of all tasks, and only a
//! task that is not ahead of the average is eligible. Of these the one with the earliest deadline runs: a deadline is a
//! slice after the virtual time at which the slice began. A task that is chosen keeps the CPU for the rest of its
//! slice, as long as it is eligible; one that ran ahead waits, even if it has slept in between for a short time.
//!
//! Source: kernel/sched/fair.c of Linux 6.12.

/// Picoseconds between two ticks of a CPU's clock: 250 ticks a second (CONFIG_HZ of Debian's kernels).
pub(crate) const TICK: u64 = 4_000_000_000;
/// A slice on one CPU, in picoseconds (`sysctl_sched_base_slice`).
const BASE_SLICE: i64 = 750_000_000;

/// A task's place among others. All times are picoseconds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Entity {
    /// How long it has run, moved to the average of the tasks that it joined last.
    vruntime: i64,
    deadline: i64,
    /// The deadline of the slice for which it was chosen.
    chosen_for: Option<i64>,
    /// How far it was behind the average when it left.
    lag: i64,
    /// How much it has left of a slice that it has begun elsewhere.
    left: Option<i64>,
}

impl Entity {
    pub(super) fn deadline(&self) -> i64 {
        self.deadline
    }

    /// Its order by virtual time.
    pub(super) fn place(&self) -> (i64, i64) {
        (self.vruntime, self.deadline)
    }

    /// Whether its slice is the one for which it was chosen: it is not preempted in it.
    pub(super) fn is_protected(&self) -> bool {
        self.chosen_for == Some(self.deadline)
    }

    /// It begins to run.
    pub(super) fn choose(&mut self) {
        self.chosen_for = Some(self.deadline);
    }
}

/// The sums of a CPU's tasks.
#[derive(Debug)]
pub(super) struct Fair {
    slice: i64,
    /// Of virtual times.
    sum: i128,
    tasks: i64,
    /// The average when the last task left.
    last: i64,
}

impl Fair {
    /// Of a CPU of a machine with `cpus`: slices are longer on larger machines (`get_update_sysctl_factor`).
    pub(super) fn new(cpus: usize) -> Fair {
        let factor = 1 + cpus.clamp(1, 8).ilog2();
        Fair { slice: BASE_SLICE * i64::from(factor), sum: 0, tasks: 0, last: 0 }
    }

    /// A new task. Its first slice is half as long.
    pub(super) fn newcomer(&self) -> Entity {
        Entity { left: Some(self.slice / 2), ..Entity::default() }
    }

    /// The average of virtual times.
    fn average(&self) -> i64 {
        match (self.tasks, i64::try_from(self.sum)) {
            (0, _) => self.last,
            (1, _) => self.sum as i64,
            // A wide division is a call.
            (tasks, Ok(sum)) => sum.div_euclid(tasks),
            (tasks, Err(_)) => self.sum.div_euclid(i128::from(tasks)) as i64,
        }
    }

    /// Whether a task of this CPU is not ahead of the average.
    pub(super) fn is_eligible(&self, entity: &Entity) -> bool {
        i128::from(entity.vruntime) * i128::from(self.tasks) <= self.sum
    }

    /// Whether there are other tasks beside one of this CPU.
    pub(super) fn has_others(&self) -> bool {
        self.tasks > 1
    }

    /// A task comes. It is as far behind the average, or ahead of it, as when it left.
    pub(super) fn join(&mut self, entity: &mut Entity) {
        // It moves the average itself.
        let lag = if self.tasks == 0 { 0 } else { entity.lag * (self.tasks + 1) / self.tasks };
        entity.vruntime = self.average() - lag;
        entity.deadline = entity.vruntime + entity.left.take().unwrap_or(self.slice);
        entity.chosen_for = None;
        self.sum += i128::from(entity.vruntime);
        self.tasks += 1;
    }

    /// A task leaves.
    pub(super) fn leave(&mut self, entity: &mut Entity) {
        let most = (2 * self.slice).max(TICK as i64);
        self.last = self.average();
        entity.lag = (self.last - entity.vruntime).clamp(-most, most);
        self.sum -= i128::from(entity.vruntime);
        self.tasks -= 1;
    }

    /// The same for one that goes to another CPU and has a part of its slice left.
    pub(super) fn move_away(&mut self, entity: &mut Entity) {
        self.leave(entity);
        entity.left = Some(entity.deadline - entity.vruntime);
    }

    /// A task that slept when it was ahead of the average leaves now. What it is owed since is lost.
    pub(super) fn leave_late(&mut self, entity: &mut Entity) {
        self.leave(entity);
        entity.lag = entity.lag.min(0);
    }

    /// Such a task is woken before it has left. If it is owed something by now, that is lost.
    pub(super) fn wake_early(&mut self, entity: &mut Entity) {
        if self.is_eligible(entity) && self.average() != entity.vruntime {
            self.leave(entity);
            entity.lag = 0;
            self.join(entity);
        }
    }

    /// A task runs for this long. Returns whether its slice has ended; a new one begins then.
    pub(super) fn run(&mut self, entity: &mut Entity, picos: u64) -> bool {
        entity.vruntime += picos as i64;
        self.sum += i128::from(picos);
        let ended = entity.vruntime >= entity.deadline;
        if ended {
            entity.deadline = entity.vruntime + self.slice;
        }
        ended
    }

    /// A task goes behind all others, of which `latest` has the latest virtual time.
    pub(super) fn yield_to(&mut self, entity: &mut Entity, latest: &Entity) {
        let vruntime = entity.vruntime.max(latest.vruntime);
        self.sum += i128::from(vruntime - entity.vruntime);
        entity.vruntime = vruntime;
        entity.deadline = entity.deadline.max(latest.deadline).max(vruntime) + self.slice;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(vruntimes: &[i64]) -> (Fair, Vec<Entity>) {
        let mut fair = Fair::new(1);
        let entities = vruntimes.iter().map(|&vruntime| {
            let mut entity = fair.newcomer();
            fair.join(&mut entity);
            let picos = (vruntime - entity.vruntime).max(0) as u64;
            fair.run(&mut entity, picos);
            entity
        });
        let entities = entities.collect();
        (fair, entities)
    }

    #[test]
    fn slices_are_linuxs() {
        let slices = [1, 2, 4, 8, 64].map(|cpus| Fair::new(cpus).slice / 1_000_000);
        assert_eq!(slices, [750, 1500, 2250, 3000, 3000]);
    }

    proptest! {
        /// A task that leaves and comes back is as far behind the average as before, or ahead of it.
        #[test]
        fn lag_is_kept(vruntimes in prop::collection::vec(0..4_000_000i64, 2..9)) {
            let (mut fair, mut entities) = of(&vruntimes);
            let lag = fair.average() - entities[0].vruntime;
            fair.leave(&mut entities[0]);
            fair.join(&mut entities[0]);
            // Averages are whole picoseconds.
            prop_assert!((fair.average() - entities[0].vruntime - lag).abs() <= 2);
        }

        /// Some task is always eligible.
        #[test]
        fn there_is_a_next(vruntimes in prop::collection::vec(0..1_000_000_000i64, 1..9)) {
            let (fair, entities) = of(&vruntimes);
            prop_assert!(entities.iter().any(|entity| fair.is_eligible(entity)));
            prop_assert_eq!(fair.sum, entities.iter().map(|entity| i128::from(entity.vruntime)).sum::<i128>());
        }
    }
}
