//! A user who inspects generations while the program runs, and gives commands for them: what Linux's debugfs files
//! `lru_gen` and `lru_gen_full` are for.

use crate::config::Visit;
use crate::outcome::Visited;
use crate::sched::Key;
use crate::simulation::Simulation;
use mm::machine::WaitKey;

impl<P> Simulation<'_, P> {
    /// Make the visits of the configuration, in order of time, until the machine stops.
    pub(crate) fn make_visits(&self) {
        let machine = self.machine();
        let mut visits: Vec<&Visit> = self.config.visits.iter().filter(|visit| visit.at.is_some()).collect();
        visits.sort_by_key(|visit| visit.at);
        for visit in visits {
            let at = visit.at.expect("the others were left out").saturating_mul(1000);
            if !self.sleep_until(at) {
                return;
            }
            self.visit(visit, machine.clock());
        }
    }

    /// Sleep until a time in picoseconds, as the current task. Returns whether the machine goes on.
    pub(crate) fn sleep_until(&self, at: u64) -> bool {
        let machine = self.machine();
        while machine.clock() < at && !machine.stopping.get() {
            machine.sleep(Key::Mm(WaitKey::Timer), Some(at));
        }
        !machine.stopping.get()
    }

    /// Make the visits that have no time, at the end of the program.
    pub(crate) fn make_last_visits(&self, now: u64) {
        for visit in self.config.visits.iter().filter(|visit| visit.at.is_none()) {
            self.visit(visit, now);
        }
    }

    fn visit(&self, visit: &Visit, now: u64) {
        let answer =
            if visit.commands.is_empty() { Ok(()) } else { self.mm().lru_gen_command(&visit.commands) };
        let text = self.mm().lru_gen(visit.full);
        let visited = Visited { nanos: now / 1000, commands: visit.commands.clone(), answer, text };
        self.state.borrow_mut().visited.push(visited);
    }
}
