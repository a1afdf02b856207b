//! One run: a program on a machine, from empty memory to the end of its last task.

use crate::config::{RunConfig, RunError};
use crate::content::Stamp;
use crate::coroutine::Coroutine;
use crate::cpu::{Class, END};
use crate::machine::SimMachine;
use crate::metrics;
use crate::os::SimOs;
use crate::outcome::Outcome;
use crate::preempt::LockWatch;
use crate::sched::{Key, Next, TICK, TaskId};
use crate::simulation::{Simulation, TaskKind};
use crate::spec::MachineSpec;
use crate::timeline::{Happening, Stop};
use mm::api::{Daemon, SwapArea};
use mm::knobs::{Knob, KnobError, Knobs};
use mm::lock;
use mm::stat::Stat;
use mm::units::{Nanos, PAGE_SIZE};
use mm::{Config, Mm};
use program::Program;
use program::rng::Rng;
use std::sync::atomic::Ordering;

/// Run `program`.
pub fn run<P: Program>(config: &RunConfig, program: &P) -> Result<Outcome, RunError> {
    let (machine, mm_config) = prepare(config)?;
    // Before any lock is taken.
    let _watch = LockWatch::new(machine.preempt.as_ref());
    let _waiting = machine.waiting.clone().map(|waiting| lock::clock(waiting));
    let mm = Mm::new(machine, mm_config).map_err(RunError::Input)?;
    let mut sim = Simulation::new(mm, program, config);
    sim.take_kernels_memory()?;
    sim.fragment()?;
    sim.make_groups()?;
    // Dropped before the simulation that they borrow.
    let mut tasks = Vec::new();
    let result = drive(&sim, &mut tasks);
    drop(tasks);
    result
}

/// The machine of a run, and the memory manager's configuration.
pub(crate) fn prepare(config: &RunConfig) -> Result<(SimMachine, Config), RunError> {
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
    let spec = match config.swap.is_empty() {
        true => spec,
        false => spec.with_swap(&config.swap).map_err(|error| input(error.to_string()))?,
    };
    let spec = spec.with_failures(&config.fail).map_err(|error| input(error.to_string()))?;
    if config.optimum && spec.may_fail() {
        return Err(input("optimum: the best possible policy is not known with devices that fail".into()));
    }
    let swap = spec.swap_areas().map_err(|error| input(error.to_string()))?;
    if config.optimum && (config.contents || packs(&swap, &knobs)) {
        return Err(input("optimum: the best possible policy is not known with compressed swap".into()));
    }
    reserve(&spec)?;
    let contents = config.contents || packs(&swap, &knobs);
    let machine = SimMachine::new(spec, config, contents).map_err(input)?;
    let statistics_age = statistics_age(config.seed ^ u64::from(config.boot) << 32, &knobs);
    Ok((machine, Config { knobs, swap, custom: config.custom, statistics_age }))
}

/// Whether what is swapped out may stay in memory.
pub(crate) fn packs(areas: &[SwapArea], knobs: &Knobs) -> bool {
    areas.iter().any(|area| area.zram.is_some()) || knobs.get(Knob::ZswapEnabled) != 0
}

/// How long ago the statistics of groups were added up when the program begins. A machine does that at a fixed rate
/// from its boot on, and programs begin at any time.
fn statistics_age(seed: u64, knobs: &Knobs) -> Nanos {
    const MILLISECOND: Nanos = 1_000_000;
    let period = knobs.get(Knob::MemcgFlushMs) * MILLISECOND;
    Rng::new(seed ^ 0x7374_6174).below(period.max(1))
}

/// Check that this computer has the memory for the machine's tables. Only what the program touches is used of it, but
/// an allocation of more than there is would end the process.
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

/// Picoseconds between two checks that programs make progress, much more than a wait for a daemon or a device.
const HANG_CHECK: u64 = 100_000_000_000_000;

/// Finds runs in which only daemons run.
#[derive(Default)]
struct HangDetector {
    next: u64,
    before: Looked,
}

/// What tasks of programs wait for, and the faults until then.
type Looked = (Option<Vec<(TaskId, Key)>>, i64);

impl HangDetector {
    /// Whether all tasks of programs have waited for the same since the check before. Those of a program that thrashes
    /// may wait for the same each time that somebody looks, but they fault in between.
    fn is_hung(&mut self, now: u64, look: impl FnOnce() -> Looked) -> bool {
        if now < self.next {
            return false;
        }
        self.next = now + HANG_CHECK;
        let before = std::mem::replace(&mut self.before, look());
        self.before.0.as_ref().is_some_and(|waits| !waits.is_empty()) && before == self.before
    }
}

/// Start everything, then always do the earliest thing, until nothing is left.
fn drive<'s, P: Program>(
    sim: &'s Simulation<'s, P>,
    tasks: &mut Vec<Option<Coroutine<'s>>>,
) -> Result<Outcome, RunError> {
    let failed = |reason: String| RunError::Failed { reason, seed: sim.config.seed };
    let machine = sim.machine();
    machine.observers.mute(false);
    start(sim)?;
    let mut outcome = None;
    let mut hangs = HangDetector::default();
    let limit = sim.config.time_limit.map_or(END, |nanos| nanos.saturating_mul(1000).min(END));
    loop {
        for task in machine.new_tasks.take() {
            sim.add_task(TaskKind::Program(task));
        }
        while let Some(kind) = sim.task(tasks.len() as TaskId) {
            tasks.push(Some(coroutine(sim, kind).map_err(|error| failed(error.to_string()))?));
        }
        let next = machine.sched.borrow_mut().next();
        match next {
            Next::Event(time, event) => machine.handle(time, event, |io, done| sim.end_io(io, done)),
            Next::Cpu(cpu) if machine.cpus[cpu].clock.get() >= limit => {
                return Err(sim.config.time_limit.map_or_else(too_long, RunError::TimeLimit));
            }
            Next::Cpu(cpu) => {
                let look = || (sim.waits(), sim.mm().core().stats.read(Stat::Pgfault));
                if outcome.is_none() && hangs.is_hung(machine.cpus[cpu].clock.get(), look) {
                    return Err(failed(format!("deadlock: only daemons go on. {}", sim.waiters())));
                }
                if outcome.is_none() {
                    sim.show_levels(machine.cpus[cpu].clock.get());
                }
                run_cpu(sim, tasks, cpu);
            }
            Next::Nothing if outcome.is_some() => break,
            Next::Nothing => {
                return Err(failed(format!("deadlock: nothing can run. {}", sim.waiters())));
            }
        }
        if let Some(error) = sim.failure.borrow_mut().take() {
            return Err(error);
        }
        if let Some(reason) = machine.observers.take_failure() {
            return Err(failed(reason));
        }
        if sim.config.interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)) {
            return Err(RunError::Interrupted);
        }
        if outcome.is_none() && sim.kernel.live() == 0 {
            outcome = Some(conclude(sim).map_err(failed)?);
        }
    }
    if tasks.iter().any(Option::is_some) {
        return Err(failed(format!("deadlock at the end: {}", sim.waiters())));
    }
    if sim.config.verify || sim.config.validate_every_op {
        sim.mm().validate().map_err(|fault| failed(format!("validate at the end: {fault}")))?;
    }
    Ok(outcome.expect("the loop ends only with one"))
}

/// Start the daemons and the program's first process.
fn start<P>(sim: &Simulation<'_, P>) -> Result<(), RunError> {
    for daemon in sim.mm().daemons() {
        sim.start_kernel_task(TaskKind::Daemon(daemon));
    }
    if sim.config.visits.iter().any(|visit| visit.at.is_some()) {
        sim.start_kernel_task(TaskKind::Visitor);
    }
    if sim.config.senpai.is_some() {
        sim.controlled()?;
        sim.start_kernel_task(TaskKind::Senpai);
    }
    let space = sim.kernel.start();
    let space = space
        .map_err(|errno| RunError::Input(format!("memory: too small for an address space ({errno:?})")))?;
    match sim.config.vary.lower_by(sim.config.seed) {
        0 => {}
        pages => sim.machine().unaccounted(|| sim.mm().lower_mmap_base(space, pages)),
    }
    if let Some(oracle) = &sim.oracle {
        oracle.borrow_mut().create_space(space.0);
    }
    Ok(())
}

/// The program has ended: collects the outcome, and tells the daemons to stop.
fn conclude<P>(sim: &Simulation<'_, P>) -> Result<Outcome, String> {
    let machine = sim.machine();
    let end = sim.state.borrow().ended_at;
    sim.make_last_visits(end);
    sim.show_levels_at(end);
    let outcome = metrics::collect(sim);
    if let Some(placement) = &machine.observers.placement {
        placement.borrow().report().check()?;
    }
    outcome.optimum.iter().try_for_each(|optimum| optimum.check())?;
    machine.stopping.set(true);
    machine.sched.borrow_mut().wake_all(end);
    Ok(outcome)
}

fn too_long() -> RunError {
    let days = END / 1_000_000_000_000 / 86_400;
    RunError::Input(format!(
        "the program runs for more than {days} days, which no clock of the machine can tell"
    ))
}

fn coroutine<'s, P: Program>(sim: &'s Simulation<'s, P>, kind: TaskKind) -> std::io::Result<Coroutine<'s>> {
    match kind {
        TaskKind::Program(task) => Coroutine::new(move || SimOs::new(sim, task).run()),
        TaskKind::Daemon(daemon) => Coroutine::new(move || sim.mm().daemon(daemon)),
        TaskKind::Visitor => Coroutine::new(move || sim.make_visits()),
        TaskKind::Senpai => Coroutine::new(move || sim.control()),
        TaskKind::Leaving => unreachable!("a task leaves only after it has run"),
    }
}

/// Let a CPU run its task up to its limit.
fn run_cpu<'s, P: Program>(sim: &'s Simulation<'s, P>, tasks: &mut [Option<Coroutine<'s>>], cpu: usize) {
    let machine = sim.machine();
    machine.current.set(cpu);
    let Some(picked) = machine.sched.borrow_mut().pick(cpu) else { return };
    let (class, space) = match &sim.state.borrow().tasks[picked.task as usize] {
        TaskKind::Program(task) => (Class::System, Some(task.space())),
        TaskKind::Leaving => (Class::System, None),
        TaskKind::Daemon(Daemon::Kswapd(_)) => (Class::Kswapd, None),
        TaskKind::Daemon(Daemon::Flusher) => (Class::Flusher, None),
        TaskKind::Daemon(
            Daemon::Khugepaged
            | Daemon::Kpromoted
            | Daemon::Kcompactd(_)
            | Daemon::Zswap
            | Daemon::ZramUpkeep
            | Daemon::Kdamond,
        )
        | TaskKind::Visitor
        | TaskKind::Senpai => (Class::System, None),
    };
    machine.begin_turn(picked, class);
    machine.observers.happens(|| machine.context(), Happening::Runs);
    if machine.run_space(space) {
        sim.mm().switch(space);
    }
    if sim.config.flush_fault.is_some() {
        machine.flush_faults.run_late((cpu, machine.this_cpu()));
    }
    if space.is_some() && sim.ticks.get() {
        tick(sim, cpu);
    }
    machine.profiled(|profile| profile.resume(picked.task));
    let coroutine = tasks[picked.task as usize].as_mut().expect("a task that runs has not ended");
    let ended = machine.stoppable(true, || coroutine.resume());
    machine.keep_stopped();
    machine.profiled(|profile| {
        profile.suspend(picked.task);
        profile.end_turn(picked.task, machine.this_cpu());
        profile.go_to_root(Class::System);
    });
    if machine.observers.timeline.is_some() {
        let stop = stop(machine, picked.task, ended);
        machine.observers.happens(|| machine.context(), Happening::Stops(stop));
    }
    if ended {
        machine.unplug();
        tasks[picked.task as usize] = None;
        machine.sched.borrow_mut().end(cpu);
    }
    machine.class.set(Class::System);
    machine.waiting.iter().for_each(|waiting| waiting.go_on(cpu, Class::System));
    if machine.sched.borrow_mut().becomes_idle(cpu) {
        machine.observers.happens(|| machine.context(), Happening::Idles);
        if machine.run_space(None) {
            sim.mm().switch(None);
        }
    }
}

/// Why the task of the current CPU does not go on.
fn stop(machine: &SimMachine, task: TaskId, ended: bool) -> Stop {
    match machine.sched.borrow().blocked_on(task) {
        _ if ended => Stop::Ends,
        Some(_) => Stop::Sleeps,
        None => Stop::Preempted,
    }
}

/// The clock of a CPU that runs a program ticks if its tick is due.
fn tick<P>(sim: &Simulation<'_, P>, cpu: usize) {
    let machine = sim.machine();
    let next = &machine.this_cpu().next_tick;
    if machine.clock() >= next.get() {
        next.set(machine.clock() + TICK);
        machine.on(cpu, Class::Interrupt, || sim.mm().tick());
    }
    machine.limit.set(machine.limit.get().min(next.get()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use mm::machine::WaitKey;

    #[test]
    fn a_program_that_faults_between_two_checks_is_not_hung() {
        let key = Key::Mm(WaitKey::Reclaim(mm::units::NodeId(0)));
        let looked = |faults| (Some(vec![(2, key)]), faults);
        let mut hangs = HangDetector::default();
        let mut check = |number: u64, looked: Looked| hangs.is_hung(number * HANG_CHECK, || looked);
        assert!(!check(0, looked(5)) && !check(1, looked(900)));
        assert!(!check(2, (None, 900)) && !check(3, looked(900)));
        assert!(check(4, looked(900)));
    }
}
