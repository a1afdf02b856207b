//! Memory control groups: a tree of limits.
//!
//! Group 0 is the root. It has no limits, so its own pages are not counted, and an allocation for it costs nothing
//! here. A charge to any other group counts there and in every group above (so the root's count is that of all others
//! together). A group that is removed stays as a dead group: its number is not used again, its lists and charges go to
//! its parent, and folios that were isolated follow when they are put back.

mod zswapped;

use super::PolicyKind;
use super::protect::Claim;
use super::stock::Stocks;
use crate::api::{Error, GroupLimits, ZswapLimits};
use crate::arena::Arena;
use crate::knobs::Knob;
use crate::lock::Lock;
use crate::machine::{Machine, SharedLine, Work};
use crate::platform::Platform;
use crate::primitive::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering::*};
use crate::stat::GroupStat;
use crate::units::*;
use zswapped::GroupZswap;

/// The group at the root of the tree.
pub const ROOT: GroupId = GroupId(0);

/// A link to no group; other links are the group's number + 1.
const NO_GROUP: u32 = 0;

#[derive(Default)]
struct Group {
    live: AtomicBool,
    parent: AtomicU32,
    first_child: AtomicU32,
    /// The next older child of the parent. A dead group keeps it, so that a walk that is there can continue.
    sibling: AtomicU32,
    max: AtomicU64,
    high: AtomicU64,
    low: AtomicU64,
    min: AtomicU64,
    /// Number of spaces in it. It changes while the tree is locked.
    members: AtomicU32,
    /// Pages charged to the group and the groups below.
    usage: AtomicI64,
    peak: AtomicU64,
    /// Pages charged above memory.high for which no task has reclaimed yet.
    taken_over_high: AtomicU64,
    /// min(usage, memory.min), and the same for memory.low, as last reported to the parent.
    protected: [AtomicI64; 2],
    children_protected: [AtomicI64; 2],
    /// Effective protection as last computed: min, low.
    effective: [AtomicU64; 2],
    /// `vm.swappiness` + 1, and the number of its policy + 1; 0: the setting of the root.
    swappiness: AtomicU32,
    policy: AtomicU32,
    zswap: GroupZswap,
    /// Events in the group and the groups below.
    counts: [AtomicU64; GroupStat::COUNT],
}

const MIN: usize = 0;
const LOW: usize = 1;

impl Group {
    fn setting(&self, kind: usize) -> u64 {
        [&self.min, &self.low][kind].load(Relaxed)
    }

    fn usage(&self) -> u64 {
        self.usage.load(Relaxed).max(0) as u64
    }
}

/// Pages of a group that reclaim must spare.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Protection {
    /// Always.
    pub min: u64,
    /// While other groups have pages to reclaim.
    pub low: u64,
}

/// All groups.
pub struct Groups {
    groups: Arena<Group>,
    /// Held while the tree changes.
    pub(super) tree: Lock<()>,
    /// Charges that CPUs have made in advance.
    pub(super) stocks: Stocks,
}

impl Groups {
    /// The root alone, on a machine with this many CPUs.
    pub(crate) fn new(cpus: usize) -> Groups {
        let groups: Arena<Group> = Arena::default();
        let root = &groups[groups.claim()];
        store_limits(root, GroupLimits::default());
        root.zswap.set(ZswapLimits::default());
        root.live.store(true, Release);
        Groups { groups, tree: Lock::new(()), stocks: Stocks::new(cpus) }
    }

    fn at(&self, group: GroupId) -> &Group {
        &self.groups[group.0 as u32]
    }

    pub(crate) fn is_live(&self, group: GroupId) -> bool {
        self.groups.get(group.0 as u32).is_some_and(|group| group.live.load(Acquire))
    }

    /// The bound of group numbers: 0 to this - 1 were used.
    pub fn bound(&self) -> u32 {
        self.groups.bound()
    }

    pub(super) fn insert(&self, parent: GroupId, limits: GroupLimits) -> Result<GroupId, Error> {
        if !self.is_live(parent) {
            return Err(Error::NotFound);
        }
        if self.groups.bound() > u16::MAX as u32 {
            return Err(Error::NoSpace);
        }
        let id = GroupId(self.groups.claim() as u16);
        let (group, above) = (self.at(id), self.at(parent));
        store_limits(group, limits);
        group.zswap.set(ZswapLimits::default());
        for (own, parents) in [(&group.swappiness, &above.swappiness), (&group.policy, &above.policy)] {
            own.store(parents.load(Relaxed), Relaxed);
        }
        group.parent.store(to_link(Some(parent)), Relaxed);
        group.sibling.store(above.first_child.load(Relaxed), Relaxed);
        Ok(id)
    }

    /// Make a group that is ready visible to walks. The tree is locked.
    pub(super) fn publish(&self, id: GroupId) {
        let group = self.at(id);
        group.live.store(true, Release);
        if let Some(parent) = self.parent(id) {
            self.at(parent).first_child.store(to_link(Some(id)), Release);
        }
    }

    /// Create a group that is visible at once.
    #[cfg(test)]
    pub fn add(&self, parent: GroupId, limits: GroupLimits) -> GroupId {
        let group = self.insert(parent, limits).expect("a free group number");
        self.publish(group);
        group
    }

    /// Add a space to a group, which cannot be removed until the space leaves.
    pub fn enter(&self, group: GroupId) -> Result<(), Error> {
        let _tree = self.tree.lock();
        if !self.is_live(group) {
            return Err(Error::NotFound);
        }
        self.at(group).members.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Add a space to the group, or to the nearest live one above if it was removed; returns which.
    pub(crate) fn enter_nearest(&self, group: GroupId) -> GroupId {
        let _tree = self.tree.lock();
        let group = self.nearest_live(group);
        self.at(group).members.fetch_add(1, Relaxed);
        group
    }

    /// Remove a space from its group.
    pub fn leave(&self, group: GroupId) {
        let _tree = self.tree.lock();
        let before = self.at(group).members.fetch_sub(1, Relaxed);
        assert!(before > 0, "{group:?} must have a space that leaves");
    }

    /// Take a group without children and spaces out of the tree. The tree is locked.
    pub(crate) fn unlink(&self, id: GroupId) -> Result<GroupId, Error> {
        if !self.is_live(id) {
            return Err(Error::NotFound);
        }
        let group = self.at(id);
        let Some(parent) = self.parent(id) else { return Err(Error::Invalid) };
        if group.first_child.load(Relaxed) != NO_GROUP || group.members.load(Relaxed) > 0 {
            return Err(Error::Busy);
        }
        let mut at = &self.at(parent).first_child;
        while at.load(Relaxed) != to_link(Some(id)) {
            at = &self.at(from_link(at.load(Relaxed)).expect("a child of its parent")).sibling;
        }
        at.store(group.sibling.load(Relaxed), Release);
        group.live.store(false, Release);
        store_limits(group, GroupLimits::default());
        group.zswap.set(ZswapLimits::default());
        self.propagate(id);
        Ok(parent)
    }

    /// The group above, or `None` for the root.
    #[inline]
    pub fn parent(&self, group: GroupId) -> Option<GroupId> {
        from_link(self.at(group).parent.load(Relaxed))
    }

    #[inline]
    pub(crate) fn upwards(&self, group: GroupId) -> impl Iterator<Item = GroupId> + '_ {
        core::iter::successors(Some(group), |&group| self.next_above(group))
    }

    /// [`Groups::parent`], without a look at the root's record.
    #[inline]
    fn next_above(&self, group: GroupId) -> Option<GroupId> {
        if group == ROOT { None } else { self.parent(group) }
    }

    /// The groups above `group`, up to the root.
    #[inline]
    pub fn above(&self, group: GroupId) -> impl Iterator<Item = GroupId> + '_ {
        core::iter::successors(self.next_above(group), |&group| self.next_above(group))
    }

    /// Whether `group` is `top` or below it.
    pub fn is_below(&self, group: GroupId, top: GroupId) -> bool {
        self.upwards(group).any(|group| group == top)
    }

    /// The group, or the nearest one above it that was not removed.
    pub(crate) fn nearest_live(&self, group: GroupId) -> GroupId {
        self.upwards(group).find(|&group| self.is_live(group)).unwrap_or(ROOT)
    }

    /// The groups below `top`, itself first, each before its children.
    pub(crate) fn subtree(&self, top: GroupId) -> impl Iterator<Item = GroupId> + '_ {
        core::iter::successors(Some(top), move |&at| self.next(top, Some(at)))
    }

    /// The group after `at` in a walk of the groups below `top`; `None` starts the walk with `top`.
    pub fn next(&self, top: GroupId, at: Option<GroupId>) -> Option<GroupId> {
        let Some(mut at) = at else { return Some(top) };
        if let Some(child) = from_link(self.at(at).first_child.load(Acquire)) {
            return Some(child);
        }
        while at != top {
            if let Some(sibling) = from_link(self.at(at).sibling.load(Acquire)) {
                return Some(sibling);
            }
            at = self.parent(at)?;
        }
        None
    }

    // --- limits ---

    /// The memory limits of a group; the limit of swap is kept with the slots.
    pub(super) fn memory_limits(&self, group: GroupId) -> GroupLimits {
        let group = self.at(group);
        GroupLimits {
            max: group.max.load(Relaxed),
            high: group.high.load(Relaxed),
            low: group.low.load(Relaxed),
            min: group.min.load(Relaxed),
            ..GroupLimits::default()
        }
    }

    /// Set the memory limits of a group other than the root. The caller reclaims what exceeds them.
    pub(crate) fn set_limits(&self, group: GroupId, limits: GroupLimits) -> Result<(), Error> {
        self.check_own(group)?;
        store_limits(self.at(group), limits);
        self.propagate(group);
        Ok(())
    }

    /// The group's own `vm.swappiness`, if it has one.
    #[inline]
    pub(crate) fn swappiness(&self, group: GroupId) -> Option<u64> {
        self.at(group).swappiness.load(Relaxed).checked_sub(1).map(u64::from)
    }

    /// Give a group other than the root its own `vm.swappiness`. Groups that are created below it later inherit it.
    pub(crate) fn set_swappiness(&self, group: GroupId, swappiness: u64) -> Result<(), Error> {
        self.check_own(group)?;
        if swappiness > super::MAX_SWAPPINESS {
            return Err(Error::Invalid);
        }
        self.at(group).swappiness.store(swappiness as u32 + 1, Relaxed);
        Ok(())
    }

    pub(super) fn policy(&self, group: GroupId) -> Option<PolicyKind> {
        let number = self.at(group).policy.load(Relaxed).checked_sub(1)?;
        Some(PolicyKind::of(number.into()))
    }

    pub(super) fn set_policy(&self, group: GroupId, policy: PolicyKind) {
        self.at(group).policy.store(policy.value() as u32 + 1, Relaxed);
    }

    /// Whether the group can have settings of its own: the root's are the global ones.
    pub(crate) fn check_own(&self, group: GroupId) -> Result<(), Error> {
        match group {
            ROOT => Err(Error::Invalid),
            group if !self.is_live(group) => Err(Error::NotFound),
            _ => Ok(()),
        }
    }

    /// Pages charged to the group and the groups below; for the root, to all other groups.
    pub fn usage(&self, group: GroupId) -> u64 {
        self.at(group).usage()
    }

    /// The most pages that were charged at once to the group and the groups below.
    pub fn peak(&self, group: GroupId) -> u64 {
        self.at(group).peak.load(Relaxed)
    }

    /// Count an event in a group and the groups above.
    #[inline]
    pub fn count(&self, group: GroupId, stat: GroupStat, by: u64) {
        if group != ROOT {
            self.count_upwards(group, stat, by);
        }
    }

    fn count_upwards(&self, group: GroupId, stat: GroupStat, by: u64) {
        for level in self.upwards(group).take_while(|&level| level != ROOT) {
            self.at(level).counts[stat as usize].fetch_add(by, Relaxed);
        }
    }

    /// The number of events in the group and the groups below.
    pub fn counted(&self, group: GroupId, stat: GroupStat) -> u64 {
        self.at(group).counts[stat as usize].load(Relaxed)
    }

    /// Charge `pages` to a group, from this CPU's stock if it has enough. `Err`: this group, or one above, would
    /// exceed its maximum; nothing is charged.
    pub(crate) fn try_charge<M: Machine>(
        &self,
        platform: &Platform<M>,
        group: GroupId,
        pages: u64,
    ) -> Result<(), GroupId> {
        if group == ROOT {
            return Ok(());
        }
        platform.charge(Work::GroupCharge, 1);
        let (cpu, batch) = (platform.machine.cpu(), platform.knobs.get(Knob::MemcgChargeBatch));
        if self.stocks.take(cpu, group, pages) {
            return Ok(());
        }
        if batch > pages && self.charge_upwards(platform, group, batch).is_ok() {
            if let Some(old) = self.stocks.put(cpu, group, batch - pages, batch) {
                self.uncharge_upwards(platform, old.group, old.pages);
            }
            return Ok(());
        }
        self.charge_upwards(platform, group, pages)
    }

    /// Uncharge what CPUs have in stock of the groups below `top`, itself included.
    pub(crate) fn drain_stocks<M: Machine>(&self, platform: &Platform<M>, top: GroupId) {
        for drained in self.stocks.drain(|group| self.is_below(group, top)) {
            self.uncharge_upwards(platform, drained.group, drained.pages);
        }
    }

    /// Charge `pages` to a group and those above. `Err`: one of them would exceed its maximum; nothing is charged.
    fn charge_upwards<M: Machine>(
        &self,
        platform: &Platform<M>,
        group: GroupId,
        pages: u64,
    ) -> Result<(), GroupId> {
        for (done, level) in self.upwards(group).enumerate() {
            platform.machine.writes(SharedLine::GroupUsage(level));
            let counter = self.at(level);
            let now = counter.usage.fetch_add(pages as i64, AcqRel) + pages as i64;
            if now.max(0) as u64 > counter.max.load(Relaxed) {
                for level in self.upwards(group).take(done + 1) {
                    self.change(level, -(pages as i64));
                }
                return Err(level);
            }
            // Usually it is less.
            if now.max(0) as u64 > counter.peak.load(Relaxed) {
                counter.peak.fetch_max(now.max(0) as u64, Relaxed);
            }
            if now.max(0) as u64 > counter.high.load(Relaxed) {
                counter.taken_over_high.fetch_add(pages, Relaxed);
            }
            self.propagate(level);
        }
        Ok(())
    }

    /// Undo a charge of `pages`.
    fn uncharge_upwards<M: Machine>(&self, platform: &Platform<M>, group: GroupId, pages: u64) {
        for level in self.upwards(group) {
            platform.machine.writes(SharedLine::GroupUsage(level));
            self.change(level, -(pages as i64));
        }
    }

    /// Undo the charges of folios that have `pages` pages together.
    pub(crate) fn uncharge<M: Machine>(
        &self,
        platform: &Platform<M>,
        group: GroupId,
        folios: u64,
        pages: u64,
    ) {
        if group != ROOT && folios > 0 {
            platform.charge(Work::GroupCharge, folios);
            self.uncharge_upwards(platform, group, pages);
        }
    }

    /// Move a charge from a dead group to a group above, which, like all groups above it, has counted it already.
    pub(super) fn transfer_charge(&self, from: GroupId, to: GroupId, pages: u64) {
        for level in self.upwards(from).take_while(|&level| level != to) {
            self.change(level, -(pages as i64));
        }
        if to == ROOT {
            self.change(ROOT, -(pages as i64));
        }
    }

    /// The first group, from this one upwards, that exceeds its memory.high, and by how many pages.
    pub(crate) fn over_high(&self, group: GroupId) -> Option<(GroupId, u64)> {
        self.upwards(group).find_map(|level| Some((level, self.pages_over_high(level)?)))
    }

    /// The same for groups that were charged more than `spared` pages above memory.high since the last call that
    /// returned them, and at most the pages charged then: the caller reclaims for them.
    #[inline]
    pub(crate) fn taken_over_high(&self, group: GroupId, spared: u64) -> Option<(GroupId, u64)> {
        // The root has no limits, and most spaces are in it.
        if group == ROOT {
            return None;
        }
        self.upwards(group).find_map(|level| {
            let over = self.pages_over_high(level)?;
            let taken = &self.at(level).taken_over_high;
            let taken = if taken.load(Relaxed) > spared { taken.swap(0, Relaxed) } else { 0 };
            (taken > 0).then(|| (level, taken.min(over)))
        })
    }

    #[inline]
    fn pages_over_high(&self, group: GroupId) -> Option<u64> {
        let (usage, high) = (self.usage(group), self.at(group).high.load(Relaxed));
        (usage > high).then(|| usage - high)
    }

    /// Charge pages to a group alone, or uncharge them, whatever its limits.
    fn force(&self, group: GroupId, by: i64) {
        self.change(group, by);
        self.at(group).peak.fetch_max(self.usage(group), Relaxed);
    }

    fn change(&self, group: GroupId, by: i64) {
        self.at(group).usage.fetch_add(by, AcqRel);
        self.propagate(group);
    }

    /// Report to the parent how much of the group's protection is in use.
    fn propagate(&self, id: GroupId) {
        let group = self.at(id);
        let Some(parent) = self.parent(id) else { return };
        for kind in [MIN, LOW] {
            let protected = group.usage().min(group.setting(kind)) as i64;
            if protected == group.protected[kind].load(Relaxed) {
                continue;
            }
            let delta = protected - group.protected[kind].swap(protected, AcqRel);
            self.at(parent).children_protected[kind].fetch_add(delta, AcqRel);
        }
    }

    // --- protection ---

    /// Compute a group's effective protection from reclaim of `target`. That of the parent must be computed before:
    /// walks visit it first.
    pub(crate) fn calculate_protection(&self, target: GroupId, id: GroupId) {
        let group = self.at(id);
        let (Some(parent), usage) = (self.parent(id), group.usage()) else { return };
        if id == target || usage == 0 {
            return;
        }
        for kind in [MIN, LOW] {
            let setting = group.setting(kind);
            let effective = if parent == target {
                setting
            } else {
                let above = self.at(parent);
                let siblings = above.children_protected[kind].load(Relaxed).max(0) as u64;
                let claim = Claim {
                    usage,
                    parent_usage: above.usage(),
                    setting,
                    parent_effective: above.effective[kind].load(Relaxed),
                    siblings_protected: siblings,
                };
                claim.effective()
            };
            group.effective[kind].store(effective, Relaxed);
        }
    }

    /// The effective protection of a group, as last computed. The root and the target of the reclaim have none.
    pub(crate) fn protection(&self, target: GroupId, group: GroupId) -> Protection {
        if group == ROOT || group == target {
            return Protection::default();
        }
        let effective = &self.at(group).effective;
        Protection { min: effective[MIN].load(Relaxed), low: effective[LOW].load(Relaxed) }
    }

    /// Whether memory.min protects all pages of the group.
    pub(crate) fn below_min(&self, target: GroupId, group: GroupId) -> bool {
        group != ROOT && group != target && self.protection(target, group).min >= self.usage(group)
    }

    /// Whether memory.low protects all pages of the group.
    pub(crate) fn below_low(&self, target: GroupId, group: GroupId) -> bool {
        group != ROOT && group != target && self.protection(target, group).low >= self.usage(group)
    }
}

fn store_limits(group: &Group, limits: GroupLimits) {
    group.max.store(limits.max, Relaxed);
    group.high.store(limits.high, Relaxed);
    group.low.store(limits.low, Relaxed);
    group.min.store(limits.min, Relaxed);
}

pub(super) fn to_link(group: Option<GroupId>) -> u32 {
    group.map_or(NO_GROUP, |group| group.0 as u32 + 1)
}

pub(super) fn from_link(link: u32) -> Option<GroupId> {
    link.checked_sub(1).map(|group| GroupId(group as u16))
}
