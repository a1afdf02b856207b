//! Options for the PC that an emulator runs.

use crate::boot::{Ratio, Second};
use crate::engine::SwapSpec;
use crate::size::{Memory, parse_bytes};
use clap::Args;
use mm::units::PAGE_SIZE;

/// Memory by default.
pub(super) const DEFAULT_MEMORY: u64 = 256 << 20;
/// The name of the disk for swap space.
const DISK: &str = "disk";
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
    /// Swap space on a disk: BYTES, or disk:SIZE with ,priority=N; 0: none [default: twice the program's footprint, at
    /// least 64M]. On Linux also zram:SIZE, with algorithm, mem_limit and priority, as for 'run'; may be given several
    /// times
    #[arg(long, value_name = "BYTES|AREA", value_parser = parse_area)]
    swap: Vec<SwapSpec>,
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

    /// Bytes of swap space on the disk.
    pub fn swap(&self, footprint: u64, memory: u64) -> u64 {
        swap_on_disk(&self.swap, footprint, memory)
    }

    /// Swap areas, if they are more than space on the disk.
    pub fn areas(&self, memory: u64) -> Vec<SwapSpec> {
        more_than_disk(&self.swap, memory)
    }
}

/// Bytes of swap space on the disk, in whole MiB, on a machine with `memory` bytes and these areas; none: the default.
pub(super) fn swap_on_disk(areas: &[SwapSpec], footprint: u64, memory: u64) -> u64 {
    if areas.is_empty() {
        return default_swap(footprint);
    }
    let disk = areas.iter().find(|area| !area.is_zram());
    disk.map_or(0, |area| on_disk(area, memory))
}

/// These swap areas, if they are more than space on the disk.
pub(super) fn more_than_disk(areas: &[SwapSpec], memory: u64) -> Vec<SwapSpec> {
    let is_plain = |area: &SwapSpec| !area.is_zram() && area.priority().is_none();
    if matches!(areas, [] | [_]) && areas.iter().all(is_plain) {
        return Vec::new();
    }
    let sized = |area: &SwapSpec| match area.is_zram() {
        true => area.clone(),
        false => area.clone().with_bytes(on_disk(area, memory)),
    };
    areas.iter().map(sized).collect()
}

/// Bytes of an area on a disk, in whole MiB.
fn on_disk(area: &SwapSpec, memory: u64) -> u64 {
    (area.pages(memory) * PAGE_SIZE).next_multiple_of(1 << 20)
}

/// A swap area; a size alone is one on the disk.
fn parse_area(text: &str) -> Result<SwapSpec, String> {
    if text.contains(':') {
        return text.parse();
    }
    format!("{DISK}:{}", parse_bytes(text)?).parse()
}

/// Swap space by default, in whole MiB.
fn default_swap(footprint: u64) -> u64 {
    footprint.saturating_mul(2).max(LEAST_SWAP).next_multiple_of(1 << 20)
}
