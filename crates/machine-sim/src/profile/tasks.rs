//! What the time of the program's tasks was, from the start of each to its end.
//!
//! Problem: CPU time does not tell why a program takes longer. Its tasks also sleep, wait for a CPU, and are
//! interrupted.
//!
//! Rule: a task's life is cut where a CPU picks it and where the CPU leaves it. In between, its CPU's time is work of
//! the kernel, which the tree has, interrupts, or user mode. From there until a CPU picks it again it sleeps, if it
//! went to sleep, until it is woken; then it waits for a CPU. All of this is in the tree below a root of its own,
//! so the tree adds up to the lives of the tasks. What it misses is told ([`TaskTime::missed`]): a hold of a lock that
//! becomes known late delays a CPU whose task may have changed since.

use super::names::{About, Names};
use super::phases::{Phase, Phases};
use super::{Frame, Kind, Node, ProfileNode, ProfileWork, Profiler, describe};
use crate::cpu::{Class, Cpu};
use crate::sched::{Key, TaskId};
use mm::machine::WaitKey;
use mm::units::FileId;
use std::cell::{Cell, RefCell};

/// What a task sleeps on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sleep {
    /// A transfer of a device.
    Device {
        /// The device's number.
        device: u8,
        /// Whether it writes.
        write: bool,
    },
    /// Something else, by name.
    Other(&'static str),
}

impl Sleep {
    /// A sleep on `key`, if that is no frame which a device reads or writes.
    pub(crate) fn on(key: Key) -> Sleep {
        Sleep::Other(match key {
            Key::Mm(WaitKey::Frame(_)) => "folio_lock",
            Key::Mm(WaitKey::Space(_)) => "mmap_lock",
            Key::Mm(WaitKey::File(_)) | Key::File(_) => "inode_lock",
            Key::Mm(WaitKey::Reclaim(_)) => "reclaim",
            Key::Mm(WaitKey::Generation(_)) => "generation",
            Key::Mm(WaitKey::Writeback | WaitKey::Flusher) => "writeback",
            Key::Mm(WaitKey::Timer) => "timer",
            Key::End(_) | Key::Barrier(_) => "tasks",
            Key::Mm(
                WaitKey::Kswapd(_)
                | WaitKey::Kcompactd(_)
                | WaitKey::Khugepaged
                | WaitKey::Kpromoted
                | WaitKey::Zswap,
            ) => "daemon",
        })
    }
}

/// Parts of a task's time in user mode, and outside of any CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    /// Reads of memory, after misses of the first-level TLB.
    Memory,
    /// Misses of the first-level TLB: what the second level, or a walk, took.
    Translation,
    /// Instructions that touch no memory.
    Instructions,
    /// Looking again and again whether others have come.
    Spin,
    /// Interrupts on the CPU that runs the task.
    Interrupted,
    /// Ready to run, without a CPU.
    CpuWait,
}

impl Part {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Part::Memory => "memory",
            Part::Translation => "translation",
            Part::Instructions => "instructions",
            Part::Spin => "spin",
            Part::Interrupted => "interrupted",
            Part::CpuWait => "cpu_wait",
        }
    }
}

/// A CPU's clock, and what of it is not user mode.
#[derive(Clone, Copy)]
struct Reading {
    clock: u64,
    kernel: u64,
    interrupts: u64,
}

impl Reading {
    fn of(cpu: &Cpu) -> Reading {
        Reading {
            clock: cpu.clock.get(),
            kernel: cpu.kernel.iter().map(Cell::get).sum(),
            interrupts: cpu.kernel[Class::Interrupt as usize].get(),
        }
    }

    /// Clock, kernel and interrupts since then.
    fn since(&self, before: &Reading) -> Reading {
        Reading {
            clock: self.clock.saturating_sub(before.clock),
            kernel: self.kernel.saturating_sub(before.kernel),
            interrupts: self.interrupts.saturating_sub(before.interrupts),
        }
    }
}

/// How a CPU left a task.
#[derive(Clone, Copy)]
struct Left {
    at: Reading,
    sleep: Option<Sleep>,
}

/// The times of a run's tasks.
pub(crate) struct Tasks {
    /// The program's tasks, by number.
    left: RefCell<Vec<Option<Left>>>,
    /// What the current CPU showed when it picked its task, if that is one of the program's.
    turn: Cell<Option<Reading>>,
    /// What the current task is about to sleep on.
    sleep: Cell<Option<Sleep>>,
    /// All lives so far.
    lives: Cell<u64>,
    phases: Phases,
    names: RefCell<Names>,
}

/// What the time of the program's tasks was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskTime {
    /// Scopes, below mappings and files where they are about one (`[NAME]`), and these below phases (`phase:2`) if the
    /// run has several; what is not below one is of the first. What the time in them was: kinds of work, and `access`,
    /// `memory`, `translation`, `instructions`, `spin`, `interrupted`, `cpu_wait` and `asleep:WHAT`.
    pub tree: ProfileNode,
    /// Picoseconds of all lives of tasks that the tree does not have; negative: that it has too much.
    pub missed: i64,
}

impl Tasks {
    /// Phases of `length` accesses; `None`: there is one.
    pub(super) fn new(length: Option<u64>) -> Tasks {
        Tasks {
            left: RefCell::default(),
            turn: Cell::default(),
            sleep: Cell::default(),
            lives: Cell::default(),
            phases: Phases::new(length, TASKS),
            names: RefCell::default(),
        }
    }

    /// The node of what tasks do outside of any scope.
    pub(super) fn root(&self) -> usize {
        self.phases.node()
    }

    fn is_program(&self, task: TaskId) -> bool {
        self.left.borrow().get(task as usize).is_some_and(Option::is_some)
    }
}

/// How a CPU comes to a task.
pub(crate) struct Turn<'a> {
    pub(crate) task: TaskId,
    /// Whether the CPU ran another before, or none.
    pub(crate) switched: bool,
    /// When the task was woken, if it slept.
    pub(crate) woken: u64,
    pub(crate) cpu: &'a Cpu,
}

impl Profiler {
    /// A task of the program starts at `now`.
    pub(crate) fn start_task(&self, task: TaskId, now: u64) {
        let Some(tasks) = &self.tasks_time else { return };
        let (mut left, task) = (tasks.left.borrow_mut(), task as usize);
        if left.len() <= task {
            left.resize(task + 1, None);
        }
        let at = Reading { clock: now, kernel: 0, interrupts: 0 };
        left[task] = Some(Left { at, sleep: None });
    }

    /// A CPU begins to run a task. Whatever the task was left in, the switch to it belongs to the root.
    pub(crate) fn begin_turn(&self, class: Class, turn: &Turn<'_>) {
        self.go_to_root(class);
        let Some(tasks) = self.tasks_time.as_ref().filter(|tasks| tasks.is_program(turn.task)) else {
            return;
        };
        let now = Reading::of(turn.cpu);
        tasks.turn.set(Some(now));
        self.come_to_phase(&tasks.phases);
        self.place.set(tasks.phases.node());
        let Some(Left { at, sleep }) = tasks.left.borrow()[turn.task as usize] else { return };
        let gone = now.since(&at);
        tasks.lives.set(tasks.lives.get() + gone.clock);
        let place = self.left_at(turn.task).unwrap_or(tasks.phases.node());
        let mut nodes = self.nodes.borrow_mut();
        let mut note = |kind, picos| {
            if picos > 0 {
                nodes[place].add(kind, 1, picos);
            }
        };
        if !turn.switched {
            // No other task ran: all that the CPU did were interrupts, and what others made it wait for, which the tree
            // has.
            let interrupts = gone.interrupts.min(gone.clock);
            note(Kind::Part(Part::Interrupted), interrupts);
            note(Kind::Part(Part::CpuWait), gone.clock - gone.kernel.clamp(interrupts, gone.clock));
            return;
        }
        let asleep = turn.woken.saturating_sub(at.clock).min(gone.clock);
        if let Some(sleep) = sleep {
            note(Kind::Asleep(sleep), asleep);
        }
        note(Kind::Part(Part::CpuWait), gone.clock - sleep.map_or(0, |_| asleep));
    }

    /// The CPU leaves the task.
    pub(crate) fn end_turn(&self, task: TaskId, cpu: &Cpu) {
        let Some(tasks) = &self.tasks_time else { return };
        let Some(began) = tasks.turn.take() else { return };
        let now = Reading::of(cpu);
        let turn = now.since(&began);
        tasks.lives.set(tasks.lives.get() + turn.clock);
        tasks.phases.ran(turn.clock.saturating_sub(turn.kernel));
        self.note_part(Part::Interrupted, 1, turn.interrupts);
        tasks.left.borrow_mut()[task as usize] = Some(Left { at: now, sleep: tasks.sleep.take() });
    }

    /// Whether the time of tasks is wanted, and the current task is one of the program's.
    pub(crate) fn in_program(&self) -> bool {
        self.tasks_time.as_ref().is_some_and(|tasks| tasks.turn.get().is_some())
    }

    /// The current task goes to sleep.
    pub(crate) fn sleeps(&self, on: Sleep) {
        if let Some(tasks) = self.tasks_time.as_ref().filter(|_| self.in_program()) {
            tasks.sleep.set(Some(on));
        }
    }

    /// Time of the program's tasks at the root.
    pub(crate) fn note_part(&self, part: Part, count: u64, picos: u64) {
        let Some(tasks) = self.tasks_time.as_ref().filter(|_| picos > 0) else { return };
        self.nodes.borrow_mut()[tasks.phases.node()].add(Kind::Part(part), count, picos);
    }

    /// Time of the program's tasks in user mode, for something.
    pub(crate) fn note_parts_on(&self, about: About, parts: &[(Part, u64, u64)]) {
        let Some(tasks) = &self.tasks_time else { return };
        let child = self.child(tasks.phases.node(), self.frame_of(about));
        let mut nodes = self.nodes.borrow_mut();
        for &(part, count, picos) in parts.iter().filter(|(.., picos)| *picos > 0) {
            nodes[child].add(Kind::Part(part), count, picos);
        }
    }

    /// The program has made accesses.
    pub(crate) fn accessed(&self, count: u64) {
        if let Some(tasks) = &self.tasks_time {
            tasks.phases.accessed(count);
        }
    }

    /// Begin the phases that the program has come to.
    fn come_to_phase(&self, phases: &Phases) {
        while phases.is_new() {
            let number = phases.all().len() as u32 + 1;
            phases.begin(self.child(TASKS, Frame::Phase(number)));
        }
    }

    /// A file has a name.
    pub(crate) fn name_file(&self, file: FileId, name: &str) {
        if let Some(tasks) = &self.tasks_time {
            tasks.names.borrow_mut().file(file, name);
        }
    }

    /// The frame for what is done for something.
    pub(crate) fn frame_of(&self, about: About) -> Frame {
        let tasks = self.tasks_time.as_ref().expect("only profiles of tasks have mappings");
        Frame::Mapping(tasks.names.borrow_mut().number(about))
    }

    /// The name of a mapping or file, in a form that no scope has.
    pub(super) fn mapping(&self, number: u32) -> String {
        let named = |tasks: &Tasks| format!("[{}]", tasks.names.borrow().name(number));
        self.tasks_time.as_ref().map(named).unwrap_or_default()
    }

    /// What the time of tasks was; `cost`: picoseconds of an access without misses.
    pub(crate) fn task_time(&self, cost: u64) -> Option<TaskTime> {
        let tasks = self.tasks_time.as_ref()?;
        let mut tree = describe(&self.nodes.borrow(), TASKS, self);
        for (number, phase) in (1..).zip(tasks.phases.all()) {
            let name = Frame::Phase(number).to_string();
            let later = tree.children.iter().position(|child| child.name == name);
            match later {
                Some(at) => add_user_time(&mut tree.children[at], phase, cost),
                None => add_user_time(&mut tree, phase, cost),
            }
        }
        let missed = tasks.lives.get() as i64 - tree.total() as i64;
        Some(TaskTime { tree, missed })
    }
}

/// Add what tasks did in user mode in a phase: accesses, and what nothing else has.
fn add_user_time(tree: &mut ProfileNode, phase: Phase, cost: u64) {
    let accesses = phase.accesses * cost;
    let user = [Part::Memory, Part::Translation, Part::Instructions, Part::Spin];
    let own = |node: &ProfileNode| -> u64 {
        let is_user = |work: &&ProfileWork| user.iter().any(|part| work.name == part.name());
        node.work.iter().filter(is_user).map(|work| work.picos).sum()
    };
    let on_mappings = tree.children.iter().filter(|child| child.name.starts_with('[')).map(own);
    let known = accesses + own(tree) + on_mappings.sum::<u64>();
    let rest = phase.user.saturating_sub(known);
    for (name, count, picos) in [("access", phase.accesses, accesses), ("translation", 0, rest)] {
        tree.work.push(ProfileWork { name: name.into(), count, picos });
    }
}

/// The node of the program's tasks, behind the classes'.
pub(super) const TASKS: usize = Class::ALL.len();

/// The roots of a tree.
pub(super) fn roots() -> Vec<Node> {
    let frames = Class::ALL.iter().map(|&class| Frame::Root(class)).chain([Frame::Tasks]);
    frames.enumerate().map(|(at, frame)| Node::new(frame, at)).collect()
}
