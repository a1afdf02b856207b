//! Seed 000: "LUF (Lazy Unmap Flush) reducing tlb numbers over 90%", v10, 2024.

use super::{Load, Measure, Published, Reproduction, Setting, Side};
use mm::knobs::Knob;

pub(super) const LUF: Reproduction = Reproduction {
    name: "luf",
    help: "flushes of unmapped pages put off until a frame is used again, against one for each batch (Linux 6.9 of 2024, llama.cpp on DRAM and CXL)",
    source: "Byungchul Park, LUF (Lazy Unmap Flush), v10, May 2024: before and after, means of 10 sets of three processes",
    scale: 1.0 / 1024.0,
    runs: 3,
    knobs: &[(Knob::DemotionEnabled, 1), (Knob::NumaBalancing, 2)],
    sides: &[Side { profile: "classic", published: "before" }, Side { profile: "lazy", published: "after" }],
    context: &["eager", "lazy+tlb.lazy_max_order=0"],
    settings: &[Setting {
        title: "64 CPUs, 42 GB DRAM, 98 GB CXL",
        machine: "luf-cxl",
        // Three models of 70 GiB in 140 GiB.
        load: Load::Share { program: "llama", options: "", footprint: 210 << 30, percent: 66 },
        published: &[
            Published::new("run time", Measure::Elapsed, &[1052.527, 996.377]),
            Published::new(
                "TLB shootdowns, all CPUs",
                Measure::Metric("ipis_received"),
                &[1.2513e9, 5.6927e7],
            ),
            Published::new("tlb:tlb_flush", Measure::Flushes, &[1.357543886e9, 6.9175002e7]),
            Published::new(
                "page walks, data and code",
                Measure::Metric("stlb_misses"),
                &[5.508524091e9, 3.319894355e9],
            ),
        ],
        ..Setting::PLAIN
    }],
    counts: super::TIMES,
    explain: None,
    notes: &[
        "perf's counts of dTLB load misses (-24.3 %), dTLB store misses (-57.3 %) and iTLB misses (-80.4 %) are of walks that ended; \
         walks are counted together here, so the published sum stands beside them.",
        "A flush is one that a CPU did, for itself or asked by another, as the tracepoint counts them.",
        "Files that are mapped for reading only are not marked for promotion, in Linux 6.12 as here: the models go down and do not come \
         up but by being read again from the disk, and what is promoted is what the processes write.",
        "The run ends when the slowest of the three processes does; the published time is the mean of all.",
        "The seed says 70G of its models and not which they are; the program has the proportions of Llama 2 70B (docs/programs.md). At a scale \
         all is smaller but the TLBs, the number of CPUs and threads, and the batches: so flushes for each page, and not their \
         number, are what compares.",
    ],
};
