//! Tiers of memory: which nodes are fast, and where what is cold goes from each.
//!
//! Each node's memory has an *abstract distance*; smaller is faster. Nodes whose distances lie in the same chunk are
//! one tier. The slowest tier that has a CPU, and all above it, are the *top* tiers: nothing is promoted from them.
//! What is cold goes from a node to the nearest nodes of the next lower tier, and where those have no room, to any
//! lower one.
//!
//! The table is made when the machine starts and stands below reclaim, which asks it; nodes neither come nor go.
//!
//! Source: mm/memory-tiers.c of Linux 6.12.

use crate::machine::Machine;
use crate::primitive::{AtomicU32, Ordering::Relaxed};
use crate::units::*;
use std_alloc::boxed::Box;
use std_alloc::vec::Vec;

/// Distances of one tier: log2.
const CHUNK_BITS: u32 = 7;
/// The abstract distance of DRAM: in the middle of its chunk, with four chunks before it.
pub const DRAM_DISTANCE: u32 = 4 * (1 << CHUNK_BITS) + (1 << CHUNK_BITS) / 2;

/// The abstract distance of memory with these figures, in any unit, beside those of DRAM; read and write are added up.
/// In the order of operations, and with the losses, of `mt_perf_to_adistance`.
pub fn distance_of(latency: u64, bandwidth: u64, dram_latency: u64, dram_bandwidth: u64) -> u32 {
    (u64::from(DRAM_DISTANCE) * latency / dram_latency * dram_bandwidth / bandwidth) as u32
}

/// What is known of a node.
#[derive(Default)]
struct TierNode {
    /// Has it memory?
    present: bool,
    /// Is nothing promoted from it?
    top: bool,
    /// Nodes of the next lower tier, of those that are nearest.
    next: Box<[NodeId]>,
    /// All nodes of lower tiers, the nearest first.
    lower: Box<[NodeId]>,
    /// Whose turn it is among `next`.
    turn: AtomicU32,
}

/// The tiers of a machine.
pub struct Tiers {
    nodes: Box<[TierNode]>,
    /// The node with memory that is the nearest of the top tiers', by node.
    nearest_top: Box<[NodeId]>,
    many: bool,
}

impl Tiers {
    /// Of this machine.
    pub fn new<M: Machine>(machine: &M) -> Tiers {
        let count = (0..machine.cpus()).map(|cpu| machine.node_of(CpuId(cpu as u16)));
        let count = count.chain(machine.memory().iter().map(|range| range.node)).map(NodeId::index).max();
        let count = count.map_or(1, |last| last + 1);
        let ids = || (0..count as u8).map(NodeId);
        let has_memory = |node| machine.memory().iter().any(|range| range.node == node);
        let tier = |node| machine.memory_distance(node) >> CHUNK_BITS;
        let cpus = (0..machine.cpus()).map(|cpu| machine.node_of(CpuId(cpu as u16)));
        // Of a machine whose CPUs sit on nodes without memory, all memory is the same to them.
        let slowest_top = cpus.filter(|&node| has_memory(node)).map(tier).max().unwrap_or(u32::MAX);
        let with_memory: Vec<NodeId> = ids().filter(|&node| has_memory(node)).collect();
        let nodes: Box<[TierNode]> = ids()
            .map(|node| {
                if !has_memory(node) {
                    return TierNode::default();
                }
                let mut lower: Vec<NodeId> =
                    with_memory.iter().copied().filter(|&other| tier(other) > tier(node)).collect();
                lower.sort_by_key(|&other| (machine.distance(node, other), other));
                let next_tier = lower.iter().map(|&other| tier(other)).min();
                let next = || lower.iter().copied().filter(|&other| Some(tier(other)) == next_tier);
                let best = next().map(|other| machine.distance(node, other)).min();
                TierNode {
                    present: true,
                    top: tier(node) <= slowest_top,
                    next: next().filter(|&other| Some(machine.distance(node, other)) == best).collect(),
                    lower: lower.into(),
                    turn: AtomicU32::new(0),
                }
            })
            .collect();
        let tops = || with_memory.iter().copied().filter(|&node| nodes[node.index()].top);
        let nearest_top = ids()
            .map(|from| tops().min_by_key(|&node| (machine.distance(from, node), node)).unwrap_or(from))
            .collect();
        let many = nodes.iter().any(|node| node.present && !node.top);
        Tiers { nodes, nearest_top, many }
    }

    /// Is there memory below the top tiers?
    #[inline]
    pub fn many(&self) -> bool {
        self.many
    }

    /// Does the node belong to a top tier?
    #[inline]
    pub fn is_top(&self, node: NodeId) -> bool {
        self.nodes[node.index()].top
    }

    /// Has the node a lower tier below it?
    #[inline]
    pub fn has_lower(&self, node: NodeId) -> bool {
        !self.nodes[node.index()].next.is_empty()
    }

    /// Where what is cold on a node goes first, if anywhere: the nearest nodes of the next lower tier in turn. (Linux
    /// draws one by lot.)
    pub fn demotion_target(&self, node: NodeId) -> Option<NodeId> {
        let TierNode { next, turn, .. } = &self.nodes[node.index()];
        match &**next {
            [] => None,
            [only] => Some(*only),
            several => Some(several[turn.fetch_add(1, Relaxed) as usize % several.len()]),
        }
    }

    /// All nodes of lower tiers, the nearest first.
    pub fn lower(&self, node: NodeId) -> &[NodeId] {
        &self.nodes[node.index()].lower
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Has the node memory?
    pub fn has_memory(&self, node: NodeId) -> bool {
        self.nodes[node.index()].present
    }

    /// The node of the top tiers that is the nearest to who runs on `node`.
    pub fn nearest_top(&self, node: NodeId) -> NodeId {
        self.nearest_top[node.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// reclaim.md, 4.1: DRAM is in the fifth chunk; twice the latency at half the bandwidth is four times as far.
    #[test]
    fn distances_follow_from_measurements() {
        assert_eq!((DRAM_DISTANCE, DRAM_DISTANCE >> CHUNK_BITS), (576, 4));
        assert_eq!(distance_of(100, 20, 100, 20), 576);
        assert_eq!(distance_of(200, 10, 100, 20), 2304);
        assert_eq!(distance_of(255, 9, 115, 12), 576 * 255 / 115 * 12 / 9);
    }
}
