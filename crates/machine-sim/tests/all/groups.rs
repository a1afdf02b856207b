//! Control groups on whole machines, under the oracle: those that a run begins with, and those that programs create.

use super::acts::{MIB, PAGE, outcome, play, store_all};
use machine_sim::{GroupOutcome, GroupSpec, MachineSpec, Outcome, RunConfig, RunError, run};
use mm::knobs::Knob;
use program::{Group, GroupLimits, Map, Os, Program, Role, Signal};

/// Processes that each store to a number of pages repeatedly, the first only once. The others are its children, and
/// continue when all have stored once.
struct Fillers {
    pages: Vec<u64>,
    rounds: u32,
}

impl Program for Fillers {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        let pages = self.pages[role as usize];
        let at = os.mmap(Map::anonymous(pages.max(1) * PAGE)).unwrap();
        let children = self.pages.len() as u32 - 1;
        for round in 0..if role == 0 { 1 } else { self.rounds } {
            store_all(os, at, pages * PAGE)?;
            if role > 0 && round == 0 {
                os.barrier(1, children);
            }
        }
        if role == 0 {
            let children: Vec<_> = (1..=children).map(|role| os.fork(role).unwrap()).collect();
            children.into_iter().for_each(|child| os.join(child));
        }
        Ok(())
    }
}

fn group(name: &str, processes: &str) -> GroupSpec {
    GroupSpec { name: name.into(), processes: processes.parse().ok(), ..GroupSpec::default() }
}

fn config(memory: u64, groups: &[GroupSpec]) -> RunConfig {
    let machine = MachineSpec::preset("small").unwrap();
    let (memory, groups) = (Some(memory), groups.to_vec());
    RunConfig { memory, groups, verify: true, validate_sometimes: true, ..RunConfig::new(machine) }
}

fn named<'a>(outcome: &'a Outcome, name: &str) -> &'a GroupOutcome {
    outcome.groups.iter().find(|group| group.name == name).unwrap_or_else(|| panic!("no group {name}"))
}

fn value(outcome: &Outcome, group: &str, name: &str) -> u64 {
    named(outcome, group).value(name).unwrap_or_else(|| panic!("no {name} of {group}"))
}

#[test]
fn a_limit_holds_for_its_processes() {
    // 8 MiB each.
    let program = Fillers { pages: vec![2048; 3], rounds: 2 };
    for policy in [0, 1, 4] {
        let limited = GroupSpec { max: Some(4 * MIB), ..group("limited", "1") };
        // CPUs keep no pages of a group in stock, which would count after its last process.
        let knobs = vec![(Knob::ReclaimPolicy, policy), (Knob::MemcgChargeBatch, 1)];
        let config = RunConfig { knobs, ..config(64 * MIB, &[limited, group("free", "0+2")]) };
        let outcome = outcome(&config, &program);
        let of = |group, name| value(&outcome, group, name);
        assert_eq!((of("limited", "memory.max"), of("limited", "memory.peak")), (4 * MIB, 4 * MIB));
        for name in ["max", "pgsteal_direct", "pgmajfault", "workingset_refault_anon"] {
            assert!(of("limited", name) > 0, "{name}");
        }
        assert!(of("limited", "memory.swap.peak") >= 4 * MIB);
        assert!(of("free", "memory.peak") >= 16 * MIB, "the pages of the first process and of the third");
        assert_eq!(["pgscan", "pgmajfault", "max", "oom"].map(|name| of("free", name)), [0; 4]);
        // All processes have ended.
        assert_eq!((of("limited", "memory.current"), of("free", "memory.swap.current")), (0, 0));
    }
}

#[test]
fn a_group_without_swap_is_oom_killed() {
    let program = Fillers { pages: vec![0, 2048], rounds: 1 };
    let group = GroupSpec { max: Some(4 * MIB), swap_max: Some(0), ..group("dry", "0") };
    let outcome = run(&config(64 * MIB, &[group]), &program).unwrap();
    let of = |name| value(&outcome, "dry", name);
    assert_eq!((of("memory.swap.peak"), of("oom"), of("oom_kill")), (0, 1, 1));
    assert_eq!(outcome.oom.len(), 1);
}

/// A group below memory.low or memory.min keeps its pages while others are reclaimed, even if it uses them only once.
/// MGLRU finally scans a group below memory.low, as Linux does, and counts that.
#[test]
fn protected_pages_stay() {
    let program = Fillers { pages: vec![1024, 8192], rounds: 2 };
    let run = |policy, low, min| {
        let idle = GroupSpec { low: Some(low), min: Some(min), ..group("idle", "0") };
        let knobs = vec![(Knob::ReclaimPolicy, policy)];
        let of_run = outcome(&RunConfig { knobs, ..config(20 * MIB, &[idle, group("busy", "1")]) }, &program);
        assert!(value(&of_run, "busy", "pgsteal") > 0);
        ["pgsteal", "low"].map(|name| value(&of_run, "idle", name))
    };
    for policy in [0, 1] {
        assert!(run(policy, 0, 0)[0] > 512, "policy {policy}");
        assert_eq!(run(policy, 0, 8 * MIB), [0, 0], "policy {policy}");
    }
    assert_eq!(run(0, 8 * MIB, 0), [0, 0]);
    assert!(run(1, 8 * MIB, 0)[1] > 0);
}

#[test]
fn limits_hold_for_descendants() {
    let above = GroupSpec { max: Some(6 * MIB), ..GroupSpec { name: "web".into(), ..GroupSpec::default() } };
    let groups = [group("web/cache", "1"), group("web/logs", "2"), above, group("rest", "0")];
    let program = Fillers { pages: vec![1, 1024, 1024], rounds: 3 };
    let outcome = outcome(&config(64 * MIB, &groups), &program);
    let peak = |group| value(&outcome, group, "memory.peak");
    assert_eq!(peak("web"), 6 * MIB);
    assert!(peak("web/cache") > 2 * MIB && peak("web/logs") > 2 * MIB && peak("rest") < MIB);
    assert!(value(&outcome, "web", "max") > 0 && value(&outcome, "web/logs", "max") == 0);
}

/// Repeatedly create a group, fill it, leave pages of a file in it, and remove it.
fn come_and_go(os: &mut dyn Os, role: Role) -> Result<(), Signal> {
    if role == 1 {
        let at = os.mmap(Map::anonymous(MIB)).unwrap();
        return store_all(os, at, MIB);
    }
    let limits = GroupLimits { max: MIB / 2, ..GroupLimits::default() };
    for _ in 0..20 {
        let group = os.group_create(Group::ROOT, limits).unwrap();
        os.group_enter(group).unwrap();
        let child = os.fork(1).unwrap();
        os.group_enter(Group::ROOT).unwrap();
        assert!(os.group_remove(group).is_err(), "a group with a process must not be removed");
        os.join(child);
        // The space ends after its last task.
        while os.group_remove(group).is_err() {
            os.sleep(1000);
        }
    }
    Ok(())
}

#[test]
fn a_removed_group_leaves_no_charges() {
    let config = RunConfig { validate_every_op: true, validate_sometimes: false, ..config(16 * MIB, &[]) };
    let outcome = outcome(&config, &play(come_and_go));
    assert_eq!(outcome.groups.len(), 20);
    for group in &outcome.groups {
        assert_eq!((group.limits, group.value("memory.peak")), (None, Some(MIB / 2)), "{}", group.name);
        for name in ["memory.current", "memory.swap.current", "inactive_anon", "active_anon"] {
            assert_eq!(group.value(name), Some(0), "{name} of {}", group.name);
        }
    }
}

#[test]
fn a_group_without_limits_changes_nothing() {
    let program = Fillers { pages: vec![100, 2048], rounds: 2 };
    let without = outcome(&config(4 * MIB, &[]), &program);
    assert_eq!(without.groups, []);
    let with = outcome(&config(64 * MIB, &[group("all", "0")]), &program);
    assert!(value(&with, "all", "memory.peak") >= 8 * MIB && value(&with, "all", "pgscan") == 0);
}

#[test]
fn a_machine_can_have_groups() {
    let text = include_str!("../../machines/small.toml");
    let group = "[[group]]\nname = 'web'\nmemory.max = '4M'\nmemory.low = 4096\nmemory.swap.max = 'max'\nprocesses = '1'\n";
    let machine = MachineSpec::from_toml("mine", &format!("{text}\n{group}")).unwrap();
    let program = Fillers { pages: vec![10, 2048], rounds: 1 };
    let config = RunConfig { memory: Some(64 * MIB), ..RunConfig::new(machine) };
    let peak = |config: &RunConfig| value(&run(config, &program).unwrap(), "web", "memory.peak");
    assert_eq!(peak(&config), 4 * MIB);
    let own = GroupSpec { max: Some(6 * MIB), ..GroupSpec { name: "web".into(), ..GroupSpec::default() } };
    assert_eq!(peak(&RunConfig { groups: vec![own], ..config.clone() }), 6 * MIB);
    for (wrong, expected) in [
        ("memory.max = '4Q'", "neither a size"),
        ("memory.maximum = '4M'", "unknown field `maximum`"),
        ("memory.swap.low = '4M'", "unknown field `low`"),
        ("processes = 'x'", "names no processes"),
        ("name = 'a b'", "no path of a group"),
    ] {
        let named = if wrong.starts_with("name") { "" } else { "name = 'a'\n" };
        let text = format!("{text}\n[[group]]\n{named}{wrong}\n");
        let error = MachineSpec::from_toml("mine", &text).unwrap_err().to_string();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
    let twice = RunConfig { groups: vec![self::group("a", "0"), self::group("b", "0")], ..config };
    assert!(matches!(run(&twice, &program), Err(RunError::Input(why)) if why.contains("group: process 0")));
}
