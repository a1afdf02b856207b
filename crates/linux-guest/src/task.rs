//! Tasks: threads and processes of the program, and what they share.

use crate::choice::Choice;
use crate::heap;
use crate::lock::Lock;
use crate::packed::{Contents, Levels};
use crate::report;
use crate::sys::{self, Code, Ended, linux_clone, nr};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use program::Role;

/// Bytes of a task's stack.
const STACK: usize = 96 << 10;

/// What all tasks of a run share. It is in the arena, like everything that is allocated.
pub struct RunState {
    /// The program.
    pub program: Choice,
    /// The run's seed, and the number of the first task: on other machines daemons have lower numbers.
    pub seed: [u64; 2],
    /// CPUs of the guest.
    pub cpus: u32,
    /// Bytes of memory that the program got.
    pub memory: u64,
    /// What pages hold, if that counts.
    pub contents: Option<Contents>,
    /// What compressed swap held when the first task had ended.
    pub levels: Lock<Levels>,
    /// Held while a file is created.
    pub creation: Lock<()>,
    /// KiB written past the page cache during the run to create files, which the program did not write.
    pub created_kib: AtomicU64,
    /// Faults of processes on the guest's own memory.
    pub own_faults: AtomicU64,
    /// Accesses of all tasks that have ended.
    pub accesses: AtomicU64,
    /// Progress of all tasks that have ended, in the program's units.
    pub progress: AtomicU64,
    /// Instructions that all tasks that have ended computed, besides accesses.
    pub computed: AtomicU64,
    /// Number of tasks started.
    pub tasks: AtomicU32,
    /// Number of tasks that a signal ended.
    pub signals: AtomicU32,
    /// Number of control groups created.
    pub groups: AtomicU32,
    slots: Lock<Vec<Arc<Slot>>>,
    barriers: Lock<Vec<Arc<Barrier>>>,
}

/// A task, as other tasks see it.
struct Slot {
    /// The kernel's id; for a thread, the kernel clears it at exit.
    number: AtomicU32,
    is_process: bool,
    stack: Lock<Option<Box<[u128]>>>,
}

struct Barrier {
    id: u32,
    arrived: AtomicU32,
    round: AtomicU32,
}

/// What a task runs on its own stack, given the run's state, the task's number and its role.
pub type Body = fn(&'static RunState, u32, Role);

/// The argument of a new task.
struct Start {
    state: &'static RunState,
    task: u32,
    role: Role,
    is_process: bool,
    body: Body,
}

impl RunState {
    /// A run of this program.
    pub fn new(
        program: Choice,
        seed: [u64; 2],
        cpus: u32,
        memory: u64,
        contents: Option<Contents>,
    ) -> RunState {
        RunState {
            program,
            seed,
            cpus,
            memory,
            contents,
            levels: Lock::new(Levels::new()),
            creation: Lock::new(()),
            created_kib: AtomicU64::new(0),
            own_faults: AtomicU64::new(0),
            accesses: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            computed: AtomicU64::new(0),
            tasks: AtomicU32::new(0),
            signals: AtomicU32::new(0),
            groups: AtomicU32::new(0),
            slots: Lock::new(Vec::new()),
            barriers: Lock::new(Vec::new()),
        }
    }

    /// Start a task that runs `body`; returns its number in this run.
    pub fn start(&'static self, role: Role, is_process: bool, body: Body) -> Result<u32, Code> {
        // VM, FS, FILES, SIGHAND, THREAD, SYSVSEM; CHILD_CLEARTID wakes the task that joins.
        const THREAD: u64 = 0x100 | 0x200 | 0x400 | 0x800 | 0x1_0000 | 0x4_0000 | 0x20_0000;
        const PARENT_SETTID: u64 = 0x10_0000;
        const SIGCHLD: u64 = 17;
        let mut stack = vec![0u128; STACK / size_of::<u128>()].into_boxed_slice();
        let top = stack.as_mut_ptr_range().end as u64;
        let slot = Slot { number: AtomicU32::new(0), is_process, stack: Lock::new(Some(stack)) };
        let slot = Arc::new(slot);
        let task = self.slots.with(|slots| {
            slots.push(slot.clone());
            slots.len() as u32 - 1
        });
        self.tasks.fetch_add(1, SeqCst);
        let start = Box::into_raw(Box::new(Start { state: self, task, role, is_process, body }));
        let flags = PARENT_SETTID | if is_process { SIGCHLD } else { THREAD };
        let task_entry = task_entry as extern "C" fn(*mut Start) -> ! as *const () as u64;
        // SAFETY: only the new task uses the stack; the stack and the slot stay until it is joined.
        let answer =
            unsafe { linux_clone(flags, top, task_entry, start as u64, slot.number.as_ptr() as u64) };
        if answer < 0 {
            // SAFETY: no other task has the pointer.
            drop(unsafe { Box::from_raw(start) });
            self.tasks.fetch_sub(1, SeqCst);
            return Err(Code(-answer as i32));
        }
        Ok(task)
    }

    /// Wait until a task has ended.
    pub fn join(&self, task: u32) {
        let Some(slot) = self.slots.with(|slots| slots.get(task as usize).cloned()) else { return };
        let mut number = slot.number.load(SeqCst);
        if slot.is_process {
            if let Ok(Some(ended)) = sys::wait_for(number.into(), true) {
                self.ended(ended);
            }
        } else {
            while number != 0 {
                sys::wait(&slot.number, number);
                number = slot.number.load(SeqCst);
            }
        }
        slot.stack.with(|stack| drop(stack.take()));
    }

    /// Whether task `task` is the process with this id.
    pub fn is_process(&self, task: u32, pid: u64) -> bool {
        let number =
            |slots: &mut Vec<Arc<Slot>>| slots.get(task as usize).map(|slot| slot.number.load(SeqCst));
        self.slots.with(number).is_some_and(|number| u64::from(number) == pid)
    }

    /// Record that a process has ended, and report a signal that killed it.
    pub fn ended(&self, ended: Ended) {
        if ended.signal == 0 {
            return;
        }
        const SIGKILL: u32 = 9;
        self.signals.fetch_add(1, SeqCst);
        if self.program.may_be_oom_killed() {
            return;
        }
        match ended.signal {
            SIGKILL => report::print(format_args!("@oom process {} was killed", ended.pid)),
            signal => report::print(format_args!("@signal process {}: signal {signal}", ended.pid)),
        }
    }

    /// Wait until `tasks` tasks have arrived at barrier `id`.
    pub fn barrier(&self, id: u32, tasks: u32) {
        let barrier = self.barriers.with(|barriers| {
            if let Some(barrier) = barriers.iter().find(|barrier| barrier.id == id) {
                return barrier.clone();
            }
            let barrier = Barrier { id, arrived: AtomicU32::new(0), round: AtomicU32::new(0) };
            barriers.push(Arc::new(barrier));
            barriers[barriers.len() - 1].clone()
        });
        let round = barrier.round.load(SeqCst);
        if barrier.arrived.fetch_add(1, SeqCst) + 1 >= tasks {
            barrier.arrived.store(0, SeqCst);
            barrier.round.fetch_add(1, SeqCst);
            sys::wake(&barrier.round);
            return;
        }
        while barrier.round.load(SeqCst) == round {
            sys::wait(&barrier.round, round);
        }
    }
}

/// The first function of a task, on its own stack.
extern "C" fn task_entry(start: *mut Start) -> ! {
    // SAFETY: it was allocated for this task, which owns it now.
    let Start { state, task, role, is_process, body } = *unsafe { Box::from_raw(start) };
    if is_process {
        state.own_faults.fetch_add(heap::populate(), SeqCst);
    }
    body(state, task, role);
    // A process ends with its last thread, as on the other machines, not with its first.
    sys::exit(nr::EXIT, 0)
}
