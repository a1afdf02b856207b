//! `linux`: a program on Linux, and our counts beside Linux's.

use super::args::LinuxArgs;
use super::boot::{DEFAULT_MEMORY, LAST_LINES, LEAST_SWAP, spinner};
use super::output;
use crate::engine::Program;
use crate::error::{Error, Result};
use crate::interrupt;
use crate::linux::compare::{Compared, Job, Tools, Watch, compare};
use crate::linux::judge;
use crate::profile::{Profile, parse_setting};
use indicatif::ProgressBar;
use std::time::Duration;

/// `pagefold linux`.
pub(super) fn linux(args: &LinuxArgs) -> Result<()> {
    let job = job(args)?;
    if let Some(path) = &args.twin {
        output::check_file(path)?;
    }
    let tools = Tools::find(args.kernel.as_deref(), args.modules.as_deref(), args.qemu.as_deref())?;
    interrupt::install()?;
    let Compared { mut beside, twin } = compare(&tools, &job, &mut Shown::new(args.quiet))?;
    if args.no_host_time {
        beside.host_seconds = 0.0;
    }
    if let Some(path) = &args.twin {
        output::save(path, &twin)?;
    }
    output::print(&if args.style.json { output::json(&beside)? } else { judge::render(&beside) })?;
    match beside.same_work {
        true => Ok(()),
        false => {
            Err(Error::Failed("the machines did not do the same work, so they cannot be compared".into()))
        }
    }
}

fn job(args: &LinuxArgs) -> Result<Job> {
    let common = args.settings.iter().map(|text| parse_setting(text)).collect::<Result<Vec<_>>>()?;
    if args.seed.checked_add(u64::from(args.runs)).is_none() {
        return Err(Error::Input(format!("--seed {} leaves no room for {} seeds", args.seed, args.runs)));
    }
    let footprint = Program::find(&args.program)?.footprint();
    let swap = args.swap.unwrap_or_else(|| footprint.saturating_mul(2).max(LEAST_SWAP));
    Ok(Job {
        program: args.program.clone(),
        cpus: args.cpus,
        memory: args.memory.map_or(DEFAULT_MEMORY, |memory| memory.resolve(footprint)),
        swap: swap.next_multiple_of(1 << 20),
        seed: args.seed,
        runs: args.runs,
        profile: Profile::parse(&args.profile, &common)?,
        append: args.append.clone(),
        timeout: Duration::from_secs(args.timeout),
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
