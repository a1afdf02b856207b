//! The program of a run, chosen by its name: a built-in program, a scenario of this machine, or a trace.

use super::scenarios::{self, Scenario};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use program::named::{NameError, NameParts};
use program::{Named, Os, Program, Role, Signal};
use trace::event::ThreadId;
use trace::{Replay, Unpacked};

/// A program that the machine can run.
pub enum Choice {
    /// A built-in program.
    Named(Named),
    /// A deliberate race.
    Scenario(Scenario),
    /// A recorded program.
    Trace(Box<Replay<Unpacked<'static>>>),
}

impl Choice {
    /// The program with a name as on the command line: `NAME`, `NAME:BYTES`, `NAME:BYTES:THREADS`,
    /// `scenario:NAME`, or `trace` for the program in the image `trace`. Fails with a message for people.
    pub fn find(text: &str, trace: Option<&'static [u8]>) -> Result<Choice, String> {
        if text == "trace" {
            let image = trace.ok_or("program: no trace came with the kernel (QEMU's -initrd)")?;
            let trace = Unpacked::new(image)
                .map_err(|_| "program: the file that came with the kernel is not a trace")?;
            return Ok(Choice::Trace(Box::new(Replay::new(trace, text.into()))));
        }
        if let Some(name) = text.strip_prefix("scenario:") {
            return scenarios::find(name).map(Choice::Scenario);
        }
        let number =
            |word: &str| word.parse().map_err(|_| format!("{text}: '{word}' is not a number of bytes"));
        let found = NameParts::parse(text, number).and_then(Named::new);
        found.map(Choice::Named).map_err(|error| match error {
            NameError::Unknown(name) => {
                format!("program: no program is called '{name}'; `pagefold list programs` names them")
            }
            NameError::Other(why) => format!("program: {why}"),
        })
    }

    /// Whether the out-of-memory killer may kill it without the run having failed.
    pub fn may_be_oom_killed(&self) -> bool {
        matches!(self, Choice::Named(program) if program.may_be_oom_killed())
    }

    /// A note for readers of the run's numbers, after the task has ended.
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
    fn invalid_names_are_rejected_with_a_reason() {
        for (text, reason) in [
            ("zippf", "no program is called"),
            ("zipf:1M", "not a number of bytes"),
            ("pageout-loop:1000000:2", "chooses its number"),
            ("scenario:none", "no scenario"),
            ("trace", "no trace came"),
        ] {
            let message = Choice::find(text, None).err().unwrap_or_default();
            assert!(message.contains(reason), "{text}: {message}");
        }
    }
}
