//! What reads of memory cost, and which reads are sampled.

mod load;
mod sample;

use crate::cpu::{Cpu, add};
use crate::spec::MachineSpec;
use load::Load;
use mm::machine::Reads;
use mm::units::{NodeId, Pfn};
use sample::Sampler;
use std::cell::Cell;
use std::rc::Rc;

/// A range of memory.
struct Range {
    node: NodeId,
    /// Its end, as a frame number.
    end: u32,
    /// Picoseconds that the first line of a read takes, by the node of the CPU.
    first: Vec<u64>,
    /// Picoseconds of each further line.
    line: u64,
    /// How busy its node is, if that matters.
    load: Option<Rc<Load>>,
    /// Lines that programs read of it; counted on machines with tiers only.
    lines: Cell<u64>,
}

/// The memory of a machine.
pub(crate) struct Memory {
    ranges: Vec<Range>,
    /// Whether some node has no CPUs: then lines are counted, and reads may be sampled.
    tiered: bool,
    pub(crate) sampler: Sampler,
}

impl Memory {
    /// The memory that `spec` describes, idle.
    pub(crate) fn new(spec: &MachineSpec, cpus: usize) -> Memory {
        let nodes = spec.nodes();
        let loads: Vec<_> =
            nodes.iter().map(|node| node.loaded.as_ref().map(|loaded| Rc::new(Load::new(loaded)))).collect();
        let range = |range: &mm::machine::MemoryRange| {
            let to = range.node.index();
            Range {
                node: range.node,
                end: range.start.0 + range.frames,
                first: (0..nodes.len()).map(|from| spec.latency(from, to)).collect(),
                line: spec.line(to),
                load: loads[to].clone(),
                lines: Cell::new(0),
            }
        };
        Memory {
            ranges: spec.ranges().iter().map(range).collect(),
            tiered: nodes.iter().any(|node| node.cpus == 0),
            sampler: Sampler::new(cpus),
        }
    }

    /// Sample one line in `every`, on machines with tiers.
    pub(crate) fn sample(&self, every: u64) {
        if self.tiered {
            self.sampler.start(every);
        }
    }

    /// Picoseconds that `cpu` takes to read `lines` cache lines of a page: it waits for the first, the others stream.
    pub(crate) fn read(&self, cpu: &Cpu, pfn: Pfn, lines: u64) -> u64 {
        let found = self.ranges.iter().find(|range| pfn.0 < range.end);
        let range = found.unwrap_or(&self.ranges[self.ranges.len() - 1]);
        if self.tiered {
            add(&range.lines, lines);
        }
        let (first, rest) = (range.first[cpu.node as usize], (lines - 1) * range.line);
        match &range.load {
            Some(load) => load.read(cpu.clock.get(), lines, first, rest),
            None => first + rest,
        }
    }

    /// Lines that programs read of the memory of each node, range by range.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.ranges.iter().map(|range| (range.node, range.lines.get()))
    }

    /// Mean nanoseconds of first lines, of each node on which that depends on the load.
    pub(crate) fn loaded_latencies(&self) -> Vec<(usize, u64)> {
        let latency = |range: &Range| Some((range.node.index(), range.load.as_ref()?.mean()));
        let mut by_node: Vec<(usize, u64)> = self.ranges.iter().filter_map(latency).collect();
        by_node.dedup();
        by_node
    }

    /// What programs read of a node's memory, if it has a curve of loaded latencies.
    pub(crate) fn reads_of(&self, node: NodeId) -> Option<Reads> {
        let range = self.ranges.iter().find(|range| range.node == node)?;
        let idle = range.first.iter().min().map_or(0, |picos| picos / 1000);
        Some(range.load.as_ref()?.reads(idle))
    }
}

/// Whether a frame is memory of a node with CPUs.
pub(crate) fn is_fast(spec: &MachineSpec, pfn: Pfn) -> bool {
    let range = spec.ranges().iter().find(|range| pfn.0 < range.start.0 + range.frames);
    range.is_some_and(|range| spec.nodes()[range.node.index()].cpus > 0)
}

/// Nanoseconds by which a CPU of node `near` takes longer to read lines from memory of nodes without CPUs than from its
/// own, at rest.
pub(crate) fn slow_read_penalty(spec: &MachineSpec, near: usize, lines: u64) -> f64 {
    let slow = spec.nodes().iter().position(|node| node.cpus == 0).unwrap_or(near);
    let takes = |node| (spec.latency(near, node) + (lines - 1) * spec.line(node)) as f64;
    ((takes(slow) - takes(near)) / 1000.0).max(0.0)
}
