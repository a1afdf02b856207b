//! The program of a run: a built-in program with a name, or the recorded one in the guest's image.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use program::named::{NameError, NameParts};
use program::{FileSpec, Named, Os, Program, Role, Signal};
use trace::event::ThreadId;
use trace::{Replay, Unpacked};

/// A program.
pub enum Choice {
    /// A built-in program.
    Named(Named),
    /// A recorded program.
    Trace(Box<Replay<Unpacked<'static>>>),
}

impl Choice {
    /// The program with a name; `image` is the recorded one, if there is one. Fails with a message for
    /// people.
    pub fn find(text: &str, image: Option<&'static [u8]>) -> Result<Choice, String> {
        if let Some(image) = image {
            let trace =
                Unpacked::new(image).map_err(|_| "the file that came with the guest is not a trace")?;
            return Ok(Choice::Trace(Box::new(Replay::new(trace, text.into()))));
        }
        let number = |word: &str| word.parse().map_err(|_| format!("'{word}' is not a number of bytes"));
        let found = NameParts::parse(text, number).and_then(Named::new).map(Choice::Named);
        found.map_err(|wrong| match wrong {
            NameError::Unknown(name) => format!("no program is called '{name}'"),
            NameError::Other(why) => why,
        })
    }

    /// Whether the out-of-memory killer may kill it without the run having failed.
    pub fn may_be_oom_killed(&self) -> bool {
        matches!(self, Choice::Named(program) if program.may_be_oom_killed())
    }

    /// Files that are there before the program begins. A built-in program's come into being at their first use.
    pub fn files(&self) -> impl Iterator<Item = FileSpec<'_>> {
        let replay = match self {
            Choice::Named(_) => None,
            Choice::Trace(replay) => Some(replay),
        };
        replay.into_iter().flat_map(|replay| replay.files())
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
