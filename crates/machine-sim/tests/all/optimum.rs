//! The optimum in whole runs: it changes nothing, and no replacement policy is below it.

use super::acts::MIB;
use machine_sim::{MachineSpec, OptimumReport, Outcome, RunConfig, run};
use mm::knobs::Knob;
use mm::stat::Stat;
use program::chaos::Chaos;
use program::{Program, builtin};

fn config(memory: u64, policy: u64, optimum: bool) -> RunConfig {
    let mut config = RunConfig::new(MachineSpec::preset("small").unwrap());
    (config.memory, config.optimum) = (Some(memory), optimum);
    config.knobs = vec![(Knob::ReclaimPolicy, policy)];
    config
}

fn outcome(config: &RunConfig, program: &impl Program) -> Outcome {
    run(config, program).unwrap_or_else(|error| panic!("{:?}: {error}", config.knobs))
}

/// All built-in policies.
fn policies() -> impl Iterator<Item = u64> {
    0..Knob::ReclaimPolicy.info().max
}

#[test]
fn the_optimum_does_not_change_the_run() {
    let mut refaults = 0;
    for seed in 1..4 {
        let [plain, mut watched] = [false, true].map(|optimum| {
            let config = RunConfig { seed, ..config(8 * MIB, seed % 2, optimum) };
            outcome(&config, &Chaos::from_footprint(96 * MIB, None))
        });
        let report = watched.optimum.take().unwrap();
        assert_eq!(plain, watched);
        assert_eq!(report.frames, 8 * MIB / 4096);
        assert!(report.uses > 1000, "{report:?}");
        refaults += report.refaults;
    }
    assert!(refaults > 100, "{refaults}");
}

fn report(program: &impl Program, policy: u64) -> OptimumReport {
    let outcome = outcome(&config(8 * MIB, policy, true), program);
    let again = outcome.stat(Stat::WorkingsetRefaultFile) + outcome.stat(Stat::WorkingsetRefaultAnon);
    let report = outcome.optimum.unwrap();
    // Only the memory manager counts pages that are read again and not used.
    assert!(report.refaults as i64 <= again, "policy {policy}: {report:?}, {again} refaults are told");
    report
}

#[test]
fn two_passes_over_twice_the_memory_refault_half_of_it() {
    let program = builtin::from_name("stream", 16 * MIB).unwrap();
    for policy in policies() {
        let report = report(&program, policy);
        assert_eq!((report.pages, report.optimum), (4096, 2048), "policy {policy}: {report:?}");
    }
}

#[test]
fn all_policies_have_the_same_optimum_for_one_task() {
    let program = builtin::from_name("zipf", 16 * MIB).unwrap();
    let all: Vec<OptimumReport> = policies().map(|policy| report(&program, policy)).collect();
    assert!(all.iter().all(|report| report.optimum == all[0].optimum && report.uses == all[0].uses));
    assert!(all.iter().all(|report| report.refaults > report.optimum), "{all:?}");
    assert!(all.iter().any(|report| report.refaults != all[0].refaults), "{all:?}");
}
