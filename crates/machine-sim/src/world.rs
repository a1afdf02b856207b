//! What the simulated kernel knows besides memory: processes, descriptors, files' names and blocks, tasks.

use crate::content::{ORIGINAL, Stamp};
use crate::fragment::{Fragmented, fragment};
use crate::groups::{GroupSpec, Groups};
use crate::machine::SimMachine;
use crate::oracle::Oracle;
use crate::run::{RunConfig, RunError};
use crate::sched::{Key, TaskId};
use crate::visits::Visited;
use mm::Mm;
use mm::api::{Daemon, FileKind};
use mm::units::{DeviceId, FileId, PAGE_SIZE, SpaceId, pages_of};
use program::rng::Rng;
use program::{Errno, FileSpec, Role};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

/// So many frames and translations are looked at in about the time that an operation takes.
const PER_OPERATION: u64 = 16;

/// An address space with its descriptors and tasks.
pub(crate) struct Process {
    pub(crate) space: SpaceId,
    pub(crate) fds: Vec<Option<Open>>,
    pub(crate) tasks: u32,
    /// A signal has ended it; its tasks end as soon as they look.
    pub(crate) dead: bool,
}

/// An open file.
#[derive(Clone, Copy)]
pub(crate) struct Open {
    pub(crate) file: usize,
    pub(crate) writable: bool,
}

/// A file of the machine.
#[derive(Clone, Copy)]
pub(crate) struct File {
    pub(crate) id: FileId,
    /// First block and number of blocks; `None` for a file in memory.
    pub(crate) blocks: Option<(u64, u64)>,
    /// A call that changes its size is under way.
    pub(crate) locked: bool,
}

/// What a task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Program {
        process: usize,
        role: Role,
    },
    Daemon(Daemon),
    /// Pays the configuration's visits.
    Visitor,
    /// Has left its process.
    Leaving,
}

/// The kernel's tables.
#[derive(Default)]
pub(crate) struct Kernel {
    pub(crate) processes: Vec<Process>,
    pub(crate) files: Vec<File>,
    names: BTreeMap<String, usize>,
    /// By task number.
    pub(crate) tasks: Vec<Kind>,
    /// Tasks that have no coroutine yet.
    pub(crate) born: Vec<TaskId>,
    pub(crate) live: u32,
    pub(crate) programs: u32,
    /// By barrier: how many wait there, and how often all have met.
    pub(crate) barriers: BTreeMap<u32, (u32, u64)>,
    pub(crate) signals: Vec<String>,
    pub(crate) accesses: u64,
    pub(crate) progress: u64,
    pub(crate) ended_at: u64,
    pub(crate) visited: Vec<Visited>,
    next_block: u64,
    /// Blocks that files had when they were made, and swap space.
    taken: u64,
    pub(crate) shared_maps: u64,
}

/// Everything of one run.
pub(crate) struct World<'p, P> {
    pub(crate) mm: Mm<SimMachine>,
    pub(crate) program: &'p P,
    pub(crate) config: &'p RunConfig,
    pub(crate) kernel: RefCell<Kernel>,
    pub(crate) oracle: Option<RefCell<Oracle>>,
    pub(crate) failure: RefCell<Option<RunError>>,
    /// Program tasks that are inside a call of the memory manager.
    pub(crate) inside: Cell<u32>,
    /// Do CPUs' clocks tick? Only under policies that make use of it.
    pub(crate) ticks: Cell<bool>,
    /// What memory was made before the program began.
    pub(crate) fragmented: Option<Fragmented>,
    /// Control groups that the run has begun with.
    pub(crate) groups: Groups,
    /// Operations until everything is checked again, and where that is drawn from.
    unchecked: RefCell<(u64, Rng)>,
}

impl<'p, P> World<'p, P> {
    pub(crate) fn new(mm: Mm<SimMachine>, program: &'p P, config: &'p RunConfig) -> World<'p, P> {
        let spec = mm.machine().spec();
        let swap = spec.swap().filter(|&(device, _)| device == spec.file_device());
        let swap = swap.map_or(0, |(_, pages)| pages as u64);
        let kernel = Kernel { next_block: swap, taken: swap, ..Kernel::default() };
        let oracle = config.verify.then(RefCell::default);
        World {
            ticks: Cell::new(mm.wants_ticks()),
            unchecked: RefCell::new((0, Rng::new(config.seed ^ 0x0076_616c_6964))),
            mm,
            program,
            config,
            kernel: RefCell::new(kernel),
            oracle,
            failure: RefCell::new(None),
            inside: Cell::new(0),
            fragmented: None,
            groups: Groups::default(),
        }
    }

    /// Bring memory into the state that the configuration or the machine asks for.
    pub(crate) fn fragment(&mut self) -> Result<(), RunError> {
        let spec = self.machine().spec();
        let Some(target) = self.config.fragment.as_ref().or(spec.fragment()) else { return Ok(()) };
        if self.config.optimum {
            let why = "fragment: with a state of memory there is no optimum: who knows the future has all of the memory";
            return Err(RunError::Input(why.into()));
        }
        let made = self.machine().unseen(|| fragment(&self.mm, target, self.config.seed));
        self.fragmented = Some(made.map_err(RunError::Input)?);
        Ok(())
    }

    /// Make the control groups of the machine and the configuration.
    pub(crate) fn make_groups(&mut self) -> Result<(), RunError> {
        let own = self.machine().spec().groups();
        let specs = GroupSpec::of_run(own, &self.config.groups);
        let specs = specs.map_err(|why| RunError::Input(format!("group: {why}")))?;
        let made = self.machine().unseen(|| Groups::make(&self.mm, &specs));
        self.groups = made.map_err(RunError::Input)?;
        Ok(())
    }

    pub(crate) fn machine(&self) -> &SimMachine {
        self.mm.machine()
    }

    /// The newest stamp, for the oracle.
    pub(crate) fn newest(&self) -> Stamp {
        self.machine().content.as_ref().map_or(0, |content| content.borrow().newest())
    }

    /// A new task; it runs when the scheduler comes to it.
    pub(crate) fn start(&self, kind: Kind) -> TaskId {
        let machine = self.machine();
        let node = match kind {
            Kind::Daemon(Daemon::Kswapd(node) | Daemon::Kcompactd(node)) => Some(node.0),
            _ => None,
        };
        let now = machine.here().clock.get();
        let mut sched = machine.sched.borrow_mut();
        let id = sched.spawn(now, machine.current.get(), node);
        machine.limit.set(machine.limit.get().min(sched.limit_now(machine.current.get())));
        let mut kernel = self.kernel.borrow_mut();
        if let Kind::Program { process, .. } = kind {
            kernel.processes[process].tasks += 1;
            kernel.live += 1;
            kernel.programs += 1;
        }
        kernel.tasks.push(kind);
        kernel.born.push(id);
        id
    }

    /// Daemons of promotion: 1 or none. They are there under some ways to promote only, and what programs draw must not
    /// depend on that.
    pub(crate) fn promoters(&self) -> u32 {
        let promotes = |kind: &&Kind| matches!(kind, Kind::Daemon(Daemon::Kpromoted));
        self.kernel.borrow().tasks.iter().filter(promotes).count() as u32
    }

    /// A new process with one task.
    pub(crate) fn start_process(&self, space: SpaceId, fds: Vec<Option<Open>>, role: Role) -> TaskId {
        let process = {
            let processes = &mut self.kernel.borrow_mut().processes;
            processes.push(Process { space, fds, tasks: 0, dead: false });
            processes.len() - 1
        };
        if let Some(group) = self.groups.of_process(process as u32) {
            // It fails if the program has removed the group. Then the process stays where its parent is.
            let _ = self.machine().unseen(|| self.mm.move_space(space, group));
        }
        self.start(Kind::Program { process, role })
    }

    /// The file of that name, made if it is not there.
    pub(crate) fn find_file(&self, spec: &FileSpec<'_>) -> Result<usize, Errno> {
        if let Some(&file) = self.kernel.borrow().names.get(spec.name) {
            return Ok(file);
        }
        let number = self.kernel.borrow().files.len();
        let machine = self.machine().spec();
        let pages = pages_of(spec.size);
        let (kind, blocks, stamp) = match spec.in_memory {
            true => (FileKind::Shmem, None, 0),
            false => {
                let device = machine.file_device();
                // What a file has now takes room on the device; what it may grow by is promised. So every file has as
                // many block numbers as the device has blocks: the numbers are for telling neighbours and content
                // apart.
                let count = pages_of(machine.devices()[device].size.0);
                let mut kernel = self.kernel.borrow_mut();
                if kernel.taken + pages > count {
                    return Err(Errno::NoSpc);
                }
                let first = kernel.next_block;
                kernel.taken += pages;
                kernel.next_block += count;
                drop(kernel);
                // 36 bits number the file's pages.
                let stamp = ORIGINAL | (number as u64) << 36;
                if let Some(content) = &self.machine().content {
                    content.borrow_mut().fill(device as u8, first, pages, stamp);
                }
                let kind = FileKind::Disk { device: DeviceId(device as u8), block: first };
                (kind, Some((first, count)), stamp)
            }
        };
        let id = self.mm.create_file(kind, spec.size);
        if let Some(oracle) = &self.oracle {
            oracle.borrow_mut().create_file(number as u64, spec.size, stamp);
        }
        let mut kernel = self.kernel.borrow_mut();
        kernel.files.push(File { id, blocks, locked: false });
        kernel.names.insert(spec.name.into(), number);
        Ok(number)
    }

    /// The process is to end: its sleeping tasks are woken to see it.
    pub(crate) fn kill(&self, process: usize) {
        let mut kernel = self.kernel.borrow_mut();
        if std::mem::replace(&mut kernel.processes[process].dead, true) {
            return;
        }
        let machine = self.machine();
        let now = machine.here().clock.get();
        let mut sched = machine.sched.borrow_mut();
        for (task, &kind) in kernel.tasks.iter().enumerate() {
            if matches!(kind, Kind::Program { process: p, .. } if p == process) {
                sched.kick(now, task as TaskId);
            }
        }
        machine.limit.set(machine.limit.get().min(sched.limit_now(machine.current.get())));
    }

    /// May `validate` run: is no task in the middle of anything?
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
                            | WaitKey::Timer
                    ))
                )
        };
        let kernel = self.kernel.borrow();
        let mut tasks = kernel.tasks.iter().enumerate();
        self.inside.get() == 0
            && tasks.all(|(task, kind)| match kind {
                Kind::Program { .. } => true,
                Kind::Daemon(_) | Kind::Visitor => asleep(task as TaskId),
                Kind::Leaving => sched.ended(task as TaskId),
            })
    }

    /// What each task of a program waits for, if all wait for something that is not a moment; `None` if one does not.
    /// If that stays so, only daemons go on, for ever.
    pub(crate) fn stuck(&self) -> Option<Vec<(TaskId, Key)>> {
        let sched = self.machine().sched.borrow();
        let kernel = self.kernel.borrow();
        let program = |(_, kind): &(usize, &Kind)| matches!(kind, Kind::Program { .. });
        let tasks = kernel.tasks.iter().enumerate().filter(program).map(|(task, _)| task as TaskId);
        let waits = |task| {
            let key = sched.blocked_on(task).filter(|&key| key != Key::Mm(mm::machine::WaitKey::Timer));
            key.map(|key| (task, key))
        };
        tasks.filter(|&task| !sched.ended(task)).map(waits).collect()
    }

    /// Is somebody in the middle of something who may have been stopped anywhere in it?
    pub(crate) fn stopped_inside(&self) -> bool {
        self.machine().preempt.is_some() && !self.at_rest()
    }

    /// Is everything to be checked after this operation?
    pub(crate) fn wants_validation(&self) -> bool {
        if !self.config.validate_sometimes {
            return self.config.validate_every_op;
        }
        let (left, rng) = &mut *self.unchecked.borrow_mut();
        let due = *left == 0;
        *left = if due { rng.below(2 * self.things_to_check() / PER_OPERATION + 1) } else { *left - 1 };
        due || self.config.validate_every_op
    }

    /// Frames and translations.
    fn things_to_check(&self) -> u64 {
        let (spec, tlb) = (self.machine().spec(), self.machine().spec().tlb());
        spec.memory() / PAGE_SIZE + self.machine().cpus.len() as u64 * u64::from(tlb.l2.entries)
    }

    /// Who waits for what, one line.
    pub(crate) fn waiters(&self) -> String {
        let sched = self.machine().sched.borrow();
        let kernel = self.kernel.borrow();
        let line = |(task, kind): (usize, &Kind)| {
            let what = match sched.blocked_on(task as TaskId)? {
                Key::Mm(key) => format!("{key:?}"),
                Key::End(other) => format!("the end of task {other}"),
                Key::File(file) => format!("file {file}"),
                Key::Barrier(id) => format!("barrier {id}"),
            };
            let who = match kind {
                Kind::Program { role, .. } => format!("task {task} (role {role})"),
                Kind::Daemon(daemon) => format!("{daemon:?}"),
                Kind::Visitor => "who visits generations".to_owned(),
                Kind::Leaving => format!("task {task} (leaving)"),
            };
            Some(format!("{who} waits for {what}"))
        };
        kernel.tasks.iter().enumerate().filter_map(line).collect::<Vec<_>>().join("; ")
    }
}
