//! One comparison: boots of Linux, then the twin that they describe.

use super::conditions::{self, Setting};
use super::find::{self, Kernel};
use super::guest::{LinuxGuest, What};
use super::judge::{Beside, Conditions, Runs};
use super::reserve::Reserve;
use super::twin::{self, Speed, Twin};
use super::unequal::{Unequal, unequal};
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
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Why a kernel of this version cannot run like that, if it is known that it cannot.
fn refuses(version: &str, icount: bool, cpus: u32) -> Option<String> {
    let is_6_1 = version == "6.1" || version.starts_with("6.1.");
    (is_6_1 && icount && cpus > 1).then(|| {
        format!("Linux {version} does not start a second CPU with --icount; take --cpus 1, or no --icount")
    })
}

/// What every boot needs of the host.
#[derive(Debug)]
pub struct Tools {
    kernel: Kernel,
    init: PathBuf,
    qemu: PathBuf,
    mke2fs: PathBuf,
    booted: Option<PathBuf>,
    /// What was measured of the kernel's memory, by all that it depends on.
    reserves: RefCell<BTreeMap<String, Reserve>>,
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
            reserves: RefCell::default(),
        })
    }

    /// Version of the kernel.
    pub fn version(&self) -> &str {
        &self.kernel.version
    }

    /// Why this kernel cannot run a job, if it cannot.
    pub fn refuses(&self, job: &Job) -> Option<String> {
        refuses(self.version(), job.icount, job.cpus)
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
    /// The first seed.
    pub seed: u64,
    /// Seeds.
    pub runs: u32,
    /// Boots with each seed.
    pub boots: u32,
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
    if let Some(why) = tools.refuses(job) {
        return Err(Error::Input(why));
    }
    let subject = Subject::new(job)?;
    let reports = subject.boots(tools, watch)?;
    let linux =
        reports.iter().zip(subject.boots_by_seed()).map(|(report, (seed, _))| record(report, seed, job));
    let linux = linux.collect::<Result<Vec<RunRecord>>>()?;
    let metric =
        |name: &str| mean(&reports.iter().map(|report| measured(report, name)).collect::<Vec<f64>>());
    let speed = speed(&linux, metric);
    let name = format!("linux:{}", job.cpus);
    let kernels = (metric("managed_pages") as u64).saturating_sub(subject.shape.memory() / PAGE_SIZE);
    let Twin { machine, text: twin, warnings } = twin::twin(&name, &subject.shape, kernels, speed)?;
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
        speed,
        icount: job.icount,
        append: job.append.clone(),
        settings: subject
            .settings
            .iter()
            .map(|Setting { file, value, .. }| format!("{file} {value}"))
            .collect(),
        unequal: reports.first().map_or_else(Vec::new, |report| subject.unequal(report, kernels)),
    };
    let setup = setup(job, &name, subject.shape.memory(), &subject.program);
    let runs = Runs { boots: job.boots, linux: &linux, simulated: &simulated, booted: &booted };
    let mut beside = Beside::of(setup, conditions, runs, job.all);
    beside.warnings.extend(warnings);
    beside.host_seconds = start.elapsed().as_secs_f64();
    Ok(Compared { beside, twin })
}

/// How slow the guests were, on average.
fn speed(runs: &[RunRecord], metric: impl Fn(&str) -> f64) -> Speed {
    let accesses = mean(&runs.iter().map(|run| run.work.accesses as f64).collect::<Vec<f64>>());
    let nanos = |name| metric(name) / 1000.0;
    let instruction_nanos = nanos("instruction_picos");
    let accessing = metric("user_nanos") - metric("computed") * instruction_nanos;
    Speed {
        fault_nanos: nanos("fault_picos"),
        zero_fault_nanos: nanos("zero_fault_picos"),
        copy_fault_nanos: nanos("copy_fault_picos"),
        read_nanos: nanos("read_picos"),
        instruction_nanos,
        access_nanos: if accesses > 0.0 { (accessing / accesses).max(0.0) } else { 0.0 },
        read_micros: metric("read_micros"),
    }
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

    /// Each seed, and the numbers of its boots.
    fn boots_by_seed(&self) -> impl Iterator<Item = (u64, u32)> + use<> {
        let boots = self.job.boots;
        self.seeds().flat_map(move |seed| (0..boots).map(move |boot| (seed, boot)))
    }

    fn unequal(&self, report: &Report, kernels: u64) -> Vec<Unequal> {
        unequal(&report.conditions, (&self.shape, kernels), &self.job.profile.knobs, &self.settings)
    }

    /// What a boot with this seed and number is.
    fn guest<'b>(
        &'b self,
        tools: &'b Tools,
        (seed, boot): (u64, u32),
        reserve: Reserve,
    ) -> Result<LinuxGuest<'b>> {
        let what = match &self.recorded {
            Some(recorded) => What::Trace(recorded),
            None => What::Named(Program::built_in(&self.job.program)?.to_string(), self.program.footprint()),
        };
        Ok(LinuxGuest {
            what,
            kernel: &tools.kernel,
            init: &tools.init,
            shape: self.shape,
            seed,
            boot,
            daemons: self.daemons(),
            settings: &self.settings,
            reserve,
            measure: false,
            icount: self.job.icount,
            append: &self.job.append,
        })
    }

    /// What the kernel needs for itself: as measured before, or in a boot for that.
    fn reserve(&self, tools: &Tools, watch: &mut dyn Watch) -> Result<Reserve> {
        let job = self.job;
        let plenty = Reserve::plenty(self.shape.swap);
        let guest = LinuxGuest { measure: true, ..self.guest(tools, (job.seed, 0), plenty)? };
        let key = format!("{:?} {} {} {:?}", self.shape, guest.arena(), job.append, guest.memory_by_node());
        if let Some(known) = tools.reserves.borrow().get(&key) {
            return Ok(*known);
        }
        let report = boot_once(tools, job, &guest, watch)?;
        let measured = Reserve::measured(&report, guest.memory_by_node()[0], guest.arena())?;
        tools.reserves.borrow_mut().insert(key, measured);
        Ok(measured)
    }

    /// Linux's runs.
    fn boots(&self, tools: &Tools, watch: &mut dyn Watch) -> Result<Vec<Report>> {
        let reserve = self.reserve(tools, watch)?;
        let boot = |boot| boot_once(tools, self.job, &self.guest(tools, boot, reserve)?, watch);
        self.boots_by_seed().map(boot).collect()
    }

    /// The twin's.
    fn simulated(&self, machine: &Machine) -> Result<Vec<RunRecord>> {
        let profile = &self.job.profile;
        let knobs = twins_knobs(&profile.knobs, &self.shape, &self.job.append);
        let mut records = Vec::new();
        for (seed, boot) in self.boots_by_seed() {
            if interrupt::requested() {
                return Err(Error::Interrupted("interrupted while the simulated machine ran".into()));
            }
            let (memory, knobs) = (Some(self.shape.memory()), knobs.clone());
            let config = RunConfig { memory, knobs, seed, boot, ..machine.config() };
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

/// The profile's knobs; the reserve that the guest is given, too; and what more words for Linux mean for ours: without
/// control groups no decision waits for their statistics.
fn twins_knobs(knobs: &[(Knob, u64)], shape: &Shape, append: &str) -> Vec<(Knob, u64)> {
    let without = append.split_whitespace().any(|word| word == "cgroup_disable=memory");
    let reserve = (Knob::MinFreeKbytes, conditions::min_free(knobs, shape.memory() / PAGE_SIZE));
    let more = without.then_some((Knob::MemcgFlushMs, 0));
    knobs.iter().copied().chain([reserve]).chain(more).collect()
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
    let more = [("--seed", seed.to_string()), ("--boots", job.boots.to_string())];
    let options = shape.options().into_iter().chain(more);
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
    watch.begins(job, guest.seed);
    let files = guest.files(&tools.mke2fs)?;
    let runner = Runner { kernel: &tools.kernel.image, qemu: &tools.qemu, timeout: job.timeout };
    let report = runner.run(guest.arguments(&files), interrupt::requested, |line| watch.line(line));
    watch.ended(matches!(report, Err(Error::Failed(_))));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_6_1_has_one_cpu_when_time_counts_instructions() {
        let of = |version, icount, cpus| refuses(version, icount, cpus).is_some();
        assert!(of("6.1.0-50-cloud-amd64", true, 2) && of("6.1", true, 4));
        assert!(!of("6.1.0-50-cloud-amd64", true, 1) && !of("6.1.0-50-cloud-amd64", false, 2));
        assert!(!of("6.12.117+deb13-cloud-amd64", true, 2) && !of("/boot/vmlinuz", true, 2));
    }
}
