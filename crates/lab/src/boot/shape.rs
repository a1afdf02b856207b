//! The machine that is booted: CPUs, nodes, memory, swap space.

use super::arguments::Arguments;
use crate::error::{Error, Result};
use mm::units::{MAX_ORDER, PAGE_SIZE};
use std::str::FromStr;

const MIB: u64 = 1 << 20;
/// The largest block. Nodes and the kernel's own memory begin at such a boundary.
pub(super) const BLOCK: u64 = PAGE_SIZE << MAX_ORDER.0;
/// Bytes without which the memory manager does not start on a node.
const LEAST: u64 = 2 * BLOCK;

/// CPUs, nodes, memory and swap space: what the simulated machine must share with the booted one for their counts to
/// agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// CPUs: of two nodes alike, the first half (rounded up) on the first; of two tiers, all.
    pub cpus: u32,
    /// The second NUMA node.
    pub second: Second,
    /// Bytes for the memory manager on the first node, and on the second.
    memory: [u64; 2],
    /// Pages of swap space.
    pub swap: u64,
}

/// Parts of memory that are fast, and slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ratio(pub u32, pub u32);

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Ratio, String> {
        let part = |word: &str| word.parse().ok().filter(|part| (1..=1024).contains(part));
        let parts = text.split_once(':').and_then(|(fast, slow)| Some(Ratio(part(fast)?, part(slow)?)));
        parts.ok_or_else(|| "it is A:B, like 1:2, each from 1 to 1024".to_owned())
    }
}

/// What the second node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Second {
    /// There is none.
    Missing,
    /// As the first: as much memory, and half of the CPUs each.
    Alike,
    /// Slow memory without CPUs.
    Slow(Ratio),
}

/// What firmware tells of memory: nanoseconds of a read, GB/s, and the distance of the two nodes.
pub(crate) struct Told {
    /// Of a node, seen from its own CPUs.
    pub(crate) near: (u32, u32),
    /// Of the other.
    pub(crate) far: (u32, u32),
    /// As SLIT has it.
    pub(crate) distance: u32,
    /// Nanoseconds from node to node.
    pub(crate) hop: u32,
}

impl Shape {
    /// A machine with `memory` bytes, in whole pages, which the nodes share as the simulator has them do.
    pub fn new(cpus: u32, second: Second, memory: u64, swap: u64) -> Result<Shape> {
        let Ratio(first, rest) = match second {
            Second::Missing => Ratio(1, 0),
            Second::Alike => Ratio(1, 1),
            Second::Slow(ratio) => ratio,
        };
        let (first, rest) = (u64::from(first), u64::from(rest));
        let pages = memory.div_ceil(PAGE_SIZE);
        let near = (u128::from(pages) * u128::from(first) / u128::from(first + rest)) as u64;
        let shape = Shape { cpus, second, memory: [near, pages - near].map(|pages| pages * PAGE_SIZE), swap };
        if shape.memory_by_node().iter().any(|&bytes| bytes < LEAST) {
            let smaller = if rest == 0 { first } else { first.min(rest) };
            return Err(Error::Input(format!(
                "--memory: {memory} bytes are too small to run: this machine needs at least {}M",
                (LEAST * (first + rest)).div_ceil(smaller * MIB)
            )));
        }
        Ok(shape)
    }

    /// How many nodes there are.
    pub fn count(&self) -> u32 {
        if self.second == Second::Missing { 1 } else { 2 }
    }

    /// Bytes for the memory manager.
    pub fn memory(&self) -> u64 {
        self.memory.iter().sum()
    }

    /// Bytes for the memory manager, node by node.
    pub fn memory_by_node(&self) -> &[u64] {
        &self.memory[..self.count() as usize]
    }

    /// CPUs of a node.
    pub fn cpus_of(&self, node: u32) -> u32 {
        let first = if self.second == Second::Alike { self.cpus.div_ceil(2) } else { self.cpus };
        if node == 0 { first } else { self.cpus - first }
    }

    /// The simulated machine of this shape, as `--machine` takes it.
    pub fn machine_name(&self) -> String {
        let name = format!("booted:{}:{}:{}M", self.cpus, self.count(), self.swap * PAGE_SIZE / MIB);
        match self.second {
            Second::Slow(Ratio(fast, slow)) => format!("{name}:{fast}:{slow}"),
            _ => name,
        }
    }

    /// The options of `boot` and `linux` that describe this shape.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        let nodes = match self.second {
            Second::Missing => None,
            Second::Alike => Some(("--nodes", "2".to_owned())),
            Second::Slow(Ratio(fast, slow)) => Some(("--tiers", format!("{fast}:{slow}"))),
        };
        let all =
            [("--cpus", self.cpus.into()), ("--memory", self.memory()), ("--swap", self.swap * PAGE_SIZE)];
        all.into_iter().map(|(flag, value)| (flag, value.to_string())).chain(nodes).collect()
    }

    /// What firmware tells of memory, as the preset of the simulated machine has it that is named beside.
    pub(crate) fn told(&self) -> (Told, &'static str) {
        match self.second {
            Second::Missing | Second::Alike => {
                (Told { near: (80, 12), far: (140, 8), distance: 21, hop: 60 }, "small")
            }
            Second::Slow(_) => (Told { near: (115, 12), far: (255, 9), distance: 14, hop: 70 }, "tiers"),
        }
    }

    /// QEMU's options for a machine with `bytes` on each node: the nodes, and what firmware reports of them.
    pub(crate) fn describe_nodes(&self, args: &mut Arguments, bytes: &[u64]) {
        if self.second == Second::Missing {
            return;
        }
        let (Told { near, far, distance, .. }, _) = self.told();
        let mut cpu = 0;
        for (node, bytes) in bytes.iter().enumerate() {
            args.add(["-object", &format!("memory-backend-ram,size={}M,id=m{node}", bytes / MIB)]);
            let cpus = self.cpus_of(node as u32);
            let owner = match cpus {
                // Memory alone is reached from the first node.
                0 => "initiator=0".to_owned(),
                1 => format!("cpus={cpu}"),
                _ => format!("cpus={cpu}-{}", cpu + cpus - 1),
            };
            args.add(["-numa", &format!("node,nodeid={node},memdev=m{node},{owner}")]);
            cpu += cpus;
        }
        for (from, to) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            if from != to {
                args.add(["-numa", &format!("dist,src={from},dst={to},val={distance}")]);
            }
            if self.cpus_of(from) > 0 {
                let (latency, bandwidth) = if from == to { near } else { far };
                let lb = format!("hmat-lb,initiator={from},target={to},hierarchy=memory,data-type=access");
                args.add(["-numa", &format!("{lb}-latency,latency={latency}")]);
                args.add(["-numa", &format!("{lb}-bandwidth,bandwidth={bandwidth}G")]);
            }
        }
    }

    /// The kind of QEMU's machine. HMAT describes nodes; QEMU refuses it without any.
    pub(crate) fn machine_type(&self) -> &'static str {
        if self.second == Second::Missing { "q35" } else { "q35,hmat=on" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_was_asked_for_to_the_page() {
        let slow = Second::Slow(Ratio(1, 2));
        for (second, bytes, expected) in [
            (Second::Missing, (33 << 20) + 1, vec![8449]),
            (Second::Missing, 34 << 20, vec![8704]),
            (Second::Alike, 44 << 20, vec![5632, 5632]),
            (Second::Alike, (44 << 20) + 4096, vec![5632, 5633]),
            (slow, 24 << 20, vec![2048, 4096]),
            (slow, 40 << 20, vec![3413, 6827]),
        ] {
            let shape = Shape::new(2, second, bytes, 4096).unwrap();
            let found: Vec<u64> = shape.memory_by_node().iter().map(|bytes| bytes / PAGE_SIZE).collect();
            assert_eq!(found, expected, "{second:?} {bytes}");
            let twin = machine_sim::MachineSpec::from_booted_name(&shape.machine_name()).unwrap();
            let twin = twin.with_memory(shape.memory()).unwrap();
            let frames: Vec<u64> = twin.ranges().iter().map(|range| u64::from(range.frames)).collect();
            assert_eq!(frames, expected, "the twin has the same");
        }
        for (second, expected) in [(Second::Alike, "at least 16M"), (slow, "at least 24M")] {
            let error = Shape::new(1, second, 8 << 20, 0).unwrap_err();
            assert!(error.to_string().contains(expected) && error.exit_code() == 2, "{error}");
        }
    }

    #[test]
    fn a_ratio_has_two_parts() {
        assert_eq!("1:16".parse(), Ok(Ratio(1, 16)));
        for wrong in ["", "1", "1:", "0:1", "1:2:3", "1:1025"] {
            assert!(wrong.parse::<Ratio>().is_err(), "{wrong}");
        }
    }
}
