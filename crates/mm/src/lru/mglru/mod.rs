//! Multi-generational LRU: folios by the time of their last use.
//!
//! A vector has a window of up to four *generations*, which are numbered: `max_seq` is the youngest, common to both
//! types, `min_seq` the oldest of each type. A folio's flags have its generation. *Aging* makes a new youngest
//! generation after a walk of page tables, which moves used folios to the youngest one. *Eviction* takes folios from
//! the tails of the oldest generation's queues, and advances `min_seq` when they are empty. The two youngest
//! generations are never evicted from.
//!
//! **Lazy sorting.** A task that finds a folio used ([`Lru::promote`](super::Lru::promote)) changes the generation in
//! its flags, without the vector's lock. The folio stays in its queue until eviction scans it there and moves it. So a
//! folio's record has its queue in addition to its generation. The sizes of generations follow the flags: a task that
//! changes them without the lock updates the sizes later, in a batch ([`Promotions`]).
//!
//! **Tiers.** Uses through file descriptors do not change the generation; they are counted in the folio's flags, and
//! divide a generation into tiers by the logarithm of the count. A controller compares the refaults of each tier, and
//! protects the tiers that refault more than the first ([`tiers`]). It chooses between anonymous memory and files in
//! the same way.
//!
//! The first two uses set REFERENCED and WORKINGSET; from the third on, a counter of two bits counts. ACTIVE is never
//! set in a queue of a generation: outside of them it means "to the youngest generation".
//!
//! For statistics and for formulas that MGLRU shares with the classic lists, the two youngest generations count as
//! active.
//!
//! Source: mm/vmscan.c, mm/workingset.c and include/linux/mm_inline.h of Linux 6.12 (Yu Zhao).

mod evict;
pub mod form;
mod place;
mod shadow;
#[cfg(test)]
mod tests;
pub mod tiers;
mod window;

pub(crate) use evict::Evictable;
pub use evict::Wanted;
pub use place::{LookAround, Promotions};
pub(super) use place::{after_use, note_age, note_use};
pub use window::{Generations, Sizes};

use super::LruList;
use crate::frame::LruGen;
use crate::machine::ZoneKind;

/// Minimum of generations of a vector, which are never evicted from.
pub(crate) const MIN_GENERATIONS: u64 = 2;
pub(crate) const MAX_GENERATIONS: u64 = LruGen::COUNT as u64;
/// Number of pages isolated in one hold of a vector's lock, and of entries visited around a used one.
pub(crate) const BATCH: u64 = 64;
/// Number of folios scanned in one hold of a vector's lock, and of promotions that may be uncounted.
pub(crate) const LARGE_BATCH: u64 = 64 * 64;

pub(super) struct MglruPolicy;

/// Whether enough of a table's entries were young for the next walk to visit it: on average one in each cache line of 8
/// entries.
pub(crate) fn is_dense(total: u32, young: u32) -> bool {
    young * 8 >= total
}

/// Number of queues of generations in a vector: by generation, type and kind of zone.
pub(super) const QUEUES: usize = LruGen::COUNT * 2 * super::vec::ZONE_KINDS;

#[inline]
pub(super) fn queue(generation: LruGen, file: bool, kind: ZoneKind) -> u8 {
    let kinds = super::vec::ZONE_KINDS;
    (LruList::COUNT + (generation.index() * 2 + file as usize) * kinds + kind as usize) as u8
}

/// Whether it is the number of a queue of folios of the type in zones of the kind.
pub(super) fn is_queue_of(number: usize, file: bool, kind: ZoneKind) -> bool {
    (0..MAX_GENERATIONS).any(|seq| queue(LruGen::of(seq), file, kind) as usize == number)
}

#[cfg(test)]
mod density {
    use super::*;

    /// reclaim.md, section 6.
    #[test]
    fn one_young_entry_in_eight_is_dense() {
        assert_eq!([is_dense(512, 63), is_dense(512, 64), is_dense(64, 8)], [false, true, true]);
    }
}
