//! Policies that misbehave as much as the interface allows: for tests of the framework.

use super::*;
use std_alloc::vec::Vec;

/// Random answers: lists that do not exist, empty lists, endless moves.
struct Random(u64);

impl Random {
    fn draw(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % below
    }

    fn spot(&mut self) -> Spot {
        let list = [self.draw(4), self.draw(MAX_LISTS + 3), usize::MAX][self.draw(3)];
        Spot { list, end: if self.draw(2) == 0 { End::Head } else { End::Tail } }
    }
}

impl Replace for Random {
    fn lists(&self) -> usize {
        4
    }

    fn added(&mut self, folio: View<'_>, _why: InsertReason) -> Spot {
        folio.set_mark(self.draw(256) as u8);
        self.spot()
    }

    fn next(&mut self, _sizes: &[u64]) -> Spot {
        self.spot()
    }

    fn judge(&mut self, folio: View<'_>) -> Judgement {
        folio.take_uses();
        if self.draw(2) == 0 { Judgement::Evict } else { Judgement::Move(self.spot()) }
    }

    fn evicted(&mut self, _folio: View<'_>) -> u8 {
        self.draw(256) as u8
    }
}

/// Evicts nothing, and claims to have no lists.
struct Miser;

impl Replace for Miser {
    fn lists(&self) -> usize {
        0
    }

    fn added(&mut self, _folio: View<'_>, _why: InsertReason) -> Spot {
        Spot::tail(0)
    }

    fn next(&mut self, _sizes: &[u64]) -> Spot {
        Spot::tail(0)
    }

    fn judge(&mut self, _folio: View<'_>) -> Judgement {
        Judgement::Move(Spot::tail(0))
    }
}

/// Proposes the same folio again and again, even if it cannot be evicted.
struct Stubborn;

impl Replace for Stubborn {
    fn lists(&self) -> usize {
        usize::MAX
    }

    fn added(&mut self, _folio: View<'_>, why: InsertReason) -> Spot {
        if matches!(why, InsertReason::New { .. }) {
            Spot::head(MAX_LISTS - 1)
        } else {
            Spot::tail(MAX_LISTS - 1)
        }
    }

    fn next(&mut self, _sizes: &[u64]) -> Spot {
        Spot::tail(MAX_LISTS - 1)
    }
}

/// Scores at random, with more samples than there can be.
struct Blind(Random);

impl Replace for Blind {
    fn checks_references(&self) -> bool {
        false
    }

    fn sample(&self) -> Option<Sample> {
        Some(Sample { of: usize::MAX, take: 0 })
    }

    fn added(&mut self, _folio: View<'_>, _why: InsertReason) -> Spot {
        self.0.spot()
    }

    fn next(&mut self, _sizes: &[u64]) -> Spot {
        self.0.spot()
    }

    fn score(&mut self, _folio: View<'_>) -> u64 {
        [0, u64::MAX, self.0.0][self.0.draw(3)]
    }
}

/// All of them.
pub const HOSTILE: [MakePolicy; 4] =
    [|| Box::new(Random(1)), || Box::new(Miser), || Box::new(Stubborn), || Box::new(Blind(Random(2)))];

/// All of them, and the policies that come with Pagefold.
pub fn all() -> Vec<MakePolicy> {
    HOSTILE.into_iter().chain(RIVALS.iter().map(|rival| rival.make)).collect()
}
