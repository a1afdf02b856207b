//! Memory tiers: which nodes are fast, and where each node demotes to.
//!
//! Each node's memory has an *abstract distance*; smaller is faster. Nodes whose distances fall into the same chunk
//! form a tier. The slowest tier with a CPU and all faster ones are the *top* tiers: nothing is promoted from them. A
//! node demotes to the nearest nodes of the next lower tier, or, if those are full, to any lower one.
//!
//! The table is built when the machine starts and is below reclaim, which reads it. Nodes are not hotplugged.
//!
//! Source: mm/memory-tiers.c of Linux 6.12.

use crate::machine::{DRAM_DISTANCE, Machine};
use crate::primitive::{AtomicU32, Ordering::Relaxed};
use crate::units::*;
use std_alloc::boxed::Box;
use std_alloc::vec::Vec;

/// log2 of the distances in a tier.
const CHUNK_BITS: u32 = 7;

/// The abstract distance of memory with these figures relative to DRAM; each figure is the sum for reads and writes,
/// in any unit. Rounds as `mt_perf_to_adistance` does.
pub fn distance_of(latency: u64, bandwidth: u64, dram_latency: u64, dram_bandwidth: u64) -> u32 {
    (u64::from(DRAM_DISTANCE) * latency / dram_latency * dram_bandwidth / bandwidth) as u32
}

/// The tier of a node and its demotion targets.
#[derive(Default)]
struct TierNode {
    present: bool,
    top: bool,
    /// The nearest nodes of the next lower tier.
    next: Box<[NodeId]>,
    lower: Box<[NodeId]>,
    /// Index of the next target in `next`.
    turn: AtomicU32,
}

/// The tiers of a machine.
pub struct Tiers {
    nodes: Box<[TierNode]>,
    /// For each node, the nearest top-tier node with memory.
    nearest_top: Box<[NodeId]>,
    many: bool,
}

impl Tiers {
    /// The tiers of `machine`.
    pub fn new<M: Machine>(machine: &M) -> Tiers {
        let count = (0..machine.cpus()).map(|cpu| machine.node_of(CpuId(cpu as u16)));
        let count = count.chain(machine.memory().iter().map(|range| range.node)).map(NodeId::index).max();
        let count = count.map_or(1, |last| last + 1);
        let ids = || (0..count as u8).map(NodeId);
        let has_memory = |node| machine.memory().iter().any(|range| range.node == node);
        let tier = |node| machine.memory_distance(node) >> CHUNK_BITS;
        let cpus = (0..machine.cpus()).map(|cpu| machine.node_of(CpuId(cpu as u16)));
        // If no CPU is on a node with memory, all memory is one top tier.
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

    /// Whether there is memory below the top tiers.
    #[inline]
    pub fn many(&self) -> bool {
        self.many
    }

    /// Whether the node is in a top tier.
    #[inline]
    pub fn is_top(&self, node: NodeId) -> bool {
        self.nodes[node.index()].top
    }

    /// Whether there is a tier below the node's.
    #[inline]
    pub(crate) fn has_lower(&self, node: NodeId) -> bool {
        !self.nodes[node.index()].next.is_empty()
    }

    /// The node's first demotion target, if any: the nearest nodes of the next lower tier, round robin. (Linux picks
    /// one at random.)
    pub(crate) fn demotion_target(&self, node: NodeId) -> Option<NodeId> {
        let TierNode { next, turn, .. } = &self.nodes[node.index()];
        match &**next {
            [] => None,
            [only] => Some(*only),
            several => Some(several[turn.fetch_add(1, Relaxed) as usize % several.len()]),
        }
    }

    /// All nodes of lower tiers, nearest first.
    pub(crate) fn lower(&self, node: NodeId) -> &[NodeId] {
        &self.nodes[node.index()].lower
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the node has memory.
    pub(crate) fn has_memory(&self, node: NodeId) -> bool {
        self.nodes[node.index()].present
    }

    /// The top-tier node nearest to the CPUs of `node`.
    pub(crate) fn nearest_top(&self, node: NodeId) -> NodeId {
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
