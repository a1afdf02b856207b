//! `linux`: compares the counts of a program with those on Linux. `truth`: does so for many programs.

use super::boot::{LAST_LINES, spinner};
use super::options::{Style, check_seeds};
use super::output;
use super::pc::{PcArgs, default_swap};
use crate::boot::Second;
use crate::engine::Program;
use crate::error::{Error, Result};
use crate::linux::compare::{Compared, Job, Tools, Watch, compare};
use crate::linux::find;
use crate::linux::judge::{self, Beside};
use crate::linux::truth::causes::Causes;
use crate::linux::truth::{self, CASES, Case, Done, Failed, Kept, POLICIES};
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
    /// Kernels: names like 6.12, which 'cargo xtask linux' unpacked, or images [default: as 'pagefold linux']
    #[arg(long = "kernel", value_name = "NAME|FILE", value_delimiter = ',')]
    kernels: Vec<PathBuf>,
    /// Seeds of each program under each policy
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Boots with each seed, of both sides
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    boots: u32,
    /// Run the third of the programs and settings that is held out, instead of the others
    #[arg(long)]
    held_out: bool,
    /// Make comparisons again that failed
    #[arg(long)]
    retry: bool,
    /// Only programs whose names contain WORD
    #[arg(long, value_name = "WORD", default_value = "", hide_default_value = true)]
    only: String,
    /// Also write the document of all results so far; an existing FILE is replaced
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
    /// Known causes of misses, which the document says beside them: a TOML file of [[cause]] with 'count', 'cause',
    /// 'run' (the command that shows it), 'program' or 'policy' or both, and 'kernel' if it is limited to one
    #[arg(long, value_name = "FILE")]
    causes: Option<PathBuf>,
    /// Also write every count of all results so far as CSV; an existing FILE is replaced
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Run the CPUs in turn, with a nanosecond of time for each instruction
    #[arg(long)]
    icount: bool,
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
    output::check_same_work(beside.same_work, "machines")
}

fn tools(kernel: Option<&Path>, args: &LinuxGuestArgs, booted: bool) -> Result<Tools> {
    Tools::find(kernel, args.modules.as_deref(), args.qemu.as_deref(), booted)
}

/// `pagefold truth`.
pub(super) fn truth(args: &TruthArgs) -> Result<()> {
    [&args.document, &args.csv].into_iter().flatten().try_for_each(|path| output::check_file(path))?;
    let cases = chosen(args)?;
    let causes = args.causes.as_deref().map_or_else(|| Ok(Causes::default()), causes)?;
    let mut kernels: Vec<Option<&Path>> = args.kernels.iter().map(|kernel| Some(kernel.as_path())).collect();
    if kernels.is_empty() {
        kernels.push(None);
    }
    let kernels = kernels.into_iter().map(|kernel| Judge::find(kernel, args)).collect::<Result<Vec<_>>>()?;
    interrupt::install()?;
    let mut watch = Shown::new(args.quiet);
    let mut failed = 0;
    for judge in &kernels {
        failed += judge.compare_all(&cases, args, &mut watch)?;
    }
    let results = kept(&args.dir)?;
    if let Some(path) = &args.document {
        output::save(path, &truth::document::document(&human::today(), &results, &causes))?;
    }
    if let Some(path) = &args.csv {
        output::save(path, &truth::table::csv(&results))?;
    }
    let comparisons = human::plural(failed, "comparison", "comparisons");
    if failed == 0 { Ok(()) } else { Err(Error::Failed(format!("{comparisons} failed"))) }
}

/// The causes in a file.
fn causes(path: &Path) -> Result<Causes> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::file("read", path, error))?;
    Causes::parse(&text).map_err(|error| Error::file("read", path, error.message()))
}

/// A kernel, and the folder of its results.
struct Judge {
    tools: Tools,
    folder: PathBuf,
}

impl Judge {
    fn find(kernel: Option<&Path>, args: &TruthArgs) -> Result<Judge> {
        let tools = tools(kernel, &args.guest, false)?;
        let name = kernel.and_then(Path::to_str).filter(|name| find::is_name(name));
        // Without a version in its file's name, a kernel is known by its path.
        let file = Path::new(tools.version()).file_name().and_then(|file| file.to_str());
        let folder = args.dir.join(name.or(file).unwrap_or("linux"));
        std::fs::create_dir_all(&folder).map_err(|error| Error::output("make", &folder, &error))?;
        Ok(Judge { tools, folder })
    }

    /// Make the comparisons that are missing. Returns how many failed, now or before.
    fn compare_all(&self, cases: &[&Case], args: &TruthArgs, watch: &mut Shown) -> Result<u64> {
        let mut failed = 0;
        for (case, policy) in cases.iter().flat_map(|case| POLICIES.map(|policy| (case, policy))) {
            let path = self.folder.join(case.file(policy));
            match read(&path)? {
                Some(Kept::Compared(beside)) => {
                    let wanted = Way { runs: args.runs, boots: args.boots, icount: args.icount };
                    Way::of(&beside).must_be(wanted, &path)?;
                    continue;
                }
                Some(Kept::Failed(_)) if !args.retry => {
                    failed += 1;
                    continue;
                }
                _ => {}
            }
            let job = case_job(case, &truth::profile(policy, self.tools.version()), args)?;
            let result = self.compare(&job, watch)?;
            if let Kept::Failed(Failed { comparison_failed, .. }) = &result {
                failed += 1;
                eprintln!("pagefold: {} under {policy}: {comparison_failed}", case.name);
            }
            output::save(&path, &result.to_json()?)?;
        }
        Ok(failed)
    }

    /// What becomes of a comparison. The user's own errors end the command; after others, the next comparisons are
    /// still useful.
    fn compare(&self, job: &Job, watch: &mut Shown) -> Result<Kept> {
        if let Some(why) = self.tools.refuses(job) {
            return Ok(Kept::Failed(Failed::new(why)));
        }
        match compare(&self.tools, job, watch) {
            Ok(done) => Ok(Kept::of(done.beside)),
            Err(Error::Failed(why)) => {
                let reason = why.lines().next().unwrap_or_default().to_owned();
                Ok(Kept::Failed(Failed::new(reason)))
            }
            Err(error) => Err(error),
        }
    }
}

/// The comparisons that are asked for.
fn chosen(args: &TruthArgs) -> Result<Vec<&'static Case>> {
    let cases = CASES.iter().filter(|case| case.held_out == args.held_out && case.name.contains(&args.only));
    let cases: Vec<&Case> = cases.collect();
    if cases.is_empty() {
        let (set, other) =
            if args.held_out { ("held out", "without --held-out") } else { ("open", "with --held-out") };
        return Err(Error::Input(format!(
            "no program that is {set} has '{}' in its name; others are run {other}",
            args.only
        )));
    }
    Ok(cases)
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
        boots: args.boots,
        profile: Profile::parse(policy, &settings)?,
        icount: args.icount,
        append: String::new(),
        timeout: Duration::from_secs(args.guest.timeout),
        all: false,
    })
}

/// How a comparison was made. What was made in different ways is not put together: a spread of three boots is wider
/// than that of two.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    runs: u32,
    boots: u32,
    icount: bool,
}

impl Way {
    fn of(beside: &Beside) -> Way {
        Way { runs: beside.setup.runs, boots: beside.boots, icount: beside.conditions.icount }
    }

    /// Refuse a result of `path` that was made in another way than `wanted`.
    fn must_be(self, wanted: Way, path: &Path) -> Result<()> {
        if self == wanted {
            return Ok(());
        }
        let options = |way: Way| {
            let icount = if way.icount { " --icount" } else { "" };
            format!("'--runs {} --boots {}{icount}'", way.runs, way.boots)
        };
        Err(Error::Input(format!(
            "{}: made with {}, and not with {} as the others; take another directory, or remove it",
            path.display(),
            options(self),
            options(wanted)
        )))
    }
}

/// A result, if it is there.
fn read(path: &Path) -> Result<Option<Kept>> {
    match std::fs::read(path) {
        Ok(bytes) => Kept::from_json(&bytes).map(Some).map_err(|error| Error::file("read", path, error)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("read", path, error)),
    }
}

/// All results that are there, kernel by kernel.
fn kept(dir: &Path) -> Result<Vec<Done>> {
    let entries = std::fs::read_dir(dir).map_err(|error| Error::file("read", dir, error))?;
    let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.retain(|folder| folder.is_dir());
    folders.sort();
    let mut results = Vec::new();
    let mut way = None;
    for folder in folders {
        let kernel = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        for case in CASES {
            let mut by_policy = [None, None];
            for (kept, policy) in by_policy.iter_mut().zip(POLICIES) {
                let path = folder.join(case.file(policy));
                *kept = read(&path)?;
                if let Some(beside) = kept.as_ref().and_then(Kept::beside) {
                    let made = Way::of(beside);
                    made.must_be(*way.get_or_insert(made), &path)?;
                }
            }
            if by_policy.iter().any(Option::is_some) {
                results.push(Done { kernel: kernel.clone(), case, by_policy });
            }
        }
    }
    Ok(results)
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
        boots: args.boots,
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
