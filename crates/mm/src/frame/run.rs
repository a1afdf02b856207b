//! Runs of folios, which go through reclaim together.

use crate::units::*;
use core::slice;

/// Folios of one owner, in the order of their places there, some of which are wanted. One folio is a run of one; a run
/// of several is of single pages.
#[derive(Clone, Copy, Debug)]
pub struct FolioRun<'a> {
    folios: &'a [Pfn],
    /// Bit i: folio i is wanted.
    wanted: u32,
}

impl<'a> FolioRun<'a> {
    /// Most folios of a run.
    pub const MOST: usize = u32::BITS as usize;

    /// All of these folios are wanted.
    #[inline]
    pub fn new(folios: &'a [Pfn]) -> FolioRun<'a> {
        assert!(
            (1..=FolioRun::MOST).contains(&folios.len()),
            "a run has 1 to 32 folios, not {}",
            folios.len()
        );
        FolioRun { folios, wanted: u32::MAX >> (FolioRun::MOST - folios.len()) }
    }

    /// One folio.
    #[inline]
    pub fn one(folio: &'a Pfn) -> FolioRun<'a> {
        FolioRun { folios: slice::from_ref(folio), wanted: 1 }
    }

    /// The same folios, of which those are wanted whose bits are set.
    #[inline]
    pub fn with(self, wanted: u32) -> FolioRun<'a> {
        FolioRun { wanted, ..self }
    }

    /// The same folios, of which those are wanted that are wanted now and that `keep` accepts.
    #[inline]
    pub fn filter(self, mut keep: impl FnMut(usize, Pfn) -> bool) -> FolioRun<'a> {
        let kept = self.iter().fold(0, |kept, (at, folio)| kept | u32::from(keep(at, folio)) << at);
        self.with(kept)
    }

    /// The bits of those that are wanted.
    #[inline]
    pub fn wanted(self) -> u32 {
        self.wanted
    }

    /// Whether none is wanted.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.wanted == 0
    }

    /// The folio with a number, wanted or not.
    #[inline]
    pub fn folio(self, at: usize) -> Pfn {
        self.folios[at]
    }

    /// The first folio and the last that are wanted.
    ///
    /// # Panics
    /// If none is.
    #[inline]
    pub fn ends(self) -> (Pfn, Pfn) {
        let last = u32::BITS - 1 - self.wanted.leading_zeros();
        (self.folios[self.wanted.trailing_zeros() as usize], self.folios[last as usize])
    }

    /// Those that are wanted, with their numbers.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = (usize, Pfn)> + use<'a> {
        let mut rest = self.wanted;
        core::iter::from_fn(move || {
            let at = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some((at, self.folios[at]))
        })
    }
}
