//! DAMON_RECLAIM on whole runs.

use super::acts::{MIB, load_all, outcome, play, store_all};
use machine_sim::{MachineSpec, Outcome, RunConfig, run};
use mm::knobs::Knob;
use mm::stat::Stat;
use program::Map;
use program::chaos::Chaos;

/// Watch and page out a hundred times as fast as by default, whatever memory is free.
const FAST: [(Knob, u64); 9] = [
    (Knob::DamonReclaimEnabled, 1),
    (Knob::DamonReclaimMinAge, 4_000),
    (Knob::DamonReclaimSampleInterval, 50),
    (Knob::DamonReclaimAggrInterval, 1_000),
    (Knob::DamonReclaimWmarksInterval, 1_000),
    (Knob::DamonReclaimWmarksHigh, 1000),
    (Knob::DamonReclaimWmarksMid, 1000),
    (Knob::DamonReclaimWmarksLow, 0),
    (Knob::DamonReclaimQuotaMs, 0),
];

/// A program that stores to 12 MiB, and then loads the first three many times.
fn with(knobs: &[(Knob, u64)]) -> Outcome {
    let play = play(|os, _| {
        let at = os.mmap(Map::anonymous(12 * MIB)).unwrap();
        store_all(os, at, 12 * MIB)?;
        (0..600).try_for_each(|_| load_all(os, at, 3 * MIB))
    });
    let machine = MachineSpec::preset("small").unwrap();
    let knobs = knobs.to_vec();
    outcome(&RunConfig { memory: Some(32 * MIB), verify: true, knobs, ..RunConfig::new(machine) }, &play)
}

#[test]
fn what_is_not_used_is_paged_out_and_what_is_used_stays() {
    let outcome = with(&FAST);
    assert!(outcome.stat(Stat::DamonReclaimedBytes) >= 5 * MIB as i64, "{:?}", outcome.stats);
    assert!(outcome.stat(Stat::DamonTriedBytes) >= outcome.stat(Stat::DamonReclaimedBytes));
    assert!(outcome.stat(Stat::DamonTriedRegions) >= outcome.stat(Stat::DamonReclaimedRegions));
    assert!(outcome.stat(Stat::PswpIn) < 400, "{} pages came back", outcome.stat(Stat::PswpIn));
}

#[test]
fn anonymous_pages_stay_if_they_are_to_be_skipped() {
    let outcome = with(&[&FAST[..], &[(Knob::DamonReclaimSkipAnon, 1)]].concat());
    assert!(outcome.stat(Stat::DamonTriedRegions) > 0);
    assert_eq!((outcome.stat(Stat::DamonReclaimedBytes), outcome.stat(Stat::PswpOut)), (0, 0));
}

#[test]
fn the_quota_of_a_window_holds() {
    let quota = [(Knob::DamonReclaimQuotaSz, MIB), (Knob::DamonReclaimQuotaResetIntervalMs, 3_600_000)];
    let outcome = with(&[&FAST[..], &quota].concat());
    let tried = outcome.stat(Stat::DamonTriedBytes) as u64;
    assert!(0 < tried && tried <= MIB, "{tried}");
}

#[test]
fn nothing_is_done_while_much_memory_is_free() {
    let knobs = [&FAST[..], &[(Knob::DamonReclaimWmarksHigh, 500)]].concat();
    let outcome = with(&knobs);
    assert_eq!(outcome.stat(Stat::DamonTriedRegions), 0, "more than half of memory is free");
}

#[test]
fn random_programs_read_what_they_wrote_while_damon_pages_out() {
    for seed in 0..12 {
        let mut config = RunConfig::new(MachineSpec::random(seed));
        (config.seed, config.verify, config.validate_every_op) = (seed, true, seed < 6);
        config.knobs = [&FAST[..], &[(Knob::ReclaimPolicy, seed % 2)]].concat();
        config.knobs[1].1 = 500;
        run(&config, &Chaos::new(120, 64 << (seed % 5))).unwrap_or_else(|error| panic!("{error}"));
    }
}
