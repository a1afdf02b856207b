//! Memory policies of ranges and of spaces (mbind, set_mempolicy).

use super::vma::VmaView;
use super::{Space, Spaces, Stop};
use crate::api::Error;
use crate::machine::{Machine, WaitKey};
use crate::mempolicy::{MemPolicy, NodePreference};
use crate::mm_core::MmCore;
use crate::primitive::Ordering::*;
use crate::units::*;

impl Space {
    /// Its memory policy.
    pub fn policy(&self) -> MemPolicy {
        MemPolicy::of_word(self.policy.load(Relaxed))
    }

    /// Set its memory policy. Pages that it has stay where they are.
    pub(crate) fn set_policy(&self, policy: MemPolicy) {
        self.policy.store(policy.word(), Relaxed);
    }

    /// The nodes that a page of a range should come from.
    #[inline]
    pub(super) fn place(&self, vma: &VmaView, page: Vpn) -> NodePreference {
        let policy = self.policy_of(vma);
        if policy.is_default() {
            NodePreference::NEAR
        } else {
            NodePreference::by(policy, vma.anon_index(page).0)
        }
    }

    /// A range's policy, or else the space's.
    #[inline]
    pub(super) fn policy_of(&self, vma: &VmaView) -> MemPolicy {
        if vma.policy.is_default() { self.policy() } else { vma.policy }
    }
}

impl Spaces {
    /// Set the policy of a part of the space, which must be mapped without holes. Pages that it has stay where they
    /// are.
    pub fn mbind<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        (start, end): (Vpn, Vpn),
        policy: MemPolicy,
    ) -> Result<(), Stop> {
        let space = self.at(id);
        let _held = space.mapping.write(&core.machine, WaitKey::Space(id));
        if !space.vmas.lock().covers(start, end) {
            return Err(Error::NotMapped.into());
        }
        self.change_ranges(core, id, start, end, |vmas, at| vmas.update(at, |vma| vma.view.policy = policy));
        Ok(())
    }
}
