//! `need`: finds how much memory a program needs.

use super::options::{Many, On, check_seeds};
use super::output;
use super::resume::{Resumed, Unwritten};
use super::sweep::measure;
use crate::cell::Cell;
use crate::engine::GroupSpec;
use crate::error::{Error, Result};
use crate::jobs::{Ended, Job, jobs};
use crate::profile::Profile;
use crate::size::Memory;
use crate::sweep::need::{Measured, Question, outcome};
use crate::sweep::{Catalog, Done, Key, Sweep, What};
use crate::{interrupt, kept};
use clap::Args;
use std::path::PathBuf;
use std::time::Instant;

/// Arguments of `need`.
#[derive(Debug, Args)]
pub struct NeedArgs {
    /// A trace or a built-in program, as 'pagefold run' takes it
    #[arg(value_name = "PROGRAM")]
    program: String,
    /// How much slower the program may be, in per cent; commas separate several
    #[arg(long, value_name = "PERCENT", value_delimiter = ',', default_values_t = [1.0, 5.0, 10.0], value_parser = parse_percent)]
    slower: Vec<f64>,
    /// Runs for each size, with seeds SEED, SEED+1, ...
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// The control group that the program runs in; systemd's unit is the last part of its path
    #[arg(long, value_name = "NAME", default_value = "container")]
    group: String,
    /// Memory of the machine: bytes (K, M, G) or a share of the most that the program has at once [default: all it has]
    #[arg(long, value_name = "BYTES|SHARE%")]
    memory: Option<Memory>,
    /// The profile
    #[arg(long, value_name = "PROFILE", default_value = "classic")]
    profile: String,
    /// Settings of the controller whose result is shown beside (docs/pressure.md) [default: an interval of a 400th of
    /// the run, a target of a 600th of the interval, max_probe=1%]
    #[arg(long, value_name = "SETTING=VALUE,...", default_value = "", hide_default_value = true)]
    senpai: String,
    /// The machine and its knobs.
    #[command(flatten)]
    on: On,
    /// Also keep runs and result in DIR: a new or empty directory, or that of the same command, which then continues
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    many: Many,
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse().ok();
    let percent = percent.filter(|&percent: &f64| percent > 0.0 && percent <= 1000.0);
    percent.ok_or_else(|| format!("'{text}' is not a slow-down; write per cent like 5"))
}

/// Runs that are done, and how the others are done.
struct Runs<'a> {
    args: &'a NeedArgs,
    catalog: Catalog,
    done: Resumed<Key, Done>,
}

/// `pagefold need`.
pub(super) fn need(args: &NeedArgs) -> Result<()> {
    let mut catalog = Catalog::default();
    let question = question(args, &mut catalog)?;
    let text = plan(args);
    let plan = kept::Plan { noun: "search for the memory of a program", name: "need.toml", text: &text };
    let done = Resumed::open(args.out.as_deref().map(|path| (path, plan)), Unwritten::End)?;
    let mut runs = Runs { args, catalog, done };
    interrupt::install()?;
    let start = Instant::now();
    if runs.all(&question.sweep(&[None], None), None)? == Ended::Interrupted {
        return Err(runs.interrupted());
    }
    let base = question.base(&runs.done.done())?;
    let controller = question.controller(&base)?;
    let mut measured = Measured::default();
    let mut ended = runs.all(&question.sweep(&[], Some(&controller)), None)?;
    while ended == Ended::Complete {
        let sizes = measured.next(&question.percents);
        if sizes.is_empty() {
            break;
        }
        ended = runs.all(&question.sweep(&base.highs(&sizes), None), Some(question.time_limit(&base)))?;
        if ended == Ended::Complete {
            question.learn(&mut measured, &base, &sizes, &runs.done.done());
        }
    }
    let done = runs.done.done();
    let need = question.answer(&base, &measured, (&controller, &done), args.many.host_seconds(start));
    if let Some(path) = &args.out {
        kept::save(path, &need)?;
    }
    output::show(&need, args.many.running.json)?;
    if ended == Ended::Interrupted { Err(runs.interrupted()) } else { Ok(()) }
}

/// Check everything that can be checked without running.
fn question(args: &NeedArgs, catalog: &mut Catalog) -> Result<Question> {
    check_seeds(args.many.seed, args.runs)?;
    Profile::parse(&args.profile, &[])?;
    let program = catalog.program(&args.program)?;
    let machine = catalog.machine(&args.on.machine)?;
    let memory = args.memory.map(|memory| memory.resolve(program.peak_live()));
    memory.map_or(Ok(()), |bytes| machine.check_memory(bytes))?;
    let group = GroupSpec { name: args.group.clone(), ..GroupSpec::default() };
    machine.check_groups(&[group])?;
    let of = What {
        program: args.program.clone(),
        machine: args.on.machine.clone(),
        memory: memory.map(|bytes| bytes.to_string()),
        profile: args.profile.clone(),
        set: args.on.settings.clone(),
        ..What::default()
    };
    let question = Question {
        of,
        group: args.group.clone(),
        percents: args.slower.clone(),
        seeds: (args.many.seed, args.runs),
        senpai: args.senpai.clone(),
    };
    question.check()?;
    catalog.cells(&question.sweep(&[None], None)).map_err(|(_, error)| error)?;
    Ok(question)
}

impl Runs<'_> {
    /// Do those runs of a sweep that are not done, each for at most `limit` simulated nanoseconds.
    fn all(&mut self, sweep: &Sweep, limit: Option<u64>) -> Result<Ended> {
        let mut cells: Vec<Cell> = self.catalog.cells(sweep).map_err(|(_, error)| error)?;
        cells.iter_mut().for_each(|cell| cell.config.time_limit = limit);
        let all = jobs(cells.len(), self.args.many.seed, self.args.runs);
        let one = move |job: Job| outcome(cells[job.cell].run(job.seed));
        measure(sweep, &self.done, &all, one, &self.args.many.running)
    }

    fn interrupted(&self) -> Error {
        let done = self.done.done().len();
        let kept = match &self.args.out {
            Some(path) => format!("are kept in {}, and the same command continues", path.display()),
            None => "are done; nothing is kept without --out".to_owned(),
        };
        Error::Interrupted(format!("interrupted; {done} runs {kept}"))
    }
}

/// What the runs of a directory were begun for.
fn plan(args: &NeedArgs) -> String {
    [
        ("program", format!("{:?}", args.program)),
        ("slower", format!("{:?}", args.slower)),
        ("runs", args.runs.to_string()),
        ("seed", args.many.seed.to_string()),
        ("group", format!("{:?}", args.group)),
        ("memory", format!("{:?}", args.memory.map_or_else(String::new, |memory| memory.to_string()))),
        ("profile", format!("{:?}", args.profile)),
        ("senpai", format!("{:?}", args.senpai)),
        ("machine", format!("{:?}", args.on.machine)),
        ("set", format!("{:?}", args.on.settings)),
    ]
    .map(|(key, value)| format!("{key} = {value}\n"))
    .concat()
}
