//! The random program on machines of every shape, under the oracle, with validation after every operation.

use machine_sim::{MachineSpec, Outcome, RunConfig, run};
use mm::knobs::{FlushPolicy, Knob};
use program::chaos::Chaos;
use program::rng::Rng;
use std::ops::Range;

/// `CHAOS_SEED=N` runs that seed only, `CHAOS_SEED=N..M` a range of seeds.
fn seeds(usual: Range<u64>) -> Range<u64> {
    seeds_of("CHAOS_SEED", usual)
}

/// The seeds that an environment variable selects.
pub(crate) fn seeds_of(variable: &str, usual: Range<u64>) -> Range<u64> {
    let Ok(text) = std::env::var(variable) else { return usual };
    let number = |text: &str| text.parse::<u64>().expect("a seed is a number; several are like 5..9");
    match text.split_once("..") {
        Some((first, end)) => number(first)..number(end),
        None => number(&text)..number(&text) + 1,
    }
}

/// A policy of deferred flushes, with limits that are small enough to matter.
fn flush_knobs(seed: u64) -> Vec<(Knob, u64)> {
    let mut rng = Rng::new(seed ^ 0x7f1b_f1a5);
    vec![
        (Knob::TlbUnmap, rng.below(FlushPolicy::COUNT)),
        (Knob::TlbUnmapPages, [1, 2, 7, 32][rng.below(4) as usize]),
        (Knob::TlbAgeLimitMs, [0, 1, 5, 100][rng.below(4) as usize]),
        (Knob::TlbPayAll, rng.below(2)),
    ]
}

/// Large folios of files, and windows that are large enough for them, for three seeds of four.
fn folio_knobs(seed: u64) -> Vec<(Knob, u64)> {
    let mut rng = Rng::new(seed ^ 0xf011_0517);
    vec![
        (Knob::FileMaxOrder, [0, 2, 5, 9][rng.below(4) as usize]),
        (Knob::ReadAheadKb, [16, 128, 512, 2048][rng.below(4) as usize]),
    ]
}

/// Large anonymous folios, for three seeds of four.
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
    // The bound finds a missing flush even if no program uses the translation.
    config.bound = true;
    // The run fails if it has fewer refaults than possible.
    config.optimum = true;
    config.knobs = [flush_knobs(seed), folio_knobs(seed), anon_knobs(seed)].concat();
    let program = Chaos::new(120, 64 << (seed % 5));
    run(&config, &program).unwrap_or_else(|error| {
        panic!("{error}\nreplay: CHAOS_SEED={seed} cargo test -p pagefold-sim --test all chaos")
    })
}

#[test]
fn random_programs_read_what_they_wrote_and_structures_stay_valid() {
    let mut checked = 0;
    let all = seeds(0..30);
    for seed in all.clone() {
        eprintln!("seed {seed}");
        checked += chaos(seed, true).oracle.checked;
    }
    eprintln!("{checked} accesses of {} programs were right", all.count());
    assert!(checked > 100);
}

/// Many more programs, with structures validated at their ends only.
#[test]
fn many_random_programs_read_what_they_wrote() {
    for seed in seeds(0..300) {
        eprintln!("seed {seed}");
        chaos(seed, false);
    }
}

#[test]
fn validation_does_not_change_the_run() {
    for seed in seeds(0..8) {
        assert_eq!(chaos(seed, true), chaos(seed, false), "seed {seed}");
    }
}
