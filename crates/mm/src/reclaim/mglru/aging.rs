//! Aging: when a vector gets a new generation, and which spaces are visited before.
//!
//! Spaces are visited in the order of their numbers. Tasks that age a vector at the same time get different spaces. The
//! task that finds no space left begins the generation, though others may still be walking. A space that came to the
//! group since the last round is visited whole; a space that has not run since then is skipped.

use super::bloom::Filters;
use super::walk::Walk;
use crate::knobs::Knob;
use crate::lock::Lock;
use crate::lru::ROOT;
use crate::lru::mglru::{Generations, MIN_GENERATIONS};
use crate::machine::{Machine, Scope, WaitKey};
use crate::primitive::{AtomicU64, Ordering::Relaxed};
use crate::reclaim::{AddressSpaces, DEF_PRIORITY, Reclaim, ScanControl};
use crate::units::*;

/// Bits of the knob `lru_gen.enabled`.
pub mod caps {
    /// Generations.
    pub const CORE: u64 = 1;
    /// Walks of page tables.
    pub(crate) const MM_WALK: u64 = 2;
    /// Entries that lead to tables have young bits.
    pub(crate) const NONLEAF_YOUNG: u64 = 4;
}

/// What walks count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WalkStat {
    /// Entries visited.
    LeafTotal,
    LeafYoung,
    /// Tables walked.
    NonleafFound,
    /// Dense tables.
    NonleafAdded,
}

/// How long to wait for the tasks that begin a generation.
const PATIENCE: Nanos = 100_000_000;
/// Slots of [`WalkStat`]s: by the sequence number, modulo this.
const HISTORY: usize = 4;

/// The next space to visit.
#[derive(Default)]
struct AgingCursor {
    /// Its number, if it exists; else one of the following.
    next: u32,
    /// Whether a round has begun.
    begun: bool,
    /// Arrivals when this round began, and when the last one did.
    arrivals: u64,
    seen: u64,
}

/// The state of aging of a vector.
pub(in crate::reclaim) struct Aging {
    /// The last generation for which all spaces were visited.
    seq: AtomicU64,
    cursor: Lock<AgingCursor>,
    pub(super) filters: Filters,
    stats: [[AtomicU64; 4]; HISTORY],
}

impl Default for Aging {
    fn default() -> Aging {
        // One less than the first youngest generation of a vector.
        let seq = AtomicU64::new(Generations::default().max_seq() - 1);
        Aging { seq, cursor: Lock::default(), filters: Filters::default(), stats: Default::default() }
    }
}

/// The next step of a task that ages a vector.
enum AgingStep {
    /// Visit a space; all of it if it is new.
    Visit(SpaceId, bool),
    /// No space is left: begin the generation.
    Last,
    /// Other tasks have done everything.
    Done,
}

impl Aging {
    pub(super) fn count(&self, stat: WalkStat, by: u64) {
        if by > 0 {
            let slot = self.seq.load(Relaxed) + 1;
            self.stats[slot as usize % HISTORY][stat as usize].fetch_add(by, Relaxed);
        }
    }

    /// What the walks for the generation after `seq` have counted.
    pub(in crate::reclaim) fn stats(&self, seq: u64) -> [u64; 4] {
        core::array::from_fn(|stat| self.stats[seq as usize % HISTORY][stat].load(Relaxed))
    }

    /// The next step towards the generation after `seq`.
    fn next(&self, spaces: &dyn AddressSpaces, place: (NodeId, GroupId), seq: u64, force: bool) -> AgingStep {
        let mut cursor = self.cursor.lock();
        if seq <= self.seq.load(Relaxed) {
            return AgingStep::Done;
        }
        if !cursor.begun {
            cursor.begun = true;
            cursor.arrivals = spaces.arrivals();
            self.filters.reset(seq + 1);
        }
        let bound = spaces.bound();
        while cursor.next < bound {
            let space = SpaceId(cursor.next);
            cursor.next += 1;
            let Some(member) = spaces.member(space).filter(|member| member.group == place.1) else {
                continue;
            };
            let whole = force || member.arrival > cursor.seen;
            if spaces.take_ran(space, place.0) || whole {
                return AgingStep::Visit(space, whole);
            }
        }
        self.end(&mut cursor, seq);
        AgingStep::Last
    }

    /// Skip the walks of page tables for the generation after `seq`. Returns `false` if it has been made already.
    pub(super) fn pass(&self, seq: u64) -> bool {
        let mut cursor = self.cursor.lock();
        let due = self.is_due(seq);
        if due {
            self.end(&mut cursor, seq);
        }
        due
    }

    /// Whether the walks for the generation after `seq` have not all been made.
    pub(super) fn is_due(&self, seq: u64) -> bool {
        seq > self.seq.load(Relaxed)
    }

    fn end(&self, cursor: &mut AgingCursor, seq: u64) {
        *cursor = AgingCursor { seen: cursor.arrivals, arrivals: cursor.arrivals, ..AgingCursor::default() };
        self.seq.store(seq, Relaxed);
        self.stats[(seq + 1) as usize % HISTORY].iter().for_each(|stat| stat.store(0, Relaxed));
    }
}

/// Whether the vector must age before more can be evicted, and how many pages the types that may be evicted have.
/// Three generations of about a third each are best; in the form of 6.14 (`reworked`) three are too few, whatever
/// their sizes.
pub(super) fn should_age(generations: &Generations, can_swap: bool, reworked: bool) -> (bool, u64) {
    let max = generations.max_seq();
    let min = generations.oldest_seq(can_swap);
    if min + MIN_GENERATIONS > max {
        return (true, 0);
    }
    let (mut young, mut old, mut total) = (0, 0, 0);
    for file in [false, true].into_iter().filter(|&file| file || can_swap) {
        for seq in generations.min_seq(file)..=max {
            let pages = generations.pages(seq, file);
            total += pages;
            if seq == max {
                young += pages;
            } else if seq + MIN_GENERATIONS == max {
                old += pages;
            }
        }
    }
    // Four generations have enough cold folios.
    let few = min + MIN_GENERATIONS == max;
    if reworked {
        return (few, total);
    }
    (few && (young * MIN_GENERATIONS > total || old * (MIN_GENERATIONS + 2) < total), total)
}

/// The first priority when much is wanted of a node: a pass scans about as many pages as are wanted.
pub(super) fn initial_priority(reclaimable: u64, wanted: u64) -> u32 {
    let bits = |pages: u64| i64::from(u64::BITS - pages.leading_zeros());
    let priority = bits(reclaimable) - 1 - bits(wanted - 1);
    priority.clamp(i64::from(DEF_PRIORITY / 2), i64::from(DEF_PRIORITY)) as u32
}

impl<'a, M: Machine> Reclaim<'a, M> {
    /// Whether aging walks page tables. On a machine where an access to an old entry faults, clearing many young bits
    /// would cause many faults.
    pub(super) fn walks_tables(self) -> bool {
        let enabled = self.core.knobs.get(Knob::LruGenEnabled) & caps::MM_WALK != 0;
        enabled && self.core.machine.has_hw_pte_young()
    }

    /// Begin the generation after `seq` of a vector, if it has not begun yet: first visit the spaces of its group that
    /// other tasks have not visited, with `force` all of their tables. Returns whether this call began the generation.
    pub(in crate::reclaim) fn age(
        self,
        node: NodeId,
        group: GroupId,
        seq: u64,
        can_swap: bool,
        force: bool,
    ) -> bool {
        let _scope = self.core.scope(Scope::AgeVec);
        let (lru, aging) = (&self.core.lru, self.state.aging(node, group));
        let last = if self.walks_tables() {
            self.walk_spaces(node, group, seq, can_swap, force)
        } else {
            aging.pass(seq)
        };
        let begun = last && lru.begin_generation(self.core, node, group, seq, can_swap);
        if begun {
            self.core.machine.wake(WaitKey::Generation(node));
        }
        begun
    }

    /// Wait for other tasks to begin the generation after `seq`, but not forever. A task that continued instead would
    /// find nothing to evict, again and again, and would take memory for exhausted while it is being aged. (Linux 6.1
    /// waited, 6.12 continues.)
    pub(super) fn await_generation(self, node: NodeId, group: GroupId, seq: u64) -> bool {
        let (machine, generations) = (&self.core.machine, &self.core.lru.vec(node, group).generations);
        let deadline = machine.now() + PATIENCE;
        while generations.max_seq() == seq && machine.now() < deadline {
            let ticket = machine.ticket(WaitKey::Generation(node));
            if generations.max_seq() == seq {
                machine.wait(ticket, Some(deadline));
            }
        }
        generations.max_seq() != seq
    }

    /// Visit all tables of a group's spaces for a vector, without a new generation: young folios go to the youngest
    /// generation, and are reported for promotion. (With a new generation for each call, all folios that are not used
    /// all the time would soon be in the oldest generation, in no order.)
    pub(in crate::reclaim) fn look_for_young(self, node: NodeId, group: GroupId) {
        if !self.walks_tables() {
            return;
        }
        let _scope = self.core.scope(Scope::AgeVec);
        let seq = self.core.lru.vec(node, group).generations.max_seq();
        let mut walk = self.walk(node, group, seq, true, true);
        for space in (0..self.spaces.bound()).map(SpaceId) {
            if self.spaces.member(space).is_some_and(|member| member.group == group) {
                walk.space(space);
            }
        }
    }

    fn walk_spaces(self, node: NodeId, group: GroupId, seq: u64, can_swap: bool, force: bool) -> bool {
        let mut walk = self.walk(node, group, seq, can_swap, force);
        loop {
            match walk.aging.next(self.spaces, (node, group), seq, force) {
                AgingStep::Visit(space, whole) => {
                    walk.force = whole;
                    walk.space(space);
                }
                AgingStep::Last => return true,
                AgingStep::Done => return false,
            }
        }
    }

    fn walk(self, node: NodeId, group: GroupId, seq: u64, can_swap: bool, force: bool) -> Walk<'a, M> {
        let nonleaf = self.core.machine.has_hw_nonleaf_young()
            && self.core.knobs.get(Knob::LruGenEnabled) & caps::NONLEAF_YOUNG != 0;
        let bloom = self.core.knobs.get(Knob::LruGenBloom) != 0;
        let aging = self.state.aging(node, group);
        let promotions = self.core.lru.promotions(self.core, node, group);
        let tells = self.tells_of_young(node);
        Walk { cx: self, aging, node, group, seq, can_swap, force, bloom, nonleaf, promotions, tells }
    }

    /// Set the first priority of kswapd and of direct reclaim on a node.
    pub(super) fn set_initial_priority(self, node: NodeId, sc: &mut ScanControl) {
        if sc.priority != DEF_PRIORITY || sc.nr_to_reclaim < crate::lru::mglru::BATCH {
            return;
        }
        let vec = self.core.lru.node_vec(node);
        let mut reclaimable = vec.pages(crate::lru::LruList::InactiveFile);
        if self.can_swap(node, ROOT) {
            reclaimable += vec.pages(crate::lru::LruList::InactiveAnon);
        }
        sc.priority = initial_priority(reclaimable, sc.nr_to_reclaim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// reclaim.md, section 6.
    #[test]
    fn initial_priority_depends_on_wanted_pages() {
        let first = [64, 4096, 32768, 262_144].map(|wanted| initial_priority(1 << 22, wanted));
        assert_eq!(first, [12, 10, 7, 6]);
    }
}
