//! All checks, in the order in which they run: each trusts only what those before it have shown.

use crate::harness::Harness;
use crate::kit::Kit;
use crate::report::Verdict;
use crate::topology;
use std_alloc::vec::Vec;

pub(crate) struct Check<H> {
    pub group: &'static str,
    pub name: &'static str,
    pub full_name: &'static str,
    /// What a pass shows, in the words of the contract.
    pub shows: &'static str,
    pub body: fn(&Kit<'_, H>) -> Verdict,
}

macro_rules! checks {
    ($($group:ident { $($name:literal $body:path: $shows:literal;)* })*) => {
        pub(crate) fn checks<H: Harness>() -> Vec<Check<H>> {
            std_alloc::vec![$($(Check {
                group: stringify!($group),
                name: $name,
                full_name: concat!(stringify!($group), ".", $name),
                shows: $shows,
                body: $body,
            },)*)*]
        }
    };
}

checks! {
    topology {
        "cpus" topology::cpus: "cpu() names the CPU that runs the task, on each of cpus()";
        "nodes" topology::nodes_are_counted: "nodes are counted from 0, and there is memory";
        "distances" topology::distances: "distance() is symmetric; 10 is local, and only that";
        "memory" topology::memory: "memory() is ascending, aligned to the largest block, without overlaps; DMA32 ends at 4 GiB";
        "clock" topology::clock: "now() goes on, and never back on one CPU";
        "running" topology::running: "stopping() is not said while the machine runs";
    }
}
