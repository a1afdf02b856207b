//! Actions of programs, and ways to run them, that several tests share.

use machine_sim::{FlushFault, Outcome, RunConfig, RunError, run};
use mm::knobs::FlushPolicy;
use program::{Map, Os, Program, Prot, Remap, Signal};

pub const PAGE: u64 = 4096;
pub const MIB: u64 = 1 << 20;
/// Bytes of a large entry.
pub const LARGE: u64 = 2 * MIB;
/// Values of `tlb.unmap`.
pub const POLICIES: u64 = FlushPolicy::COUNT;

/// Run a program without a wrong access.
pub fn outcome<P: Program>(config: &RunConfig, program: &P) -> Outcome {
    let outcome = run(config, program).unwrap_or_else(|error| panic!("{}: {error}", program.name()));
    assert_eq!(outcome.oracle.violations, 0, "{}", program.name());
    outcome
}

/// Run a program with flush `nth` for another CPU dropped. The error is what the run failed with.
pub fn without_flush<P: Program>(nth: u64, config: RunConfig, program: &P) -> Result<Outcome, String> {
    let flush_fault = Some(FlushFault { nth, remote: Some(true), delay: None });
    let outcome = run(&RunConfig { flush_fault, bound: false, ..config }, program);
    let outcome = outcome.map_err(|error| match error {
        RunError::Failed { reason, .. } => reason,
        other => panic!("{other}"),
    })?;
    assert_eq!(outcome.signals, Vec::<String>::new());
    Ok(outcome)
}

/// Use half of memory from `at` on, in several passes with pauses between them.
pub fn push<O: Os + ?Sized>(os: &mut O, at: u64) -> Result<(), Signal> {
    let len = os.memory() / 2;
    os.mmap(Map { addr: Some(at), ..Map::anonymous(len) }).unwrap();
    for round in 0..3 {
        for page in 0..len / PAGE {
            os.store(at + page * PAGE)?;
        }
        os.sleep(1_000_000 * (round + 1));
    }
    Ok(())
}

/// Write-protect a range for a while.
pub fn forbid_stores<O: Os>(os: &mut O, at: u64, len: u64) {
    os.mprotect(at, len, Prot::READ).unwrap();
    os.compute(50_000);
    os.mprotect(at, len, Prot::RW).unwrap();
}

/// Move a range away for a while, unless it consists of several ranges.
pub fn move_away_and_back<O: Os>(os: &mut O, at: u64, len: u64, away: u64) {
    let there = Remap { addr: at, old_len: len, new_len: len, may_move: true, fixed: Some(away) };
    if os.mremap(there).is_ok() {
        os.compute(50_000);
        os.mremap(Remap { addr: away, fixed: Some(at), ..there }).unwrap();
    }
}

/// Compute for `nanos` nanoseconds.
pub fn compute_for<O: Os>(os: &mut O, nanos: u64) {
    let end = os.now() + nanos;
    while os.now() < end {
        os.compute(1000);
    }
}
