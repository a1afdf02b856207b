//! The window of generations: its sizes, and how it moves.

use super::place::{USE_FLAGS, is_file};
use super::tiers::{Standing, TierCounts};
use super::{LARGE_BATCH, MAX_GENERATIONS, MIN_GENERATIONS, form, queue};
use crate::frame::{Frame, LruGen};
use crate::lru::policy::End;
use crate::lru::vec::{ByKind, LruLists, ZONE_KINDS};
use crate::lru::{Lru, LruList, LruVec};
use crate::machine::{Machine, ZoneKind};
use crate::platform::Platform;
use crate::primitive::{AtomicBool, AtomicI64, AtomicU64, Ordering::*};
use crate::units::*;

/// The generations of a vector. They change under the vector's lock, except the counters of tiers; they are read
/// without it.
pub struct Generations {
    on: AtomicBool,
    max_seq: AtomicU64,
    /// Anonymous, file.
    min_seq: [AtomicU64; 2],
    born: [AtomicU64; LruGen::COUNT],
    /// Pages by generation, type and kind of zone. While promotions are uncounted, one size may be too large and
    /// another too small by the same number, even below 0.
    pages: [[[AtomicI64; ZONE_KINDS]; 2]; LruGen::COUNT],
    /// Uses, refaults and evictions by tier.
    pub tiers: TierCounts,
}

/// A vector begins with four empty generations.
impl Default for Generations {
    fn default() -> Generations {
        Generations {
            on: AtomicBool::new(false),
            max_seq: AtomicU64::new(MAX_GENERATIONS - 1),
            min_seq: Default::default(),
            born: Default::default(),
            pages: Default::default(),
            tiers: TierCounts::default(),
        }
    }
}

/// Sizes of a generation, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sizes {
    /// Anonymous memory.
    pub anon: u64,
    /// Files.
    pub file: u64,
}

impl Generations {
    /// Whether the vector's policy uses them.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    pub(in crate::lru) fn set_on(&self, on: bool) {
        self.on.store(on, Release);
    }

    /// The youngest generation.
    #[inline]
    pub(crate) fn max_seq(&self) -> u64 {
        self.max_seq.load(Acquire)
    }

    /// The oldest generation of a type.
    #[inline]
    pub(crate) fn min_seq(&self, file: bool) -> u64 {
        self.min_seq[file as usize].load(Acquire)
    }

    /// The oldest generation of the types that can be evicted: if memory can be swapped (`can_swap`), of both.
    #[inline]
    pub(crate) fn oldest_seq(&self, can_swap: bool) -> u64 {
        let file = self.min_seq(true);
        if can_swap { file.min(self.min_seq(false)) } else { file }
    }

    /// Number of generations of a type.
    #[inline]
    pub fn count(&self, file: bool) -> u64 {
        self.max_seq() - self.min_seq(file) + 1
    }

    /// The oldest generation of a type, as a slot.
    pub fn oldest(&self, file: bool) -> LruGen {
        LruGen::of(self.min_seq(file))
    }

    /// When the generation of `seq` began.
    pub(crate) fn born(&self, seq: u64) -> Nanos {
        self.born[LruGen::of(seq).index()].load(Relaxed)
    }

    /// Whether it counts as active: it is one of the two youngest.
    #[inline]
    pub(crate) fn is_active(&self, generation: LruGen) -> bool {
        let max = self.max_seq();
        generation == LruGen::of(max) || generation == LruGen::of(max - 1)
    }

    /// The list that its folios count on.
    #[inline]
    pub fn list(&self, generation: LruGen, file: bool) -> LruList {
        LruList::new(file, self.is_active(generation))
    }

    #[inline]
    fn cell(&self, generation: LruGen, file: bool, kind: usize) -> &AtomicI64 {
        &self.pages[generation.index()][file as usize][kind]
    }

    /// Change the pages of a generation. The vector's lock is held.
    #[inline]
    pub(in crate::lru) fn add(&self, generation: LruGen, file: bool, kind: ZoneKind, pages: i64) {
        self.cell(generation, file, kind as usize).fetch_add(pages, Relaxed);
    }

    pub(super) fn add_all(&self, generation: LruGen, file: bool, pages: &ByKind) {
        for (kind, &pages) in pages.iter().enumerate() {
            self.cell(generation, file, kind).fetch_add(pages, Relaxed);
        }
    }

    /// Pages of a generation by kind of zone.
    pub fn by_kind(&self, generation: LruGen, file: bool) -> ByKind {
        core::array::from_fn(|kind| self.cell(generation, file, kind).load(Relaxed))
    }

    /// Pages of a generation.
    pub fn pages(&self, seq: u64, file: bool) -> u64 {
        self.by_kind(LruGen::of(seq), file).iter().map(|&pages| pages.max(0) as u64).sum()
    }

    /// Sizes of the generation of `seq`; outside the window of a type they are 0.
    pub fn sizes(&self, seq: u64) -> Sizes {
        let of = |file| if seq >= self.min_seq(file) { self.pages(seq, file) } else { 0 };
        Sizes { anon: of(false), file: of(true) }
    }

    /// Whether each type has two to four generations.
    pub fn is_valid(&self) -> bool {
        [false, true].iter().all(|&file| (MIN_GENERATIONS..=MAX_GENERATIONS).contains(&self.count(file)))
    }

    /// Advance the window past the oldest generation of a type; its tiers' counts go into the averages.
    fn drop_oldest(&self, file: bool, min_seq: u64) {
        self.tiers.carry_over(file, self.oldest(file));
        self.min_seq[file as usize].store(min_seq, Release);
    }
}

impl Lru {
    /// Change the generation of a folio in the oldest generation's queue to the next one, unless it was promoted in the
    /// meantime. Returns its generation. The caller moves it to the queue of this generation.
    pub(super) fn next_generation<M: Machine>(
        &self,
        platform: &Platform<M>,
        (vec, lists): (&LruVec, &mut LruLists),
        frame: &Frame,
        oldest: LruGen,
    ) -> LruGen {
        let generations = &vec.generations;
        let next = LruGen::of(oldest.index() as u64 + 1);
        let ended = if form::is_reworked(&platform.knobs) { form::MARKS } else { USE_FLAGS };
        let before = frame.update(|flags| {
            (flags.generation() == Some(oldest)).then(|| (flags - ended).with_generation(Some(next)))
        });
        if before.generation() != Some(oldest) {
            return before.generation().expect("the generation of a folio in a queue of generations");
        }
        let (file, kind, pages) = (is_file(before), self.kind(frame.zone()), frame.pages() as i64);
        generations.add(oldest, file, kind, -pages);
        generations.add(next, file, kind, pages);
        let (from, to) = (generations.list(oldest, file), generations.list(next, file));
        if from != to {
            let mut by = [0; ZONE_KINDS];
            by[kind as usize] = pages;
            let place = (frame.node(), frame.group());
            self.account(platform, lists, place, to, &by);
            self.account(platform, lists, place, from, &by.map(|pages| -pages));
        }
        next
    }

    /// Begin a new youngest generation after `seq`, if `seq` is still the youngest. The folios of a fourth generation
    /// join the third; anonymous memory that cannot be swapped (`can_swap` is false) stays in its queues and gets
    /// younger.
    pub(crate) fn begin_generation<M: Machine>(
        &self,
        platform: &Platform<M>,
        node: NodeId,
        group: GroupId,
        seq: u64,
        can_swap: bool,
    ) -> bool {
        let vec = self.vec(node, group);
        let generations = &vec.generations;
        'again: loop {
            let mut lists = vec.lock();
            debug_assert!(generations.is_valid());
            if seq != generations.max_seq() {
                return false;
            }
            for file in [true, false] {
                if generations.count(file) < MAX_GENERATIONS {
                    continue;
                }
                if (file || can_swap) && !self.empty_oldest(platform, vec, &mut lists, file) {
                    drop(lists);
                    platform.machine.resched();
                    continue 'again;
                }
                generations.drop_oldest(file, generations.min_seq(file) + 1);
            }
            self.shift_active(platform, (node, group), vec, &mut lists);
            let next = LruGen::of(seq + 1);
            for file in [false, true] {
                generations.tiers.clear(file, next);
            }
            generations.born[next.index()].store(platform.machine.now(), Relaxed);
            generations.max_seq.store(seq + 1, Release);
            return true;
        }
    }

    /// Move folios of the oldest generation of a type to the next. Returns `false` if there were too many and some are
    /// left.
    fn empty_oldest<M: Machine>(
        &self,
        platform: &Platform<M>,
        vec: &LruVec,
        lists: &mut LruLists,
        file: bool,
    ) -> bool {
        let oldest = vec.generations.oldest(file);
        let counts = form::is_reworked(&platform.knobs);
        let mut left = LARGE_BATCH;
        for kind in ZoneKind::ALL {
            let from = queue(oldest, file, kind);
            while let Some(pfn) = lists.lists[from as usize].pop_tail(&platform.frames) {
                let frame = &platform.frames[pfn];
                let standing = counts.then(|| Standing::of(platform, frame.flags()));
                let generation = self.next_generation(platform, (vec, lists), frame, oldest);
                if let Some(standing) = standing.filter(|standing| !standing.full) {
                    vec.generations.tiers.protected(file, oldest, standing.tier, frame.pages() as u64);
                }
                self.requeue(platform, lists, (pfn, kind), generation, End::Tail);
                left -= 1;
                if left == 0 {
                    return false;
                }
            }
        }
        true
    }

    /// The window is about to move: count the second youngest generation as inactive. The slot of the new one may hold
    /// anonymous memory that cannot be swapped, which counts as active from then on.
    fn shift_active<M: Machine>(
        &self,
        platform: &Platform<M>,
        place: (NodeId, GroupId),
        vec: &LruVec,
        lists: &mut LruLists,
    ) {
        let generations = &vec.generations;
        let max = generations.max_seq();
        let (ages, next) = (LruGen::of(max - 1), LruGen::of(max + 1));
        for file in [false, true] {
            let (out, into) = (generations.by_kind(ages, file), generations.by_kind(next, file));
            let by: ByKind = core::array::from_fn(|kind| out[kind] - into[kind]);
            if by != [0; ZONE_KINDS] {
                self.account(platform, lists, place, LruList::new(file, false), &by);
                self.account(platform, lists, place, LruList::new(file, true), &by.map(|pages| -pages));
            }
        }
    }

    /// Advance the window past empty oldest generations, keeping two. If memory can be swapped, neither type gets ahead
    /// of the other by this; in the form of 6.14 (`reworked`) by one generation at most. The vector is locked. Returns
    /// whether the window moved.
    pub(super) fn leave_empty(&self, vec: &LruVec, lists: &LruLists, can_swap: bool, reworked: bool) -> bool {
        let generations = &vec.generations;
        debug_assert!(generations.is_valid());
        let first = |file: bool| {
            let is_empty = |seq: &u64| {
                let generation = LruGen::of(*seq);
                ZoneKind::ALL
                    .iter()
                    .all(|&kind| lists.lists[queue(generation, file, kind) as usize].is_empty())
            };
            let last = generations.max_seq() + 1 - MIN_GENERATIONS;
            let mut seq = generations.min_seq(file);
            while seq < last && is_empty(&seq) {
                seq += 1;
            }
            // It passes an empty third generation, but never the last two.
            seq
        };
        let mut min = [if can_swap { first(false) } else { generations.min_seq(false) }, first(true)];
        if can_swap && reworked {
            min = held_together(min, generations.max_seq() - MIN_GENERATIONS);
        } else if can_swap {
            // Files may be ahead already, of memory that could not be swapped.
            min = [min[0].min(min[1]); 2];
        }
        let mut moved = false;
        for file in [false, true] {
            if min[file as usize] > generations.min_seq(file) {
                generations.drop_oldest(file, min[file as usize]);
                moved = true;
            }
        }
        moved
    }
}

/// The oldest generations of both types where one has two generations and the other four: the former keeps its third,
/// `seq`.
fn held_together(min: [u64; 2], seq: u64) -> [u64; 2] {
    let other_is_behind = |file: usize| min[1 - file] < seq;
    [0, 1].map(|file| if min[file] > seq && other_is_behind(file) { seq } else { min[file] })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux 6.14's try_to_inc_min_seq.
    #[test]
    fn windows_of_both_types_move_apart_by_one_generation() {
        for (min, held) in [
            ([12, 10], [11, 10]),
            ([10, 12], [10, 11]),
            ([12, 11], [12, 11]),
            ([11, 10], [11, 10]),
            ([12, 12], [12, 12]),
        ] {
            assert_eq!(held_together(min, 11), held, "{min:?}");
        }
    }
}
