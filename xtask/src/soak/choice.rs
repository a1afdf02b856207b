//! The content of a case: choices, each drawn from a stream of its own, so that none depends on another.

use crate::knobs::{CompactionFolios, Compressor, FlushPolicy, ReadAheadForm, ThpDefrag, ZswapForm};

/// All flush policies; the one that defers most is drawn twice as often.
const FLUSHES: [&str; FlushPolicy::ALL.len() + 1] = {
    let twice = FlushPolicy::Lazy as usize;
    let (mut words, mut at) = ([FlushPolicy::WORDS[twice]; _], 0);
    while at < FlushPolicy::ALL.len() {
        words[at + (at > twice) as usize] = FlushPolicy::WORDS[at];
        at += 1;
    }
    words
};

/// Every choice, with its values.
const CHOICES: &[(&str, &[&str])] = &[
    ("program", &["chaos", "chaos", "recorded", "built-in"]),
    // All flush policies, each with limits from none to tight. If no CPU is stopped, the case also checks that no
    // policy flushes less than is safe.
    ("tlb.unmap", &FLUSHES),
    ("tlb.age_limit_ms", &["0", "1", "5", "100"]),
    ("tlb.unmap_pages", &["1", "2", "7", "32"]),
    ("tlb.pay_all", &["0", "1"]),
    ("rmap.batch", &["1", "1", "0"]),
    ("reclaim.policy", &["classic", "mglru"]),
    ("file.max_order", &["0", "2", "5", "9"]),
    ("shmem.max_order", &["0", "2", "4", "9"]),
    ("queue.read_ahead_kb", &["128", "512", "2048"]),
    ("file.read_ahead_form", ReadAheadForm::WORDS),
    ("thp.file_pmd", &["0", "1"]),
    ("hugepages-16kB.enabled", &["never", "madvise", "always"]),
    ("hugepages-64kB.enabled", &["never", "madvise", "always"]),
    ("hugepages-512kB.enabled", &["never", "always"]),
    ("hugepages-2048kB.enabled", &["never", "madvise", "always"]),
    ("thp.khugepaged", &["0", "1"]),
    ("thp.defrag", ThpDefrag::WORDS),
    ("compaction.folios", CompactionFolios::WORDS),
    ("vm.compaction_proactiveness", &["0", "20", "90"]),
    ("vm.defrag_mode", &["0", "0", "1"]),
    ("vm.swappiness", &["0", "60", "100", "200"]),
    ("vm.page-cluster", &["0", "3"]),
    ("zswap.enabled", &["0", "0", "1"]),
    ("zswap.compressor", Compressor::WORDS),
    ("zswap.max_pool_percent", &["1", "5", "20"]),
    ("zswap.accept_threshold_percent", &["50", "90"]),
    ("zswap.shrinker_enabled", &["0", "1"]),
    ("zswap.form", ZswapForm::WORDS),
    ("numa.demotion_enabled", &["0", "1"]),
    ("kernel.numa_balancing", &["0", "1", "2"]),
    ("tier.policy", &["hint", "hint", "generations", "sampled"]),
    ("tier.migration", &["exclusive", "transactional"]),
    ("damon_reclaim.enabled", &["0", "0", "1"]),
    ("damon_reclaim.quota_sz", &["0", "65536", "1048576"]),
    // CPUs that are stopped in the middle of the memory manager's work. The bound's counts say nothing then.
    ("preempt", &["off", "off", "off", "off", "4", "16", "64", "256"]),
    ("chaos machine", &["random", "random", "random", "tiers"]),
    ("chaos size", &["2M", "6M", "12M", "24M", "48M", "96M"]),
    // Some have no room for what is swapped out.
    (
        "chaos swap",
        &[
            "",
            "",
            " --swap zram:64M,algorithm=zstd",
            " --swap zram:4M,algorithm=lz4 --swap zram:8M,priority=3",
            " --swap zram:64M,mem_limit=2M",
            " --swap zram:32M,backing=DEVICE:8M,writeback=idle,idle=1ms,every=1ms",
            " --swap zram:64M,algorithm=lz4,recompress=zstd,every=1ms",
        ],
    ),
    ("chaos group", &["", "", " --group a:memory.zswap.max=256K", " --group a:memory.zswap.writeback=0"]),
    ("chaos devices", &["", "", "", " --fail all:reads=1%,writes=10%", " --fail all:writes=100%,after=2ms"]),
    ("chaos operations", &["100", "200", "500", "1000"]),
    ("trace", &["sqlite", "redis", "cc1"]),
    ("trace memory", &["45", "52", "60", "75", "90"]),
    ("trace machine", &["laptop", "compact-8"]),
    ("built-in", BUILT_IN),
    ("built-in memory", &["40", "55", "70"]),
    ("built-in machine", &["compact-8", "laptop", "icelake-96"]),
];

/// Programs with several threads or processes.
const BUILT_IN: &[&str] = &[
    "uniform-file:48M:8",
    "shared-writers:48M",
    "zipf:48M:8",
    "fork-write:48M",
    "stream:96M:6",
    "map-storm:48M:8",
    "fork-storm:48M",
    "uniform:48M:16",
];

/// The tests' programs live for milliseconds, so Linux's periods of a second are shortened to suit.
const HASTE: &str = " --set khugepaged.scan_sleep_millisecs=3 --set khugepaged.alloc_sleep_millisecs=3 --set \
                     numa_balancing.scan_delay_ms=1 --set numa_balancing.scan_period_min_ms=5 --set numa_balancing.scan_size_mb=4 \
                     --set numa_balancing.hot_threshold_ms=20 --set tier.period_ms=1 --set tier.sample_period=7 --set tier.adapt_samples=100 \
                     --set damon_reclaim.sample_interval=100 --set damon_reclaim.aggr_interval=1000 --set damon_reclaim.min_age=2000 --set \
                     damon_reclaim.quota_reset_interval_ms=2 --set damon_reclaim.wmarks_interval=1000 --set damon_reclaim.wmarks_high=900 \
                     --set damon_reclaim.wmarks_mid=900 --set damon_reclaim.wmarks_low=0";

/// One round of splitmix64.
fn mix(word: u64) -> u64 {
    let z = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The first number of the stream of a name, for a seed.
fn draw(seed: u64, name: &str) -> u64 {
    name.bytes().fold(mix(seed), |word, byte| mix(word ^ u64::from(byte)))
}

/// The value that a seed chooses.
fn choice(seed: u64, name: &str) -> &'static str {
    let &(_, values) = CHOICES.iter().find(|(known, _)| *known == name).expect("a choice of the table");
    values[(draw(seed, name) % values.len() as u64) as usize]
}

/// The case of a seed: the arguments of `pagefold`. `only`: the kind of program.
pub fn case(seed: u64, only: Option<&str>) -> String {
    let choose = |name: &str| choice(seed, name);
    let program = match only.unwrap_or(choose("program")) {
        "chaos" => {
            let (device, machine) = match choose("chaos machine") {
                "random" => ("disk", format!("random:{}", draw(seed, "machine") % 1_000_000)),
                with_tiers => ("nvme0", format!("{with_tiers} --memory 24M")),
            };
            format!(
                "chaos:{}:{}{}{}{} --machine {machine}",
                choose("chaos size"),
                choose("chaos operations"),
                choose("chaos swap").replace("DEVICE", device),
                choose("chaos devices"),
                choose("chaos group"),
            )
        }
        "recorded" => format!(
            "traces/{}.pft --memory {}% --machine {}",
            choose("trace"),
            choose("trace memory"),
            choose("trace machine")
        ),
        _ => format!(
            "{} --memory {}% --machine {}",
            choose("built-in"),
            choose("built-in memory"),
            choose("built-in machine")
        ),
    };
    // As in Linux, the generational policy never swaps if swappiness is 0, and would run out of memory.
    let choose = |name: &str| match (choose(name), choose("reclaim.policy")) {
        ("0", "mglru") if name == "vm.swappiness" => "1",
        (chosen, _) => chosen,
    };
    // A name with a dot is a knob's.
    let knobs = CHOICES.iter().filter(|(name, _)| name.contains('.'));
    let set: String = knobs.map(|(name, _)| format!(" --set {name}={}", choose(name))).collect();
    let watch = match choose("preempt") {
        "off" => "--bound".to_owned(),
        every => format!("--preempt {every}"),
    };
    format!("run {program} --seed {seed}{set}{HASTE} --verify {watch} --quiet --json")
}

/// A few cases that together meet all that the random program can meet, several times over: little memory in one node
/// and in four, under all flush policies, with all forms of folios, collapse under three sets of limits, and memory in
/// tiers.
pub fn covering() -> Vec<String> {
    const MACHINES: [&str; 5] = ["small", "compact-8", "random:33", "random:18", "numa-4s-2015"];
    let case = |i: usize| {
        let machine = if i % 7 == 3 { "tiers" } else { MACHINES[i % 5] };
        // All forms of folios with each policy, once with less memory and once with more.
        let enabled = ["always", "never"][i / 6 % 2];
        let (order, memory) = ([9, 0, 4][i / 12 % 3], ["32M", "48M"][i / 36 % 2]);
        let limit = [511, 0, 64][i / 7 % 3];
        let device = match machine {
            "numa-4s-2015" => "sda",
            random if random.starts_with("random") => "disk",
            _ => "nvme0",
        };
        let zram = [
            "algorithm=lz4".to_owned(),
            "algorithm=zstd".to_owned(),
            format!("recompress=zstd,backing={device}:64M,writeback=idle,idle=1ms,every=2ms"),
        ];
        let zswap = [
            "",
            " --set zswap.shrinker_enabled=1 --group a:memory.zswap.max=1M",
            " --group a:memory.zswap.writeback=0",
        ];
        let kind = i / 6 % 3;
        let swap = [
            String::new(),
            format!(" --swap zram:64M,{}", zram[kind]),
            format!(" --set zswap.enabled=1 --set zswap.max_pool_percent=1{}", zswap[kind]),
        ];
        let swap = &swap[i / 2 % 3];
        let fails = if i % 5 == 2 { " --fail all:reads=1%,writes=10%" } else { "" };
        let limits =
            ["swap", "shared", "none"].map(|name| format!(" --set khugepaged.max_ptes_{name}={limit}"));
        format!(
            "run chaos:{}:600 --memory {memory} --machine {machine} --seed {} --set tlb.unmap={} --set reclaim.policy={} --set \
             file.max_order={order} --set shmem.max_order={order} --set thp.file_pmd={} --set hugepages-64kB.enabled={enabled} --set \
             hugepages-2048kB.enabled={enabled} --set thp.khugepaged=1 --set numa.demotion_enabled={} \
             --set kernel.numa_balancing={} --set tier.policy={} --set tier.migration={} \
             --set damon_reclaim.enabled={} --set damon_reclaim.quota_sz={}{}{swap}{fails}{HASTE} --verify --quiet --json",
            ["96M", "160M", "256M", "512M"][i % 4],
            SEEDS + i,
            FlushPolicy::WORDS[i % FlushPolicy::WORDS.len()],
            ["classic", "mglru"][i / 3 % 2],
            u8::from(order == 9),
            i / 4 % 2,
            i / 5 % 3,
            ["hint", "sampled", "generations"][i / 7 % 3],
            ["exclusive", "transactional"][i / 21 % 2],
            i / 8 % 2,
            ["65536", "0"][i / 24 % 2],
            limits.concat(),
        )
    };
    (0..COVERING).map(case).collect()
}

/// The seed of the first of those cases: from here on they meet also what few seeds do.
const SEEDS: usize = 303;

/// Number of those cases.
const COVERING: usize = 72;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Any two choices are independent: all pairs of their values occur.
    #[test]
    fn every_pair_of_choices_occurs() {
        let seeds: Vec<Vec<&str>> =
            (1..=1000).map(|seed| CHOICES.iter().map(|(name, _)| choice(seed, name)).collect()).collect();
        let values = |at: usize| CHOICES[at].1.iter().collect::<BTreeSet<_>>().len();
        for a in 0..CHOICES.len() {
            for b in 0..a {
                let met: BTreeSet<_> = seeds.iter().map(|case| (case[a], case[b])).collect();
                let (one, other) = (CHOICES[a].0, CHOICES[b].0);
                assert_eq!(met.len(), values(a) * values(b), "{one} and {other}");
            }
        }
    }

    #[test]
    fn a_case_is_a_complete_command_line() {
        let case = case(7, Some("chaos"));
        assert!(
            case.starts_with("run chaos:")
                && case.contains(" --seed 7 ")
                && case.contains(" --set rmap.batch=")
        );
        let watched = |case: String| (case.contains(" --bound "), case.contains(" --preempt "));
        let of_many: BTreeSet<_> = (1..=100).map(|seed| watched(super::case(seed, None))).collect();
        assert_eq!(of_many, BTreeSet::from([(true, false), (false, true)]));
        assert_eq!(case, super::case(7, Some("chaos")));
        assert_ne!(draw(7, "a"), draw(8, "a"));
        assert_ne!(draw(7, "ab"), draw(7, "ba"));
    }
}
