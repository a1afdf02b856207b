//! Seed 001: "batched remove rmap in try_to_unmap_one()", 2023.

use super::{Load, Measure, Published, Reproduction, Setting, Side};
use mm::knobs::Knob;

const fn share(
    name: &'static str,
    within: &'static str,
    of: &'static [&'static str],
    values: &'static [f64],
) -> Published {
    Published::new(name, Measure::Share { within, of }, values)
}

const UNMAP: &str = "try_to_unmap_one";
const REMOVAL: &str = "folio_remove_rmap";

pub(super) const RMAP: Reproduction = Reproduction {
    name: "rmap",
    help: "reverse map of a folio's range removed in one step, against page by page (Linux 6.3 of 2023, MADV_PAGEOUT loop)",
    source: "Yin Fengwei, batched remove rmap in try_to_unmap_one(), v4, March 2023, on next-20230310: without and with the series",
    scale: 0.25,
    // No device is used and nothing is random: all seeds give the same.
    runs: 1,
    knobs: &[(Knob::FileMaxOrder, 9)],
    sides: &[
        Side { profile: "eager+rmap.batch=0", published: "without" },
        Side { profile: "eager", published: "with the series" },
    ],
    context: &["classic"],
    settings: &[Setting {
        title: "96 CPUs",
        machine: "icelake-96",
        load: Load::Timed { program: "pageout-loop:192M", memory: 8 << 30 },
        published: &[
            Published::new("loops", Measure::Progress, &[58865.0, 63247.0]),
            share("try_to_unmap_one", UNMAP, &[UNMAP], &[18.26, 9.87]),
            share("- removal of the reverse map", UNMAP, &[REMOVAL], &[10.71, 1.18]),
            share("  - of that, statistics", REMOVAL, &["stat_update"], &[9.81, 0.53]),
            share("- ptep_clear_flush", UNMAP, &["entry_clear", "flush_tlb_mm_range"], &[5.41, 5.21]),
        ],
        ..Setting::PLAIN
    }],
    counts: super::TIMES,
    explain: None,
    notes: &[
        "The seed batches only the removal of the reverse map and of references. Here a run of entries is also cleared, flushed and mapped \
         in one step (knob rmap.batch), so the saving is larger than the seed's.",
        "Profile eager: each process runs on one CPU, and Linux flushes every page of such a process at once, as the seed's profile shows; \
         classic flushes batches.",
        "The seed does not say how its files were created. Its rate, 120 GB/s, excludes a disk, so the files here are sparse. Folios are as \
         large as read-ahead makes them, up to 2 MiB. The machine has 8 GiB instead of 192 GB, which the program never needs.",
        "CPUs fetch frames' records that others wrote, but these cost no misses and counters are not shared, while a page takes 3.2 us of CPU \
         time on the seed's machine. No device is used and nothing is random, so all seeds give the same. The cost of one update of statistics was counted in Linux 6.12 ('pagefold list \
         costs').",
    ],
};
