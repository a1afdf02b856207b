//! The simulated twin of a booted machine: the same CPUs, nodes and swap space, for the comparison of `pagefold boot`.
//!
//! Each node is that of the preset `small`, without what QEMU's emulated PC lacks: its CPUs have no address-space numbers,
//! so every switch flushes.

use super::{Bytes, Distances, MachineFile, MachineSpec, lay_out, ratio};
use mm::machine::MAX_CPUS;
use mm::units::{MAX_ORDER, PAGE_SIZE};

/// The prefix of the name of such a machine.
const PREFIX: &str = "booted:";
/// The most parts of memory; a part is a block here.
const MOST_PARTS: u64 = 1 << 20;
const BLOCK: u64 = PAGE_SIZE << MAX_ORDER.0;

impl MachineSpec {
    /// The machine of a name `booted:CPUS:NODES:SWAP`, like `booted:4:1:128M`, with one or two nodes.
    /// `booted:CPUS:2:SWAP:A:B` has all CPUs on the first node and slow memory on the second: `A` parts of memory are fast,
    /// and `B` parts slow. `None` for other names.
    pub fn from_booted_name(name: &str) -> Option<MachineSpec> {
        let mut parts = name.strip_prefix(PREFIX)?.split(':');
        let cpus: u32 = parts.next()?.parse().ok().filter(|cpus| (1..=MAX_CPUS as u32).contains(cpus))?;
        let nodes: u32 = parts.next()?.parse().ok().filter(|nodes| (1..=2).contains(nodes))?;
        let swap = Bytes::parse(parts.next()?).filter(|swap| swap.0 / PAGE_SIZE <= u64::from(u32::MAX))?;
        let mut spec = MachineSpec::preset("small").expect("the preset exists");
        spec.name = name.into();
        spec.file.description = "the twin of a booted machine".into();
        spec.file.cpu.asids = 0;
        spec.file.storage.swap_size = swap;
        spec.file.node[0].cpus = cpus;
        let mut parts = parts.peekable();
        match (nodes, parts.peek()) {
            (1, None) => {}
            (2, None) => divide(&mut spec.file, cpus.div_ceil(2)),
            (2, Some(_)) => tier(&mut spec.file, ratio::parts(parts, MOST_PARTS)?),
            _ => return None,
        }
        let total = spec.file.node.iter().flat_map(|node| &node.memory).map(|range| range.size.0).sum();
        spec.ranges = lay_out(&spec.file.node, total).expect("the preset's memory can be laid out");
        Some(spec)
    }
}

/// Make two nodes of the same memory, with `first` CPUs on the first.
fn divide(file: &mut MachineFile, first: u32) {
    let mut second = file.node[0].clone();
    second.cpus -= first;
    file.node[0].cpus = first;
    file.node.push(second);
    let rows = vec![vec![10, 21], vec![21, 10]];
    file.distance = Some(Distances { rows, hop_ns: 60.0, source: "estimate".into() });
}

/// Make two nodes with these sizes of memory, as fast and as slow as that of the preset `tiers`, and no CPUs on the second.
fn tier(file: &mut MachineFile, sizes: [u64; 2]) {
    let tiers = MachineSpec::preset("tiers").expect("the preset exists").file;
    let cpus = [file.node[0].cpus, 0];
    file.node.push(file.node[0].clone());
    for (node, ((as_fast, cpus), size)) in file.node.iter_mut().zip(tiers.node.iter().zip(cpus).zip(sizes)) {
        node.cpus = cpus;
        node.memory[0].size = Bytes(size * BLOCK);
        (node.latency_ns, node.bandwidth_gbs) = (as_fast.latency_ns, as_fast.bandwidth_gbs);
        node.source.clone_from(&as_fast.source);
    }
    file.distance = tiers.distance;
}
