//! What reads of memory take, and task switches.

use super::load::Load;
use super::{Cpu, SimMachine};
use crate::spec::{Hardware, MachineSpec};
use mm::machine::{MemoryRange, Reads};
use mm::units::{NodeId, Pfn};
use std::rc::Rc;

/// For each range of memory its end, the read latency from each node, and the time of a further line.
pub(super) fn latencies(spec: &MachineSpec) -> Vec<(u32, Vec<u64>, u64)> {
    let of_range = |range: &MemoryRange| {
        let to = range.node.index();
        let by_node = (0..spec.nodes().len()).map(|from| spec.latency(from, to)).collect();
        (range.start.0 + range.frames, by_node, spec.line(to))
    };
    spec.ranges().iter().map(of_range).collect()
}

/// For each range of memory, how busy its node is.
pub(super) fn loads(spec: &MachineSpec) -> Vec<Option<Rc<Load>>> {
    let nodes = spec.nodes();
    if nodes.iter().all(|node| node.loaded.is_none()) {
        return Vec::new();
    }
    let by_node: Vec<_> =
        nodes.iter().map(|node| node.loaded.as_ref().map(|it| Rc::new(Load::new(it)))).collect();
    spec.ranges().iter().map(|range| by_node[range.node.index()].clone()).collect()
}

impl SimMachine {
    /// Picoseconds to bring `lines` cache lines of a page from memory: the first is waited for, the others stream.
    pub(crate) fn memory_time(&self, cpu: &Cpu, pfn: Pfn, lines: u64) -> u64 {
        let found = self.latency.iter().position(|(end, ..)| pfn.0 < *end);
        let at = found.unwrap_or(self.latency.len() - 1);
        let (_, by_node, line) = &self.latency[at];
        if let Some(read) = self.read_lines.get(at) {
            read.set(read.get() + lines);
            if self.sampler.is_on() {
                self.sample_read(cpu, pfn, lines);
            }
        }
        let (first, rest) = (by_node[cpu.node as usize], (lines - 1) * line);
        match self.loads.get(at) {
            Some(Some(load)) => load.read(cpu.clock.get(), lines, first, rest),
            _ => first + rest,
        }
    }

    /// Nanoseconds that first lines took on nodes where that depends on how busy they are, in the mean.
    pub(crate) fn loaded_latencies(&self) -> Vec<(usize, u64)> {
        let mut by_node: Vec<(usize, u64)> = (self.loads.iter().zip(self.spec.ranges()))
            .filter_map(|(load, range)| Some((range.node.index(), load.as_ref()?.mean())))
            .collect();
        by_node.dedup();
        by_node
    }

    /// What was read of a node's memory, if it is known how long that takes under load.
    pub(super) fn reads_of_node(&self, node: NodeId) -> Option<Reads> {
        let at = self.spec.ranges().iter().position(|range| range.node == node)?;
        let idle = self.latency[at].1.iter().min().map_or(0, |picos| picos / 1000);
        Some(self.loads.get(at)?.as_ref()?.reads(idle))
    }

    /// A task switch takes time.
    pub(crate) fn charge_switch(&self) {
        let count = &self.here().counts.switches;
        count.set(count.get() + 1);
        self.spend_hardware(Hardware::ContextSwitch, 1);
    }
}
