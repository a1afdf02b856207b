//! The profile in whole runs: every picosecond of CPU time is in one node, and profiling changes nothing.

use super::acts::MIB;
use machine_sim::{MachineSpec, Outcome, ProfileNode, RunConfig, run};
use mm::knobs::Knob;
use program::builtin;
use program::chaos::Chaos;
use std::collections::BTreeMap;

fn outcome(seed: u64, policy: u64, profile: bool) -> Outcome {
    let mut config = RunConfig::new(MachineSpec::preset("small").unwrap());
    config.memory = Some(24 * MIB);
    (config.seed, config.profile, config.knobs) = (seed, profile, vec![(Knob::TlbUnmap, policy)]);
    // Validation in between must not be in the profile.
    (config.verify, config.validate_every_op) = (true, seed == 1);
    let program = if seed == 1 { Chaos::new(60, 256) } else { Chaos::new(250, 1024) };
    run(&config, &program).unwrap_or_else(|error| panic!("{error}"))
}

/// The count and picoseconds of every kind of work, in the whole tree.
fn by_kind(node: &ProfileNode, sums: &mut BTreeMap<String, (u64, u64)>) {
    for work in &node.work {
        let sum = sums.entry(work.name.clone()).or_default();
        *sum = (sum.0 + work.count, sum.1 + work.picos);
    }
    node.children.iter().for_each(|child| by_kind(child, sums));
}

fn child<'a>(node: &'a ProfileNode, name: &str) -> Option<&'a ProfileNode> {
    node.children.iter().find(|child| child.name == name)
}

/// Check that all CPU time is in the tree, under the right root and kind.
fn is_exact(outcome: &Outcome) {
    let tree = outcome.profile.as_ref().unwrap();
    let mut sums = BTreeMap::new();
    by_kind(tree, &mut sums);
    for done in &outcome.work {
        let (count, picos) = sums.remove(done.work.name()).unwrap_or_default();
        assert_eq!((count, picos / 1000), (done.count, done.nanos), "{}", done.work.name());
    }
    let user = sums["user"].1;
    let total = |root| child(tree, root).map_or(0, ProfileNode::total);
    for (root, metric, minus) in [
        ("program", "cpu_system", user),
        ("kswapd", "cpu_kswapd", 0),
        ("flusher", "cpu_flusher", 0),
        ("interrupt", "cpu_interrupt", 0),
    ] {
        assert_eq!(Some(((total(root) - minus) / 1000) as f64), outcome.metric(metric), "{root}");
    }
    assert_eq!(Some((user / 1000) as f64), outcome.metric("cpu_user"));
}

#[test]
fn the_tree_holds_all_cpu_time_that_was_charged() {
    for seed in 1..7 {
        is_exact(&outcome(seed, seed - 1, true));
    }
}

#[test]
fn profiling_does_not_change_the_run() {
    for seed in 1..7 {
        let mut profiled = outcome(seed, seed - 1, true);
        assert!(profiled.profile.take().is_some());
        // Only the profile knows which function had a lock.
        profiled.locks.iter_mut().for_each(|lock| lock.holders.clear());
        assert_eq!(profiled, outcome(seed, seed - 1, false));
    }
}

#[test]
fn work_is_below_its_callers() {
    let mut config = RunConfig::new(MachineSpec::preset("laptop").unwrap());
    (config.memory, config.profile) = (Some(16 * MIB), true);
    let program = builtin::from_name("uniform-file", 48 * MIB).unwrap().with_threads(4);
    let outcome = run(&config, &program).unwrap();
    is_exact(&outcome);
    let tree = outcome.profile.unwrap();
    let path = |names: &[&str]| {
        names.iter().fold(&tree, |node, name| {
            child(node, name).unwrap_or_else(|| panic!("no {name} in {} of {names:?}", node.name))
        })
    };
    let unmap = path(&[
        "kswapd",
        "balance_pgdat",
        "shrink_node",
        "shrink_inactive_list",
        "shrink_folio_list",
        "try_to_unmap_one",
    ]);
    assert!(unmap.entered > 0 && unmap.work.iter().any(|work| work.name == "entry_clear"));
    let removal = child(unmap, "folio_remove_rmap").unwrap();
    assert!(removal.work.iter().any(|work| work.name == "rmap_remove"));
    // A read takes time of the device, but no CPU time.
    let fault = path(&["program", "exc_page_fault"]);
    let away = away(fault);
    assert!(away > 1_000_000_000, "the program must wait for the device: {away}");
    let waits = child(&tree, "kswapd").unwrap().away + child(&tree, "program").unwrap().away;
    assert_eq!(waits, 0, "waits outside of scopes must not be counted");
}

fn away(node: &ProfileNode) -> u64 {
    node.away + node.children.iter().map(away).sum::<u64>()
}
