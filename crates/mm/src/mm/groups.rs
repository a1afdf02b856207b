//! Control groups: creation, limits, removal and membership.
//!
//! As in cgroup v2: memory that a process has charged stays charged where it was when the process moves; a removed
//! group passes its pages to its parent; a group with processes or groups in it cannot be removed.

use super::Mm;
use super::oom::Unmet;
use crate::api::{Error, GroupLimits, ZswapLimits};
use crate::knobs::Knob;
use crate::lru::{LruList, PolicyKind, ROOT};
use crate::machine::Machine;
use crate::reclaim::{self, MAX_RECLAIM_RETRIES, Retries};
use crate::stat::GroupStat;
use crate::units::*;
use smallvec::SmallVec;

/// The state of a control group, as in its files; sizes in pages unless they say otherwise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupAccount {
    /// The parent; `None` for the root.
    pub parent: Option<GroupId>,
    /// Whether it still exists.
    pub live: bool,
    /// memory.current and memory.peak.
    pub usage: [u64; 2],
    /// memory.swap.current and memory.swap.peak.
    pub swap: [u64; 2],
    /// memory.zswap.current, in bytes, and how many pages these are.
    pub zswap: [u64; 2],
    /// Pages on its lists and on those of the groups below, in the order of [`LruList`].
    pub lists: [u64; LruList::COUNT],
    counts: [u64; GroupStat::COUNT],
}

impl GroupAccount {
    /// A counter of memory.stat or memory.events.
    pub fn counted(&self, stat: GroupStat) -> u64 {
        self.counts[stat as usize]
    }
}

impl<M: Machine> Mm<M> {
    /// The state of a group. A removed group keeps its last counts.
    pub fn group_account(&self, group: GroupId) -> Option<GroupAccount> {
        let (lru, swap) = (&self.core.lru, &self.core.swap.groups);
        if u32::from(group.0) >= lru.groups.bound() {
            return None;
        }
        let on = |list| (0..lru.nodes()).map(|node| lru.vec(NodeId(node as u8), group).pages(list)).sum();
        Some(GroupAccount {
            parent: lru.groups.parent(group),
            live: lru.groups.is_live(group),
            usage: [lru.groups.usage(group), lru.groups.peak(group)],
            swap: [swap.usage(group), swap.peak(group)],
            zswap: lru.groups.zswap_usage(group),
            lists: LruList::ALL.map(on),
            counts: core::array::from_fn(|i| lru.groups.counted(group, GroupStat::ALL[i])),
        })
    }

    /// Create a control group below `parent` (GroupId(0) is the root group).
    pub fn create_group(&self, parent: GroupId, limits: GroupLimits) -> Result<GroupId, Error> {
        self.core.lru.create_group(parent, limits, |group| {
            self.core.swap.groups.insert(group, parent, limits.swap_max);
        })
    }

    /// The limits of a group.
    pub fn group_limits(&self, group: GroupId) -> Result<GroupLimits, Error> {
        let limits = self.core.lru.group_limits(group)?;
        Ok(GroupLimits { swap_max: self.core.swap.groups.max(group), ..limits })
    }

    /// Change the limits of a group other than the root. Memory above the new limits is reclaimed: above memory.max
    /// until nothing is left to reclaim, and then by killing its processes; above memory.high once.
    pub fn set_group_limits(&self, group: GroupId, limits: GroupLimits) -> Result<(), Error> {
        self.core.lru.groups.set_limits(group, limits)?;
        self.core.swap.groups.set_max(group, limits.swap_max);
        let groups = &self.core.lru.groups;
        if groups.usage(group) > limits.high.min(limits.max) {
            groups.drain_stocks(&self.core, group);
        }
        if let Some((over, pages)) = groups.over_high(group) {
            reclaim::group(&self.core, &self.reclaim, self, over, pages);
        }
        let mut retries = Retries::default();
        loop {
            let over = self.core.lru.groups.usage(group).saturating_sub(limits.max);
            if over == 0 || !self.core.lru.groups.is_live(group) {
                return Ok(());
            }
            let freed = reclaim::group(&self.core, &self.reclaim, self, group, over);
            let unmet = Unmet::by_kernel("the limit of a control group was lowered");
            if !reclaim::should_retry_group(&self.core, freed, &mut retries)
                && !self.out_of_memory(&unmet, Some(group), &mut retries)
            {
                return Ok(());
            }
        }
    }

    /// Reclaim pages from a group other than the root and from those below it, as a write to its `memory.reclaim` does.
    /// Returns how many were reclaimed: fewer if no more can be.
    pub fn reclaim_group(&self, group: GroupId, pages: u64) -> Result<u64, Error> {
        self.core.lru.groups.check_own(group)?;
        let (mut reclaimed, mut retries) = (0, MAX_RECLAIM_RETRIES);
        while reclaimed < pages && !self.machine().stopping() {
            // Ever smaller parts: reclaim frees a batch at least.
            let freed = reclaim::group(&self.core, &self.reclaim, self, group, (pages - reclaimed) / 4);
            if freed == 0 {
                if retries == 0 {
                    break;
                }
                retries -= 1;
            }
            reclaimed += freed;
        }
        Ok(reclaimed)
    }

    /// The limits of zswap of a group.
    pub fn group_zswap_limits(&self, group: GroupId) -> Result<ZswapLimits, Error> {
        let groups = &self.core.lru.groups;
        if groups.is_live(group) { Ok(groups.zswap_limits(group)) } else { Err(Error::NotFound) }
    }

    /// Change the limits of zswap of a group other than the root. What zswap holds stays.
    pub fn set_group_zswap_limits(&self, group: GroupId, limits: ZswapLimits) -> Result<(), Error> {
        self.core.lru.groups.set_zswap_limits(group, limits)
    }

    /// Set a group's own value of `vm.swappiness` or `reclaim.policy`, for a group other than the root and groups that
    /// are created below it later. Other knobs are global.
    pub fn set_group_knob(&self, group: GroupId, knob: Knob, value: u64) -> Result<(), Error> {
        if value > knob.info().max {
            return Err(Error::Invalid);
        }
        match knob {
            Knob::Swappiness => self.core.lru.groups.set_swappiness(group, value),
            Knob::ReclaimPolicy => self.core.lru.set_group_policy(self.mmu(), group, PolicyKind::of(value)),
            _ => Err(Error::Invalid),
        }
    }

    /// Pages and swap slots charged to a group and those below it (root: pages of all others; its slots are not
    /// counted).
    #[cfg(test)]
    pub(crate) fn group_usage(&self, group: GroupId) -> (u64, u64) {
        (self.core.lru.groups.usage(group), self.core.swap.groups.usage(group))
    }

    /// Remove a group without spaces and groups in it. Its parent takes over its charges.
    pub fn remove_group(&self, group: GroupId) -> Result<(), Error> {
        self.core.lru.remove_group(&self.core, group)?;
        self.core.zswap.reparent(&self.core.lru.groups, group);
        self.core.swap.groups.set_max(group, u64::MAX);
        Ok(())
    }

    /// Move a space to a group, which is charged from now on. Earlier charges stay where they are.
    pub fn move_space(&self, space: SpaceId, group: GroupId) -> Result<(), Error> {
        self.core.lru.groups.enter(group)?;
        match self.spaces.move_to(&self.core, space, group) {
            Some(old) => self.core.lru.groups.leave(old),
            None => {
                self.core.lru.groups.leave(group);
                return Err(Error::NotFound);
            }
        }
        self.tell_groups(space, group);
        Ok(())
    }

    /// Tell the machine which groups a space is in.
    fn tell_groups(&self, space: SpaceId, group: GroupId) {
        let groups: SmallVec<[GroupId; 8]> =
            self.core.lru.groups.upwards(group).take_while(|&group| group != ROOT).collect();
        self.machine().space_enters(space, &groups);
    }

    /// The group that a space is charged to; the root if there is no such space.
    pub fn group_of(&self, space: SpaceId) -> GroupId {
        self.spaces.get(space).map_or(ROOT, |space| space.group())
    }

    /// Enter a new space in its group, or in the nearest ancestor if the group was removed.
    pub(super) fn enter_group(&self, space: SpaceId) {
        let intended = self.group_of(space);
        let group = self.core.lru.groups.enter_nearest(intended);
        if group != intended {
            self.spaces.move_to(&self.core, space, group);
        }
        if group != ROOT {
            self.tell_groups(space, group);
        }
    }
}

#[cfg(test)]
mod tests;
