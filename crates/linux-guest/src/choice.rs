//! The program of a run: a built-in one by its name, or the recorded one that came with the guest.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use program::named::{NameParts, NameError};
use program::{Named, Os, Program, Role, Signal};
use trace::event::ThreadId;
use trace::{Replay, Unpacked};

/// A program.
pub enum Choice {
    /// One that all machines have.
    Named(Named),
    /// A recorded one.
    Trace(Box<Replay<Unpacked<'static>>>),
}

impl Choice {
    /// The program of a name; `trace` is the one of this image. Fails with a reason for people.
    pub fn find(text: &str, image: Option<&'static [u8]>) -> Result<Choice, String> {
        if let Some(image) = image {
            let trace = Unpacked::new(image).map_err(|_| "what came with the guest is no trace")?;
            return Ok(Choice::Trace(Box::new(Replay::new(trace, text.into()))));
        }
        let number = |word: &str| word.parse().map_err(|_| format!("'{word}' is no number of bytes"));
        let found = NameParts::parse(text, number).and_then(Named::new).map(Choice::Named);
        found.map_err(|wrong| match wrong {
            NameError::Unknown(name) => format!("no program is called '{name}'"),
            NameError::Other(why) => why,
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
            Choice::Trace(program) => program.name(),
        }
    }

    fn footprint(&self) -> u64 {
        match self {
            Choice::Named(program) => program.footprint(),
            Choice::Trace(program) => program.footprint(),
        }
    }

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        match self {
            Choice::Named(program) => program.run(os, role),
            Choice::Trace(program) => program.run(os, role),
        }
    }
}
