//! Programs on the memory manager: tasks that belong to a space, and whose faults are served.

use crate::harness::Harness;
use crate::kit::{Kit, ensure};
use crate::raw::pattern;
use crate::report::{Stop, Verdict};
use mm::api::{AccessKind, Advice, Backing, Error, FaultError, MapRequest, Prot};
use mm::units::*;
use std_alloc::format;

/// Faults that one access may take. More means that no progress is made.
const RETRIES: u32 = 1000;

pub(crate) const BOTH: Prot = Prot::RW;

/// What an access ended in, if not in a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// A signal.
    Signal(FaultError),
    /// The fault is served again and again, and the access still faults.
    Endless,
}

/// A system call that should have succeeded.
pub(crate) fn served<T>(call: &str, result: Result<T, Error>) -> Result<T, Stop> {
    result.map_err(|error| Stop::Failed(format!("{call}: {error:?}")))
}

/// A new space.
pub(crate) fn create<H: Harness>(kit: &Kit<'_, H>, group: GroupId) -> Result<SpaceId, Stop> {
    served("create_space", kit.harness.mm().create_space(group))
}

/// The task that runs, as a program in a space; it leaves the space when this is dropped.
pub(crate) struct Program<'k, H: Harness> {
    kit: &'k Kit<'k, H>,
    pub space: SpaceId,
}

impl<'k, H: Harness> Program<'k, H> {
    pub fn enter(kit: &'k Kit<'k, H>, space: SpaceId) -> Program<'k, H> {
        kit.harness.enter(Some(space));
        Program { kit, space }
    }

    fn reach<T>(&self, page: Vpn, kind: AccessKind, access: impl Fn() -> Option<T>) -> Result<T, Trouble> {
        for _ in 0..RETRIES {
            if let Some(value) = access() {
                return Ok(value);
            }
            self.kit.harness.mm().fault(self.space, page, kind).map_err(Trouble::Signal)?;
        }
        Err(Trouble::Endless)
    }

    /// Load a word.
    pub fn load(&self, page: Vpn, word: usize) -> Result<u64, Trouble> {
        self.reach(page, AccessKind::Load, || self.kit.harness.load(page, word))
    }

    /// Store a word.
    pub fn store(&self, page: Vpn, word: usize, value: u64) -> Result<(), Trouble> {
        self.reach(page, AccessKind::Store, || self.kit.harness.store(page, word, value).then_some(()))
    }

    /// Map pages at `at`, or where there is room.
    pub fn map(&self, at: Option<Vpn>, pages: u64, backing: Backing) -> Result<Vpn, Stop> {
        let request = MapRequest { at, pages, prot: BOTH, backing, locked: false, populate: false };
        served("mmap", self.kit.harness.mm().mmap(self.space, &request))
    }

    /// Unmap pages.
    pub fn unmap(&self, start: Vpn, pages: u64) -> Verdict {
        served("munmap", self.kit.harness.mm().munmap(self.space, start, pages))
    }

    /// Forget what pages hold.
    pub fn forget(&self, start: Vpn, pages: u64) -> Verdict {
        served("madvise", self.kit.harness.mm().madvise(self.space, start, pages, Advice::DontNeed))
    }

    /// Store to the words of a page that are looked at: the first, the last, one in the middle. `seed` and `name` make
    /// them different from any other page's.
    pub fn fill(&self, page: Vpn, seed: u64, name: usize) -> Verdict {
        for word in self.words() {
            let stored = self.store(page, word, pattern(seed, name, word));
            ensure!(stored.is_ok(), "a store to {page} of {} ends in {stored:?}", self.space);
        }
        Ok(())
    }

    /// Does a page hold what it was filled with?
    pub fn holds(&self, page: Vpn, seed: u64, name: usize) -> Verdict {
        self.compare(page, |word| pattern(seed, name, word))
    }

    /// Does a page hold zeroes?
    pub fn holds_zeroes(&self, page: Vpn) -> Verdict {
        self.compare(page, |_| 0)
    }

    fn compare(&self, page: Vpn, expected: impl Fn(usize) -> u64) -> Verdict {
        for word in self.words() {
            let (got, expected) = (self.load(page, word), expected(word));
            let space = self.space;
            ensure!(
                got == Ok(expected),
                "word {word} of {page} of {space} is {got:x?}, was stored as {expected:x}"
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
