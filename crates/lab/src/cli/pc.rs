//! Options for the PC that an emulator runs.

use crate::boot::{Ratio, Second};
use crate::size::{Memory, parse_bytes};
use clap::Args;

/// Memory by default.
pub(super) const DEFAULT_MEMORY: u64 = 256 << 20;
/// The least swap space by default.
const LEAST_SWAP: u64 = 64 << 20;

/// CPUs, NUMA nodes, memory and swap space.
#[derive(Debug, Args)]
pub struct PcArgs {
    /// CPUs
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    pub cpus: u32,
    /// NUMA nodes, with half of the memory and of the CPUs each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=2))]
    nodes: u32,
    /// Two nodes: the first has all CPUs, the second has slow memory; A parts of memory are fast, B slow
    /// (docs/tiers.md)
    #[arg(long, value_name = "A:B", conflicts_with = "nodes")]
    tiers: Option<Ratio>,
    /// Memory that the program can use: bytes (K, M, G) or a share of the most that it has at once, like 50%
    /// [default: 256M]
    #[arg(long, value_name = "BYTES|SHARE%", allow_hyphen_values = true)]
    memory: Option<Memory>,
    /// Swap space; 0: none [default: twice the program's footprint, at least 64M]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    swap: Option<u64>,
}

impl PcArgs {
    /// The second node.
    pub fn second(&self) -> Second {
        match self.tiers {
            Some(ratio) => Second::Slow(ratio),
            None if self.nodes == 2 => Second::Alike,
            None => Second::Missing,
        }
    }

    /// Bytes of memory, for a program that has at most `peak_live` bytes at once.
    pub fn memory(&self, peak_live: u64) -> u64 {
        self.memory.map_or(DEFAULT_MEMORY, |memory| memory.resolve(peak_live))
    }

    /// Bytes of swap space, in whole MiB.
    pub fn swap(&self, footprint: u64) -> u64 {
        self.swap.map_or_else(|| default_swap(footprint), |swap| swap.next_multiple_of(1 << 20))
    }
}

/// Swap space by default, in whole MiB.
pub(super) fn default_swap(footprint: u64) -> u64 {
    footprint.saturating_mul(2).max(LEAST_SWAP).next_multiple_of(1 << 20)
}
