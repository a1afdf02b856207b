//! `run` and `compare`: check the input, do the runs, show the result.

use super::drawing::Drawing;
use super::options::{Begins, On, Style, Varies, check_seeds, progress_bar, threads};
use super::output;
use super::page;
use super::resume::{Resumed, Unwritten};
use super::visit::parse_visit;
use crate::cell::Cell;
use crate::columns::Columns;
use crate::document::{Origin, SCHEMA, to_json};
use crate::engine::{FailSpec, Fragmentation, Machine, Program, RunConfig, Senpai, SwapSpec, Visit};
use crate::error::{Error, Result};
use crate::jobs::{Ended, Job, jobs};
use crate::profile::Profile;
use crate::record::RunRecord;
use crate::rundir::{self, Done, End, Key};
use crate::size::Memory;
use crate::summary::{self, Setup, StoppedBy, Summary};
use crate::tree::Tree;
use crate::{caller, human, interrupt, kept, svg as picture, table};
use clap::Args;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Arguments of `run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// The profile: NAME or NAME+KNOB=VALUE+... ('pagefold list profiles', 'list knobs')
    #[arg(long, default_value = "classic", value_name = "PROFILE")]
    profile: String,
    /// Also show where CPU time went, function by function; --json carries the tree too
    #[arg(long)]
    profile_tree: bool,
    /// Also show at which locks CPUs waited for each other, and which cache lines they fetched; --json carries that too
    #[arg(long)]
    locks: bool,
    /// Also show the generations of MGLRU, as Linux's file lru_gen does, at a TIME of the run (like 100ms) or at the
    /// `end`, after COMMANDS like '+ 0 0 3' (docs/mglru.md); may be given several times
    #[arg(long, value_name = "TIME[:COMMANDS]", value_parser = parse_visit)]
    lru_gen: Vec<Visit>,
    /// Show them as lru_gen_full does
    #[arg(long, requires = "lru_gen")]
    lru_gen_full: bool,
    /// Also write where CPU time went as folded stacks, for flame graphs; an existing FILE is replaced
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,
    /// Also draw the run for ui.perfetto.dev: what ran on each CPU, what the memory manager did for each task, flushes,
    /// transfers, and the counters of /proc/vmstat (docs/perfetto.md); an existing FILE is replaced. Of one run only
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    perfetto: Option<PathBuf>,
    /// Also write, of the first run, what a kernel on the machine would show at its end in vmstat, zoneinfo, buddyinfo,
    /// pagetypeinfo and pressure/ of /proc, in Linux's shapes, into DIR, which is created; existing files of these
    /// names are replaced
    #[arg(long, value_name = "DIR")]
    proc: Option<PathBuf>,
    /// Runs with seeds SEED, SEED+1, ...
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Options of both commands.
    #[command(flatten)]
    common: ExperimentArgs,
}

impl RunArgs {
    /// The looks at generations.
    fn visits(&self) -> Vec<Visit> {
        self.lru_gen.iter().map(|visit| Visit { full: self.lru_gen_full, ..visit.clone() }).collect()
    }
}

/// Arguments of `compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// The profile to compare with: NAME or NAME+KNOB=VALUE+... ('pagefold list profiles', 'list knobs')
    #[arg(long, default_value = "classic", value_name = "PROFILE")]
    base: String,
    /// A profile to compare; may be given several times
    #[arg(long = "with", required = true, value_name = "PROFILE")]
    others: Vec<String>,
    /// The most runs of each profile, with seeds SEED, SEED+1, ... From 10 on no more are done once the intervals of
    /// run_time and pgmajfault are narrower than a quarter of the change or 5 % (docs/json.md)
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Begin no more runs after this time, like 90s, 5m or 1h
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    time: Option<Duration>,
    /// Also draw the changes as an SVG picture; an existing FILE is replaced
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Options of both commands.
    #[command(flatten)]
    common: ExperimentArgs,
}

/// Options of experiments whose result can be kept.
#[derive(Debug, Args)]
pub struct ExperimentArgs {
    /// What is run, and how.
    #[command(flatten)]
    what: WhatArgs,
    /// Also count the flushes that any safe policy needs (slower; docs/bound.md); a policy that flushes less fails. Not
    /// with --preempt
    #[arg(long)]
    bound: bool,
    /// Also count the fewest refaults that are possible (slower; docs/optimum.md). Not with --preempt or --fragment
    #[arg(long)]
    optimum: bool,
    /// Also count the fewest pages that compactions must move for the blocks that they make, and how fragmented free
    /// memory is before and after (slower; docs/compaction.md)
    #[arg(long)]
    moves: bool,
    /// Also count the cost of reads of slow memory and of moves between tiers, and the least that is possible (slower;
    /// docs/tiers.md)
    #[arg(long)]
    placement: bool,
    /// What runs begin with.
    #[command(flatten)]
    begins: Begins,
    /// A device of the simulated machine that fails, like nvme0:reads=0.1%,writes=1%,after=2s: shares of its requests,
    /// from a time of the run on; 'all' is every device. May be given several times (docs/machines.md). Not with
    /// --optimum
    #[arg(long = "fail", value_name = "DEVICE:SETTING=VALUE,...", value_parser = str::parse::<FailSpec>)]
    fail: Vec<FailSpec>,
    /// A controller of a control group, like web:interval=6s,pressure=10ms,max_probe=1% (its defaults): each interval
    /// it has up to max_probe of the group's memory reclaimed, the less the longer the group's tasks waited for memory
    /// or devices, and nothing once they waited for longer than the pressure (docs/pressure.md)
    #[arg(long, value_name = "GROUP[:SETTING=VALUE,...]", value_parser = str::parse::<Senpai>)]
    senpai: Option<Senpai>,
    /// Also keep configuration, raw data and result in DIR: a new or empty directory, or that of the same command,
    /// which then continues
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also write the result as one page for a browser, which needs no network: tables, and of the first run of each
    /// profile, done once more for it, memory, faults and flushes over time, accesses by address, and a flame graph
    /// (docs/html.md); an existing FILE is replaced
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// How to print the result.
    #[command(flatten)]
    style: Style,
}

/// What is run, and how.
#[derive(Debug, Args)]
pub struct WhatArgs {
    /// A trace (FILE.pft), or a built-in program ('pagefold list programs'): NAME, NAME:SIZE or
    /// NAME:SIZE:THREADS, like zipf:256M or stream:1G:8; for applications (docs/programs.md) also with keys and writes,
    /// like redis:1G:gaussian:10%
    #[arg(value_name = "PROGRAM")]
    program: String,
    /// Memory of the machine: bytes (K, M, G) or a share of the most that the program has at once, like 50% [default:
    /// all it has]
    #[arg(long, value_name = "BYTES|SHARE%", allow_hyphen_values = true)]
    memory: Option<Memory>,
    /// The machine and its knobs.
    #[command(flatten)]
    on: On,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,
    /// What differs between runs.
    #[command(flatten)]
    varies: Varies,
    /// Runs at once; never changes results [default: the computer's cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    jobs: Option<u32>,
    /// Check that each accessed page is as the last store to it left it: once for consecutive accesses to one page, by
    /// a stamp for the whole page (slower; `checked` and `violations` count this)
    #[arg(long)]
    verify: bool,
    /// Look for races: stop CPUs in the middle of the memory manager's work, at one in N of its steps, so that others
    /// overtake them. Each call and fault of the program pays for 64 stops, so that the run ends. Times are then
    /// meaningless; not with --bound
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    preempt: Option<u32>,
    /// Give up a run after this simulated time, like 500ms, 10s or 1m: the program thrashes, and may never end
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    limit: Option<Duration>,
    /// No progress on standard error
    #[arg(long, short)]
    quiet: bool,
    /// Report 0 host seconds, so that equal runs print equal bytes
    #[arg(long, hide = true)]
    no_host_time: bool,
}

impl WhatArgs {
    /// Whether CPUs are stopped in the middle of their work.
    pub(super) fn preempts(&self) -> bool {
        self.preempt.is_some()
    }
}

/// `pagefold run`.
pub(super) fn run(args: &RunArgs) -> Result<()> {
    carry_out(plan_run(args)?, &also_run(args, &args.visits()), &args.common)
}

/// `pagefold compare`.
pub(super) fn compare(args: &CompareArgs) -> Result<()> {
    carry_out(plan_compare(args)?, &also_compare(args), &args.common)
}

/// Check the input of `run`.
pub(super) fn plan_run(args: &RunArgs) -> Result<Plan> {
    if args.perfetto.is_some() && args.runs > 1 {
        return Err(Error::Input(format!("--perfetto draws one run, not {}: leave --runs out", args.runs)));
    }
    let profiles = std::slice::from_ref(&args.profile);
    plan("run", None, profiles, args.runs, &also_run(args, &args.visits()), &args.common)
}

/// Check the input of `compare`.
pub(super) fn plan_compare(args: &CompareArgs) -> Result<Plan> {
    let profiles: Vec<String> = [&args.base].into_iter().chain(&args.others).cloned().collect();
    plan("compare", Some(args.base.clone()), &profiles, args.runs, &also_compare(args), &args.common)
}

fn also_run<'a>(args: &'a RunArgs, visits: &'a [Visit]) -> Also<'a> {
    Also {
        folded: args.folded.as_deref(),
        perfetto: args.perfetto.as_deref(),
        proc: args.proc.as_deref(),
        profile_tree: args.profile_tree,
        locks: args.locks,
        visits,
        ..Also::default()
    }
}

fn also_compare(args: &CompareArgs) -> Also<'_> {
    Also { svg: args.svg.as_deref(), time: args.time, ..Also::default() }
}

/// A checked experiment: its setup, and a cell for each profile.
pub(super) struct Plan {
    pub(super) setup: Setup,
    pub(super) cells: Vec<Cell>,
}

/// Output besides the table, and the options of `run` alone.
#[derive(Default)]
struct Also<'a> {
    svg: Option<&'a Path>,
    folded: Option<&'a Path>,
    perfetto: Option<&'a Path>,
    proc: Option<&'a Path>,
    profile_tree: bool,
    locks: bool,
    visits: &'a [Visit],
    /// The time after which no more runs begin.
    time: Option<Duration>,
}

/// Check everything that can be checked without running.
fn plan(
    command: &str,
    base: Option<String>,
    profiles: &[String],
    runs: u32,
    also: &Also,
    args: &ExperimentArgs,
) -> Result<Plan> {
    let mut plan = understand(command, base, profiles, runs, &args.what)?;
    plan.set(|config| {
        config.bound = args.bound;
        config.optimum = args.optimum;
        config.moves = args.moves;
        config.placement = args.placement;
        config.profile = also.profile_tree || also.locks || also.folded.is_some();
        config.visits = also.visits.to_vec();
        config.free_memory = also.proc.is_some();
        config.fail.clone_from(&args.fail);
        config.senpai.clone_from(&args.senpai);
    })?;
    plan.cells[0].machine.check_failures(&plan.cells[0].config)?;
    plan.setup.fail = args.fail.iter().map(FailSpec::to_string).collect();
    plan.setup.senpai = args.senpai.as_ref().map(Senpai::to_string);
    plan.begin(&args.begins)?;
    Ok(plan)
}

fn carry_out(mut plan: Plan, also: &Also, args: &ExperimentArgs) -> Result<()> {
    let config = rundir::config(&plan.setup, &plan.options())?;
    let out = args.out.as_deref();
    out.map_or(Ok(()), |path| kept::check(path, rundir::plan(&config)).map(drop))?;
    let html = args.html.as_deref();
    let files = || [also.svg, also.folded, html].into_iter().flatten();
    output::check_all_beside(files(), args.style.json)?;
    also.perfetto.map_or(Ok(()), output::check_binary)?;
    also.proc.map_or(Ok(()), output::check_directory)?;
    // The input is good. The directory is locked before time is spent on runs.
    let runs = Resumed::open(out.map(|path| (path, rundir::plan(&config))), Unwritten::GoOn)?;
    interrupt::install()?;
    let setup = plan.setup.clone();
    let cells = html.map(|_| plan.cells.clone());
    let drawing = also.perfetto.map(|path| plan.draw(path)).transpose()?;
    let measured = measure(plan, &runs, &args.what, also.time);
    // What was drawn of a run that failed shows why.
    let drawn = drawing.map_or(Ok(()), Drawing::end);
    let Measurement { records, ended, host_seconds, failed, out_of_time } = measured?;
    let end = End { failed: failed.why(), out_of_time };
    // The result is shown even if a run could not be written.
    let kept = runs.written().and_then(|()| out.map_or(Ok(()), |path| rundir::save_end(path, &end)));
    if ended == Ended::Interrupted {
        return Err(interrupted(&setup, &records, out.filter(|_| kept.is_ok())));
    }
    caller::tell_runs(|| Columns::of_runs(&records));
    let setup = setup.without(&end.failed);
    let summary = Summary::of(setup, &records, host_seconds, args.style.all);
    let mut summary = summary.out_of_time(end.out_of_time);
    let folded = summary.profile_tree.as_ref().map(Tree::folded);
    if !also.profile_tree {
        summary.profile_tree = None;
    }
    if !also.locks {
        (summary.locks, summary.lines) = (None, None);
    }
    let svg = also.svg.filter(|_| summary.setup.compares()).map(|path| (path, picture::render(&summary)));
    let pictures: Vec<_> = also.folded.zip(folded).into_iter().chain(svg).collect();
    let save = |on_stdout: bool| {
        let mut pictures = pictures.iter().filter(|(path, _)| output::is_stdout(path) == on_stdout);
        pictures.try_for_each(|(path, text)| output::save(path, text))
    };
    // The result is shown before anything else can fail.
    match files().any(output::is_stdout) {
        true => save(true)?,
        false => output::either(args.style.json, &summary, |width| table::render(&summary, width))?,
    }
    kept?;
    let text = human::rendered(human::WIDTH, |width| table::render(&summary, width));
    let json = to_json(&summary)?;
    out.map_or(Ok(()), |path| rundir::save_summary(path, &text, &json))?;
    save(false)?;
    also.proc.map_or(Ok(()), |dir| output::save_all(dir, &records[0].proc_files))?;
    drawn?;
    if let Some((path, cells)) = html.zip(cells) {
        page::write(path, &summary, cells, (args.what.jobs, args.what.quiet))?;
    }
    output::check_same_work(summary.same_work, "profiles")?;
    failed.first()
}

/// Check what several commands share.
pub(super) fn understand(
    command: &str,
    base: Option<String>,
    profiles: &[String],
    runs: u32,
    args: &WhatArgs,
) -> Result<Plan> {
    let profiles = Profile::parse_all(profiles, &args.on.settings)?;
    check_seeds(args.seed, runs)?;
    let machine = Arc::new(Machine::find(&args.on.machine)?);
    let program = Arc::new(Program::find(&args.program)?);
    let (footprint, peak_live) = (program.footprint(), program.peak_live());
    let memory = args.memory.map(|memory| memory.resolve(peak_live));
    if let Some(bytes) = memory {
        machine.check_memory(bytes)?;
    }
    let setup = Setup {
        origin: Origin::here(SCHEMA),
        command: command.to_owned(),
        machine: args.on.machine.clone(),
        program: args.program.clone(),
        memory,
        senpai: None,
        fragment: None,
        vary: args.varies.text(),
        group: Vec::new(),
        swap: Vec::new(),
        fail: Vec::new(),
        with_machine: None,
        with_memory: None,
        with_swap: Vec::new(),
        phases: None,
        footprint,
        peak_live,
        seed: args.seed,
        runs,
        base,
        profiles: profiles.iter().map(|profile| profile.name.clone()).collect(),
        knobs: profiles.iter().map(|profile| (profile.name.clone(), profile.settings())).collect(),
        failed: BTreeMap::new(),
    };
    let cell = |profile| {
        let program = (&args.program[..], program.clone());
        let mut cell = Cell::new(program, (&args.on.machine, machine.clone()), profile);
        cell.config = RunConfig {
            memory,
            verify: args.verify,
            preempt: args.preempt,
            vary: args.varies.vary(),
            time_limit: args.limit.map(simulated),
            ..cell.config
        };
        cell
    };
    Ok(Plan { setup, cells: profiles.into_iter().map(cell).collect() })
}

impl Plan {
    /// Change the configuration of all cells. Refuse options that exclude each other.
    pub(super) fn set(&mut self, set: impl Fn(&mut RunConfig)) -> Result<()> {
        self.cells.iter_mut().for_each(|cell| set(&mut cell.config));
        let RunConfig { bound, optimum, preempt, .. } = self.cells[0].config;
        if preempt.is_some() && bound {
            return Err(Error::input(
                "--preempt and --bound exclude each other: what a stopped CPU is about to flush may come due before",
            ));
        }
        if preempt.is_some() && optimum {
            return Err(Error::input(
                "--preempt and --optimum exclude each other: a stopped CPU may use a page that was evicted in between",
            ));
        }
        Ok(())
    }

    /// Draw the only run.
    fn draw(&mut self, path: &Path) -> Result<Drawing> {
        let cell = &mut self.cells[0];
        let program = program_name(&cell.program_name);
        let drawing = Drawing::begin(path, program, &cell.machine)?;
        cell.config.timeline = Some(drawing.timeline());
        Ok(drawing)
    }

    /// What determines the runs besides the setup.
    fn options(&self) -> String {
        let RunConfig { verify, bound, optimum, moves, placement, profile, .. } = self.cells[0].config;
        let RunConfig { preempt, visits, free_memory, .. } = &self.cells[0].config;
        format!(
            "{verify} {bound} {optimum} {moves} {placement} {profile} {preempt:?} {visits:?} {free_memory}"
        )
    }

    /// Begin all runs with this state of memory, and these swap areas and control groups.
    pub(super) fn begin(&mut self, begins: &Begins) -> Result<()> {
        let peak_live = self.setup.peak_live;
        let groups: Vec<_> = begins.groups.iter().map(|group| group.resolve(peak_live)).collect();
        self.set(|config| {
            config.fragment.clone_from(&begins.fragment);
            config.swap.clone_from(&begins.swap);
            config.groups.clone_from(&groups);
        })?;
        for cell in &self.cells {
            cell.machine.check_swap(&cell.config)?;
            cell.machine.check_groups(&groups)?;
        }
        self.setup.fragment = begins.fragment.as_ref().map(Fragmentation::to_string);
        self.setup.swap = begins.swap.iter().map(SwapSpec::to_string).collect();
        self.setup.group = begins.groups.iter().map(|group| group.text.clone()).collect();
        Ok(())
    }
}

/// What a program is called among its threads: a trace's name, or what a built-in one is called.
fn program_name(text: &str) -> &str {
    let file = Path::new(text).file_stem().and_then(|name| name.to_str()).unwrap_or(text);
    file.split(':').next().unwrap_or(file)
}

/// The finished runs of an experiment.
pub(super) struct Measurement {
    /// Their records.
    pub records: Vec<RunRecord>,
    /// Whether these are all runs.
    pub ended: Ended,
    /// Seconds on this computer.
    pub host_seconds: f64,
    /// Why profiles that could not run failed, if others could.
    pub failed: Failed,
    /// Whether the time was up.
    pub out_of_time: bool,
}

/// Profiles that failed while others ran, and the error of each.
pub(super) struct Failed(Vec<(String, Error)>);

impl Failed {
    /// The messages by profile.
    pub(super) fn why(&self) -> BTreeMap<String, String> {
        self.0.iter().map(|(profile, error)| (profile.clone(), error.to_string())).collect()
    }

    /// The error of the first, once the result of the others is shown.
    pub(super) fn first(self) -> Result<()> {
        self.0.into_iter().next().map_or(Ok(()), |(profile, error)| Err(error.of(&profile).failed()))
    }
}

/// The sides of a comparison that have failed: the seed and the error of each.
#[derive(Default)]
struct Sides(Mutex<BTreeMap<usize, (u64, Error)>>);

impl Sides {
    fn has_failed(&self, cell: usize) -> bool {
        self.lock().contains_key(&cell)
    }

    /// Remember the failure, of several of a side that of the first seed.
    fn fail(&self, job: Job, error: Error) -> Result<()> {
        if matches!(error, Error::Interrupted(_) | Error::BrokenPipe) {
            return Err(error);
        }
        let mut failed = self.lock();
        if failed.get(&job.cell).is_none_or(|(seed, _)| job.seed < *seed) {
            failed.insert(job.cell, (job.seed, error));
        }
        Ok(())
    }

    /// The failures by profile. If all have failed, the error is that of the first.
    fn failed(&self, profiles: &[String]) -> Result<Failed> {
        let failed = std::mem::take(&mut *self.lock());
        let all = failed.len() == profiles.len();
        let named = |(cell, (_, error)): (usize, (u64, Error))| (profiles[cell].clone(), error);
        let mut failed: Vec<_> = failed.into_iter().map(named).collect();
        match all {
            true if profiles.len() == 1 => Err(failed.remove(0).1),
            true => Err(failed.remove(0)).map_err(|(profile, error)| error.of(&profile)),
            false => Ok(Failed(failed)),
        }
    }

    /// Whether the intervals of the sides that have not failed are narrow enough. If nothing is left to compare, all
    /// runs are done, as 'run' does.
    fn all_others_precise(&self, setup: &Setup, records: &[RunRecord]) -> bool {
        let failed = self.lock();
        let failed = failed.iter().map(|(&cell, (_, why))| (setup.profiles[cell].clone(), why.to_string()));
        let setup = setup.clone().without(&failed.collect());
        Summary::of(setup, records, 0.0, false).stopped_by == Some(StoppedBy::Interval)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, (u64, Error)>> {
        self.0.lock().expect("no thread panics while it holds the lock")
    }
}

/// Do all runs of a plan, and keep them in a directory; without one an interrupt loses them. `prepare` is done once the
/// directory is open.
pub(super) fn measure_all(
    mut plan: Plan,
    args: &WhatArgs,
    out: Option<&Path>,
    prepare: impl FnOnce(&mut Plan) -> Result<()>,
) -> Result<(Setup, Measurement)> {
    let config = rundir::config(&plan.setup, &plan.options())?;
    let runs = Resumed::open(out.map(|path| (path, rundir::plan(&config))), Unwritten::End)?;
    interrupt::install()?;
    prepare(&mut plan)?;
    let setup = plan.setup.clone();
    let measured = measure(plan, &runs, args, None)?;
    match measured.ended {
        Ended::Interrupted => Err(interrupted(&setup, &measured.records, out)),
        Ended::Complete => Ok((setup, measured)),
    }
}

/// Do the runs that are not done; of a comparison only until its intervals are narrow enough, or until `time` is up.
fn measure(
    plan: Plan,
    runs: &Resumed<Key, Done>,
    args: &WhatArgs,
    time: Option<Duration>,
) -> Result<Measurement> {
    let Plan { setup, cells } = plan;
    let (spent, start) = (host_seconds(&runs.done()), Instant::now());
    // A time that no clock can show is never up.
    let end = time.and_then(|time| start.checked_add(time));
    let (first, no_host_time) = (setup.seed, args.no_host_time);
    let (sides, names) = (Arc::new(Sides::default()), setup.profiles.clone());
    let (seen, cells) = (sides.clone(), Arc::new(cells));
    let key = move |job: Job| Key { profile: names[job.cell].clone(), seed: job.seed };
    let run = move |job: Job| {
        // Without a run of each profile there is no result at all.
        let late = job.seed > first && end.is_some_and(|end| Instant::now() >= end);
        if late || seen.has_failed(job.cell) {
            return Ok(None);
        }
        match cells[job.cell].run(job.seed) {
            Ok(record) => {
                let host_seconds = if no_host_time { 0.0 } else { spent + start.elapsed().as_secs_f64() };
                Ok(Some(Done { host_seconds, record }))
            }
            // The other sides are measured all the same.
            Err(error) => seen.fail(job, error).map(|()| None),
        }
    };
    let bar = progress_bar(0, args.quiet);
    let mut looks = summary::looks(&setup).peekable();
    loop {
        let wanted = looks.next().expect("the last look ends the loop");
        let all = jobs(setup.profiles.len(), first, wanted);
        bar.set_length(all.len() as u64);
        let ended = runs.resume(&all, key.clone(), run.clone(), threads(args.jobs), (&bar, 0));
        let (ended, mut done) = (ended.inspect_err(|_| bar.finish_and_clear())?, runs.done());
        let host_seconds = host_seconds(&done);
        let mine = all.iter().filter_map(|&job| done.remove(&key(job)));
        let records: Vec<RunRecord> = mine.map(|done| done.record).collect();
        let out_of_time = end.is_some_and(|end| Instant::now() >= end);
        let last = looks.peek().is_none() || out_of_time || ended == Ended::Interrupted;
        if last || sides.all_others_precise(&setup, &records) {
            bar.finish_and_clear();
            let failed = sides.failed(&setup.profiles)?;
            return Ok(Measurement { records, ended, host_seconds, failed, out_of_time });
        }
    }
}

/// A time of the simulated machine in nanoseconds; one that its clock cannot tell never comes.
pub(super) fn simulated(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Parse a time like 500ms, 90s, 5m, 1h or, in seconds, 90.
pub(super) fn parse_time(text: &str) -> Result<Duration, String> {
    let (number, unit) = text.split_at(text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len());
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => 0.0,
    };
    let time = number.parse().ok().map(|number: f64| number * seconds).filter(|&time| time > 0.0);
    let time = time.and_then(|time| Duration::try_from_secs_f64(time).ok());
    time.ok_or_else(|| format!("'{text}' is not a time; write 500ms, 90s, 5m or 1h"))
}

/// Seconds until the last of these runs ended.
fn host_seconds(done: &BTreeMap<Key, Done>) -> f64 {
    done.values().map(|done| done.host_seconds).fold(0.0, f64::max)
}

fn interrupted(setup: &Setup, records: &[RunRecord], dir: Option<&Path>) -> Error {
    let all = setup.runs as usize * setup.profiles.len();
    let done = format!("interrupted after {} of {all} runs", records.len());
    Error::Interrupted(match dir {
        _ if records.is_empty() => "interrupted before the first run ended; nothing is kept".to_owned(),
        Some(dir) => format!(
            "{done}; they are kept in {dir}: the same command continues, 'pagefold report {dir}' shows them",
            dir = dir.display()
        ),
        None => format!("{done}; nothing is kept without --out DIR"),
    })
}
