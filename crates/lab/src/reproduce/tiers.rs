//! Policies for placement in tiers side by side: TPP, MEMTIS, Nomad, Colloid and generations, with the optimum of
//! placement.

use super::{Count, Gain, Load, Measure, Outcome, Reproduction, Setting, SettingOutcome, Side};
use crate::grid::Grid;
use crate::human;
use mm::knobs::Knob;

/// TPP's gain over Linux without it: up to 18 % more work a second, as less time.
const TPP: &[Gain] = &[Gain { profile: "tpp", measure: Measure::Elapsed, percent: [0.0, 15.3] }];

const fn on_tiers(title: &'static str, machine: &'static str, program: &'static str) -> Setting {
    // The footprint of MEMTIS' programs, in memory that they just fit into; three threads leave one of four CPUs to
    // daemons.
    let load = Load::Share { program, options: ":3", footprint: 64 << 30, percent: 112 };
    Setting { title, machine, load, gains: TPP, ..Setting::PLAIN }
}

/// On the machine of Colloid, with its 128 GB in both memories. All of the program fits into the near memory, or only
/// its hot part.
const fn under_load(title: &'static str, footprint: u64, percent: u64) -> Setting {
    let load = Load::Share { program: "gups-4k", options: ":60", footprint, percent };
    Setting { title, machine: "colloid", load, gains: TPP, ..Setting::PLAIN }
}

const fn llama(title: &'static str, machine: &'static str) -> Setting {
    let load = Load::Share { program: "llama", options: "", footprint: 210 << 30, percent: 66 };
    Setting { title, machine, load, gains: TPP, ..Setting::PLAIN }
}

const fn recorded(title: &'static str, machine: &'static str, file: &'static str) -> Setting {
    Setting {
        title,
        machine,
        load: Load::Trace { file, percent: 112, scale: SCALE },
        gains: TPP,
        ..Setting::PLAIN
    }
}

/// Share of full size: of the llamas by default, and of the machines for traces.
const SCALE: f64 = 1.0 / 1024.0;

pub(super) const TIERS: Reproduction = Reproduction {
    name: "tiers",
    help: "placement in tiers: NUMA balancing, TPP, generations, MEMTIS, Nomad and Colloid, with the optimum of placement",
    source: "Maruf et al., TPP (ASPLOS 2023); Lee et al., MEMTIS (SOSP 2023); Xiang et al., Nomad (OSDI 2024); Vuppalapati and Agarwal, \
             Colloid (SOSP 2024): their abstracts",
    scale: SCALE,
    runs: 1,
    // A 1024th of their defaults, like sizes and periods.
    knobs: &[(Knob::TierAdaptSamples, 98), (Knob::TierCoolSamples, 1953)],
    sides: &[
        Side { profile: "classic", published: "none: pages stay where they were first put" },
        Side { profile: "numa-balancing", published: "NUMA balancing" },
        Side { profile: "tpp", published: "TPP, hint faults" },
        Side { profile: "tier-generations", published: "young bits of MGLRU" },
        Side { profile: "memtis", published: "MEMTIS, samples" },
        Side { profile: "nomad", published: "Nomad, transactional" },
        Side { profile: "colloid", published: "Colloid, by load" },
    ],
    context: &[],
    settings: &[
        recorded("trace of sqlite, 1:2", "tiers:1:2", "traces/sqlite.pft"),
        recorded("trace of sqlite, 1:8", "tiers:1:8", "traces/sqlite.pft"),
        recorded("trace of sqlite, 1:16", "tiers:1:16", "traces/sqlite.pft"),
        recorded("trace of redis, 1:2", "tiers:1:2", "traces/redis.pft"),
        recorded("trace of redis, 1:8", "tiers:1:8", "traces/redis.pft"),
        recorded("trace of redis, 1:16", "tiers:1:16", "traces/redis.pft"),
        recorded("trace of cc1, 1:2", "tiers:1:2", "traces/cc1.pft"),
        recorded("trace of cc1, 1:8", "tiers:1:8", "traces/cc1.pft"),
        recorded("trace of cc1, 1:16", "tiers:1:16", "traces/cc1.pft"),
        under_load("GUPS of 4 KiB, 60 threads, fits near", 24 << 30, 533),
        under_load("GUPS of 4 KiB, 60 threads, hot third fits", 72 << 30, 178),
        on_tiers("graph500, 1:2", "tiers:1:2", "graph500"),
        on_tiers("graph500, 1:8", "tiers:1:8", "graph500"),
        on_tiers("graph500, 1:16", "tiers:1:16", "graph500"),
        on_tiers("XSBench, 1:2", "tiers:1:2", "xsbench"),
        on_tiers("XSBench, 1:8", "tiers:1:8", "xsbench"),
        on_tiers("XSBench, 1:16", "tiers:1:16", "xsbench"),
        on_tiers("B-tree, 1:2", "tiers:1:2", "btree"),
        on_tiers("B-tree, 1:8", "tiers:1:8", "btree"),
        on_tiers("B-tree, 1:16", "tiers:1:16", "btree"),
        on_tiers("PageRank, 1:2", "tiers:1:2", "pagerank"),
        on_tiers("PageRank, 1:8", "tiers:1:8", "pagerank"),
        on_tiers("PageRank, 1:16", "tiers:1:16", "pagerank"),
        on_tiers("Silo, YCSB-C, 1:2", "tiers:1:2", "silo"),
        on_tiers("Silo, YCSB-C, 1:8", "tiers:1:8", "silo"),
        on_tiers("Silo, YCSB-C, 1:16", "tiers:1:16", "silo"),
        on_tiers("GUPS, 1:2", "tiers:1:2", "gups"),
        on_tiers("GUPS, 1:8", "tiers:1:8", "gups"),
        on_tiers("GUPS, 1:16", "tiers:1:16", "gups"),
        llama("llama, 1:2", "luf-cxl:1:2"),
        llama("llama, 1:8", "luf-cxl:1:8"),
        llama("llama, 1:16", "luf-cxl:1:16"),
    ],
    counts: &[
        Count::sum(SLOW, &["slow_memory_share"]),
        Count::sum(UP, &["pgpromote_success"]),
        Count::sum(DOWN, &["pgdemote_kswapd", "pgdemote_direct", "tier_balanced"]),
        Count::sum(BACK, &["placement_back"]),
        Count::sum(COST, &["placement_cost"]),
        Count::sum(LEAST, &["placement_cost_least"]),
        Count::sum(LEAST_SHARE, &["placement_share_least"]),
        Count::sum("numa_hint_faults", &["numa_hint_faults"]),
        Count::sum("tier_samples", &["tier_samples"]),
        Count::sum("tier_samples_lost", &["tier_samples_lost"]),
        Count::sum("tier_move_aborted", &["tier_move_aborted"]),
        Count::sum("near_latency_ns", &["node0_read_latency"]),
        Count::sum("far_latency_ns", &["node1_read_latency"]),
        super::KSWAPD,
    ],
    explain: Some(render),
    notes: &[
        "Published gains are against different baselines, on other programs and machines: TPP 18 % over Linux, 5 to 17 % over NUMA balancing and \
         AutoTiering; MEMTIS up to 169 %, and 33.6 % over its best rival; Nomad up to 6 times TPP under pressure; Colloid: fast memory up to 2.5 \
         times slower than the other under load, systems up to 2.3 times off the optimum. There are no figures for single programs, so the first \
         table has only TPP's, and only its direction is meaningful.",
        "The optimum is a lower bound on the time for reads of slow memory and for copies (placement_cost), given the reads of the run in the same \
         row (docs/tiers.md). It excludes faults, scans, flushes and waits. Its share of fast memory is that of the plan behind the bound.",
        "At the default scale sizes and periods are 1/1024 of full size, except for clock ticks, at which NUMA balancing marks pages: they come every \
         4 ms. Traces have their own size, and their machines the same periods.",
        "On a machine that does not report loads, colloid is the same as memtis. MEMTIS' huge pages and Nomad's shadows are missing.",
    ],
};

const SLOW: &str = "slow_memory_share";
const UP: &str = "promoted";
const DOWN: &str = "demoted";
const BACK: &str = "placement_back";
const COST: &str = "placement_cost_seconds";
const LEAST: &str = "placement_cost_least_seconds";
const LEAST_SHARE: &str = "placement_share_least";

/// A line for each policy in each setting.
pub(super) fn render(outcome: &Outcome, settings: &[&SettingOutcome], width: usize) -> String {
    let mut grid = Grid::new([
        "",
        "way",
        "fast share",
        "promoted",
        "demoted",
        "back up",
        "run time",
        "gain",
        "reads and moves",
        "optimum",
        "x optimum",
        "its share",
    ]);
    for setting in settings {
        for profile in &outcome.profiles {
            let count = |name: &str| setting.counts[name][profile];
            let (cost, least) = (count(COST), count(LEAST));
            let gain = setting.gains.first().and_then(|gain| *gain.all_pct.get(profile)?);
            let percent = |share: f64| format!("{share:.1} %");
            grid.row([
                setting.title.clone(),
                profile.clone(),
                percent(100.0 - count(SLOW)),
                human::number(count(UP), ""),
                human::number(count(DOWN), ""),
                human::number(count(BACK), ""),
                human::number(setting.run_seconds[profile], "s"),
                gain.map_or(String::new(), human::percent),
                human::number(cost, "s"),
                human::number(least, "s"),
                if least > 0.0 { format!("{:.2}", cost / least) } else { "n/a".to_owned() },
                percent(count(LEAST_SHARE)),
            ]);
        }
    }
    grid.render(|column| column < 2, width)
}

#[cfg(test)]
mod tests {
    use crate::document::Document;
    use crate::reproduce::{Case, Outcome, Reproduction};

    #[test]
    fn every_policy_has_a_line_in_each_setting() {
        let one = Reproduction::find("tiers").unwrap();
        let mut outcome = Outcome::new(one, one.scale, 1, 1);
        let case = Case::new(&one.settings[0], one.scale).unwrap();
        let runs: Vec<_> = outcome
            .profiles
            .iter()
            .map(|profile| {
                let mut run = crate::metrics::tests::run(profile, 1, 1_000_000_000, &[]);
                run.counters.insert("pgpromote_success".to_owned(), 70);
                run
            })
            .collect();
        outcome.add(&case, &runs);
        let text = outcome.text(200);
        let line = text
            .lines()
            .find(|line| line.starts_with("trace of sqlite, 1:2") && line.contains(" nomad "))
            .unwrap();
        assert_eq!(
            line.split_whitespace().collect::<Vec<_>>()[4..],
            [
                "nomad", "100.0", "%", "70", "0", "0", "1.00", "s", "+0.00%", "0", "ns", "0", "ns", "n/a",
                "0.0", "%"
            ]
        );
    }
}
