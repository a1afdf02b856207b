//! Programs: traces and built-in ones.

use super::run::explain;
use crate::error::{Error, Result};
use crate::{human, size, suggest};
use machine_sim::{Outcome, RunConfig};
use mm::stat::Stat;
use program::Program as _;
use program::builtin::{self, Builtin, LruFileMmapRead, PageoutLoop};
use program::chaos::{self, Chaos};
use std::path::Path;
use trace::Replay;

/// Bytes that a built-in program touches if nothing is said.
const DEFAULT_SIZE: u64 = 64 << 20;

/// The most that it may be told to touch: half of a 47-bit address space.
const MAX_SIZE: u64 = 1 << 46;

/// Name of the random program.
const CHAOS: &str = "chaos";

/// The most memory of a machine on which the random program has every structure checked after every operation.
const VALIDATE_UP_TO: u64 = 256 << 20;

fn known() -> impl Iterator<Item = (&'static str, &'static str)> {
    let others = [
        (LruFileMmapRead::NAME, LruFileMmapRead::HELP),
        (PageoutLoop::NAME, PageoutLoop::HELP),
        (CHAOS, chaos::HELP),
    ];
    builtin::LIST.iter().copied().chain(others)
}

/// Built-in programs: name and one line of help.
pub fn programs() -> Vec<(String, String)> {
    known().map(|(name, help)| (name.to_owned(), help.to_owned())).collect()
}

/// A program to run.
pub enum Program {
    /// A recorded one.
    Trace(Box<Replay>),
    /// One of ours.
    Builtin(Builtin),
    /// Mapped files read once, more than memory holds.
    LruFileMmapRead(LruFileMmapRead),
    /// Mapped files given up again and again, for a second.
    PageoutLoop(PageoutLoop),
    /// Everything at random, on about so many bytes.
    Chaos(u64),
}

impl Program {
    /// The program that the user named: a trace, or `NAME`, `NAME:SIZE` or `NAME:SIZE:THREADS`.
    pub fn find(name: &str) -> Result<Program> {
        let path = Path::new(name);
        if name.ends_with(".pft") || path.components().count() > 1 || path.is_file() {
            let replay = Replay::open(path).map_err(|error| Error::Input(error.to_string()))?;
            return Ok(Program::Trace(Box::new(replay)));
        }
        let (stem, footprint, threads) = parts(name)?;
        if !known().any(|(known, _)| known == stem) {
            let names = known().map(|(known, _)| known);
            return Err(Error::Input(suggest::unknown("program", stem, names, "programs")));
        }
        if threads.is_some() && builtin::from_name(stem, footprint).is_none() {
            return Err(Error::Input(format!("{name}: {stem} chooses its number of tasks itself")));
        }
        if stem == CHAOS && footprint <= MAX_SIZE {
            return Ok(Program::Chaos(footprint));
        }
        if stem == LruFileMmapRead::NAME && footprint <= MAX_SIZE {
            return Ok(Program::LruFileMmapRead(LruFileMmapRead::new(footprint)));
        }
        if stem == PageoutLoop::NAME && footprint <= MAX_SIZE {
            return Ok(Program::PageoutLoop(PageoutLoop::new(footprint)));
        }
        let program = (footprint <= MAX_SIZE).then(|| builtin::from_name(stem, footprint)).flatten();
        let program = program.map(|program| program.with_threads(threads.unwrap_or(1)));
        program.map(Program::Builtin).ok_or_else(|| {
            Error::Input(format!(
                "{name}: no address space holds {footprint} bytes; give it less, like {stem}:64M"
            ))
        })
    }

    /// The program; if it is one that measures for a given time, for a share of it.
    pub fn for_share_of_its_time(self, share: f64) -> Program {
        match self {
            Program::PageoutLoop(case) => Program::PageoutLoop(case.for_share_of_its_time(share)),
            other => other,
        }
    }

    /// Name, bytes and threads of the built-in program that the user named, for a machine that builds it itself; `None` for a
    /// trace.
    pub fn words(&self, name: &str) -> Result<Option<(String, u64, u32)>> {
        if matches!(self, Program::Trace(_)) {
            return Ok(None);
        }
        let (stem, bytes, threads) = parts(name)?;
        Ok(Some((stem.to_owned(), bytes, threads.unwrap_or(1))))
    }

    /// Bytes that it touches.
    pub fn footprint(&self) -> u64 {
        match self {
            Program::Trace(replay) => replay.footprint(),
            Program::Builtin(builtin) => builtin.footprint(),
            Program::LruFileMmapRead(case) => case.footprint(),
            Program::PageoutLoop(case) => case.footprint(),
            Program::Chaos(bytes) => Chaos::from_footprint(*bytes).footprint(),
        }
    }

    /// May it be killed for want of memory without the run having failed?
    pub(super) fn may_die(&self) -> bool {
        matches!(self, Program::Chaos(_))
    }

    /// Run it; also returns what a reader of the numbers should know.
    pub(super) fn run(&self, config: &RunConfig) -> Result<(Outcome, Vec<String>)> {
        match self {
            Program::Builtin(builtin) => {
                machine_sim::run(config, builtin).map(|outcome| (outcome, Vec::new())).map_err(explain)
            }
            Program::LruFileMmapRead(case) => {
                let outcome = flood(config, case)?;
                Ok((outcome, Vec::new()))
            }
            Program::PageoutLoop(case) => {
                machine_sim::run(config, case).map(|outcome| (outcome, Vec::new())).map_err(explain)
            }
            Program::Chaos(bytes) => {
                let memory = config.memory.unwrap_or_else(|| config.machine.memory());
                let validate_every_op = config.verify && memory <= VALIDATE_UP_TO;
                let config = RunConfig { validate_every_op, ..config.clone() };
                let outcome = machine_sim::run(&config, &Chaos::from_footprint(*bytes)).map_err(explain)?;
                Ok((outcome, Vec::new()))
            }
            Program::Trace(replay) => {
                // A replay has state; runs beside each other need their own.
                let replay = Replay::clone(replay);
                let outcome = machine_sim::run(config, &replay).map_err(explain)?;
                Ok((outcome, warnings(&replay.outcome())?))
            }
        }
    }
}

/// The parts of `NAME`, `NAME:SIZE` or `NAME:SIZE:THREADS`.
fn parts(name: &str) -> Result<(&str, u64, Option<u32>)> {
    let mut parts = name.split(':');
    let stem = parts.next().unwrap_or_default();
    let footprint = parts.next().map_or(Ok(DEFAULT_SIZE), size::parse_bytes).map_err(Error::Input)?;
    let threads = parts.next().map(|text| parse_threads(name, text)).transpose()?;
    match parts.next() {
        None => Ok((stem, footprint, threads)),
        Some(_) => Err(Error::Input(format!("{name}: a program is NAME, NAME:SIZE or NAME:SIZE:THREADS"))),
    }
}

fn parse_threads(name: &str, text: &str) -> Result<u32> {
    let threads = text.parse().ok().filter(|threads| (1..=1024).contains(threads));
    threads.ok_or_else(|| Error::Input(format!("{name}: '{text}' is no number of threads from 1 to 1024")))
}

/// Run a program that claims to flood memory, and see that it did.
fn flood(config: &RunConfig, case: &LruFileMmapRead) -> Result<Outcome> {
    let memory = config.memory.unwrap_or_else(|| config.machine.memory());
    if !case.overcommits(memory) {
        return Err(Error::Input(format!(
            "{}: its files have {}, and memory of {} holds all of them; give it less with --memory (10% is the case as \
             published)",
            case.name(),
            human::bytes(case.footprint() as f64),
            human::bytes(memory as f64)
        )));
    }
    let outcome = machine_sim::run(config, case).map_err(explain)?;
    let reclaimed = outcome.stat(Stat::PgstealKswapd) + outcome.stat(Stat::PgstealDirect);
    match reclaimed > 0 || !outcome.signals.is_empty() {
        true => Ok(outcome),
        false => {
            Err(Error::Failed(format!("{}: nothing was reclaimed, so it measured nothing", case.name())))
        }
    }
}

/// What happened in a replay besides what was recorded.
fn warnings(replay: &trace::Outcome) -> Result<Vec<String>> {
    if let Some(why) = &replay.broken {
        return Err(Error::Input(why.clone()));
    }
    let mut warnings = Vec::new();
    if let Some((thread, addr)) = replay.first_skipped {
        warnings.push(format!(
            "{} of the trace's accesses touched memory that was not mapped and were left out (first: thread {}, address \
             {addr:#x})",
            replay.skipped, thread.0
        ));
    }
    if let Some((thread, call, errno)) = replay.first_failed {
        warnings.push(format!(
            "{} system calls of the trace failed (first: {call} of thread {}: {errno:?})",
            replay.failed_calls, thread.0
        ));
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_program_is_found_and_described() {
        for (name, help) in programs() {
            assert!(Program::find(&name).is_ok_and(|program| program.footprint() > 0), "{name}");
            assert!(!help.is_empty(), "{name}");
        }
    }

    #[test]
    fn what_cannot_be_found_is_said() {
        for (name, expected) in [
            ("zippf:1M", "did you mean 'zipf'?"),
            ("zipf:1Q", "is not a size"),
            ("zipf:100T", "no address space holds"),
            ("no-such.pft", "no-such.pft"),
            ("Cargo.toml", "not a Pagefold trace"),
        ] {
            let message = Program::find(name).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(message.contains(expected) && !message.contains('\n'), "{name}: {message}");
        }
    }
}
