//! Memory policies: the nodes from which a range of addresses, or a process, allocates.
//!
//! A policy decides when a page is first used. A resident page stays where it is unless a call moves it. Demotion by
//! reclaim ignores policies, as in Linux.
//!
//! Source: mm/mempolicy.c of Linux 6.12. For a process, Linux interleaves allocation by allocation; here the page's
//! number decides, so that a run does not depend on the order of faults. Weighted interleaving is not supported.

use crate::machine::Machine;
use crate::units::*;
use abi::{Errno, PolicyMode};

/// Bits of the node mask in a policy's word.
const NODE_BITS: u32 = 40;

/// Bits of the mode above them. The remaining bits hold the page of a [`NodePreference`].
const MODE_BITS: u32 = 4;

/// A mode and its nodes, in one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct MemPolicy(u64);

impl MemPolicy {
    /// The default policy: allocate on the local node.
    pub(crate) const DEFAULT: MemPolicy = MemPolicy(0);

    /// `None` if the mode needs nodes and has none, takes none and has some, or a node number is too large.
    pub fn new(mode: PolicyMode, nodes: Nodes) -> Option<MemPolicy> {
        let named = nodes.0 != 0;
        let fits = nodes.0 >> NODE_BITS == 0 && named == (mode != PolicyMode::Default);
        fits.then_some(MemPolicy((mode as u64) << NODE_BITS | nodes.0))
    }

    #[inline]
    pub(crate) const fn of_word(word: u64) -> MemPolicy {
        MemPolicy(word)
    }

    /// Encode as a word.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// Whether this is the default policy.
    #[inline]
    pub(crate) const fn is_default(self) -> bool {
        self.0 == 0
    }

    /// The mode.
    pub fn mode(self) -> PolicyMode {
        PolicyMode::ALL[(self.0 >> NODE_BITS) as usize % PolicyMode::ALL.len()]
    }

    /// The nodes.
    pub const fn nodes(self) -> Nodes {
        Nodes(self.0 & ((1 << NODE_BITS) - 1))
    }
}

impl TryFrom<abi::MemPolicy> for MemPolicy {
    type Error = Errno;

    fn try_from(policy: abi::MemPolicy) -> Result<MemPolicy, Errno> {
        MemPolicy::new(policy.mode, Nodes(policy.nodes)).ok_or(Errno::Inval)
    }
}

/// The nodes for one request: a policy and, truncated, the number of the page, in one word. The truncation restarts an
/// interleave over a number of nodes that is not a power of two every 4 GiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodePreference(u64);

impl NodePreference {
    /// The local node first.
    pub const NEAR: NodePreference = NodePreference(0);

    /// By a policy other than the default.
    pub const fn by(policy: MemPolicy, index: u64) -> NodePreference {
        NodePreference(policy.0 | index << (NODE_BITS + MODE_BITS))
    }

    /// Whether the local node comes first.
    #[inline]
    pub const fn is_near(self) -> bool {
        self.0 == 0
    }

    const fn policy(self) -> MemPolicy {
        MemPolicy(self.0 & ((1 << (NODE_BITS + MODE_BITS)) - 1))
    }

    /// Whether the page's number chooses the node.
    #[inline]
    pub(crate) fn is_interleaved(self) -> bool {
        !self.is_near() && self.policy().mode() == PolicyMode::Interleave
    }

    /// The preferred node for a request of a CPU on `here`, and the nodes that are allowed.
    #[cold]
    #[inline(never)]
    pub fn choose<M: Machine>(self, machine: &M, here: NodeId, order: Order) -> (NodeId, Nodes) {
        let nodes = self.policy().nodes();
        let nearest = || {
            let distance = |node: NodeId| if node == here { 0 } else { machine.distance(here, node) };
            nodes.named().min_by_key(|&node| (distance(node), node)).unwrap_or(here)
        };
        match self.policy().mode() {
            PolicyMode::Default => (here, Nodes::ALL),
            PolicyMode::Preferred => (nearest(), Nodes::ALL),
            PolicyMode::Bind => (nearest(), nodes),
            PolicyMode::Interleave => {
                let turn =
                    (self.0 >> (NODE_BITS + MODE_BITS) >> order.0) % u64::from(nodes.0.count_ones()).max(1);
                (nodes.named().nth(turn as usize).unwrap_or(here), Nodes::ALL)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::ZoneKind;
    use crate::testing::{TestMachine, range};

    #[test]
    fn policy_word_round_trips() {
        for mode in PolicyMode::ALL {
            let nodes = Nodes(if mode == PolicyMode::Default { 0 } else { 1 << 39 | 0b101 });
            let policy = MemPolicy::new(mode, nodes).unwrap();
            assert_eq!((policy.mode(), policy.nodes()), (mode, nodes));
            assert_eq!(MemPolicy::of_word(policy.word()), policy);
            assert_eq!(policy.is_default(), mode == PolicyMode::Default);
            // Missing nodes, nodes that the mode does not take, and node numbers that are too large.
            assert_eq!(MemPolicy::new(mode, Nodes(if nodes.0 == 0 { 1 } else { 0 })), None);
            assert_eq!(MemPolicy::new(mode, Nodes(1 << 40)), None);
        }
    }

    #[test]
    fn preference_chooses_nodes_by_mode() {
        let memory = [0, 1, 2].map(|node| range(node, ZoneKind::Normal, u32::from(node) * 4096, 4096));
        let machine = TestMachine::new(&[0, 1, 2], &memory);
        let choose = |mode, nodes, index, order| {
            let policy = MemPolicy::new(mode, Nodes(nodes)).unwrap();
            NodePreference::by(policy, index).choose(&machine, NodeId(1), Order(order))
        };
        assert_eq!(choose(PolicyMode::Preferred, 0b110, 7, 0), (NodeId(1), Nodes::ALL));
        assert_eq!(choose(PolicyMode::Bind, 0b101, 7, 0), (NodeId(0), Nodes(0b101)));
        let turns = [0, 1, 2, 3].map(|index| choose(PolicyMode::Interleave, 0b101, index, 0).0);
        assert_eq!(turns, [0, 2, 0, 2].map(NodeId));
        let large = [0, 511, 512, 1024].map(|index| choose(PolicyMode::Interleave, 0b101, index, 9).0);
        assert_eq!(large, [0, 0, 2, 0].map(NodeId));
    }
}
