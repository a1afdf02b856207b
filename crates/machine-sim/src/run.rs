//! One run: a program on a machine, from an empty memory to the end of its last task.

use crate::content::Stamp;
use crate::coroutine::Coroutine;
use crate::fragment::Fragmentation;
use crate::machine::{Class, Fault, SimMachine};
use crate::oracle::OracleReport;
use crate::os::SimOs;
use crate::outcome::Outcome;
use crate::preempt::Watching;
use crate::sched::{Happening, Key, Next, TaskId};
use crate::spec::MachineSpec;
use crate::visits::Visit;
use crate::world::{Kind, World};
use kernel::GroupSpec;
use mm::api::{Daemon, SwapArea};
use mm::knobs::{Knob, KnobError, Knobs};
use mm::policy::MakePolicy;
use mm::units::{DeviceId, PAGE_SIZE};
use mm::{Config, Mm};
use program::Program;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Picoseconds between two ticks of a CPU's clock: 250 a second (CONFIG_HZ of Debian's kernels).
const TICK: u64 = 4_000_000_000;

/// Where a CPU's clock ends, in picoseconds: 53 days. What one access or call adds beyond it still fits into 64 bits,
/// since no cost is above a millisecond (see `spec/check.rs`) and no access counts above 2^32.
pub(crate) const END: u64 = 1 << 62;

/// Picoseconds until the end of a transfer is told again that would have met a CPU that stopped with a lock.
const IO_RETRY: u64 = 1_000_000;

/// What to run on. The program comes beside it.
#[derive(Clone, Debug)]
pub struct RunConfig {
    /// The machine.
    pub machine: MachineSpec,
    /// Bytes of memory to use instead of the machine's own, shared among the nodes as it has them.
    pub memory: Option<u64>,
    /// A state that memory is in when the program begins, instead of that of a machine that has just started.
    pub fragment: Option<Fragmentation>,
    /// Control groups besides the machine's own, or with other limits than those.
    pub groups: Vec<GroupSpec>,
    /// Tunables that differ from their defaults.
    pub knobs: Vec<(Knob, u64)>,
    /// The replacement policy that `reclaim.policy` = `custom` chooses.
    pub custom: Option<MakePolicy>,
    /// Seed of the programs' random choices.
    pub seed: u64,
    /// Let the oracle judge every access.
    pub verify: bool,
    /// A flush that is to go wrong.
    pub faulty: Option<Fault>,
    /// Count what any safe policy would need ([`Outcome::bound`]); a policy that flushes less fails the run.
    pub bound: bool,
    /// Count how few refaults there could have been ([`Outcome::optimum`]). Changes nothing else.
    pub optimum: bool,
    /// Hold compactions against the fewest pages that they must move, and look how much in pieces memory is: metrics
    /// `compaction_...` ([`Outcome::metrics`]). Changes nothing else.
    pub moves: bool,
    /// Hold placement in tiers of memory against the least that reads and moves can cost: metrics `placement_...`
    /// ([`Outcome::metrics`]). Changes nothing else.
    pub placement: bool,
    /// Keep a tree of where CPU time went ([`Outcome::profile`]). Changes nothing else.
    pub profile: bool,
    /// Stop CPUs in the middle of the memory manager's work, at one point in so many, so that others overtake them: for
    /// looking for races, not for measuring. The seed chooses where, and for how long.
    pub preempt: Option<u32>,
    /// Check every structure of the memory manager after every system call and fault.
    pub validate_every_op: bool,
    /// Check them now and then, drawn from the seed; less often the more there is to look at, so that its share of the
    /// run's time is bounded. Changes nothing else.
    pub validate_sometimes: bool,
    /// Looks at generations, and commands for them ([`Outcome::visited`]).
    pub visits: Vec<Visit>,
    /// Stop the run when this becomes true.
    pub interrupt: Option<Arc<AtomicBool>>,
}

impl RunConfig {
    /// A run on `machine` with nothing special.
    pub fn new(machine: MachineSpec) -> RunConfig {
        RunConfig {
            machine,
            memory: None,
            fragment: None,
            groups: Vec::new(),
            knobs: Vec::new(),
            custom: None,
            seed: 1,
            verify: false,
            faulty: None,
            bound: false,
            optimum: false,
            moves: false,
            placement: false,
            profile: false,
            preempt: None,
            validate_every_op: false,
            validate_sometimes: false,
            visits: Vec::new(),
            interrupt: None,
        }
    }
}

/// Why there is no outcome.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RunError {
    /// The configuration cannot be run.
    #[error("{0}")]
    Input(String),
    /// The run failed: the oracle found a wrong access, the bound a missing flush, a check a broken structure, or
    /// nothing could go on.
    #[error("{reason} (seed {seed})")]
    Failed {
        /// What was found.
        reason: String,
        /// The seed that finds it again.
        seed: u64,
    },
    /// The run was stopped from outside.
    #[error("interrupted")]
    Interrupted,
}

impl RunError {
    /// Exit code of a command that ends with it.
    pub fn exit_code(&self) -> i32 {
        match self {
            RunError::Input(_) => 2,
            RunError::Failed { .. } | RunError::Interrupted => 1,
        }
    }
}

/// Run `program`.
pub fn run<P: Program>(config: &RunConfig, program: &P) -> Result<Outcome, RunError> {
    let (machine, knobs) = describe(config)?;
    // Before any lock is taken.
    let _watching = Watching::new(machine.preempt.as_ref());
    let mm = Mm::new(machine, knobs).map_err(RunError::Input)?;
    let mut world = World::new(mm, program, config);
    world.fragment()?;
    world.make_groups()?;
    // Dropped before the world that they borrow.
    let mut tasks = Vec::new();
    let result = drive(&world, &mut tasks);
    drop(tasks);
    result
}

/// The machine of a run, and what the memory manager is told.
pub(crate) fn describe(config: &RunConfig) -> Result<(SimMachine, Config), RunError> {
    let input = |text: String| RunError::Input(text);
    let spec = match config.memory {
        Some(bytes) => config.machine.clone().with_memory(bytes).map_err(|error| input(error.to_string()))?,
        None => config.machine.clone(),
    };
    let knobs = Knobs::default();
    for &(knob, value) in &config.knobs {
        knobs.set(knob, value).map_err(|error| {
            let name = knob.info().name;
            input(match error {
                KnobError::Range { min, max } => format!("{name}: {value} is not between {min} and {max}"),
                KnobError::Unknown => format!("{name}: there is no such knob"),
            })
        })?;
    }
    let area = |(device, pages)| SwapArea { device: DeviceId(device as u8), pages, priority: 0 };
    let swap = spec.swap().map(area).into_iter().collect();
    reserve(&spec)?;
    let machine = SimMachine::new(spec, config).map_err(input)?;
    Ok((machine, Config { knobs, swap, custom: config.custom }))
}

/// Would this computer give the memory for the machine's tables? Only what the program touches is used of it, but to
/// ask for more than there is ends the process.
fn reserve(spec: &MachineSpec) -> Result<(), RunError> {
    // The memory manager's record, the simulator's number of a page table, and the oracle's stamp.
    const FRAME: u64 = (size_of::<mm::frame::Frame>() + size_of::<u32>() + size_of::<Stamp>()) as u64;
    let bytes = spec.memory() / PAGE_SIZE * FRAME;
    Vec::<u8>::new().try_reserve_exact(bytes as usize).map_err(|_| {
        RunError::Input(format!(
            "memory: to simulate {} MiB takes {} MiB of this computer's, which it does not have; give the machine less",
            spec.memory() >> 20,
            bytes >> 20
        ))
    })
}

/// Picoseconds between two looks at whether programs go on: whoever waits for a daemon or a device waits for a small
/// part of that.
const LOOK_EVERY: u64 = 100_000_000_000_000;

/// Looks at whether programs go on.
#[derive(Default)]
struct Halts {
    next: u64,
    before: Option<Vec<(TaskId, Key)>>,
}

impl Halts {
    /// Have all tasks of programs been waiting for the same since the look before?
    fn look<P>(&mut self, world: &World<'_, P>, now: u64) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + LOOK_EVERY;
        let before = std::mem::replace(&mut self.before, world.stuck());
        self.before.as_ref().is_some_and(|waits| !waits.is_empty() && before.as_ref() == Some(waits))
    }
}

/// Start everything, then always do the earliest thing, until nothing is left.
fn drive<'w, P: Program>(
    world: &'w World<'w, P>,
    tasks: &mut Vec<Option<Coroutine<'w>>>,
) -> Result<Outcome, RunError> {
    let failed = |reason: String| RunError::Failed { reason, seed: world.config.seed };
    let machine = world.machine();
    for daemon in world.mm().daemons() {
        world.start(Kind::Daemon(daemon));
    }
    if world.config.visits.iter().any(|visit| visit.at.is_some()) {
        world.start(Kind::Visitor);
    }
    let space = world.kernel.start();
    let space = space
        .map_err(|errno| RunError::Input(format!("memory: too small for an address space ({errno:?})")))?;
    if let Some(oracle) = &world.oracle {
        oracle.borrow_mut().create_space(space.0);
    }
    let mut outcome = None;
    let mut halts = Halts::default();
    loop {
        let born = machine.born.take().into_iter().map(Kind::Program);
        world.tables.borrow_mut().tasks.extend(born);
        while let Some(kind) = world.task(tasks.len() as TaskId) {
            tasks.push(Some(give_life(world, kind).map_err(|error| failed(error.to_string()))?));
        }
        let next = machine.sched.borrow_mut().next();
        match next {
            Next::Event(time, what) => happen(world, time, what),
            Next::Cpu(cpu) if machine.cpus[cpu].clock.get() >= END => return Err(too_long()),
            Next::Cpu(cpu) => {
                if outcome.is_none() && halts.look(world, machine.cpus[cpu].clock.get()) {
                    return Err(failed(format!("deadlock: only daemons go on. {}", world.waiters())));
                }
                run_cpu(world, tasks, cpu);
            }
            Next::Nothing if outcome.is_some() => break,
            Next::Nothing => {
                return Err(failed(format!("deadlock: nothing can run. {}", world.waiters())));
            }
        }
        if let Some(error) = world.failure.borrow_mut().take() {
            return Err(error);
        }
        let missing = machine.bound.as_ref().and_then(|bound| bound.borrow_mut().take_missing());
        if let Some(reason) = missing {
            return Err(failed(reason));
        }
        if let Some(reason) = machine.held_over.borrow_mut().take() {
            return Err(failed(format!("oracle: {reason}")));
        }
        if world.config.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Err(RunError::Interrupted);
        }
        if outcome.is_none() && world.kernel.live() == 0 {
            let taken = Outcome::take(world);
            if let Some(placement) = &machine.placement {
                placement.borrow().report().check().map_err(failed)?;
            }
            taken.optimum.iter().try_for_each(|optimum| optimum.check()).map_err(failed)?;
            outcome = Some(taken);
            let end = world.tables.borrow().ended_at;
            machine.stopping.set(true);
            machine.sched.borrow_mut().wake_all(end);
        }
    }
    if tasks.iter().any(Option::is_some) {
        return Err(failed(format!("deadlock at the end: {}", world.waiters())));
    }
    if world.config.verify || world.config.validate_every_op {
        world.mm().validate().map_err(|fault| failed(format!("validate at the end: {fault}")))?;
    }
    Ok(outcome.expect("the loop ends only with one"))
}

fn too_long() -> RunError {
    let days = END / 1_000_000_000_000 / 86_400;
    RunError::Input(format!(
        "the program runs for more than {days} days, which no clock of the machine can tell"
    ))
}

fn give_life<'w, P: Program>(world: &'w World<'w, P>, kind: Kind) -> std::io::Result<Coroutine<'w>> {
    match kind {
        Kind::Program(task) => Coroutine::new(move || SimOs::new(world, task).live()),
        Kind::Daemon(daemon) => Coroutine::new(move || world.mm().daemon(daemon)),
        Kind::Visitor => Coroutine::new(move || world.pay_visits()),
        Kind::Leaving => unreachable!("a task leaves only after it has lived"),
    }
}

fn happen<P>(world: &World<'_, P>, time: u64, what: Happening) {
    let machine = world.machine();
    match what {
        Happening::Deadline(task, wait) => machine.sched.borrow_mut().deadline(time, task, wait),
        Happening::Io(..) if machine.preempt.as_ref().is_some_and(|stops| stops.keeps_locks()) => {
            machine.sched.borrow_mut().at(time + IO_RETRY, what);
        }
        Happening::Io(device, tag) => {
            let ended = machine.end_io(time, device, tag);
            machine.interrupt(ended.cpu(), time, || ended.parts().for_each(|io| world.mm().io_done(io)));
        }
    }
}

/// Let a CPU run its task up to its limit.
fn run_cpu<'w, P: Program>(world: &'w World<'w, P>, tasks: &mut [Option<Coroutine<'w>>], cpu: usize) {
    let machine = world.machine();
    machine.current.set(cpu);
    let Some(picked) = machine.sched.borrow_mut().pick(cpu) else { return };
    let (class, space) = match &world.tables.borrow().tasks[picked.task as usize] {
        Kind::Program(task) => (Class::System, Some(task.space())),
        Kind::Leaving => (Class::System, None),
        Kind::Daemon(Daemon::Kswapd(_)) => (Class::Kswapd, None),
        Kind::Daemon(Daemon::Flusher) => (Class::Flusher, None),
        Kind::Daemon(Daemon::Khugepaged | Daemon::Kpromoted | Daemon::Kcompactd(_)) | Kind::Visitor => {
            (Class::System, None)
        }
    };
    machine.class.set(class);
    // The way to the task and back is the class's, not the place's in which the task has been left.
    machine.profiled(|profile| profile.go_to_root(class));
    machine.task.set(picked.task);
    machine.limit.set(picked.limit.min(END));
    if picked.switched {
        machine.unplug();
        machine.charge_switch();
    }
    if machine.run_space(space) {
        world.mm().switch(space);
    }
    if world.config.faulty.is_some() {
        machine.late_flushes();
    }
    if space.is_some() && world.ticks.get() {
        tick(world, cpu);
    }
    machine.profiled(|profile| profile.resume(picked.task));
    let coroutine = tasks[picked.task as usize].as_mut().expect("a task that runs has not ended");
    let ended = machine.stoppable(true, || coroutine.resume());
    machine.keep_stopped();
    machine.profiled(|profile| {
        profile.suspend(picked.task);
        profile.go_to_root(Class::System);
    });
    if ended {
        machine.unplug();
        tasks[picked.task as usize] = None;
        machine.sched.borrow_mut().end(cpu);
    }
    machine.class.set(Class::System);
    if machine.sched.borrow_mut().rest(cpu) && machine.run_space(None) {
        world.mm().switch(None);
    }
}

/// The clock of a CPU that runs a program ticks, if that is due, and will tick again.
fn tick<P>(world: &World<'_, P>, cpu: usize) {
    let machine = world.machine();
    let here = machine.here();
    if here.clock.get() >= here.next_tick.get() {
        here.next_tick.set(here.clock.get() + TICK);
        machine.on(cpu, Class::Interrupt, || world.mm().tick());
    }
    machine.limit.set(machine.limit.get().min(here.next_tick.get()));
}

/// What the oracle saw.
pub(crate) fn verdict<P>(world: &World<'_, P>) -> OracleReport {
    world.oracle.as_ref().map(|oracle| oracle.borrow().report.clone()).unwrap_or_default()
}
