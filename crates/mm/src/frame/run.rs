//! Runs of folios that go through reclaim together.

use crate::units::*;
use core::array;

/// Folios of one owner, ordered by their places there, of which some are selected. A run is one folio of any size, or
/// several of single pages. `N` is a power of two up to [`FolioRun::MOST`], so that no index needs a check.
#[derive(Clone, Copy, Debug)]
pub struct FolioRun<'a, const N: usize> {
    folios: &'a [Pfn; N],
    /// Bit i: folio i is selected.
    wanted: u32,
}

impl<'a> FolioRun<'a, 1> {
    /// Most folios in a run.
    pub const MOST: usize = u32::BITS as usize;

    /// A run of one folio.
    #[inline]
    pub fn one(folio: &'a Pfn) -> FolioRun<'a, 1> {
        FolioRun { folios: array::from_ref(folio), wanted: 1 }
    }
}

impl<'a, const N: usize> FolioRun<'a, N> {
    const ALL: u32 = {
        assert!(N.is_power_of_two() && N <= FolioRun::MOST);
        u32::MAX >> (FolioRun::MOST - N)
    };

    /// A run with the first `len` of these folios selected.
    #[inline]
    pub fn first(folios: &'a [Pfn; N], len: usize) -> FolioRun<'a, N> {
        assert!((1..=N).contains(&len), "1 to {N} folios can be selected, not {len}");
        FolioRun { folios, wanted: Self::ALL >> (N - len) }
    }

    /// The same folios, selected by the bits of `wanted`.
    #[inline]
    pub fn with(self, wanted: u32) -> FolioRun<'a, N> {
        debug_assert_eq!(wanted & !Self::ALL, 0, "a run of {N} folios has {N} bits");
        FolioRun { wanted, ..self }
    }

    /// The same folios, of which those stay selected that `keep` accepts.
    #[inline]
    pub fn filter(self, mut keep: impl FnMut(usize, Pfn) -> bool) -> FolioRun<'a, N> {
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
        self.folios[at % N]
    }

    /// The first and the last selected folio.
    ///
    /// # Panics
    /// If no folio is selected.
    #[inline]
    pub fn ends(self) -> (Pfn, Pfn) {
        assert!(!self.is_empty(), "an empty run has no ends");
        let last = u32::BITS - 1 - self.wanted.leading_zeros();
        (self.folio(self.wanted.trailing_zeros() as usize), self.folio(last as usize))
    }

    /// The selected folios with their indices.
    #[inline]
    pub fn iter(self) -> impl Iterator<Item = (usize, Pfn)> + use<'a, N> {
        let mut rest = self.wanted;
        core::iter::from_fn(move || {
            let at = (rest != 0).then(|| rest.trailing_zeros() as usize % N)?;
            rest &= rest - 1;
            Some((at, self.folios[at]))
        })
    }
}
