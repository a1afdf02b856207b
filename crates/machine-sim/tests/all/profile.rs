//! The profile in whole runs: every picosecond of CPU time is in one node, and profiling changes nothing.

use super::acts::MIB;
use machine_sim::{MachineSpec, Outcome, ProfileNode, RunConfig, TaskTime, run};
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

/// The time of the program's tasks in a run.
fn task_time(config: &RunConfig, name: &str, threads: u32) -> (Outcome, TaskTime) {
    let program = builtin::from_name(name, 48 * MIB).unwrap().with_threads(threads);
    let config = RunConfig { task_time: true, ..config.clone() };
    let mut outcome = run(&config, &program).unwrap();
    let time = outcome.task_time.take().unwrap();
    (outcome, time)
}

#[test]
fn the_time_of_one_task_is_the_time_of_the_run() {
    for (name, policy) in [("uniform-file", 1), ("zipf", 2), ("sequential", 0)] {
        let mut config = RunConfig::new(MachineSpec::preset("laptop").unwrap());
        // Waits for locks that become known late are noted where only their class is known.
        let knobs = vec![(Knob::TlbUnmap, policy), (Knob::TimeContention, 0)];
        (config.memory, config.knobs) = (Some(24 * MIB), knobs);
        let (outcome, time) = task_time(&config, name, 1);
        // A run begins a moment before its first task, with the making of the address space.
        let before = outcome.nanos - time.tree.total() / 1000;
        assert!(time.missed == 0 && before < 10_000, "{name}: {} and {before} are missing", time.missed);
        let asleep = sum_of(&time.tree, "asleep:read:nvme0");
        assert!(asleep > 0, "the task waits for its device: {:?}", time.tree);
    }
}

#[test]
fn the_time_of_several_tasks_adds_up_to_their_lives() {
    for cpus in [2, 8] {
        let spec = MachineSpec::preset("laptop").unwrap().with_change(&format!("cpus={cpus}")).unwrap();
        let mut config = RunConfig::new(spec);
        config.memory = Some(24 * MIB);
        let (outcome, time) = task_time(&config, "uniform-file", 4);
        let total = time.tree.total();
        assert!(time.missed.unsigned_abs() < total / 1000, "{} of {total}", time.missed);
        assert!(total / 1000 > 2 * outcome.nanos, "four tasks live at once");
        assert!(sum_of(&time.tree, "cpu_wait") > 0 || cpus == 8);
        let mapping = time.tree.children.iter().find(|child| child.name.starts_with('[')).unwrap();
        assert!(mapping.children.iter().any(|child| child.name == "exc_page_fault"));
    }
}

#[test]
fn looking_at_the_time_of_tasks_does_not_change_the_run() {
    let mut config = RunConfig::new(MachineSpec::preset("laptop").unwrap());
    config.memory = Some(24 * MIB);
    let program = builtin::from_name("zipf", 48 * MIB).unwrap().with_threads(4);
    let plain = run(&config, &program).unwrap();
    let (mut outcome, _) = task_time(&config, "zipf", 4);
    outcome.profile = None;
    outcome.locks.iter_mut().for_each(|lock| lock.holders.clear());
    assert_eq!(outcome, plain);
}

/// Phases divide what is there without them. A mapping of its own has the misses of the TLB in it.
#[test]
fn phases_divide_the_time_of_tasks() {
    for threads in [1, 4] {
        let mut config = RunConfig::new(MachineSpec::preset("laptop").unwrap());
        config.memory = Some(24 * MIB);
        let (outcome, whole) = task_time(&config, "zipf", threads);
        config.phase = Some(outcome.accesses / 4);
        let (again, phases) = task_time(&config, "zipf", threads);
        assert_eq!((again.nanos, &again.stats), (outcome.nanos, &outcome.stats));
        let near = |a: u64, b: u64| a.abs_diff(b) <= a / 1000 + 1_000_000;
        assert!(
            near(phases.tree.total(), whole.tree.total()),
            "{} {}",
            phases.tree.total(),
            whole.tree.total()
        );
        assert!(phases.missed.unsigned_abs() <= whole.missed.unsigned_abs() + whole.tree.total() / 1000);
        let later: Vec<&ProfileNode> =
            phases.tree.children.iter().filter(|child| child.name.starts_with("phase:")).collect();
        let names: Vec<&str> = later.iter().map(|child| &child.name[..]).collect();
        assert_eq!(names[..3], ["phase:2", "phase:3", "phase:4"]);
        for work in ["access", "translation", "memory", "asleep:read:nvme0"] {
            assert!(near(sum_of(&phases.tree, work), sum_of(&whole.tree, work)), "{work}");
            assert!(later[..3].iter().all(|phase| sum_of(phase, work) > 0), "{work}");
        }
        let mapping =
            whole.tree.children.iter().find(|child| child.name.starts_with("[anonymous memory at 0x"));
        assert!(sum_of(mapping.unwrap(), "translation") > sum_of(&whole.tree, "translation") / 2);
    }
}

fn sum_of(node: &ProfileNode, name: &str) -> u64 {
    let own: u64 = node.work.iter().filter(|work| work.name == name).map(|work| work.picos).sum();
    own + node.children.iter().map(|child| sum_of(child, name)).sum::<u64>()
}
