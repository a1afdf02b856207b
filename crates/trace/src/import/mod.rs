//! Other tools' recordings as traces.
//!
//! A format is a file of this folder with one function `read`, which passes on what a recording tells, step by step
//! (`step`), and says where a recording is damaged. All the rest is done once for all of them: files are opened and
//! unpacked (`input`), a first pass finds out which pages there are (`survey`), and a second writes the trace
//! (`writing`). So an import takes memory for the pages that are touched, not for the length of the recording.
//!
//! docs/imports.md says, format by format, what becomes of what.

mod champsim;
mod damon;
mod dynamorio;
mod error;
mod input;
mod lackey;
mod libcachesim;
mod masim;
mod page_numbers;
mod perf;
mod settings;
mod step;
mod survey;
mod writing;

use std::path::Path;

pub use error::ImportError;
pub use settings::{Backing, Format, Settings};

use crate::event::PAGE_SHIFT;
use crate::header::Header;
use input::Input;
use step::{Sink, Step, USER_HALF};
use survey::Survey;
use writing::Writing;

/// Steps, or pages of long accesses, after which the caller is asked whether to go on.
const PATIENCE: u64 = 1 << 16;

/// What a caller asks for.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The format of the recording.
    pub format: Format,
    /// The recording. It is read twice.
    pub input: &'a Path,
    /// The trace to write. What is there stays until the trace is whole.
    pub output: &'a Path,
    /// The rest.
    pub settings: Settings,
}

/// Import a recording. `go_on` ends the import by returning false; no trace is written then.
pub fn import(request: &Request<'_>, go_on: &mut dyn FnMut() -> bool) -> Result<Header, ImportError> {
    make(request, &mut |sink| pass(request, go_on, sink))
}

/// Accesses to pages by their numbers, one after the other, which a caller has in memory.
#[derive(Clone, Copy, Debug)]
pub struct Accesses<'a> {
    /// The page of each.
    pub pages: &'a [u64],
    /// Which are stores; empty: none.
    pub stores: &'a [bool],
    /// The thread of each, by any numbers; empty: all are of one.
    pub threads: &'a [u64],
}

/// Passes accesses on, in pieces, until all are passed on or what takes them returns false. Returns whether all are.
pub type Pieces<'a> = dyn FnMut(&mut dyn FnMut(Accesses<'_>) -> bool) -> bool + 'a;

/// Import page numbers that a caller has in memory; in the request, `input` is what they are called. `pieces` is called
/// twice. If it returns false by itself, the import ends and no trace is written.
pub fn import_accesses(request: &Request<'_>, pieces: &mut Pieces<'_>) -> Result<Header, ImportError> {
    make(request, &mut |sink| {
        let mut failed = None;
        let mut first = 0;
        let whole = pieces(&mut |accesses| {
            failed = page_numbers::pass_on(request.input, first, accesses, sink).err();
            first += accesses.pages.len() as u64;
            failed.is_none()
        });
        match failed {
            Some(error) => Err(error),
            None if whole => Ok(()),
            None => Err(ImportError::Interrupted),
        }
    })
}

/// Write a trace of what `read` passes on, which is called twice.
fn make(
    request: &Request<'_>,
    read: &mut dyn FnMut(&mut Sink<'_>) -> Result<(), ImportError>,
) -> Result<Header, ImportError> {
    let Request { format, input, output, settings } = *request;
    let path = || input.to_owned();
    let mut survey = Survey::new(settings.most_pages);
    read(&mut |step| match survey.note(step) {
        true => Ok(()),
        false => Err(ImportError::TooLarge { path: path(), most: settings.most_pages }),
    })?;
    if survey.is_empty() {
        return Err(ImportError::Empty { path: path(), remedy: format.remedy() });
    }
    let backing = settings.backing.unwrap_or(format.backing());
    let mut writing = Writing::begin(format, input, output, &survey, backing)?;
    if settings.times {
        writing.set_origin(survey.origin());
    }
    read(&mut |step| Ok(writing.add(step)?))?;
    Ok(writing.finish()?)
}

/// Read the recording once.
fn pass(
    request: &Request<'_>,
    go_on: &mut dyn FnMut() -> bool,
    sink: &mut Sink<'_>,
) -> Result<(), ImportError> {
    let mut done = 0;
    let sink: &mut Sink<'_> = &mut |step| {
        done += cost(step);
        if done >= PATIENCE {
            done = 0;
            if !go_on() {
                return Err(ImportError::Interrupted);
            }
        }
        sink(in_user_half(step))
    };
    let (input, settings) = (Input::open(request.input, request.format)?, &request.settings);
    match request.format {
        Format::Lackey => lackey::read(input, sink),
        Format::Damon => damon::read(input, settings, sink),
        Format::Masim => masim::read(input, settings, sink),
        Format::Perf => perf::read(input, settings, sink),
        Format::Dynamorio => dynamorio::read(input, sink),
        Format::Libcachesim => libcachesim::read(input, sink),
        Format::Champsim => champsim::read(input, sink),
        Format::Pages => page_numbers::read(input, sink),
    }
}

/// How much work a step is.
fn cost(step: Step) -> u64 {
    match step {
        Step::Access { bytes, .. } => 1 + (bytes >> PAGE_SHIFT),
        _ => 1,
    }
}

/// A program can touch only its own half of the address space.
fn in_user_half(step: Step) -> Step {
    match step {
        Step::Access { addr, bytes, .. } if addr.checked_add(bytes).is_none_or(|end| end > USER_HALF) => {
            Step::LeftOut("accesses beyond the program's half of the address space")
        }
        step => step,
    }
}
