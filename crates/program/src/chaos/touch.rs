//! Loads, stores and fetches, and whether their outcomes agree with what is known about their pages.

use super::areas::{Area, PAGE};
use super::covered::{Op, Outcome};
use super::{Task, common};
use crate::os::*;

/// The most pages of a sweep.
const MAX_PAGES: u64 = 256;
/// After this many signals the rest of a sweep is skipped: more would show nothing new.
const MAX_SIGNALS: u64 = 3;

/// Accesses to a range of pages, in order.
#[derive(Clone, Copy)]
struct Sweep {
    addr: u64,
    pages: u64,
    mode: AccessKind,
    /// Accesses to each page, made at once.
    words: u32,
}

impl<O: Os> Task<'_, O> {
    fn mode(&mut self, prot: Option<Prot>) -> AccessKind {
        let fetch = if prot.is_some_and(|prot| prot.contains(Prot::EXEC)) { 40 } else { 3 };
        match self.rng.below(100) {
            n if n < fetch => AccessKind::Fetch,
            n if n < 60 => AccessKind::Load,
            _ => AccessKind::Store,
        }
    }

    /// Touch a range of pages, perhaps several times.
    pub(super) fn sweep(&mut self) -> Result<(), Signal> {
        let times = self.one_of(&[1, 2, 8, 32]);
        self.touch_range(MAX_PAGES, times, 0)
    }

    /// Touch a few pages again and again, so that their translations stay while other tasks change the
    /// mapping.
    pub(super) fn touch_repeatedly(&mut self) -> Result<(), Signal> {
        let times = self.one_of(&[20, 50, 100]);
        self.touch_range(8, times, 2_000)
    }

    /// Touch up to `longest` pages, of an area or of the common range, `times` times.
    fn touch_range(&mut self, longest: u64, times: u32, pause: u64) -> Result<(), Signal> {
        let area = if self.rng.percent(65) { self.pick() } else { None };
        let words = self.one_of(&[1, 1, 8, 512]);
        let Some(area) = area else { return self.touch_common(longest, times, pause, words) };
        let (addr, pages) = self.part((area.addr, area.pages));
        let mode = self.mode(area.prot);
        let sweep = Sweep { addr, pages: pages.min(longest), mode, words };
        for _ in 0..times {
            if self.sweep_once(sweep, |addr, outcome| area.check(addr, mode, outcome))? {
                break;
            }
            self.os.compute(pause);
        }
        Ok(())
    }

    fn touch_common(&mut self, longest: u64, times: u32, pause: u64, words: u32) -> Result<(), Signal> {
        let (addr, pages) = self.part((common::START, self.chaos.pages));
        let common = self.common.clone();
        let mode = self.mode(None);
        for _ in 0..times {
            let (snapshot, pages) = common.snapshot(addr, pages.min(longest));
            let mode = match snapshot.rights() {
                Some(prot) if words == 8 && prot.contains(Prot::EXEC) => AccessKind::Fetch,
                _ => mode,
            };
            let sweep = Sweep { addr, pages, mode, words };
            if self.sweep_once(sweep, |addr, outcome| common.check(&snapshot, addr, mode, outcome))? {
                break;
            }
            self.os.compute(pause);
        }
        Ok(())
    }

    /// Touch the range once. Returns whether it raised too many signals for a repetition to make sense.
    fn sweep_once(&mut self, sweep: Sweep, check: impl Fn(u64, Result<(), Signal>)) -> Result<bool, Signal> {
        let Sweep { addr, pages, mode, words } = sweep;
        let (mut done, mut signalled) = (0, 0);
        for addr in (0..pages).map(|page| addr + page * PAGE) {
            let outcome = self.os.access(Access { addr, count: words, mode });
            match outcome {
                Ok(()) => done += 1,
                Err(Signal::Kill) => return Err(Signal::Kill),
                Err(_) => signalled += 1,
            }
            if !self.may_be_failure(outcome) {
                check(addr, outcome);
            }
            if signalled >= MAX_SIGNALS {
                break;
            }
        }
        self.count(mode, addr >= common::START && addr < self.common_end(), done, signalled);
        Ok(signalled >= MAX_SIGNALS)
    }

    /// Whether a device that fails may be the reason for an outcome.
    fn may_be_failure(&self, outcome: Result<(), Signal>) -> bool {
        matches!(outcome, Err(Signal::Bus { .. })) && self.os.devices_may_fail()
    }

    fn common_end(&self) -> u64 {
        common::START + self.chaos.pages * PAGE
    }

    fn count(&self, mode: AccessKind, shared: bool, done: u64, signalled: u64) {
        let op = match (mode, shared) {
            (AccessKind::Load, false) => Op::Load,
            (AccessKind::Store, false) => Op::Store,
            (AccessKind::Fetch, false) => Op::Fetch,
            (AccessKind::Load, true) => Op::SharedLoad,
            (AccessKind::Store, true) => Op::SharedStore,
            (AccessKind::Fetch, true) => Op::SharedFetch,
        };
        self.chaos.covered.add(op, Outcome::Done, done);
        self.chaos.covered.add(op, Outcome::Signalled, signalled);
    }

    /// Touch random words of one area.
    pub(super) fn touch(&mut self) -> Result<(), Signal> {
        let Some(area) = self.pick() else { return Ok(()) };
        for _ in 0..64 {
            let mode = self.mode(area.prot);
            let outcome = self.touch_one(area, mode)?;
            if outcome.is_err() {
                break;
            }
        }
        Ok(())
    }

    fn touch_one(&mut self, area: Area, mode: AccessKind) -> Result<Result<(), Signal>, Signal> {
        let addr = area.addr + self.rng.below(area.pages * PAGE / 8) * 8;
        let outcome = self.os.access(Access { addr, count: 1, mode });
        if outcome == Err(Signal::Kill) {
            return Err(Signal::Kill);
        }
        if !self.may_be_failure(outcome) {
            area.check(addr, mode, outcome);
        }
        self.count(mode, false, outcome.is_ok().into(), outcome.is_err().into());
        Ok(outcome)
    }
}
