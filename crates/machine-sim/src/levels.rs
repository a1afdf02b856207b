//! What a timeline is shown of memory, at equal distances in time.

use crate::cpu::Class;
use crate::simulation::{Simulation, TaskKind};
use crate::timeline::{Happening, Levels, ProcessPages};
use mm::table::Resident;
use mm::units::PAGE_SIZE;
use std::collections::BTreeMap;

impl<P> Simulation<'_, P> {
    /// Show the timeline how much memory is used for what, if that is due at `now`.
    pub(crate) fn show_levels(&self, now: u64) {
        let Some(teller) = &self.machine().observers.timeline else { return };
        if teller.borrow_mut().is_due(now) {
            self.show_levels_at(now);
        }
    }

    /// Show the timeline how much memory is used for what.
    pub(crate) fn show_levels_at(&self, now: u64) {
        let Some(teller) = &self.machine().observers.timeline else { return };
        let (mm, spec) = (self.mm(), self.machine().spec());
        let swap = &mm.core().swap;
        let levels = Levels {
            stat: &|stat| mm.mmu().stats.read(stat),
            memory: spec.memory() / PAGE_SIZE,
            swap: (swap.total(), swap.free_slots()),
            generations: mm.generation_pages(),
            kswapd: self.machine().cpus.iter().map(|cpu| cpu.kernel[Class::Kswapd as usize].get()).sum(),
            pressure: self.machine().sched.borrow_mut().shown_pressure(now),
            processes: &self.process_pages(),
        };
        teller.borrow().tell_without_cpu(now, Happening::Shows(levels));
    }

    /// The pages of each process that has a task.
    fn process_pages(&self) -> Vec<ProcessPages> {
        let mut spaces = BTreeMap::new();
        for kind in &self.state.borrow().tasks {
            if let TaskKind::Program(task) = kind
                && !task.has_ended()
            {
                spaces.insert(task.process().number(), task.space());
            }
        }
        let pages = |(process, space)| {
            let of = |kind| self.mm().core().tables.tree(space).counts().get(kind).max(0) as u64;
            let [anon, file, shmem, swap] =
                [Resident::Anon, Resident::File, Resident::Shmem, Resident::Swap].map(of);
            ProcessPages { process, anon, file, shmem, swap }
        };
        spaces.into_iter().map(pages).collect()
    }
}
