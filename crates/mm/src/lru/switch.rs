//! Changing the policy of vectors while folios come and go.
//!
//! A vector's policy places all folios that come after the switch. Then the folios in the queues of the old policy are
//! moved, some in each hold of the lock. Until this is finished, the vector has folios of both policies, and each folio
//! tells which one has placed it.

use super::mglru::LARGE_BATCH;
use super::policy::{InsertReason, Leave};
use super::proposed::Proposed;
use super::vec::{PROPOSED, QUEUES};
use super::{LockedVec, Lru, LruList, PolicyKind};
use crate::api::Error;
use crate::frame::{Frame, FrameFlags};
use crate::machine::{Machine, Work};
use crate::platform::Platform;
use crate::units::*;
use core::ops::Range;
use std_alloc::boxed::Box;

impl Lru {
    /// The policy of all vectors, including future ones, except those of groups that have their own.
    pub fn policy(&self) -> PolicyKind {
        self.policy.get()
    }

    #[inline]
    pub(super) fn policy_of(&self, frame: &Frame) -> PolicyKind {
        self.policy.of_all().unwrap_or_else(|| self.own_policy_of(frame))
    }

    #[cold]
    fn own_policy_of(&self, frame: &Frame) -> PolicyKind {
        self.vec(frame.node(), frame.group()).policy()
    }

    #[inline]
    pub(crate) fn policy_in(&self, group: GroupId) -> PolicyKind {
        self.policy.of_all().unwrap_or_else(|| self.groups.policy(group).unwrap_or(self.policy()))
    }

    #[inline]
    pub(crate) fn may_have_generations(&self) -> bool {
        self.policy.of_all().is_none_or(|policy| policy == PolicyKind::MgLru)
    }

    /// Give a group other than the root its own policy, which groups that are created below it later inherit, and move
    /// its folios. Fails as [`Lru::set_policy`] does.
    pub(crate) fn set_group_policy<M: Machine>(
        &self,
        platform: &Platform<M>,
        group: GroupId,
        policy: PolicyKind,
    ) -> Result<(), Error> {
        self.groups.check_own(group)?;
        self.check_policy(policy)?;
        if !self.policy.begin() {
            return Err(Error::Busy);
        }
        self.policy.mix();
        if self.policy_in(group).is_proposed() && policy.is_proposed() {
            self.switch_group(platform, group, PolicyKind::Classic);
        }
        // A group that is being created below it gets the old policy or the new one.
        let tree = self.groups.tree.lock();
        self.groups.set_policy(group, policy);
        drop(tree);
        self.switch_group(platform, group, policy);
        self.policy.end();
        Ok(())
    }

    fn check_policy(&self, policy: PolicyKind) -> Result<(), Error> {
        let is_there = !policy.is_proposed() || policy.maker(self.custom).is_some();
        if is_there { Ok(()) } else { Err(Error::Invalid) }
    }

    /// Change the policy of all vectors, except those of groups that have their own, and move their folios. Fails if
    /// another task is doing so, or if there is no such policy.
    pub(crate) fn set_policy<M: Machine>(
        &self,
        platform: &Platform<M>,
        policy: PolicyKind,
    ) -> Result<(), Error> {
        self.check_policy(policy)?;
        if !self.policy.begin() {
            return Err(Error::Busy);
        }
        if self.policy().is_proposed() && policy.is_proposed() {
            // Both use the same queues.
            self.switch_all(platform, PolicyKind::Classic);
        }
        self.switch_all(platform, policy);
        self.policy.end();
        Ok(())
    }

    fn switch_all<M: Machine>(&self, platform: &Platform<M>, policy: PolicyKind) {
        // Groups that are created from here on have the new policy.
        let groups = {
            let _tree = self.groups.tree.lock();
            self.policy.set(policy);
            self.groups.bound()
        };
        // A group comes before the group above, which gets its folios as they are if it is removed in the meantime.
        for group in (0..groups).rev().map(|group| GroupId(group as u16)) {
            if self.groups.policy(group).is_none() {
                self.switch_group(platform, group, policy);
            }
        }
    }

    fn switch_group<M: Machine>(&self, platform: &Platform<M>, group: GroupId, policy: PolicyKind) {
        for node in (0..self.nodes()).map(|node| NodeId(node as u8)) {
            self.switch_vec(platform, node, group, policy);
        }
    }

    /// An instance for a vector, if the policy proposes.
    pub(super) fn new_proposed(&self, policy: PolicyKind) -> Option<Box<Proposed>> {
        policy.maker(self.custom).map(|make| Box::new(Proposed::new(make())))
    }

    /// Move the folios of one queue to where the policy of the parent's vector wants them; those of young generations
    /// as used ones.
    pub(super) fn reparent_queue<M: Machine>(
        &self,
        platform: &Platform<M>,
        (group, queue): (GroupId, usize),
        parent: GroupId,
        (from, to): (&mut LockedVec<'_>, &mut LockedVec<'_>),
    ) {
        while let Some(pfn) = from.lists.lists[queue].tail() {
            let frame = &platform.frames[pfn];
            debug_assert_eq!(frame.group(), group);
            self.unlink(platform, from, pfn, Leave::Other);
            self.groups.transfer_charge(group, parent, frame.pages() as u64);
            frame.set_group(parent);
            self.link_foreign(platform, to, pfn);
        }
    }

    fn switch_vec<M: Machine>(
        &self,
        platform: &Platform<M>,
        node: NodeId,
        group: GroupId,
        policy: PolicyKind,
    ) {
        let vec = self.vec(node, group);
        let new = self.new_proposed(policy);
        let mut lists = vec.lock();
        if new.is_some() {
            lists.proposed = new;
        }
        vec.set_policy(policy);
        drop(lists);
        let (classic, generations) = (0..LruList::EVICTABLE.len(), LruList::COUNT..PROPOSED);
        let from = match policy {
            PolicyKind::Classic => [generations, PROPOSED..QUEUES],
            PolicyKind::MgLru => [classic, PROPOSED..QUEUES],
            PolicyKind::Proposed(_) => [classic, generations],
        };
        while from.iter().any(|queues| self.move_some(platform, (node, group), queues.clone())) {
            platform.machine.resched();
        }
        if !policy.is_proposed() {
            vec.lock().proposed = None;
        }
    }

    /// Move folios of some queues to where the policy of their vector wants them. Returns whether there are more.
    fn move_some<M: Machine>(
        &self,
        platform: &Platform<M>,
        place: (NodeId, GroupId),
        from: Range<usize>,
    ) -> bool {
        let vec = self.vec(place.0, place.1);
        let mut held = LockedVec { vec, lists: vec.lock() };
        let mut left = LARGE_BATCH;
        for queue in from {
            // The most recently used folios come last, to the head.
            while let Some(pfn) = held.lists.lists[queue].tail() {
                self.unlink(platform, &mut held, pfn, Leave::Other);
                self.link_foreign(platform, &mut held, pfn);
                platform.charge(Work::LruMove, 1);
                left -= 1;
                if left == 0 {
                    return true;
                }
            }
        }
        false
    }

    /// Put a folio on a queue that was placed by another policy, or by the policy of another vector.
    fn link_foreign<M: Machine>(&self, platform: &Platform<M>, held: &mut LockedVec<'_>, pfn: Pfn) {
        let frame = &platform.frames[pfn];
        frame.set_mark(0);
        self.link(platform, held, pfn, InsertReason::New { faulted: frame.has(FrameFlags::ACTIVE), task: 0 });
    }
}
