//! Recording, importing and reading traces.

use crate::error::{Error, Result};
use crate::human;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use trace::import::{Format, ImportError, Pieces, Request, Settings};
use trace::record::{Progress, RecordError, RecordOptions, record_watched};

/// A recording to make.
#[derive(Debug)]
pub struct RecordRequest {
    /// The trace to write.
    pub output: PathBuf,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Whether the trace of a program that failed is kept.
    pub keep: bool,
    /// Pairs of page and mode that the recorder gathers into runs; `None`: the default.
    pub window: Option<u32>,
    /// Instructions before the first access that is recorded.
    pub after: u64,
    /// One in this many pages is recorded.
    pub sample: u64,
    /// The recording ends when its raw output has this many bytes.
    pub max_size: Option<u64>,
    /// The recording ends after this time.
    pub duration: Option<Duration>,
    /// The time for the program to end by itself then.
    pub grace: Duration,
}

/// A finished recording.
#[derive(Debug)]
pub struct Recorded {
    /// A sentence about it.
    pub note: String,
    /// Parts that could not be recorded, a sentence each.
    pub unfollowed: Vec<String>,
}

/// Record a program. `go_on` gets the progress and ends the recording by returning false.
pub fn record(request: RecordRequest, mut go_on: impl FnMut(Progress) -> bool) -> Result<Recorded> {
    let mut options = RecordOptions::new(request.output, request.command);
    options.keep = request.keep;
    options.grace = request.grace;
    options.after = request.after;
    options.sample = request.sample;
    if let Some(window) = request.window {
        options.window = window;
    }
    let begun = Instant::now();
    let in_time = || request.duration.is_none_or(|duration| begun.elapsed() < duration);
    let fits = |progress: Progress| request.max_size.is_none_or(|most| progress.bytes < most);
    let made = record_watched(&options, &mut |progress| go_on(progress) && in_time() && fits(progress))
        .map_err(|error: RecordError| refused(&error))?;
    tell_notes(&made.header, &made.unfollowed);
    if let Some(text) = made.header.sampled() {
        eprintln!("pagefold: note: {text}");
    }
    let note = sentence(&options.output, &made.header, made.file_len);
    Ok(Recorded { note, unfollowed: made.unfollowed })
}

fn sentence(path: &Path, header: &trace::Header, bytes: u64) -> String {
    format!(
        "wrote {} ({}): {} accesses by {} in {} to {}",
        path.display(),
        human::bytes(bytes as f64),
        human::number(header.counts().accesses() as f64, ""),
        human::plural(header.threads.len() as u64, "thread", "threads"),
        human::plural(header.processes.len() as u64, "process", "processes"),
        human::bytes(header.footprint as f64),
    )
}

/// Import another tool's recording; `go_on` ends the import by returning false. Returns a sentence about the result.
pub fn import(
    format: Format,
    input: &Path,
    output: &Path,
    settings: Settings,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<String> {
    let spooled = Spooled::of(input, go_on)?;
    let request = Request { format, input: &spooled.path, output, settings };
    let header = trace::import::import(&request, go_on).map_err(|error| match error {
        ImportError::Interrupted => Error::Interrupted(error.to_string()),
        error => spooled.refused(&error),
    })?;
    tell_notes(&header, &[]);
    let bytes = std::fs::metadata(output).map_err(|error| Error::file("read", output, error))?.len();
    Ok(sentence(output, &header, bytes))
}

/// Write a trace of page numbers that a caller has in memory ([`trace::import::import_accesses`]).
pub fn import_accesses(output: &Path, settings: Settings, pieces: &mut Pieces<'_>) -> Result<()> {
    let request = Request { format: Format::Pages, input: Path::new("pages"), output, settings };
    match trace::import::import_accesses(&request, pieces) {
        Ok(header) => {
            tell_notes(&header, &[]);
            Ok(())
        }
        Err(ImportError::Interrupted) => Err(Error::Interrupted(ImportError::Interrupted.to_string())),
        Err(error) => Err(refused(&error)),
    }
}

/// Print what users of a new trace should know, but for what is told otherwise.
fn tell_notes(header: &trace::Header, but: &[String]) {
    for warning in header.warnings.iter().filter(|warning| !but.contains(warning)) {
        eprintln!("pagefold: note: {warning}");
    }
}

/// A file that is read more than once; standard input is copied.
struct Spooled {
    path: PathBuf,
    /// Keeps the copy of standard input.
    folder: Option<tempfile::TempDir>,
}

impl Spooled {
    /// The file at `path`, of which `-` is standard input.
    fn of(path: &Path, go_on: &mut dyn FnMut() -> bool) -> Result<Spooled> {
        if path != Path::new("-") {
            return Ok(Spooled { path: path.to_owned(), folder: None });
        }
        let refuse = |error: std::io::Error| Error::output("copy", path, &error);
        let folder = tempfile::tempdir().map_err(refuse)?;
        let copy = folder.path().join("stdin");
        let mut file = std::fs::File::create(&copy).map_err(refuse)?;
        std::io::copy(&mut std::io::stdin().lock(), &mut file).map_err(refuse)?;
        // Ctrl-C ends the program in front of a pipe, too, and so its output.
        if !go_on() {
            return Err(Error::Interrupted(ImportError::Interrupted.to_string()));
        }
        Ok(Spooled { path: copy, folder: Some(folder) })
    }

    /// An error, which calls the copy of standard input by the user's name for it.
    fn refused(&self, error: &(dyn std::error::Error + 'static)) -> Error {
        match (refused(error), &self.folder) {
            (Error::Input(why), Some(_)) => Error::Input(why.replace(&self.path.display().to_string(), "-")),
            (error, _) => error,
        }
    }
}

/// Bad input, or a file that there is no room for.
fn refused(error: &(dyn std::error::Error + 'static)) -> Error {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let kind = causes.filter_map(|cause| cause.downcast_ref::<std::io::Error>()).map(|io| io.kind()).next();
    let input = Error::Input(error.to_string());
    match kind {
        Some(kind) => Error::full(kind, input),
        None => input,
    }
}

/// The contents of a trace.
pub fn info(path: &Path) -> Result<trace::Info> {
    let spooled = Spooled::of(path, &mut || true)?;
    let input = |error: trace::TraceError| spooled.refused(&error);
    let mut info = trace::Info::read(&trace::Reader::open(&spooled.path).map_err(input)?).map_err(input)?;
    info.path = path.display().to_string();
    Ok(info)
}
