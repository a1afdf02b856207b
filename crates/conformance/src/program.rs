//! Programs on the memory manager: tasks that belong to a space, with their faults handled.

use crate::harness::Harness;
use crate::kit::{Kit, ensure};
use crate::raw::pattern;
use crate::report::{NotPassed, Verdict};
use mm::api::{AccessKind, Advice, Backing, Error, FaultError, MapRequest, Prot};
use mm::units::*;
use std_alloc::format;

/// Faults that one access may take. More mean that it makes no progress.
const RETRIES: u32 = 1000;

/// Why an access gave no value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AccessError {
    /// A signal.
    Signal(FaultError),
    /// Each fault is handled, and the access faults again.
    NoProgress,
}

/// Fail the check if a system call failed that should have succeeded.
pub(crate) fn succeeded<T>(call: &str, result: Result<T, Error>) -> Result<T, NotPassed> {
    result.map_err(|error| NotPassed::Failed(format!("{call}: {error:?}")))
}

/// A new space.
pub(crate) fn create<H: Harness>(kit: &Kit<'_, H>, group: GroupId) -> Result<SpaceId, NotPassed> {
    succeeded("create_space", kit.harness.mm().create_space(group))
}

/// The current task as a program in a space, which it leaves when this is dropped.
pub(crate) struct Program<'k, H: Harness> {
    kit: &'k Kit<'k, H>,
    pub space: SpaceId,
}

impl<'k, H: Harness> Program<'k, H> {
    pub fn enter(kit: &'k Kit<'k, H>, space: SpaceId) -> Program<'k, H> {
        kit.harness.enter(Some(space));
        Program { kit, space }
    }

    fn reach<T>(
        &self,
        page: Vpn,
        kind: AccessKind,
        access: impl Fn() -> Option<T>,
    ) -> Result<T, AccessError> {
        for _ in 0..RETRIES {
            if let Some(value) = access() {
                return Ok(value);
            }
            self.kit.harness.mm().fault(self.space, page, kind).map_err(AccessError::Signal)?;
        }
        Err(AccessError::NoProgress)
    }

    /// Load a word.
    pub fn load(&self, page: Vpn, word: usize) -> Result<u64, AccessError> {
        self.reach(page, AccessKind::Load, || self.kit.harness.load(page, word))
    }

    /// Store a word.
    pub fn store(&self, page: Vpn, word: usize, value: u64) -> Result<(), AccessError> {
        self.reach(page, AccessKind::Store, || self.kit.harness.store(page, word, value).then_some(()))
    }

    /// Map pages at `at`, or anywhere.
    pub fn map(&self, at: Option<Vpn>, pages: u64, backing: Backing) -> Result<Vpn, NotPassed> {
        let request = MapRequest { at, pages, prot: Prot::RW, backing, locked: false, populate: false };
        succeeded("mmap", self.kit.harness.mm().mmap(self.space, &request))
    }

    /// Unmap pages.
    pub fn unmap(&self, start: Vpn, pages: u64) -> Verdict {
        succeeded("munmap", self.kit.harness.mm().munmap(self.space, start, pages))
    }

    /// Drop the content of pages.
    pub fn forget(&self, start: Vpn, pages: u64) -> Verdict {
        succeeded("madvise", self.kit.harness.mm().madvise(self.space, start, pages, Advice::DontNeed))
    }

    /// Store to the words of a page that the checks compare: the first, the last, one in the middle. `seed`
    /// and `name` make their content different from any other page's.
    pub fn fill(&self, page: Vpn, seed: u64, name: usize) -> Verdict {
        for word in self.words() {
            let stored = self.store(page, word, pattern(seed, name, word));
            ensure!(stored.is_ok(), "a store to {page} of {} ends in {stored:?}", self.space);
        }
        Ok(())
    }

    /// Check that a page holds what it was filled with.
    pub fn holds(&self, page: Vpn, seed: u64, name: usize) -> Verdict {
        self.compare(page, |word| pattern(seed, name, word))
    }

    /// Check that a page holds zeroes.
    pub fn holds_zeroes(&self, page: Vpn) -> Verdict {
        self.compare(page, |_| 0)
    }

    fn compare(&self, page: Vpn, expected: impl Fn(usize) -> u64) -> Verdict {
        for word in self.words() {
            let (got, expected) = (self.load(page, word), expected(word));
            let space = self.space;
            ensure!(
                got == Ok(expected),
                "word {word} of {page} of {space} is {got:x?} after a store of {expected:x}"
            );
        }
        Ok(())
    }

    fn words(&self) -> impl Iterator<Item = usize> + use<H> {
        let words = self.kit.harness.words();
        [0, words / 2, words - 1].into_iter().take(if words < 3 { 1 } else { 3 })
    }
}

impl<H: Harness> Drop for Program<'_, H> {
    fn drop(&mut self) {
        self.kit.harness.enter(None);
    }
}
