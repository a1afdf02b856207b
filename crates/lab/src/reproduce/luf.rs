//! Seed 000: "LUF (Lazy Unmap Flush) reducing tlb numbers over 90%", v10, 2024.

use super::{Load, Measure, Published, Reproduction, Setting, Side};
use mm::knobs::Knob;

pub(super) const LUF: Reproduction = Reproduction {
    name: "luf",
    help: "flushes of unmapped pages deferred until a frame is reused, against one for each batch (Linux 6.9 of 2024, llama.cpp on DRAM and CXL)",
    source: "Byungchul Park, LUF (Lazy Unmap Flush), v10, May 2024: before and after, means of 10 sets of three processes",
    scale: 1.0 / 1024.0,
    runs: 3,
    knobs: &[(Knob::DemotionEnabled, 1), (Knob::NumaBalancing, 2)],
    sides: &[Side { profile: "classic", published: "before" }, Side { profile: "lazy", published: "after" }],
    context: &["eager", "lazy+tlb.lazy_max_order=0"],
    settings: &[Setting {
        title: "64 CPUs, 42 GB DRAM, 98 GB CXL",
        machine: "luf-cxl",
        // Three models of 70 GiB, with memory of 140 GiB.
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
        "perf counts completed walks for dTLB load misses (-24.3 %), dTLB store misses (-57.3 %) and iTLB misses (-80.4 %). Here all walks \
         are counted together, so they are compared with the published sum.",
        "tlb:tlb_flush: a flush is counted on each CPU that flushes, for itself or for another CPU, as the tracepoint does, and so are \
         requests and switches to another space. But a flush of a few pages counts for each of them, and the tracepoint counts it once.",
        "Files that are mapped read-only are not marked for promotion, in Linux 6.12 as well as here. The models are demoted and come back \
         only when they are read from the disk again; what is promoted is what the processes write.",
        "The run ends with the slowest of the three processes; the published time is the mean of all.",
        "The seed gives the size of its models, 70G, but not their names; the program has the proportions of Llama 2 70B (docs/programs.md). \
         The scale shrinks everything but the TLBs, the numbers of CPUs and threads, and the batches, so the number of flushes for each \
         page is comparable, and not the total.",
    ],
};
