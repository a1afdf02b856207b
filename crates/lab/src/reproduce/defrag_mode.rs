//! `vm.defrag_mode`, Linux 6.15: page blocks are kept whole instead of being repaired.

use super::{Count, Figures, KSWAPD, Load, Measure, Published, Reproduction, Setting, Side};
use mm::knobs::Knob;

const fn counters(name: &'static str, of: &'static [&'static str], values: &'static [f64]) -> Published {
    Published::new(name, Measure::Counters(of), values)
}

const fn builds(title: &'static str, fragment: Option<&'static str>) -> Setting {
    let load = Load::Share { program: "kernel-build", options: "", footprint: 16 << 30, percent: 60 };
    Setting { title, machine: "compact-8", load, published: FIGURES, fragment, ..Setting::PLAIN }
}

const FIGURES: &[Published] = &[
    counters("THP faults that got one", &["thp_fault_alloc"], &[46727.0, 63224.0]),
    counters("THP faults that fell back", &["thp_fault_fallback"], &[21911.0, 5412.0]),
    counters("direct compactions that failed", &["compact_fail"], &[196.0, 59.0]),
    counters(
        "allocstall",
        &["allocstall_dma32", "allocstall_normal", "allocstall_movable"],
        &[2371.0, 639.0],
    ),
    Published {
        name: "kswapd's scan (published: 1 is off)",
        measure: Measure::Counters(&["pgscan_kswapd"]),
        figures: Figures::Changes(1.0, &[85.0]),
        judged: true,
    },
];

pub(super) const DEFRAG_MODE: Reproduction = Reproduction {
    name: "defrag-mode",
    help: "page blocks with one mobility group, and whole ones kept free, against neither (Linux 6.15, kernel build and bursts of large pages)",
    source: "Johannes Weiner, mm: reliable huge page allocator, March 2025: 15 kernel builds with bursts of huge pages, off and on",
    scale: 1.0 / 16.0,
    runs: 5,
    knobs: &[(Knob::HugepagesEnabled2048, 1), (Knob::FileMaxOrder, 9)],
    sides: &[
        Side { profile: "classic", published: "off" },
        Side { profile: "classic+vm.defrag_mode=1", published: "on" },
    ],
    context: &["classic+thp.defrag=never"],
    settings: &[
        builds("15 builds", None),
        builds("15 builds, frag-50", Some("frag-50")),
        builds("15 builds, frag-100", Some("frag-100")),
    ],
    counts: &[
        Count::plain(&["compact_stall"]),
        Count::plain(&["compact_success"]),
        Count::plain(&["compact_daemon_wake"]),
        Count::plain(&["pgmigrate_success"]),
        Count::plain(&["pgsteal_kswapd"]),
        Count::plain(&["pgsteal_direct"]),
        Count::plain(&["pswpout"]),
        Count::plain(&["operation_time_p50"]),
        KSWAPD,
    ],
    explain: None,
    notes: &[
        "The machine and the sizes were not published: here they are 8 CPUs and 60 % of 16 GB, at the scale. The program is a model \
         (docs/programs.md): page tables take the place of the unmovable objects that a build leaves in the kernel's slab caches.",
        "The published decline (61,988 THP faults in the first of 15 runs, 33,215 in the last, without the mode) does not show here, because a \
         run has all 15 rounds and reports its counters at the end.",
        "operation_time_p50 is the time of a burst.",
        "The state of memory at the start of the published runs is unknown. frag-50 and frag-100 are Quicksilver's (docs/fragmentation.md).",
    ],
};
