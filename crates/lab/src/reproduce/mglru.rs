//! Seed 003: "Multi-Gen LRU Framework", v10, April 2022: the benchmarks in its cover letter.

use super::{Gain, Load, Measure, Reproduction, Setting, Side, Swap};
use mm::knobs::Knob;

const MEMCACHED: &str = "memcached";
const MONGODB: &str = "mongodb";
const CASSANDRA: &str = "cassandra";
const REDIS: &str = "redis";
const ALWAYS: &[(Knob, u64)] = &[(Knob::HugepagesEnabled2048, 2)];
/// Memory in per cent of the footprint.
const OVER: u64 = 50;
const UNDER: u64 = 120;

const fn rate(percent: [f64; 2]) -> Gain {
    Gain { profile: "mglru", measure: Measure::Rate, percent }
}

const fn time(percent: [f64; 2]) -> Gain {
    Gain { profile: "mglru", measure: Measure::Elapsed, percent }
}

const fn setting(
    title: &'static str,
    program: &'static str,
    options: &'static str,
    percent: u64,
    gains: &'static [Gain],
) -> Setting {
    // The letter gives no sizes.
    let load = Load::Share { program, options, footprint: 1 << 30, percent };
    Setting { title, load, gains, ..Setting::PLAIN }
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
    scale: 1.0 / 16.0,
    runs: 5,
    knobs: &[],
    sides: &[
        Side { profile: "classic", published: "Linux 5.14, 5.15" },
        Side { profile: "mglru", published: "with the series" },
    ],
    context: &[],
    settings: &[
        setting("Spark, medium", "spark-sort", ":8", OVER, &[time([9.28, 11.19])]),
        setting("Spark, high", "spark-sort", ":16", OVER, &[time([12.20, 14.93])]),
        setting("MariaDB, medium", "mariadb", ":8", OVER, &[rate([5.24, 10.71])]),
        setting("MariaDB, high", "mariadb", ":16", OVER, &[rate([20.22, 25.97])]),
        thp_always(setting(
            "Memcached, THP, sequential",
            MEMCACHED,
            ":4:sequential",
            OVER,
            &[rate([23.54, 32.25])],
        )),
        thp_always(setting("Memcached, THP, random", MEMCACHED, ":4:uniform", OVER, &[rate([20.76, 41.61])])),
        thp_always(setting(
            "Memcached, THP, Gaussian",
            MEMCACHED,
            ":4:gaussian",
            OVER,
            &[rate([21.59, 30.02])],
        )),
        setting("Memcached, random", MEMCACHED, ":4:uniform", OVER, &[rate([13.85, 15.97])]),
        setting("Memcached, Gaussian", MEMCACHED, ":4:gaussian", OVER, &[rate([23.94, 29.92])]),
        setting("MongoDB, under, exponential", MONGODB, ":8:exponential", UNDER, &[rate([2.23, 3.44])]),
        setting("MongoDB, under, random", MONGODB, ":8:uniform", UNDER, &[rate([6.97, 9.73])]),
        setting("MongoDB, under, Zipf", MONGODB, ":8:zipf", UNDER, &[rate([2.16, 3.55])]),
        setting("MongoDB, over, exponential", MONGODB, ":8:exponential", OVER, &[rate([8.83, 10.03])]),
        setting("MongoDB, over, random", MONGODB, ":8:uniform", OVER, &[rate([21.12, 23.14])]),
        setting("MongoDB, over, Zipf", MONGODB, ":8:zipf", OVER, &[rate([5.53, 6.46])]),
        swap_off(setting(
            "Cassandra, no swap, exponential",
            CASSANDRA,
            ":8:exponential",
            OVER,
            &[rate([1.06, 4.10])],
        )),
        swap_off(setting("Cassandra, no swap, random", CASSANDRA, ":8:uniform", OVER, &[rate([1.94, 5.43])])),
        swap_off(setting("Cassandra, no swap, Zipf", CASSANDRA, ":8:zipf", OVER, &[rate([4.11, 7.50])])),
        setting("Cassandra, exponential", CASSANDRA, ":8:exponential", OVER, &[rate([0.50, 2.60])]),
        setting("Cassandra, random", CASSANDRA, ":8:uniform", OVER, &[rate([6.51, 8.77])]),
        setting("Cassandra, Zipf", CASSANDRA, ":8:zipf", OVER, &[rate([3.29, 6.75])]),
        setting("Hadoop TeraSort, medium", "terasort", ":8", OVER, &[time([5.31, 9.69])]),
        setting("Hadoop TeraSort, high", "terasort", ":16", OVER, &[time([2.02, 7.86])]),
        swap_off(setting("PostgreSQL, no swap, high", "postgresql", ":16", OVER, &[rate([1.75, 6.42])])),
        setting("PostgreSQL, medium", "postgresql", ":8", OVER, &[rate([12.82, 18.69])]),
        setting("PostgreSQL, high", "postgresql", ":16", OVER, &[rate([22.70, 46.86])]),
        thp_always(setting("Redis, THP, sequential", REDIS, ":1:sequential", OVER, &[rate([0.58, 5.94])])),
        thp_always(setting("Redis, THP, random", REDIS, ":1:uniform", OVER, &[rate([6.55, 14.58])])),
        thp_always(setting("Redis, THP, Gaussian", REDIS, ":1:gaussian", OVER, &[rate([11.47, 19.36])])),
        setting("Redis, sequential", REDIS, ":1:sequential", OVER, &[rate([1.27, 3.54])]),
        setting("Redis, random", REDIS, ":1:uniform", OVER, &[rate([10.11, 14.81])]),
        setting("Redis, Gaussian", REDIS, ":1:gaussian", OVER, &[rate([8.75, 13.64])]),
        setting("fio, 1 job a CPU, random", "fio", ":4:uniform", OVER, &[rate([38.95, 40.26])]),
        setting("fio, 1 job a CPU, Zipf", "fio", ":4:zipf", OVER, &[rate([4.12, 6.64])]),
        setting("fio, 1 job a CPU, Gaussian", "fio", ":4:gaussian", OVER, &[rate([9.26, 10.36])]),
        setting("fio, 2 jobs a CPU, random", "fio", ":8:uniform", OVER, &[rate([42.32, 49.15])]),
        setting("fio, 2 jobs a CPU, Zipf", "fio", ":8:zipf", OVER, &[rate([9.44, 9.89])]),
        setting("fio, 2 jobs a CPU, Gaussian", "fio", ":8:gaussian", OVER, &[rate([20.99, 22.86])]),
    ],
    counts: super::gain::COUNTS,
    explain: None,
    notes: &[
        "The letter names programs, distributions, concurrency and whether memory was overcommitted, but no sizes, machines or numbers of \
         tasks. Here: the preset laptop (4 CPUs, NVMe); memory for half of the footprint if it is overcommitted or the letter does not say, \
         and for 120 % of it otherwise; medium is 2 tasks a CPU, high is 4. All of these are guesses; none was tuned.",
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
