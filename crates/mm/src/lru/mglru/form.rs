//! The changes of MGLRU in Linux 6.14 (`lru_gen.form`): how uses are counted, and where a folio goes.
//!
//! In 6.12 a use through a page table moves a folio to the youngest generation at once, without memory of earlier uses,
//! and a refault is recognised only while the generation that the folio was evicted from is the oldest. In 6.14
//!
//! - the first use that is found only marks a folio (REFERENCED); from the second on it goes to the youngest generation
//!   and belongs to the working set (WORKINGSET), until it is evicted or given up; a fault alone moves it to the second
//!   youngest generation;
//! - uses through file descriptors set REFERENCED, then count, then set WORKINGSET, which is the last tier;
//! - these marks determine a folio's distance from the youngest generation, 0 to 3, if the window has that many;
//! - a refault is recognised while the folio would still have a generation in a full window, and restores its marks;
//! - a vector ages as soon as it has three generations, whatever their sizes;
//! - eviction does not isolate a folio that must be written first, but moves it to the second oldest generation;
//! - the windows of anonymous memory and of files move apart by a generation at most, either one ahead, and eviction
//!   takes the type whose tiers together refault less.
//!
//! 7.2 isolates folios that must be written again, as 6.12 does, and has another loop of reclaim ([`has_budget`]). What
//! eviction finds used is only counted once more the second time, and is of the working set from the third on; a fault
//! marks a folio as used, unless it was of the working set: so folios of files that were used begin in the second
//! oldest generation ([`counts_marks`]). In 7.3 the first use of program text is enough ([`keeps_text`]).
//!
//! Source: "mm/mglru: rework workingset protection" and "rework refault detection" of the series "mm/mglru: performance
//! optimizations" v3 (Yu Zhao, December 2024), which Linux 6.14 has, "mm/mglru: improve reclaim loop and dirty folio
//! handling" (Kairui Song, 2026), and the sources of Linux 7.2.13 and 7.3.4 (mm/vmscan.c, mm/swap.c,
//! include/linux/mm_inline.h).

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
    matches!(knobs.lru_gen_form(), LruGenForm::V614 | LruGenForm::V72 | LruGenForm::V73)
}

/// Whether a pass has a budget, as in 7.2: see the front end's `evict`.
#[inline]
pub(crate) fn has_budget(knobs: &Knobs) -> bool {
    matches!(knobs.lru_gen_form(), LruGenForm::V72 | LruGenForm::V73)
}

/// Whether eviction and faults count uses one by one, as in 7.2, and a mark alone keeps a folio from the oldest
/// generation.
#[inline]
pub(crate) fn counts_marks(knobs: &Knobs) -> bool {
    has_budget(knobs)
}

/// Whether the first use of program text makes it one of the working set, as in 7.3.
pub(super) fn keeps_text(knobs: &Knobs) -> bool {
    knobs.lru_gen_form() == LruGenForm::V73
}

/// Whether refaults are counted only while the generation that the folio was evicted from is the oldest, as in 6.1.
pub(super) fn counts_only_oldest(knobs: &Knobs) -> bool {
    knobs.lru_gen_form() == LruGenForm::V61
}

/// The gains of the first tier and of the others, when tiers of a type are compared.
pub(super) fn gains(reworked: bool) -> [u64; 2] {
    if reworked { [2, 3] } else { [1, 2] }
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

/// The flags after a use was found in a page table, and whether the folio goes to the youngest generation: that use was
/// not the first, or is enough (`kept`).
pub(super) fn after_look(flags: FrameFlags, kept: bool) -> (FrameFlags, bool) {
    if kept || flags.intersects(FrameFlags::REFERENCED | FrameFlags::WORKINGSET) {
        ((flags - MARKS) | FrameFlags::WORKINGSET, true)
    } else {
        ((flags - MARKS) | FrameFlags::REFERENCED, false)
    }
}

/// The same where eviction finds the use: in 7.2 (`counts`) the second use counts like one through a file descriptor,
/// and the third makes the folio one of the working set.
pub(super) fn after_eviction_look(flags: FrameFlags, counts: bool, kept: bool) -> (FrameFlags, bool) {
    let used = flags.intersects(FrameFlags::REFERENCED | FrameFlags::WORKINGSET);
    if counts && used && uses(flags) <= 1 {
        (after_use(flags).unwrap_or(flags), true)
    } else {
        after_look(flags, kept)
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

/// The sequence number that a folio with these flags gets. `counts_marks`: see there.
pub(super) fn arrival([min, max]: [u64; 2], flags: FrameFlags, wanted: End, counts_marks: bool) -> u64 {
    let workingset = flags.contains(FrameFlags::WORKINGSET);
    let distance = if flags.contains(FrameFlags::ACTIVE) {
        MIN_GENERATIONS - 1 - u64::from(workingset)
    } else if wanted == End::Tail {
        MAX_GENERATIONS - 1
    } else if must_wait(flags) {
        MIN_GENERATIONS - 1
    } else {
        let used = workingset || counts_marks && flags.contains(FrameFlags::REFERENCED);
        MAX_GENERATIONS - 1 - u64::from(used)
    };
    max.saturating_sub(distance).max(min)
}

/// The flags of an isolated folio that was not freed and would go to the oldest generation again: it goes to the second
/// youngest. `None`: it goes elsewhere by its marks. `window`: the oldest and the youngest generation of its type.
pub(crate) fn kept(window: [u64; 2], flags: FrameFlags, counts_marks: bool) -> Option<FrameFlags> {
    let goes_back = arrival(window, flags, End::Head, counts_marks) == window[0];
    goes_back.then_some((flags - MARKS) | FrameFlags::ACTIVE)
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
        let (once, promoted) = after_look(FrameFlags::DIRTY, false);
        assert_eq!((once, promoted), (FrameFlags::DIRTY | FrameFlags::REFERENCED, false));
        let (twice, promoted) = after_look(once, false);
        assert_eq!((twice, promoted), (FrameFlags::DIRTY | FrameFlags::WORKINGSET, true));
        assert_eq!(after_look(twice, false), (twice, true));
    }

    /// Active folios of the working set go to the youngest generation; active ones, anonymous memory without a swap
    /// slot and folios whose write reclaim waits for to the next; the working set to the third youngest, others to the
    /// oldest. In 7.2 a mark is enough for the third youngest.
    #[test]
    fn marks_determine_the_distance_from_the_youngest() {
        let [active, workingset] = [FrameFlags::ACTIVE, FrameFlags::WORKINGSET];
        let anon = FrameFlags::SWAPBACKED;
        let waits = FrameFlags::RECLAIM | FrameFlags::WRITEBACK;
        let none = FrameFlags::empty();
        let of = |flags, end| [false, true].map(|counts| arrival([10, 13], flags, end, counts));
        for (flags, seq) in [
            (active | workingset, [13; 2]),
            (active | anon, [12; 2]),
            (anon, [12; 2]),
            (waits, [12; 2]),
            (workingset, [11; 2]),
            (FrameFlags::WRITEBACK, [10; 2]),
            (anon | FrameFlags::SWAPCACHE, [10; 2]),
            (FrameFlags::REFERENCED, [10, 11]),
            (none, [10; 2]),
        ] {
            assert_eq!(of(flags, End::Head), seq, "{flags:?}");
            let written = if flags.contains(active) { seq } else { [10; 2] };
            assert_eq!(of(flags, End::Tail), written, "{flags:?}, written");
        }
        // A window of two has only two places.
        assert_eq!(arrival([12, 13], workingset, End::Head, true), 12);
    }

    /// Linux 7.2's lru_gen_set_refs.
    #[test]
    fn eviction_counts_the_second_use_and_the_third_makes_the_working_set() {
        let (mut flags, mut promoted) = (FrameFlags::empty(), Vec::new());
        for _ in 0..4 {
            let (after, goes) = after_eviction_look(flags, true, false);
            promoted.push((goes, uses(after), after.contains(FrameFlags::WORKINGSET)));
            flags = after;
        }
        assert_eq!(promoted, [(false, 1, false), (true, 2, false), (true, 0, true), (true, 1, true)]);
        let referenced = FrameFlags::REFERENCED;
        assert_eq!(after_eviction_look(referenced, false, false), after_look(referenced, false));
        // Program text in 7.3.
        let text = after_eviction_look(FrameFlags::empty(), true, true);
        assert_eq!((text, after_look(FrameFlags::empty(), true)), ((FrameFlags::WORKINGSET, true), text));
    }

    #[test]
    fn refaults_within_a_full_window_are_recognised() {
        let known = [10, 11, 13, 14].map(|max| is_recent(10, max, u64::MAX));
        assert_eq!(known, [true, true, true, false]);
    }
}
