//! Tiers of a generation, and the controller that compares their refaults.

use super::form::{self, TIERS};
use crate::frame::{FrameFlags, LruGen};
use crate::knobs::Knob;
use crate::platform::Platform;
use crate::primitive::{AtomicU64, Ordering::Relaxed};

/// Fewer refaults than this are ignored.
const FEWEST: u64 = super::BATCH;

/// The number of uses through file descriptors that count, from a folio's flags: one less than there were, at most 4.
#[inline]
pub const fn uses(flags: FrameFlags) -> u32 {
    flags.uses() + flags.contains(FrameFlags::WORKINGSET) as u32
}

/// The tier for a number of [`uses`]: the logarithm of uses + 1, rounded up.
#[inline]
pub const fn tier(uses: u32) -> usize {
    (uses + 1).next_power_of_two().trailing_zeros() as usize
}

/// The meaning of a folio's uses through file descriptors.
pub(crate) struct Standing {
    /// For a shadow: uses in addition to the one of its own bit.
    pub uses: u32,
    /// For a shadow: whether the folio is of the working set.
    pub workingset: bool,
    pub tier: usize,
    /// Whether the uses have reached the maximum that can be counted.
    pub full: bool,
}

impl Standing {
    /// By a folio's flags.
    #[inline]
    pub fn of<M>(platform: &Platform<M>, flags: FrameFlags) -> Standing {
        let tiers = platform.knobs.get(Knob::LruGenTiers) != 0;
        if form::is_reworked(&platform.knobs) {
            let workingset = flags.contains(FrameFlags::WORKINGSET);
            let uses = if tiers { form::uses(flags) } else { 0 };
            let tier = if tiers { form::tier(uses, workingset) } else { 0 };
            return Standing { uses, workingset, tier, full: tiers && form::is_full(flags) };
        }
        let uses = if tiers { uses(flags) } else { 0 };
        Standing { uses, workingset: uses > 0, tier: tier(uses), full: uses as usize == TIERS }
    }
}

/// The refaults of a tier in relation to its evictions, and their weight.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Position {
    /// Pages that refaulted.
    pub refaulted: u64,
    /// Pages that were evicted or protected.
    pub total: u64,
    /// The larger it is, the more refaults are accepted.
    pub gain: u64,
}

/// Whether `other` refaults no more than `reference`, by their gains, or too little to tell: then it may be evicted,
/// too.
pub(crate) fn is_no_worse(reference: Position, other: Position) -> bool {
    if other.refaulted < FEWEST {
        return true;
    }
    let left = other.refaulted as u128 * (reference.total + FEWEST) as u128 * reference.gain as u128;
    left <= (reference.refaulted + 1) as u128 * other.total as u128 * other.gain as u128
}

/// The counters of a type's tiers.
#[derive(Default)]
struct OfType {
    /// Moving averages over the generations evicted before.
    avg_refaulted: [AtomicU64; TIERS],
    avg_total: [AtomicU64; TIERS],
    /// By generation of the window, while it was the oldest. The first tier is never protected.
    refaulted: [[AtomicU64; TIERS]; LruGen::COUNT],
    evicted: [[AtomicU64; TIERS]; LruGen::COUNT],
    protected: [[AtomicU64; TIERS]; LruGen::COUNT],
}

/// The counters of a vector's tiers: anonymous, file. `evicted` and `refaulted` are increased without the vector's
/// lock.
#[derive(Default)]
pub struct TierCounts {
    types: [OfType; 2],
}

/// Counters for reports: refaulted, evicted, protected.
pub type Counted = [u64; 3];

fn add(to: &AtomicU64, pages: u64) {
    to.fetch_add(pages, Relaxed);
}

impl TierCounts {
    /// Count pages of a tier that were evicted while `oldest` was the oldest generation of their type.
    #[inline]
    pub fn evicted(&self, file: bool, oldest: LruGen, tier: usize, pages: u64) {
        add(&self.types[file as usize].evicted[oldest.index()][tier], pages);
    }

    /// Count refaults of pages that were evicted from it.
    #[inline]
    pub(crate) fn refaulted(&self, file: bool, oldest: LruGen, tier: usize, pages: u64) {
        add(&self.types[file as usize].refaulted[oldest.index()][tier], pages);
    }

    /// Count pages that were protected because of their tier.
    #[inline]
    pub fn protected(&self, file: bool, oldest: LruGen, tier: usize, pages: u64) {
        add(&self.types[file as usize].protected[oldest.index()][tier], pages);
    }

    /// The position of a tier, including the averages.
    pub fn position(&self, file: bool, oldest: LruGen, tier: usize, gain: u64) -> Position {
        let of = &self.types[file as usize];
        let [refaulted, evicted, protected] = self.counted_in(file, oldest, tier);
        Position {
            refaulted: of.avg_refaulted[tier].load(Relaxed) + refaulted,
            total: of.avg_total[tier].load(Relaxed) + evicted + protected,
            gain,
        }
    }

    /// The counters of the generation of `seq`: refaulted, evicted, protected.
    pub fn counted(&self, file: bool, seq: u64, tier: usize) -> Counted {
        self.counted_in(file, LruGen::of(seq), tier)
    }

    fn counted_in(&self, file: bool, generation: LruGen, tier: usize) -> Counted {
        let of = &self.types[file as usize];
        [&of.refaulted, &of.evicted, &of.protected]
            .map(|counts| counts[generation.index()][tier].load(Relaxed))
    }

    pub(crate) fn averages(&self, file: bool, tier: usize) -> [u64; 2] {
        let of = &self.types[file as usize];
        [of.avg_refaulted[tier].load(Relaxed), of.avg_total[tier].load(Relaxed)]
    }

    /// The generation has been evicted: add its counts to the averages, and halve them.
    pub(crate) fn carry_over(&self, file: bool, oldest: LruGen) {
        let of = &self.types[file as usize];
        for tier in 0..TIERS {
            let now = self.position(file, oldest, tier, 1);
            of.avg_refaulted[tier].store(now.refaulted / 2, Relaxed);
            of.avg_total[tier].store(now.total / 2, Relaxed);
        }
    }

    /// A new generation begins in this slot.
    pub fn clear(&self, file: bool, generation: LruGen) {
        let of = &self.types[file as usize];
        for counts in [&of.refaulted, &of.evicted, &of.protected] {
            counts[generation.index()].iter().for_each(|count| count.store(0, Relaxed));
        }
    }

    /// The highest tier of a type that may be evicted. More refaults than the first tier's are accepted, because of
    /// fluctuations: by `gains`, the first tier's and the others'.
    pub fn limit(&self, file: bool, oldest: LruGen, gains: [u64; 2]) -> usize {
        let reference = self.position(file, oldest, 0, gains[0]);
        last_no_worse(reference, |tier| self.position(file, oldest, tier, gains[1]))
    }

    /// Whether to evict files: all of their tiers together refault less than those of anonymous memory, weighted by
    /// swappiness. `oldest`: of anonymous memory, of files.
    pub(super) fn prefers_files(&self, oldest: [LruGen; 2], swappiness: u64) -> bool {
        let gain = [swappiness, super::super::MAX_SWAPPINESS - swappiness];
        let whole = |file: bool| {
            let none = Position { gain: gain[file as usize], ..Position::default() };
            (0..TIERS).fold(none, |sum, tier| {
                let of_tier = self.position(file, oldest[file as usize], tier, sum.gain);
                Position {
                    refaulted: sum.refaulted + of_tier.refaulted,
                    total: sum.total + of_tier.total,
                    ..sum
                }
            })
        };
        is_no_worse(whole(false), whole(true))
    }

    /// The type to evict from when both have folios of the same age, and the highest of its tiers that may be evicted:
    /// the type whose first tier refaults less, weighted by swappiness. `oldest`: of anonymous memory, of files.
    pub fn choose(&self, oldest: [LruGen; 2], swappiness: u64) -> (bool, usize) {
        let gain = [swappiness, super::super::MAX_SWAPPINESS - swappiness];
        let first = |file: bool| self.position(file, oldest[file as usize], 0, gain[file as usize]);
        let file = is_no_worse(first(false), first(true));
        let of_type = |tier| self.position(file, oldest[file as usize], tier, gain[file as usize]);
        (file, last_no_worse(first(!file), of_type))
    }
}

fn last_no_worse(reference: Position, of_tier: impl Fn(usize) -> Position) -> usize {
    (1..TIERS).find(|&tier| !is_no_worse(reference, of_tier(tier))).unwrap_or(TIERS) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn position(refaulted: u64, total: u64, gain: u64) -> Position {
        Position { refaulted, total, gain }
    }

    /// reclaim.md, section 6, two bits of counter.
    #[test]
    fn accesses_determine_tiers() {
        let mut flags = FrameFlags::empty();
        let mut tiers = std_alloc::vec::Vec::new();
        for _ in 0..7 {
            tiers.push(tier(uses(flags)));
            flags = super::super::place::after_use(flags).unwrap_or(flags);
        }
        assert_eq!(tiers, [0, 0, 1, 2, 2, 3, 3]);
    }

    /// reclaim.md, 1.9 and section 6, swappiness 60.
    #[test]
    fn type_that_refaults_less_is_evicted() {
        let oldest = [LruGen::of(5), LruGen::of(6)];
        let choose = |anon: (u64, u64), file: (u64, u64)| {
            let tiers = TierCounts::default();
            for (is_file, (refaulted, evicted)) in [(false, anon), (true, file)] {
                tiers.refaulted(is_file, oldest[is_file as usize], 0, refaulted);
                tiers.evicted(is_file, oldest[is_file as usize], 0, evicted);
            }
            tiers.choose(oldest, 60).0
        };
        assert!(!choose((0, 0), (1000, 10_000)), "anonymous memory has not refaulted");
        assert!(choose((500, 10_000), (1000, 10_000)), "140 : 60 accepts twice the refaults");
    }

    #[test]
    fn tier_is_protected_if_it_refaults_twice_as_much_as_the_first() {
        let limit = |refaulted, total| {
            let (tiers, oldest) = (TierCounts::default(), LruGen::of(1));
            tiers.refaulted(true, oldest, 0, 100);
            tiers.evicted(true, oldest, 0, 10_000);
            tiers.refaulted(true, oldest, 1, refaulted);
            tiers.protected(true, oldest, 1, total);
            tiers.limit(true, oldest, form::gains(false))
        };
        assert_eq!([limit(150, 10_000), limit(250, 10_000), limit(63, 70)], [3, 0, 3]);
    }

    #[test]
    fn averages_are_halved() {
        let (tiers, oldest) = (TierCounts::default(), LruGen::of(2));
        tiers.refaulted(false, oldest, 2, 10);
        tiers.evicted(false, oldest, 2, 20);
        tiers.protected(false, oldest, 2, 30);
        tiers.carry_over(false, oldest);
        tiers.clear(false, oldest);
        assert_eq!(tiers.position(false, oldest, 2, 1), position(5, 25, 1));
        tiers.carry_over(false, oldest);
        assert_eq!(tiers.averages(false, 2), [2, 12]);
    }
}
