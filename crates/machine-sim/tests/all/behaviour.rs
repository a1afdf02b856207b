//! What the simulated machine does has a number: the version in `docs/behaviour.toml`.
//!
//! Pages with measured figures say at which version they were made, and tidy (`xtask/tests/tidy/figures.rs`) has them
//! say so visibly once a newer one is current. That holds only if a change of behaviour cannot go unnoticed. So this
//! test makes the small runs that the file names, of several kinds of programs under several policies, and compares
//! what they count with the file. Counters are few and known by name, so a new one changes nothing.

use machine_sim::{GroupSpec, MachineSpec, RunConfig, run};
use mm::knobs::Knob;
use mm::stat::Stat;
use program::Named;
use program::named::NameParts;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;

/// The part of `docs/behaviour.toml` that is about the machine.
#[derive(Deserialize)]
struct Behaviour {
    version: u32,
    /// What is compared besides the time.
    counters: Vec<String>,
    /// What each run counts, by its name: program, memory, machine, and settings.
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

/// Makes all runs; returns what each counts, by its name.
fn fingerprint(behaviour: &Behaviour) -> BTreeMap<String, String> {
    let count = |name: &String| {
        let (config, program) =
            parse_run(name).unwrap_or_else(|| panic!("docs/behaviour.toml: run {name:?}"));
        let outcome = run(&config, &program).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut counts = format!("nanos {}, accesses {}", outcome.nanos, outcome.accesses);
        for counter in &behaviour.counters {
            let stat = Stat::from_name(counter).unwrap_or_else(|| panic!("there is no counter '{counter}'"));
            match outcome.stat(stat) {
                0 => {}
                count => counts += &format!(", {counter} {count}"),
            }
        }
        (name.clone(), counts)
    };
    behaviour.runs.keys().map(count).collect()
}

/// Parse `PROGRAM in MEMORY, MACHINE, SETTING...`, where a setting is a knob, or a swap area, a group or a state of
/// memory as `pagefold run` accepts them: `swap=AREA`, `group=GROUP`, `fragment=STATE`.
fn parse_run(name: &str) -> Option<(RunConfig, Named)> {
    let (program, rest) = name.split_once(" in ")?;
    let mut words = rest.split(", ");
    let memory = megabytes(words.next()?)?;
    let mut config = RunConfig::new(MachineSpec::preset(words.next()?).ok()?);
    config.memory = Some(memory);
    for (key, value) in words.map(|word| word.split_once('=')).collect::<Option<Vec<_>>>()? {
        match key {
            "swap" => config.swap.push(value.parse().ok()?),
            "fragment" => config.fragment = Some(value.parse().ok()?),
            "group" => config.groups.push(parse_group(value)?),
            _ => {
                let knob = Knob::from_name(key)?;
                let value = knob.info().value_of(value).or_else(|| value.parse().ok())?;
                config.knobs.push((knob, value));
            }
        }
    }
    let size = |text: &str| megabytes(text).ok_or_else(|| format!("{text} is no number of MiB"));
    let parts = NameParts::parse(program, size).ok()?;
    Some((config, Named::new(parts).ok()?))
}

/// Bytes of `12M`.
fn megabytes(text: &str) -> Option<u64> {
    Some(text.strip_suffix('M')?.parse::<u64>().ok()? << 20)
}

/// Parse `NAME:FILE=MEMORY,...`.
fn parse_group(text: &str) -> Option<GroupSpec> {
    let (name, limits) = text.split_once(':')?;
    let mut group = GroupSpec { name: name.to_owned(), ..GroupSpec::default() };
    for limit in limits.split(',') {
        let (file, value) = limit.split_once('=')?;
        let which = GroupSpec::FILES.iter().position(|&known| known == file)?;
        *group.limit(which) = Some(megabytes(value)?);
    }
    Some(group)
}

/// The lines to change if the machine behaves as `now`; none if that is what the file says.
fn lines_to_change(behaviour: &Behaviour, now: &BTreeMap<String, String>) -> Vec<String> {
    let mut lines = Vec::new();
    for (name, counts) in now {
        let old = &behaviour.runs[name];
        if old != counts {
            lines.extend([format!("- {name:?} = {old:?}"), format!("+ {name:?} = {counts:?}")]);
        }
    }
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
    let now = fingerprint(&behaviour);
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
    let (counters, change) = (Vec::new(), Vec::new());
    let behaviour = Behaviour { version: 3, counters, runs: runs(&[("a", "1"), ("b", "2")]), change };
    assert_eq!(lines_to_change(&behaviour, &behaviour.runs), Vec::<String>::new());
    let lines = lines_to_change(&behaviour, &runs(&[("a", "1"), ("b", "5")]));
    let expected = [
        "- version = 3\n+ version = 4",
        "- \"b\" = \"2\"",
        "+ \"b\" = \"5\"",
        "+ [[change]]\n+ version = 4\n+ reason = \"what changed, and why\"",
    ];
    assert_eq!(lines, expected);
}
