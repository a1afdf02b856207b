//! Slots used by each control group, and their limits (memory.swap.max).
//!
//! A slot is charged to the group of the folio that it is allocated for, and to every ancestor. It stays charged there
//! until it is free, wherever its content goes. A removed group keeps its record, without a limit, so that its
//! remaining slots still count in its ancestors. The root is not counted.

use crate::arena::Arena;
use crate::primitive::{AtomicU32, AtomicU64, Ordering::*};
use crate::units::GroupId;

const ROOT: GroupId = GroupId(0);

#[derive(Default)]
struct Counter {
    parent: AtomicU32,
    max: AtomicU64,
    usage: AtomicU64,
    /// Maximum of `usage` so far.
    peak: AtomicU64,
}

/// Counters of all groups.
#[derive(Default)]
pub struct SwapGroups {
    counters: Arena<Counter>,
}

impl SwapGroups {
    fn at(&self, group: GroupId) -> &Counter {
        self.counters.ensure(group.0 as u32)
    }

    /// The group and its ancestors, without the root.
    fn upwards(&self, group: GroupId) -> impl Iterator<Item = &Counter> {
        let not_root = |group: GroupId| (group != ROOT).then_some(group);
        core::iter::successors(not_root(group), move |&group| {
            not_root(GroupId(self.at(group).parent.load(Relaxed) as u16))
        })
        .map(|group| self.at(group))
    }

    /// Add a group below `parent` with a limit of `max` slots.
    pub fn insert(&self, group: GroupId, parent: GroupId, max: u64) {
        let counter = self.at(group);
        counter.parent.store(parent.0 as u32, Relaxed);
        counter.usage.store(0, Relaxed);
        counter.peak.store(0, Relaxed);
        counter.max.store(max, Relaxed);
    }

    /// Set the limit of the group. Slots beyond it stay charged.
    pub(crate) fn set_max(&self, group: GroupId, max: u64) {
        self.at(group).max.store(max, Relaxed);
    }

    /// The limit of the group, in slots.
    pub fn max(&self, group: GroupId) -> u64 {
        if group == ROOT { u64::MAX } else { self.at(group).max.load(Relaxed) }
    }

    /// Slots of the group and its descendants; not counted for the root.
    pub fn usage(&self, group: GroupId) -> u64 {
        self.at(group).usage.load(Relaxed)
    }

    /// Maximum of slots that the group and its descendants have had at once.
    pub fn peak(&self, group: GroupId) -> u64 {
        self.at(group).peak.load(Relaxed)
    }

    /// Slots that the group may still allocate.
    #[inline]
    pub fn room(&self, group: GroupId) -> u64 {
        let room = |counter: &Counter| counter.max.load(Relaxed).saturating_sub(counter.usage.load(Relaxed));
        self.upwards(group).map(room).min().unwrap_or(u64::MAX)
    }

    /// Charge slots to the group. Returns `false`, and charges nothing, if the group or an ancestor would exceed its
    /// limit.
    pub(super) fn try_charge(&self, group: GroupId, slots: u64) -> bool {
        for (done, counter) in self.upwards(group).enumerate() {
            let now = counter.usage.fetch_add(slots, AcqRel) + slots;
            if now > counter.max.load(Relaxed) {
                self.upwards(group).take(done + 1).for_each(|counter| counter.give_back(slots));
                return false;
            }
            counter.peak.fetch_max(now, Relaxed);
        }
        true
    }

    /// Uncharge slots that were freed or could not be allocated.
    pub(super) fn uncharge(&self, group: GroupId, slots: u64) {
        self.upwards(group).for_each(|counter| counter.give_back(slots));
    }

    /// Check that the slots charged to each group itself, as counted in `charged`, add up to the usage of the groups.
    pub(super) fn validate(&self, charged: &[u64]) -> Result<(), std_alloc::string::String> {
        let mut sums = std_alloc::vec![0; charged.len()];
        for (group, &slots) in charged.iter().enumerate() {
            let mut at = GroupId(group as u16);
            while at != ROOT {
                sums[at.index()] += slots;
                at = GroupId(self.at(at).parent.load(Relaxed) as u16);
            }
        }
        for (group, &sum) in sums.iter().enumerate() {
            let usage = self.usage(GroupId(group as u16));
            if usage != sum {
                return Err(std_alloc::format!("group {group} counts {usage} swap slots of {sum}"));
            }
        }
        Ok(())
    }
}

impl Counter {
    fn give_back(&self, slots: u64) {
        let before = self.usage.fetch_sub(slots, AcqRel);
        assert!(before >= slots, "a group's swap slots must not fall below 0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_covers_descendants_and_refused_charge_changes_nothing() {
        let groups = SwapGroups::default();
        let (top, a, b) = (GroupId(1), GroupId(2), GroupId(3));
        groups.insert(top, ROOT, 10);
        groups.insert(a, top, u64::MAX);
        groups.insert(b, top, 3);
        assert!(groups.try_charge(ROOT, 1000) && groups.try_charge(a, 8));
        assert!(!groups.try_charge(a, 3) && !groups.try_charge(b, 4));
        assert_eq!((groups.room(a), groups.room(b), groups.room(ROOT)), (2, 2, u64::MAX));
        assert_eq!([top, a, b].map(|group| groups.usage(group)), [8, 8, 0]);
        groups.validate(&[0, 0, 8, 0]).unwrap();
        assert!(groups.validate(&[0, 0, 7, 0]).is_err());
        groups.set_max(top, 5);
        assert_eq!((groups.room(b), groups.max(top)), (0, 5));
        groups.uncharge(a, 8);
        assert_eq!([top, a, b].map(|group| groups.usage(group)), [0, 0, 0]);
    }
}
