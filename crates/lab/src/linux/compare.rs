//! One comparison: boots of Linux, then the twin that they describe.

use super::conditions::{self, Setting};
use super::find::{self, Kernel};
use super::guest::{LinuxGuest, What};
use super::judge::{Beside, Conditions};
use super::twin::{self, Speed};
use crate::boot::{self, Guest, MOST_USUAL_THREADS, Recorded, Report, Runner, Second, Shape, Task};
use crate::document::{Origin, SCHEMA};
use crate::engine::{Machine, Program, RunConfig};
use crate::error::{Error, Result};
use crate::profile::Profile;
use crate::record::{OracleRecord, RunRecord, WorkDone};
use crate::statistics::mean;
use crate::summary::Setup;
use crate::{interrupt, replay};
use mm::knobs::{Knob, Knobs};
use mm::units::PAGE_SIZE;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What every boot needs of the host.
#[derive(Debug)]
pub struct Tools {
    kernel: Kernel,
    init: PathBuf,
    qemu: PathBuf,
    mke2fs: PathBuf,
    booted: Option<PathBuf>,
}

impl Tools {
    /// Find them; `None` for a path that is not given. The booted machine's image only if it is wanted.
    pub fn find(
        kernel: Option<&Path>,
        modules: Option<&Path>,
        qemu: Option<&Path>,
        booted: bool,
    ) -> Result<Tools> {
        Ok(Tools {
            booted: if booted { Some(boot::find::kernel(None)?) } else { None },
            qemu: boot::find::qemu(qemu)?,
            kernel: find::kernel(kernel, modules)?,
            init: find::init()?,
            mke2fs: find::mke2fs()?,
        })
    }
}

/// What is to be compared.
#[derive(Clone, Debug)]
pub struct Job {
    /// The program, as the user named it.
    pub program: String,
    /// CPUs.
    pub cpus: u32,
    /// The second node.
    pub second: Second,
    /// Bytes of memory; rounded to what machines can have.
    pub memory: u64,
    /// Bytes of swap space.
    pub swap: u64,
    /// The first seed, and the number of runs.
    pub seed: u64,
    /// Runs.
    pub runs: u32,
    /// The profile.
    pub profile: Profile,
    /// Whether the guest's time counts instructions.
    pub icount: bool,
    /// More words for Linux.
    pub append: String,
    /// The longest that a boot may take.
    pub timeout: Duration,
    /// Whether to show every counter that moved.
    pub all: bool,
}

/// The result, and the description of the simulated machine.
pub struct Compared {
    /// Count by count.
    pub beside: Beside,
    /// The twin in TOML.
    pub twin: String,
}

/// What a boot has to say while it runs.
pub trait Watch {
    /// A boot with this seed begins.
    fn begins(&mut self, job: &Job, seed: u64);
    /// A line of the guest's log.
    fn line(&mut self, line: &str);
    /// It has ended.
    fn ended(&mut self, failed: bool);
}

/// What is run, and on what.
struct Subject<'a> {
    job: &'a Job,
    program: Program,
    recorded: Option<Recorded>,
    shape: Shape,
    settings: Vec<Setting>,
}

/// Boot Linux as often as asked for, then run the simulated twin with the same seeds, and the booted machine if it is
/// wanted.
pub fn compare(tools: &Tools, job: &Job, watch: &mut dyn Watch) -> Result<Compared> {
    let start = Instant::now();
    let subject = Subject::new(job)?;
    let reports = subject.boots(tools, watch)?;
    let linux = reports.iter().zip(job.seed..).map(|(report, seed)| record(report, seed, job));
    let linux = linux.collect::<Result<Vec<RunRecord>>>()?;
    let metric =
        |name: &str| mean(&reports.iter().map(|report| measured(report, name)).collect::<Vec<f64>>());
    let speed = Speed { fault_nanos: metric("fault_nanos"), read_micros: metric("read_micros") };
    let name = format!("linux:{}", job.cpus);
    let (machine, twin) = twin::twin(&name, &subject.shape, speed)?;
    let simulated = subject.simulated(&machine)?;
    let booted = match &tools.booted {
        Some(image) => subject.booted(tools, image, watch)?,
        None => Vec::new(),
    };
    let conditions = Conditions {
        kernel: tools.kernel.version.clone(),
        cpus: job.cpus,
        pages: subject.shape.memory() / PAGE_SIZE,
        pages_by_node: subject.shape.memory_by_node().iter().map(|bytes| bytes / PAGE_SIZE).collect(),
        kernel_pages: metric("kernel_pages"),
        hidden_pages: metric("hidden_pages"),
        managed_pages: metric("managed_pages"),
        swap: job.swap,
        fault_nanos: speed.fault_nanos,
        read_micros: speed.read_micros,
        icount: job.icount,
        append: job.append.clone(),
        settings: subject
            .settings
            .iter()
            .map(|Setting { file, value, .. }| format!("{file} {value}"))
            .collect(),
    };
    let setup = setup(job, &name, subject.shape.memory(), &subject.program);
    let mut beside = Beside::of(setup, conditions, [&linux, &simulated, &booted], job.all);
    beside.host_seconds = start.elapsed().as_secs_f64();
    Ok(Compared { beside, twin })
}

impl<'a> Subject<'a> {
    fn new(job: &'a Job) -> Result<Subject<'a>> {
        let program = Program::find(&job.program)?;
        let recorded = match &program {
            Program::Trace(replay) => Some(Recorded::new(replay.source())?),
            Program::Named(_) => None,
        };
        let shape = Shape::new(job.cpus, job.second, job.memory, job.swap / PAGE_SIZE)?;
        let settings = conditions::settings(&job.profile.knobs, shape.memory() / PAGE_SIZE)?;
        Ok(Subject { job, program, recorded, shape, settings })
    }

    /// The number of daemons of the simulated machine: for each node kswapd, and kcompactd if large folios are enabled;
    /// the flusher; khugepaged on request.
    fn daemons(&self) -> u32 {
        let knobs = Knobs::default();
        for &(knob, value) in &self.job.profile.knobs {
            knobs.set(knob, value).expect("the profile was checked");
        }
        let of_node = 1 + u32::from(knobs.wants_blocks());
        self.shape.count() * of_node + 1 + knobs.get(Knob::ThpKhugepaged) as u32
    }

    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        (self.job.seed..).take(self.job.runs as usize)
    }

    /// Linux's runs.
    fn boots(&self, tools: &Tools, watch: &mut dyn Watch) -> Result<Vec<Report>> {
        let job = self.job;
        let mut reports = Vec::new();
        for seed in self.seeds() {
            let what = match &self.recorded {
                Some(recorded) => What::Trace(recorded),
                None => What::Named(Program::built_in(&job.program)?.to_string(), self.program.footprint()),
            };
            let guest = LinuxGuest {
                what,
                kernel: &tools.kernel,
                init: &tools.init,
                shape: self.shape,
                seed,
                daemons: self.daemons(),
                settings: &self.settings,
                icount: job.icount,
                append: &job.append,
            };
            watch.begins(job, seed);
            let report = boot_once(tools, job, &guest, watch);
            watch.ended(matches!(report, Err(Error::Failed(_))));
            reports.push(report?);
        }
        Ok(reports)
    }

    /// The twin's.
    fn simulated(&self, machine: &Machine) -> Result<Vec<RunRecord>> {
        let profile = &self.job.profile;
        let knobs = twins_knobs(&profile.knobs, &self.job.append);
        let mut records = Vec::new();
        for seed in self.seeds() {
            if interrupt::requested() {
                return Err(Error::Interrupted("interrupted while the simulated machine ran".into()));
            }
            let (memory, knobs) = (Some(self.shape.memory()), knobs.clone());
            let config = RunConfig { memory, knobs, seed, ..machine.config() };
            let command = command(self.job, &self.shape, seed);
            records.push(self.program.replayable(&config, &profile.name, command)?);
        }
        Ok(records)
    }

    /// The booted machine's.
    fn booted(&self, tools: &Tools, image: &Path, watch: &mut dyn Watch) -> Result<Vec<RunRecord>> {
        let job = self.job;
        let task = match &self.recorded {
            Some(recorded) => Task::Trace(recorded.clone()),
            None => {
                let words = Program::built_in(&job.program)?;
                let threads = words.threads.unwrap_or(job.cpus.max(MOST_USUAL_THREADS));
                Task::Program { name: words.to_string(), bytes: words.bytes, threads }
            }
        };
        let runner = Runner { kernel: image, qemu: &tools.qemu, timeout: job.timeout };
        let mut records = Vec::new();
        for seed in self.seeds() {
            let (task, knobs, shape) = (task.clone(), job.profile.knobs.clone(), self.shape);
            let guest =
                Guest { task, shape, seed, check: false, knobs, groups: vec![], drop: None, icount: false };
            watch.begins(job, seed);
            let report = runner.boot(&guest, interrupt::requested, |line| watch.line(line));
            watch.ended(matches!(report, Err(Error::Failed(_))));
            records.push(boot::measured::record(&report?, &guest, &job.profile.name)?);
        }
        Ok(records)
    }
}

/// The profile's knobs, and what more words for Linux mean for ours: without control groups no decision waits for their
/// statistics.
fn twins_knobs(knobs: &[(Knob, u64)], append: &str) -> Vec<(Knob, u64)> {
    let without = append.split_whitespace().any(|word| word == "cgroup_disable=memory");
    let more = without.then_some((Knob::MemcgFlushMs, 0));
    knobs.iter().copied().chain(more).collect()
}

fn setup(job: &Job, machine: &str, memory: u64, program: &Program) -> Setup {
    Setup {
        origin: Origin::here(SCHEMA),
        command: "linux".to_owned(),
        machine: machine.to_owned(),
        program: job.program.clone(),
        memory: Some(memory),
        fragment: None,
        group: Vec::new(),
        footprint: program.footprint(),
        peak_live: program.peak_live(),
        seed: job.seed,
        runs: job.runs,
        base: None,
        profiles: vec![job.profile.name.clone()],
        knobs: [(job.profile.name.clone(), job.profile.settings())].into(),
        failed: Default::default(),
    }
}

/// The command line that does the comparison for one seed again.
fn command(job: &Job, shape: &Shape, seed: u64) -> String {
    let options =
        shape.options().into_iter().chain([("--seed", seed.to_string()), ("--runs", "1".to_owned())]);
    let mut words: Vec<String> =
        ["pagefold", "linux", &job.program, "--profile", &job.profile.name].map(str::to_owned).into();
    for (knob, value) in job.profile.settings() {
        words.extend(["--set".to_owned(), format!("{knob}={value}")]);
    }
    for (flag, value) in options {
        words.extend([flag.to_owned(), value]);
    }
    words.extend(job.icount.then(|| "--icount".to_owned()));
    if !job.append.is_empty() {
        words.extend(["--append".to_owned(), job.append.clone()]);
    }
    replay::shell_line(words)
}

fn boot_once(tools: &Tools, job: &Job, guest: &LinuxGuest<'_>, watch: &mut dyn Watch) -> Result<Report> {
    let files = guest.files(&tools.mke2fs)?;
    let runner = Runner { kernel: &tools.kernel.image, qemu: &tools.qemu, timeout: job.timeout };
    let report = runner.run(guest.arguments(&files), interrupt::requested, |line| watch.line(line));
    report.map_err(|error| error.with_replay(|| command(job, &guest.shape, guest.seed)))
}

fn measured(report: &Report, name: &str) -> f64 {
    report.metrics.iter().find(|(known, _)| known == name).map_or(0.0, |(_, value)| *value as f64)
}

/// What a boot reported, as the record of a run.
fn record(report: &Report, seed: u64, job: &Job) -> Result<RunRecord> {
    let done = report.done.ok_or_else(|| Error::Failed("the guest ended without saying '@done'".into()))?;
    if report.machine.is_none_or(|found| found.cpus != u64::from(job.cpus)) {
        return Err(Error::Failed("the guest ran with another number of CPUs than it was given".into()));
    }
    Ok(RunRecord {
        profile: job.profile.name.clone(),
        seed,
        nanos: done.nanos,
        work: WorkDone { accesses: done.accesses, progress: done.progress, tasks: done.tasks },
        counters: report.counters.clone(),
        metrics: Vec::new(),
        costs: Default::default(),
        oracle: OracleRecord::default(),
        covered: Default::default(),
        bound: None,
        profile_tree: None,
        locks: Vec::new(),
        lru_gen: Vec::new(),
        fragmented: None,
        groups: Vec::new(),
        optimum: None,
        warnings: report.notes.clone(),
    })
}
