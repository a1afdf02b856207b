//! The simulated twin of a booted machine: the same CPUs, nodes and swap space, for the side-by-side of `pagefold
//! boot`.
//!
//! It is the preset `small`, repeated, with what QEMU's emulation of a PC lacks left out: its CPUs have no
//! address-space numbers, so every switch flushes.

use super::{Bytes, Distances, MachineSpec, lay_out};
use mm::machine::MAX_CPUS;
use mm::units::PAGE_SIZE;

/// Text before the shape in the name of such a machine.
const PREFIX: &str = "booted:";

impl MachineSpec {
    /// The machine of the name `booted:CPUS:NODES:SWAP`, if it is such a name: like `booted:4:1:128M`, with one or two
    /// nodes.
    pub fn from_booted_name(name: &str) -> Option<MachineSpec> {
        let mut parts = name.strip_prefix(PREFIX)?.split(':');
        let cpus: u32 = parts.next()?.parse().ok().filter(|cpus| (1..=MAX_CPUS as u32).contains(cpus))?;
        let nodes: u32 = parts.next()?.parse().ok().filter(|nodes| (1..=2).contains(nodes))?;
        let swap = Bytes::parse(parts.next()?).filter(|swap| swap.0 / PAGE_SIZE <= u64::from(u32::MAX))?;
        parts.next().is_none().then(|| booted(name, cpus, nodes, swap))
    }
}

fn booted(name: &str, cpus: u32, nodes: u32, swap: Bytes) -> MachineSpec {
    let mut spec = MachineSpec::preset("small").expect("the preset exists");
    spec.name = name.into();
    let file = &mut spec.file;
    file.description = "the twin of a booted machine".into();
    file.cpu.asids = 0;
    file.storage.swap_size = swap;
    let first = cpus.div_ceil(nodes);
    file.node[0].cpus = first;
    if nodes == 2 {
        let mut second = file.node[0].clone();
        second.cpus = cpus - first;
        file.node.push(second);
        let rows = vec![vec![10, 21], vec![21, 10]];
        file.distance = Some(Distances { rows, hop_ns: 60.0, source: "estimate".into() });
    }
    let total = file.node.iter().flat_map(|node| &node.memory).map(|range| range.size.0).sum();
    spec.ranges = lay_out(&spec.file.node, total).expect("the preset's memory can be laid out");
    spec
}
