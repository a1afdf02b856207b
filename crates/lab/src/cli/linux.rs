//! `linux`: compares the counts of a program with those on Linux.

use super::boot::{LAST_LINES, spinner};
use super::options::{Style, check_seeds};
use super::output;
use super::pc::{DEFAULT_MEMORY, PcArgs};
use crate::engine::Program;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::linux::bench::LinuxBench;
use crate::linux::compare::{Compared, Tools, Watch, compare, instructions};
use crate::linux::guest::NO_PROGRAM;
use crate::linux::job::Job;
use crate::linux::judge;
use crate::linux::original::Original;
use crate::profile::{Profile, parse_setting};
use clap::Args;
use indicatif::ProgressBar;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What every boot of Linux takes.
#[derive(Debug, Args)]
pub struct LinuxGuestArgs {
    /// The kernel's modules [default: lib/modules/VERSION beside the image's folder]
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
    /// The emulator [default: $PAGEFOLD_QEMU, or qemu-system-x86_64]
    #[arg(long, value_name = "FILE")]
    qemu: Option<PathBuf>,
    /// Kill a guest that has not ended after this time; it has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub(super) timeout: u64,
}

/// Arguments of `linux`.
#[derive(Debug, Args)]
pub struct LinuxArgs {
    /// A trace (FILE.pft), or a built-in program ('pagefold list programs'): NAME, NAME:SIZE or NAME:SIZE:THREADS
    #[arg(value_name = "PROGRAM", required_unless_present = "bench", conflicts_with = "bench")]
    program: Option<String>,
    /// Count instructions of known work (faults, munmap, reclaim, compaction) instead; with --side-by-side also on the
    /// booted machine
    #[arg(long, conflicts_with_all = ["settings", "twin", "runs", "boots", "icount"])]
    bench: bool,
    /// The profile, classic or mglru: NAME or NAME+KNOB=VALUE+... ('pagefold list knobs')
    #[arg(long, default_value = "classic", value_name = "PROFILE")]
    profile: String,
    /// Set a knob on both sides; may be given several times
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    settings: Vec<String>,
    /// The PC.
    #[command(flatten)]
    pc: PcArgs,
    /// The kernel: its image, or a name like 6.12 that 'cargo xtask linux' unpacked [default: $PAGEFOLD_LINUX, the
    /// newest of /boot, or one that was unpacked]
    #[arg(long, value_name = "NAME|FILE")]
    kernel: Option<PathBuf>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Seeds, SEED, SEED+1, ...: the program's random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Boots with each seed, of both sides, one after the other: how much chance is in a count
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    boots: u32,
    /// Also run the booted machine (its kernel is built on first use): three machines, one program, one table
    #[arg(long)]
    side_by_side: bool,
    /// Run the CPUs in turn, with a nanosecond of time for each instruction, so that other work of this computer counts
    /// for less
    #[arg(long)]
    icount: bool,
    /// Run this program itself on Linux, instead of the recording of it that PROGRAM is; all that follows are its
    /// arguments. The guest has its libraries and those of its arguments that are files
    #[arg(long, value_names = ["FILE", "ARGS"], num_args = 1.., allow_hyphen_values = true, conflicts_with = "bench")]
    exe: Vec<String>,
    /// A file or folder that the guest has besides, for --exe; programs come with their libraries. May be given several
    /// times
    #[arg(long = "with", value_name = "PATH", requires = "exe")]
    with: Vec<PathBuf>,
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
    if args.bench {
        return bench(args);
    }
    let job = job(args)?;
    if let Some(path) = &args.twin {
        output::check_beside(path, args.style.json)?;
    }
    if args.side_by_side && !job.areas.is_empty() {
        return Err(Error::input(
            "--side-by-side: the booted machine has one area on a disk; write its size alone",
        ));
    }
    let tools = tools(args.kernel.as_deref(), &args.guest, args.side_by_side)?;
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
    output::check_same_work(beside.same_work != Some(false), "machines")
}

/// The kernel's own figures, on one CPU: as few as the operations need. Debian's kernels also clear the pages of files,
/// which is no part of the work that is counted.
fn bench(args: &LinuxArgs) -> Result<()> {
    let tools = tools(args.kernel.as_deref(), &args.guest, args.side_by_side)?;
    interrupt::install()?;
    let job = Job {
        program: NO_PROGRAM.to_owned(),
        cpus: 1,
        memory: DEFAULT_MEMORY,
        swap: 0,
        runs: 1,
        boots: 1,
        icount: true,
        append: format!("init_on_alloc=0 {}", args.append).trim_end().to_owned(),
        ..job(args)?
    };
    let (linux, booted) = instructions(&tools, &job, &mut Shown::new(args.quiet))?;
    output::show(&LinuxBench::of(tools.version(), &linux, booted.as_ref()), args.style.json)
}

pub(super) fn tools(kernel: Option<&Path>, args: &LinuxGuestArgs, booted: bool) -> Result<Tools> {
    Tools::find(kernel, args.modules.as_deref(), args.qemu.as_deref(), booted)
}

fn job(args: &LinuxArgs) -> Result<Job> {
    let common = args.settings.iter().map(|text| parse_setting(text)).collect::<Result<Vec<_>>>()?;
    check_seeds(args.seed, args.runs)?;
    let name = args.program.as_deref().unwrap_or(NO_PROGRAM);
    let program = Program::find(name)?;
    let original = original(args, &program)?;
    let memory = args.pc.memory(program.peak_live());
    Ok(Job {
        program: name.to_owned(),
        cpus: args.pc.cpus,
        second: args.pc.second(),
        memory,
        swap: args.pc.swap(program.footprint(), memory),
        areas: args.pc.areas(memory),
        seed: args.seed,
        runs: args.runs,
        boots: args.boots,
        profile: Profile::parse(&args.profile, &common)?,
        icount: args.icount,
        original,
        append: args.append.clone(),
        timeout: Duration::from_secs(args.guest.timeout),
        all: args.style.all,
    })
}

/// What Linux is to run instead of the recording.
fn original(args: &LinuxArgs, program: &Program) -> Result<Option<Original>> {
    match program {
        _ if args.exe.is_empty() => Ok(None),
        Program::Named(_) => {
            Err(Error::input("--exe is compared with a recording of the program: PROGRAM must be a FILE.pft"))
        }
        Program::Trace(_) => Original::find(&args.exe, &args.with).map(Some),
    }
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
