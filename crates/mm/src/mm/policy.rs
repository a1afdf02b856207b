//! The choice of replacement policy, at start and at run time, and what aging needs of address spaces.

use super::Mm;
use super::oom::Unmet;
use crate::api::{Error, Prot};
use crate::knobs::{Knob, Knobs};
use crate::lru::PolicyKind;
use crate::machine::Machine;
use crate::memory::Memory;
use crate::reclaim::{AddressSpaces, Member, Retries, WalkRange, caps};
use crate::space::{VmaFlags, VmaView};
use crate::units::*;
use std_alloc::string::String;

/// Apply the knobs' policy to the vectors, before there are folios.
pub(super) fn choose_at_start<M: Machine>(memory: &Memory<M>) -> Result<(), String> {
    let knobs = &memory.knobs;
    let changed = [Knob::ReclaimPolicy, Knob::LruGenEnabled];
    for knob in changed.into_iter().filter(|&knob| knobs.get(knob) != knob.info().default) {
        let policy = wanted(knobs, knob, memory.lru.policy());
        sync_knobs(knobs, policy);
        let set = memory.lru.set_policy(memory, policy);
        set.map_err(|_| "reclaim.policy=custom: no policy was registered (Config::custom)")?;
    }
    Ok(())
}

/// The policy that a knob selects in place of `now`.
fn wanted(knobs: &Knobs, knob: Knob, now: PolicyKind) -> PolicyKind {
    match (knob, knobs.get(Knob::LruGenEnabled) & caps::CORE != 0) {
        (Knob::LruGenEnabled, true) => PolicyKind::MgLru,
        (Knob::LruGenEnabled, false) if now == PolicyKind::MgLru => PolicyKind::Classic,
        (Knob::LruGenEnabled, false) => now,
        _ => knobs.reclaim_policy(),
    }
}

/// Make both knobs reflect the policy.
fn sync_knobs(knobs: &Knobs, policy: PolicyKind) {
    let on = u64::from(policy == PolicyKind::MgLru);
    let caps = knobs.get(Knob::LruGenEnabled) & !caps::CORE | (on * caps::CORE);
    let set =
        knobs.set(Knob::ReclaimPolicy, policy.value()).and_then(|()| knobs.set(Knob::LruGenEnabled, caps));
    set.expect("the values are in the knobs' ranges");
}

/// Whether young bits of a range show which pages are in use.
fn shows_use(vma: &VmaView) -> bool {
    !vma.prot.is_empty() && vma.has_recency() && !vma.flags.contains(VmaFlags::LOCKED)
}

impl<M: Machine> Mm<M> {
    fn walk_range(&self, vma: &VmaView) -> WalkRange {
        let swapbacked = vma.file.is_none_or(|(file, _)| self.core.cache.file(file).is_shmem());
        let executable = vma.prot.contains(Prot::EXEC);
        WalkRange { start: vma.start, end: vma.end(), swapbacked, executable }
    }

    /// After a change of a knob that selects a policy, switch the folios of all lists to that policy.
    pub(super) fn apply_policy_knob(&self, knob: Knob) -> Result<(), Error> {
        if !matches!(knob, Knob::ReclaimPolicy | Knob::LruGenEnabled) {
            return Ok(());
        }
        let (knobs, lru) = (&self.mmu().knobs, &self.core.lru);
        let policy = wanted(knobs, knob, lru.policy());
        let changed = if policy == lru.policy() { Ok(()) } else { lru.set_policy(self.mmu(), policy) };
        sync_knobs(knobs, lru.policy());
        changed
    }

    /// A CPU begins to run a space.
    pub(super) fn note_run(&self, space: SpaceId) {
        if let Some(space) = self.spaces.get(space) {
            space.note_run();
        }
    }
}

impl<M: Machine> AddressSpaces for Mm<M> {
    fn bound(&self) -> u32 {
        self.core.tlb.bound()
    }

    fn member(&self, space: SpaceId) -> Option<Member> {
        let space = self.spaces.get(space)?;
        Some(Member { group: space.group(), arrival: space.arrival() })
    }

    fn arrivals(&self) -> u64 {
        self.spaces.arrivals()
    }

    fn take_ran(&self, space: SpaceId, node: NodeId) -> bool {
        let ran = self.spaces.get(space).is_some_and(|space| space.take_ran(node));
        // A CPU that is never interrupted does not begin to run the space again.
        ran || self.core.tlb.is_running(space)
    }

    fn next_range(&self, space: SpaceId, from: Vpn) -> Option<WalkRange> {
        Some(self.walk_range(&self.spaces.get(space)?.range_from(from, shows_use)?))
    }

    fn try_next_range(&self, space: SpaceId, from: Vpn) -> Option<WalkRange> {
        Some(self.walk_range(&self.spaces.get(space)?.try_range_from(from, shows_use)?))
    }

    fn thrashes(&self) {
        let unmet = Unmet::by_kernel("all memory was used within lru_gen.min_ttl_ms");
        self.out_of_memory(&unmet, None, &mut Retries::default());
    }
}
