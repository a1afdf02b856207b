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
/// Holds for which there is room at first.
const FEW: usize = 16;

/// The CPU that has a lock, and how, in one word: its number, what its time is accounted to, whether others may have
/// the lock with it, and whether it has waited afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Holder(u32);

impl Holder {
    const SHARED: u32 = 1 << 24;
    const DELAYED: u32 = 1 << 25;

    /// A CPU that has a lock alone.
    #[inline(always)]
    pub(crate) fn new(cpu: usize, class: Class) -> Holder {
        Holder(cpu as u32 | (class as u32) << 16)
    }

    /// The holder that is noted with a lock ([`Holder::word`]).
    #[inline(always)]
    pub(crate) fn of(word: u32) -> Holder {
        Holder(word)
    }

    /// The same as a word.
    #[inline(always)]
    pub(crate) fn word(self) -> u32 {
        self.0
    }

    /// The same with others, if `shared`.
    #[inline(always)]
    pub(crate) fn shares(self, shared: bool) -> Holder {
        Holder(self.0 | (u32::from(shared) * Holder::SHARED))
    }

    #[inline(always)]
    pub(crate) fn cpu(self) -> u16 {
        self.0 as u16
    }

    pub(crate) fn class(self) -> Class {
        Class::ALL[(self.0 >> 16) as usize % Class::ALL.len()]
    }

    #[inline(always)]
    fn is_shared(self) -> bool {
        self.0 & Holder::SHARED != 0
    }

    pub(crate) fn is_delayed(self) -> bool {
        self.0 & Holder::DELAYED != 0
    }
}

/// One hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Held {
    /// Its beginning, in picoseconds.
    pub(crate) start: u64,
    /// Its end.
    pub(crate) end: u64,
    pub(crate) by: Holder,
    /// The place in the profile.
    pub(crate) place: u32,
}

/// The holds of a lock that CPUs which are behind may still find, by their beginning.
#[derive(Default)]
pub(crate) struct Holds {
    /// Holds before `first` are forgotten, and from `end` on there is room.
    holds: Vec<Held>,
    first: usize,
    end: usize,
    /// When `end` has come here, something must be forgotten.
    full: usize,
    /// What has ended before this time is forgotten for a CPU that comes before it all the same.
    horizon: u64,
    /// The beginning of the last hold.
    latest: u64,
    /// Whether one of them goes with no others.
    alone: bool,
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

/// The last end of the holds so far, and of those that go with no others.
#[derive(Clone, Copy, Default)]
struct Ends {
    all: u64,
    alone: u64,
}

impl Ends {
    #[inline(always)]
    fn free_for(&self, shared: bool) -> u64 {
        if shared { self.alone } else { self.all }
    }

    #[inline(always)]
    fn add(&mut self, held: &Held) {
        self.all = held.end.max(self.all);
        if !held.by.is_shared() {
            self.alone = held.end.max(self.alone);
        }
    }
}

/// How far each CPU has moved: the first one that has, which is the only one as a rule, and the others.
#[derive(Default)]
struct Moves {
    first: (u16, u64),
    others: Vec<(u16, u64)>,
}

impl Moves {
    fn clear(&mut self) {
        self.first = (0, 0);
        self.others.clear();
    }

    #[inline(always)]
    fn of(&self, cpu: u16) -> u64 {
        if self.first.0 == cpu {
            return self.first.1;
        }
        self.others.iter().find(|(other, _)| *other == cpu).map_or(0, |&(_, moved)| moved)
    }

    fn add(&mut self, cpu: u16, by: u64) {
        if self.first.1 == 0 {
            self.first.0 = cpu;
        }
        if self.first.0 == cpu {
            self.first.1 += by;
            return;
        }
        match self.others.iter_mut().find(|(other, _)| *other == cpu) {
            Some((_, moved)) => *moved += by,
            None => self.others.push((cpu, by)),
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
    #[inline(always)]
    pub(crate) fn wait(&mut self, now: u64, cpu: u16, shared: bool) -> Arrival<'_> {
        if now < self.horizon {
            self.forget(self.horizon);
        }
        let begun = if self.latest <= now { self.end } else { self.place_of(now) };
        if begun == self.first {
            return Arrival { at: now, waited: None, before: self.forgotten };
        }
        let last = &self.holds[begun - 1];
        // None of those that share is in the way of another, and what was held alone began when all before it had
        // ended.
        let free = match last.by.is_shared() {
            true => shared && !self.alone,
            false => last.end <= now || last.by.cpu() == cpu,
        };
        match free {
            true => Arrival { at: now, waited: None, before: Some(last.by.cpu()) },
            false => self.wait_among(begun, now, cpu, shared),
        }
    }

    /// The same where the holds before `begun` are to be waited for, or some of them share.
    #[inline(never)]
    fn wait_among(&self, begun: usize, now: u64, cpu: u16, shared: bool) -> Arrival<'_> {
        let mut found = Arrival { at: now, waited: None, before: self.forgotten };
        let before = &self.holds[self.first..begun];
        let alone = before.iter().rposition(|held| !held.by.is_shared()).unwrap_or(0);
        for held in &self.holds[self.first + alone..self.end] {
            if held.start > found.at {
                break;
            }
            found.before = Some(held.by.cpu());
            if held.end > found.at && held.by.cpu() != cpu && !(shared && held.by.is_shared()) {
                (found.at, found.waited) = (held.end, Some(held));
            }
        }
        found
    }

    /// Note a hold that has ended, if it is the last one to begin and there is room.
    #[inline(always)]
    pub(crate) fn push(&mut self, held: Held, horizon: u64) -> bool {
        if held.start < self.latest || self.end >= self.full {
            return false;
        }
        self.horizon = horizon;
        self.holds[self.end] = held;
        self.end += 1;
        self.latest = held.start;
        self.alone |= !held.by.is_shared();
        true
    }

    /// Note a hold that has ended. No CPU comes before `horizon` any more. Calls `delay` for each hold that should have
    /// waited for it, with the time by which its CPU is delayed. Returns the last end of the holds that moved; 0 if
    /// none did.
    pub(crate) fn add(&mut self, held: Held, horizon: u64, mut delay: impl FnMut(&Held, u64)) -> u64 {
        if self.end >= self.full || held.start < horizon {
            self.forget(horizon);
        }
        if self.push(held, horizon) {
            return 0;
        }
        self.horizon = horizon;
        let at = self.place_of(held.start);
        self.holds.copy_within(at..self.end, at + 1);
        self.holds[at] = held;
        self.end += 1;
        self.alone |= !held.by.is_shared();
        self.near.set(at + 1);
        let disturbs = self.kept().get(at + 1).is_some_and(|next| next.start < held.end);
        if disturbs { self.shift_behind(at, &mut delay) } else { 0 }
    }

    /// All holds, and before them some that are forgotten.
    #[inline(always)]
    fn kept(&self) -> &[Held] {
        &self.holds[..self.end]
    }

    /// A write at `time` takes the line away from the CPU that wrote it before and after that; returns its write after.
    pub(crate) fn robbed(&self, time: u64, cpu: u16) -> Option<Held> {
        let at = self.place_of(time);
        let next = self.kept().get(at).filter(|next| next.by.cpu() != cpu)?;
        let before = if at > self.first { Some(self.holds[at - 1].by.cpu()) } else { self.forgotten };
        (before.is_none_or(|before| before == next.by.cpu())).then_some(*next)
    }

    /// The place behind the holds that begin at `time` or before.
    #[inline(always)]
    fn place_of(&self, time: u64) -> usize {
        let near = self.near.get();
        match self.kept().get(near) {
            Some(next) if next.start > time && near > self.first && self.holds[near - 1].start <= time => {
                near
            }
            _ => self.find_place(time),
        }
    }

    /// The same if it is not the one that was found last.
    #[inline(never)]
    fn find_place(&self, time: u64) -> usize {
        let (first, holds) = (self.first, self.kept());
        let mut at = self.near.get().clamp(first, holds.len());
        for _ in 0..NEAR {
            if holds.get(at).is_some_and(|held| held.start <= time) {
                at += 1;
            } else if at > first && holds[at - 1].start > time {
                at -= 1;
            } else {
                self.near.set(at);
                return at;
            }
        }
        let at = first + holds[first..].partition_point(|held| held.start <= time);
        self.near.set(at);
        at
    }

    /// Forget what ended before `horizon`, and the oldest of too many. Nobody asks for it, so this is done only when
    /// there is no room for more.
    #[cold]
    #[inline(never)]
    fn forget(&mut self, horizon: u64) {
        let holds = &self.holds[self.first..self.end];
        let ended = holds.iter().take_while(|held| held.end <= horizon).count();
        let ended = ended.max((holds.len() + 1).saturating_sub(MOST));
        if let Some(last) = holds[..ended].last() {
            self.forgotten = Some(last.by.cpu());
        }
        self.alone = holds[ended..].iter().any(|held| !held.by.is_shared());
        self.first += ended;
        if self.first >= MANY || self.end == self.holds.len() {
            self.holds.copy_within(self.first..self.end, 0);
            self.near.set(self.near.get().saturating_sub(self.first));
            (self.first, self.end) = (0, self.end - self.first);
        }
        // Else there would soon be no room again.
        if 2 * self.end >= self.holds.len() {
            let room = (2 * self.holds.len()).clamp(FEW, MOST + MANY);
            self.holds.resize(room.max(self.holds.len()), Held::default());
        }
        self.full = self.holds.len().min(self.first + MOST);
    }

    /// Move the holds behind that at `at` until they do not overlap. Returns the last end of those that moved.
    fn shift_behind(&mut self, at: usize, delay: &mut dyn FnMut(&Held, u64)) -> u64 {
        let Holds { holds, end, moves, late, latest, .. } = self;
        let mut ends = Ends::default();
        ends.add(&holds[at]);
        let own = holds[at].by.cpu();
        let holds = &mut holds[at + 1..*end];
        moves.clear();
        let (mut next, mut last) = shift_in_order(holds, own, (&mut ends, moves), delay);
        late.clear();
        // A CPU that is delayed comes later with all it does, and another one may come before it now: of those that
        // come when they came before and those that are late, the first one is next.
        let mut soonest = None;
        loop {
            let (index, moved) = match (holds.get(next), soonest) {
                (None, None) => break,
                (Some(held), first) if first.is_none_or(|first| (held.start, next) < first) => {
                    let at = next;
                    next += 1;
                    if held.by.cpu() == own {
                        continue;
                    }
                    let moved = moves.of(held.by.cpu());
                    let comes = (held.start + moved, at);
                    let behind = moved > 0 && holds.get(next).is_some_and(|held| held.start < comes.0);
                    if behind || first.is_some_and(|first| first < comes) {
                        late.push(comes);
                        soonest = late.first();
                        continue;
                    }
                    (at, moved)
                }
                (_, first) => {
                    let Some((comes, index)) = first else { break };
                    late.first += 1;
                    let moved = moves.of(holds[index].by.cpu());
                    let waits = holds[index].start + moved > comes;
                    if waits {
                        late.push((holds[index].start + moved, index));
                    }
                    soonest = late.first();
                    if waits {
                        continue;
                    }
                    (index, moved)
                }
            };
            last = shift(&mut holds[index], moved, (&mut ends, moves), delay).max(last);
        }
        if last > 0 {
            sort(holds);
            *latest = holds.last().map_or(*latest, |held| held.start);
        }
        last
    }
}

/// Move holds behind one of the CPU `own` as long as they stay in order. Returns where they do not, and the last end of
/// those that moved.
fn shift_in_order(
    holds: &mut [Held],
    own: u16,
    (ends, moves): (&mut Ends, &mut Moves),
    delay: &mut dyn FnMut(&Held, u64),
) -> (usize, u64) {
    let (mut last, mut behind, mut next) = (0, *ends, 0);
    while let Some(held) = holds.get(next) {
        let moved = moves.of(held.by.cpu());
        let comes = held.start + moved;
        if moved > 0 && holds.get(next + 1).is_some_and(|other| other.start < comes) {
            break;
        }
        if moved == 0 && behind.free_for(held.by.is_shared()) <= comes && held.by.cpu() != own {
            behind.add(held);
        } else if held.by.cpu() != own {
            last = shift(&mut holds[next], moved, (&mut behind, moves), delay).max(last);
        }
        next += 1;
    }
    *ends = behind;
    (next, last)
}

/// Move one hold, whose CPU has moved already, until it is behind `ends`. Returns its end; 0 if it has not moved.
#[inline(always)]
fn shift(
    held: &mut Held,
    moved: u64,
    (ends, moves): (&mut Ends, &mut Moves),
    delay: &mut dyn FnMut(&Held, u64),
) -> u64 {
    let wait = ends.free_for(held.by.is_shared()).saturating_sub(held.start + moved);
    if wait > 0 {
        delay(held, wait);
        held.by.0 |= Holder::DELAYED;
        moves.add(held.by.cpu(), wait);
    }
    let by = moved + wait;
    (held.start, held.end) = (held.start + by, held.end + by);
    ends.add(held);
    if by > 0 { held.end } else { 0 }
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
        Held { start, end, by: Holder::new(cpu.into(), Class::System), place: 0 }
    }

    fn shared(cpu: u16, start: u64, end: u64) -> Held {
        let alone = held(cpu, start, end);
        Held { by: alone.by.shares(true), ..alone }
    }

    /// Add a hold; returns who was delayed by how much.
    fn add(holds: &mut Holds, hold: Held) -> Vec<(u16, u64)> {
        let mut delayed = Vec::new();
        holds.add(hold, 0, |victim, by| delayed.push((victim.by.cpu(), by)));
        delayed
    }

    #[test]
    fn two_cpus_take_turns() {
        let mut holds = Holds::default();
        assert_eq!(add(&mut holds, held(0, 100, 150)), []);
        // Within the hold; at its end; before it; and its own.
        let mut found = |now, cpu| {
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
        holds.forget(150);
        assert_eq!((holds.end - holds.first, holds.wait(200, 2, false).before), (1, Some(0)));
    }

    #[test]
    fn a_cpu_that_comes_before_the_horizon_does_not_wait_for_what_is_forgotten() {
        let mut holds = Holds::default();
        add(&mut holds, held(0, 100, 150));
        holds.add(held(1, 300, 310), 200, |_, _| {});
        // It comes late in the run: no CPU was to come before 200 any more.
        assert_eq!(holds.wait(120, 2, false), Arrival { at: 120, waited: None, before: Some(0) });
    }

    #[test]
    fn of_too_many_holds_the_oldest_are_forgotten() {
        let mut holds = Holds::default();
        for i in 0..4 * MOST as u64 {
            add(&mut holds, held(0, 10 * i, 10 * i + 5));
            assert!(holds.end - holds.first <= MOST && holds.holds.len() <= MOST + MANY);
        }
        let (oldest, last) = (&holds.holds[holds.first], &holds.holds[holds.end - 1]);
        assert_eq!((last.start - oldest.start) / 10 + 1, MOST as u64);
    }

    /// Move what is behind `at` by the rule as it is said: of all holds that have not been served, the one whose CPU
    /// comes first is next.
    fn shift_plainly(holds: &mut [Held], at: usize) -> Vec<(u16, u64)> {
        let (mut ends, own, mut moved) = (Ends::default(), holds[at].by.cpu(), Moves::default());
        ends.add(&holds[at]);
        let mut left: Vec<usize> =
            (at + 1..holds.len()).filter(|&index| holds[index].by.cpu() != own).collect();
        let mut delayed = Vec::new();
        while let Some(next) = (0..left.len())
            .min_by_key(|&i| (holds[left[i]].start + moved.of(holds[left[i]].by.cpu()), left[i]))
        {
            let held = &mut holds[left.remove(next)];
            let moves = moved.of(held.by.cpu());
            let wait = ends.free_for(held.by.is_shared()).saturating_sub(held.start + moves);
            if wait > 0 {
                delayed.push((held.by.cpu(), wait));
                held.by.0 |= Holder::DELAYED;
                moved.add(held.by.cpu(), wait);
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
                let hold = held(cpu, start, start + takes);
                let hold = Held { by: hold.by.shares(kind == 0), ..hold };
                clocks[cpu as usize] = start + takes;
                let at = plain.partition_point(|other| other.start <= start);
                plain.insert(at, hold);
                let disturbs = plain.get(at + 1).is_some_and(|next| next.start < hold.end);
                let delayed = if disturbs { shift_plainly(&mut plain, at) } else { Vec::new() };
                prop_assert_eq!(add(&mut holds, hold), delayed);
                prop_assert_eq!(holds.kept(), &plain[..]);
            }
        }

        #[test]
        fn forgetting_late_changes_no_answer(
            visits in prop::collection::vec((0u16..4, 0u64..30, 1u64..12, 0u8..4), 1..200),
        ) {
            let (mut early, mut late, mut clocks) = (Holds::default(), Holds::default(), [0; 4]);
            for (cpu, pause, takes, kind) in visits {
                // The CPU that is behind runs, and the first one ahead of it now and then.
                let cpu = if cpu == 0 { cpu } else { (0..4).min_by_key(|&cpu| clocks[cpu as usize]).unwrap_or(0) };
                let horizon = clocks.iter().copied().min().unwrap_or(0);
                let (start, shared) = (clocks[cpu as usize] + pause, kind == 0);
                prop_assert_eq!(early.wait(start, cpu, shared), late.wait(start, cpu, shared));
                prop_assert_eq!(early.robbed(start, cpu), late.robbed(start, cpu));
                let hold = held(cpu, early.wait(start, cpu, shared).at, start + pause + takes);
                let hold = Held { by: hold.by.shares(shared), end: hold.end.max(hold.start + takes), ..hold };
                clocks[cpu as usize] = hold.end;
                early.forget(horizon);
                let mut delays = [Vec::new(), Vec::new()];
                let ends = [
                    early.add(hold, horizon, |victim, by| delays[0].push((victim.by.cpu(), by))),
                    late.add(hold, horizon, |victim, by| delays[1].push((victim.by.cpu(), by))),
                ];
                prop_assert_eq!(&delays[0], &delays[1]);
                prop_assert_eq!(ends[0], ends[1]);
                delays[0].iter().for_each(|&(cpu, by)| clocks[cpu as usize] += by);
            }
        }
    }
}
