//! Multi-generational LRU: folios by the time of their last use.
//!
//! A vector has a window of up to four *generations*, numbered by sequence: `max_seq` is the youngest, shared by both
//! types, `min_seq` the oldest of each type. A folio belongs to the generation in its flags. *Aging* makes a new
//! youngest generation after it has looked at page tables: what was used goes there. *Eviction* takes folios of the
//! oldest generation from its queues' tails and moves `min_seq` on when they are empty. The youngest two generations
//! are never evicted from.
//!
//! **Lazy sorting.** Who sees that a folio was used ([`Lru::promote`](super::Lru::promote)) changes the generation in
//! its flags, without the vector's lock; the folio stays in the queue in which it was linked until eviction meets it
//! there and moves it. So a folio's record names its queue besides its generation. The sizes of generations follow the
//! flags: who changes them tells the sizes, in a batch ([`Promotions`]) if it holds no lock.
//!
//! **Tiers.** Uses through file descriptors leave the generation as it is; they are counted in the folio's flags, and
//! divide a generation into tiers by the logarithm of the count. A controller compares how many evicted pages of each
//! tier came back, and spares those tiers that refault more than the first ([`tiers`]). It chooses between anonymous
//! memory and files in the same way.
//!
//! Two uses set REFERENCED and WORKINGSET; from the third on, a counter of two bits counts. ACTIVE is never set on a
//! queue of a generation: outside of them it means "to the youngest".
//!
//! For people and for formulas that MGLRU shares with the classic lists, the two youngest generations count as active.
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

pub use evict::{Evictable, Wanted};
pub use place::{LookAround, Promotions};
pub(super) use place::{after_use, note_age, note_use};
pub use window::{Generations, Sizes};

use super::LruList;
use crate::frame::LruGen;
use crate::machine::ZoneKind;

/// Fewest generations of a vector: those are never evicted from.
pub const MIN_GENERATIONS: u64 = 2;
/// Most generations of a vector.
pub const MAX_GENERATIONS: u64 = LruGen::COUNT as u64;
/// Pages isolated in one hold of a vector's lock, and entries looked at around a used one.
pub const BATCH: u64 = 64;
/// Folios looked at in one hold of a vector's lock, and promotions that may wait to be counted.
pub const LARGE_BATCH: u64 = 64 * 64;

/// Generations.
pub(super) struct MglruPolicy;

/// Were so many of a table's entries young that it is worth the next walk? At least one in each line of the CPU's
/// cache, of 8 entries.
pub fn is_dense(total: u32, young: u32) -> bool {
    young * 8 >= total
}

/// Queues of generations in a vector: by generation, type and kind of zone.
pub(super) const QUEUES: usize = LruGen::COUNT * 2 * super::vec::ZONE_KINDS;

/// The queue of a generation's folios.
#[inline]
pub(super) fn queue(generation: LruGen, file: bool, kind: ZoneKind) -> u8 {
    let kinds = super::vec::ZONE_KINDS;
    (LruList::COUNT + (generation.index() * 2 + file as usize) * kinds + kind as usize) as u8
}

/// Is it the number of a queue of folios of the type, in zones of the kind?
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
