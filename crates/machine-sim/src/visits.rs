//! A user who looks at generations while the program runs, and commands them: what Linux's debugfs files `lru_gen` and
//! `lru_gen_full` are for.

use crate::sched::Key;
use crate::world::World;
use mm::machine::WaitKey;
use mm::reclaim::CommandError;

/// A look at the generations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Visit {
    /// Simulated nanoseconds from the start; `None`: when the program has ended.
    pub at: Option<u64>,
    /// Commands to give before, as the file takes them; they may be none.
    pub commands: String,
    /// Show what `lru_gen_full` shows.
    pub full: bool,
}

/// What a visit has shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Visited {
    /// When the commands were carried out.
    pub nanos: u64,
    /// The commands.
    pub commands: String,
    /// What became of them.
    pub answer: Result<(), CommandError>,
    /// The file.
    pub text: String,
}

impl<P> World<'_, P> {
    /// Pay the visits of the configuration, in order of time, until the machine stops.
    pub(crate) fn pay_visits(&self) {
        let machine = self.machine();
        let mut visits: Vec<&Visit> = self.config.visits.iter().filter(|visit| visit.at.is_some()).collect();
        visits.sort_by_key(|visit| visit.at);
        for visit in visits {
            let at = visit.at.expect("the others were left out").saturating_mul(1000);
            while machine.here().clock.get() < at && !machine.stopping.get() {
                machine.sleep(Key::Mm(WaitKey::Timer), Some(at));
            }
            if machine.stopping.get() {
                return;
            }
            self.visit(visit, machine.here().clock.get());
        }
    }

    /// The visits at the end, which is now.
    pub(crate) fn pay_last_visits(&self, now: u64) {
        for visit in self.config.visits.iter().filter(|visit| visit.at.is_none()) {
            self.visit(visit, now);
        }
    }

    fn visit(&self, visit: &Visit, now: u64) {
        let answer =
            if visit.commands.is_empty() { Ok(()) } else { self.mm().lru_gen_command(&visit.commands) };
        let text = self.mm().lru_gen(visit.full);
        let visited = Visited { nanos: now / 1000, commands: visit.commands.clone(), answer, text };
        self.tables.borrow_mut().visited.push(visited);
    }
}
