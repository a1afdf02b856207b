//! Pressure stall information of whole runs.

use super::acts::{load_all, play, store_all};
use machine_sim::{GroupSpec, MachineSpec, Outcome, RunConfig, StallTime, run};
use program::Map;

const MIB: u64 = 1 << 20;

/// A program that uses 12 MiB three times.
fn outcome(memory: u64, groups: Vec<GroupSpec>) -> Outcome {
    let play = play(|os, _| {
        let at = os.mmap(Map::anonymous(12 * MIB)).unwrap();
        store_all(os, at, 12 * MIB)?;
        (0..2).try_for_each(|_| load_all(os, at, 12 * MIB))
    });
    let machine = MachineSpec::preset("small").unwrap();
    let config = RunConfig { memory: Some(memory), verify: true, groups, ..RunConfig::new(machine) };
    run(&config, &play).unwrap()
}

fn assert_stalls(of: [StallTime; 2], run: u64) {
    let [some, full] = of.map(|line| line.total);
    assert!(0 < full && full <= some && some <= run / 1000, "{full} {some} {run}");
}

#[test]
fn a_program_that_fits_has_no_pressure_of_memory() {
    let outcome = outcome(64 * MIB, Vec::new());
    assert_eq!((outcome.pressure.memory, outcome.group_pressure), (Default::default(), Vec::new()));
}

#[test]
fn a_program_that_needs_more_than_memory_waits_for_memory_and_devices() {
    let outcome = outcome(8 * MIB, Vec::new());
    assert_stalls(outcome.pressure.memory, outcome.nanos);
    assert_stalls(outcome.pressure.io, outcome.nanos);
    let [some, io] = ["memory_some", "io_some"].map(|name| outcome.metric(&format!("pressure_{name}")));
    let totals = [outcome.pressure.memory[0].total, outcome.pressure.io[0].total];
    assert_eq!([some, io], totals.map(|total| Some(total as f64)));
}

#[test]
fn a_group_above_memory_high_has_pressure_and_its_empty_sibling_has_none() {
    let groups = ["web/child:memory.high=8388608,processes=0", "rest:processes=1"];
    let outcome = outcome(64 * MIB, groups.map(|text| text.parse().unwrap()).into());
    let of = |name: &str| {
        let at = outcome.groups.iter().position(|group| group.name == name).unwrap();
        outcome.group_pressure[at]
    };
    assert_stalls(of("web/child").memory, outcome.nanos);
    assert_eq!(of("web").memory, of("web/child").memory, "what happens below counts above, too");
    assert_eq!(of("rest"), Default::default());
    assert!(outcome.pressure.memory[0].total > 0);
}

/// A program that stores to 12 MiB and then loads the last of them many times, with a controller. Returns the outcome
/// and the MiB that its group had in the end.
fn controlled(hot: u64, senpai: &str) -> (Outcome, f64) {
    let play = play(move |os, _| {
        let at = os.mmap(Map::anonymous(12 * MIB)).unwrap();
        store_all(os, at, 12 * MIB)?;
        (0..600).try_for_each(|_| load_all(os, at + (12 - hot) * MIB, hot * MIB))
    });
    let groups = vec!["web".parse().unwrap()];
    let senpai = Some(senpai.parse().unwrap());
    let machine = MachineSpec::preset("small").unwrap();
    let outcome = run(&RunConfig { verify: true, groups, senpai, ..RunConfig::new(machine) }, &play).unwrap();
    let current = outcome.metric("senpai_current").unwrap() / MIB as f64;
    (outcome, current)
}

#[test]
fn a_controller_takes_what_a_group_does_not_use_and_leaves_what_it_does() {
    let settings = "web:interval=200us,pressure=10us,max_probe=5%";
    let (little, current) = controlled(3, settings);
    assert!((2.0..8.0).contains(&current), "{current}");
    assert!(little.metric("senpai_reclaimed").unwrap() >= 4.0 * MIB as f64);
    let (_, current) = controlled(12, settings);
    assert!(current > 8.0, "{current}");
}

#[test]
fn a_controller_needs_a_group_that_is_there() {
    let machine = MachineSpec::preset("small").unwrap();
    let senpai = Some("web".parse().unwrap());
    let error = run(&RunConfig { senpai, ..RunConfig::new(machine) }, &play(|_, _| Ok(()))).unwrap_err();
    assert_eq!(error.to_string(), "senpai: there is no group 'web' when the run begins");
}
