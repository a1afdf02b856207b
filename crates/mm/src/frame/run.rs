//! Runs of folios that go through reclaim together.

use crate::units::*;
use core::slice;

/// Folios of one owner, ordered by their places there, of which some are selected. A run is one folio of any size, or
/// several of single pages.
#[derive(Clone, Copy, Debug)]
pub struct FolioRun<'a> {
    folios: &'a [Pfn],
    /// Bit i: folio i is selected.
    wanted: u32,
}

impl<'a> FolioRun<'a> {
    /// Most folios in a run.
    pub const MOST: usize = u32::BITS as usize;

    /// A run with all of these folios selected.
    #[inline]
    pub fn new(folios: &'a [Pfn]) -> FolioRun<'a> {
        assert!(
            (1..=FolioRun::MOST).contains(&folios.len()),
            "a run has 1 to 32 folios, not {}",
            folios.len()
        );
        FolioRun { folios, wanted: u32::MAX >> (FolioRun::MOST - folios.len()) }
    }

    /// A run of one folio.
    #[inline]
    pub fn one(folio: &'a Pfn) -> FolioRun<'a> {
        FolioRun { folios: slice::from_ref(folio), wanted: 1 }
    }

    /// The same folios, selected by the bits of `wanted`.
    #[inline]
    pub fn with(self, wanted: u32) -> FolioRun<'a> {
        FolioRun { wanted, ..self }
    }

    /// The same folios, of which those stay selected that `keep` accepts.
    #[inline]
    pub fn filter(self, mut keep: impl FnMut(usize, Pfn) -> bool) -> FolioRun<'a> {
        let kept = self.iter().fold(0, |kept, (at, folio)| kept | u32::from(keep(at, folio)) << at);
        self.with(kept)
    }

    /// The selection as bits.
    #[inline]
    pub fn wanted(self) -> u32 {
        self.wanted
    }

    /// Whether no folio is selected.
    #[inline]
    pub fn is_empty(self) -> bool {
        self.wanted == 0
    }

    /// The folio at an index, selected or not.
    #[inline]
    pub fn folio(self, at: usize) -> Pfn {
        self.folios[at]
    }

    /// The first and the last selected folio.
    ///
    /// # Panics
    /// If no folio is selected.
    #[inline]
    pub fn ends(self) -> (Pfn, Pfn) {
        let last = u32::BITS - 1 - self.wanted.leading_zeros();
        (self.folios[self.wanted.trailing_zeros() as usize], self.folios[last as usize])
    }

    /// The selected folios with their indices.
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
