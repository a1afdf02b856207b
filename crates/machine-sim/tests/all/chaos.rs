//! Everything at random, on machines of every shape, under the oracle, with every structure checked after every
//! operation.

use machine_sim::{MachineSpec, Outcome, RunConfig, run};
use mm::knobs::{FlushPolicy, Knob};
use program::chaos::Chaos;
use program::rng::Rng;
use std::ops::Range;

/// `CHAOS_SEED=N` runs that seed only, `CHAOS_SEED=N..M` those.
fn seeds(usual: Range<u64>) -> Range<u64> {
    seeds_of("CHAOS_SEED", usual)
}

/// The seeds that an environment variable asks for.
pub(crate) fn seeds_of(variable: &str, usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var(variable) else { return usual };
    let number = |text: &str| text.parse::<u64>().expect("a seed is a number; several are like 5..9");
    match text.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&text)..number(&text) + 1,
    }
}

/// A policy of deferred flushes, with limits that are small enough to be met.
fn flush_knobs(seed: u64) -> Vec<(Knob, u64)> {
    let mut rng = Rng::new(seed ^ 0x7f1b_f1a5);
    vec![
        (Knob::TlbUnmap, rng.below(FlushPolicy::COUNT)),
        (Knob::TlbUnmapPages, [1, 2, 7, 32][rng.below(4) as usize]),
        (Knob::TlbAgeLimitMs, [0, 1, 5, 100][rng.below(4) as usize]),
        (Knob::TlbPayAll, rng.below(2)),
    ]
}

/// Folios of files of other sizes than one page, for three seeds of four; windows that are large enough for them.
fn folio_knobs(seed: u64) -> Vec<(Knob, u64)> {
    let mut rng = Rng::new(seed ^ 0xf011_0517);
    vec![
        (Knob::FileMaxOrder, [0, 2, 5, 9][rng.below(4) as usize]),
        (Knob::ReadAheadKb, [16, 128, 512, 2048][rng.below(4) as usize]),
    ]
}

/// Anonymous folios of other sizes than one page, for three seeds of four.
fn anon_knobs(seed: u64) -> Vec<(Knob, u64)> {
    let mut rng = Rng::new(seed ^ 0xa40f_0110);
    let sizes: &[u64] =
        [&[][..], &[16, 64, 512], &[64], &[16, 32, 64, 128, 256, 512, 1024, 2048]][rng.below(4) as usize];
    let knob = |size: &u64| Knob::from_name(&format!("hugepages-{size}kB.enabled")).unwrap();
    sizes.iter().map(|size| (knob(size), 2)).collect()
}

fn chaos(seed: u64, validate: bool) -> Outcome {
    let mut config = RunConfig::new(MachineSpec::random(seed));
    (config.seed, config.verify, config.validate_every_op) = (seed, true, validate);
    // A flush that is missing is found even if nobody uses what it should have dropped.
    config.bound = true;
    // Ends with an error if there are fewer refaults than there can be.
    config.optimum = true;
    config.knobs = [flush_knobs(seed), folio_knobs(seed), anon_knobs(seed)].concat();
    let program = Chaos::new(120, 64 << (seed % 5));
    run(&config, &program).unwrap_or_else(|error| {
        panic!("{error}\nreplay: CHAOS_SEED={seed} cargo test -p machine-sim --test all chaos")
    })
}

#[test]
fn everything_at_random_is_right_and_every_structure_stays_whole() {
    let mut checked = 0;
    let all = seeds(0..30);
    for seed in all.clone() {
        eprintln!("seed {seed}");
        checked += chaos(seed, true).oracle.checked;
    }
    eprintln!("{checked} accesses of {} programs were right", all.count());
    assert!(checked > 100);
}

/// Many more programs, with a look at the structures at their ends only.
#[test]
fn everything_at_random_is_right() {
    for seed in seeds(0..300) {
        eprintln!("seed {seed}");
        chaos(seed, false);
    }
}

#[test]
fn looking_at_the_structures_changes_nothing() {
    for seed in seeds(0..8) {
        assert_eq!(chaos(seed, true), chaos(seed, false), "seed {seed}");
    }
}
