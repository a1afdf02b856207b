//! `linux`: compares the counts of a program with those on Linux. `truth`: does so for many programs.

use super::boot::{LAST_LINES, spinner};
use super::options::{Style, check_seeds};
use super::output;
use super::pc::{PcArgs, default_swap};
use crate::boot::Second;
use crate::document::to_json;
use crate::engine::Program;
use crate::error::{Error, Result};
use crate::linux::compare::{Compared, Job, Tools, Watch, compare};
use crate::linux::judge::{self, Beside};
use crate::linux::truth::{self, CASES, Case, Done, POLICIES};
use crate::profile::{Profile, parse_setting};
use crate::size::Memory;
use crate::{human, interrupt};
use clap::Args;
use indicatif::ProgressBar;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What every boot of Linux takes.
#[derive(Debug, Args)]
pub struct LinuxGuestArgs {
    /// The kernel's image [default: $PAGEFOLD_LINUX, the newest of /boot, or what 'cargo xtask linux' unpacked]
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// The kernel's modules [default: lib/modules/VERSION beside the image's folder]
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
    /// The emulator [default: $PAGEFOLD_QEMU, or qemu-system-x86_64]
    #[arg(long, value_name = "FILE")]
    qemu: Option<PathBuf>,
    /// Kill a guest that has not ended after this time; it has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    timeout: u64,
}

/// Arguments of `truth`.
#[derive(Debug, Args)]
pub struct TruthArgs {
    /// The directory for results, one file each; existing ones are not made again
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Boots of each program under each policy
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Only programs whose names contain WORD
    #[arg(long, value_name = "WORD", default_value = "", hide_default_value = true)]
    only: String,
    /// Also write the document of all results so far; an existing FILE is replaced
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
    /// What to boot, and how.
    #[command(flatten)]
    guest: LinuxGuestArgs,
    /// No progress on standard error
    #[arg(long, short)]
    quiet: bool,
}

/// Arguments of `linux`.
#[derive(Debug, Args)]
pub struct LinuxArgs {
    /// A trace (FILE.pft), or a built-in program ('pagefold list programs'): NAME, NAME:SIZE or NAME:SIZE:THREADS
    #[arg(value_name = "PROGRAM")]
    program: String,
    /// The profile, classic or mglru: NAME or NAME+KNOB=VALUE+... ('pagefold list knobs')
    #[arg(long, default_value = "classic", value_name = "PROFILE")]
    profile: String,
    /// Set a knob on both sides; may be given several times
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    settings: Vec<String>,
    /// The PC.
    #[command(flatten)]
    pc: PcArgs,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Boots, one after the other, with seeds SEED, SEED+1, ...
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Also run the booted machine (its kernel is built on first use): three machines, one program, one table
    #[arg(long)]
    side_by_side: bool,
    /// Run the CPUs in turn, with a nanosecond of time for each instruction, so that other work of this computer counts
    /// for less
    #[arg(long)]
    icount: bool,
    /// More words for the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "", hide_default_value = true)]
    append: String,
    /// Also write the description of the simulated machine to FILE; an existing FILE is replaced
    #[arg(long, value_name = "FILE")]
    twin: Option<PathBuf>,
    /// What to boot, and how.
    #[command(flatten)]
    guest: LinuxGuestArgs,
    /// How to print the result.
    #[command(flatten)]
    style: Style,
    /// No progress on standard error
    #[arg(long, short)]
    quiet: bool,
    /// Report 0 host seconds
    #[arg(long, hide = true)]
    no_host_time: bool,
}

/// `pagefold linux`.
pub(super) fn linux(args: &LinuxArgs) -> Result<()> {
    let job = job(args)?;
    if let Some(path) = &args.twin {
        output::check_beside(path, args.style.json)?;
    }
    let tools = tools(&args.guest, args.side_by_side)?;
    interrupt::install()?;
    let Compared { mut beside, twin } = compare(&tools, &job, &mut Shown::new(args.quiet))?;
    if args.no_host_time {
        beside.host_seconds = 0.0;
    }
    if let Some(path) = &args.twin {
        output::save(path, &twin)?;
    }
    if !args.twin.as_deref().is_some_and(output::is_stdout) {
        output::either(args.style.json, &beside, |width| judge::render(&beside, width))?;
    }
    output::check_same_work(beside.same_work, "machines")
}

fn tools(args: &LinuxGuestArgs, booted: bool) -> Result<Tools> {
    Tools::find(args.kernel.as_deref(), args.modules.as_deref(), args.qemu.as_deref(), booted)
}

/// `pagefold truth`.
pub(super) fn truth(args: &TruthArgs) -> Result<()> {
    std::fs::create_dir_all(&args.dir).map_err(|error| Error::output("make", &args.dir, &error))?;
    if let Some(path) = &args.document {
        output::check_file(path)?;
    }
    let tools = tools(&args.guest, false)?;
    interrupt::install()?;
    let mut watch = Shown::new(args.quiet);
    let mut failed = 0;
    let chosen = || CASES.iter().filter(|case| case.name.contains(&args.only));
    for (case, policy) in chosen().flat_map(|case| POLICIES.map(|policy| (case, policy))) {
        let path = args.dir.join(case.file(policy));
        if path.exists() {
            continue;
        }
        match compare(&tools, &case_job(case, policy, args)?, &mut watch) {
            Ok(done) => output::save(&path, &to_json(&done.beside)?)?,
            Err(error @ Error::Interrupted(_)) => return Err(error),
            // The other comparisons are still useful.
            Err(error) => {
                failed += 1;
                eprintln!("pagefold: {} under {policy}: {error}", case.name);
            }
        }
    }
    if let Some(path) = &args.document {
        let results = CASES.iter().map(|case| kept(case, &args.dir)).collect::<Result<Vec<Done>>>()?;
        let any = |done: &Done| done.by_policy.iter().any(Option::is_some);
        let results: Vec<Done> = results.into_iter().filter(any).collect();
        output::save(path, &truth::document(&human::today(), &results))?;
    }
    let comparisons = human::plural(failed, "comparison", "comparisons");
    if failed == 0 { Ok(()) } else { Err(Error::Failed(format!("{comparisons} failed"))) }
}

fn case_job(case: &Case, policy: &str, args: &TruthArgs) -> Result<Job> {
    let settings = case.set.iter().map(|text| parse_setting(text)).collect::<Result<Vec<_>>>()?;
    let memory: Memory = case.memory.parse().map_err(Error::Input)?;
    let program = Program::find(case.program)?;
    Ok(Job {
        program: case.program.to_owned(),
        cpus: case.cpus,
        second: Second::Missing,
        memory: memory.resolve(program.peak_live()),
        swap: default_swap(program.footprint()),
        seed: 1,
        runs: args.runs,
        profile: Profile::parse(policy, &settings)?,
        icount: false,
        append: String::new(),
        timeout: Duration::from_secs(args.guest.timeout),
        all: false,
    })
}

/// The results of a case that are there.
fn kept(case: &'static Case, dir: &Path) -> Result<Done> {
    let read = |policy: &str| -> Result<Option<Beside>> {
        let path = dir.join(case.file(policy));
        match std::fs::read(&path) {
            Ok(bytes) => {
                let result = serde_json::from_slice(&bytes);
                result.map(Some).map_err(|error| Error::file("read", &path, error))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::file("read", &path, error)),
        }
    };
    Ok(Done { case, by_policy: [read(POLICIES[0])?, read(POLICIES[1])?] })
}

fn job(args: &LinuxArgs) -> Result<Job> {
    let common = args.settings.iter().map(|text| parse_setting(text)).collect::<Result<Vec<_>>>()?;
    check_seeds(args.seed, args.runs)?;
    let program = Program::find(&args.program)?;
    Ok(Job {
        program: args.program.clone(),
        cpus: args.pc.cpus,
        second: args.pc.second(),
        memory: args.pc.memory(program.peak_live()),
        swap: args.pc.swap(program.footprint()),
        seed: args.seed,
        runs: args.runs,
        profile: Profile::parse(&args.profile, &common)?,
        icount: args.icount,
        append: args.append.clone(),
        timeout: Duration::from_secs(args.guest.timeout),
        all: args.style.all,
    })
}

/// Progress on standard error, and the end of the log of a guest that failed.
pub(super) struct Shown {
    quiet: bool,
    bar: ProgressBar,
    lines: Vec<String>,
}

impl Shown {
    pub(super) fn new(quiet: bool) -> Shown {
        Shown { quiet, bar: ProgressBar::hidden(), lines: Vec::new() }
    }
}

impl Watch for Shown {
    fn begins(&mut self, job: &Job, seed: u64) {
        self.bar = spinner("Linux", &job.program, seed, self.quiet);
        self.lines.clear();
    }

    fn line(&mut self, line: &str) {
        self.bar.set_message(line.to_owned());
        self.lines.push(line.to_owned());
    }

    fn ended(&mut self, failed: bool) {
        self.bar.finish_and_clear();
        if failed {
            let skipped = self.lines.len().saturating_sub(LAST_LINES);
            self.lines.iter().skip(skipped).for_each(|line| eprintln!("{line}"));
        }
    }
}
