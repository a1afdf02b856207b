//! `run` and `compare`: understand the input, do the runs, print the result.

use super::args::{CompareArgs, ExperimentArgs, RunArgs, WhatArgs};
use super::groups::GroupArg;
use super::many::{check_seeds, threads};
use super::output;
use super::resume::{Resumed, Unwritten};
use crate::engine::{self, Fragmentation, GroupSpec, Machine, Program, Visit};
use crate::error::{Error, Result};
use crate::experiment::{Ended, Job, jobs};
use crate::profile::{Profile, parse_setting};
use crate::record::RunRecord;
use crate::replay::RunLine;
use crate::rundir::{self, Done, Key};
use crate::summary::{SCHEMA, Setup, Summary};
use crate::tree::Tree;
use crate::{interrupt, kept, svg as picture, table};
use indicatif::{ProgressBar, ProgressStyle};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// `pagefold run`.
pub(super) fn run(args: RunArgs) -> Result<()> {
    let also = Also {
        svg: None,
        folded: args.folded.as_deref(),
        profile_tree: args.profile_tree,
        visits: &args.visits(),
    };
    carry_out("run", None, &[args.profile], args.runs, &also, &args.common)
}

/// `pagefold compare`.
pub(super) fn compare(args: CompareArgs) -> Result<()> {
    let mut profiles = vec![args.base.clone()];
    profiles.extend(args.others);
    let also = Also { svg: args.svg.as_deref(), ..Also::default() };
    carry_out("compare", Some(args.base), &profiles, args.runs, &also, &args.common)
}

/// All that an experiment needs, understood and checked.
pub(super) struct Plan {
    pub(super) setup: Setup,
    machine: Machine,
    program: Program,
    profiles: Vec<Profile>,
    verify: bool,
    also: Counted,
    profile_tree: bool,
    visits: Vec<Visit>,
    fragment: Option<Fragmentation>,
    groups: Vec<GroupSpec>,
}

/// What is counted beside, and what is done to the run for it.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    bound: bool,
    optimum: bool,
    moves: bool,
    placement: bool,
    preempt: Option<u32>,
}

/// What is wanted besides the table.
#[derive(Default)]
struct Also<'a> {
    svg: Option<&'a Path>,
    folded: Option<&'a Path>,
    profile_tree: bool,
    visits: &'a [Visit],
}

fn carry_out(
    command: &str,
    base: Option<String>,
    profiles: &[String],
    runs: u32,
    also: &Also,
    args: &ExperimentArgs,
) -> Result<()> {
    let mut plan = understand(command, base, profiles, runs, &args.what)?;
    plan.count_bound(args.bound)?;
    plan.count_optimum(args.optimum)?;
    plan.also.moves = args.moves;
    plan.also.placement = args.placement;
    plan.fragment(args.fragment.as_ref());
    plan.group(&args.groups)?;
    plan.profile_tree = also.profile_tree || also.folded.is_some();
    plan.visits = also.visits.to_vec();
    let config = rundir::config(&plan.setup, &plan.besides())?;
    let out = args.out.as_deref();
    out.map_or(Ok(()), |path| kept::check(path, rundir::plan(&config)).map(drop))?;
    [also.svg, also.folded].into_iter().flatten().try_for_each(output::check_file)?;
    // From here on the input is good; the directory is taken before the time is spent.
    let runs = Resumed::open(out.map(|path| (path, rundir::plan(&config))), Unwritten::GoOn)?;
    interrupt::install()?;
    let setup = plan.setup.clone();
    let Measurement { records, ended, host_seconds } = measure(plan, &runs, &args.what)?;
    // If a run could not be written, the result can still be shown.
    let kept = runs.written();
    if ended == Ended::Interrupted {
        return Err(interrupted(&setup, &records, out.filter(|_| kept.is_ok())));
    }
    let mut summary = Summary::of(setup, &records, host_seconds, args.style.all);
    let folded = summary.profile_tree.as_ref().map(Tree::folded);
    if !also.profile_tree {
        summary.profile_tree = None;
    }
    let (text, json) = (table::render(&summary), output::json(&summary)?);
    // What was measured is shown before anything else can fail.
    output::print(if args.style.json { &json } else { &text })?;
    kept?;
    out.map_or(Ok(()), |path| rundir::save_summary(path, &text, &json))?;
    also.folded.zip(folded).map_or(Ok(()), |(path, folded)| output::save(path, &folded))?;
    also.svg.map_or(Ok(()), |path| output::save(path, &picture::render(&summary)))?;
    if summary.same_work {
        Ok(())
    } else {
        Err(Error::Failed(
            "the profiles did not do the same work, so their results cannot be compared".into(),
        ))
    }
}

/// The profiles of these names, all with these settings.
pub(super) fn profiles_of(names: &[String], settings: &[String]) -> Result<Vec<Profile>> {
    let common = settings.iter().map(|text| parse_setting(text)).collect::<Result<Vec<_>>>()?;
    let profiles = names.iter().map(|text| Profile::parse(text, &common)).collect::<Result<Vec<_>>>()?;
    let mut names = BTreeSet::new();
    match profiles.iter().find(|profile| !names.insert(&profile.name)) {
        Some(twice) => Err(Error::Input(format!("the profile '{}' is named twice", twice.name))),
        None => Ok(profiles),
    }
}

/// Check everything that can be checked without running.
pub(super) fn understand(
    command: &str,
    base: Option<String>,
    profiles: &[String],
    runs: u32,
    args: &WhatArgs,
) -> Result<Plan> {
    let profiles = profiles_of(profiles, &args.settings)?;
    check_seeds(args.seed, runs)?;
    let machine = Machine::find(&args.machine)?;
    let program = Program::find(&args.program)?;
    let (footprint, peak_live) = (program.footprint(), program.peak_live());
    let memory = args.memory.map(|memory| memory.resolve(peak_live));
    if let Some(bytes) = memory {
        machine.check_memory(bytes)?;
    }
    let setup = Setup {
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        commit: env!("PAGEFOLD_COMMIT").to_owned(),
        command: command.to_owned(),
        machine: args.machine.clone(),
        program: args.program.clone(),
        memory,
        fragment: None,
        group: Vec::new(),
        footprint,
        peak_live,
        seed: args.seed,
        runs,
        base,
        profiles: profiles.iter().map(|profile| profile.name.clone()).collect(),
        knobs: profiles.iter().map(|profile| (profile.name.clone(), profile.settings())).collect(),
    };
    Ok(Plan {
        setup,
        machine,
        program,
        profiles,
        verify: args.verify,
        also: Counted { preempt: args.preempt, ..Counted::default() },
        profile_tree: false,
        visits: Vec::new(),
        fragment: None,
        groups: Vec::new(),
    })
}

impl Plan {
    /// Count the flushes that any safe policy would need, if that is wanted.
    pub(super) fn count_bound(&mut self, wanted: bool) -> Result<()> {
        if wanted && self.also.preempt.is_some() {
            return Err(Error::input(
                "--preempt and --bound exclude each other: what a stopped CPU is about to flush may come due before",
            ));
        }
        self.also.bound = wanted;
        Ok(())
    }

    /// Begin with memory in this state, if one is wanted.
    fn fragment(&mut self, wanted: Option<&Fragmentation>) {
        self.setup.fragment = wanted.map(Fragmentation::to_string);
        self.fragment = wanted.cloned();
    }

    /// Begin with these control groups.
    fn group(&mut self, wanted: &[GroupArg]) -> Result<()> {
        self.setup.group = wanted.iter().map(|group| group.text.clone()).collect();
        self.groups = wanted.iter().map(|group| group.resolve(self.setup.peak_live)).collect();
        self.machine.check_groups(&self.groups)
    }

    /// What else than its setup makes its runs what they are.
    fn besides(&self) -> String {
        let Plan { verify, also, profile_tree, visits, .. } = self;
        format!("{verify:?} {also:?} {profile_tree:?} {visits:?}")
    }

    /// Count the refaults that there could have been at least, if that is wanted.
    pub(super) fn count_optimum(&mut self, wanted: bool) -> Result<()> {
        if wanted && self.also.preempt.is_some() {
            return Err(Error::input(
                "--preempt and --optimum exclude each other: a stopped CPU may use what has left memory meanwhile",
            ));
        }
        self.also.optimum = wanted;
        Ok(())
    }
}

/// What the runs of an experiment have brought.
pub(super) struct Measurement {
    /// The runs that were finished.
    pub records: Vec<RunRecord>,
    /// Was it all of them?
    pub ended: Ended,
    /// Real time.
    pub host_seconds: f64,
}

/// Do the runs that were not done before.
pub(super) fn measure(plan: Plan, runs: &Resumed<Key, Done>, args: &WhatArgs) -> Result<Measurement> {
    let all = jobs(plan.profiles.len(), plan.setup.seed, plan.setup.runs);
    let names: Vec<String> = plan.profiles.iter().map(|profile| profile.name.clone()).collect();
    let key = move |job: Job| Key { profile: names[job.profile].clone(), seed: job.seed };
    let spent = host_seconds(&runs.done());
    let (start, no_host_time) = (Instant::now(), args.no_host_time);
    let run = move |job: Job| {
        let record = one_run(&plan, job)?;
        let host_seconds = if no_host_time { 0.0 } else { spent + start.elapsed().as_secs_f64() };
        Ok(Done { host_seconds, record })
    };
    let bar = progress_bar(all.len(), args.quiet);
    let ended = runs.go_on(&all, key.clone(), run, threads(args.jobs), (&bar, 0));
    bar.finish_and_clear();
    let (ended, mut done) = (ended?, runs.done());
    let host_seconds = host_seconds(&done);
    let records = all.iter().filter_map(|&job| done.remove(&key(job))).map(|done| done.record).collect();
    Ok(Measurement { records, ended, host_seconds })
}

/// What an experiment had taken when the last of these runs ended.
fn host_seconds(done: &BTreeMap<Key, Done>) -> f64 {
    done.values().map(|done| done.host_seconds).fold(0.0, f64::max)
}

fn one_run(plan: &Plan, job: Job) -> Result<RunRecord> {
    let profile = &plan.profiles[job.profile];
    let command = replay_command(&plan.setup, profile, job.seed, plan.also);
    let run = engine::Run {
        memory: plan.setup.memory,
        fragment: plan.fragment.as_ref(),
        groups: &plan.groups,
        knobs: &profile.knobs,
        seed: job.seed,
        verify: plan.verify,
        bound: plan.also.bound,
        optimum: plan.also.optimum,
        moves: plan.also.moves,
        placement: plan.also.placement,
        preempt: plan.also.preempt,
        profile_tree: plan.profile_tree,
        visits: &plan.visits,
        ..engine::Run::new(&plan.machine, &plan.program)
    };
    run.replayable(&profile.name, command)
}

/// The command line that does one run again, with the oracle watching.
fn replay_command(setup: &Setup, profile: &Profile, seed: u64, also: Counted) -> String {
    let Setup { program, machine, memory, .. } = setup;
    let run = RunLine { program, machine, memory: *memory, profile, seed };
    let mut words: Vec<String> = Vec::new();
    words.extend(setup.fragment.iter().flat_map(|state| ["--fragment".to_owned(), state.clone()]));
    words.extend(setup.group.iter().flat_map(|group| ["--group".to_owned(), group.clone()]));
    words.extend(also.bound.then(|| "--bound".to_owned()));
    words.extend(also.optimum.then(|| "--optimum".to_owned()));
    words.extend(also.moves.then(|| "--moves".to_owned()));
    words.extend(also.placement.then(|| "--placement".to_owned()));
    words.extend(also.preempt.into_iter().flat_map(|every| ["--preempt".to_owned(), every.to_string()]));
    run.with(words)
}

pub(super) fn interrupted(setup: &Setup, records: &[RunRecord], dir: Option<&Path>) -> Error {
    let all = setup.runs as usize * setup.profiles.len();
    let done = format!("interrupted after {} of {all} runs", records.len());
    Error::Interrupted(match dir {
        _ if records.is_empty() => "interrupted before the first run has ended; nothing is kept".to_owned(),
        Some(dir) => format!(
            "{done}; they are kept in {dir}: the same command goes on, 'pagefold report {dir}' shows them",
            dir = dir.display()
        ),
        None => format!("{done}; nothing is kept without --out DIR"),
    })
}

/// Progress over the runs. It is hidden when standard error is not a terminal.
pub(super) fn progress_bar(jobs: usize, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(jobs as u64);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs{msg}, {elapsed} (left: {eta})");
    bar.set_style(style.expect("the template is well formed"));
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::summary::tests::setup;

    #[test]
    fn a_replay_names_everything_that_matters() {
        let common = [parse_setting("vm.page-cluster=0").unwrap()];
        let profile = Profile::parse("classic+vm.swappiness=10", &common).unwrap();
        assert_eq!(
            replay_command(&setup(&["a"]), &profile, 7, Counted::default()),
            "pagefold run zipf:256M --machine small --memory 134217728 --profile classic+vm.swappiness=10 \
             --set vm.page-cluster=0 --set vm.swappiness=10 --seed 7 --verify"
        );
        let also = Counted { bound: true, optimum: true, moves: true, placement: true, preempt: None };
        let all = replay_command(&setup(&["a"]), &profile, 7, also);
        assert!(all.ends_with(" --verify --bound --optimum --moves --placement"));
        let also = Counted { preempt: Some(8), ..Counted::default() };
        let all = replay_command(&setup(&["a"]), &profile, 7, also);
        assert!(all.ends_with(" --verify --preempt 8"));
    }
}
