//! Every application on small machines under the oracle, and that it is what it claims to be.

use machine_sim::{MachineSpec, Outcome, RunConfig, run};
use mm::knobs::{FlushPolicy, Knob};
use mm::stat::Stat;
use program::Program;
use program::apps::{self, App, AppOptions};

const MIB: u64 = 1 << 20;

fn app(name: &str, mib: u64, threads: Option<u32>) -> App {
    apps::from_name(name, AppOptions { bytes: mib * MIB, threads, distribution: None, writes: None })
        .unwrap()
        .unwrap()
}

fn outcome<P: Program>(program: &P, memory: u64, knobs: &[(Knob, u64)], seed: u64) -> Outcome {
    let machine = MachineSpec::preset("laptop").unwrap();
    let knobs = knobs.to_vec();
    let config = RunConfig { memory: Some(memory), verify: true, knobs, seed, ..RunConfig::new(machine) };
    let outcome = run(&config, program).unwrap_or_else(|error| panic!("{}: {error}", program.name()));
    let ended = (outcome.oracle.violations, outcome.signals.len(), outcome.oom.len());
    assert_eq!(ended, (0, 0, 0), "{}: {:?}", program.name(), outcome.signals);
    assert!(outcome.oracle.checked > 100 && outcome.progress > 0, "{}", program.name());
    outcome
}

#[test]
fn applications_do_the_same_work_whatever_the_policy_and_evict_when_memory_is_short() {
    for (name, _) in apps::LIST {
        let run = |app: &App, memory, knobs: &[_]| outcome(app, memory, knobs, 1);
        let work = |outcome: &Outcome| (outcome.accesses, outcome.progress, outcome.tasks);
        let (app, again) = (app(name, 13, None), app(name, 13, None));
        let mglru = run(&app, 8 * MIB, &[(Knob::ReclaimPolicy, 1)]);
        let roomy = run(&again, 64 * MIB, &[]);
        assert_eq!(work(&mglru), work(&roomy), "{name}");
        let stolen = |outcome: &Outcome| outcome.stat(Stat::PgstealAnon) + outcome.stat(Stat::PgstealFile);
        assert!(stolen(&mglru) > 0, "{name} was to be short of memory");
    }
}

#[test]
fn applications_run_clean_with_another_number_of_tasks() {
    for (name, _) in apps::LIST {
        let run =
            outcome(&app(name, 12, Some(3)), 8 * MIB, &[(Knob::TlbUnmap, FlushPolicy::Lazy.value())], 2);
        assert!(run.tasks >= 3, "{name}: {} tasks", run.tasks);
    }
}

/// A program of the desktop that is killed for want of memory is left alone, and the others go on.
#[test]
fn a_desktop_without_swap_loses_programs() {
    let laptop = include_str!("../../machines/laptop.toml");
    let text: String =
        laptop.lines().filter(|line| !line.starts_with("swap")).flat_map(|line| [line, "\n"]).collect();
    let machine = MachineSpec::from_toml("swapless", &text).unwrap();
    let config = RunConfig { memory: Some(8 * MIB), verify: true, ..RunConfig::new(machine) };
    let desktop = app("desktop", 24, None);
    let outcome = run(&config, &desktop).unwrap();
    assert_eq!(outcome.oracle.violations, 0);
    assert!(!outcome.oom.is_empty() && outcome.stat(Stat::OomKill) > 0, "nobody was killed");
    let started = outcome.metric("operation_time_count").unwrap();
    assert!((6.0..=12.0).contains(&started), "{started} programs started");
    assert!((12..36).contains(&outcome.progress), "{} of 36 steps", outcome.progress);
}

#[test]
fn a_group_with_less_memory_than_its_program_touches_reclaims_even_if_the_machine_has_plenty() {
    let outcome = outcome(&app("two-groups", 24, None), 64 * MIB, &[], 1);
    // Nobody but the groups is short of memory, and what they steal is counted by kind alone.
    let by_whom = [Stat::PgstealKswapd, Stat::PgstealDirect].map(|stat| outcome.stat(stat));
    assert_eq!(by_whom, [0, 0]);
    // The search alone goes nine times more through 12 MiB, of which its group holds 70 %.
    assert!(outcome.stat(Stat::PgstealFile) > 5_000, "{}", outcome.stat(Stat::PgstealFile));
}
