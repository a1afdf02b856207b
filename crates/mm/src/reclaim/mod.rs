//! Reclaim: find cold folios and free them.
//!
//! Reclaim runs in four cases: each node's [`kswapd`] reclaims in the background, from the low mark up to the high one;
//! an allocation that found no memory reclaims directly ([`direct`]); so does a group at its limit ([`group`]), and a
//! program that gives pages up ([`pageout`]).
//!
//! `node` makes passes over a node's groups with rising priority. A front end (`classic`, `mglru` or `proposed`)
//! chooses folios and maintains the lists. All chosen folios go through one shared inner loop, `shrink`, which unmaps,
//! writes and frees.
//!
//! No caller holds a [`Lock`](crate::lock::Lock), and batches need no memory: they are lists that are linked through
//! the frame table.

pub mod balance;
mod classic;
mod control;
mod deferred;
mod demote;
mod direct;
mod kswapd;
mod mglru;
mod node;
mod pageout;
mod pass;
mod promotion;
mod proposed;
mod references;
mod shrink;
mod shrinkers;
pub mod spaces;
mod stretch;
#[cfg(test)]
mod tests;
mod throttle;

pub(crate) use control::*;
pub(crate) use demote::Slower;
pub(crate) use direct::{Retries, should_retry, should_retry_group};
pub use direct::{direct, group, pageout};
pub use kswapd::kswapd;
pub use mglru::aging::caps;
pub use mglru::command::{CommandError, command};
pub(crate) use promotion::look_at_slow_tiers;
pub use spaces::{AddressSpaces, Member, WalkRange};
pub(crate) use throttle::Throttle;

use crate::arena::Arena;
use crate::knobs::Knob;
use crate::lru::{LruList, PolicyKind};
use crate::machine::{Machine, ZoneKind};
use crate::memory::Memory;
use crate::mm_core::MmCore;
use crate::primitive::{AtomicBool, AtomicI64, AtomicU32, Ordering::*};
use crate::stat::Stat;
use crate::units::*;
use std_alloc::boxed::Box;
use std_alloc::format;
use std_alloc::string::String;

#[derive(Default)]
struct NodeState {
    /// Rounds of kswapd without progress.
    failures: AtomicU32,
    /// kswapd may write pages of files: it found only dirty ones that are not under write-back.
    dirty: AtomicBool,
    /// Dirty pages reach the tail of the lists faster than they are written.
    writeback: AtomicBool,
    /// Pages that reclaim has isolated: anonymous, file.
    isolated: [AtomicI64; 2],
    /// Number of throttled reclaimers, and of wake-ups sent to them, by reason.
    waiters: [AtomicU32; Throttle::COUNT],
    wakes: [AtomicU32; Throttle::COUNT],
    /// Number of reclaimers that wait for writes.
    writeback_throttled: AtomicU32,
    /// The groups in the order in which their generations are evicted.
    groups: mglru::groups::GroupOrder,
}

/// State of reclaim.
pub struct ReclaimState {
    nodes: Box<[NodeState]>,
    /// The state of aging of each vector that was aged, by group, then by node.
    aging: Arena<mglru::aging::Aging>,
}

impl ReclaimState {
    /// State for all nodes of the machine.
    pub fn new<M: Machine>(memory: &Memory<M>) -> ReclaimState {
        let nodes = memory.alloc.nodes().max(memory.lru.nodes());
        ReclaimState { nodes: (0..nodes).map(|_| NodeState::default()).collect(), aging: Arena::default() }
    }

    fn node(&self, node: NodeId) -> &NodeState {
        &self.nodes[node.index()]
    }

    /// What the walk of page tables for the generation after `seq` has counted: entries, young entries, tables, dense
    /// tables.
    pub(crate) fn walked(&self, node: NodeId, group: GroupId, seq: u64) -> [u64; 4] {
        self.aging(node, group).stats(seq)
    }

    fn groups(&self, node: NodeId) -> &mglru::groups::GroupOrder {
        &self.node(node).groups
    }

    fn aging(&self, node: NodeId, group: GroupId) -> &mglru::aging::Aging {
        self.aging.ensure((group.index() * self.nodes.len() + node.index()) as u32)
    }

    /// Reclaim holds no page while it lets other tasks run. So nothing is isolated when only waiting daemons are inside
    /// the memory manager.
    pub fn validate<M: Machine>(&self, memory: &Memory<M>) -> Result<(), String> {
        for (file, stat) in [Stat::NrIsolatedAnon, Stat::NrIsolatedFile].into_iter().enumerate() {
            let held: i64 = self.nodes.iter().map(|node| node.isolated[file].load(Relaxed)).sum();
            let counted = memory.stats.read(stat);
            if (held, counted) != (0, 0) {
                return Err(format!(
                    "{} is {counted}, reclaim holds {held} pages; both should be 0",
                    stat.name()
                ));
            }
        }
        Ok(())
    }

    /// Whether kswapd has given the node up.
    pub(crate) fn is_hopeless(&self, node: NodeId) -> bool {
        self.node(node).failures.load(Relaxed) >= MAX_RECLAIM_RETRIES
    }
}

/// The state that a reclaim works on.
struct Reclaim<'a, M> {
    core: &'a MmCore<M>,
    state: &'a ReclaimState,
    spaces: &'a dyn AddressSpaces,
}

impl<M> Clone for Reclaim<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for Reclaim<'_, M> {}

/// The front end of a replacement policy: it chooses the folios that the shared inner loop decides about. It belongs to
/// the [`Policy`](crate::lru) of the same name.
trait Front<M> {
    /// Make a pass over all groups of a node, or those below the reclaim's target, in the front end's own order.
    /// Returns `false` if it has no such order.
    fn shrink_node(&self, _cx: Reclaim<'_, M>, _node: NodeId, _sc: &mut ScanControl) -> bool {
        false
    }

    /// Look at the node as a whole before a pass over its groups.
    fn prepare(&self, _cx: Reclaim<'_, M>, _node: NodeId, _sc: &mut ScanControl) {}

    /// Reclaim from one group's vector on a node.
    fn shrink_vec(&self, cx: Reclaim<'_, M>, node: NodeId, group: GroupId, sc: &mut ScanControl);

    /// Age the pages of a node before a pass of kswapd.
    fn age_node(&self, _cx: Reclaim<'_, M>, _node: NodeId, _sc: &mut ScanControl) {}

    /// A reclaim of the group `top` (the root: of the node) has ended.
    fn finish(&self, _cx: Reclaim<'_, M>, _node: NodeId, _top: GroupId) {}
}

impl<M: Machine> Reclaim<'_, M> {
    fn node(&self, node: NodeId) -> &NodeState {
        self.state.node(node)
    }

    /// The front end for a group's folios; that of the root is also for nodes as a whole.
    fn front(&self, group: GroupId) -> &dyn Front<M> {
        match self.core.lru.policy_in(group) {
            PolicyKind::Classic => &classic::ClassicFront,
            PolicyKind::MgLru => &mglru::MglruFront,
            PolicyKind::Proposed(_) => &proposed::ProposedFront,
        }
    }

    /// Reclaim from one group's vector on a node, in a pass over the groups below the reclaim's target.
    fn shrink_vec(self, node: NodeId, group: GroupId, sc: &mut ScanControl) {
        let front = self.front(group);
        if group != sc.top() && self.core.lru.policy_in(group) != self.core.lru.policy_in(sc.top()) {
            // Another front end has looked at the node as a whole.
            front.prepare(self, node, sc);
        }
        front.shrink_vec(self, node, group, sc);
    }

    /// The swappiness for a group's memory.
    fn wanted_swappiness(&self, group: GroupId, sc: &ScanControl) -> u64 {
        let of_group = || self.core.lru.groups.swappiness(group);
        let of_all = || self.core.knobs.get(Knob::Swappiness);
        sc.swappiness.or_else(of_group).unwrap_or_else(of_all)
    }

    /// Reclaim made progress on a node: kswapd may try again.
    fn made_progress(&self, node: NodeId) {
        if self.node(node).failures.load(Relaxed) != 0 {
            self.node(node).failures.store(0, Relaxed);
            self.core.alloc.set_hopeless(node, false);
        }
    }

    /// Change the count of pages that reclaim has isolated.
    fn note_isolated(&self, node: NodeId, file: bool, by: i64) {
        self.node(node).isolated[file as usize].fetch_add(by, Relaxed);
        self.core.count([Stat::NrIsolatedAnon, Stat::NrIsolatedFile][file as usize], by);
    }

    /// Whether a group's anonymous pages of a node can be swapped or demoted, or some have a slot already.
    fn can_swap(&self, node: NodeId, group: GroupId) -> bool {
        self.core.swap.free_for(group) > 0 || in_swap_cache(self.core) > 0 || self.demotes(node)
    }

    /// Whether it is useful to age the anonymous pages of a node.
    fn can_age_anon(&self, node: NodeId) -> bool {
        self.core.swap.total() > 0 || self.demotes(node)
    }
}

/// Pages of a kind of zone that reclaim could free at best.
pub fn reclaimable<M: Machine>(core: &MmCore<M>, node: NodeId, kind: ZoneKind) -> u64 {
    let vec = core.lru.node_vec(node);
    let file = vec.pages_in(LruList::InactiveFile, kind) + vec.pages_in(LruList::ActiveFile, kind);
    let anon = vec.pages_in(LruList::InactiveAnon, kind) + vec.pages_in(LruList::ActiveAnon, kind);
    if core.swap.free_slots() > 0 || demote::demotes(core, node) {
        file + anon
    } else {
        file + anon.min(in_swap_cache(core))
    }
}

/// Pages that have a swap slot: they can be freed even when swap is full, some after a write. (Linux ignores them then,
/// and may run out of memory while they are under write-back.)
fn in_swap_cache<M: Machine>(core: &MmCore<M>) -> u64 {
    core.stats.read(Stat::NrSwapcached).max(0) as u64
}
