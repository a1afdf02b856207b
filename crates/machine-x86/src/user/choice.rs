//! The program of a run, chosen by its name: one that all machines have, or a race made for this one.

use super::scenarios::{self, Scenario};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use program::named::{NameParts, NameError};
use program::{Named, Os, Program, Role, Signal};
use trace::event::ThreadId;
use trace::{Replay, Unpacked};

/// A program that the machine can run.
pub enum Choice {
    /// One that all machines have.
    Named(Named),
    /// A race, made on purpose.
    Scenario(Scenario),
    /// A recorded one.
    Trace(Box<Replay<Unpacked<'static>>>),
}

impl Choice {
    /// The program of a name as the command line has it: `NAME`, `NAME:BYTES`, `NAME:BYTES:THREADS`, `scenario:NAME`,
    /// or `trace` for the one whose image is given. Fails with a reason for people.
    pub fn find(text: &str, trace: Option<&'static [u8]>) -> Result<Choice, String> {
        if text == "trace" {
            let image = trace.ok_or("program: no trace came with the kernel (QEMU's -initrd)")?;
            let trace = Unpacked::new(image).map_err(|_| "program: what came with the kernel is no trace")?;
            return Ok(Choice::Trace(Box::new(Replay::new(trace, text.into()))));
        }
        if let Some(name) = text.strip_prefix("scenario:") {
            return scenarios::find(name).map(Choice::Scenario);
        }
        let number = |word: &str| word.parse().map_err(|_| format!("{text}: '{word}' is no number of bytes"));
        let found = NameParts::parse(text, number).and_then(Named::new);
        found.map(Choice::Named).map_err(|wrong| match wrong {
            NameError::Unknown(name) => {
                format!("program: no program is called '{name}'; `pagefold list programs` names them")
            }
            NameError::Other(why) => format!("program: {why}"),
        })
    }

    /// May it be killed for want of memory without the run having failed?
    pub fn may_be_oom_killed(&self) -> bool {
        matches!(self, Choice::Named(program) if program.may_be_oom_killed())
    }

    /// What a reader of the run's numbers should know of what a task has done, when that has ended.
    pub fn note(&self, role: Role) -> Option<String> {
        let Choice::Trace(replay) = self else { return None };
        replay.note_of(ThreadId(role))
    }
}

impl Program for Choice {
    fn name(&self) -> &str {
        match self {
            Choice::Named(program) => program.name(),
            Choice::Scenario(program) => program.name(),
            Choice::Trace(program) => program.name(),
        }
    }

    fn footprint(&self) -> u64 {
        match self {
            Choice::Named(program) => program.footprint(),
            Choice::Scenario(program) => program.footprint(),
            Choice::Trace(program) => program.footprint(),
        }
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        match self {
            Choice::Named(program) => program.run(os, role),
            Choice::Scenario(program) => program.run(os, role),
            Choice::Trace(program) => program.run(os, role),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_scenarios_are_found_by_name() {
        for (name, _) in Named::list() {
            assert_eq!(Choice::find(name, None).map(|found| found.name() == name), Ok(true));
        }
        for &(name, _) in scenarios::LIST {
            assert_eq!(
                Choice::find(&format!("scenario:{name}"), None).map(|found| found.name() == name),
                Ok(true)
            );
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, reason) in [
            ("zippf", "no program is called"),
            ("zipf:1M", "no number of bytes"),
            ("pageout-loop:1000000:2", "chooses its number"),
            ("scenario:none", "no scenario"),
            ("trace", "no trace came"),
        ] {
            let message = Choice::find(text, None).err().unwrap_or_default();
            assert!(message.contains(reason), "{text}: {message}");
        }
    }
}
