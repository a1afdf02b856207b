//! `tune`: searches the values of knobs that suit a program, and judges them with seeds that the search did not see.

use super::experiment::{parse_time, simulated};
use super::options::{Begins, Many, On, check_seeds, progress_bar, threads};
use super::output;
use super::resume::{Resumed, Unwritten};
use super::sweep::check_metrics;
use crate::engine::{Fragmentation, SwapSpec};
use crate::error::{Error, Result};
use crate::jobs::{Ended, Job, jobs};
use crate::profile::Profile;
use crate::size::Memory;
use crate::sweep::swap::outcome;
use crate::sweep::tune::{
    Around, Conditions, Found, Half, Judgement, Outcome, Search, Setting, Space, Tried, Tuning,
};
use crate::sweep::{Catalog, Done, Key, What};
use crate::{interrupt, kept};
use clap::Args;
use indicatif::ProgressBar;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A run is given up after this many times the base's longest.
const PATIENCE: u64 = 4;

/// Arguments of `tune`.
#[derive(Debug, Args)]
pub struct TuneArgs {
    /// A trace (FILE.pft) or a built-in program, as 'pagefold run' takes it
    #[arg(value_name = "PROGRAM")]
    program: String,
    /// Memory of the machine: bytes (K, M, G) or a share of the most that the program has at once, like 50% [default:
    /// all it has]
    #[arg(long, value_name = "BYTES|SHARE%", allow_hyphen_values = true)]
    memory: Option<Memory>,
    /// The profile to begin with, and to compare with
    #[arg(long, value_name = "PROFILE", default_value = "classic")]
    base: String,
    /// A knob to search, with its values: a range like vm.swappiness=0..200 (up to 21 values; doublings if its ends are
    /// 32 times apart or more), a list like thp.defrag=never,defer, or a limit of a group like
    /// web:memory.high=25%..100%. May be given several times [default: nine knobs of Linux (docs/tune.md)]
    #[arg(long = "knob", value_name = "KNOB=VALUES")]
    knobs: Vec<String>,
    /// The most runs of the search; those of the verdict come on top
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    budget: u32,
    /// Seeds: the search has the first half, and the verdict the others
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(4..=10_000))]
    runs: u32,
    /// What to make better: a metric or a counter ('pagefold list metrics', 'list counters')
    #[arg(long, value_name = "METRIC", default_value = "run_time")]
    metric: String,
    /// Give up a run after this simulated time, like 500ms, 10s or 1m [default: four times the base's longest run]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    limit: Option<Duration>,
    /// The machine and its knobs.
    #[command(flatten)]
    on: On,
    /// What runs begin with.
    #[command(flatten)]
    begins: Begins,
    /// Also keep runs and result in DIR: a new or empty directory, or that of the same command, which then continues
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    #[command(flatten)]
    many: Many,
}

/// `pagefold tune`.
pub(super) fn tune(args: &TuneArgs) -> Result<()> {
    check_seeds(args.many.seed, args.runs)?;
    let mut catalog = Catalog::default();
    let (space, memory) = space(args, &mut catalog)?;
    let (seen, unseen) = halves(args);
    let trials = (args.budget / seen.1).saturating_sub(1);
    if trials == 0 {
        return Err(Error::Input(format!(
            "--budget {}: the base and one setting need {} runs, {} for each seed of the search",
            args.budget,
            2 * seen.1,
            seen.1
        )));
    }
    let text = plan(args);
    let plan = kept::Plan { noun: "tuning", name: "tune.toml", text: &text };
    let runs = Resumed::open(args.out.as_deref().map(|path| (path, plan)), Unwritten::End)?;
    interrupt::install()?;
    let start = Instant::now();
    let half = |seeds| Half { space: &space, metric: &args.metric, seeds };
    let bar = progress_bar((trials as usize + 1) * seen.1 as usize, args.many.running.quiet);
    let mut runner = Runner { args, catalog, runs, limit: args.limit.map(simulated), bar, before: 0 };
    let found = find(&mut runner, (half(seen), half(unseen)), trials);
    runner.bar.finish_and_clear();
    let found = found?;
    let (interrupted, count) = (found.interrupted, runner.runs.done().len());
    let last = |(first, count): (u64, u32)| [first, first + u64::from(count) - 1];
    let conditions = Conditions {
        metric: args.metric.clone(),
        memory,
        search_seeds: last(seen),
        unseen_seeds: last(unseen),
        budget: args.budget,
        host_seconds: args.many.host_seconds(start),
    };
    let tuning = Tuning::of(found, conditions);
    if let Some(path) = &args.out {
        kept::save(path, &tuning)?;
    }
    if !interrupted || !tuning.tried.is_empty() {
        output::show(&tuning, args.many.running.json)?;
    }
    if interrupted { Err(interrupted_after(args, count)) } else { Ok(()) }
}

/// What is searched, and the memory that it has.
fn space(args: &TuneArgs, catalog: &mut Catalog) -> Result<(Space, Option<u64>)> {
    let profiles = Profile::parse_all(std::slice::from_ref(&args.base), &args.on.settings)?;
    let machine = catalog.machine(&args.on.machine)?;
    let peak_live = catalog.program(&args.program)?.peak_live();
    let memory = args.memory.map(|memory| memory.resolve(peak_live));
    memory.map_or(Ok(()), |bytes| machine.check_memory(bytes))?;
    let groups: Vec<_> = args.begins.groups.iter().map(|group| group.resolve(peak_live)).collect();
    let around = Around {
        profile: &profiles[0],
        groups: &groups,
        memory: memory.unwrap_or_else(|| machine.memory()),
        peak_live,
    };
    let axes = if args.knobs.is_empty() { around.usual() } else { around.axes(&args.knobs) }?;
    let of = What {
        program: args.program.clone(),
        machine: args.on.machine.clone(),
        memory: memory.map(|bytes| bytes.to_string()),
        profile: args.base.clone(),
        set: args.on.settings.clone(),
        swap: args.begins.swap.iter().map(SwapSpec::to_string).collect(),
        fragment: args.begins.fragment.as_ref().map(Fragmentation::to_string),
        ..What::default()
    };
    let space = Space { axes, of, groups };
    // What is wrong with the base is said before the first run.
    let seeds = (args.many.seed, args.runs);
    catalog.cells(&space.sweep(&[], seeds, &args.metric)).map_err(|(_, error)| error)?;
    Ok((space, memory))
}

/// The seeds of the search, and the others: the first and how many.
fn halves(args: &TuneArgs) -> ((u64, u32), (u64, u32)) {
    let seen = args.runs / 2;
    ((args.many.seed, seen), (args.many.seed + u64::from(seen), args.runs - seen))
}

/// Search, then judge the best.
fn find<'a>(runner: &mut Runner, (seen, unseen): (Half<'a>, Half<'a>), trials: u32) -> Result<Found<'a>> {
    let space = seen.space;
    let mut found = Found { space, tried: Vec::new(), judgement: None, interrupted: false };
    found.interrupted = search(runner, seen, trials, &mut found.tried)? == Ended::Interrupted;
    let gain = |tried: &Tried| tried.worth.and_then(|worth| worth.pct).filter(|&gain| gain > 0.0);
    let best = found.tried.iter().filter_map(|tried| Some((gain(tried)?, tried)));
    // The first of equals: it was found sooner.
    let best = best.reduce(|best, next| if next.0 > best.0 { next } else { best });
    let Some(best) = best.map(|(_, tried)| tried.setting.clone()) else { return Ok(found) };
    loop {
        let judgement = Judgement::of(unseen, best.clone(), &runner.runs.done());
        if found.interrupted || judgement.wanted.is_empty() {
            found.judgement = Some(judgement);
            return Ok(found);
        }
        found.interrupted = runner.run(unseen, &judgement.wanted)? == Ended::Interrupted;
        if let Some(why) = unseen.fails(&runner.runs.done()) {
            return Err(base_fails(&space.of.profile, &why));
        }
    }
}

/// Try settings until the budget is spent.
fn search(runner: &mut Runner, half: Half, trials: u32, tried: &mut Vec<Tried>) -> Result<Ended> {
    let space = half.space;
    if runner.run(half, &[])? == Ended::Interrupted {
        return Ok(Ended::Interrupted);
    }
    runner.learn_base(half)?;
    let mut search = Search::new(space, runner.args.many.seed);
    search.tell(&space.base(), 0.0);
    let mut best: f64 = 0.0;
    loop {
        let next = search.ask(trials as usize - tried.len());
        if next.is_empty() {
            return Ok(Ended::Complete);
        }
        let ended = runner.run(half, &next)?;
        let done = runner.runs.done();
        for setting in next {
            let outcome = half.worth(&space.base(), &setting, &done);
            let worth = outcome.worth();
            let gain = worth.and_then(|worth| worth.pct);
            let failed = match outcome {
                // It was interrupted.
                Outcome::Open => continue,
                Outcome::Missing(why) => Some(why),
                Outcome::Worth(_) => None,
            };
            search.tell(&setting, gain.map_or(f64::INFINITY, |gain| -gain));
            best = best.max(gain.unwrap_or_default());
            let What { profile, group, .. } = space.what(&setting);
            tried.push(Tried { profile, group, worth, failed, setting });
        }
        if ended == Ended::Interrupted {
            return Ok(ended);
        }
        runner.bar.set_message(format!(", best so far {best:+.1} %"));
    }
}

/// What does runs.
struct Runner<'a> {
    args: &'a TuneArgs,
    catalog: Catalog,
    runs: Resumed<Key, Done>,
    /// Simulated nanoseconds after which a run is given up.
    limit: Option<u64>,
    bar: ProgressBar,
    /// Runs of other settings that the bar counts.
    before: usize,
}

impl Runner<'_> {
    /// Do the runs of the base and of some settings that are not done.
    fn run(&mut self, half: Half, settings: &[Setting]) -> Result<Ended> {
        let sweep = half.sweep(settings);
        let mut cells = self.catalog.cells(&sweep).map_err(|(_, error)| error)?;
        cells.iter_mut().for_each(|cell| cell.config.time_limit = self.limit);
        // The base, which comes first, sets the limit of the others.
        cells[0].config.time_limit = self.args.limit.map(simulated);
        let done = self.runs.done();
        let whats = sweep.whats.clone();
        let key = move |job: Job| Key { what: whats[job.cell].clone(), seed: job.seed };
        let (first, count) = half.seeds;
        let left: Vec<Job> = jobs(cells.len(), first, count)
            .into_iter()
            .filter(|&job| !done.contains_key(&key(job)))
            .collect();
        let metrics = sweep.metrics;
        let run = move |job: Job| {
            let done = outcome(cells[job.cell].run(job.seed))?;
            check_metrics(&metrics, &done).map(|()| Some(done))
        };
        let after = self.before + left.len();
        self.bar.set_length(self.bar.length().unwrap_or_default().max(after as u64));
        let jobs = threads(self.args.many.running.jobs);
        let ended = self.runs.resume(&left, key, run, jobs, (&self.bar, self.before));
        self.before = after;
        ended
    }

    /// How long the base takes, and that its metric can be made better.
    fn learn_base(&mut self, half: Half) -> Result<()> {
        let done = self.runs.done();
        let base = &half.space.of.profile;
        if let Some(why) = half.fails(&done) {
            return Err(base_fails(base, &why));
        }
        let metric = half.metric;
        let worth = half.worth(&half.space.base(), &half.space.base(), &done).worth();
        if worth.is_none_or(|worth| worth.pct.is_none()) {
            return Err(Error::Input(format!(
                "--metric {metric}: neither more nor less of it is better; 'pagefold list metrics' names others"
            )));
        }
        self.limit = self.limit.or_else(|| Some(half.longest(&done).saturating_mul(PATIENCE)));
        Ok(())
    }
}

fn base_fails(base: &str, why: &str) -> Error {
    Error::Input(format!(
        "{base}: with some seeds the program does not come to its end: {why}; give it more memory or time"
    ))
}

fn interrupted_after(args: &TuneArgs, done: usize) -> Error {
    let kept = match &args.out {
        Some(path) => format!("are kept in {}, and the same command continues", path.display()),
        None => "are done; nothing is kept without --out".to_owned(),
    };
    Error::Interrupted(format!("interrupted; {done} runs {kept}"))
}

/// What the runs of a directory were begun for.
fn plan(args: &TuneArgs) -> String {
    let list = |values: &[String]| format!("{values:?}");
    let text = |value: Option<String>| format!("{:?}", value.unwrap_or_default());
    [
        ("program", format!("{:?}", args.program)),
        ("memory", text(args.memory.map(|memory| format!("{memory:?}")))),
        ("base", format!("{:?}", args.base)),
        ("knobs", list(&args.knobs)),
        ("budget", args.budget.to_string()),
        ("runs", args.runs.to_string()),
        ("seed", args.many.seed.to_string()),
        ("metric", format!("{:?}", args.metric)),
        ("limit", args.limit.map_or(0.0, |limit| limit.as_secs_f64()).to_string()),
        ("machine", format!("{:?}", args.on.machine)),
        ("set", list(&args.on.settings)),
        ("fragment", text(args.begins.fragment.as_ref().map(Fragmentation::to_string))),
        ("group", list(&args.begins.groups.iter().map(|group| group.text.clone()).collect::<Vec<_>>())),
        ("swap", list(&args.begins.swap.iter().map(SwapSpec::to_string).collect::<Vec<_>>())),
    ]
    .map(|(key, value)| format!("{key} = {value}\n"))
    .concat()
}
