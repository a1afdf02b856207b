//! cache_ext, SOSP 2025: page-cache policies in eBPF, on Linux 6.6.8.

use super::{Gain, Load, Measure, Reproduction, Setting, Side};

const fn rate(profile: &'static str, percent: f64) -> Gain {
    Gain { profile, measure: Measure::Rate, percent: [percent, percent] }
}

const fn p99(profile: &'static str, percent: f64) -> Gain {
    Gain { profile, measure: Measure::P99, percent: [percent, percent] }
}

const fn setting(
    title: &'static str,
    program: &'static str,
    options: &'static str,
    percent: u64,
    gains: &'static [Gain],
) -> Setting {
    Setting {
        title,
        load: Load::Share { program, options, footprint: 2 << 30, percent },
        gains,
        ..Setting::PLAIN
    }
}

pub(super) const CACHE_EXT: Reproduction = Reproduction {
    name: "cache-ext",
    help: "custom policies against active and inactive lists: MRU, LFU, GET-SCAN (cache_ext, SOSP 2025)",
    source: "cache_ext, SOSP 2025, on Linux 6.6.8: the gains in its text",
    scale: 1.0 / 16.0,
    runs: 5,
    knobs: &[],
    sides: &[
        Side { profile: "classic", published: "Linux 6.6.8" },
        Side { profile: "mglru", published: "MGLRU" },
    ],
    context: mm::policy::NAMES,
    settings: &[
        setting("file search", "file-search", "", 70, &[rate("mru", 100.0)]),
        setting("YCSB A", "lsm", ":50%", 10, &[rate("lfu", 37.0), p99("lfu", 55.0)]),
        setting("YCSB B", "lsm", ":5%", 10, &[rate("lfu", 37.0), p99("lfu", 55.0)]),
        setting("YCSB C", "lsm", ":0%", 10, &[rate("lfu", 37.0), p99("lfu", 55.0)]),
        setting("GET-SCAN", "get-scan", "", 10, &[rate("get-scan", 70.0), p99("get-scan", 57.0)]),
    ],
    counts: super::gain::COUNTS,
    explain: None,
    notes: &[
        "MRU is published as almost twice as fast, which is 100 % here. LFU's 37 % and 55 % are the maximum over all YCSB loads (\"up to\"), \
         so less does not contradict them.",
        "Published: a database of 100 GiB in a group of 10 GiB; a tree of which a group of 1 GiB holds 70 %. Here the shares are the same and \
         the sizes smaller, on a machine with that memory instead of a group in a larger one, so the programs' own memory also competes.",
        "Two groups with different policies (published: +49.8 % and +79.4 %) are not repeated, because all groups have the policy of the \
         machine here. The Twitter traces (no policy wins everywhere) are not available.",
        "The programs are models (docs/programs.md). The work is fixed, so a gain in operations a second is the ratio of run times, which \
         include loading the database. P99 is that of GETs, or of all operations.",
    ],
};
