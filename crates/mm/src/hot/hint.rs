//! Hint faults: a page that is used soon after its entry was marked is hot.
//!
//! When an entry of a page of a slower tier is marked, the time is recorded by frame; the fault that follows tells how
//! long the page went unused. If that is less than a threshold, the page is hot. The threshold is adjusted so that
//! about as many pages are hot as may be promoted in that time. While the fast node has ample room, every used page is
//! promoted.
//!
//! For pages of top tiers the last user is recorded instead: its CPU's node and its task. A page that faults twice in
//! a row on CPUs of one node, or from one task, is moved to that node.
//!
//! Source: kernel/sched/fair.c of Linux 6.12 (`should_numa_migrate_memory`).

use super::{HotAccess, HotLimits, HotPolicy, PromoteVerdict};
use crate::arena::Arena;
use crate::primitive::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::units::*;
use std_alloc::boxed::Box;

/// Milliseconds in the window of the rate limit: one second.
const WINDOW_MS: u64 = 1000;
/// Steps of the threshold from zero to twice its reference.
const STEPS: u64 = 16;
/// No user of the page is known.
const UNKNOWN: u32 = 0;

/// How the user of a page compares with the previous one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct User {
    /// The same task, or no previous user is known.
    pub private: bool,
    /// The page is to move to the node of its user.
    pub moves: bool,
}

/// State of promotions to a node.
#[derive(Default)]
struct PromotionLimit {
    /// Number of hot enough pages so far.
    candidates: AtomicU64,
    /// The threshold, in ms; 0: the value of the knob.
    threshold: AtomicU64,
    /// Start of the rate limit's window, and the candidates at that time.
    window: [AtomicU64; 2],
    /// Start of the threshold's period, and the candidates at that time.
    adjusted: [AtomicU64; 2],
}

/// State of all marked pages, and of all promotions.
pub struct Hints {
    nodes: Box<[PromotionLimit]>,
    /// By frame: when it was marked (ms), or its last user. Allocated on demand.
    marks: Arena<AtomicU32>,
}

impl Hints {
    pub(super) fn new(nodes: usize) -> Hints {
        Hints { nodes: (0..nodes).map(|_| PromotionLimit::default()).collect(), marks: Arena::default() }
    }

    /// Time since a page was last marked, in ms; marks the page again with the time of this use.
    fn latency(&self, page: Pfn, now_ms: u64) -> u64 {
        let marked = self.marks.ensure(page.0).swap(now_ms as u32, Relaxed);
        u64::from((now_ms as u32).wrapping_sub(marked))
    }

    /// Record that `task` used a page of a top tier on a CPU of `node`.
    pub(crate) fn note_user(&self, page: Pfn, node: NodeId, task: u32) -> User {
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
    /// Restart a period if `after` ms have passed. Returns the candidates of the period that ended.
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

    /// Adjust the threshold so that there are about as many candidates as may be promoted.
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

    /// Count candidates. Returns whether they may be promoted in this second.
    fn allows(&self, pages: u64, now_ms: u64, pages_per_second: u64) -> bool {
        let candidates = self.candidates.fetch_add(pages, Relaxed) + pages;
        self.restart(&self.window, now_ms, WINDOW_MS);
        since(candidates, self.window[1].load(Relaxed)) < pages_per_second
    }
}

/// Candidates since a period that began with `begun_with`: 0 if another CPU has restarted the period since
/// `candidates` was counted.
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
    fn page_used_soon_after_its_mark_is_hot() {
        let hot = hot();
        hot.marked(PAGE, 5000);
        assert!(used(&hot, 5999));
        hot.marked(PAGE, 7000);
        assert!(!used(&hot, 8000), "a delay equal to the threshold is too long");
        assert_eq!(hot.nodes[0].candidates.load(Relaxed), 1);
    }

    #[test]
    fn every_used_page_is_promoted_with_ample_room() {
        let hot = hot();
        hot.marked(PAGE, 5000);
        let verdict = judged(&hot, 50_000, true);
        assert_eq!(verdict, PromoteVerdict { promote: true, candidate: false });
    }

    #[test]
    fn promotions_per_second_are_limited() {
        let hot = hot();
        let promoted = |from: u64| {
            (0..300)
                .filter(|_| {
                    hot.marked(PAGE, from);
                    used(&hot, from + 1)
                })
                .count()
        };
        // The candidate that opens the window does not count in it; the one that reaches the limit is refused.
        assert_eq!(promoted(10_000), 100);
        assert_eq!(promoted(10_500), 0);
        assert_eq!(promoted(12_000), 100);
    }

    /// Between a CPU's count and its look at the window other CPUs count, too, and restart the window.
    #[test]
    fn window_may_restart_after_the_count() {
        let hot = hot();
        let node = &hot.nodes[0];
        let begun_by_another = node.candidates.load(Relaxed) + 50;
        for begun in [&node.window, &node.adjusted] {
            begun[0].store(10_000, Relaxed);
            begun[1].store(begun_by_another, Relaxed);
        }
        assert!(node.allows(1, 10_001, 10), "the window has no candidates");
        assert_eq!(node.restart(&node.adjusted, 20_000, 100), Some(0));
    }

    #[test]
    fn threshold_follows_the_limit() {
        let hot = hot();
        let threshold = || hot.nodes[0].threshold.load(Relaxed);
        let minute = |n: u64, candidates: u64| {
            hot.nodes[0].candidates.fetch_add(candidates, Relaxed);
            hot.nodes[0].adjust(n * 60_001, LIMITS);
            threshold()
        };
        // 6,000 per minute are allowed; a step is 125 ms.
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
    fn top_tier_pages_move_to_a_node_or_task_that_uses_them_twice() {
        let hot = hot();
        let used = |node, task| {
            let User { private, moves } = hot.note_user(PAGE, NodeId(node), task);
            [private, moves]
        };
        assert_eq!(used(1, 7), [true, true], "there is no previous user");
        assert_eq!(used(0, 8), [false, false]);
        assert_eq!(used(0, 9), [false, true], "used twice from one node");
        assert_eq!(used(1, 9), [true, true], "used twice by one task");
    }
}
