//! The simulated machine and a memory manager without the simulated kernel, for tests that bring their own tasks.
//!
//! There are no processes, no programs and no oracle. A task is a function that stays on its CPU and may enter an
//! address space. A wrapper around the machine can change what it does, to test what finds faults.

use crate::config::{RunConfig, RunError};
use crate::coroutine::{self, Coroutine};
use crate::cpu::Class;
use crate::machine::SimMachine;
use crate::run::prepare;
use crate::sched::Next;
use mm::Mm;
use mm::api::AccessKind;
use mm::machine::{Io, Machine};
use mm::units::{CpuId, SpaceId, Vpn};
use std::cell::{Cell, RefCell};

/// Picoseconds that [`Bare::spin`] takes.
const SPIN: u64 = 200_000;
/// Picoseconds that [`Bare::pause`] takes.
const PAUSE: u64 = 500_000;
/// Picoseconds of an access.
const ACCESS: u64 = 1_000;

type Body<'b, M> = Box<dyn FnOnce(&Bare<'b, M>) + 'b>;

/// A machine, the memory manager on it, and tasks.
pub struct Bare<'b, M: Machine> {
    mm: Mm<M>,
    io_done: &'b dyn Fn(&Mm<M>, &Io),
    /// The space of each task.
    spaces: RefCell<Vec<Option<SpaceId>>>,
    /// Tasks that have no coroutine yet.
    new_tasks: RefCell<Vec<Body<'b, M>>>,
    failure: RefCell<Option<String>>,
    ended: Cell<bool>,
}

/// Run `main` as a task on the first CPU of the machine of `config`, and the daemons, until it ends.
///
/// `config` must have `verify`, without which pages have no content. `wrap` makes the machine that the memory manager
/// sees. `io_done` is called at every transfer's end and must tell the memory manager.
pub fn run<'b, M: Machine + AsRef<SimMachine> + 'b>(
    config: &RunConfig,
    wrap: impl FnOnce(SimMachine) -> M,
    io_done: &'b dyn Fn(&Mm<M>, &Io),
    main: impl FnOnce(&Bare<'b, M>) + 'b,
) -> Result<(), RunError> {
    let (machine, mm_config) = prepare(config)?;
    let mm = Mm::new(wrap(machine), mm_config).map_err(RunError::Input)?;
    let bare = Bare {
        mm,
        io_done,
        spaces: RefCell::default(),
        new_tasks: RefCell::default(),
        failure: RefCell::default(),
        ended: Cell::new(false),
    };
    for daemon in bare.mm.daemons() {
        bare.spawn(CpuId(0), Box::new(move |bare| bare.mm.daemon(daemon)));
    }
    bare.spawn(
        CpuId(0),
        Box::new(move |bare| {
            main(bare);
            bare.ended.set(true);
        }),
    );
    // Dropped before what they borrow.
    let mut tasks = Vec::new();
    let result = bare.drive(&mut tasks);
    drop(tasks);
    result.map_err(|reason| RunError::Failed { reason, seed: config.seed })
}

impl<'b, M: Machine + AsRef<SimMachine>> Bare<'b, M> {
    /// The memory manager.
    pub fn mm(&self) -> &Mm<M> {
        &self.mm
    }

    /// Start a task that stays on `cpu`.
    pub fn start(&self, cpu: CpuId, entry: fn(usize), argument: usize) {
        self.spawn(cpu, Box::new(move |_| entry(argument)));
    }

    fn spawn(&self, cpu: CpuId, body: Body<'b, M>) {
        let sim = self.sim();
        sim.sched.borrow_mut().spawn_on(sim.clock(), cpu.index());
        sim.lower_limit();
        self.spaces.borrow_mut().push(None);
        self.new_tasks.borrow_mut().push(body);
    }

    /// The task that runs enters `space`.
    pub fn enter(&self, space: Option<SpaceId>) {
        self.spaces.borrow_mut()[self.sim().task.get() as usize] = space;
        self.switch(space);
    }

    /// Let all other tasks of this CPU run.
    pub fn pause(&self) {
        let sim = self.sim();
        sim.unplug();
        sim.this_cpu().spend(PAUSE);
        sim.sched.borrow_mut().give_way(sim.current.get());
        coroutine::suspend();
    }

    /// Keep the CPU for a moment; other CPUs run.
    pub fn spin(&self) {
        self.sim().this_cpu().spend(SPIN);
        self.sim().yield_if_due();
    }

    /// Access a page as a program would, but serve no fault. Returns the content; `None` for a fault.
    pub fn access(&self, page: Vpn, kind: AccessKind, store: Option<u64>) -> Option<u64> {
        let sim = self.sim();
        sim.this_cpu().spend(ACCESS);
        let (cached, _) = sim.translate(sim.this_cpu(), page, kind).ok()?;
        let mut content = sim.observers.content.as_ref().expect("a bare run must have `verify`").borrow_mut();
        if let Some(value) = store {
            content.set(cached.pfn(), value);
            // A page of one word repeats it.
            if let Some(packing) = &sim.observers.packing {
                packing.borrow_mut().fill(cached.pfn());
            }
        }
        Some(content.frame(cached.pfn()))
    }

    /// Do `work` as if an interrupt had come to this CPU.
    pub fn interrupt(&self, work: impl FnOnce()) {
        self.sim().on(self.sim().current.get(), Class::Interrupt, work);
    }

    /// The run has failed; no task continues.
    pub fn give_up(&self, why: &str) -> ! {
        self.failure.borrow_mut().get_or_insert_with(|| why.into());
        loop {
            coroutine::suspend();
        }
    }

    fn sim(&self) -> &SimMachine {
        self.mm.machine().as_ref()
    }

    fn switch(&self, space: Option<SpaceId>) {
        if self.sim().run_space(space) {
            self.mm.switch(space);
        }
    }

    /// Always do the earliest thing, until nothing is left.
    fn drive<'t>(&'t self, tasks: &mut Vec<Option<Coroutine<'t>>>) -> Result<(), String> {
        let mut stopped = false;
        loop {
            for body in self.new_tasks.take() {
                let task = Coroutine::new(move || body(self)).map_err(|error| error.to_string())?;
                tasks.push(Some(task));
            }
            let next = self.sim().sched.borrow_mut().next();
            match next {
                Next::Event(time, event) => {
                    self.sim().handle(time, event, |io, done| match done {
                        true => (self.io_done)(&self.mm, io),
                        false => self.mm.io_failed(io),
                    });
                }
                Next::Cpu(cpu) => self.run_cpu(tasks, cpu),
                Next::Nothing if tasks.iter().all(Option::is_none) => return Ok(()),
                Next::Nothing => return Err("deadlock: nothing can run".into()),
            }
            if let Some(why) = self.failure.take() {
                return Err(why);
            }
            if self.ended.get() && !stopped {
                stopped = true;
                self.sim().stopping.set(true);
                let now = self.sim().clock();
                self.sim().sched.borrow_mut().wake_all(now);
            }
        }
    }

    /// Let a CPU run its task up to its limit.
    fn run_cpu(&self, tasks: &mut [Option<Coroutine<'_>>], cpu: usize) {
        let sim = self.sim();
        sim.current.set(cpu);
        let Some(picked) = sim.sched.borrow_mut().pick(cpu) else { return };
        sim.begin_turn(picked, Class::System);
        let space = self.spaces.borrow()[picked.task as usize];
        self.switch(space);
        let coroutine = tasks[picked.task as usize].as_mut().expect("a task that runs has not ended");
        if coroutine.resume() {
            sim.unplug();
            tasks[picked.task as usize] = None;
            sim.sched.borrow_mut().end(cpu);
        }
        if sim.sched.borrow_mut().becomes_idle(cpu) {
            self.switch(None);
        }
    }
}
