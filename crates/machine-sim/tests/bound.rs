//! The bound in whole runs: it watches and changes nothing.

use machine_sim::{MachineSpec, Outcome, RunConfig, run};
use mm::knobs::Knob;
use mm::stat::Stat;
use program::chaos::Chaos;

fn outcome(seed: u64, bound: bool) -> Outcome {
    let mut config = RunConfig::new(MachineSpec::preset("small").unwrap());
    config.memory = Some(24 << 20);
    config.seed = seed;
    config.bound = bound;
    run(&config, &Chaos::from_footprint(32 << 20)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn a_run_that_is_watched_is_the_same_run() {
    for seed in 1..4 {
        let (plain, mut watched) = (outcome(seed, false), outcome(seed, true));
        let report = watched.bound.take().unwrap();
        assert_eq!(plain, watched);
        assert_eq!(Some(report.rounds as f64), plain.metric("tlb_rounds"));
        assert_eq!(Some(report.receptions as f64), plain.metric("ipis_received"));
        assert_eq!(report.rounds as i64, plain.stat(Stat::NrTlbRemoteFlush));
        assert!(report.l1.rounds <= report.l2.rounds && report.l1.receptions <= report.l2.receptions);
        assert!(report.l1.rounds <= report.rounds && report.l1.receptions <= report.receptions);
    }
}

#[test]
fn every_policy_can_be_watched() {
    for value in 0..Knob::TlbUnmap.info().words.len() as u64 {
        let mut config = RunConfig::new(MachineSpec::preset("small").unwrap());
        config.memory = Some(24 << 20);
        config.knobs = vec![(Knob::TlbUnmap, value)];
        config.bound = true;
        let outcome = run(&config, &Chaos::from_footprint(32 << 20));
        let outcome = outcome.unwrap_or_else(|error| panic!("policy {value}: {error}"));
        assert!(outcome.bound.is_some());
    }
}
