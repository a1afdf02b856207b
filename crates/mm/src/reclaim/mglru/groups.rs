//! The order in which reclaim of a node visits groups.
//!
//! Each node has groups in two generations, old and young, each in bins. Reclaim visits old groups, bin by bin from a
//! random bin, and moves each group by the result: a group that was short of cold folios becomes young; one that is too
//! small or below memory.low goes to a tail first, and becomes young the second time. When no group is old, the young
//! ones become old. So all groups give memory, one after the other, and a reclaim of few pages need not visit all.
//!
//! The numbers of generations are modulo three, so that a task that has read the old number cannot take the newest for
//! it.
//!
//! Source: the comment at `MEMCG_NR_GENS` in include/linux/mmzone.h of Linux 6.12 (Yu Zhao).

use crate::lock::Lock;
use crate::lru::Groups;
use crate::units::*;
use std_alloc::collections::VecDeque;
use std_alloc::vec::Vec;

/// Number of generation numbers, of which two are in use.
const GENERATIONS: u64 = 3;
/// Bins of a generation.
const BINS: usize = 8;

/// Where a group goes after its visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::reclaim) enum Turn {
    /// It keeps its position.
    Stay,
    /// To the tail of an old bin: it gets one more visit.
    Tail,
    /// To the tail of a young bin.
    Young,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct GroupPosition {
    seq: u64,
    bin: usize,
    at_tail: bool,
}

#[derive(Default)]
struct Order {
    /// The old generation; the young one is the next.
    seq: u64,
    bins: [[VecDeque<GroupId>; BINS]; GENERATIONS as usize],
    /// By group; groups that are unknown or removed have no position.
    spots: Vec<Option<GroupPosition>>,
    random: u64,
}

/// The groups of a node, in order.
#[derive(Default)]
pub(in crate::reclaim) struct GroupOrder {
    order: Lock<Order>,
}

impl Order {
    /// A random bin. The sequence has a fixed seed, so that a run can be repeated.
    fn random_bin(&mut self) -> usize {
        self.random = self.random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.random >> 33) as usize % BINS
    }

    fn bin(&mut self, seq: u64, bin: usize) -> &mut VecDeque<GroupId> {
        &mut self.bins[(seq % GENERATIONS) as usize][bin]
    }

    /// Add new groups to the tail of a random old bin, and drop removed ones.
    fn follow(&mut self, groups: &Groups) {
        self.spots.resize(groups.bound() as usize, None);
        for number in 0..self.spots.len() {
            let group = GroupId(number as u16);
            match (groups.is_live(group), self.spots[number]) {
                (true, None) => self.put(group, self.seq, false),
                (false, Some(_)) => self.take(group),
                _ => {}
            }
        }
    }

    fn put(&mut self, group: GroupId, seq: u64, at_tail: bool) {
        let bin = self.random_bin();
        self.bin(seq, bin).push_back(group);
        self.spots[group.index()] = Some(GroupPosition { seq, bin, at_tail });
    }

    fn take(&mut self, group: GroupId) {
        if let Some(GroupPosition { seq, bin, .. }) = self.spots[group.index()].take() {
            self.bin(seq, bin).retain(|&other| other != group);
        }
    }

    fn rotate(&mut self, group: GroupId, turn: Turn) {
        let Some(Some(spot)) = self.spots.get(group.index()).copied() else { return };
        let (seq, at_tail) = match turn {
            Turn::Stay => return,
            Turn::Tail => (spot.seq, true),
            Turn::Young => (self.seq + 1, false),
        };
        self.take(group);
        self.put(group, seq, at_tail);
        let old = (self.seq % GENERATIONS) as usize;
        if self.bins[old].iter().all(VecDeque::is_empty) {
            self.seq += 1;
        }
    }
}

impl GroupOrder {
    /// Whether the last visit moved the group to the tail of its generation.
    pub(crate) fn is_at_tail(&self, group: GroupId) -> bool {
        let order = self.order.lock();
        order.spots.get(group.index()).copied().flatten().is_some_and(|spot| spot.at_tail)
    }

    /// Move a group after a visit outside of a pass.
    pub(crate) fn rotate(&self, group: GroupId, turn: Turn) {
        self.order.lock().rotate(group, turn);
    }

    /// Visit the old groups, one after the other. `visit` returns where the group goes, and whether to stop.
    pub fn pass(&self, groups: &Groups, mut visit: impl FnMut(&GroupOrder, GroupId) -> (Turn, bool)) {
        let (seq, first) = {
            let mut order = self.order.lock();
            order.follow(groups);
            (order.seq, order.random_bin())
        };
        for bin in (0..BINS).map(|i| (first + i) % BINS) {
            let mut at = 0;
            loop {
                let Some(group) = self.order.lock().bin(seq, bin).get(at).copied() else { break };
                let (turn, enough) = visit(self, group);
                let mut order = self.order.lock();
                order.rotate(group, turn);
                if enough {
                    return;
                }
                // Step over it if it is still here. Other tasks may have moved groups: then some are visited twice, or
                // not in this pass.
                if order.bin(seq, bin).get(at) == Some(&group) {
                    at += 1;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::GroupLimits;
    use crate::lru::ROOT;

    fn groups(count: usize) -> Groups {
        let groups = Groups::new(1);
        for _ in 1..count {
            groups.add(ROOT, GroupLimits::default());
        }
        groups
    }

    #[test]
    fn groups_are_visited_in_rounds() {
        let (groups, order) = (groups(20), GroupOrder::default());
        let mut visits = std_alloc::vec![0; 20];
        for round in 1..=5 {
            // Each visit is enough: a pass visits one group.
            for _ in 0..20 {
                order.pass(&groups, |_, group| {
                    visits[group.index()] += 1;
                    (Turn::Young, true)
                });
            }
            assert!(visits.iter().all(|&count| count == round), "{visits:?}");
        }
    }

    #[test]
    fn small_group_gets_one_more_visit() {
        let (groups, order) = (groups(3), GroupOrder::default());
        let mut visits = std_alloc::vec![0; 3];
        for _ in 0..2 {
            order.pass(&groups, |order, group| {
                visits[group.index()] += 1;
                (if order.is_at_tail(group) { Turn::Young } else { Turn::Tail }, false)
            });
        }
        assert!(visits.iter().all(|count| (2..=4).contains(count)), "{visits:?}");
    }
}
