//! Seed 002: "Enable >0 order folio memory compaction", v1, November 2023, and v7 of February 2024.

use super::{Count, Figures, KSWAPD, Load, Measure, Published, Reproduction, Setting, Side};
use mm::knobs::Knob;

/// Bytes of files that are read for each byte of memory.
const FILES: u64 = 4;
/// The same for random reads, of which nearly every one is a fault.
const RANDOM_FILES: u64 = 2;
/// Bytes of which the regions of cases in memory are shares.
const MEMORY: u64 = 1;

const MGLRU: &[(Knob, u64)] = &[(Knob::ReclaimPolicy, 1)];

/// The metrics of this name, of folios of all sizes that compaction moves.
macro_rules! of_sizes {
    ($name:literal: $($size:literal)*) => { &[$(concat!("hugepages-", $size, "kB/", $name)),*] };
}

const WHOLE: &[&str] = of_sizes!("moved_whole": 8 16 32 64 128 256 512 1024);
const SPLIT: &[&str] = of_sizes!("moved_split": 8 16 32 64 128 256 512 1024);

/// The figures of v1: without the series, and after each of its patches.
const fn v1(values: &'static [f64]) -> Published {
    Published::new("v1", Measure::Throughput, values)
}

/// The figures of v7: the value without, and changes in per cent. It has no sort.
const fn v7(first: f64, changes: &'static [f64]) -> Published {
    let figures = Figures::Changes(first, changes);
    Published { name: "v7", measure: Measure::Throughput, figures, judged: true }
}

const fn case(program: &'static str, times_memory: u64, published: &'static [Published]) -> Setting {
    let load = Load::Filling { program, times_memory };
    Setting { title: program, machine: "compact-8", load, published, ..Setting::PLAIN }
}

const fn generations(title: &'static str, setting: Setting) -> Setting {
    Setting { title, knobs: MGLRU, ..setting }
}

pub(super) const COMPACTION: Reproduction = Reproduction {
    name: "compaction",
    help: "large folios moved whole by compaction, patch by patch, under nineteen cases of vm-scalability (Linux 6.6 of 2023, 6.8 of 2024)",
    source: "Zi Yan, Enable >0 order folio memory compaction, v1, November 2023 (6.6.0-rc4), and v7, February 2024 (6.8.0-rc1): KB/s, means of 5 runs of 300 s",
    scale: 1.0 / 128.0,
    runs: 5,
    knobs: &[(Knob::FileMaxOrder, 9), (Knob::HugepagesEnabled2048, 2)],
    sides: &[
        Side { profile: "classic+compaction.folios=order0", published: "without" },
        Side { profile: "classic+compaction.folios=split", published: "split-folio" },
        Side { profile: "classic+compaction.folios=whole", published: "folio-migration" },
        Side { profile: "classic+compaction.folios=whole+free-split", published: "+free-page-split" },
        Side { profile: "classic+compaction.folios=whole+free-split+sort", published: "+sort-src" },
    ],
    context: &["classic+compaction.folios=whole+free-split+sort+merge"],
    settings: &[
        case(
            "mmap-xread-seq-mt",
            FILES,
            &[
                v1(&[12896955.0, 13249322.0, 12385175.0, 13033951.0, 12845698.0]),
                v7(14401491.0, &[3.7, 2.4, 4.0]),
            ],
        ),
        case(
            "mmap-pread-seq",
            FILES,
            &[
                v1(&[14626665.0, 13825048.0, 14384837.0, 14345958.0, 14338834.0]),
                v7(11407497.0, &[5.1, -0.5, 4.8]),
            ],
        ),
        case(
            "mmap-pread-seq-mt",
            FILES,
            &[
                Published {
                    judged: false,
                    ..v1(&[14314960.0, 11691969.0, 13217795.0, 13057395.0, 12764204.0])
                },
                v7(11348474.0, &[3.3, -1.2, 3.7]),
            ],
        ),
        case(
            "lru-file-readtwice",
            FILES,
            &[v1(&[6498203.0, 9193356.0, 8472024.0, 8449054.0, 8596781.0]), v7(8065614.0, &[7.7, 5.0, 11.8])],
        ),
        case(
            "lru-file-mmap-read",
            FILES,
            &[
                v1(&[5440732.0, 7352631.0, 7200622.0, 6909673.0, 6849852.0]),
                v7(6438422.0, &[27.5, 10.6, 26.2]),
            ],
        ),
        case(
            "lru-file-mmap-read-rand",
            RANDOM_FILES,
            &[v1(&[1627989.0, 1632141.0, 1656877.0, 1629816.0, 1625213.0])],
        ),
        case("anon-wx-seq-mt", MEMORY, &[v1(&[6738043.0, 6835096.0, 6834329.0, 6805401.0, 6820637.0])]),
        case("anon-w-seq-mt", MEMORY, &[v1(&[7644894.0, 7661425.0, 7676929.0, 7719218.0, 7664658.0])]),
        case("anon-wx-rand-mt", MEMORY, &[v1(&[521941.0, 539254.0, 539213.0, 527048.0, 539588.0])]),
        case("anon-w-rand", MEMORY, &[v1(&[481028.0, 501876.0, 492713.0, 482829.0, 497649.0])]),
        case("anon-w-rand-mt", MEMORY, &[v1(&[477063.0, 496373.0, 496283.0, 483966.0, 492216.0])]),
        case("anon-cow-rand", MEMORY, &[v1(&[458073.0, 473056.0, 469835.0, 459266.0, 471735.0])]),
        case("anon-cow-rand-mt", MEMORY, &[v1(&[468158.0, 472115.0, 474547.0, 473307.0, 478173.0])]),
        case("shm-xread-seq", MEMORY, &[v1(&[3489946.0, 3540036.0, 3505413.0, 3549852.0, 3539309.0])]),
        case("shm-xread-seq-mt", MEMORY, &[v1(&[2621783.0, 2647480.0, 2636399.0, 2641150.0, 2624301.0])]),
        case("shm-pread-seq", MEMORY, &[v1(&[3504293.0, 3557664.0, 3489639.0, 3516842.0, 3533944.0])]),
        case("msync", MEMORY, &[v1(&[919378.0, 954028.0, 985920.0, 987077.0, 1049473.0])]),
        case("msync-mt", MEMORY, &[v1(&[2398063.0, 2446844.0, 2361096.0, 2324346.0, 2375055.0])]),
        case("truncate", MEMORY, &[v1(&[2.084e8, 2.114e8, 2.22e8, 2.035e8, 2.04e8])]),
        generations(
            "mmap-xread-seq-mt, MGLRU",
            case("mmap-xread-seq-mt", FILES, &[v7(15107616.0, &[3.2, 1.3, 3.0])]),
        ),
        generations(
            "mmap-pread-seq, MGLRU",
            case("mmap-pread-seq", FILES, &[v7(12611785.0, &[1.8, 0.9, 1.6])]),
        ),
        generations(
            "lru-file-readtwice, MGLRU",
            case("lru-file-readtwice", FILES, &[v7(9833393.0, &[5.7, 3.0, 5.9])]),
        ),
        generations(
            "lru-file-mmap-read, MGLRU",
            case("lru-file-mmap-read", FILES, &[v7(7034709.0, &[2.9, 3.2, 3.9])]),
        ),
    ],
    counts: &[
        Count::plain(&["compact_stall"]),
        Count::share("compact_success %", &["compact_success"], &["compact_stall"]),
        Count::plain(&["compact_migrate_scanned"]),
        Count::plain(&["compact_free_scanned"]),
        Count::plain(&["pgmigrate_success"]),
        Count::plain(&["pgmigrate_fail"]),
        Count::sum("folios moved whole", WHOLE),
        Count::sum("folios split to move", SPLIT),
        Count::plain(&["compaction_moved"]),
        Count::plain(&["compaction_moved_least"]),
        Count::plain(&["compaction_moved_in_vain"]),
        Count::plain(&["compaction_pieces_before"]),
        Count::plain(&["compaction_pieces_after"]),
        Count::sum("alloc_order2_p50_seconds", &["alloc_order2_p50"]),
        Count::sum("alloc_order2_p99_seconds", &["alloc_order2_p99"]),
        Count::sum("alloc_order3_p50_seconds", &["alloc_order3_p50"]),
        Count::sum("alloc_order3_p99_seconds", &["alloc_order3_p99"]),
        Count::sum("alloc_order4_p50_seconds", &["alloc_order4_p50"]),
        Count::sum("alloc_order4_p99_seconds", &["alloc_order4_p99"]),
        Count::sum("alloc_order5_p50_seconds", &["alloc_order5_p50"]),
        Count::sum("alloc_order5_p99_seconds", &["alloc_order5_p99"]),
        Count::sum("alloc_order6_p50_seconds", &["alloc_order6_p50"]),
        Count::sum("alloc_order6_p99_seconds", &["alloc_order6_p99"]),
        Count::sum("alloc_order7_p50_seconds", &["alloc_order7_p50"]),
        Count::sum("alloc_order7_p99_seconds", &["alloc_order7_p99"]),
        Count::sum("alloc_order8_p50_seconds", &["alloc_order8_p50"]),
        Count::sum("alloc_order8_p99_seconds", &["alloc_order8_p99"]),
        Count::sum("alloc_order9_p50_seconds", &["alloc_order9_p50"]),
        Count::sum("alloc_order9_p99_seconds", &["alloc_order9_p99"]),
        Count::sum("allocstall", &["allocstall_dma32", "allocstall_normal", "allocstall_movable"]),
        Count::sum("pgscan", &["pgscan_kswapd", "pgscan_direct"]),
        KSWAPD,
    ],
    explain: None,
    notes: &[
        "v1 has a bug (it does not count pages that the search of the free lists isolated), to which its author attributes odd figures, such \
         as those of mmap-pread-seq-mt; they are shown but not judged. v7 does not sort.",
        "Published: 8 CPUs with 16 GB; sparse files as large as addresses reach, on XFS on a loop device in tmpfs, for 300 s. Here: a share \
         of the memory, sparse files of four times that size (random reads: twice) on a disk that needs no I/O for holes, and one pass of each \
         task; regions in memory have the suite's shares of it.",
        "usemem credits each task with an eighth of its mapping. With mappings of terabytes this credit is nearly all of the published figure \
         for lru-file-mmap-read-rand and most of those for random writes, which hardly depend on the memory manager.",
        "Neither series says whether huge pages were enabled: here they are (always, the default of Kconfig). v1 does not name its replacement \
         policy: here it is active and inactive lists.",
        "CPUs wait for each other at the locks of zones and lists here, and fetch the records of frames from each other.",
    ],
};
