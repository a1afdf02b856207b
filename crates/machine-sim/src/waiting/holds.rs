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
use std::cell::Cell;

/// Most holds that are kept of a lock, far more than there are in a quantum as a rule.
const MOST: usize = 1024;
/// Steps to a place from the one that was found last, before it is looked for among all.
const NEAR: usize = 4;
/// Forgotten holds that may stay in front of the others.
const MANY: usize = 64;

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
    /// Holds before `first` are forgotten.
    holds: Vec<Held>,
    first: usize,
    /// The place found last: the CPU that runs looks next to it the next time.
    near: Cell<usize>,
    /// The CPU of the last one that was forgotten.
    forgotten: Option<u16>,
    /// Kept for their capacity: a lock that is contended is so often.
    moves: Moves,
    late: Late,
}

/// What a CPU finds at a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Arrival<'a> {
    /// When it gets the lock.
    pub(crate) at: u64,
    /// The last hold that it waits for.
    pub(crate) waited: Option<&'a Held>,
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
    #[inline]
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

/// Holds whose CPUs have moved, by the time at which they come now and their place: a queue that is sorted. What comes
/// to it comes late as a rule, so it is sorted in from its end.
#[derive(Default)]
struct Late {
    queue: Vec<(u64, usize)>,
    first: usize,
}

impl Late {
    fn clear(&mut self) {
        self.queue.clear();
        self.first = 0;
    }

    #[inline]
    fn first(&self) -> Option<(u64, usize)> {
        self.queue.get(self.first).copied()
    }

    fn push(&mut self, hold: (u64, usize)) {
        let mut at = self.queue.len();
        while at > self.first && self.queue[at - 1] > hold {
            at -= 1;
        }
        self.queue.insert(at, hold);
    }
}

impl Holds {
    /// What `cpu` finds, which comes at `now`.
    #[inline]
    pub(crate) fn wait(&self, now: u64, cpu: u16, shared: bool) -> Arrival<'_> {
        match self.holds.last() {
            // It is the last one that begins, and began when all before it had ended.
            Some(last) if last.start <= now && !last.shared && self.first < self.holds.len() => {
                let waits = last.end > now && last.cpu != cpu;
                let (at, waited) = if waits { (last.end, Some(last)) } else { (now, None) };
                Arrival { at, waited, before: Some(last.cpu) }
            }
            _ => self.wait_between(now, cpu, shared),
        }
    }

    /// The same where a hold begins later, or the last one goes with others.
    fn wait_between(&self, now: u64, cpu: u16, shared: bool) -> Arrival<'_> {
        let mut found = Arrival { at: now, waited: None, before: self.forgotten };
        let begun = self.place_of(now);
        // What was held alone began when all before it had ended.
        let before = &self.holds[self.first..begun];
        let alone = before.iter().rposition(|held| !held.shared).unwrap_or(0);
        for held in &self.holds[self.first + alone..] {
            if held.start > found.at {
                break;
            }
            found.before = Some(held.cpu);
            if held.end > found.at && held.cpu != cpu && !(shared && held.shared) {
                (found.at, found.waited) = (held.end, Some(held));
            }
        }
        found
    }

    /// Note a hold that has ended. No CPU comes before `horizon` any more. Calls `delay` for each hold that should have
    /// waited for it, with the time by which its CPU is delayed. Returns the last end of the holds that moved; 0 if
    /// none did.
    #[inline]
    pub(crate) fn add(&mut self, held: Held, horizon: u64, delay: impl FnMut(&Held, u64)) -> u64 {
        self.forget(horizon);
        if self.holds.last().is_some_and(|last| last.start > held.start) {
            return self.add_between(held, delay);
        }
        self.holds.push(held);
        0
    }

    /// The same for a hold that is not the last one to begin.
    fn add_between(&mut self, held: Held, mut delay: impl FnMut(&Held, u64)) -> u64 {
        let at = self.place_of(held.start);
        self.holds.insert(at, held);
        self.near.set(at + 1);
        let disturbs = self.holds.get(at + 1).is_some_and(|next| next.start < held.end);
        if disturbs { self.shift_behind(at, &mut delay) } else { 0 }
    }

    /// A write at `time` takes the line away from the CPU that wrote it before and after that; returns its write after.
    pub(crate) fn robbed(&self, time: u64, cpu: u16) -> Option<Held> {
        let at = self.place_of(time);
        let next = self.holds.get(at).filter(|next| next.cpu != cpu)?;
        let before = if at > self.first { Some(self.holds[at - 1].cpu) } else { self.forgotten };
        (before.is_none_or(|before| before == next.cpu)).then_some(*next)
    }

    /// The place behind the holds that begin at `time` or before.
    #[inline]
    fn place_of(&self, time: u64) -> usize {
        let (first, end) = (self.first, self.holds.len());
        let mut at = self.near.get().clamp(first, end);
        for _ in 0..NEAR {
            if at < end && self.holds[at].start <= time {
                at += 1;
            } else if at > first && self.holds[at - 1].start > time {
                at -= 1;
            } else {
                self.near.set(at);
                return at;
            }
        }
        let at = first + self.holds[first..].partition_point(|held| held.start <= time);
        self.near.set(at);
        at
    }

    /// Forget what ended before `horizon`, and the oldest of too many.
    #[inline]
    fn forget(&mut self, horizon: u64) {
        while let Some(held) = self.holds.get(self.first)
            && (held.end <= horizon || self.holds.len() - self.first >= MOST)
        {
            self.forgotten = Some(held.cpu);
            self.first += 1;
        }
        if self.first >= MANY {
            self.holds.drain(..self.first);
            self.near.set(self.near.get().saturating_sub(self.first));
            self.first = 0;
        }
    }

    /// Move the holds behind that at `at` until they do not overlap. Returns the last end of those that moved.
    fn shift_behind(&mut self, at: usize, delay: &mut dyn FnMut(&Held, u64)) -> u64 {
        let Holds { holds, moves, late, .. } = self;
        let mut ends = Ends::default();
        ends.add(&holds[at]);
        let own = holds[at].cpu;
        let holds = &mut holds[at + 1..];
        moves.0.clear();
        late.clear();
        let (mut next, mut last) = (0, 0);
        // A CPU that is delayed comes later with all it does, and another one may come before it now: of those that
        // come when they came before and those that are late, the first one is next.
        loop {
            let in_time = holds.get(next).map(|held| (held.start, next));
            let index = match (in_time, late.first()) {
                (None, None) => break,
                (Some(now), first) if first.is_none_or(|first| now < first) => {
                    next += 1;
                    let held = &holds[now.1];
                    if held.cpu == own {
                        continue;
                    }
                    let comes = held.start + moves.of(held.cpu);
                    let behind = late.first().is_some_and(|first| first < (comes, now.1));
                    if behind || holds.get(next).is_some_and(|held| held.start < comes) {
                        late.push((comes, now.1));
                        continue;
                    }
                    now.1
                }
                (_, first) => {
                    let Some((comes, index)) = first else { break };
                    late.first += 1;
                    let moved = holds[index].start + moves.of(holds[index].cpu);
                    if moved > comes {
                        late.push((moved, index));
                        continue;
                    }
                    index
                }
            };
            let held = &mut holds[index];
            let moved = moves.of(held.cpu);
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
            sort(holds);
        }
        last
    }
}

/// Sort holds by their beginnings; those with the same one stay in order. Few are out of order, and not by much.
fn sort(holds: &mut [Held]) {
    for from in 1..holds.len() {
        let start = holds[from].start;
        if holds[from - 1].start > start {
            let to =
                holds[..from].iter().rposition(|held| held.start <= start).map_or(0, |before| before + 1);
            holds[to..=from].rotate_right(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
            (at, waited.copied(), before)
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
        assert_eq!(holds.wait(120, 2, false).waited, Some(&held(1, 150, 180)));
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
        assert_eq!((holds.holds.len() - holds.first, holds.wait(200, 2, false).before), (1, Some(0)));
    }

    /// Move what is behind `at` by the rule as it is said: of all holds that have not been served, the one whose CPU
    /// comes first is next.
    fn shift_plainly(holds: &mut [Held], at: usize) -> Vec<(u16, u64)> {
        let (mut ends, own, mut moved) = (Ends::default(), holds[at].cpu, Moves::default());
        ends.add(&holds[at]);
        let mut left: Vec<usize> = (at + 1..holds.len()).filter(|&index| holds[index].cpu != own).collect();
        let mut delayed = Vec::new();
        while let Some(next) =
            (0..left.len()).min_by_key(|&i| (holds[left[i]].start + moved.of(holds[left[i]].cpu), left[i]))
        {
            let held = &mut holds[left.remove(next)];
            let moves = moved.of(held.cpu);
            let wait = ends.free_for(held.shared).saturating_sub(held.start + moves);
            if wait > 0 {
                delayed.push((held.cpu, wait));
                held.delayed = true;
                moved.add(held.cpu, wait);
            }
            (held.start, held.end) = (held.start + moves + wait, held.end + moves + wait);
            ends.add(held);
        }
        holds.sort_by_key(|held| held.start);
        delayed
    }

    proptest! {
        #[test]
        fn holds_move_as_if_who_comes_first_were_looked_for_each_time(
            visits in prop::collection::vec((0u16..4, 0u64..30, 1u64..12, 0u8..4), 1..80),
        ) {
            let (mut holds, mut plain, mut clocks) = (Holds::default(), Vec::<Held>::new(), [0; 4]);
            for (cpu, pause, takes, kind) in visits {
                let start = clocks[cpu as usize] + pause;
                let hold = Held { shared: kind == 0, ..held(cpu, start, start + takes) };
                clocks[cpu as usize] = start + takes;
                let at = plain.partition_point(|other| other.start <= start);
                plain.insert(at, hold);
                let disturbs = plain.get(at + 1).is_some_and(|next| next.start < hold.end);
                let delayed = if disturbs { shift_plainly(&mut plain, at) } else { Vec::new() };
                prop_assert_eq!(add(&mut holds, hold), delayed);
                prop_assert_eq!(&holds.holds[..], &plain[..]);
            }
        }
    }
}
