//! `import`: other tools' recordings.

use crate::error::{Error, Result};
use crate::{engine, interrupt};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use trace::import::{Backing, Pieces, Settings};

/// Recordings that can be imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// valgrind --tool=lackey --trace-mem=yes
    Lackey,
    /// damo record: json_compressed, json or perf_script
    Damon,
    /// A configuration of masim
    Masim,
    /// perf mem record, then perf script -F comm,pid,tid,time,event,addr,data_src
    Perf,
    /// drrun -t drmemtrace -tool view
    Dynamorio,
    /// libCacheSim's oracleGeneral or lcs
    Libcachesim,
    /// ChampSim's instructions
    Champsim,
    /// A page number a line, or the files of the ARC paper
    Pages,
}

impl Format {
    fn of_traces(self) -> trace::import::Format {
        use trace::import::Format as Of;
        match self {
            Format::Lackey => Of::Lackey,
            Format::Damon => Of::Damon,
            Format::Masim => Of::Masim,
            Format::Perf => Of::Perf,
            Format::Dynamorio => Of::Dynamorio,
            Format::Libcachesim => Of::Libcachesim,
            Format::Champsim => Of::Champsim,
            Format::Pages => Of::Pages,
        }
    }
}

/// What pages are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pages {
    /// Anonymous where something stores, else of a private file mapping
    Program,
    /// Anonymous memory; a page that is read first gets a store before
    Anon,
    /// Of one file that is mapped shared
    File,
}

impl Pages {
    fn backing(self) -> Backing {
        match self {
            Pages::Program => Backing::Program,
            Pages::Anon => Backing::Anonymous,
            Pages::File => Backing::File,
        }
    }
}

fn rates() -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=1_000_000)
}

/// Arguments of `import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The tool that wrote the recording
    #[arg(long, value_enum)]
    format: Format,
    /// The recording; - is standard input
    #[arg(value_name = "FILE")]
    input: PathBuf,
    /// The trace to write; an existing one is replaced only when the import has succeeded
    #[arg(long, short, value_name = "FILE")]
    output: PathBuf,
    /// What the pages are: of lackey, dynamorio and champsim those of a program, of libcachesim those of a file, else
    /// anonymous
    #[arg(long, value_enum)]
    pages: Option<Pages>,
    /// Leave out the times that the recording tells: the program does not sleep between its accesses
    #[arg(long)]
    no_times: bool,
    /// Of a recording of several, the process (perf) or target (damon) to import
    #[arg(long, value_name = "ID")]
    only: Option<u64>,
    /// Accesses that masim makes in a millisecond
    #[arg(long, value_name = "N", default_value_t = Settings::default().rate, value_parser = rates())]
    rate: u64,
    /// Seed of what is drawn (damon, masim)
    #[arg(long, value_name = "N", default_value_t = Settings::default().seed)]
    seed: u64,
}

/// Write a trace of page numbers that a caller has in memory, as `pagefold import --format pages --pages PAGES` does of
/// those of a file. `pieces` passes them on, and is called twice.
pub fn import_accesses(output: &Path, pages: Option<&str>, pieces: &mut Pieces<'_>) -> Result<()> {
    let unknown = |name| Error::Input(format!("'{name}' is none of program, anon and file"));
    let pages = pages.map(|name| Pages::from_str(name, false).map_err(|_| unknown(name))).transpose()?;
    let settings = Settings { backing: pages.map(Pages::backing), ..Settings::default() };
    engine::import_accesses(output, settings, pieces)
}

/// `pagefold import`.
pub(super) fn import(args: &ImportArgs) -> Result<()> {
    interrupt::install()?;
    let settings = Settings {
        seed: args.seed,
        backing: args.pages.map(Pages::backing),
        times: !args.no_times,
        only: args.only,
        rate: args.rate,
        ..Settings::default()
    };
    let format = args.format.of_traces();
    let note = engine::import(format, &args.input, &args.output, settings, &mut || !interrupt::requested())?;
    eprintln!("pagefold: {note}");
    Ok(())
}
