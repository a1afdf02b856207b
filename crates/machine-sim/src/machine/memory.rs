//! What reads of memory take, and task switches.

use super::load::Load;
use super::{Cpu, SimMachine};
use crate::placement::{Placement, Read};
use crate::spec::{Hardware, MachineSpec};
use mm::hot::PageName;
use mm::machine::{MemoryRange, Reads, Work};
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

/// Who holds placement against the best there could be. Memory of one tier: an error, in words.
pub(super) fn placement(spec: &MachineSpec) -> Result<Placement, String> {
    let fast = |range: &&MemoryRange| spec.nodes()[range.node.index()].cpus > 0;
    let node = |has_cpus: bool| spec.nodes().iter().position(|node| (node.cpus > 0) == has_cpus);
    let (Some(near), Some(slow)) = (node(true), node(false)) else {
        return Err("placement needs memory of two tiers, a node with CPUs and one without, and this machine has one \
                    (tiers, luf-cxl and colloid have two: `pagefold list machines`)"
            .into());
    };
    let room = spec.ranges().iter().filter(fast).map(|range| u64::from(range.frames)).sum();
    let end = spec.ranges().last().map_or(0, |range| range.start.0 + range.frames) as usize;
    let saved = spec.latency(near, slow).saturating_sub(spec.latency(near, near)) as f64 / 1000.0;
    let move_cost = spec.costs().work(Work::CopyPage) as f64 / 1000.0;
    Ok(Placement::new(end, room, saved, move_cost))
}

impl SimMachine {
    /// Does a frame belong to memory of nodes with CPUs?
    pub(crate) fn is_fast(&self, pfn: Pfn) -> bool {
        let range = self.spec.ranges().iter().find(|range| pfn.0 < range.start.0 + range.frames);
        range.is_some_and(|range| self.spec.nodes()[range.node.index()].cpus > 0)
    }

    /// Nanoseconds by which a read of so many lines takes longer in memory of nodes without CPUs than in the CPU's own,
    /// at rest.
    fn longer_when_slow(&self, cpu: &Cpu, lines: u64) -> f64 {
        let (near, nodes) = (cpu.node as usize, self.spec.nodes());
        let slow = nodes.iter().position(|node| node.cpus == 0).unwrap_or(near);
        let takes = |node| (self.spec.latency(near, node) + (lines - 1) * self.spec.line(node)) as f64;
        ((takes(slow) - takes(near)) / 1000.0).max(0.0)
    }

    /// A program reads memory of the page of this name.
    #[cold]
    pub(crate) fn placed(&self, cpu: &Cpu, page: PageName, frame: Pfn, lines: u64) {
        let Some(placement) = &self.placement else { return };
        let (fast, longer) = (self.is_fast(frame), self.longer_when_slow(cpu, lines));
        placement.borrow_mut().read(Read { page: page.number(), frame, fast, lines, longer });
    }

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
