//! Turns of CPUs that share one time, as QEMU 8.1 and later gives them when it counts instructions
//! (`accel/tcg/tcg-accel-ops-rr.c` and `-icount.c`).
//!
//! A timer comes each [`QUANTUM`]. In each pass the time to the next one is shared among all CPUs: that is a turn, and
//! busy CPUs have theirs in order of their numbers. When a CPU waits for others, or wakes one, the pass ends, and the
//! next begins with the CPU behind it.
//!
//! The emulator stops a CPU anywhere. Here the kernel stops late. So turns are granted by that rule whatever CPUs do
//! with them: one that has used more than it was granted waits until its next grants have made up for it, and one that
//! has used less goes on before others are granted more.

use super::{Busy, QUANTUM};

/// The emulator counts nanoseconds.
const SHORTEST: u64 = 1000;

/// Which CPU may work, and for how long.
pub(super) struct Turns {
    /// The CPUs that have something to do. One that is alone needs no turns.
    busy: Vec<bool>,
    /// The CPU that works, and since when.
    holder: Option<(usize, u64)>,
    /// The CPU that is granted the next turn, if it is busy. As many as there are CPUs: the pass is over.
    next: usize,
    /// Time to the next timer.
    left: u64,
    /// How long a turn of this pass is.
    turn: u64,
    /// What each CPU was granted and has not used; negative if it has used more.
    credit: Vec<i64>,
}

impl Turns {
    pub(super) fn new(cpus: usize) -> Turns {
        let (busy, credit) = (vec![false; cpus], vec![0; cpus]);
        Turns { busy, holder: None, next: cpus, left: QUANTUM, turn: 0, credit }
    }

    /// The CPU that works.
    pub(super) fn holder(&self) -> Option<usize> {
        self.holder.map(|(cpu, _)| cpu)
    }

    /// When the CPU that works has used what it was granted. At once if it was granted nothing, since it was alone.
    pub(super) fn end(&self) -> u64 {
        self.holder.map_or(0, |(cpu, since)| since.saturating_add_signed(self.credit[cpu].max(0)))
    }

    /// The CPU begins to work.
    pub(super) fn begin(&mut self, cpu: usize, now: u64) {
        self.holder = Some((cpu, now));
    }

    /// The CPU that works stops at `now`.
    pub(super) fn stop(&mut self, now: u64) {
        let Some((cpu, since)) = self.holder.take() else { return };
        self.credit[cpu] -= (now - since) as i64;
        if !self.shared() {
            // Nobody waited. What it had left is less now.
            self.credit[cpu] = self.credit[cpu].max(0);
        }
    }

    /// The CPU that works waits for others to answer, from `now` on.
    pub(super) fn wait(&mut self, cpu: usize, now: u64) {
        self.stop(now);
        self.settle(cpu);
        self.begin_pass(cpu + 1);
        self.begin(cpu, now);
    }

    /// The CPU that is to work at `now`, if any is busy.
    pub(super) fn next(&mut self, now: u64, busy: &Busy) -> Option<usize> {
        if !self.shared() {
            self.left = QUANTUM - now % QUANTUM;
        }
        self.change_busy(busy);
        if !self.shared() {
            return self.busy.iter().position(|&busy| busy);
        }
        loop {
            let in_order = (self.next..self.busy.len()).chain(0..self.next);
            match in_order.into_iter().find(|&cpu| self.busy[cpu] && self.credit[cpu] > 0) {
                Some(cpu) => return Some(cpu),
                None => self.grant(),
            }
        }
    }

    fn shared(&self) -> bool {
        self.busy.iter().filter(|&&busy| busy).count() > 1
    }

    fn change_busy(&mut self, busy: &Busy) {
        for cpu in 0..self.busy.len() {
            if self.busy[cpu] && !busy.has(cpu) {
                self.settle(cpu);
                self.busy[cpu] = false;
            }
        }
        // The waker is not known. Of two CPUs it is this one.
        let waker = self.busy.iter().position(|&busy| busy);
        let mut joined = false;
        for (cpu, known) in self.busy.iter_mut().enumerate() {
            joined |= busy.has(cpu) && !*known;
            *known = busy.has(cpu);
        }
        if joined {
            self.begin_pass(waker.map_or(0, |cpu| cpu + 1));
        }
    }

    /// Grant turns until the CPU was granted all that it has used. It does not use the rest of its turn.
    fn settle(&mut self, cpu: usize) {
        while self.shared() && self.credit[cpu] < 0 {
            self.grant();
        }
        self.left += self.credit[cpu].max(0) as u64;
        self.credit[cpu] = 0;
    }

    fn begin_pass(&mut self, next: usize) {
        if self.left == 0 {
            self.left = QUANTUM;
        }
        let cpus = self.busy.len();
        (self.next, self.turn) = (next % cpus, (self.left / cpus as u64).max(SHORTEST));
    }

    /// Grant the next busy CPU a turn.
    fn grant(&mut self) {
        if self.next == self.busy.len() {
            self.begin_pass(0);
        }
        let cpu = self.next;
        self.next += 1;
        if self.busy[cpu] {
            let turn = self.turn.min(self.left);
            self.left -= turn;
            self.credit[cpu] += turn as i64;
        }
    }
}
