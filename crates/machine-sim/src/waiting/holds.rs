//! The holds of one lock in simulated time.
//!
//! CPUs run one after the other, each up to a quantum ahead of the others. So a CPU that comes to a lock finds the
//! holds of CPUs that have run before it, and these may begin before or after its own clock.
//!
//! - It waits for a hold that has begun and not ended at its time, and then for the one that follows without a gap. So
//!   CPUs that wait get the lock in the order in which they run, which within a quantum may not be that of their
//!   clocks.
//! - A hold that begins later does not delay it. But if its own hold lasts until then, that other CPU has come later
//!   and should have waited. It has run on already, so it waits afterwards: its clock and its holds of this lock move
//!   on by what it should have waited, and so do those of CPUs that come behind it.
//!
//! What remains wrong:
//!
//! - What the delayed CPU did between that moment and now: it saw the memory of a moment too early, at most a quantum.
//! - Its holds of other locks in that time, which keep their times.
//! - A hold that lasts longer than a quantum, as of a semaphore whose owner sleeps. It is noted when it ends; CPUs that
//!   came before its end have not waited for it, and their holds may be forgotten by then.

use crate::cpu::Class;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Most holds that are kept of a lock, far more than there are in a quantum as a rule.
const MOST: usize = 1024;

/// One hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    /// Its beginning, in picoseconds.
    pub(crate) start: u64,
    /// Its end.
    pub(crate) end: u64,
    /// The CPU that had it.
    pub(crate) cpu: u16,
    /// Whether it goes with others of its kind.
    pub(crate) shared: bool,
    /// What the time of the CPU was accounted to.
    pub(crate) class: Class,
    /// The place in the profile.
    pub(crate) place: u32,
    /// Whether it has waited afterwards.
    pub(crate) delayed: bool,
}

/// The holds of a lock that CPUs which are behind may still find, by their beginning.
#[derive(Default)]
pub(crate) struct Holds {
    holds: VecDeque<Held>,
    /// The CPU of the last one that was forgotten.
    forgotten: Option<u16>,
}

/// What a CPU finds at a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Arrival {
    /// When it gets the lock.
    pub(crate) at: u64,
    /// The last hold that it waits for.
    pub(crate) waited: Option<Held>,
    /// The CPU that had the lock before.
    pub(crate) before: Option<u16>,
}

/// The ends of the holds so far, of those that share and of those that do not.
#[derive(Default)]
struct Ends {
    alone: u64,
    shared: u64,
}

impl Ends {
    fn free_for(&self, shared: bool) -> u64 {
        if shared { self.alone } else { self.alone.max(self.shared) }
    }

    fn add(&mut self, held: &Held) {
        let end = if held.shared { &mut self.shared } else { &mut self.alone };
        *end = held.end.max(*end);
    }
}

/// How far each CPU has moved.
#[derive(Default)]
struct Moves(Vec<(u16, u64)>);

impl Moves {
    fn of(&self, cpu: u16) -> u64 {
        self.0.iter().find(|(other, _)| *other == cpu).map_or(0, |&(_, moved)| moved)
    }

    fn add(&mut self, cpu: u16, by: u64) {
        match self.0.iter_mut().find(|(other, _)| *other == cpu) {
            Some((_, moved)) => *moved += by,
            None => self.0.push((cpu, by)),
        }
    }
}

impl Holds {
    /// What `cpu` finds, which comes at `now`.
    pub(crate) fn wait(&self, now: u64, cpu: u16, shared: bool) -> Arrival {
        let mut found = Arrival { at: now, waited: None, before: self.forgotten };
        let begun = self.holds.partition_point(|held| held.start <= now);
        // What was held alone began when all before it had ended.
        let alone = self.holds.range(..begun).rposition(|held| !held.shared).unwrap_or(0);
        for held in self.holds.range(alone..) {
            if held.start > found.at {
                break;
            }
            found.before = Some(held.cpu);
            if held.end > found.at && held.cpu != cpu && !(shared && held.shared) {
                (found.at, found.waited) = (held.end, Some(*held));
            }
        }
        found
    }

    /// Note a hold that has ended. No CPU comes before `horizon` any more. Calls `delay` for each hold that should have
    /// waited for it, with the time by which its CPU is delayed. Returns the last end of the holds that moved; 0 if
    /// none did.
    pub(crate) fn add(&mut self, held: Held, horizon: u64, mut delay: impl FnMut(&Held, u64)) -> u64 {
        while self.holds.front().is_some_and(|first| first.end <= horizon) || self.holds.len() >= MOST {
            self.forgotten = self.holds.pop_front().map(|first| first.cpu);
        }
        let at = self.holds.partition_point(|other| other.start <= held.start);
        let next = self.holds.get(at);
        let disturbs = next.is_some_and(|next| next.start < held.end);
        self.holds.insert(at, held);
        if disturbs { self.shift_behind(at, &mut delay) } else { 0 }
    }

    /// Move the holds behind that at `at` until they do not overlap. Returns the last end of those that moved.
    fn shift_behind(&mut self, at: usize, delay: &mut dyn FnMut(&Held, u64)) -> u64 {
        let mut ends = Ends::default();
        ends.add(&self.holds[at]);
        let own = self.holds[at].cpu;
        let mut moves = Moves::default();
        let mut last = 0;
        let holds = self.holds.make_contiguous();
        let behind = holds.iter().enumerate().skip(at + 1).filter(|(_, held)| held.cpu != own);
        let mut order: BinaryHeap<_> = behind.map(|(index, held)| Reverse((held.start, index))).collect();
        // A CPU that is delayed comes later with all it does, and another one may come before it now.
        while let Some(Reverse((comes, index))) = order.pop() {
            let held = &mut holds[index];
            let moved = moves.of(held.cpu);
            if held.start + moved > comes {
                order.push(Reverse((held.start + moved, index)));
                continue;
            }
            (held.start, held.end) = (held.start + moved, held.end + moved);
            let wait = ends.free_for(held.shared).saturating_sub(held.start);
            if wait > 0 {
                delay(held, wait);
                held.delayed = true;
                (held.start, held.end) = (held.start + wait, held.end + wait);
                moves.add(held.cpu, wait);
            }
            if moved + wait > 0 {
                last = held.end.max(last);
            }
            ends.add(held);
        }
        if last > 0 {
            holds.sort_by_key(|held| held.start);
        }
        last
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(cpu: u16, start: u64, end: u64) -> Held {
        Held { start, end, cpu, shared: false, class: Class::System, place: 0, delayed: false }
    }

    fn shared(cpu: u16, start: u64, end: u64) -> Held {
        Held { shared: true, ..held(cpu, start, end) }
    }

    /// Add a hold; returns who was delayed by how much.
    fn add(holds: &mut Holds, hold: Held) -> Vec<(u16, u64)> {
        let mut delayed = Vec::new();
        holds.add(hold, 0, |victim, by| delayed.push((victim.cpu, by)));
        delayed
    }

    #[test]
    fn two_cpus_take_turns() {
        let mut holds = Holds::default();
        assert_eq!(add(&mut holds, held(0, 100, 150)), []);
        // Within the hold; at its end; before it; and its own.
        let found = |now, cpu| {
            let Arrival { at, waited, before } = holds.wait(now, cpu, false);
            (at, waited, before)
        };
        assert_eq!(found(120, 1), (150, Some(held(0, 100, 150)), Some(0)));
        assert_eq!(found(150, 1), (150, None, Some(0)));
        assert_eq!(found(99, 1), (99, None, None));
        assert_eq!(found(120, 0), (120, None, Some(0)));
    }

    #[test]
    fn three_cpus_queue_in_the_order_of_arrival() {
        let mut holds = Holds::default();
        add(&mut holds, held(0, 100, 150));
        // CPU 1 comes at 110 and holds the lock for 30 from 150 on, CPU 2 comes at 120 and follows.
        assert_eq!(holds.wait(110, 1, false).at, 150);
        assert_eq!(add(&mut holds, held(1, 150, 180)), []);
        assert_eq!(holds.wait(120, 2, false).waited, Some(held(1, 150, 180)));
        add(&mut holds, held(2, 180, 200));
        // Between two holds there is a gap.
        add(&mut holds, held(0, 300, 310));
        assert_eq!(holds.wait(130, 3, false).at, 200);
        assert_eq!(holds.wait(305, 3, false).at, 310);
    }

    #[test]
    fn a_hold_that_lasts_into_a_later_one_delays_its_cpu_and_those_behind_it() {
        let mut holds = Holds::default();
        add(&mut holds, held(0, 100, 150));
        add(&mut holds, held(1, 150, 160));
        add(&mut holds, held(0, 200, 210));
        // CPU 2 has the lock from 90 to 120: CPU 0 comes at 100 and waits for 20, CPU 1 behind it as well. The second
        // hold of CPU 0 moves with it, and meets nobody.
        assert_eq!(add(&mut holds, held(2, 90, 120)), [(0, 20), (1, 20)]);
        assert_eq!(holds.wait(150, 3, false).at, 180);
        assert_eq!(holds.wait(205, 3, false).at, 205);
        assert_eq!(holds.wait(221, 3, false).at, 230);
    }

    #[test]
    fn a_cpu_that_comes_before_a_moved_hold_does_not_wait_for_it() {
        let mut holds = Holds::default();
        add(&mut holds, held(0, 100, 150));
        add(&mut holds, held(0, 200, 210));
        add(&mut holds, held(1, 212, 215));
        // CPU 0 comes 20 later. Its second hold begins at 220, when CPU 1 has come and gone.
        assert_eq!(add(&mut holds, held(2, 90, 120)), [(0, 20)]);
        assert_eq!(holds.wait(213, 3, false).at, 215);
        assert_eq!(holds.wait(219, 3, false).at, 219);
        assert_eq!(holds.wait(221, 3, false).at, 230);
    }

    #[test]
    fn a_cpu_that_comes_before_a_moved_hold_delays_it_further() {
        let mut holds = Holds::default();
        add(&mut holds, held(0, 100, 150));
        add(&mut holds, held(0, 200, 210));
        add(&mut holds, held(1, 212, 225));
        assert_eq!(add(&mut holds, held(2, 90, 120)), [(0, 20), (0, 5)]);
        assert_eq!(holds.wait(226, 3, false).at, 235);
    }

    #[test]
    fn the_last_end_of_moved_holds_is_that_of_a_hold_which_moves_along() {
        let mut holds = Holds::default();
        let mut add = |hold| holds.add(hold, 0, |_, _| {});
        assert_eq!(add(held(0, 100, 150)), 0);
        assert_eq!(add(held(0, 200, 210)), 0);
        assert_eq!(add(held(1, 300, 310)), 0);
        assert_eq!(add(held(2, 90, 120)), 230);
    }

    #[test]
    fn readers_wait_for_writers_alone() {
        let mut holds = Holds::default();
        add(&mut holds, shared(0, 100, 200));
        assert_eq!(holds.wait(120, 1, true).at, 120);
        assert_eq!(holds.wait(120, 1, false).at, 200);
        assert_eq!(add(&mut holds, shared(1, 90, 150)), []);
        // A writer before two readers delays both.
        assert_eq!(add(&mut holds, held(2, 80, 110)), [(1, 20), (0, 10)]);
    }

    #[test]
    fn holds_that_nobody_can_meet_any_more_are_forgotten() {
        let mut holds = Holds::default();
        add(&mut holds, held(0, 100, 150));
        holds.add(held(1, 300, 310), 150, |_, _| {});
        assert_eq!((holds.holds.len(), holds.wait(200, 2, false).before), (1, Some(0)));
    }
}
