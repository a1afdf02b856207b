//! Options for the CPUs and NUMA nodes of a machine that is booted.

use crate::boot::{Ratio, Second};
use clap::Args;

/// CPUs and NUMA nodes of a machine that is booted.
#[derive(Debug, Args)]
pub struct NodesArgs {
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
}

impl NodesArgs {
    /// The second node.
    pub fn second(&self) -> Second {
        match self.tiers {
            Some(ratio) => Second::Slow(ratio),
            None if self.nodes == 2 => Second::Alike,
            None => Second::Missing,
        }
    }
}
