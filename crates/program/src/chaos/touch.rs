//! Loads, stores and fetches, and whether they do what is known of their pages.

use super::areas::{Area, PAGE};
use super::covered::{Act, Came};
use super::{Task, common};
use crate::os::*;

/// Most pages of a sweep.
const LONGEST: u64 = 256;
/// After so many signals the rest of a sweep is left out: the next would be no other.
const ENOUGH: u64 = 3;

/// Accesses to a range of pages, one after the other.
#[derive(Clone, Copy)]
struct Sweep {
    addr: u64,
    pages: u64,
    mode: AccessKind,
    /// Accesses to each page, as one.
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

    /// Pass through a range of pages, perhaps several times.
    pub(super) fn sweep(&mut self) -> Result<(), Signal> {
        let times = self.one_of(&[1, 2, 8, 32]);
        self.pass(LONGEST, times, 0)
    }

    /// Use a few pages on and on, so that their translations stay while others change what lies behind them.
    pub(super) fn linger(&mut self) -> Result<(), Signal> {
        let times = self.one_of(&[20, 50, 100]);
        self.pass(8, times, 2_000)
    }

    /// Pass `times` times through up to `longest` pages, of an area or of what threads share.
    fn pass(&mut self, longest: u64, times: u32, pause: u64) -> Result<(), Signal> {
        let area = if self.rng.percent(65) { self.pick() } else { None };
        let words = self.one_of(&[1, 1, 8, 512]);
        let Some(area) = area else { return self.pass_common(longest, times, pause, words) };
        let (addr, pages) = self.part((area.addr, area.pages));
        let mode = self.mode(area.prot);
        let sweep = Sweep { addr, pages: pages.min(longest), mode, words };
        for _ in 0..times {
            if self.once(sweep, |addr, outcome| area.judge(addr, mode, outcome))? {
                break;
            }
            self.os.compute(pause);
        }
        Ok(())
    }

    fn pass_common(&mut self, longest: u64, times: u32, pause: u64, words: u32) -> Result<(), Signal> {
        let (addr, pages) = self.part((common::START, self.chaos.pages));
        let common = self.common.clone();
        let mode = self.mode(None);
        for _ in 0..times {
            let (known, pages) = common.look(addr, pages.min(longest));
            let mode = match known.rights() {
                Some(prot) if words == 8 && prot.contains(Prot::EXEC) => AccessKind::Fetch,
                _ => mode,
            };
            let sweep = Sweep { addr, pages, mode, words };
            if self.once(sweep, |addr, outcome| common.judge(&known, addr, mode, outcome))? {
                break;
            }
            self.os.compute(pause);
        }
        Ok(())
    }

    /// One pass. Returns whether it met so many signals that another makes no sense.
    fn once(&mut self, sweep: Sweep, judge: impl Fn(u64, Result<(), Signal>)) -> Result<bool, Signal> {
        let Sweep { addr, pages, mode, words } = sweep;
        let (mut done, mut signalled) = (0, 0);
        for addr in (0..pages).map(|page| addr + page * PAGE) {
            let outcome = self.os.access(Access { addr, count: words, mode });
            match outcome {
                Ok(()) => done += 1,
                Err(Signal::Kill) => return Err(Signal::Kill),
                Err(_) => signalled += 1,
            }
            judge(addr, outcome);
            if signalled >= ENOUGH {
                break;
            }
        }
        self.count(mode, addr >= common::START && addr < self.common_end(), done, signalled);
        Ok(signalled >= ENOUGH)
    }

    fn common_end(&self) -> u64 {
        common::START + self.chaos.pages * PAGE
    }

    fn count(&self, mode: AccessKind, shared: bool, done: u64, signalled: u64) {
        let act = match (mode, shared) {
            (AccessKind::Load, false) => Act::Load,
            (AccessKind::Store, false) => Act::Store,
            (AccessKind::Fetch, false) => Act::Fetch,
            (AccessKind::Load, true) => Act::SharedLoad,
            (AccessKind::Store, true) => Act::SharedStore,
            (AccessKind::Fetch, true) => Act::SharedFetch,
        };
        self.chaos.covered.add(act, Came::Done, done);
        self.chaos.covered.add(act, Came::Signalled, signalled);
    }

    /// Touch pages of one area here and there.
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
        area.judge(addr, mode, outcome);
        self.count(mode, false, outcome.is_ok().into(), outcome.is_err().into());
        Ok(outcome)
    }
}
