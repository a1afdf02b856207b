//! The changes of MGLRU in Linux 6.14 (`lru_gen.form`): how uses are counted, and where a folio goes.
//!
//! In 6.12 a use through a page table moves a folio to the youngest generation at once, without memory of earlier uses,
//! and a refault is recognised only while the generation that the folio was evicted from is the oldest. In 6.14
//!
//! - the first use that is found only marks a folio (REFERENCED); from the second on it goes to the youngest generation
//!   and belongs to the working set (WORKINGSET), until it is evicted or given up; a fault alone moves it to the second
//!   youngest generation;
//! - uses through file descriptors set REFERENCED, then count, then set WORKINGSET, which is the last tier;
//! - these marks determine a folio's *distance* from eviction, 0 to 3, and so its generation;
//! - a refault is recognised while the folio would still have a generation in a full window, and restores its marks;
//! - a vector ages as soon as it has three generations, whatever their sizes;
//! - eviction does not isolate a folio that must be written first, but moves it to the second oldest generation.
//!
//! 7.2 isolates it again, as 6.12 does, and has another loop of reclaim ([`has_budget`]).
//!
//! Source: "mm/mglru: rework workingset protection" and "rework refault detection" of the series "mm/mglru: performance
//! optimizations" v3 (Yu Zhao, December 2024), which Linux 6.14 has, and "mm/mglru: improve reclaim loop and dirty
//! folio handling" (Kairui Song, 2026). The changes of the controller in 6.13 and 6.14 are not implemented.

use super::{MAX_GENERATIONS, MIN_GENERATIONS};
use crate::frame::FrameFlags;
use crate::knobs::{Knobs, LruGenForm};
use crate::lru::policy::End;

/// Number of tiers of a generation.
pub const TIERS: usize = 4;

/// The marks of uses that are cleared when a folio changes generations.
pub const MARKS: FrameFlags = FrameFlags::USES.union(FrameFlags::REFERENCED);

/// Whether it is the form of 6.14 or a later one.
#[inline]
pub(crate) fn is_reworked(knobs: &Knobs) -> bool {
    matches!(knobs.lru_gen_form(), LruGenForm::V614 | LruGenForm::V72)
}

/// Whether a pass has a budget, as in 7.2: see the front end's `evict`.
#[inline]
pub(crate) fn has_budget(knobs: &Knobs) -> bool {
    knobs.lru_gen_form() == LruGenForm::V72
}

/// Whether refaults are counted only while the generation that the folio was evicted from is the oldest, as in 6.1.
pub(super) fn counts_only_oldest(knobs: &Knobs) -> bool {
    knobs.lru_gen_form() == LruGenForm::V61
}

/// The flags after one more use through a file descriptor; `None`: they cannot count more uses.
pub(super) fn after_use(flags: FrameFlags) -> Option<FrameFlags> {
    let after = if !flags.contains(FrameFlags::REFERENCED) {
        (flags - FrameFlags::USES) | FrameFlags::REFERENCED
    } else if flags.uses() == FrameFlags::MAX_USES {
        flags | FrameFlags::WORKINGSET
    } else {
        flags.with_one_more_use()
    };
    Some(after).filter(|&after| after != flags)
}

/// The flags after a use was found in a page table, and whether it was not the first: then the folio goes to the
/// youngest generation.
pub(crate) fn after_look(flags: FrameFlags) -> (FrameFlags, bool) {
    if flags.intersects(FrameFlags::REFERENCED | FrameFlags::WORKINGSET) {
        ((flags - MARKS) | FrameFlags::WORKINGSET, true)
    } else {
        ((flags - MARKS) | FrameFlags::REFERENCED, false)
    }
}

/// The number of uses that are counted, at most 4.
pub(super) fn uses(flags: FrameFlags) -> u32 {
    if flags.contains(FrameFlags::REFERENCED) { flags.uses() + 1 } else { 0 }
}

/// The tier for a number of uses.
pub(super) fn tier(uses: u32, workingset: bool) -> usize {
    if workingset { TIERS - 1 } else { uses.max(1).next_power_of_two().trailing_zeros() as usize }
}

/// Whether the number of uses has reached the maximum that can be counted.
pub(super) fn is_full(flags: FrameFlags) -> bool {
    uses(flags) == FrameFlags::MAX_USES + 1 && flags.contains(FrameFlags::WORKINGSET)
}

/// Whether a folio cannot be evicted now: it has no swap slot yet, or reclaim waits for its write.
#[inline]
pub(super) fn must_wait(flags: FrameFlags) -> bool {
    let busy = flags.intersects(FrameFlags::DIRTY | FrameFlags::WRITEBACK);
    let anon = flags.contains(FrameFlags::SWAPBACKED);
    anon && !flags.contains(FrameFlags::SWAPCACHE) || flags.contains(FrameFlags::RECLAIM) && busy
}

/// The distance of a folio from eviction: 3 in the youngest generation, 0 in the oldest.
pub fn distance(flags: FrameFlags) -> u64 {
    let workingset = flags.contains(FrameFlags::WORKINGSET);
    if flags.contains(FrameFlags::ACTIVE) {
        MIN_GENERATIONS + u64::from(workingset)
    } else if workingset || must_wait(flags) {
        MIN_GENERATIONS - 1
    } else {
        0
    }
}

/// The sequence number that a folio with these flags gets.
pub(super) fn arrival([min, max]: [u64; 2], flags: FrameFlags, wanted: End) -> u64 {
    let distance = if wanted == End::Tail { 0 } else { distance(flags) };
    if distance < MIN_GENERATIONS { min + distance } else { max + distance + 1 - MAX_GENERATIONS }
}

/// Whether a refault of a folio that was evicted while `evicted` was the oldest generation is recognised.
pub(super) fn is_recent(evicted: u64, max_seq: u64, mask: u64) -> bool {
    (max_seq & mask).abs_diff(evicted) < MAX_GENERATIONS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std_alloc::vec::Vec;

    /// reclaim.md, 1.16: REFERENCED, then the counter, and WORKINGSET means the last tier.
    #[test]
    fn uses_determine_tiers_up_to_the_working_set() {
        let mut flags = FrameFlags::empty();
        let mut tiers = Vec::new();
        for _ in 0..7 {
            tiers.push(tier(uses(flags), flags.contains(FrameFlags::WORKINGSET)));
            flags = after_use(flags).unwrap_or(flags);
        }
        assert_eq!(tiers, [0, 0, 1, 2, 2, 3, 3]);
        assert!(is_full(flags) && after_use(flags).is_none());
        // The counter of a folio that was marked by a look means nothing.
        let counted = FrameFlags::empty().with_one_more_use();
        assert_eq!((uses(counted), after_use(counted)), (0, Some(FrameFlags::REFERENCED)));
    }

    #[test]
    fn second_look_promotes() {
        let (once, promoted) = after_look(FrameFlags::DIRTY);
        assert_eq!((once, promoted), (FrameFlags::DIRTY | FrameFlags::REFERENCED, false));
        let (twice, promoted) = after_look(once);
        assert_eq!((twice, promoted), (FrameFlags::DIRTY | FrameFlags::WORKINGSET, true));
        assert_eq!(after_look(twice), (twice, true));
    }

    /// reclaim.md, 1.16: active folios of the working set go to the youngest generation, active ones to the next; the
    /// working set, anonymous memory and folios whose write reclaim waits for go to the second oldest, the rest to the
    /// oldest.
    #[test]
    fn marks_determine_the_distance_from_eviction() {
        let [active, workingset] = [FrameFlags::ACTIVE, FrameFlags::WORKINGSET];
        let anon = FrameFlags::SWAPBACKED;
        let waits = FrameFlags::RECLAIM | FrameFlags::WRITEBACK;
        let none = FrameFlags::empty();
        for (flags, seq) in [
            (active | workingset, 13),
            (active | anon, 12),
            (workingset, 11),
            (anon, 11),
            (waits, 11),
            (FrameFlags::WRITEBACK, 10),
            (anon | FrameFlags::SWAPCACHE, 10),
            (FrameFlags::REFERENCED, 10),
            (none, 10),
        ] {
            assert_eq!(arrival([10, 13], flags, End::Head), seq, "{flags:?}");
            assert_eq!(arrival([10, 13], flags, End::Tail), 10, "{flags:?}, written");
        }
    }

    #[test]
    fn refaults_within_a_full_window_are_recognised() {
        let known = [10, 11, 13, 14].map(|max| is_recent(10, max, u64::MAX));
        assert_eq!(known, [true, true, true, false]);
    }
}
