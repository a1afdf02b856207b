//! One comparison: boots of Linux, then the twin that they describe.

use super::areas::Areas;
use super::boots::Boots;
use super::conditions::{self, Setting};
use super::find::{self, Kernel};
use super::guest::{LinuxGuest, Purpose, What};
use super::job::Job;
use super::judge::{Beside, Conditions, Runs};
use super::reserve::Reserve;
use super::twin::{self, Speed, Twin};
use super::unequal::unequal;
use crate::boot::{self, Guest, MOST_USUAL_THREADS, Recorded, Report, Runner, Shape, Task};
use crate::document::{Origin, SCHEMA};
use crate::engine::{Machine, Program, RunConfig};
use crate::error::{Error, Result};
use crate::human;
use crate::interrupt;
use crate::record::RunRecord;
use crate::summary::Setup;
use mm::knobs::{Knob, Knobs};
use mm::units::PAGE_SIZE;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;
use trace::header::Place;

/// Names that a warning has room for.
const MOST_NAMES: usize = 6;

/// Whether an emulator of this version, if that is known, gives all CPUs their turns. QEMU 7.2.22 gives what a CPU
/// leaves of a turn to the first one, 10.0.2 does not: since 8.1, which was not run, each CPU has a budget.
fn has_fair_turns(emulator: Option<&str>) -> bool {
    let version = emulator.map(find::numbers).unwrap_or_default();
    version.is_empty() || version >= vec![8, 1]
}

/// Why a kernel of this version cannot run on such an emulator, if CPUs run in turn and it is known that it cannot.
fn refuses(version: &str, emulator: Option<&str>) -> Option<String> {
    let is_6_1 = version == "6.1" || version.starts_with("6.1.");
    (is_6_1 && !has_fair_turns(emulator)).then(|| {
        format!(
            "Linux {version} starts a second CPU with --icount only on QEMU 8.1 and later, not on {}; take --cpus 1, or no \
             --icount",
            emulator.unwrap_or_default()
        )
    })
}

/// What is to be known of boots on such an emulator, if CPUs run in turn.
fn unfair(emulator: Option<&str>) -> Option<String> {
    (!has_fair_turns(emulator)).then(|| {
        format!(
            "QEMU {} gives the first CPU most turns of others that wait for it, as in flushes; 8.1 and later do not",
            emulator.unwrap_or_default()
        )
    })
}

/// What every boot needs of the host.
#[derive(Debug)]
pub struct Tools {
    kernel: Kernel,
    init: PathBuf,
    qemu: PathBuf,
    /// Version of the emulator.
    emulator: Option<String>,
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
        let qemu = boot::find::qemu(qemu)?;
        Ok(Tools {
            booted: if booted { Some(boot::find::kernel(None)?) } else { None },
            emulator: boot::find::version(&qemu),
            qemu,
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

    /// Whether zswap is built into the kernel; true if its folder of modules does not tell.
    pub fn has_zswap(&self) -> bool {
        self.kernel.has_builtin("zswap")
    }

    /// Why this kernel cannot run a job, if it cannot.
    pub fn refuses(&self, job: &Job) -> Option<String> {
        runs_in_turn(job).then(|| refuses(self.version(), self.emulator.as_deref())).flatten()
    }
}

/// Whether the guest has several CPUs, which run one at a time.
fn runs_in_turn(job: &Job) -> bool {
    job.icount && job.cpus > 1
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
    areas: Areas,
}

/// Boot Linux as often as asked for, then run the simulated twin with the same seeds, and the booted machine if it is
/// wanted.
pub fn compare(tools: &Tools, job: &Job, watch: &mut dyn Watch) -> Result<Compared> {
    let start = Instant::now();
    let linux = boots(tools, job, watch)?;
    let subject = Subject::new(job)?;
    let mut compared = subject.beside(&linux, || match &tools.booted {
        Some(image) => subject.booted(tools, image, watch),
        None => Ok(Vec::new()),
    })?;
    compared.beside.host_seconds = start.elapsed().as_secs_f64();
    Ok(compared)
}

/// Refuse a job that cannot be done as it is asked for.
pub fn check(job: &Job) -> Result<()> {
    Subject::new(job).map(drop)
}

/// Boot Linux as often as asked for.
pub fn boots(tools: &Tools, job: &Job, watch: &mut dyn Watch) -> Result<Boots> {
    if let Some(why) = tools.refuses(job) {
        return Err(Error::Input(why));
    }
    let subject = Subject::new(job)?;
    let kernel = tools.kernel.and_drivers(&subject.areas.drivers())?;
    let reserve = subject.reserve((tools, &kernel), watch)?;
    let mut boot = |(seed, boot)| {
        let guest = subject.guest((tools, &kernel), (seed, boot), reserve)?;
        Ok((seed, boot_once(tools, job, &guest, watch)?))
    };
    let reports = subject.boots_by_seed().map(&mut boot).collect::<Result<Vec<(u64, Report)>>>()?;
    let boots = Boots::of(tools.version(), job, &subject.shape, &reports)?;
    Ok(Boots { emulator: tools.emulator.clone(), ..boots })
}

/// Count instructions of known work on Linux, and on the booted machine if it is wanted.
pub fn instructions(tools: &Tools, job: &Job, watch: &mut dyn Watch) -> Result<(Report, Option<Report>)> {
    let subject = Subject::new(job)?;
    let on = (tools, &tools.kernel);
    let reserve = subject.reserve(on, watch)?;
    let guest = LinuxGuest { purpose: Purpose::Bench, ..subject.guest(on, (job.seed, 0), reserve)? };
    let linux = boot_once(tools, job, &guest, watch)?;
    let booted = tools.booted.as_deref().map(|image| {
        let guest = Guest { icount: true, ..subject.booted_guest(Task::Bench, job.seed) };
        subject.boot(tools, image, &guest, watch)
    });
    Ok((linux, booted.transpose()?))
}

/// Run the simulated twin beside boots that there are.
pub fn beside(job: &Job, linux: &Boots) -> Result<Compared> {
    let start = Instant::now();
    let subject = Subject::new(job)?;
    linux.must_be_of(job, &subject.shape)?;
    let mut compared = subject.beside(linux, || Ok(Vec::new()))?;
    compared.beside.host_seconds = start.elapsed().as_secs_f64();
    Ok(compared)
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
        let areas = Areas::new(&job.areas, shape.memory(), &job.profile.knobs)?;
        Ok(Subject { job, program, recorded, shape, settings, areas })
    }

    /// The number of daemons of the simulated machine: for each node kswapd, and kcompactd if large folios are enabled;
    /// the flusher; khugepaged and zswap's on request.
    fn daemons(&self) -> u32 {
        let knobs = Knobs::default();
        for &(knob, value) in &self.job.profile.knobs {
            knobs.set(knob, value).expect("the profile was checked");
        }
        let of_node = 1 + u32::from(knobs.wants_blocks());
        let asked = [Knob::ThpKhugepaged, Knob::ZswapEnabled].map(|knob| knobs.get(knob) as u32);
        self.shape.count() * of_node + 1 + asked.iter().sum::<u32>()
    }

    fn seeds(&self) -> impl Iterator<Item = u64> + use<> {
        (self.job.seed..).take(self.job.runs as usize)
    }

    /// Each seed, and the numbers of its boots.
    fn boots_by_seed(&self) -> impl Iterator<Item = (u64, u32)> + use<> {
        let boots = self.job.boots;
        self.seeds().flat_map(move |seed| (0..boots).map(move |boot| (seed, boot)))
    }

    /// What a boot with this seed and number is.
    fn guest<'b>(
        &'b self,
        (tools, kernel): (&'b Tools, &'b Kernel),
        (seed, boot): (u64, u32),
        reserve: Reserve,
    ) -> Result<LinuxGuest<'b>> {
        let what = match (&self.job.original, &self.recorded) {
            (Some(original), _) => What::Original(original, self.program.footprint()),
            (None, Some(recorded)) => What::Trace(recorded),
            (None, None) => {
                What::Named(Program::built_in(&self.job.program)?.to_string(), self.program.footprint())
            }
        };
        Ok(LinuxGuest {
            what,
            kernel,
            init: &tools.init,
            shape: self.shape,
            seed,
            boot,
            daemons: self.daemons(),
            settings: &self.settings,
            areas: &self.areas,
            reserve,
            purpose: Purpose::Run,
            icount: self.job.icount,
            append: &self.job.append,
        })
    }

    /// What the kernel needs for itself: as measured before, or in a boot for that.
    fn reserve(&self, (tools, kernel): (&Tools, &Kernel), watch: &mut dyn Watch) -> Result<Reserve> {
        let job = self.job;
        let plenty = Reserve::plenty(self.shape.swap + self.areas.zram_pages());
        let guest =
            LinuxGuest { purpose: Purpose::Measure, ..self.guest((tools, kernel), (job.seed, 0), plenty)? };
        let key = format!(
            "{:?} {:?} {} {} {:?}",
            self.shape,
            self.areas,
            guest.arena(),
            job.append,
            guest.memory_by_node()
        );
        if let Some(known) = tools.reserves.borrow().get(&key) {
            return Ok(*known);
        }
        let report = boot_once(tools, job, &guest, watch)?;
        let measured = Reserve::measured(&report, guest.memory_by_node()[0], guest.arena())?;
        tools.reserves.borrow_mut().insert(key, measured);
        Ok(measured)
    }

    /// The twin of the guests beside them, and the booted machine's runs.
    fn beside(&self, linux: &Boots, booted: impl FnOnce() -> Result<Vec<RunRecord>>) -> Result<Compared> {
        let job = self.job;
        let name = format!("linux:{}", job.cpus);
        let kernels =
            (linux.measured("managed_pages") as u64).saturating_sub(self.shape.memory() / PAGE_SIZE);
        let speed = match &job.original {
            Some(_) => linux.speed_of_original(self.instructions()),
            None => linux.speed(),
        };
        let packing = self.areas.packing();
        let Twin { machine, text: twin, devices_pace, warnings } =
            twin::twin(&name, (&self.shape, kernels), (speed, packing.as_ref()), job.icount)?;
        let knobs =
            twins_knobs(&job.profile.knobs, &self.shape, &job.append, (&linux.kernel, speed.clears_pages));
        let simulated = self.simulated((&machine, devices_pace), &knobs)?;
        let booted = booted()?;
        let setup = setup(job, &name, self.shape.memory(), &self.program);
        let runs = Runs { boots: job.boots, linux: &linux.runs, simulated: &simulated, booted: &booted };
        let mut beside = Beside::of(setup, self.conditions(linux, kernels, speed), runs, job.all);
        beside.warnings.extend(warnings);
        beside.warnings.extend(self.lacks());
        let emulator = linux.emulator.as_deref();
        beside.warnings.extend(runs_in_turn(job).then(|| unfair(emulator)).flatten());
        beside.same_work = beside.same_work.filter(|_| job.original.is_none());
        Ok(Compared { beside, twin })
    }

    /// Instructions of the recording.
    fn instructions(&self) -> u64 {
        match &self.program {
            Program::Trace(replay) => replay.source().header().counts().instructions,
            Program::Named(_) => 0,
        }
    }

    /// What to know of a guest that lacks files which the recording read.
    fn lacks(&self) -> Option<String> {
        let (Some(original), Program::Trace(replay)) = (&self.job.original, &self.program) else {
            return None;
        };
        let files = replay.source().header().files.iter();
        let read = files.filter(|file| file.place == Place::Regular && file.size > 0);
        let lacks = original.lacks(read.map(|file| file.name.as_str()));
        let first = lacks.iter().take(MOST_NAMES).copied().collect::<Vec<&str>>().join(", ");
        let more = if lacks.len() > MOST_NAMES { ", ..." } else { "" };
        (!lacks.is_empty()).then(|| {
            let files = human::plural(lacks.len() as u64, "recorded file was", "recorded files were");
            format!("{files} not on the guest's disk: {first}{more}; --with PATH adds files and folders")
        })
    }

    fn conditions(&self, linux: &Boots, kernels: u64, speed: Speed) -> Conditions {
        let knobs = &self.job.profile.knobs;
        Conditions {
            kernel: linux.kernel.clone(),
            cpus: self.job.cpus,
            pages: self.shape.memory() / PAGE_SIZE,
            pages_by_node: self.shape.memory_by_node().iter().map(|bytes| bytes / PAGE_SIZE).collect(),
            kernel_pages: linux.measured("kernel_pages"),
            hidden_pages: linux.measured("hidden_pages"),
            managed_pages: linux.measured("managed_pages"),
            swap: self.job.swap,
            speed,
            icount: self.job.icount,
            append: self.job.append.clone(),
            settings: self
                .settings
                .iter()
                .map(|Setting { file, value, .. }| format!("{file} {value}"))
                .collect(),
            unequal: unequal(&linux.found, (&self.shape, kernels), knobs, &self.settings),
        }
    }

    /// The twin's.
    fn simulated(&self, machine: (&Machine, f64), knobs: &[(Knob, u64)]) -> Result<Vec<RunRecord>> {
        self.boots_by_seed().map(|boot| self.simulate(machine, knobs, boot)).collect()
    }

    /// A boot of the twin with this seed and number.
    fn simulate(
        &self,
        (machine, devices_pace): (&Machine, f64),
        knobs: &[(Knob, u64)],
        (seed, boot): (u64, u32),
    ) -> Result<RunRecord> {
        if interrupt::requested() {
            return Err(Error::Interrupted("interrupted while the simulated machine ran".into()));
        }
        let profile = &self.job.profile;
        let knobs = knobs.to_vec();
        let memory = Some(self.shape.memory());
        // With --icount QEMU has one thread for all CPUs.
        let in_turn = self.job.icount;
        // What the kernel's file system adds to the knobs adds daemons that the guest does not know of.
        let daemons = Some(self.daemons());
        let swap = self.job.areas.clone();
        let config =
            RunConfig { memory, swap, knobs, seed, boot, in_turn, devices_pace, daemons, ..machine.config() };
        let command = self.job.command(&self.shape, seed);
        self.program.replayable(&config, &profile.name, command)
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
        let mut records = Vec::new();
        for seed in self.seeds() {
            let guest = self.booted_guest(task.clone(), seed);
            let report = self.boot(tools, image, &guest, watch)?;
            records.push(boot::measured::record(&report, &guest, &job.profile.name)?);
        }
        Ok(records)
    }

    /// A boot of the booted machine with this seed.
    fn booted_guest(&self, task: Task, seed: u64) -> Guest {
        let knobs = self.job.profile.knobs.clone();
        Guest {
            task,
            shape: self.shape,
            seed,
            check: false,
            knobs,
            groups: vec![],
            zram: 0,
            drop: None,
            icount: false,
        }
    }

    fn boot(&self, tools: &Tools, image: &Path, guest: &Guest, watch: &mut dyn Watch) -> Result<Report> {
        let runner = Runner { kernel: image, qemu: &tools.qemu, timeout: self.job.timeout };
        watch.begins(self.job, guest.seed);
        let report = runner.boot(guest, interrupt::requested, |line| watch.line(line));
        watch.ended(matches!(report, Err(Error::Failed(_))));
        report
    }
}

/// The profile's knobs; the reserve that the guest is given, too; what more words for Linux mean for ours: without
/// control groups no decision waits for their statistics; what the guest's file system has in this kernel; and whether
/// that clears each page that it hands out.
fn twins_knobs(
    knobs: &[(Knob, u64)],
    shape: &Shape,
    append: &str,
    (kernel, clears_pages): (&str, bool),
) -> Vec<(Knob, u64)> {
    let without = append.split_whitespace().any(|word| word == "cgroup_disable=memory");
    let reserve = (Knob::MinFreeKbytes, conditions::min_free(knobs, shape.memory() / PAGE_SIZE));
    let more = without.then_some((Knob::MemcgFlushMs, 0));
    let large = (find::numbers(kernel) >= EXT4_LARGE_FOLIOS.to_vec()).then_some((Knob::FileMaxOrder, 9));
    let clears = (Knob::InitOnAlloc, clears_pages.into());
    knobs.iter().copied().chain([reserve, clears]).chain(more).chain(large).collect()
}

/// Since this version ext4 has folios of up to 2 MiB.
const EXT4_LARGE_FOLIOS: [u64; 2] = [6, 16];

fn setup(job: &Job, machine: &str, memory: u64, program: &Program) -> Setup {
    Setup {
        origin: Origin::here(SCHEMA),
        command: "linux".to_owned(),
        machine: machine.to_owned(),
        program: job.program.clone(),
        memory: Some(memory),
        senpai: None,
        fragment: None,
        vary: None,
        group: Vec::new(),
        swap: job.areas.iter().map(ToString::to_string).collect(),
        fail: Vec::new(),
        with_machine: None,
        with_memory: None,
        with_swap: Vec::new(),
        phases: None,
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

fn boot_once(tools: &Tools, job: &Job, guest: &LinuxGuest<'_>, watch: &mut dyn Watch) -> Result<Report> {
    watch.begins(job, guest.seed);
    let files = guest.files(&tools.mke2fs)?;
    let runner = Runner { kernel: &tools.kernel.image, qemu: &tools.qemu, timeout: job.timeout };
    let report = runner.run(guest.arguments(&files), interrupt::requested, |line| watch.line(line));
    watch.ended(matches!(report, Err(Error::Failed(_))));
    report.map_err(|error| error.with_replay(|| job.command(&guest.shape, guest.seed)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::Second;
    use crate::profile::Profile;
    use std::time::Duration;

    /// Tasks' random choices follow from their numbers, on both sides.
    #[test]
    fn the_guests_first_task_has_the_number_of_the_twins() {
        for (setting, daemons) in [("", 2), ("+zswap.enabled=1", 3), ("+hugepages-64kB.enabled=always", 3)] {
            let profile = Profile::parse(&format!("classic{setting}"), &[]).unwrap();
            let job = Job {
                program: "zipf:16M".into(),
                cpus: 1,
                second: Second::Missing,
                memory: 16 << 20,
                swap: 16 << 20,
                areas: Vec::new(),
                seed: 1,
                runs: 1,
                boots: 1,
                profile,
                icount: true,
                original: None,
                append: String::new(),
                timeout: Duration::from_secs(1),
                all: false,
            };
            assert_eq!(Subject::new(&job).unwrap().daemons(), daemons, "{setting}");
        }
    }

    #[test]
    fn an_emulator_with_unfair_turns_is_known_by_its_version() {
        let of = |version| unfair(Some(version)).is_some();
        assert!(of("7.2.22") && of("8.0.50"));
        assert!(!of("8.1.0") && !of("10.0.2") && !of("unknown") && unfair(None).is_none());
    }

    #[test]
    fn linux_6_1_has_one_cpu_in_turn_on_an_emulator_with_unfair_turns() {
        let of = |version, emulator| refuses(version, Some(emulator)).is_some();
        assert!(of("6.1.0-50-cloud-amd64", "7.2.22") && of("6.1", "8.0.5"));
        assert!(!of("6.1.0-50-cloud-amd64", "10.0.2") && refuses("6.1", None).is_none());
        assert!(!of("6.12.117+deb13-cloud-amd64", "7.2.22") && !of("/boot/vmlinuz", "7.2.22"));
    }
}
