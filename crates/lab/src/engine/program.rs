//! Programs: traces and built-in ones.

use crate::error::{Error, Result};
use crate::{human, size, suggest};
use machine_sim::{Outcome, RunConfig, RunError};
use mm::stat::{SizeStat, Stat};
use program::chaos::Chaos;
use program::named::{NameError, NameParts};
use program::{Named, Program as _, builtin::LruFileMmapRead};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use trace::{Elsewhere, Islands, Reader, Replay, Source};

/// Built-in programs, each with one line of help.
pub fn programs() -> Vec<(String, String)> {
    Named::list().map(|(name, help)| (name.to_owned(), help.to_owned())).collect()
}

/// A program to run.
pub enum Program {
    /// A recorded program.
    Trace(Box<Recording>),
    /// A built-in program.
    Named(Named),
}

impl Program {
    /// Find a program by name: a trace, or a built-in program as [`program::named`] reads it.
    pub fn find(name: &str) -> Result<Program> {
        if Program::is_file(name) {
            let replay = Replay::open(Path::new(name)).map_err(|error| Error::Input(error.to_string()))?;
            return Ok(Program::Trace(Box::new(Recording { replay, islands: OnceLock::new() })));
        }
        words(name).and_then(Named::new).map(Program::Named).map_err(|wrong| explain_name(&wrong))
    }

    /// Whether a name is that of a trace.
    pub fn is_file(name: &str) -> bool {
        let path = Path::new(name);
        name.ends_with(".pft") || path.components().count() > 1 || path.is_file()
    }

    /// The same program; one that measures for a fixed time does so for a share of it.
    pub fn with_share_of_time(self, share: f64) -> Program {
        match self {
            Program::Named(Named::PageoutLoop(case)) => {
                Program::Named(Named::PageoutLoop(case.with_share_of_time(share)))
            }
            other => other,
        }
    }

    /// The parsed name of a built-in program, for a machine that builds the program itself.
    pub fn built_in(name: &str) -> Result<NameParts<'_>> {
        words(name).map_err(|wrong| explain_name(&wrong))
    }

    /// Bytes that it touches.
    pub fn footprint(&self) -> u64 {
        match self {
            Program::Trace(recording) => recording.replay.footprint(),
            Program::Named(program) => program.footprint(),
        }
    }

    /// The most bytes of the footprint that exist at once, in its processes and in the files that it uses. Shares of
    /// memory are relative to it.
    pub fn peak_live(&self) -> u64 {
        match self {
            Program::Trace(recording) => recording.replay.header().peak,
            Program::Named(program) => program.footprint(),
        }
    }

    /// If it is a sample of a program's pages: what numbers stand for, and this much memory.
    pub fn sampled(&self, memory: Option<u64>) -> Option<String> {
        let Program::Trace(recording) = self else { return None };
        let replay = &recording.replay;
        let whole = memory.map(|bytes| {
            let times = bytes.saturating_mul(replay.header().sample);
            format!("; {} here are some {} there", human::bytes(bytes as f64), human::bytes(times as f64))
        });
        replay.header().sampled().map(|text| text + &whole.unwrap_or_default())
    }

    /// Whether the run is valid even if the OOM killer kills the program.
    pub(super) fn may_be_oom_killed(&self) -> bool {
        matches!(self, Program::Named(program) if program.may_be_oom_killed())
    }

    /// Run the program.
    pub(super) fn run(&self, config: &RunConfig) -> Result<Ran> {
        match self {
            Program::Named(program) => run_named(config, program),
            Program::Trace(recording) => {
                let mut ran = recording.run(config)?;
                ran.warnings.extend(self.sampled(config.memory));
                Ok(ran)
            }
        }
    }
}

/// A recorded program.
pub struct Recording {
    replay: Replay<Reader>,
    /// What moves together at other addresses, once a run wants that.
    islands: OnceLock<Islands>,
}

impl Recording {
    /// The trace.
    pub fn source(&self) -> &Reader {
        self.replay.source()
    }

    fn run(&self, config: &RunConfig) -> Result<Ran> {
        // A replay has state, so parallel runs need one each.
        let Some(seed) = config.vary.layout_seed(config.seed) else {
            return run_replay(config, &self.replay.clone());
        };
        let elsewhere = Elsewhere::new(self.source().clone(), self.islands()?, seed);
        run_replay(config, &Replay::new(elsewhere, self.replay.name().to_owned()))
    }

    fn islands(&self) -> Result<&Islands> {
        if let Some(islands) = self.islands.get() {
            return Ok(islands);
        }
        let islands = Islands::of(self.source()).map_err(|error| Error::Input(error.to_string()))?;
        Ok(self.islands.get_or_init(|| islands))
    }
}

fn run_replay<S: Source>(config: &RunConfig, replay: &Replay<S>) -> Result<Ran> {
    let outcome = machine_sim::run(config, replay).map_err(explain)?;
    let warnings = warnings(&replay.outcome())?;
    Ok(Ran { warnings, ..Ran::of(outcome) })
}

/// What a run of a program has shown.
pub(super) struct Ran {
    pub(super) outcome: Outcome,
    /// For readers of the numbers.
    pub(super) warnings: Vec<String>,
    /// Of the random program: its operations, and what the memory manager counted for them.
    pub(super) covered: BTreeMap<String, u64>,
}

impl Ran {
    fn of(outcome: Outcome) -> Ran {
        Ran { outcome, warnings: Vec::new(), covered: BTreeMap::new() }
    }
}

fn run_chaos(config: &RunConfig, chaos: &Chaos) -> Result<Ran> {
    check_disk(config, chaos)?;
    let config = RunConfig { validate_sometimes: config.verify, ..config.clone() };
    let outcome = machine_sim::run(&config, chaos).map_err(explain)?;
    Ok(Ran { covered: covered(chaos, &outcome), ..Ran::of(outcome) })
}

fn covered(chaos: &Chaos, outcome: &Outcome) -> BTreeMap<String, u64> {
    let stats = outcome.stats.iter().filter(|(stat, _)| !stat.is_level());
    let stats = stats.map(|&(stat, value)| (format!("vmstat:{}", stat.name()), value.max(0) as u64));
    let sizes = SizeStat::ALL.iter().filter(|stat| !stat.name().starts_with("nr_")).map(|stat| {
        let of_stat = outcome.metrics.iter().filter(|metric| {
            metric.name.starts_with("hugepages-") && metric.name.ends_with(&format!("/{}", stat.name()))
        });
        (format!("hugepages:{}", stat.name()), of_stat.map(|metric| metric.value as u64).sum())
    });
    let work = outcome.work.iter().map(|done| (format!("work:{}", done.work.name()), done.count));
    let acts = chaos.covered().map(|(name, times)| (format!("chaos:{name}"), times));
    acts.chain(stats).chain(sizes).chain(work).collect()
}

fn words(name: &str) -> std::result::Result<NameParts<'_>, NameError> {
    NameParts::parse(name, size::parse_bytes)
}

/// Turn an error of the simulator into one of the command.
fn explain(error: RunError) -> Error {
    match error {
        RunError::Input(why) => Error::Input(why),
        RunError::TimeLimit(nanos) => {
            let limit = human::number(nanos as f64, "ns");
            Error::TimeLimit(format!(
                "the program had not ended after {limit}: it thrashes, or needs longer; give more with --memory or \
                 --limit"
            ))
        }
        RunError::Interrupted => Error::Interrupted(error.to_string()),
        failed => Error::Failed(failed.to_string()),
    }
}

fn explain_name(wrong: &NameError) -> Error {
    Error::Input(match wrong {
        NameError::Unknown(name) => {
            suggest::unknown("program", name, Named::list().map(|(known, _)| known), "programs")
        }
        NameError::Other(why) => why.clone(),
    })
}

fn run_named(config: &RunConfig, program: &Named) -> Result<Ran> {
    let outcome = match program {
        Named::Chaos(chaos) => return run_chaos(config, &chaos.again()),
        Named::LruFileMmapRead(case) => flood(config, case)?,
        Named::VmScalability(case) => {
            let memory = config.memory.unwrap_or_else(|| config.machine.memory());
            case.suits(memory).map_err(Error::Input)?;
            machine_sim::run(config, program).map_err(explain)?
        }
        Named::Builtin(_)
        | Named::Usemem(_)
        | Named::KernelBuild(_)
        | Named::Churn(_)
        | Named::PageoutLoop(_)
        | Named::WillItScale(_)
        | Named::App(_) => machine_sim::run(config, program).map_err(explain)?,
    };
    Ok(Ran::of(outcome))
}

/// Refuse a random program whose files do not fit on the machine's disk.
fn check_disk(config: &RunConfig, chaos: &Chaos) -> Result<()> {
    let room = config.machine.devices()[config.machine.file_device()].size.0;
    if chaos.disk() <= room {
        return Ok(());
    }
    Err(Error::Input(format!(
        "chaos: its files need {}, and the machine's disk for files has {}; choose a smaller size, like chaos:24M",
        human::bytes(chaos.disk() as f64),
        human::bytes(room as f64)
    )))
}

/// Run a program that claims to overcommit memory, and check that pages were reclaimed.
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

/// Where a replay differed from the recording.
fn warnings(replay: &trace::Outcome) -> Result<Vec<String>> {
    if let Some(why) = &replay.broken {
        return Err(Error::Input(why.clone()));
    }
    Ok(replay.notes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_program_exists_and_has_help() {
        for (name, help) in programs() {
            assert!(Program::find(&name).is_ok_and(|program| program.footprint() > 0), "{name}");
            assert!(!help.is_empty(), "{name}");
        }
    }

    #[test]
    fn unknown_programs_are_refused_in_one_line() {
        for (name, expected) in [
            ("zippf:1M", "did you mean 'zipf'?"),
            ("zipf:1Q", "is not a size"),
            ("zipf:100T", "do not fit in an address space"),
            ("no-such.pft", "no-such.pft"),
            ("Cargo.toml", "not a Pagefold trace"),
        ] {
            let message = Program::find(name).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(message.contains(expected) && !message.contains('\n'), "{name}: {message}");
        }
    }
}
