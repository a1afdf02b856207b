//! `truth`: compares the counts of many programs with those on Linux.

use super::linux::{LinuxGuestArgs, Shown, tools};
use super::options::{progress_bar, threads};
use super::output;
use super::pc::{more_than_disk, swap_on_disk};
use crate::boot::Second;
use crate::document::to_json;
use crate::engine::{Program, SwapSpec};
use crate::error::{Error, Result};
use crate::linux::boots::Boots;
use crate::linux::compare::{self, Compared, Tools};
use crate::linux::find;
use crate::linux::job::Job;
use crate::linux::judge::Beside;
use crate::linux::truth::causes::Causes;
use crate::linux::truth::{self, CASES, Case, Done, Failed, Kept, POLICIES};
use crate::profile::{Profile, parse_setting};
use crate::size::Memory;
use crate::{human, interrupt, jobs};
use clap::Args;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// Simulate again beside the boots that DIR has; nothing is booted, and no kernel is needed
    #[arg(long, conflicts_with_all = ["kernels", "retry", "runs", "boots", "icount"])]
    again: bool,
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
    /// Also draw which policy wins with which program, on Linux and here; an existing FILE is replaced
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
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

/// `pagefold truth`.
pub(super) fn truth(args: &TruthArgs) -> Result<()> {
    [&args.document, &args.csv, &args.svg]
        .into_iter()
        .flatten()
        .try_for_each(|path| output::check_file(path))?;
    let cases = chosen(args)?;
    let causes = args.causes.as_deref().map_or_else(|| Ok(Causes::default()), causes)?;
    interrupt::install()?;
    let failed = if args.again { again(&cases, args)? } else { boot_all(&cases, args)? };
    let results = kept(&args.dir)?;
    if let Some(path) = &args.document {
        output::save(path, &truth::document::document(&human::today(), &results, &causes))?;
    }
    if let Some(path) = &args.csv {
        output::save(path, &truth::table::csv(&results))?;
    }
    if let Some(path) = &args.svg {
        output::save(path, &truth::picture::picture(&results))?;
    }
    let comparisons = human::plural(failed, "comparison", "comparisons");
    if failed == 0 { Ok(()) } else { Err(Error::Failed(format!("{comparisons} failed"))) }
}

/// Make the comparisons that are missing. Returns how many failed, now or before.
fn boot_all(cases: &[&'static Case], args: &TruthArgs) -> Result<u64> {
    let mut kernels: Vec<Option<&Path>> = args.kernels.iter().map(|kernel| Some(kernel.as_path())).collect();
    if kernels.is_empty() {
        kernels.push(None);
    }
    let kernels = kernels.into_iter().map(|kernel| Judge::find(kernel, args)).collect::<Result<Vec<_>>>()?;
    let mut watch = Shown::new(args.quiet);
    let mut failed = 0;
    for judge in &kernels {
        failed += judge.compare_all(cases, args, &mut watch)?;
    }
    Ok(failed)
}

/// Boots to simulate beside, and where they are.
struct Again {
    job: Job,
    boots: Boots,
    folder: PathBuf,
    case: &'static Case,
    policy: &'static str,
}

/// Make the results of boots again that there are. Returns how many failed.
fn again(cases: &[&'static Case], args: &TruthArgs) -> Result<u64> {
    let mut all = Vec::new();
    for folder in folders(&args.dir)? {
        for (case, policy) in cases.iter().flat_map(|&case| POLICIES.map(|policy| (case, policy))) {
            let Some(boots) = read_boots(&folder.join(case.boots_file(policy)))? else { continue };
            let way = Way { runs: boots.seeds(), boots: boots.boots, icount: boots.icount };
            let job = case_job(case, &truth::profile(policy, &boots.kernel), way, Duration::MAX)?;
            all.push(Again { job, boots, folder: folder.clone(), case, policy });
        }
    }
    if all.is_empty() {
        return Err(Error::Input(format!("{}: there are no boots of these programs", args.dir.display())));
    }
    let (cells, bar) = (all.len(), progress_bar(all.len(), args.quiet));
    let run = move |job: jobs::Job| {
        let Again { job, boots, folder, case, policy } = &all[job.cell];
        let result = beside(job, boots, &folder.join(case.boots_file(policy)))?;
        output::save(&folder.join(case.file(policy)), &result.to_json()?)?;
        Ok(u64::from(result.beside().is_none()))
    };
    let (failed, ended) =
        jobs::run(jobs::jobs(cells, 0, 1), threads(None), run, interrupt::requested, |done| {
            bar.set_position(done.len() as u64);
            Ok(())
        })?;
    bar.finish_and_clear();
    match ended {
        jobs::Ended::Complete => Ok(failed.into_iter().sum()),
        jobs::Ended::Interrupted => {
            Err(Error::Interrupted("interrupted; the results so far are kept".into()))
        }
    }
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
        let able = cases.iter().filter(|case| !case.needs_zswap() || self.tools.has_zswap());
        for (case, policy) in able.flat_map(|case| POLICIES.map(|policy| (case, policy))) {
            let path = self.folder.join(case.file(policy));
            let way = Way { runs: args.runs, boots: args.boots, icount: args.icount };
            match read(&path)? {
                Some(Kept::Compared(beside)) => {
                    Way::of(&beside).must_be(way, &path)?;
                    continue;
                }
                Some(Kept::Failed(_)) if !args.retry => {
                    failed += 1;
                    continue;
                }
                _ => {}
            }
            let profile = truth::profile(policy, self.tools.version());
            let job = case_job(case, &profile, way, Duration::from_secs(args.guest.timeout))?;
            let result = self.compare(&job, &self.folder.join(case.boots_file(policy)), args.retry, watch)?;
            if let Kept::Failed(Failed { comparison_failed, .. }) = &result {
                failed += 1;
                eprintln!("pagefold: {} under {policy}: {comparison_failed}", case.name);
            }
            output::save(&path, &result.to_json()?)?;
        }
        Ok(failed)
    }

    /// What becomes of a comparison. Its boots are kept in the file `path`; those that are there are not made again,
    /// unless they are to be.
    fn compare(&self, job: &Job, path: &Path, retry: bool, watch: &mut Shown) -> Result<Kept> {
        if let Some(why) = self.tools.refuses(job) {
            return Ok(Kept::Failed(Failed::new(why)));
        }
        if let Some(boots) = read_boots(path)?.filter(|_| !retry) {
            return beside(job, &boots, path);
        }
        compare::check(job)?;
        // That a guest has too little memory is what became of the program there.
        kept_of(compare::boots(&self.tools, job, watch).map_err(Error::failed).and_then(|boots| {
            output::save(path, &to_json(&boots)?)?;
            compare::beside(job, &boots)
        }))
    }
}

/// What becomes of a comparison with the boots of `path`.
fn beside(job: &Job, boots: &Boots, path: &Path) -> Result<Kept> {
    kept_of(compare::beside(job, boots)).map_err(|error| match error {
        Error::Input(why) => Error::Input(format!("{}: {why}", path.display())),
        other => other,
    })
}

/// What is kept of a comparison. The user's own errors end the command; after others, the next comparisons are still
/// useful.
fn kept_of(result: Result<Compared>) -> Result<Kept> {
    match result {
        Ok(done) => Ok(Kept::of(done.beside)),
        Err(Error::Failed(why)) => {
            Ok(Kept::Failed(Failed::new(why.lines().next().unwrap_or_default().to_owned())))
        }
        Err(error) => Err(error),
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

fn case_job(case: &Case, policy: &str, way: Way, timeout: Duration) -> Result<Job> {
    let settings = case.set.iter().map(|text| parse_setting(text)).collect::<Result<Vec<_>>>()?;
    let memory: Memory = case.memory.parse().map_err(Error::Input)?;
    let program = Program::find(case.program)?;
    let areas = case.swap.iter().map(|area| area.parse::<SwapSpec>()).collect::<Result<Vec<_>, _>>();
    let areas = areas.map_err(Error::Input)?;
    let memory = memory.resolve(program.peak_live());
    Ok(Job {
        program: case.program.to_owned(),
        cpus: case.cpus,
        second: Second::Missing,
        memory,
        swap: swap_on_disk(&areas, program.footprint(), memory),
        areas: more_than_disk(&areas, memory),
        seed: 1,
        runs: way.runs,
        boots: way.boots,
        profile: Profile::parse(policy, &settings)?,
        icount: way.icount,
        original: None,
        append: String::new(),
        timeout,
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

/// What `parse` makes of a file, if it is there.
fn read_if_there<T>(path: &Path, parse: fn(&[u8]) -> serde_json::Result<T>) -> Result<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => parse(&bytes).map(Some).map_err(|error| Error::file("read", path, error)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("read", path, error)),
    }
}

/// A result, if it is there.
fn read(path: &Path) -> Result<Option<Kept>> {
    read_if_there(path, Kept::from_json)
}

/// Boots, if they are there.
fn read_boots(path: &Path) -> Result<Option<Boots>> {
    read_if_there(path, |bytes| serde_json::from_slice(bytes))
}

/// The folders of kernels.
fn folders(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(dir).map_err(|error| Error::file("read", dir, error))?;
    let mut folders: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    folders.retain(|folder| folder.is_dir());
    folders.sort();
    Ok(folders)
}

/// All results that are there, kernel by kernel.
fn kept(dir: &Path) -> Result<Vec<Done>> {
    let mut results = Vec::new();
    let mut way = None;
    for folder in folders(dir)? {
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
