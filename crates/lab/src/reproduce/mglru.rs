//! Seed 003: "Multi-Gen LRU Framework", v10, April 2022: the benchmarks in its cover letter.

use super::{Gain, Load, Measure, Reproduction, Setting, Side, Swap};
use mm::knobs::Knob;

const MEMCACHED: &str = "memcached-2k";
const MONGODB: &str = "mongodb";
const CASSANDRA: &str = "cassandra";
const REDIS: &str = "redis";
const ALWAYS: &[(Knob, u64)] = &[(Knob::HugepagesEnabled2048, 2)];
/// Bytes at full size: what the reports name is larger (64 GB of memory for MariaDB).
const FULL: u64 = 4 << 30;
/// Sorts run long enough only with more.
const FULL_OF_SORTS: u64 = 16 << 30;
/// Memory in per cent of the footprint, if all of it is anonymous: some 10 % is swapped out under the classic lists,
/// and compressed it takes a part of memory.
const OVER: u64 = 100;
/// The same for redis, whose objects fill less than the size that it is given.
const OVER_REDIS: u64 = 94;
/// The same where the program also has files, which leave memory first.
const OVER_WITH_FILES: u64 = 70;
/// Sorts spill more than they keep.
const OVER_SORTING: u64 = 50;
/// 36 of 99 GB, as in patch 06 of version 9.
const OVER_FIO: u64 = 36;

const fn rate(percent: [f64; 2]) -> Gain {
    Gain { profile: "mglru", measure: Measure::Rate, percent }
}

const fn time(percent: [f64; 2]) -> Gain {
    Gain { profile: "mglru", measure: Measure::Elapsed, percent }
}

/// A program, its options, memory in per cent.
type Share = (&'static str, &'static str, u64);

const fn sized(
    title: &'static str,
    (program, options, percent): Share,
    footprint: u64,
    gains: &'static [Gain],
) -> Setting {
    let load = Load::Share { program, options, footprint, percent };
    Setting { title, load, gains, swap: Swap::Areas(&["zram:100%"]), ..Setting::PLAIN }
}

const fn setting(title: &'static str, of: Share, gains: &'static [Gain]) -> Setting {
    sized(title, of, FULL, gains)
}

const fn sort(title: &'static str, of: Share, gains: &'static [Gain]) -> Setting {
    sized(title, of, FULL_OF_SORTS, gains)
}

/// Files on a RAM disk: the laptop's disk takes 67 us for a read, this one 2.
const fn fio(title: &'static str, options: &'static str, gains: &'static [Gain]) -> Setting {
    Setting { machine: "laptop+slow=0.03", ..sized(title, ("fio-advised", options, OVER_FIO), FULL, gains) }
}

const fn thp_always(setting: Setting) -> Setting {
    Setting { knobs: ALWAYS, ..setting }
}

const fn swap_off(setting: Setting) -> Setting {
    Setting { swap: Swap::None, ..setting }
}

pub(super) const MGLRU: Reproduction = Reproduction {
    name: "mglru",
    help: "generations against active and inactive lists under eight applications and fio (the MGLRU series of 2022)",
    source: "Yu Zhao, Multi-Gen LRU Framework, v10, April 2022: 95 % intervals of an independent lab and of S. Zhai (fio)",
    scale: 1.0 / 64.0,
    runs: 5,
    knobs: &[],
    sides: &[
        Side { profile: "classic", published: "Linux 5.14, 5.15" },
        Side { profile: "mglru", published: "with the series" },
    ],
    context: &[],
    settings: &[
        sort("Spark, medium", ("spark-sort", ":8", OVER_SORTING), &[time([9.28, 11.19])]),
        sort("Spark, high", ("spark-sort", ":16", OVER_SORTING), &[time([12.20, 14.93])]),
        setting("MariaDB, medium", ("mariadb", ":52", OVER_WITH_FILES), &[rate([5.24, 10.71])]),
        setting("MariaDB, high", ("mariadb", ":76", OVER_WITH_FILES), &[rate([20.22, 25.97])]),
        thp_always(setting(
            "Memcached, THP, sequential",
            (MEMCACHED, ":4:sequential", OVER),
            &[rate([23.54, 32.25])],
        )),
        thp_always(setting(
            "Memcached, THP, random",
            (MEMCACHED, ":4:uniform", OVER),
            &[rate([20.76, 41.61])],
        )),
        thp_always(setting(
            "Memcached, THP, Gaussian",
            (MEMCACHED, ":4:gaussian", OVER),
            &[rate([21.59, 30.02])],
        )),
        setting("Memcached, random", (MEMCACHED, ":4:uniform", OVER), &[rate([13.85, 15.97])]),
        setting("Memcached, Gaussian", (MEMCACHED, ":4:gaussian", OVER), &[rate([23.94, 29.92])]),
        setting(
            "MongoDB, over, exponential",
            (MONGODB, ":8:exponential", OVER_WITH_FILES),
            &[rate([8.83, 10.03])],
        ),
        setting("MongoDB, over, random", (MONGODB, ":8:uniform", OVER_WITH_FILES), &[rate([21.12, 23.14])]),
        setting("MongoDB, over, Zipf", (MONGODB, ":8:zipf", OVER_WITH_FILES), &[rate([5.53, 6.46])]),
        swap_off(setting(
            "Cassandra, no swap, exponential",
            (CASSANDRA, ":8:exponential", OVER_WITH_FILES),
            &[rate([1.06, 4.10])],
        )),
        swap_off(setting(
            "Cassandra, no swap, random",
            (CASSANDRA, ":8:uniform", OVER_WITH_FILES),
            &[rate([1.94, 5.43])],
        )),
        swap_off(setting(
            "Cassandra, no swap, Zipf",
            (CASSANDRA, ":8:zipf", OVER_WITH_FILES),
            &[rate([4.11, 7.50])],
        )),
        setting(
            "Cassandra, exponential",
            (CASSANDRA, ":8:exponential", OVER_WITH_FILES),
            &[rate([0.50, 2.60])],
        ),
        setting("Cassandra, random", (CASSANDRA, ":8:uniform", OVER_WITH_FILES), &[rate([6.51, 8.77])]),
        setting("Cassandra, Zipf", (CASSANDRA, ":8:zipf", OVER_WITH_FILES), &[rate([3.29, 6.75])]),
        sort("Hadoop TeraSort, medium", ("terasort", ":8", OVER_SORTING), &[time([5.31, 9.69])]),
        sort("Hadoop TeraSort, high", ("terasort", ":16", OVER_SORTING), &[time([2.02, 7.86])]),
        swap_off(setting(
            "PostgreSQL, no swap, high",
            ("postgresql", ":76", OVER_WITH_FILES),
            &[rate([1.75, 6.42])],
        )),
        setting("PostgreSQL, medium", ("postgresql", ":52", OVER_WITH_FILES), &[rate([12.82, 18.69])]),
        setting("PostgreSQL, high", ("postgresql", ":76", OVER_WITH_FILES), &[rate([22.70, 46.86])]),
        thp_always(setting(
            "Redis, THP, sequential",
            (REDIS, ":1:sequential", OVER_REDIS),
            &[rate([0.58, 5.94])],
        )),
        thp_always(setting("Redis, THP, random", (REDIS, ":1:uniform", OVER_REDIS), &[rate([6.55, 14.58])])),
        thp_always(setting(
            "Redis, THP, Gaussian",
            (REDIS, ":1:gaussian", OVER_REDIS),
            &[rate([11.47, 19.36])],
        )),
        setting("Redis, sequential", (REDIS, ":1:sequential", OVER_REDIS), &[rate([1.27, 3.54])]),
        setting("Redis, random", (REDIS, ":1:uniform", OVER_REDIS), &[rate([10.11, 14.81])]),
        setting("Redis, Gaussian", (REDIS, ":1:gaussian", OVER_REDIS), &[rate([8.75, 13.64])]),
        fio("fio, 1 job a CPU, random", ":4:uniform", &[rate([38.95, 40.26])]),
        fio("fio, 1 job a CPU, Zipf", ":4:zipf", &[rate([4.12, 6.64])]),
        fio("fio, 1 job a CPU, Gaussian", ":4:gaussian", &[rate([9.26, 10.36])]),
        fio("fio, 2 jobs a CPU, random", ":8:uniform", &[rate([42.32, 49.15])]),
        fio("fio, 2 jobs a CPU, Zipf", ":8:zipf", &[rate([9.44, 9.89])]),
        fio("fio, 2 jobs a CPU, Gaussian", ":8:gaussian", &[rate([20.99, 22.86])]),
    ],
    counts: super::gain::COUNTS,
    explain: None,
    notes: &[
        "Conditions are those of the reports that the letter links, where they were found: Memcached's objects of 2 kB, some 10 % of memory \
         swapped out to zram, 13 and 19 users a CPU (medium, high) under MariaDB, fio on a RAM disk with 36 of 99 GB of memory and its usual \
         advice to read at random. Where no report was found, PostgreSQL has MariaDB's users, sorts have 2 and 4 tasks a CPU, MongoDB and \
         Cassandra 2, and all have zram: guesses, none tuned. Memory is a share of the footprint with which some 10 % is swapped out under \
         the classic lists; where a program has files, less is. The machine is the preset laptop (4 CPUs, NVMe).",
        "Rows of MongoDB that fits into memory are not repeated: here nothing is reclaimed then, and no policy can differ.",
        "The programs are models (docs/programs.md). The work is fixed, so a gain in operations a second is the ratio of run times, which \
         include filling the store; the published figures do not.",
        "The published kernels are 5.14, 5.15 and 5.16; both sides here are those of Linux 6.12. The letter also quotes 64 KiB pages (POWER10), \
         Optane and a fleet of Chromebooks, which are not repeated.",
    ],
};

/// The series alone: the profile `mglru-7.2` has more of Linux 7.2.
const LOOP: &str = "mglru-6.14+lru_gen.form=7.2";

const fn newer(percent: [f64; 2]) -> Gain {
    Gain { profile: LOOP, ..rate(percent) }
}

pub(super) const MGLRU_7_2: Reproduction = Reproduction {
    name: "mglru-7.2",
    help: "the reclaim loop of 7.2 against generations as in 6.14, under a database (the series of 2026)",
    source: "K. Song, mm/mglru: improve reclaim loop and dirty folio handling, v1 to v7, March and April 2026",
    scale: 1.0 / 256.0,
    runs: 5,
    knobs: &[],
    sides: &[
        Side { profile: "mglru-6.14", published: "Linux 7.1" },
        Side { profile: LOOP, published: "with the series" },
    ],
    context: &["mglru", "classic"],
    settings: &[
        // Twenty million records of 1 KiB, in a control group of 10 GiB; YCSB's workload B, 5 % updates.
        swap_off(Setting {
            title: "MongoDB, YCSB-B",
            load: Load::Share { program: MONGODB, options: ":32", footprint: 24 << 30, percent: 42 },
            gains: &[newer([30.0, 30.0])],
            ..Setting::PLAIN
        }),
    ],
    counts: super::gain::COUNTS,
    explain: None,
    notes: &[
        "Published: \"up to 30 %\" on a server with 48 cores and NVMe, without an interval (more on slow disks). Here: the model of MongoDB \
         (docs/programs.md) on the preset laptop, with memory for 42 % of its footprint, the share that 10 GB are of 20 million records and \
         a cache. The form of 6.14, with its handling of dirty pages, represents Linux 7.1.",
    ],
};
