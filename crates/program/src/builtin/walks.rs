//! Programs that only touch memory and differ in the order of pages.

use super::{Area, BASE, Builtin, PAGE, Pattern};
use crate::keys::scattered;
use crate::rng::Rng;
use crate::zipf::Zipf;
use crate::{Access, AccessKind, Os, Signal};

/// Words of 8 bytes in a page: a pass through the whole page.
const WORDS: u32 = 512;
/// Accesses to a page that is touched at random.
const ACCESSES: u32 = 8;

impl Builtin {
    pub(super) fn walk<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        let mut rng = Rng::new(os.seed());
        let share = self.pages() / self.threads as u64;
        match self.pattern {
            Pattern::Sequential => self.sequential(os, thread, AccessKind::Store),
            Pattern::Stream => self.sequential(os, thread, AccessKind::Load),
            Pattern::Zipf => {
                self.fill(os, thread)?;
                let zipf = Zipf::new(self.pages());
                self.random(os, share, |rng, pages, _| scattered(zipf.next(rng), pages), &mut rng)
            }
            Pattern::ZipfAndScan => self.zipf_and_scan(os, thread, &mut rng),
            Pattern::Phases => {
                self.fill(os, thread)?;
                self.random(
                    os,
                    share,
                    |rng, pages, done| {
                        // A phase lasts for as many touches as this task's share has pages; each phase moves
                        // on by a quarter.
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

    /// Touch each page of a thread's part once: random choice would miss a third of them, and the footprint
    /// promises that all are touched.
    fn fill<O: Os>(&self, os: &mut O, thread: u32) -> Result<(), Signal> {
        let part = self.part(thread);
        let mode = if self.area == Area::File { AccessKind::Load } else { AccessKind::Store };
        for page in part.clone() {
            os.access(Access { addr: BASE + page * PAGE, count: ACCESSES, mode })?;
        }
        os.progress(part.end - part.start);
        Ok(())
    }

    /// Read as many pages as `passes` passes over this thread's part: mostly by Zipf's law, interleaved with
    /// a scan.
    fn zipf_and_scan<O: Os>(&self, os: &mut O, thread: u32, rng: &mut Rng) -> Result<(), Signal> {
        let zipf = Zipf::new(self.pages());
        let part = self.part(thread);
        let mut scan = part.clone().cycle();
        let touches = (part.end - part.start) * self.passes as u64;
        for _ in 0..touches {
            let next = if rng.below(5) == 0 { scan.next() } else { None };
            let page = next.unwrap_or_else(|| scattered(zipf.next(rng), self.pages()));
            os.access(Access { addr: BASE + page * PAGE, count: ACCESSES, mode: AccessKind::Load })?;
        }
        os.progress(touches);
        Ok(())
    }

    /// Touch a thread's part from end to end, the first time with accesses of kind `first`.
    fn sequential<O: Os>(&self, os: &mut O, thread: u32, first: AccessKind) -> Result<(), Signal> {
        let part = self.part(thread);
        for pass in 0..self.passes {
            let mode = if pass == 0 { first } else { AccessKind::Load };
            for page in part.clone() {
                os.access(Access { addr: BASE + page * PAGE, count: WORDS, mode })?;
            }
            os.progress(part.end - part.start);
        }
        Ok(())
    }

    /// Touch as many pages as `passes` passes over a thread's share, at pages that `choose` returns.
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
            os.access(Access { addr, count: ACCESSES, mode })?;
        }
        os.progress(touches);
        Ok(())
    }
}
