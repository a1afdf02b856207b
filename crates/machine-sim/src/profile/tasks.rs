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

use super::{Frame, Kind, Node, ProfileNode, Profiler, describe};
use crate::cpu::{Class, Cpu};
use crate::sched::{Key, TaskId};
use mm::machine::WaitKey;
use mm::units::FileId;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

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
#[derive(Default)]
pub(crate) struct Tasks {
    /// The program's tasks, by number.
    left: RefCell<Vec<Option<Left>>>,
    /// What the current CPU showed when it picked its task, if that is one of the program's.
    turn: Cell<Option<Reading>>,
    /// What the current task is about to sleep on.
    sleep: Cell<Option<Sleep>>,
    /// All lives so far, and the part in user mode.
    lives: Cell<u64>,
    user: Cell<u64>,
    files: RefCell<BTreeMap<FileId, String>>,
    /// Names of mappings.
    mappings: RefCell<Vec<String>>,
}

/// What the time of the program's tasks was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TaskTime {
    /// Scopes, below mappings and files where they are about one (`[NAME]`), and what the time in them was: kinds of
    /// work, and `access`, `memory`, `translation`, `instructions`, `spin`, `interrupted`, `cpu_wait` and
    /// `asleep:WHAT`.
    pub tree: ProfileNode,
    /// Picoseconds of all lives of tasks that the tree does not have; negative: that it has too much.
    pub missed: i64,
}

impl Tasks {
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
        self.place.set(TASKS);
        let Some(Left { at, sleep }) = tasks.left.borrow()[turn.task as usize] else { return };
        let gone = now.since(&at);
        tasks.lives.set(tasks.lives.get() + gone.clock);
        let place = self.left_at(turn.task).unwrap_or(TASKS);
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
        tasks.user.set(tasks.user.get() + turn.clock.saturating_sub(turn.kernel));
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
        if self.tasks_time.is_some() && picos > 0 {
            self.nodes.borrow_mut()[TASKS].add(Kind::Part(part), count, picos);
        }
    }

    /// A file has a name.
    pub(crate) fn name_file(&self, file: FileId, name: &str) {
        if let Some(tasks) = &self.tasks_time {
            tasks.files.borrow_mut().entry(file).or_insert_with(|| name.to_owned());
        }
    }

    /// The frame for what is done for a file, or for a mapping: `None` is memory without a file.
    pub(crate) fn frame_of(&self, file: Option<FileId>) -> Frame {
        let tasks = self.tasks_time.as_ref().expect("only profiles of tasks have mappings");
        let files = tasks.files.borrow();
        let name =
            file.map_or("anonymous memory", |file| files.get(&file).map_or("shared memory", |name| name));
        let mut mappings = tasks.mappings.borrow_mut();
        let known = mappings.iter().position(|known| known == name);
        Frame::Mapping(known.unwrap_or_else(|| {
            mappings.push(name.to_owned());
            mappings.len() - 1
        }) as u32)
    }

    /// The name of a mapping or file, in a form that no scope has.
    pub(super) fn mapping(&self, number: u32) -> String {
        let named = |tasks: &Tasks| format!("[{}]", tasks.mappings.borrow()[number as usize]);
        self.tasks_time.as_ref().map(named).unwrap_or_default()
    }

    /// What the time of tasks was; `accesses`: how many loads, stores and fetches there were, and their time without
    /// misses.
    pub(crate) fn task_time(&self, accesses: (u64, u64)) -> Option<TaskTime> {
        let tasks = self.tasks_time.as_ref()?;
        let nodes = self.nodes.borrow();
        let mut tree = describe(&nodes, TASKS, self);
        let of =
            |part: Part| tree.work.iter().find(|work| work.name == part.name()).map_or(0, |work| work.picos);
        let known = accesses.1 + [Part::Memory, Part::Instructions, Part::Spin].map(of).iter().sum::<u64>();
        let translation = tasks.user.get().saturating_sub(known);
        for (name, count, picos) in [("access", accesses.0, accesses.1), ("translation", 0, translation)] {
            tree.work.push(super::ProfileWork { name: name.into(), count, picos });
        }
        let missed = tasks.lives.get() as i64 - tree.total() as i64;
        Some(TaskTime { tree, missed })
    }
}

/// The node of the program's tasks, behind the classes'.
pub(super) const TASKS: usize = Class::ALL.len();

/// The roots of a tree.
pub(super) fn roots() -> Vec<Node> {
    let frames = Class::ALL.iter().map(|&class| Frame::Root(class)).chain([Frame::Tasks]);
    frames.enumerate().map(|(at, frame)| Node::new(frame, at)).collect()
}
