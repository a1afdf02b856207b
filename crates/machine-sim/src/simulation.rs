//! All parts of one run: the kernel, the program, and what checks them.

use crate::config::{RunConfig, RunError};
use crate::content::{ORIGINAL, Stamp};
use crate::fragment::{Fragmented, fragment, kernels};
use crate::machine::SimMachine;
use crate::oracle::{Oracle, OracleReport};
use crate::outcome::{SenpaiOutcome, Visited};
use crate::sched::{Key, TaskId};
use crate::timeline::{Happening, NewTask};
use kernel::{Disk, File, GroupSpec, Kernel, Task};
use mm::Mm;
use mm::api::{Daemon, FileKind};
use mm::frame::{FrameFlags, Owner};
use mm::machine::Io;
use mm::units::{DeviceId, Nanos, PAGE_SIZE, pages_of};
use mm::zram::ZramStat;
use mm::zswap::ZswapStat;
use program::rng::Rng;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Whether only some settings have this daemon, on which random numbers of programs must not depend.
fn is_own(daemon: Daemon) -> bool {
    matches!(daemon, Daemon::Kpromoted | Daemon::ZramUpkeep | Daemon::Kdamond)
}

/// How many frames and translations are validated in about the time of one operation.
const PER_OPERATION: u64 = 16;

/// What a task is.
#[derive(Clone)]
pub(crate) enum TaskKind {
    Program(Arc<Task>),
    Daemon(Daemon),
    /// Makes the configuration's visits.
    Visitor,
    /// Controls a control group.
    Senpai,
    /// A task of a program that has left its process.
    Leaving,
}

/// What the run keeps in addition to the kernel's state.
#[derive(Default)]
pub(crate) struct RunState {
    /// By task number.
    pub(crate) tasks: Vec<TaskKind>,
    pub(crate) ended_at: u64,
    pub(crate) visited: Vec<Visited>,
    pub(crate) shared_maps: u64,
    /// Files whose size a call changes now.
    pub(crate) changing: BTreeSet<u32>,
    /// What the controller of a control group has done.
    pub(crate) senpai: SenpaiOutcome,
    /// What zram and zswap held when the program's first task had ended.
    pub(crate) packed: Option<(Vec<ZramStat>, Option<ZswapStat>)>,
}

/// All parts of one run.
pub(crate) struct Simulation<'p, P> {
    pub(crate) kernel: Kernel<SimMachine>,
    pub(crate) program: &'p P,
    pub(crate) config: &'p RunConfig,
    pub(crate) state: RefCell<RunState>,
    pub(crate) oracle: Option<RefCell<Oracle>>,
    pub(crate) failure: RefCell<Option<RunError>>,
    /// How many tasks of programs are inside the memory manager.
    pub(crate) inside: Cell<u32>,
    /// Whether CPUs' clocks tick: only under policies that use ticks.
    pub(crate) ticks: Cell<bool>,
    /// The state that memory was brought into before the program began.
    pub(crate) fragmented: Option<Fragmented>,
    /// Operations until the next validation, and where their number is drawn from.
    until_validation: RefCell<(u64, Rng)>,
}

impl<'p, P> Simulation<'p, P> {
    pub(crate) fn new(mm: Mm<SimMachine>, program: &'p P, config: &'p RunConfig) -> Simulation<'p, P> {
        let spec = mm.machine().spec();
        let device = spec.file_device();
        let areas = spec.swap_areas().expect("a machine that runs has areas that fit");
        let disk = Disk {
            device: DeviceId(device as u8),
            pages: pages_of(spec.devices()[device].size.0),
            taken: spec.taken(&areas, device),
            thin: true,
        };
        let oracle = config.verify.then(RefCell::default);
        let visitor = config.visits.iter().any(|visit| visit.at.is_some());
        let before = mm.daemons().len() + usize::from(visitor) + usize::from(config.senpai.is_some());
        Simulation {
            ticks: Cell::new(mm.wants_ticks()),
            until_validation: RefCell::new((0, Rng::new(config.seed ^ 0x0076_616c_6964))),
            kernel: Kernel::new(mm, Some(disk), before as u32),
            program,
            config,
            state: RefCell::default(),
            oracle,
            failure: RefCell::new(None),
            inside: Cell::new(0),
            fragmented: None,
        }
    }

    /// Take the memory that the kernel has from boot on.
    pub(crate) fn take_kernels_memory(&self) -> Result<(), RunError> {
        let taken = self.machine().unaccounted(|| kernels::take(self.mm(), self.config.seed));
        taken.map_err(RunError::Input)
    }

    /// Bring memory into the state that the configuration or the machine asks for, or that the seed decides.
    pub(crate) fn fragment(&mut self) -> Result<(), RunError> {
        let given = self.config.fragment.as_ref().or(self.machine().spec().fragment());
        let drawn = self.config.vary.state(self.config.seed);
        if drawn.is_some() && given.is_some() {
            let why = "vary: memory begins in a state that is given, or in one that is drawn: leave 'fragment' out, here or there";
            return Err(RunError::Input(why.into()));
        }
        let Some(target) = given.or(drawn.as_ref()) else { return Ok(()) };
        if self.config.optimum {
            let why = "fragment: with a state of memory there is no optimum: a policy that knows the future has all of memory";
            return Err(RunError::Input(why.into()));
        }
        let made = self.machine().unaccounted(|| fragment(self.mm(), target, self.config.seed));
        self.fragmented = Some(made.map_err(RunError::Input)?);
        Ok(())
    }

    /// Create the control groups of the machine and of the configuration.
    pub(crate) fn make_groups(&self) -> Result<(), RunError> {
        let own = self.machine().spec().groups();
        let specs = GroupSpec::of_run(own, &self.config.groups);
        let specs = specs.map_err(|why| RunError::Input(format!("group: {why}")))?;
        self.machine().unaccounted(|| self.kernel.make_groups(&specs)).map_err(RunError::Input)
    }

    pub(crate) fn mm(&self) -> &Mm<SimMachine> {
        self.kernel.mm()
    }

    pub(crate) fn machine(&self) -> &SimMachine {
        self.mm().machine()
    }

    /// What the oracle has seen.
    pub(crate) fn oracle_report(&self) -> OracleReport {
        self.oracle.as_ref().map(|oracle| oracle.borrow().report.clone()).unwrap_or_default()
    }

    /// A transfer has ended, or failed. The oracle must know which pages of files may be lost.
    pub(crate) fn end_io(&self, io: &Io, done: bool) {
        if done {
            return self.mm().io_done(io);
        }
        if io.write {
            self.lose_pages(io);
        }
        self.mm().io_failed(io);
    }

    fn lose_pages(&self, io: &Io) {
        let frame = &self.mm().mmu().frames[io.frame];
        let Owner::File(id) = frame.owner() else { return };
        let (Some(oracle), Some(content)) = (&self.oracle, &self.machine().observers.content) else { return };
        let number = self.machine().stoppable(false, || self.kernel.file_number(id));
        let Some(file) = number.filter(|_| !frame.has(FrameFlags::SWAPCACHE)) else { return };
        let content = content.borrow();
        for page in 0..u64::from(io.pages) {
            let on_device = content.block(io.device.0, io.block + page);
            let index = self.mm().mmu().frames.index_of(io.frame.add(page as u32)).0;
            oracle.borrow_mut().may_lose(file.into(), index, on_device);
        }
    }

    /// The newest stamp, for the oracle.
    pub(crate) fn newest(&self) -> Stamp {
        self.machine().observers.content.as_ref().map_or(0, |content| content.borrow().newest())
    }

    /// Start a kernel task.
    pub(crate) fn start_kernel_task(&self, kind: TaskKind) {
        let node = match kind {
            TaskKind::Daemon(Daemon::Kswapd(node) | Daemon::Kcompactd(node)) => Some(node.0),
            _ => None,
        };
        self.add_task(kind);
        self.machine().new_task(node);
    }

    /// Keep a task, whose number is the next.
    pub(crate) fn add_task(&self, kind: TaskKind) {
        let number = self.state.borrow().tasks.len() as TaskId;
        self.tell_of_task(number, &kind);
        self.state.borrow_mut().tasks.push(kind);
    }

    /// Tell the timeline of a new task.
    fn tell_of_task(&self, task: TaskId, kind: &TaskKind) {
        let machine = self.machine();
        let new = || match kind {
            TaskKind::Program(task) => NewTask::Program {
                process: task.process().number(),
                space: task.space().0,
                role: task.start().role,
            },
            TaskKind::Daemon(daemon) => NewTask::Kernel(match daemon {
                Daemon::Kswapd(node) => format!("kswapd{}", node.0),
                Daemon::Kcompactd(node) => format!("kcompactd{}", node.0),
                Daemon::Flusher => "flusher".into(),
                Daemon::Khugepaged => "khugepaged".into(),
                Daemon::Kpromoted => "kpromoted".into(),
                Daemon::Zswap => "zswap-shrink".into(),
                Daemon::ZramUpkeep => "zram-upkeep".into(),
                Daemon::Kdamond => "kdamond.0".into(),
            }),
            TaskKind::Senpai => NewTask::Kernel("senpai".into()),
            TaskKind::Visitor | TaskKind::Leaving => NewTask::Kernel("visitor".into()),
        };
        if machine.observers.timeline.is_some() {
            machine.observers.happens(|| machine.context(), Happening::Begins(task, new()));
        }
    }

    /// The task of this number, if there is one.
    pub(crate) fn task(&self, number: TaskId) -> Option<TaskKind> {
        self.state.borrow().tasks.get(number as usize).cloned()
    }

    /// The number of a task of which its random numbers follow. Only some settings have daemons for promotion and zram,
    /// or a controller, and programs' random numbers must not depend on that.
    pub(crate) fn number_for_seed(&self, number: u32) -> u32 {
        let state = self.state.borrow();
        let daemons = |counts: fn(Daemon) -> bool| {
            let counted = |kind: &&TaskKind| matches!(kind, TaskKind::Daemon(daemon) if counts(*daemon));
            state.tasks.iter().filter(counted).count() as u32
        };
        let number = number - u32::from(self.config.senpai.is_some());
        match self.config.daemons {
            None => number - daemons(is_own),
            Some(counted) => number - daemons(|_| true) + counted,
        }
    }

    /// How much later than it would a task begins.
    pub(crate) fn delay(&self, task: &Task) -> Nanos {
        match self.kernel.is_first(task) {
            true => 0,
            false => self.config.vary.delay(self.config.seed, self.number_for_seed(task.number())),
        }
    }

    /// A file of `size` bytes was created: gives them contents.
    pub(crate) fn fill_file(&self, number: u64, file: File, size: u64) {
        let stamp = match file.kind {
            FileKind::Shmem => 0,
            FileKind::Disk { device, block } => {
                // 36 bits number the file's pages.
                let stamp = ORIGINAL | number << 36;
                if let Some(content) = &self.machine().observers.content {
                    content.borrow_mut().fill(device.0, block, pages_of(size), stamp);
                }
                stamp
            }
        };
        if let Some(oracle) = &self.oracle {
            oracle.borrow_mut().create_file(number, size, stamp);
        }
    }

    /// Whether `validate` may run: no task is in the middle of anything.
    pub(crate) fn at_rest(&self) -> bool {
        use mm::machine::WaitKey;
        let sched = self.machine().sched.borrow();
        let asleep = |task| {
            sched.ended(task)
                || matches!(
                    sched.blocked_on(task),
                    Some(Key::Mm(
                        WaitKey::Kswapd(_)
                            | WaitKey::Kcompactd(_)
                            | WaitKey::Flusher
                            | WaitKey::Khugepaged
                            | WaitKey::Kpromoted
                            | WaitKey::Zswap
                            | WaitKey::Timer
                    ))
                )
        };
        let state = self.state.borrow();
        let mut tasks = state.tasks.iter().enumerate();
        self.inside.get() == 0
            && tasks.all(|(task, kind)| match kind {
                TaskKind::Program(_) => true,
                TaskKind::Daemon(_) | TaskKind::Visitor | TaskKind::Senpai => asleep(task as TaskId),
                TaskKind::Leaving => sched.ended(task as TaskId),
            })
    }

    /// What each task of a program waits for, if all wait for others. If that does not change, only daemons run.
    pub(crate) fn waits(&self) -> Option<Vec<(TaskId, Key)>> {
        let sched = self.machine().sched.borrow();
        let state = self.state.borrow();
        let program = |(_, kind): &(usize, &TaskKind)| matches!(kind, TaskKind::Program(_));
        let tasks = state.tasks.iter().enumerate().filter(program).map(|(task, _)| task as TaskId);
        let waits = |task| {
            let key = sched.blocked_on(task).filter(|&key| key != Key::Mm(mm::machine::WaitKey::Timer));
            key.map(|key| (task, key))
        };
        tasks.filter(|&task| !sched.ended(task)).map(waits).collect()
    }

    /// Whether some task may have been stopped in the middle of an operation.
    pub(crate) fn stopped_inside(&self) -> bool {
        self.machine().preempt.is_some() && !self.at_rest()
    }

    /// Whether to validate everything after this operation.
    pub(crate) fn wants_validation(&self) -> bool {
        if !self.config.validate_sometimes {
            return self.config.validate_every_op;
        }
        let (left, rng) = &mut *self.until_validation.borrow_mut();
        let due = *left == 0;
        *left = if due { rng.below(2 * self.validation_size() / PER_OPERATION + 1) } else { *left - 1 };
        due || self.config.validate_every_op
    }

    /// How many frames and translations there are to validate.
    fn validation_size(&self) -> u64 {
        let (spec, tlb) = (self.machine().spec(), self.machine().spec().tlb());
        spec.memory() / PAGE_SIZE + self.machine().cpus.len() as u64 * u64::from(tlb.l2.entries)
    }

    /// Which tasks wait for what, in one line.
    pub(crate) fn waiters(&self) -> String {
        let sched = self.machine().sched.borrow();
        let state = self.state.borrow();
        let line = |(task, kind): (usize, &TaskKind)| {
            let key = match sched.blocked_on(task as TaskId)? {
                Key::Mm(key) => format!("{key:?}"),
                Key::End(other) => format!("the end of task {other}"),
                Key::File(file) => format!("file {file}"),
                Key::Barrier(id) => format!("barrier {id}"),
            };
            let task = match kind {
                TaskKind::Program(task) => format!("task {} (role {})", task.number(), task.start().role),
                TaskKind::Daemon(daemon) => format!("{daemon:?}"),
                TaskKind::Visitor => "the visitor of generations".to_owned(),
                TaskKind::Senpai => "senpai".to_owned(),
                TaskKind::Leaving => format!("task {task} (leaving)"),
            };
            Some(format!("{task} waits for {key}"))
        };
        state.tasks.iter().enumerate().filter_map(line).collect::<Vec<_>>().join("; ")
    }
}
