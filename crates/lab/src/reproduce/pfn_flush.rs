//! Seed 004: "mm: Send one IPI per CPU to TLB flush pages that were recently unmapped", by page list, 2015.

use super::{Load, Measure, Published, Reproduction, Setting, Side};

pub(super) const PFN_FLUSH: Reproduction = Reproduction {
    name: "pfn-flush",
    help: "unmap batches flushed page by page, against whole TLBs (Linux 4.1-rc6 of 2015, lru-file-mmap-read)",
    source: "Mel Gorman, batched unmap TLB flush, v6, June 2015: batchdirty-v6 against batchunmap-v6 on 4.1.0-rc6",
    scale: 1.0 / 128.0,
    runs: 3,
    knobs: &[],
    sides: &[
        Side { profile: "classic", published: "batchdirty-v6" },
        Side { profile: "list", published: "batchunmap-v6" },
    ],
    context: &["eager"],
    settings: &[
        Setting {
            title: "1 socket",
            machine: "uma-1s-2015",
            load: Load::Filling { program: "lru-file-mmap-read", times_memory: 10 },
            published: &[
                Published::new("User", Measure::User, &[58.02, 60.70]),
                Published::new("System", Measure::System, &[77.57, 81.92]),
                Published::new("Elapsed", Measure::Elapsed, &[22.14, 23.16]),
                Published::new("lru-file-mmap-read-elapsed", Measure::Elapsed, &[20.35, 21.52]),
            ],
            ..Setting::PLAIN
        },
        Setting {
            title: "4 sockets",
            machine: "numa-4s-2015",
            load: Load::Filling { program: "lru-file-mmap-read", times_memory: 10 },
            published: &[
                Published::new("User", Measure::User, &[620.84, 608.48]),
                Published::new("System", Measure::System, &[4245.35, 4152.89]),
                Published::new("Elapsed", Measure::Elapsed, &[122.65, 120.15]),
                Published::new("lru-file-mmap-read-elapsed", Measure::Elapsed, &[121.27, 118.79]),
            ],
            ..Setting::PLAIN
        },
    ],
    counts: super::TIMES,
    explain: None,
    notes: &[
        "The published patch passes each page's physical address to INVLPG, which takes a linear address. So the user's stale entries \
         stayed, and the patch measured the cost of the instructions without the loss of those entries. Here the linear addresses are \
         flushed, as a correct version must.",
        "The seed names neither the processors nor the disks: the presets are machines of that time with a source for each number. CPUs wait \
         for each other at locks here; of the lines that they share, entries of page tables and counters cost nothing.",
        "The published figures are of one series of runs; the author of the seed calls the differences on four sockets hard to read \
         (\"there are a lot of factors at play\").",
        "System is the system time of time(1): it excludes kswapd's CPU time, which is among the counts.",
    ],
};
