//! Linux's side of a comparison, as its boots have shown it. Kept in a file, it is a judge that needs no kernel: the
//! simulated side can be run again beside it after every change of the simulator.

use super::conditions;
use super::job::Job;
use super::judge::counts::held;
use super::twin::Speed;
use crate::boot::{Report, Shape};
use crate::document::{Origin, SCHEMA};
use crate::error::{Error, Result};
use crate::profile::parse_setting;
use crate::record::{Better, Measured, OracleRecord, RunRecord, WorkDone};
use crate::statistics::mean;
use mm::units::PAGE_SIZE;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What boots of Linux have shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Boots {
    /// The build that booted.
    #[serde(flatten)]
    pub origin: Origin,
    /// The command that boots the first seed again.
    pub command: String,
    /// Version of the kernel.
    pub kernel: String,
    /// Version of QEMU, if it told it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub emulator: Option<String>,
    /// Boots with each seed.
    pub boots: u32,
    /// Whether the guest's time counted instructions.
    pub icount: bool,
    /// What the guests measured of themselves, on average.
    pub measured: BTreeMap<String, f64>,
    /// What the first guest has, by name.
    pub found: Vec<(String, String)>,
    /// Boot by boot, in the order of seeds, then of boots with one seed.
    pub runs: Vec<RunRecord>,
}

impl Boots {
    /// What boots of this kernel have reported, each with its seed.
    pub(super) fn of(kernel: &str, job: &Job, shape: &Shape, reports: &[(u64, Report)]) -> Result<Boots> {
        let runs = reports.iter().map(|(seed, report)| record(report, *seed, job)).collect::<Result<_>>()?;
        let first = reports.first().map(|(_, report)| report);
        let names = first.into_iter().flat_map(|report| &report.metrics).map(|(name, _)| name.clone());
        let average = |name: &str| {
            mean(&reports.iter().map(|(_, report)| measured(report, name)).collect::<Vec<f64>>())
        };
        Ok(Boots {
            origin: Origin::here(SCHEMA),
            command: job.command(shape, job.seed),
            kernel: kernel.to_owned(),
            emulator: None,
            boots: job.boots,
            icount: job.icount,
            measured: names.map(|name| (name.clone(), average(&name))).collect(),
            found: first.map_or_else(Vec::new, |report| report.conditions.clone()),
            runs,
        })
    }

    /// What the guests measured of themselves, on average; 0 if they did not.
    pub fn measured(&self, name: &str) -> f64 {
        self.measured.get(name).copied().unwrap_or(0.0)
    }

    /// Seeds.
    pub fn seeds(&self) -> u32 {
        self.runs.len() as u32 / self.boots.max(1)
    }

    /// Refuse boots that were made for something else than `job`. What only the simulated machine has, like the
    /// profile's name and knobs that are no settings of Linux, may have changed since.
    pub(super) fn must_be_of(&self, job: &Job, shape: &Shape) -> Result<()> {
        let wanted = job.command(shape, job.seed);
        let pages = shape.memory() / PAGE_SIZE;
        let seen = seen_by_guest(&self.command, pages);
        let same = self.command == wanted || seen.is_some() && seen == seen_by_guest(&wanted, pages);
        if same && self.seeds() == job.runs {
            return Ok(());
        }
        let of = |command: &str, runs: u32| format!("'{command}' with --runs {runs}");
        Err(Error::Input(format!(
            "the boots are of {}, and not of {}",
            of(&self.command, self.seeds()),
            of(&wanted, job.runs)
        )))
    }

    /// How slow guests were that ran a program itself, of whose recording this is the number of instructions: accesses
    /// are among them.
    pub(super) fn speed_of_original(&self, instructions: u64) -> Speed {
        // 0 would be the default.
        const NOTHING: f64 = 0.001;
        let instruction_nanos = self.user_nanos() / instructions.max(1) as f64;
        Speed { instruction_nanos, access_nanos: NOTHING, ..self.speed() }
    }

    /// Nanoseconds that programs worked in user mode. Where CPUs run in turn, the kernel counts the turns of others as
    /// their work, too; but all of them together do not work longer than the run takes.
    fn user_nanos(&self) -> f64 {
        let counted = self.measured("user_nanos");
        let whole = mean(&self.runs.iter().map(|run| run.nanos as f64).collect::<Vec<f64>>());
        if self.icount { counted.min(whole) } else { counted }
    }

    /// How slow the guests were.
    pub(super) fn speed(&self) -> Speed {
        let accesses = mean(&self.runs.iter().map(|run| run.work.accesses as f64).collect::<Vec<f64>>());
        let nanos = |name| self.measured(name) / 1000.0;
        let instruction_nanos = nanos("instruction_picos");
        let accessing = self.user_nanos() - self.measured("computed") * instruction_nanos;
        // Boots up to 2026-11-27 do not tell. All had kernels of Debian, whose configuration is to clear pages.
        let clears = self.measured.get("clears_pages").copied();
        let speed = Speed {
            clears_pages: clears.map_or(self.kernel.ends_with("-amd64"), |clears| clears != 0.0),
            fault_nanos: nanos("fault_picos"),
            zero_fault_nanos: nanos("zero_fault_picos"),
            copy_fault_nanos: nanos("copy_fault_picos"),
            read_nanos: nanos("read_picos"),
            instruction_nanos,
            pack_nanos: nanos("pack_picos"),
            unpack_nanos: nanos("unpack_picos"),
            access_nanos: if accesses > 0.0 { (accessing / accesses).max(0.0) } else { 0.0 },
            read_micros: self.measured("read_micros"),
            disk_idle_nanos: self.measured("warm_disk_idle_nanos"),
            disk_idle_large_nanos: self.measured("warm_disk_idle_large_nanos"),
            disk_working_nanos: self.measured("warm_disk_working_nanos"),
        };
        // Where nothing was read, nothing tells how slow the disk was in the run.
        match speed.disk_idle_nanos == 0.0 && speed.read_micros > 0.0 {
            true => speed.with_usual_disk(),
            false => speed,
        }
    }
}

/// What a guest sees of the command that boots it.
#[derive(Debug, PartialEq)]
struct Seen {
    /// The words before the profile and its knobs, and those after.
    around: [String; 2],
    /// The profile and its knobs, as files and values.
    settings: Vec<(String, String)>,
}

/// What a guest with `pages` of memory sees of `command`. `None`: it is no such command, or not for Linux.
fn seen_by_guest(command: &str, pages: u64) -> Option<Seen> {
    let (before, rest) = command.split_once(" --profile ")?;
    let (_name, mut rest) = rest.split_once(' ')?;
    let mut knobs = Vec::new();
    while let Some((setting, more)) = rest.strip_prefix("--set ").and_then(|set| set.split_once(' ')) {
        // A knob that is gone was not Linux's, or its successor makes the difference.
        knobs.extend(parse_setting(setting).ok());
        rest = more;
    }
    let settings = conditions::settings(&knobs, pages).ok()?;
    Some(Seen {
        around: [before.to_owned(), rest.to_owned()],
        settings: settings.into_iter().map(|setting| (setting.file, setting.value)).collect(),
    })
}

fn measured(report: &Report, name: &str) -> f64 {
    report.metrics.iter().find(|(known, _)| known == name).map_or(0.0, |(_, value)| *value as f64)
}

/// What compressed swap held.
fn level((name, value): &(String, u64)) -> Measured {
    Measured { name: name.clone(), value: *value as f64, unit: String::new(), better: Better::Lower }
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
        metrics: report.metrics.iter().filter(|(name, _)| held(name).is_some()).map(level).collect(),
        costs: Default::default(),
        oracle: OracleRecord::default(),
        covered: Default::default(),
        bound: None,
        profile_tree: None,
        task_time: None,
        locks: Vec::new(),
        lines: Vec::new(),
        lru_gen: Vec::new(),
        fragmented: None,
        groups: Vec::new(),
        proc_files: Default::default(),
        optimum: None,
        warnings: report.notes.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A profile may get knobs that Linux does not have, or another name, and the boots stay valid.
    #[test]
    fn boots_are_of_a_job_whose_guest_sees_the_same() {
        let command = |profile: &str, rest: &str| {
            format!("pagefold linux zipf:64M --profile {profile} --cpus 2 --memory 33554432{rest}")
        };
        let seen = |command: &str| seen_by_guest(command, 8192);
        let first = command("classic --set vm.swappiness=10", " --append 'a --set vm.swappiness=9'");
        let same = first.replace("classic", "classic-7.2 --set file.read_ahead_form=1 --set no.such_knob=3");
        assert!(seen(&first).is_some() && seen(&first) == seen(&same));
        for other in [
            first.replace("=10", "=11"),
            first.replace("=9", "=8"),
            first.replace("classic", "mglru --set reclaim.policy=1"),
            first.replace("--cpus 2", "--cpus 1"),
            first.replace("zipf", "uniform"),
        ] {
            assert_ne!(seen(&first), seen(&other), "{other}");
        }
        let not_for_linux = first.replace("classic", "classic --set file.max_order=4");
        assert_eq!((seen(&not_for_linux), seen("pagefold run zipf")), (None, None));
    }

    #[test]
    fn programs_on_cpus_in_turn_do_not_work_longer_than_the_run_takes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../truth/6.12/trace-redis.classic.boots.json");
        let mut boots: Boots = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let nanos = mean(&boots.runs.iter().map(|run| run.nanos as f64).collect::<Vec<f64>>());
        // Two busy CPUs count each other's turns.
        boots.measured.insert("user_nanos".to_owned(), 1.5 * nanos);
        assert_eq!(boots.user_nanos(), nanos);
        let beside = Boots { icount: false, ..boots.clone() };
        assert_eq!(beside.user_nanos(), 1.5 * nanos);
        assert!(beside.speed().access_nanos > boots.speed().access_nanos);
    }
}
