//! Actions of programs, and ways to run them, that several tests share.

use machine_sim::{FlushFault, Outcome, RunConfig, RunError, run};
use mm::knobs::FlushPolicy;
use mm::stat::Stat;
use program::{Map, Os, Program, Prot, Remap, Role, Signal};
use std::fmt::Debug;
use std::ops::Range;

pub const PAGE: u64 = 4096;
pub const MIB: u64 = 1 << 20;
/// Bytes of a large entry.
pub const LARGE: u64 = 2 * MIB;
/// Values of `tlb.unmap`.
pub const POLICIES: u64 = FlushPolicy::COUNT;

/// A program that is a function of the kernel and the task's role.
pub struct Play<F>(F);

/// The program in which every task does `act`.
pub fn play<F: Fn(&mut dyn Os, Role) -> Result<(), Signal>>(act: F) -> Play<F> {
    Play(act)
}

impl<F: Fn(&mut dyn Os, Role) -> Result<(), Signal>> Program for Play<F> {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        (self.0)(os, role)
    }
}

fn case<P: Program>(config: &RunConfig, program: &P) -> String {
    format!("{}, seed {}, {:?}", program.name(), config.seed, config.knobs)
}

/// Run a program without a wrong access.
pub fn outcome<P: Program>(config: &RunConfig, program: &P) -> Outcome {
    let outcome = run(config, program).unwrap_or_else(|error| panic!("{}: {error}", case(config, program)));
    assert_eq!(outcome.oracle.violations, 0, "{}", case(config, program));
    outcome
}

/// Run a program without a wrong access or a signal.
pub fn unharmed<P: Program>(config: &RunConfig, program: &P) -> Outcome {
    let outcome = outcome(config, program);
    assert_eq!(outcome.signals, Vec::<String>::new(), "{}", case(config, program));
    outcome
}

/// Pages that were reclaimed.
pub fn stolen(outcome: &Outcome) -> i64 {
    outcome.stat(Stat::PgstealKswapd) + outcome.stat(Stat::PgstealDirect)
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

/// What is caught of the flushes `nth`, each dropped in one run; `failure` is what a run fails with. Something must be,
/// and nothing if all flushes happen.
pub fn caught(what: &dyn Debug, nth: Range<u64>, failure: impl Fn(u64) -> Option<String>) -> Vec<String> {
    assert_eq!(failure(1 << 40), None, "{what:?}");
    let caught: Vec<String> = nth.filter_map(failure).collect();
    assert!(!caught.is_empty(), "{what:?}");
    caught
}

/// Store to all pages of a range.
pub fn store_all(os: &mut dyn Os, at: u64, len: u64) -> Result<(), Signal> {
    (0..len / PAGE).try_for_each(|page| os.store(at + page * PAGE))
}

/// Load from all pages of a range.
pub fn load_all(os: &mut dyn Os, at: u64, len: u64) -> Result<(), Signal> {
    (0..len / PAGE).try_for_each(|page| os.load(at + page * PAGE))
}

/// Use half of memory from `at` on, in several passes with pauses between them.
pub fn push(os: &mut dyn Os, at: u64) -> Result<(), Signal> {
    let len = os.memory() / 2;
    os.mmap(Map { addr: Some(at), ..Map::anonymous(len) }).unwrap();
    for round in 0..3 {
        store_all(os, at, len)?;
        os.sleep(1_000_000 * (round + 1));
    }
    Ok(())
}

/// Write-protect a range for a while.
pub fn forbid_stores(os: &mut dyn Os, at: u64, len: u64) {
    os.mprotect(at, len, Prot::READ).unwrap();
    os.compute(50_000);
    os.mprotect(at, len, Prot::RW).unwrap();
}

/// Move a range away for a while, unless it consists of several ranges.
pub fn move_away_and_back(os: &mut dyn Os, at: u64, len: u64, away: u64) {
    let there = Remap { addr: at, old_len: len, new_len: len, may_move: true, fixed: Some(away) };
    if os.mremap(there).is_ok() {
        os.compute(50_000);
        os.mremap(Remap { addr: away, fixed: Some(at), ..there }).unwrap();
    }
}

/// Compute for `nanos` nanoseconds.
pub fn compute_for(os: &mut dyn Os, nanos: u64) {
    let end = os.now() + nanos;
    while os.now() < end {
        os.compute(1000);
    }
}
