//! S3-FIFO: a small queue for new folios, a main queue for folios that were used in it, and a memory of what left the
//! small queue.
//!
//! The small queue takes a tenth of memory. A folio that was used more than once there goes to the main queue; the
//! others are evicted. A folio that returns soon goes to the main queue at once. There, used folios go around again,
//! each time with one use less.
//!
//! Source: Yang, Zhang, Qiu, Yue, Rashmi: FIFO Queues are All You Need for Cache Eviction, SOSP 2023, section 4 and
//! algorithm 1. The framework's memory of evictions is the ghost queue: it holds what left the small queue fewer
//! evictions ago than the main queue has pages. Each round sees at most one use of a mapped folio, and the first is
//! the use that brought it in.

use super::{FIRST, InsertReason, Judgement, Past, Replace, Spot, View, added_to_two, hits, list_of_two};

const SMALL: usize = 0;
const MAIN: usize = 1;
/// The folio belongs to the main queue. The low bits of the mark count uses.
const IN_MAIN: u8 = 0x80;
const MOST_USES: u32 = 3;
/// The small queue gets one page in this many.
const SHARE: u64 = 10;

pub(super) struct S3Fifo;

impl Replace for S3Fifo {
    fn lists(&self) -> usize {
        2
    }

    fn added(&mut self, folio: View<'_>, why: InsertReason) -> Spot {
        added_to_two(folio, why, IN_MAIN)
    }

    fn returned(&mut self, folio: View<'_>, past: Past) {
        if past.left == IN_MAIN && past.distance <= past.resident - past.resident / SHARE {
            folio.set_mark(IN_MAIN);
        }
    }

    fn next(&mut self, sizes: &[u64]) -> Spot {
        let is_full = sizes[SMALL] * SHARE >= sizes[SMALL] + sizes[MAIN];
        Spot::tail(if is_full && sizes[SMALL] > 0 || sizes[MAIN] == 0 { SMALL } else { MAIN })
    }

    fn judge(&mut self, folio: View<'_>) -> Judgement {
        let is_main = list_of_two(folio, IN_MAIN) == MAIN;
        let before = u32::from(folio.mark() & !(IN_MAIN | FIRST));
        let uses = (before + hits(folio)).min(MOST_USES);
        if is_main && uses > 0 {
            folio.set_mark(IN_MAIN | (uses - 1) as u8);
        } else if !is_main && uses > 1 {
            folio.set_mark(IN_MAIN);
        } else {
            return Judgement::Evict;
        }
        Judgement::Move(Spot::head(MAIN))
    }

    /// Only what leaves the small queue is remembered: on its return it goes to the main queue.
    fn evicted(&mut self, folio: View<'_>) -> u8 {
        if list_of_two(folio, IN_MAIN) == SMALL { IN_MAIN } else { 0 }
    }
}
