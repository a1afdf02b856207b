//! Every application on small machines, under the oracle.

use super::acts::{MIB, unharmed};
use machine_sim::{MachineSpec, Outcome, RunConfig, run};
use mm::knobs::{FlushPolicy, Knob};
use mm::stat::Stat;
use program::Program;
use program::apps::{self, App, AppOptions};

fn app(name: &str, mib: u64, threads: Option<u32>) -> App {
    apps::from_name(name, AppOptions { bytes: mib * MIB, threads, distribution: None, writes: None })
        .unwrap()
        .unwrap()
}

fn outcome<P: Program>(program: &P, memory: u64, knobs: &[(Knob, u64)], seed: u64) -> Outcome {
    let machine = MachineSpec::preset("laptop").unwrap();
    let knobs = knobs.to_vec();
    let config = RunConfig { memory: Some(memory), verify: true, knobs, seed, ..RunConfig::new(machine) };
    let outcome = unharmed(&config, program);
    assert_eq!(outcome.oom, [], "{}", program.name());
    assert!(outcome.oracle.checked > 100 && outcome.progress > 0, "{}", program.name());
    outcome
}

#[test]
fn applications_do_the_same_work_under_all_policies() {
    for (name, _) in apps::LIST {
        let run = |app: &App, memory, knobs: &[_]| outcome(app, memory, knobs, 1);
        let work = |outcome: &Outcome| (outcome.accesses, outcome.progress, outcome.tasks);
        // Its 45 threads would spin for most of the time on four CPUs.
        let threads = (*name == "llama").then_some(2);
        let (app, again) = (app(name, 13, threads), app(name, 13, threads));
        let mglru = run(&app, 8 * MIB, &[(Knob::ReclaimPolicy, 1)]);
        let roomy = run(&again, 64 * MIB, &[]);
        assert_eq!(work(&mglru), work(&roomy), "{name}");
        let stolen = |outcome: &Outcome| outcome.stat(Stat::PgstealAnon) + outcome.stat(Stat::PgstealFile);
        assert!(stolen(&mglru) > 0, "{name} must be short of memory");
    }
}

#[test]
fn applications_run_with_other_numbers_of_tasks() {
    for (name, _) in apps::LIST {
        let run =
            outcome(&app(name, 12, Some(3)), 8 * MIB, &[(Knob::TlbUnmap, FlushPolicy::Lazy.value())], 2);
        assert!(run.tasks >= 3, "{name}: {} tasks", run.tasks);
    }
}

/// The desktop does not restart a program that the OOM killer has killed, and the others continue.
#[test]
fn a_desktop_without_swap_has_programs_killed() {
    let laptop = include_str!("../../machines/laptop.toml");
    let text: String =
        laptop.lines().filter(|line| !line.starts_with("swap")).flat_map(|line| [line, "\n"]).collect();
    let machine = MachineSpec::from_toml("swapless", &text).unwrap();
    let config = RunConfig { memory: Some(8 * MIB), verify: true, ..RunConfig::new(machine) };
    let desktop = app("desktop", 24, None);
    let outcome = run(&config, &desktop).unwrap();
    assert_eq!(outcome.oracle.violations, 0);
    assert!(
        !outcome.oom.is_empty() && outcome.stat(Stat::OomKill) > 0,
        "the OOM killer must have killed a program"
    );
    let started = outcome.metric("operation_time_count").unwrap();
    assert!((6.0..=12.0).contains(&started), "{started} programs started");
    assert!((12..36).contains(&outcome.progress), "{} of 36 steps", outcome.progress);
}

#[test]
fn a_group_reclaims_at_its_limit_on_a_machine_with_free_memory() {
    let outcome = outcome(&app("two-groups", 24, None), 64 * MIB, &[], 1);
    // Only the groups are short of memory, and what is reclaimed from them is counted by type only.
    let by_whom = [Stat::PgstealKswapd, Stat::PgstealDirect].map(|stat| outcome.stat(stat));
    assert_eq!(by_whom, [0, 0]);
    // The search reads 12 MiB nine more times, and its group holds 70 % of that.
    assert!(outcome.stat(Stat::PgstealFile) > 5_000, "{}", outcome.stat(Stat::PgstealFile));
}
