//! The formulas of the classic lists: when an inactive list is too short, and how much of each list is scanned.

use super::control::SWAP_CLUSTER_MAX;
use crate::lru::{Cost, LruList, MAX_SWAPPINESS, Protection};
use crate::units::int_sqrt;

/// log2 of the pages in a GiB.
const GIB_SHIFT: u32 = 18;

/// The highest ratio of the active list to the inactive list, when both together have `pages` pages. A large list needs
/// only a small inactive part to detect accesses.
pub(crate) fn inactive_ratio(pages: u64) -> u64 {
    match pages >> GIB_SHIFT {
        0 => 1,
        gib => int_sqrt(10 * gib),
    }
}

/// Whether active folios should be deactivated.
pub(crate) fn inactive_is_low(inactive: u64, active: u64) -> bool {
    inactive * inactive_ratio(inactive + active) < active
}

/// How the scan is divided between the two types.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ScanBalance {
    /// Both, in proportion to their sizes.
    Equal,
    /// Only anonymous lists.
    Anon,
    /// Only file lists.
    File,
    /// Both, with [`ScanWeights`].
    Fract(ScanWeights),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ScanWeights {
    /// Of anonymous lists.
    pub anon: u64,
    pub file: u64,
}

impl ScanWeights {
    /// Weights in inverse proportion to the cost of reclaiming each type, and multiplied by swappiness. Each type gets
    /// at least a third before swappiness, so that none is neglected.
    pub fn new(cost: Cost, swappiness: u64) -> ScanWeights {
        let total = cost.anon + cost.file;
        let (anon, file) = (total + cost.anon, total + cost.file);
        let total = anon + file;
        ScanWeights {
            anon: swappiness * (total + 1) / (anon + 1),
            file: (MAX_SWAPPINESS - swappiness) * (total + 1) / (file + 1),
        }
    }

    fn of(self, scan: u64, file: bool) -> u64 {
        let weight = if file { self.file } else { self.anon };
        (scan as u128 * weight as u128 / (self.anon + self.file) as u128) as u64
    }
}

/// What the balance depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Situation {
    /// Swapping is allowed and there is swap space.
    pub can_swap: bool,
    /// A group reclaims because of its limit.
    pub is_group: bool,
    /// 0 to 200.
    pub swappiness: u64,
    /// 12 to 0.
    pub priority: u32,
    /// See [`ScanControl`](super::ScanControl).
    pub file_is_tiny: bool,
    /// See [`ScanControl`](super::ScanControl).
    pub cache_trim_mode: bool,
    /// Costs so far.
    pub cost: Cost,
}

impl Situation {
    /// The balance, by the first rule that applies.
    pub fn balance(&self) -> ScanBalance {
        if !self.can_swap || (self.is_group && self.swappiness == 0) {
            ScanBalance::File
        } else if self.priority == 0 && self.swappiness != 0 {
            ScanBalance::Equal
        } else if self.file_is_tiny {
            ScanBalance::Anon
        } else if self.cache_trim_mode {
            ScanBalance::File
        } else {
            ScanBalance::Fract(ScanWeights::new(self.cost, self.swappiness))
        }
    }
}

/// Pages of a list that reclaim may scan when the group has protection: in proportion to the part of the group that is
/// not protected, and at least a batch, so that reclaim makes progress. Also returns whether memory.low made the
/// difference.
pub(crate) fn unprotected(size: u64, usage: u64, protection: Protection, low_reclaim: bool) -> (u64, bool) {
    let Protection { min, low } = protection;
    if min == 0 && low == 0 {
        return (size, false);
    }
    let skipped = !low_reclaim && low > min;
    let protected = if skipped { low } else { min };
    let usage = usage.max(protected);
    let spared = (size as u128 * protected as u128 / (usage as u128 + 1)) as u64;
    ((size - spared).max(SWAP_CLUSTER_MAX), skipped)
}

/// Pages to scan of a list of which reclaim may scan `open` pages.
pub(crate) fn scan_target(balance: ScanBalance, list: LruList, open: u64, priority: u32) -> u64 {
    let scan = open >> priority;
    match balance {
        ScanBalance::Equal => scan,
        ScanBalance::Fract(share) => share.of(scan, list.is_file()),
        ScanBalance::File if list.is_file() => scan,
        ScanBalance::Anon if !list.is_file() => scan,
        _ => 0,
    }
}

/// Pages that are left to scan of each list, in the order of [`LruList::EVICTABLE`], and the initial targets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Targets {
    left: [u64; 4],
    first: [u64; 4],
}

const ANON: usize = 0;
const FILE: usize = 2;

impl Targets {
    /// Initial targets.
    pub fn new(targets: [u64; 4]) -> Targets {
        Targets { left: targets, first: targets }
    }

    /// Whether nothing is left whose scan could free pages. (A scan of active anonymous pages alone could not.)
    pub fn is_done(&self) -> bool {
        let [inactive_anon, _, inactive_file, active_file] = self.left;
        inactive_anon == 0 && inactive_file == 0 && active_file == 0
    }

    /// Subtract the next batch of a list from its target.
    pub fn take(&mut self, list: LruList) -> u64 {
        let left = &mut self.left[list as usize];
        let batch = (*left).min(SWAP_CLUSTER_MAX);
        *left -= batch;
        batch
    }

    /// Enough was reclaimed: the type with less left to scan is done, and the other is scanned up to the same share of
    /// its target. Returns `false` if one type is used up already: then both are done.
    pub(crate) fn wind_down(&mut self) -> bool {
        let anon = self.left[ANON] + self.left[ANON + 1];
        let file = self.left[FILE] + self.left[FILE + 1];
        if anon == 0 || file == 0 {
            return false;
        }
        let (smaller, larger, left) = if file > anon { (ANON, FILE, anon) } else { (FILE, ANON, file) };
        let first = self.first[smaller] + self.first[smaller + 1] + 1;
        let percent_left = left * 100 / first;
        for list in [smaller, smaller + 1] {
            self.left[list] = 0;
        }
        for list in [larger, larger + 1] {
            let scanned = self.first[list] - self.left[list];
            let target = self.first[list] * (100 - percent_left) / 100;
            self.left[list] = target.saturating_sub(scanned);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// reclaim.md, section 6.
    #[test]
    fn inactive_ratio_grows_with_the_square_root() {
        let got = [1, 10, 100, 1024, 10240].map(|gib| inactive_ratio(gib << GIB_SHIFT));
        assert_eq!(got, [3, 10, 31, 101, 320]);
        assert_eq!(inactive_ratio((1 << GIB_SHIFT) - 1), 1);
        assert!(inactive_is_low(99, 100) && !inactive_is_low(100, 100));
    }

    /// reclaim.md, 1.19 and section 6: thousandths of the pressure that go to anonymous lists.
    #[test]
    fn scan_weights_give_the_anonymous_share() {
        let share = |anon, file, swappiness| {
            let ScanWeights { anon, file } = ScanWeights::new(Cost { anon, file }, swappiness);
            (1000 * anon + (anon + file) / 2) / (anon + file)
        };
        assert_eq!(share(0, 0, 60), 300);
        assert_eq!(share(0, 1000, 60), 461);
        assert_eq!(share(1000, 0, 60), 175);
        assert_eq!(share(1000, 1000, 60), 299);
        assert_eq!(share(0, 1000, 100), 667);
        assert_eq!(share(5, 7, 200), 1000);
    }

    #[test]
    fn balance_follows_the_first_rule_that_applies() {
        let usual = Situation {
            can_swap: true,
            is_group: false,
            swappiness: 60,
            priority: 12,
            file_is_tiny: false,
            cache_trim_mode: false,
            cost: Cost::default(),
        };
        let all = Situation { priority: 0, file_is_tiny: true, cache_trim_mode: true, ..usual };
        assert_eq!(Situation { can_swap: false, ..all }.balance(), ScanBalance::File);
        assert_eq!(Situation { is_group: true, swappiness: 0, ..all }.balance(), ScanBalance::File);
        assert_eq!(all.balance(), ScanBalance::Equal);
        assert_eq!(Situation { swappiness: 0, ..all }.balance(), ScanBalance::Anon);
        assert_eq!(Situation { priority: 1, ..all }.balance(), ScanBalance::Anon);
        assert_eq!(Situation { priority: 1, file_is_tiny: false, ..all }.balance(), ScanBalance::File);
        assert_eq!(usual.balance(), ScanBalance::Fract(ScanWeights { anon: 60, file: 140 }));
    }

    #[test]
    fn protection_scales_the_scanned_pages() {
        let low = Protection { min: 0, low: 500 };
        assert_eq!(unprotected(1000, 999, low, false), (500, true));
        assert_eq!(unprotected(1000, 999, low, true), (1000, false));
        assert_eq!(unprotected(1000, 100, Protection { min: 1000, low: 0 }, false), (32, false));
        assert_eq!(unprotected(10, 100, Protection::default(), false), (10, false));
    }

    #[test]
    fn protection_of_an_empty_group_divides_by_no_zero() {
        assert_eq!(unprotected(0, 0, Protection { min: 0, low: 5 }, true), (32, false));
    }

    #[test]
    fn wind_down_keeps_types_in_proportion() {
        // 1000 of each: after 3 batches of anon and 1 of file, file is at 4 %.
        let mut targets = Targets::new([100, 0, 1000, 0]);
        for _ in 0..2 {
            targets.take(LruList::InactiveAnon);
            targets.take(LruList::InactiveFile);
        }
        assert!(targets.wind_down());
        // 36 of 101 anon left: 35 % to go, so file stops at 65 % of 1000, of which 64 are done.
        assert_eq!(targets.left, [0, 0, 650 - 64, 0]);
        assert!(!targets.wind_down(), "only once");
    }

    proptest! {
        /// Winding down never increases a target, and ends.
        #[test]
        fn wind_down_only_shrinks_targets(first: [u16; 4], batches in prop::collection::vec(0usize..4, 0..40)) {
            let mut targets = Targets::new(first.map(u64::from));
            for list in batches {
                targets.take(LruList::EVICTABLE[list]);
            }
            let before = targets;
            if targets.wind_down() {
                prop_assert!(targets.left.iter().zip(before.left).all(|(now, then)| *now <= then));
                prop_assert!(!targets.wind_down());
            }
        }

        /// Each type is scanned unless swappiness is 0 or 200.
        #[test]
        fn each_type_gets_a_share(anon in 0u64..1 << 30, file in 0u64..1 << 30, swappiness in 1u64..200) {
            let share = ScanWeights::new(Cost { anon, file }, swappiness);
            prop_assert!(share.anon > 0 && share.file > 0);
        }
    }
}
