//! How much may be paged out, and when: the quota of a window of time, and the watermarks of free memory.
//!
//! Source of the rules: `damos_adjust_quota`, `damos_wmark_wait_us` in mm/damon/core.c, `damon_cold_score` in
//! mm/damon/ops-common.c of Linux 6.12.

use super::regions::Region;
use crate::units::{MILLISECOND, Nanos, PAGE_SIZE};

/// What is paged out each millisecond until it was measured, in bytes.
const GUESS: u64 = 1024 * PAGE_SIZE;
/// The largest score: of the coldest region.
const MOST: u64 = 99;
/// Powers of two of seconds that scores tell apart.
const LEVELS: u64 = 32;

/// Limits of a window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QuotaLimits {
    /// Milliseconds of paging out; 0: no limit.
    pub(super) ms: u64,
    /// Bytes; 0: no limit.
    pub(super) bytes: u64,
    /// Milliseconds of the window.
    pub(super) window: u64,
}

/// What was paged out in this window and before.
#[derive(Default)]
pub(super) struct Quota {
    /// Bytes that this window may try; `None`: no limit.
    allowed: Option<u64>,
    /// Bytes that it has tried.
    charged: u64,
    began: Option<Nanos>,
    /// Bytes that windows before have tried, and nanoseconds that trying took.
    total: (u64, Nanos),
    /// Where the next window goes on, in pages; 0: at the beginning.
    pub(super) resume: u64,
    /// The least score of a region that is paged out.
    least_score: u64,
}

/// How cold a region that was not used for this many seconds is: 0 to [`MOST`].
fn score(seconds: u64) -> u64 {
    let level = u64::from(u64::BITS - seconds.leading_zeros()).min(LEVELS);
    let hot = (LEVELS - level) * 100 / LEVELS / 2;
    MOST - hot * MOST / 100
}

impl Quota {
    /// Schemes are about to be applied: begin a new window if the last one is over, and find the least score with which
    /// the regions of this window use it up. `cold` are the regions that may be paged out, `seconds` is an aggregation
    /// interval in nanoseconds. Returns whether a window has ended that had used its quota up.
    pub(super) fn begin<'r>(
        &mut self,
        now: Nanos,
        limits: QuotaLimits,
        cold: impl Iterator<Item = &'r Region>,
        interval: Nanos,
    ) -> bool {
        let began = *self.began.get_or_insert(now);
        let mut used_up = false;
        if self.allowed.is_none() || now >= began + limits.window * MILLISECOND {
            used_up = self.is_used_up();
            self.total.0 += self.charged;
            (self.began, self.charged) = (Some(now), 0);
            self.allowed = self.allowed_by(limits);
        }
        let mut bytes = [0; MOST as usize + 1];
        for region in cold {
            bytes[score(region.age * interval / 1_000_000_000) as usize] += region.pages() * PAGE_SIZE;
        }
        self.least_score = 0;
        if let Some(allowed) = self.allowed {
            let mut sum = 0;
            let enough = bytes.iter().enumerate().rev().find(|&(_, bytes)| {
                sum += bytes;
                sum >= allowed
            });
            self.least_score = enough.map_or(0, |(score, _)| score as u64);
        }
        used_up
    }

    fn allowed_by(&self, limits: QuotaLimits) -> Option<u64> {
        let (bytes, nanos) = self.total;
        let rate = bytes.saturating_mul(MILLISECOND).checked_div(nanos).unwrap_or(GUESS);
        let by_time = (limits.ms > 0).then(|| rate.saturating_mul(limits.ms).max(PAGE_SIZE));
        let by_size = (limits.bytes > 0).then_some(limits.bytes);
        by_time.into_iter().chain(by_size).min()
    }

    /// Whether this window may try no more.
    pub(super) fn is_used_up(&self) -> bool {
        self.allowed.is_some_and(|allowed| self.charged >= allowed)
    }

    /// Whether a region that was not used for this many nanoseconds is cold enough for this window.
    pub(super) fn wants(&self, unused: Nanos) -> bool {
        score(unused / 1_000_000_000) >= self.least_score
    }

    /// Pages of a region with this many that this window may still try.
    pub(super) fn left(&self, pages: u64) -> u64 {
        self.allowed.map_or(pages, |allowed| pages.min(allowed.saturating_sub(self.charged) / PAGE_SIZE))
    }

    /// A region up to the page `end` was tried.
    pub(super) fn charge(&mut self, pages: u64, nanos: Nanos, end: u64) {
        self.charged += pages * PAGE_SIZE;
        self.total.1 += nanos;
        if self.is_used_up() {
            self.resume = end;
        }
    }
}

/// Free memory at which paging out begins and ends, in thousandths of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FreeMarks {
    /// Above it nothing is paged out.
    pub(super) high: u64,
    /// Below it paging out begins.
    pub(super) mid: u64,
    /// Below it nothing is paged out: reclaim has better means.
    pub(super) low: u64,
}

impl FreeMarks {
    /// Whether to page out with this much free, if that was done until now or not.
    pub(super) fn allow(self, free: u64, active: bool) -> bool {
        free <= self.high && free >= self.low && (active || free < self.mid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damon::regions::Regions;

    #[test]
    fn watermarks_keep_what_is_done_between_the_middle_and_the_high_one() {
        let marks = FreeMarks { high: 500, mid: 400, low: 200 };
        let allowed =
            [600, 500, 450, 399, 200, 199].map(|free| [false, true].map(|active| marks.allow(free, active)));
        let (never, stays, always) = ([false, false], [false, true], [true, true]);
        assert_eq!(allowed, [never, stays, stays, always, always, never]);
    }

    #[test]
    fn a_window_tries_what_its_time_and_size_allow() {
        let limits = QuotaLimits { ms: 10, bytes: 0, window: 1000 };
        let mut quota = Quota::default();
        let regions = Regions::new(1 << 20);
        let begin = |quota: &mut Quota, now| quota.begin(now, limits, regions.all().iter(), 0);
        assert!(!begin(&mut quota, 0));
        assert_eq!(quota.left(1 << 20), 10 * 1024, "a guess, before anything was measured");
        // 4 MiB in 2 ms: 20 MiB in 10 ms, from the next window on.
        quota.charge(1024, 2 * MILLISECOND, 1024);
        assert_eq!((quota.left(1 << 20), quota.resume), (9 * 1024, 0));
        assert!(!begin(&mut quota, 1000 * MILLISECOND));
        assert_eq!(quota.left(1 << 20), 5 * 1024);
        quota.charge(5 * 1024, 10 * MILLISECOND, 7000);
        assert!(quota.is_used_up() && quota.resume == 7000 && quota.left(9) == 0);
        assert!(!begin(&mut quota, 1999 * MILLISECOND), "the window is not over");
        assert!(begin(&mut quota, 2000 * MILLISECOND) && !quota.is_used_up());
        let mut quota = Quota::default();
        quota.begin(0, QuotaLimits { bytes: 8 * PAGE_SIZE, ..limits }, [].iter(), 0);
        assert_eq!(quota.left(100), 8);
        let mut quota = Quota::default();
        quota.begin(0, QuotaLimits { ms: 0, ..limits }, [].iter(), 0);
        assert_eq!(quota.left(1 << 30), 1 << 30);
    }

    #[test]
    fn the_coldest_regions_come_first_if_not_all_fit() {
        let mut regions = Regions::new(100);
        regions.cut(0, 50);
        regions.get(0).unwrap().age = 1000;
        let mut quota = Quota::default();
        let limits = QuotaLimits { ms: 0, bytes: 50 * PAGE_SIZE, window: 1000 };
        quota.begin(0, limits, regions.all().iter(), 1_000_000_000);
        assert!(quota.wants(1000 * 1_000_000_000) && !quota.wants(0));
        assert_eq!([0, 1, 2, 3, u64::MAX].map(score), [50, 52, 54, 54, 99]);
    }
}
