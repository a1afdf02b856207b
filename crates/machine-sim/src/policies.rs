//! Tests that every replacement policy must pass, for authors of policies ([`mm::policy`]).

use crate::{MachineSpec, Outcome, RunConfig, run};
use mm::knobs::Knob;
use mm::policy::MakePolicy;
use mm::stat::Stat;
use program::chaos::Chaos;
use program::{Program, builtin};
use std::ops::Range;

const MIB: u64 = 1 << 20;

/// Programs for which policies differ: files and anonymous memory, mapped and read, written and clean.
const PROGRAMS: [&str; 5] = ["zipf", "zipf-file", "read-stream", "shared-writers", "fork-write"];

/// Run, with this policy, the random program with each seed on a machine drawn from the seed, and some built-in programs
/// with less memory than they use. Checks every load, and validates every structure after each operation of the random
/// program.
///
/// # Errors
/// The error says what went wrong, and with which seed or program.
pub fn check_policy(make: MakePolicy, seeds: Range<u64>) -> Result<(), String> {
    for seed in seeds {
        let machine = MachineSpec::random(seed);
        let config = RunConfig { validate_every_op: true, seed, ..config(machine, make) };
        checked(&config, &Chaos::new(120, 64 << (seed % 5)), &format!("seed {seed}"))?;
    }
    for name in PROGRAMS {
        let program = builtin::from_name(name, 12 * MIB).ok_or("a program of this list does not exist")?;
        let machine = MachineSpec::preset("small").map_err(|error| error.to_string())?;
        let memory = Some(8 * MIB);
        let config = RunConfig { memory, validate_sometimes: true, ..config(machine, make) };
        let outcome = checked(&config, &program, name)?;
        let reclaimed = outcome.stat(Stat::PgstealKswapd) + outcome.stat(Stat::PgstealDirect);
        if reclaimed == 0 {
            return Err(format!("{name}: nothing was reclaimed"));
        }
    }
    Ok(())
}

fn config(machine: MachineSpec, make: MakePolicy) -> RunConfig {
    let custom = Knob::ReclaimPolicy.info().max;
    RunConfig {
        verify: true,
        bound: true,
        knobs: vec![(Knob::ReclaimPolicy, custom)],
        custom: Some(make),
        ..RunConfig::new(machine)
    }
}

fn checked<P: Program>(config: &RunConfig, program: &P, what: &str) -> Result<Outcome, String> {
    let outcome = run(config, program).map_err(|error| format!("{what}: {error}"))?;
    if outcome.oracle.violations > 0 || !outcome.oom.is_empty() {
        let (wrong, killed) = (outcome.oracle.violations, outcome.oom.len());
        return Err(format!(
            "{what}: {wrong} loads were wrong, {killed} processes were killed for want of memory"
        ));
    }
    Ok(outcome)
}
