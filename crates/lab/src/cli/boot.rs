//! `boot`: a program, a check or the benchmark on the booted machine.

use super::groups::{GroupArg, parse_group};
use super::options::{Style, check_seeds, progress_bar};
use super::output;
use super::pc::{DEFAULT_MEMORY, PcArgs};
use crate::boot::beside::{self, SideBySide};
use crate::boot::{
    Guest, MOST_USUAL_THREADS, Recorded, Report, Runner, Second, Shape, Task, Verdict, bench, find, measured,
};
use crate::cell::Cell;
use crate::document::{Document, Origin, SCHEMA};
use crate::engine::{GroupSpec, Machine, Program};
use crate::error::{Error, Result};
use crate::profile::{Profile, parse_setting};
use crate::record::RunRecord;
use crate::size::parse_bytes;
use crate::summary::{Setup, Summary};
use crate::{human, interrupt, replay, table};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use mm::units::PAGE_SIZE;
use serde::Serialize;
use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Lines of the guest's log that explain a failure of a quiet run.
pub(super) const LAST_LINES: usize = 20;
/// The emulated PC has this much memory below 4 GiB; the rest is above, in another zone.
const BELOW_4G: u64 = 2816 << 20;

/// Arguments of `boot`.
#[derive(Debug, Args)]
pub struct BootArgs {
    /// A trace (FILE.pft); a built-in program ('pagefold list programs'): NAME, NAME:SIZE or NAME:SIZE:THREADS; or
    /// selftest, conformance, scenario:NAME
    #[arg(value_name = "PROGRAM", required_unless_present = "bench")]
    program: Option<String>,
    /// The profile: NAME or NAME+KNOB=VALUE+... ('pagefold list profiles', 'list knobs')
    #[arg(long, default_value = "classic", value_name = "PROFILE")]
    profile: String,
    /// Set a knob; may be given several times
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    settings: Vec<String>,
    /// The PC.
    #[command(flatten)]
    pc: PcArgs,
    /// A zram device, which compresses with lz4; it is swap space, too, and comes first
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes, conflicts_with = "side_by_side")]
    zram: Option<u64>,
    /// A control group with limits, as 'pagefold run' takes it (docs/groups.md); may be given several times
    #[arg(long = "group", value_name = "NAME[:SETTING=VALUE,...]", value_parser = parse_group)]
    groups: Vec<GroupArg>,
    /// The first seed
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Boots, one after the other, with seeds SEED, SEED+1, ...
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    runs: u32,
    /// Check every load against the last store (the default)
    #[arg(long, overrides_with = "no_check")]
    verify: bool,
    /// Do not check loads
    #[arg(long, overrides_with = "verify")]
    no_check: bool,
    /// Run the CPUs in turn, with time that counts instructions, so that equal commands give equal results
    #[arg(long)]
    icount: bool,
    /// Also run the simulated machine of the same shape, and show their counts side by side (docs/boot.md)
    #[arg(long)]
    side_by_side: bool,
    /// Count the instructions of the memory manager's operations, next to Linux's
    #[arg(long, conflicts_with_all = ["program", "side_by_side", "runs", "cpus", "nodes", "tiers", "memory", "swap", "zram"])]
    bench: bool,
    /// The kernel's image [default: $PAGEFOLD_KERNEL, or the checkout's, built on first use]
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// The emulator [default: $PAGEFOLD_QEMU, or qemu-system-x86_64]
    #[arg(long, value_name = "FILE")]
    qemu: Option<PathBuf>,
    /// Kill a guest that has not ended after this time; it has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    timeout: u64,
    /// Skip the N-th flush request to other CPUs (needs a kernel that is built with this fault)
    #[arg(long, value_name = "N", hide = true)]
    drop: Option<u64>,
    /// How to print the result.
    #[command(flatten)]
    style: Style,
    /// No progress and no guest log on standard error; --side-by-side shows the log of a guest that fails only
    #[arg(long, short)]
    quiet: bool,
    /// Report 0 host seconds
    #[arg(long, hide = true)]
    no_host_time: bool,
}

/// `pagefold boot`.
pub(super) fn boot(args: &BootArgs) -> Result<()> {
    let tools = Tools::new(args)?;
    match args.program.as_deref() {
        None => instructions(args, &tools),
        Some(name) => match Task::check(name) {
            Some(task) => check(args, &tools, name, task),
            None => program(args, &tools, name),
        },
    }
}

/// Everything that a boot needs.
struct Tools<'a> {
    args: &'a BootArgs,
    kernel: PathBuf,
    qemu: PathBuf,
    profile: Profile,
}

impl<'a> Tools<'a> {
    fn new(args: &'a BootArgs) -> Result<Tools<'a>> {
        let common = args.settings.iter().map(|text| parse_setting(text)).collect::<Result<Vec<_>>>()?;
        let profile = Profile::parse(&args.profile, &common)?;
        check_seeds(args.seed, args.runs)?;
        let kernel = find::kernel(args.kernel.as_deref())?;
        Ok(Tools { args, kernel, qemu: find::qemu(args.qemu.as_deref())?, profile })
    }

    fn guest(&self, task: Task, shape: Shape) -> Guest {
        let args = self.args;
        Guest {
            task,
            shape,
            seed: args.seed,
            check: !args.no_check,
            knobs: self.profile.knobs.clone(),
            groups: Vec::new(),
            zram: args.zram.unwrap_or(0) / PAGE_SIZE,
            drop: args.drop,
            icount: args.icount,
        }
    }

    /// Boot the guest. Its log goes to standard error if `echo` is set or the guest fails.
    fn run(&self, guest: &Guest, name: &str, echo: bool) -> Result<Report> {
        let runner = Runner {
            kernel: &self.kernel,
            qemu: &self.qemu,
            timeout: Duration::from_secs(self.args.timeout),
        };
        let bar = spinner("booted", name, guest.seed, self.args.quiet);
        let lines = RefCell::new(Vec::new());
        let report = runner.boot(guest, interrupt::requested, |line| {
            if echo {
                bar.suspend(|| eprintln!("{line}"));
            } else {
                bar.set_message(line.to_owned());
                lines.borrow_mut().push(line.to_owned());
            }
        });
        bar.finish_and_clear();
        if let Err(Error::Failed(_)) = report {
            let lines = lines.into_inner();
            lines.iter().skip(lines.len().saturating_sub(LAST_LINES)).for_each(|line| eprintln!("{line}"));
        }
        report.map_err(|error| error.with_replay(|| self.replay_command(guest, name)))
    }

    /// The command line that replays one boot.
    fn replay_command(&self, guest: &Guest, name: &str) -> String {
        let mut words = replay::first_words();
        words.extend(["boot", name].map(str::to_owned));
        let mut add = |flag: &str, value: String| words.extend([flag.to_owned(), value]);
        add("--profile", self.profile.name.clone());
        for (knob, value) in self.profile.settings() {
            add("--set", format!("{knob}={value}"));
        }
        // The benchmark chooses its machines.
        if guest.task != Task::Bench {
            guest.shape.options().into_iter().for_each(|(flag, value)| add(flag, value));
        }
        guest.groups.iter().for_each(|group| add("--group", group.to_string()));
        add("--seed", guest.seed.to_string());
        (guest.zram > 0).then(|| add("--zram", (guest.zram * PAGE_SIZE).to_string()));
        guest.drop.into_iter().for_each(|number| add("--drop", number.to_string()));
        if let Some(kernel) = &self.args.kernel {
            add("--kernel", kernel.display().to_string());
        }
        words.extend((!guest.check).then(|| "--no-check".to_owned()));
        words.extend(self.args.icount.then(|| "--icount".to_owned()));
        replay::shell_line(words)
    }
}

/// A spinner for a guest that runs, hidden when standard error is not a terminal.
pub(super) fn spinner(what: &str, name: &str, seed: u64, quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new_spinner();
    let style = ProgressStyle::with_template("{spinner} {prefix}, {elapsed} {wide_msg}");
    bar.set_style(style.expect("the template is well formed"));
    bar.set_prefix(format!("{what}: {name}, seed {seed}"));
    bar.enable_steady_tick(Duration::from_millis(250));
    bar
}

/// The machine that the options describe, for a program with this peak and footprint.
fn shape(args: &PcArgs, peak_live: u64, footprint: u64) -> Result<Shape> {
    let memory = args.memory(peak_live);
    if !args.areas(memory).is_empty() {
        return Err(Error::input("--swap: the booted machine has one area on a disk; write its size alone"));
    }
    Shape::new(args.cpus, args.second(), memory, args.swap(footprint, memory) / PAGE_SIZE)
}

/// The result of booted runs as JSON: that of any run, and the guest.
#[derive(Serialize)]
struct BootSummary<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    guest: GuestShape,
}

#[derive(Serialize)]
struct GuestShape {
    cpus: u32,
    nodes: u32,
    memory: u64,
    memory_by_node: Vec<u64>,
    swap: u64,
    zram: u64,
    check: bool,
    icount: bool,
}

impl GuestShape {
    fn of(guest: &Guest) -> GuestShape {
        let shape = guest.shape;
        GuestShape {
            cpus: shape.cpus,
            nodes: shape.count(),
            memory: shape.memory(),
            memory_by_node: shape.memory_by_node().to_vec(),
            swap: shape.swap * PAGE_SIZE,
            zram: guest.zram * PAGE_SIZE,
            check: guest.check,
            icount: guest.icount,
        }
    }
}

/// Boot a program, and also run it on the simulated machine if that is requested.
fn program(args: &BootArgs, tools: &Tools<'_>, name: &str) -> Result<()> {
    let program = Program::find(name)?;
    let task = match &program {
        Program::Trace(replay) => Task::Trace(Recorded::new(replay.source())?),
        Program::Named(_) => {
            let words = Program::built_in(name)?;
            // At least as many as any program uses by default.
            let threads = words.threads.unwrap_or(args.pc.cpus.max(MOST_USUAL_THREADS));
            Task::Program { name: words.to_string(), bytes: words.bytes, threads }
        }
    };
    let (footprint, peak_live) = (program.footprint(), program.peak_live());
    let shape = shape(&args.pc, peak_live, footprint)?;
    let groups = args.groups.iter().map(|group| group.resolve(peak_live)).collect::<Vec<_>>();
    let groups = GroupSpec::of_run(&[], &groups).map_err(|why| Error::Input(format!("--group: {why}")))?;
    let guest = Guest { groups, ..tools.guest(task, shape) };
    if args.side_by_side && guest.machine_memory() > BELOW_4G {
        return Err(Error::Input(format!(
            "--side-by-side: a machine of {} has memory above 4 GiB, in another zone, and its simulated twin does not; give it \
             less with --memory",
            human::bytes(guest.machine_memory() as f64)
        )));
    }
    let setup = Setup {
        origin: Origin::here(SCHEMA),
        command: if args.side_by_side { "side-by-side" } else { "boot" }.to_owned(),
        machine: shape.machine_name(),
        program: name.to_owned(),
        memory: Some(shape.memory()),
        senpai: None,
        fragment: None,
        vary: None,
        group: args.groups.iter().map(|group| group.text.clone()).collect(),
        swap: Vec::new(),
        fail: Vec::new(),
        with_machine: None,
        with_memory: None,
        with_swap: Vec::new(),
        phases: None,
        footprint,
        peak_live,
        seed: args.seed,
        runs: args.runs,
        base: None,
        profiles: vec![tools.profile.name.clone()],
        knobs: [(tools.profile.name.clone(), tools.profile.settings())].into(),
        failed: Default::default(),
    };
    interrupt::install()?;
    let start = Instant::now();
    let simulated = match args.side_by_side {
        true => simulate(args, &setup, Arc::new(program), &tools.profile, &guest.groups)?,
        false => Vec::new(),
    };
    let mut booted = Vec::new();
    for seed in (args.seed..).take(args.runs as usize) {
        let guest = Guest { seed, ..guest.clone() };
        // Between two results, what a kernel that works says of itself is noise.
        let report = tools.run(&guest, name, !args.quiet && !args.side_by_side)?;
        let record = measured::record(&report, &guest, &tools.profile.name);
        booted.push(record.map_err(|error| error.with_replay(|| tools.replay_command(&guest, name)))?);
    }
    let host_seconds = if args.no_host_time { 0.0 } else { start.elapsed().as_secs_f64() };
    if args.side_by_side {
        let machine = [args.pc.cpus, shape.count()];
        let mut result = SideBySide::of(setup, machine, &simulated, &booted, args.style.all);
        result.host_seconds = host_seconds;
        return compared(args, &result);
    }
    let summary = Summary::of(setup, &booted, host_seconds, args.style.all);
    let document = BootSummary { summary: &summary, guest: GuestShape::of(&guest) };
    output::either(args.style.json, &document, |width| table::render(&summary, width))
}

/// Run the program on the simulated machine of the same shape.
fn simulate(
    args: &BootArgs,
    setup: &Setup,
    program: Arc<Program>,
    profile: &Profile,
    groups: &[GroupSpec],
) -> Result<Vec<RunRecord>> {
    let machine = Arc::new(Machine::find(&setup.machine)?);
    let mut cell = Cell::new((&setup.program, program), (&setup.machine, machine), profile.clone());
    cell.config.memory = setup.memory;
    cell.config.groups = groups.to_vec();
    let bar = progress_bar(args.runs as usize, args.quiet);
    let mut records = Vec::new();
    for seed in (args.seed..).take(args.runs as usize) {
        if interrupt::requested() {
            return Err(Error::Interrupted("interrupted while the simulated machine ran".into()));
        }
        records.push(cell.run(seed)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(records)
}

/// Print the comparison. A count that differs although it must be equal is a failure.
fn compared(args: &BootArgs, result: &SideBySide) -> Result<()> {
    output::either(args.style.json, result, |width| beside::render(result, width))?;
    output::check_same_work(result.same_work, "machines")?;
    let wrong: Vec<&str> = result.wrong().map(|row| row.metric.as_str()).collect();
    match wrong.is_empty() {
        true => Ok(()),
        false => Err(Error::Failed(format!("counts that must be equal differ: {}", wrong.join(", ")))),
    }
}

/// The result of a check.
#[derive(Serialize)]
struct CheckSummary<'a> {
    check: &'a str,
    guest: GuestShape,
    verdict: &'static str,
    lines: &'a [String],
    /// Loads that the guest checked.
    #[serde(skip)]
    checked: u64,
}

impl Document for CheckSummary<'_> {
    const COMMAND: &'static str = "boot-check";

    fn text(&self, _width: usize) -> String {
        let mut text: String = self.lines.iter().map(|line| format!("{line}\n")).collect();
        let GuestShape { cpus, nodes, memory, .. } = self.guest;
        text += &format!(
            "{}: ok on {}, {}, {}",
            self.check,
            human::plural(u64::from(cpus), "CPU", "CPUs"),
            human::plural(u64::from(nodes), "node", "nodes"),
            human::bytes(memory as f64)
        );
        if self.checked > 0 {
            text += &format!("; {} loads checked", human::grouped(self.checked));
        }
        text + "\n"
    }
}

/// Let the guest test itself.
fn check(args: &BootArgs, tools: &Tools<'_>, name: &str, task: Task) -> Result<()> {
    if args.side_by_side {
        return Err(Error::Input(format!("--side-by-side: '{name}' is not a program; name one to compare")));
    }
    if !args.groups.is_empty() {
        return Err(Error::Input(format!("--group: '{name}' is not a program; name one for the group")));
    }
    let guest = tools.guest(task, shape(&args.pc, DEFAULT_MEMORY, 0)?);
    interrupt::install()?;
    let report = tools.run(&guest, name, false)?;
    let summary = CheckSummary {
        check: name,
        guest: GuestShape::of(&guest),
        verdict: report.end.map_or("", Verdict::word),
        lines: &report.log,
        checked: report.check.map_or(0, |check| check.checked),
    };
    output::show(&summary, args.style.json)
}

/// Count instructions: on one CPU, and on four for operations that involve other CPUs.
fn instructions(args: &BootArgs, tools: &Tools<'_>) -> Result<()> {
    interrupt::install()?;
    let mut reports = Vec::new();
    for cpus in [1, 4] {
        let shape = Shape::new(cpus, Second::Missing, DEFAULT_MEMORY, 0)?;
        let guest = Guest { icount: true, check: false, ..tools.guest(Task::Bench, shape) };
        reports.push((cpus, tools.run(&guest, "--bench", !args.quiet)?));
    }
    let bench = bench::Bench::of(reports.iter().map(|(cpus, report)| (*cpus, report)));
    output::show(&bench, args.style.json)
}
