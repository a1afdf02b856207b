//! Vectors change policies while folios come and go.
//!
//! A vector's policy is a switch that newcomers heed. Once it is turned, the folios of the other policy's queues are moved over, some in
//! each hold of the lock; until they are through, the vector has folios of both, and each knows which it is.

use super::LARGE_BATCH;
use crate::api::Error;
use crate::base::Base;
use crate::lru::policy::{End, Leave};
use crate::lru::{Held, Lru, LruList, PolicyKind};
use crate::machine::{Machine, Work};
use crate::units::*;
use core::ops::Range;

impl Lru {
    /// The policy of all vectors, those to come too.
    pub fn policy(&self) -> PolicyKind {
        self.policy.get()
    }

    /// Change the policy of all vectors, and move their folios. Fails if somebody else does so now.
    pub fn set_policy<M: Machine>(&self, base: &Base<M>, policy: PolicyKind) -> Result<(), Error> {
        if !self.policy.begin() {
            return Err(Error::Busy);
        }
        // Groups that come from here on have the new policy.
        let groups = {
            let _tree = self.groups.tree.lock();
            self.policy.set(policy);
            self.groups.bound()
        };
        for group in (0..groups).map(|group| GroupId(group as u16)) {
            for node in (0..self.nodes()).map(|node| NodeId(node as u8)) {
                self.switch_vec(base, node, group, policy);
            }
        }
        self.policy.end();
        Ok(())
    }

    /// The folios in generations of a group that is removed go to its parent, those that were used last to where used ones are. Both
    /// vectors are locked.
    pub(in crate::lru) fn reparent_generations<M: Machine>(
        &self,
        base: &Base<M>,
        (node, group): (NodeId, GroupId),
        parent: GroupId,
        (from, to): (&mut Held<'_>, &mut Held<'_>),
    ) {
        for queue in LruList::COUNT..LruList::COUNT + super::QUEUES {
            while let Some(pfn) = from.lists.lists[queue].tail() {
                let frame = &base.frames[pfn];
                debug_assert_eq!((frame.node(), frame.group()), (node, group));
                self.unlink(base, from, pfn, Leave::Other);
                self.groups.hand_up(group, parent, frame.pages() as u64);
                frame.set_group(parent);
                self.link(base, to, pfn, frame, End::Head);
            }
        }
    }

    fn switch_vec<M: Machine>(&self, base: &Base<M>, node: NodeId, group: GroupId, policy: PolicyKind) {
        let vec = self.vec(node, group);
        let on = policy == PolicyKind::MgLru;
        {
            let _lists = vec.lock();
            vec.generations.set_on(on);
        }
        let classic = 0..LruList::EVICTABLE.len();
        let generations = LruList::COUNT..LruList::COUNT + super::QUEUES;
        let from = if on { classic } else { generations };
        while self.move_some(base, (node, group), from.clone()) {
            base.machine.resched();
        }
    }

    /// Move folios of some queues to where the policy of their vector wants them. Returns whether there are more.
    fn move_some<M: Machine>(&self, base: &Base<M>, place: (NodeId, GroupId), from: Range<usize>) -> bool {
        let vec = self.vec(place.0, place.1);
        let mut held = Held { vec, lists: vec.lock() };
        let mut left = LARGE_BATCH;
        for queue in from {
            // Those that were used last come last, to the head.
            while let Some(pfn) = held.lists.lists[queue].tail() {
                let frame = &base.frames[pfn];
                self.unlink(base, &mut held, pfn, Leave::Other);
                self.link(base, &mut held, pfn, frame, End::Head);
                base.charge(Work::LruMove, 1);
                left -= 1;
                if left == 0 {
                    return true;
                }
            }
        }
        false
    }
}
