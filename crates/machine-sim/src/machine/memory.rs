//! What reads of memory take, and task switches.

use super::{Cpu, SimMachine};
use crate::spec::Hardware;
use mm::units::Pfn;

impl SimMachine {
    /// Picoseconds to bring `lines` cache lines of a page from memory: the first is waited for, the others stream.
    pub(crate) fn memory_time(&self, cpu: &Cpu, pfn: Pfn, lines: u64) -> u64 {
        let found = self.latency.iter().position(|(end, ..)| pfn.0 < *end);
        let at = found.unwrap_or(self.latency.len() - 1);
        let (_, by_node, line) = &self.latency[at];
        if let Some(read) = self.read_lines.get(at) {
            read.set(read.get() + lines);
        }
        by_node[cpu.node as usize] + (lines - 1) * line
    }

    /// A task switch takes time.
    pub(crate) fn charge_switch(&self) {
        let count = &self.here().counts.switches;
        count.set(count.get() + 1);
        self.spend_hardware(Hardware::ContextSwitch, 1);
    }
}
