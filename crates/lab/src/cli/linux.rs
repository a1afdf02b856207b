//! `linux`: a program on Linux, and our counts beside Linux's. `truth`: many of them.

use super::args::{LinuxArgs, LinuxGuestArgs, TruthArgs};
use super::boot::{DEFAULT_MEMORY, LAST_LINES, LEAST_SWAP, spinner};
use super::many::check_seeds;
use super::output;
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
use indicatif::ProgressBar;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// `pagefold linux`.
pub(super) fn linux(args: &LinuxArgs) -> Result<()> {
    let job = job(args)?;
    if let Some(path) = &args.twin {
        output::check_file(path)?;
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
    output::print(&if args.style.json { to_json(&beside)? } else { judge::render(&beside) })?;
    match beside.same_work {
        true => Ok(()),
        false => {
            Err(Error::Failed("the machines did not do the same work, so they cannot be compared".into()))
        }
    }
}

fn tools(args: &LinuxGuestArgs, booted: bool) -> Result<Tools> {
    Tools::find(args.kernel.as_deref(), args.modules.as_deref(), args.qemu.as_deref(), booted)
}

/// `pagefold truth`.
pub(super) fn truth(args: &TruthArgs) -> Result<()> {
    std::fs::create_dir_all(&args.dir).map_err(|error| Error::file("make", &args.dir, error))?;
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
            // The others can be had all the same.
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
    match failed {
        0 => Ok(()),
        failed => {
            Err(Error::Failed(format!("{} failed", human::plural(failed, "comparison", "comparisons"))))
        }
    }
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

/// Swap space of those who name none.
fn default_swap(footprint: u64) -> u64 {
    footprint.saturating_mul(2).max(LEAST_SWAP).next_multiple_of(1 << 20)
}

/// What was kept of a case.
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
    let swap =
        args.swap.map_or_else(|| default_swap(program.footprint()), |swap| swap.next_multiple_of(1 << 20));
    Ok(Job {
        program: args.program.clone(),
        cpus: args.cpus,
        second: args.nodes.second(),
        memory: args.memory.map_or(DEFAULT_MEMORY, |memory| memory.resolve(program.peak_live())),
        swap,
        seed: args.seed,
        runs: args.runs,
        profile: Profile::parse(&args.profile, &common)?,
        icount: args.icount,
        append: args.append.clone(),
        timeout: Duration::from_secs(args.guest.timeout),
        all: args.style.all,
    })
}

/// Progress on standard error, and the end of a log that ended badly.
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
