//! CPUs that wait for each other's locks, in whole runs.

use super::acts::{LARGE, MIB, PAGE, play, unharmed};
use machine_sim::{LineOutcome, LockOutcome, LockTally, MachineSpec, Outcome, ProfileNode, RunConfig, run};
use mm::knobs::Knob;
use mm::lock::LockClass;
use mm::machine::Work;
use mm::stat::Stat;
use program::chaos::Chaos;
use program::{Map, Os, Program, Role, Signal, builtin};

fn config(machine: &str, memory: u64, contention: u64) -> RunConfig {
    let (preset, changes) =
        machine.split_once('+').map_or((machine, None), |(name, change)| (name, Some(change)));
    let spec = MachineSpec::preset(preset).expect("the machine's name");
    let changed = changes.into_iter().fold(spec, |spec, change| spec.with_change(change).expect("a change"));
    let mut config = RunConfig::new(changed);
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

/// Nanoseconds that setting an entry takes on the machine of [`store_at_once`]; no other work of the kernel takes any.
const SET: u64 = 500_000;

/// The table locks' tally of a run in which two CPUs store to one of these pages each, at the same moment. Tables for
/// them exist, and their range has been stored to.
fn store_at_once(pages: [u64; 2]) -> LockTally {
    let mut text = include_str!("../../machines/small.toml").replace("cpus = 1\n", "cpus = 2\n");
    for &work in Work::ALL {
        let ns = if work == Work::EntrySet { SET } else { 0 };
        text += &format!("[costs.work.{}]\nns = {ns}\nsource = 'for the test'\n", work.name());
    }
    let spec = MachineSpec::from_toml("two CPUs", &text).unwrap();
    let mut config = RunConfig { memory: Some(16 * MIB), ..RunConfig::new(spec) };
    config.knobs = vec![(Knob::TimeContention, 1)];
    let store = move |os: &mut dyn Os, role: Role| -> Result<(), Signal> {
        let at = 4 * LARGE;
        if role == 1 {
            os.spin_barrier(0, 2);
            return os.store(at + pages[1] * PAGE);
        }
        os.mmap(Map { addr: Some(at), ..Map::anonymous(2 * LARGE) }).unwrap();
        os.store(at)?;
        os.store(at + LARGE)?;
        let other = os.spawn(1).unwrap();
        os.spin_barrier(0, 2);
        os.store(at + pages[0] * PAGE)?;
        os.join(other);
        Ok(())
    };
    of(&unharmed(&config, &play(store)), LockClass::PageTable).tally
}

#[test]
fn cpus_that_fault_in_one_table_wait_for_each_other() {
    let [apart, together] = [512 + 1, 2].map(|second| store_at_once([1, second]));
    assert_eq!((apart.contended, apart.waited), (0, 0), "{apart:?}");
    // Four stores set an entry each. The other CPU's store and then the end of the process fetch the lock's line from
    // the CPU that had it before, and the end fetches the record of the page that the other CPU mapped, 20 ns each.
    let held = 4 * SET * 1000 + 3 * 20_000;
    assert_eq!((apart.held, together.held), (held, held));
    // They leave the barrier at most 20 us apart; the later one waits for the rest of the first one's hold.
    assert_eq!(together.contended, 1, "{together:?}");
    let missing = SET * 1000 - together.waited;
    assert!(missing < 20_000_000 && together.longest == together.waited, "{together:?}");
}

#[test]
fn fork_holds_one_table_after_the_other() {
    // Two tables of the parent and two of the child, each for the entries that it sets or changes.
    let tables = |len: u64| {
        let fork = move |os: &mut dyn Os, role: Role| -> Result<(), Signal> {
            if role == 0 {
                let at = os.mmap(Map { addr: Some(4 * LARGE), ..Map::anonymous(2 * LARGE) }).unwrap();
                (0..len / PAGE).try_for_each(|page| os.store(at + page * PAGE))?;
                let child = os.fork(1).unwrap();
                os.join(child);
            }
            Ok(())
        };
        let config = config("small+cpus=2", 32 * MIB, 1);
        of(&unharmed(&config, &play(fork)), LockClass::PageTable).tally.taken
    };
    let [one, two] = [LARGE, 2 * LARGE].map(tables);
    // The second table costs 512 faults, and, in fork and twice at the end, a hold of it and of the child's.
    let more = two - one - 512;
    assert!((4..12).contains(&more), "{one} {two}");
}

/// A task works on for a while after it has handed a request over, and does not leave its CPU if the device has
/// answered by then. So CPUs on which it is not lazy are asked for flushes, and nothing else runs there.
#[test]
fn a_task_that_a_fast_device_answers_does_not_leave_its_cpu() {
    let switches = |read_us: &str| {
        let text = include_str!("../../machines/small.toml").replace("read_us = 67", read_us);
        let text = text.replace("read_mbs = 3500", "read_mbs = 100000");
        let config = RunConfig {
            memory: Some(6 << 20),
            knobs: vec![(Knob::ReadAheadKb, 0)],
            ..RunConfig::new(MachineSpec::from_toml("disk.toml", &text).unwrap())
        };
        let program = builtin::from_name("zipf-file", 8 << 20).unwrap();
        let outcome = run(&config, &program).unwrap();
        (outcome.metric("context_switches").unwrap(), outcome.stat(Stat::Pgmajfault) as f64)
    };
    let (fast, majors) = switches("read_us = 1");
    assert!(fast < majors / 4.0, "{fast} switches, {majors} major faults");
    let (slow, majors) = switches("read_us = 67");
    assert!(slow > majors, "{slow} switches, {majors} major faults");
}
