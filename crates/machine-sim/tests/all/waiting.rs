//! CPUs that wait for each other's locks, in whole runs.

use super::acts::MIB;
use machine_sim::{LineOutcome, LockOutcome, MachineSpec, Outcome, ProfileNode, RunConfig, run};
use mm::knobs::Knob;
use mm::lock::LockClass;
use program::chaos::Chaos;
use program::{Program, builtin};

fn config(machine: &str, memory: u64, contention: u64) -> RunConfig {
    let spec = MachineSpec::from_cpus_name(machine).or_else(|| MachineSpec::preset(machine).ok());
    let mut config = RunConfig::new(spec.expect("the machine's name"));
    (config.memory, config.verify) = (Some(memory), true);
    config.knobs = vec![(Knob::TimeContention, contention)];
    config
}

fn outcome(config: &RunConfig, program: &impl Program) -> Outcome {
    run(config, program).unwrap_or_else(|error| panic!("{error}"))
}

fn streams(threads: u32) -> builtin::Builtin {
    builtin::from_name("uniform-file", 48 * MIB).unwrap().with_threads(threads)
}

fn of(outcome: &Outcome, class: LockClass) -> &LockOutcome {
    outcome.locks.iter().find(|lock| lock.class == class).expect("every class is told of")
}

/// Picoseconds of a kind of work in the whole tree.
fn time_of(node: &ProfileNode, name: &str) -> u64 {
    let own: u64 = node.work.iter().filter(|work| work.name == name).map(|work| work.picos).sum();
    own + node.children.iter().map(|child| time_of(child, name)).sum::<u64>()
}

#[test]
fn reclaiming_cpus_wait_at_the_lists_and_do_the_same_work() {
    let [waits, not] =
        [1, 0].map(|contention| outcome(&config("compact-8", 16 * MIB, contention), &streams(8)));
    let lists = of(&waits, LockClass::Lru).tally;
    assert!(lists.contended > 100 && lists.contended < lists.taken, "{lists:?}");
    assert!(lists.longest > 0 && lists.longest <= lists.waited, "{lists:?}");
    assert!(not.locks.is_empty());
    assert_eq!((waits.accesses, waits.progress), (not.accesses, not.progress));
    assert_eq!((waits.oracle.violations, not.oracle.violations), (0, 0));
}

#[test]
fn the_profile_has_every_wait_that_is_told_of() {
    let mut config = config("compact-8", 16 * MIB, 1);
    config.profile = true;
    let outcome = outcome(&config, &streams(8));
    let tree = outcome.profile.as_ref().unwrap();
    for class in [LockClass::Zone, LockClass::Lru, LockClass::CachePages, LockClass::FileMappings] {
        let lock = of(&outcome, class);
        assert_eq!(time_of(tree, &format!("lock_wait:{}", class.name())), lock.tally.waited, "{class:?}");
        assert_eq!(
            lock.holders.iter().map(|(_, waited)| waited).sum::<u64>(),
            lock.tally.waited,
            "{class:?}"
        );
    }
}

#[test]
fn one_cpu_never_waits() {
    let run = |machine: &str| outcome(&config(machine, 12 * MIB, 1), &Chaos::new(200, 1024));
    let contended = |outcome: &Outcome| outcome.locks.iter().map(|lock| lock.tally.contended).sum::<u64>();
    let two = run("small+cpus=2");
    assert!(contended(&two) > 0, "{:?}", two.locks);
    // Its locks have no times.
    let one = run("small+cpus=1");
    assert_eq!(one.locks, []);
    let without = outcome(&config("small+cpus=1", 12 * MIB, 0), &Chaos::new(200, 1024));
    assert_eq!(one, without);
}

#[test]
fn runs_with_waiting_repeat_to_the_bit() {
    for seed in 1..5 {
        let mut config = config("compact-8", 24 * MIB, 1);
        config.seed = seed;
        let again = || outcome(&config, &Chaos::new(200, 1024));
        assert_eq!(again(), again(), "seed {seed}");
    }
}

fn line<'a>(outcome: &'a Outcome, kind: &str) -> &'a LineOutcome {
    outcome.lines.iter().find(|line| line.kind == kind).expect("every kind is told of")
}

#[test]
fn the_profile_has_every_line_that_is_told_of() {
    let mut config = config("compact-8", 16 * MIB, 1);
    config.profile = true;
    let outcome = outcome(&config, &streams(8));
    let tree = outcome.profile.as_ref().unwrap();
    for kind in ["list_line", "frame_line", "vm_lock_line", "mm_cpumask_line"] {
        let [near, far] = ["socket", "remote"].map(|from| time_of(tree, &format!("line_{from}:{kind}")));
        assert_eq!(near + far, line(&outcome, kind).took, "{kind}");
    }
    assert_eq!(time_of(tree, "line_socket"), line(&outcome, "lock_line").took);
    for kind in ["lock_line", "list_line", "frame_line", "vm_lock_line"] {
        assert!(line(&outcome, kind).fetched > 100, "{:?}", line(&outcome, kind));
    }
}

#[test]
fn lines_take_time_and_change_no_work() {
    let [waits, not] = [1, 0].map(|contention| outcome(&config("laptop", 64 * MIB, contention), &streams(4)));
    assert!(line(&waits, "vm_lock_line").took > 0, "{:?}", waits.lines);
    assert_eq!(not.lines, []);
    assert_eq!((waits.accesses, waits.progress), (not.accesses, not.progress));
    assert_eq!((waits.oracle.violations, not.oracle.violations), (0, 0));
}
