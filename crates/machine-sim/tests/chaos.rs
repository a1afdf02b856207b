//! Everything at random, on machines of every shape, under the oracle, with every structure checked after every operation.

use machine_sim::{MachineSpec, Outcome, RunConfig, run};
use program::chaos::Chaos;

/// `CHAOS_SEED=N` runs that seed only.
fn seeds(usual: std::ops::Range<u64>) -> std::ops::Range<u64> {
    match std::env::var("CHAOS_SEED").ok().map(|text| text.parse().expect("CHAOS_SEED is a number")) {
        Some(seed) => seed..seed + 1,
        None => usual,
    }
}

fn chaos(seed: u64, validate: bool) -> Outcome {
    let mut config = RunConfig::new(MachineSpec::random(seed));
    (config.seed, config.verify, config.validate_every_op) = (seed, true, validate);
    let program = Chaos::new(120, 64 << (seed % 5));
    run(&config, &program).unwrap_or_else(|error| {
        panic!("{error}\nreplay: CHAOS_SEED={seed} cargo test -p machine-sim --test chaos")
    })
}

#[test]
fn everything_at_random_is_right_and_every_structure_stays_whole() {
    let mut checked = 0;
    let all = seeds(0..60);
    for seed in all.clone() {
        eprintln!("seed {seed}");
        let outcome = chaos(seed, true);
        assert_eq!(outcome.oracle.violations, 0, "seed {seed}");
        checked += outcome.oracle.checked;
    }
    eprintln!("{checked} accesses of {} programs were right", all.count());
    assert!(checked > 100);
}

#[test]
fn looking_at_the_structures_changes_nothing() {
    for seed in seeds(0..8) {
        assert_eq!(chaos(seed, true), chaos(seed, false), "seed {seed}");
    }
}
