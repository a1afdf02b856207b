//! Programs that only touch memory: they differ in the order of pages.

use super::{Area, BASE, Builtin, Habit, PAGE};
use crate::keys::scattered;
use crate::rng::Rng;
use crate::zipf::Zipf;
use crate::{Access, AccessKind, Os, Signal};

/// Words of 8 bytes in a page: a pass through all of it.
const WHOLE: u32 = 512;
/// Accesses to a page that is touched at random.
const SOME: u32 = 8;

impl Builtin {
    pub(super) fn walk<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        let mut rng = Rng::new(os.seed());
        let share = self.pages() / self.threads as u64;
        match self.habit {
            Habit::Sequential => self.sequential(os, thread, AccessKind::Store),
            Habit::Stream => self.sequential(os, thread, AccessKind::Load),
            Habit::Zipf => {
                self.fill(os, thread)?;
                let zipf = Zipf::new(self.pages());
                self.random(os, share, |rng, pages, _| scattered(zipf.next(rng), pages), &mut rng)
            }
            Habit::ZipfAndScan => self.zipf_and_scan(os, thread, &mut rng),
            Habit::Phases => {
                self.fill(os, thread)?;
                self.random(
                    os,
                    share,
                    |rng, pages, done| {
                        // A phase lasts for as many touches as this task's share has pages; each moves on by a quarter.
                        let quarter = pages.div_ceil(4);
                        (done / share * quarter + rng.below(quarter)) % pages
                    },
                    &mut rng,
                )
            }
            _ => {
                self.fill(os, thread)?;
                self.random(os, share, |rng, pages, _| rng.below(pages), &mut rng)
            }
        }
    }

    /// Touch each page of a thread's part once: chance alone would leave out a third of them, and a footprint is a
    /// promise that all of it is touched.
    fn fill<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        let part = self.part(thread);
        let mode = if self.area == Area::File { AccessKind::Load } else { AccessKind::Store };
        for page in part.clone() {
            os.access(Access { addr: BASE + page * PAGE, count: SOME, mode })?;
        }
        os.progress(part.end - part.start);
        Ok(())
    }

    /// Read as many pages as `passes` passes over this thread's part: mostly by Zipf's law, and the scan in between.
    fn zipf_and_scan<O: Os>(&self, os: &mut O, thread: u32, rng: &mut Rng) -> Result<(), Signal> {
        let zipf = Zipf::new(self.pages());
        let part = self.part(thread);
        let mut scan = part.clone().cycle();
        let touches = (part.end - part.start) * self.passes as u64;
        for _ in 0..touches {
            let next = if rng.below(5) == 0 { scan.next() } else { None };
            let page = next.unwrap_or_else(|| scattered(zipf.next(rng), self.pages()));
            os.access(Access { addr: BASE + page * PAGE, count: SOME, mode: AccessKind::Load })?;
        }
        os.progress(touches);
        Ok(())
    }

    /// A thread's part from end to end, the first time with `first` accesses.
    fn sequential<O: Os>(&self, os: &mut O, thread: u32, first: AccessKind) -> Result<(), Signal> {
        let part = self.part(thread);
        for pass in 0..self.passes {
            let mode = if pass == 0 { first } else { AccessKind::Load };
            for page in part.clone() {
                os.access(Access { addr: BASE + page * PAGE, count: WHOLE, mode })?;
            }
            os.progress(part.end - part.start);
        }
        Ok(())
    }

    /// As many touches as `passes` passes over a thread's share, at pages that `choose` names.
    fn random<O: Os>(
        &self,
        os: &mut O,
        share: u64,
        choose: impl Fn(&mut Rng, u64, u64) -> u64,
        rng: &mut Rng,
    ) -> Result<(), Signal> {
        let touches = share * self.passes as u64;
        for done in 0..touches {
            let page = choose(rng, self.pages(), done);
            let mode = if rng.below(4) == 0 { AccessKind::Store } else { AccessKind::Load };
            let addr = BASE + page * PAGE + rng.below(64) * 64;
            os.access(Access { addr, count: SOME, mode })?;
        }
        os.progress(touches);
        Ok(())
    }
}
