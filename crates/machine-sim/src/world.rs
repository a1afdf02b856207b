//! Everything of one run: the kernel, the program, and who watches them.

use crate::content::{ORIGINAL, Stamp};
use crate::fragment::{Fragmented, fragment};
use crate::machine::SimMachine;
use crate::oracle::Oracle;
use crate::run::{RunConfig, RunError};
use crate::sched::{Key, TaskId};
use crate::visits::Visited;
use kernel::{Disk, File, GroupSpec, Kernel, Task};
use mm::Mm;
use mm::api::{Daemon, FileKind};
use mm::units::{DeviceId, PAGE_SIZE, pages_of};
use program::rng::Rng;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;

/// So many frames and translations are looked at in about the time that an operation takes.
const PER_OPERATION: u64 = 16;

/// What a task is.
#[derive(Clone)]
pub(crate) enum Kind {
    Program(Arc<Task>),
    Daemon(Daemon),
    /// Pays the configuration's visits.
    Visitor,
    /// Has left its process.
    Leaving,
}

/// What the run keeps beside the kernel.
#[derive(Default)]
pub(crate) struct Tables {
    /// By task number.
    pub(crate) tasks: Vec<Kind>,
    pub(crate) ended_at: u64,
    pub(crate) visited: Vec<Visited>,
    pub(crate) shared_maps: u64,
    /// Files whose size a call is changing.
    pub(crate) changing: BTreeSet<u32>,
}

/// Everything of one run.
pub(crate) struct World<'p, P> {
    pub(crate) kernel: Kernel<SimMachine>,
    pub(crate) program: &'p P,
    pub(crate) config: &'p RunConfig,
    pub(crate) tables: RefCell<Tables>,
    pub(crate) oracle: Option<RefCell<Oracle>>,
    pub(crate) failure: RefCell<Option<RunError>>,
    /// Program tasks that are inside a call of the memory manager.
    pub(crate) inside: Cell<u32>,
    /// Do CPUs' clocks tick? Only under policies that make use of it.
    pub(crate) ticks: Cell<bool>,
    /// What memory was made before the program began.
    pub(crate) fragmented: Option<Fragmented>,
    /// Operations until everything is checked again, and where that is drawn from.
    unchecked: RefCell<(u64, Rng)>,
}

impl<'p, P> World<'p, P> {
    pub(crate) fn new(mm: Mm<SimMachine>, program: &'p P, config: &'p RunConfig) -> World<'p, P> {
        let spec = mm.machine().spec();
        let device = spec.file_device();
        let swap = spec.swap().filter(|&(swap, _)| swap == device);
        let disk = Disk {
            device: DeviceId(device as u8),
            pages: pages_of(spec.devices()[device].size.0),
            taken: swap.map_or(0, |(_, pages)| pages.into()),
            thin: true,
        };
        let oracle = config.verify.then(RefCell::default);
        let before = mm.daemons().len() + usize::from(config.visits.iter().any(|visit| visit.at.is_some()));
        World {
            ticks: Cell::new(mm.wants_ticks()),
            unchecked: RefCell::new((0, Rng::new(config.seed ^ 0x0076_616c_6964))),
            kernel: Kernel::new(mm, Some(disk), before as u32),
            program,
            config,
            tables: RefCell::default(),
            oracle,
            failure: RefCell::new(None),
            inside: Cell::new(0),
            fragmented: None,
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
        let made = self.machine().unseen(|| fragment(self.mm(), target, self.config.seed));
        self.fragmented = Some(made.map_err(RunError::Input)?);
        Ok(())
    }

    /// Make the control groups of the machine and the configuration.
    pub(crate) fn make_groups(&self) -> Result<(), RunError> {
        let own = self.machine().spec().groups();
        let specs = GroupSpec::of_run(own, &self.config.groups);
        let specs = specs.map_err(|why| RunError::Input(format!("group: {why}")))?;
        self.machine().unseen(|| self.kernel.make_groups(&specs)).map_err(RunError::Input)
    }

    pub(crate) fn mm(&self) -> &Mm<SimMachine> {
        self.kernel.mm()
    }

    pub(crate) fn machine(&self) -> &SimMachine {
        self.mm().machine()
    }

    /// The newest stamp, for the oracle.
    pub(crate) fn newest(&self) -> Stamp {
        self.machine().content.as_ref().map_or(0, |content| content.borrow().newest())
    }

    /// A new task of the kernel's own; it runs when the scheduler comes to it.
    pub(crate) fn start(&self, kind: Kind) {
        let node = match kind {
            Kind::Daemon(Daemon::Kswapd(node) | Daemon::Kcompactd(node)) => Some(node.0),
            _ => None,
        };
        self.tables.borrow_mut().tasks.push(kind);
        self.machine().new_task(node);
    }

    /// The task of that number, if there is one.
    pub(crate) fn task(&self, number: TaskId) -> Option<Kind> {
        self.tables.borrow().tasks.get(number as usize).cloned()
    }

    /// Daemons of promotion: 1 or none. They are there under some ways to promote only, and what programs draw must not
    /// depend on that.
    pub(crate) fn promoters(&self) -> u32 {
        let promotes = |kind: &&Kind| matches!(kind, Kind::Daemon(Daemon::Kpromoted));
        self.tables.borrow().tasks.iter().filter(promotes).count() as u32
    }

    /// A file was made, with so many bytes: they have a content.
    pub(crate) fn made_file(&self, number: u64, file: File, size: u64) {
        let stamp = match file.kind {
            FileKind::Shmem => 0,
            FileKind::Disk { device, block } => {
                // 36 bits number the file's pages.
                let stamp = ORIGINAL | number << 36;
                if let Some(content) = &self.machine().content {
                    content.borrow_mut().fill(device.0, block, pages_of(size), stamp);
                }
                stamp
            }
        };
        if let Some(oracle) = &self.oracle {
            oracle.borrow_mut().create_file(number, size, stamp);
        }
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
        let tables = self.tables.borrow();
        let mut tasks = tables.tasks.iter().enumerate();
        self.inside.get() == 0
            && tasks.all(|(task, kind)| match kind {
                Kind::Program(_) => true,
                Kind::Daemon(_) | Kind::Visitor => asleep(task as TaskId),
                Kind::Leaving => sched.ended(task as TaskId),
            })
    }

    /// What each task of a program waits for, if all wait for something that is not a moment; `None` if one does not.
    /// If that stays so, only daemons go on, for ever.
    pub(crate) fn stuck(&self) -> Option<Vec<(TaskId, Key)>> {
        let sched = self.machine().sched.borrow();
        let tables = self.tables.borrow();
        let program = |(_, kind): &(usize, &Kind)| matches!(kind, Kind::Program(_));
        let tasks = tables.tasks.iter().enumerate().filter(program).map(|(task, _)| task as TaskId);
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
        let tables = self.tables.borrow();
        let line = |(task, kind): (usize, &Kind)| {
            let what = match sched.blocked_on(task as TaskId)? {
                Key::Mm(key) => format!("{key:?}"),
                Key::End(other) => format!("the end of task {other}"),
                Key::File(file) => format!("file {file}"),
                Key::Barrier(id) => format!("barrier {id}"),
            };
            let who = match kind {
                Kind::Program(task) => format!("task {} (role {})", task.number(), task.start().role),
                Kind::Daemon(daemon) => format!("{daemon:?}"),
                Kind::Visitor => "who visits generations".to_owned(),
                Kind::Leaving => format!("task {task} (leaving)"),
            };
            Some(format!("{who} waits for {what}"))
        };
        tables.tasks.iter().enumerate().filter_map(line).collect::<Vec<_>>().join("; ")
    }
}
