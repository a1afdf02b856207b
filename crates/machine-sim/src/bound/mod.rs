//! The lower bound: the fewest flush rounds and receptions that are safe for the trace of this run.
//!
//! Problem: a policy that defers flushes can always be compared with a worse one. What is missing is the best: how many
//! rounds (requests to other CPUs) and receptions (CPUs that flush for a request) *any* policy needs that keeps every
//! CPU from using a wrong translation.
//!
//! Rule: a translation that is removed at r and must be gone at d needs, on each CPU that may hold it, a flush in (r,
//! d]. The memory manager reports r (`tlb_stale`) and what makes the translation wrong (`mm_page_alloc`, `tlb_hazard`);
//! the first of these is d. The smallest number of points that stab all intervals is exact and can be found online (see
//! [`level`]). There are two levels: L1 takes the latest safe moments, L2 also those at which the memory manager
//! settles (`tlb_settle`), if they are earlier. So L1 <= L2, and no safe policy needs less than L1.
//!
//! What CPUs do is observed here, not reported by the memory manager: which space each runs, and when it flushes. A CPU
//! may hold whatever its space has mapped while it runs that space; where the memory manager knows that an entry was
//! never used, only if its TLB does hold it. What costs no interrupt is free: a switch to another space or to a kernel
//! task, a flush that no other CPU asked for (it counts as a flush of everything), and the entry on the CPU that itself
//! makes the translation wrong. This can only lower the bound.
//!
//! The same intervals show the first CPU that was *not* interrupted in time: such a run fails, whatever its totals.
//!
//! Source: reference on deferred flushes, section 5; interval stabbing is a classic problem.

mod level;
mod report;

use level::{Level, Moment, Past, Stale};
use mm::event::{Concern, Event};
use mm::machine::CpuSet;
use mm::units::{Pfn, SpaceId, Vpn};
pub use report::{BoundLevel, BoundReport, Cause, CauseCount};

/// The observer.
pub(crate) struct Bound {
    /// The number of what happened last.
    now: u64,
    /// The space that each CPU runs.
    running: Vec<Option<SpaceId>>,
    past: Past,
    l1: Level,
    l2: Level,
    rounds: u64,
    receptions: u64,
    stale: u64,
    mask: Vec<u64>,
    /// The first missing flush, in words.
    missing: Option<String>,
}

impl Bound {
    pub(crate) fn new(cpus: usize) -> Bound {
        Bound {
            now: 0,
            running: vec![None; cpus],
            past: Past { free: vec![0; cpus], interrupted: vec![0; cpus] },
            l1: Level::new(cpus),
            l2: Level::new(cpus),
            rounds: 0,
            receptions: 0,
            stale: 0,
            mask: vec![0; cpus.div_ceil(64)],
            missing: None,
        }
    }

    fn tick(&mut self) -> u64 {
        self.now += 1;
        self.now
    }

    /// The CPU now runs this space; `None`: a kernel task, or nothing.
    pub(crate) fn runs(&mut self, cpu: usize, space: Option<SpaceId>) {
        self.running[cpu] = space;
        self.flushes(cpu);
    }

    /// The CPU drops its translations without a request from another.
    pub(crate) fn flushes(&mut self, cpu: usize) {
        self.past.free[cpu] = self.tick();
    }

    /// A flush request goes to other CPUs.
    pub(crate) fn round(&mut self, targets: &CpuSet) {
        let now = self.tick();
        self.rounds += u64::from(!targets.is_empty());
        for target in targets.iter() {
            self.receptions += 1;
            self.past.interrupted[target.index()] = now;
        }
    }

    /// The memory manager reports an event on `cpu`. `holds` tells whether a CPU that runs the space holds a page.
    pub(crate) fn event(
        &mut self,
        cpu: usize,
        event: Event,
        args: [u64; 4],
        holds: impl Fn(usize, Vpn) -> bool,
    ) {
        match event {
            Event::TlbStale => self.goes_stale(args, holds),
            Event::MmPageAlloc => {
                let concern = Concern::Frames { first: Pfn(args[0] as u32), count: 1 << args[1] };
                self.hazard(cpu, Cause::Reuse, concern);
            }
            Event::TlbHazard => {
                let concern = Concern::of_args(args).expect("the arguments must be those of a concern");
                self.hazard(cpu, Cause::of_hazard(&concern), concern);
            }
            Event::TlbSettle => {
                let concern = Concern::of_args(args).expect("the arguments must be those of a concern");
                self.settle(cpu, Cause::of_settling(&concern), concern);
            }
            _ => {}
        }
    }

    /// Translations of consecutive pages become stale.
    fn goes_stale(&mut self, [a, page, c, index]: [u64; 4], holds: impl Fn(usize, Vpn) -> bool) {
        for i in 0..=c >> 40 {
            self.page_goes_stale([a, page + i, (c & ((1 << 40) - 1)) + i, index + i], &holds);
        }
    }

    fn page_goes_stale(&mut self, [a, page, c, index]: [u64; 4], holds: impl Fn(usize, Vpn) -> bool) {
        let (now, space) = (self.tick(), SpaceId(a as u32));
        let flag = |bit: u32| c >> bit & 1 != 0;
        let never_used = flag(34);
        self.mask.fill(0);
        for (cpu, _) in self.running.iter().enumerate().filter(|(_, running)| **running == Some(space)) {
            if !never_used || holds(cpu, Vpn(page)) {
                self.mask[cpu / 64] |= 1 << (cpu % 64);
            }
        }
        if self.mask.iter().all(|&word| word == 0) {
            return;
        }
        let stale = Stale {
            since: now,
            page,
            index,
            space: space.0,
            file: (a >> 32) as u32,
            pfn: c as u32,
            dirty: flag(32),
            sync: flag(33),
        };
        self.stale += 1;
        self.l1.open(stale, &self.mask, &self.past);
        self.l2.open(stale, &self.mask, &self.past);
    }

    /// Translations of this concern must be gone, at both levels.
    fn hazard(&mut self, cpu: usize, cause: Cause, concern: Concern) {
        let at = Moment { now: self.tick(), cpu, cause };
        self.l2.due(&concern, &at, &mut self.past);
        let missed = self.l1.due(&concern, &at, &mut self.past);
        if let Some((stale, late)) = missed
            && self.missing.is_none()
        {
            self.missing = Some(self.explain(&stale, late, &at));
        }
    }

    fn settle(&mut self, cpu: usize, cause: Cause, concern: Concern) {
        let at = Moment { now: self.tick(), cpu, cause };
        self.l2.due(&concern, &at, &mut self.past);
    }

    fn explain(&self, stale: &Stale, late: usize, at: &Moment) -> String {
        let rights = if stale.dirty { "writable and dirty" } else { "read-only or clean" };
        let l1 = self.l1.count();
        format!(
            "the policy flushes less than is safe: {} on CPU {} while CPU {late} might still hold page {} of {} ({rights}, frame {}), \
             which was removed before; {} rounds and {} receptions so far, at least {} and {} are needed",
            at.cause.clause(),
            at.cpu,
            Vpn(stale.page),
            SpaceId(stale.space),
            Pfn(stale.pfn),
            self.rounds,
            self.receptions,
            l1.rounds,
            l1.receptions,
        )
    }

    /// The first missing flush, in words, once.
    pub(crate) fn take_missing(&mut self) -> Option<String> {
        self.missing.take()
    }

    pub(crate) fn report(&self) -> BoundReport {
        BoundReport {
            rounds: self.rounds,
            receptions: self.receptions,
            l1: self.l1.count().clone(),
            l2: self.l2.count().clone(),
            stale: self.stale,
            open_max: self.l1.open_max() as u64,
        }
    }
}

#[cfg(test)]
mod tests;
