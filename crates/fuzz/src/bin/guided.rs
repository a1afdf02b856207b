//! The coverage-guided fuzzer: libFuzzer on the target that the variable PAGEFOLD_FUZZ names. It writes valid
//! inputs into the folder PAGEFOLD_CORPUS, from which it starts. `cargo xtask fuzz` builds and runs it.
#![no_main]

use fuzz::Target;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use program::rng::Rng;
use std::path::PathBuf;
use std::sync::LazyLock;

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("PAGEFOLD_FUZZ").unwrap_or_default();
    Target::find(&name).expect("PAGEFOLD_FUZZ must name a target")
});

fn provide_seeds() {
    let Some(folder) = std::env::var_os("PAGEFOLD_CORPUS").map(PathBuf::from) else { return };
    for (number, seed) in TARGET.seeds().iter().enumerate() {
        std::fs::write(folder.join(format!("seed-{number}")), seed).expect("the corpus must be writable");
    }
}

fuzz_target!(init: provide_seeds(), |input: &[u8]| {
    TARGET.feed(input);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let mut rng = Rng::new(u64::from(seed));
    // Some changes are the fuzzer's own, which find unforeseen inputs.
    if rng.percent(20) {
        return fuzzer_mutate(data, size, max_size);
    }
    let mutated = TARGET.mutate(&mut rng, &data[..size]);
    let len = mutated.len().min(max_size);
    data[..len].copy_from_slice(&mutated[..len]);
    len
});
