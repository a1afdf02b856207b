//! Faults: what is used soon after its entry was marked is hot.
//!
//! When an entry of a page of a slower tier is marked, the time is noted with its frame; the fault that follows tells
//! how long the page went unused. If that is less than a threshold, the page is hot. The threshold is adjusted, so that
//! about as many pages are found hot as may be promoted in the time; while the fast node has ample room, whatever is
//! used is promoted.
//!
//! For pages of top tiers who used them last is noted instead: which CPU, and which task. What two faults in a row by
//! CPUs of one node, or two by one task, have used is moved there.
//!
//! Source: kernel/sched/fair.c of Linux 6.12 (`should_numa_migrate_memory`).

use super::{HotAccess, HotLimits, HotPolicy, PromoteVerdict};
use crate::arena::Arena;
use crate::primitive::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::units::*;
use std_alloc::boxed::Box;

/// A second and a minute have so many milliseconds; the rate limit holds for a second.
const WINDOW_MS: u64 = 1000;
/// Steps in which the threshold goes from nothing to twice its reference.
const STEPS: u64 = 16;
/// Nobody has used the page yet, or nobody knows.
const UNKNOWN: u32 = 0;

/// What who uses a page, and who did before, says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct User {
    /// The same task, or nobody yet.
    pub private: bool,
    /// It is to be where it is used.
    pub moves: bool,
}

/// What is known of promotions to a node.
#[derive(Default)]
struct PromotionLimit {
    /// Pages that were hot enough, so far.
    candidates: AtomicU64,
    /// The threshold, in ms; 0: as the knob says.
    threshold: AtomicU64,
    /// When the window of the rate limit began, and how many candidates there were.
    window: [AtomicU64; 2],
    /// The same for the threshold.
    adjusted: [AtomicU64; 2],
}

/// What is known of all pages that were marked, and of all promotions.
pub struct Hints {
    nodes: Box<[PromotionLimit]>,
    /// By frame, when it was marked (ms) or who used it last; made as far as any was marked.
    marks: Arena<AtomicU32>,
}

impl Hints {
    /// For `nodes` nodes.
    pub(super) fn new(nodes: usize) -> Hints {
        Hints { nodes: (0..nodes).map(|_| PromotionLimit::default()).collect(), marks: Arena::default() }
    }

    /// How long ago a page was marked last, in ms; it is marked anew with the time of this use.
    fn latency(&self, page: Pfn, now_ms: u64) -> u64 {
        let marked = self.marks.ensure(page.0).swap(now_ms as u32, Relaxed);
        u64::from((now_ms as u32).wrapping_sub(marked))
    }

    /// A page of a top tier was used by `task` on a CPU of `node`.
    pub fn note_user(&self, page: Pfn, node: NodeId, task: u32) -> User {
        let user = 1 + u32::from(node.0) + (task << 8);
        let last = self.marks.ensure(page.0).swap(user, Relaxed);
        let private = last == UNKNOWN || last >> 8 == task;
        User { private, moves: private || (last - 1) as u8 == node.0 }
    }
}

impl HotPolicy for Hints {
    fn wants_faults(&self) -> bool {
        true
    }

    fn marked(&self, page: Pfn, now_ms: u64) {
        self.marks.ensure(page.0).store(now_ms as u32, Relaxed);
    }

    fn used(&self, used: &HotAccess) -> PromoteVerdict {
        let HotAccess { page, pages, now_ms, limits, .. } = *used;
        let node = &self.nodes[used.to.index()];
        if used.ample {
            node.threshold.store(0, Relaxed);
            return PromoteVerdict { promote: true, candidate: false };
        }
        node.adjust(now_ms, limits);
        let candidate = self.latency(page, now_ms) < node.threshold(limits);
        let promote = candidate && node.allows(pages, now_ms, limits.pages_per_second);
        PromoteVerdict { promote, candidate }
    }
}

impl PromotionLimit {
    /// Begin again, if `after` ms have passed. Returns what has come since it began.
    fn restart(&self, at: &[AtomicU64; 2], now_ms: u64, after: u64) -> Option<u64> {
        let start = at[0].load(Relaxed);
        if now_ms.saturating_sub(start) <= after
            || at[0].compare_exchange(start, now_ms, Relaxed, Relaxed).is_err()
        {
            return None;
        }
        let candidates = self.candidates.load(Relaxed);
        Some(since(candidates, at[1].swap(candidates, Relaxed)))
    }

    fn threshold(&self, limits: HotLimits) -> u64 {
        match self.threshold.load(Relaxed) {
            0 => limits.threshold_ms,
            adjusted => adjusted,
        }
    }

    /// Have about as many candidates as may be promoted.
    fn adjust(&self, now_ms: u64, limits: HotLimits) {
        let Some(found) = self.restart(&self.adjusted, now_ms, limits.adjust_ms) else { return };
        let wanted = limits.pages_per_second * limits.adjust_ms / WINDOW_MS;
        let (reference, unit) = (limits.threshold_ms, (limits.threshold_ms * 2 / STEPS).max(1));
        let threshold = self.threshold(limits);
        let threshold = if found > wanted * 11 / 10 {
            threshold.saturating_sub(unit).max(unit)
        } else if found < wanted * 9 / 10 {
            (threshold + unit).min(2 * reference)
        } else {
            threshold
        };
        self.threshold.store(threshold, Relaxed);
    }

    /// Count candidates; may they be promoted in this second?
    fn allows(&self, pages: u64, now_ms: u64, pages_per_second: u64) -> bool {
        let candidates = self.candidates.fetch_add(pages, Relaxed) + pages;
        self.restart(&self.window, now_ms, WINDOW_MS);
        since(candidates, self.window[1].load(Relaxed)) < pages_per_second
    }
}

/// What has come since a time began with so many candidates: none, if another CPU has begun it anew since they were
/// counted here.
fn since(candidates: u64, begun_with: u64) -> u64 {
    candidates.saturating_sub(begun_with)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Pfn = Pfn(3);
    const TO: NodeId = NodeId(0);
    const LIMITS: HotLimits = HotLimits { threshold_ms: 1000, pages_per_second: 100, adjust_ms: 60_000 };

    fn hot() -> Hints {
        Hints::new(2)
    }

    fn judged(hot: &Hints, now_ms: u64, ample: bool) -> PromoteVerdict {
        hot.used(&HotAccess { page: PAGE, name: None, pages: 1, to: TO, ample, now_ms, limits: LIMITS })
    }

    fn used(hot: &Hints, now_ms: u64) -> bool {
        judged(hot, now_ms, false).promote
    }

    #[test]
    fn what_is_used_soon_after_its_mark_is_hot() {
        let hot = hot();
        hot.marked(PAGE, 5000);
        assert!(used(&hot, 5999));
        hot.marked(PAGE, 7000);
        assert!(!used(&hot, 8000), "as long as the threshold is too long");
        assert_eq!(hot.nodes[0].candidates.load(Relaxed), 1);
    }

    #[test]
    fn with_ample_room_whatever_is_used_is_promoted() {
        let hot = hot();
        hot.marked(PAGE, 5000);
        let verdict = judged(&hot, 50_000, true);
        assert_eq!(verdict, PromoteVerdict { promote: true, candidate: false });
    }

    #[test]
    fn no_more_than_the_limit_in_a_second() {
        let hot = hot();
        let promoted = |from: u64| {
            (0..300)
                .filter(|_| {
                    hot.marked(PAGE, from);
                    used(&hot, from + 1)
                })
                .count()
        };
        // The candidate that opens the window is not counted in it; the one that reaches the limit is refused.
        assert_eq!(promoted(10_000), 100);
        assert_eq!(promoted(10_500), 0);
        assert_eq!(promoted(12_000), 100);
    }

    /// Between a CPU's count and its look at the window others count, too, and begin the window anew.
    #[test]
    fn a_window_may_begin_after_the_count() {
        let hot = hot();
        let node = &hot.nodes[0];
        let begun_by_another = node.candidates.load(Relaxed) + 50;
        for begun in [&node.window, &node.adjusted] {
            begun[0].store(10_000, Relaxed);
            begun[1].store(begun_by_another, Relaxed);
        }
        assert!(node.allows(1, 10_001, 10), "of a window without candidates");
        assert_eq!(node.restart(&node.adjusted, 20_000, 100), Some(0));
    }

    #[test]
    fn the_threshold_follows_the_limit() {
        let hot = hot();
        let threshold = || hot.nodes[0].threshold.load(Relaxed);
        let minute = |n: u64, candidates: u64| {
            hot.nodes[0].candidates.fetch_add(candidates, Relaxed);
            hot.nodes[0].adjust(n * 60_001, LIMITS);
            threshold()
        };
        // 6,000 in a minute are allowed; a step is 125 ms.
        assert_eq!(minute(1, 6_601), 875);
        assert_eq!(minute(2, 6_600), 875);
        assert_eq!(minute(3, 5_399), 1000);
        let mut n = 3;
        let mut many = |candidates, times| {
            for _ in 0..times {
                n += 1;
                minute(n, candidates);
            }
            threshold()
        };
        assert_eq!(many(0, 20), 2000);
        assert_eq!(many(10_000, 40), 125);
    }

    #[test]
    fn pages_of_top_tiers_go_to_who_uses_them_twice() {
        let hot = hot();
        let used = |node, task| {
            let User { private, moves } = hot.note_user(PAGE, NodeId(node), task);
            [private, moves]
        };
        assert_eq!(used(1, 7), [true, true], "nobody has used it before");
        assert_eq!(used(0, 8), [false, false]);
        assert_eq!(used(0, 9), [false, true], "twice from one node");
        assert_eq!(used(1, 9), [true, true], "twice by one task");
    }
}
