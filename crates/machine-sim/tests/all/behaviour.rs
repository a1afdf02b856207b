//! What the simulated machine does has a number: the version in `docs/behaviour.toml`.
//!
//! Pages with measured figures say at which version they were made, and tidy (`xtask/tests/tidy/figures.rs`) has them
//! say so visibly once a newer one is current. That holds only if a change of behaviour cannot go unnoticed. So this
//! test makes a dozen small runs, of several kinds of programs under several policies, and compares what they counted
//! with the file. Counters are few and known by name, so a new one changes nothing.

use machine_sim::{MachineSpec, RunConfig, SwapSpec, run};
use mm::knobs::Knob;
use mm::stat::Stat;
use program::Named;
use program::named::NameParts;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// Machine, program, MiB of memory, knobs and swap areas.
const RUNS: &[(&str, &str, u64, &[&str])] = &[
    ("small", "zipf:8M", 6, &[]),
    ("small", "zipf:8M", 6, &["reclaim.policy=mglru"]),
    ("small", "fork-write:8M", 6, &["tlb.unmap=abis"]),
    ("small", "map-storm:8M", 6, &["tlb.unmap=list"]),
    ("small", "read-stream:12M", 8, &["file.max_order=9"]),
    ("small", "zipf-hugepage:16M", 12, &["hugepages-2048kB.enabled=madvise"]),
    ("laptop", "zipf-file:8M", 6, &["tlb.unmap=lazy"]),
    ("laptop", "stream:12M", 8, &["tlb.unmap=eager"]),
    ("laptop", "shared-writers:8M", 6, &["tlb.unmap=latr"]),
    ("laptop", "redis:12M:2", 10, &["reclaim.policy=s3-fifo"]),
    ("laptop", "lsm:12M", 10, &["reclaim.policy=mglru", "lru_gen.form=7.2"]),
    ("laptop", "redis:12M:2", 10, &["swap=zram:100%,algorithm=lz4"]),
    ("laptop", "zipf:8M", 8, &["swap=zram:50%,priority=9", "reclaim.policy=mglru", "init_on_alloc=1"]),
    ("laptop", "chaos:16M", 12, &["reclaim.policy=mglru", "tlb.unmap=lazy"]),
    ("tiers", "uniform:24M", 30, &["numa.demotion_enabled=1", "kernel.numa_balancing=2"]),
];

/// Begins a swap area.
const AREA: &str = "swap=";

/// What is compared besides the time.
const COUNTERS: &[&str] = &[
    "pgfault",
    "pgmajfault",
    "pgscan_kswapd",
    "pgscan_direct",
    "pgsteal_kswapd",
    "pgsteal_direct",
    "pswpin",
    "pswpout",
    "pgpgin",
    "pgpgout",
    "workingset_refault_anon",
    "workingset_refault_file",
    "pgmigrate_success",
    "pgpromote_success",
    "thp_fault_alloc",
    "nr_tlb_remote_flush",
    "nr_tlb_local_flush_all",
    "nr_tlb_local_flush_one",
];

/// The part of `docs/behaviour.toml` that is about the machine.
#[derive(Deserialize)]
struct Behaviour {
    version: u32,
    runs: BTreeMap<String, String>,
    change: Vec<Change>,
}

/// Why a version differs from the one before.
#[derive(Deserialize)]
struct Change {
    version: u32,
    reason: String,
}

fn behaviour() -> Behaviour {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/behaviour.toml");
    let text = std::fs::read_to_string(&path).expect("docs/behaviour.toml can be read");
    toml::from_str(&text).unwrap_or_else(|error| panic!("docs/behaviour.toml: {error}"))
}

/// Makes all runs; returns what each counted, by its name.
fn fingerprint() -> BTreeMap<String, String> {
    let run = |&(machine, program, memory, knobs): &(&str, &str, u64, &[&str])| {
        let name = [&format!("{program} in {memory}M, {machine}"), knobs.join(", ").as_str()].join(", ");
        let mut config = RunConfig::new(MachineSpec::preset(machine).expect("a preset"));
        config.memory = Some(memory << 20);
        let (areas, knobs): (Vec<&str>, Vec<&str>) = knobs.iter().partition(|word| word.starts_with(AREA));
        config.swap = areas.iter().map(|area| parse_area(&area[AREA.len()..])).collect();
        config.knobs = knobs.iter().map(|setting| parse_setting(setting)).collect();
        let parts = NameParts::parse(program, |text| Ok(megabytes(text) << 20)).expect("a built-in program");
        let outcome = run(&config, &Named::new(parts).expect("a built-in program"));
        let outcome = outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut counts = format!("nanos {}, accesses {}", outcome.nanos, outcome.accesses);
        for counter in COUNTERS {
            let stat = Stat::from_name(counter).unwrap_or_else(|| panic!("there is no counter '{counter}'"));
            match outcome.stat(stat) {
                0 => {}
                count => counts += &format!(", {counter} {count}"),
            }
        }
        (name.trim_end_matches(", ").to_owned(), counts)
    };
    RUNS.iter().map(run).collect()
}

fn megabytes(text: &str) -> u64 {
    text.trim_end_matches('M').parse().expect("a number of MiB")
}

fn parse_area(text: &str) -> SwapSpec {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn parse_setting(text: &str) -> (Knob, u64) {
    let (name, value) = text.split_once('=').expect("KNOB=VALUE");
    let knob = Knob::from_name(name).unwrap_or_else(|| panic!("there is no knob '{name}'"));
    (knob, knob.info().value_of(value).unwrap_or_else(|| value.parse().expect("a number")))
}

/// The lines to change if the machine behaves as `now`; none if that is what the file says.
fn lines_to_change(behaviour: &Behaviour, now: &BTreeMap<String, String>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, counts) in now.iter().filter(|(name, counts)| behaviour.runs.get(*name) != Some(counts)) {
        let line = |counts: &String| format!("{name:?} = {counts:?}");
        lines.extend(behaviour.runs.get(name).map(|old| format!("- {}", line(old))));
        lines.push(format!("+ {}", line(counts)));
    }
    let gone = behaviour.runs.keys().filter(|name| !now.contains_key(*name));
    lines.extend(gone.map(|name| format!("- {name:?} = ...")));
    if !lines.is_empty() {
        let next = behaviour.version + 1;
        lines.insert(0, format!("- version = {}\n+ version = {next}", behaviour.version));
        lines.push(format!("+ [[change]]\n+ version = {next}\n+ reason = \"what changed, and why\""));
    }
    lines
}

#[test]
fn a_change_of_behaviour_has_a_version_and_a_reason() {
    let behaviour = behaviour();
    let now = fingerprint();
    let lines = lines_to_change(&behaviour, &now);
    assert!(
        lines.is_empty(),
        "the simulated machine behaves in another way than docs/behaviour.toml says. If it is to, change there\n\
         (version and [[change]] once for all changes between two versions of main):\n{}\n",
        lines.join("\n")
    );
    let versions: Vec<u32> = behaviour.change.iter().map(|change| change.version).collect();
    assert_eq!(
        versions,
        (1..=behaviour.version).collect::<Vec<_>>(),
        "every version has one [[change]], in order"
    );
    assert!(behaviour.change.iter().all(|change| change.reason.len() > 10), "every [[change]] has a reason");
}

#[test]
fn lines_to_change_are_exact() {
    let runs = |counts: &[(&str, &str)]| -> BTreeMap<String, String> {
        counts.iter().map(|(name, counts)| (name.to_string(), counts.to_string())).collect()
    };
    let behaviour =
        Behaviour { version: 3, runs: runs(&[("a", "1"), ("b", "2"), ("c", "3")]), change: Vec::new() };
    assert_eq!(lines_to_change(&behaviour, &behaviour.runs), Vec::<String>::new());
    let lines = lines_to_change(&behaviour, &runs(&[("a", "1"), ("b", "5"), ("d", "6")]));
    let expected = [
        "- version = 3\n+ version = 4",
        "- \"b\" = \"2\"",
        "+ \"b\" = \"5\"",
        "+ \"d\" = \"6\"",
        "- \"c\" = ...",
        "+ [[change]]\n+ version = 4\n+ reason = \"what changed, and why\"",
    ];
    assert_eq!(lines, expected);
}
