//! Tasks: threads and processes of the program, and what they share.

use crate::choice::Choice;
use crate::heap;
use crate::report;
use crate::sys::{self, Code, Ended, linux_clone, nr};
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use program::Role;

/// Bytes of a task's stack.
const STACK: usize = 96 << 10;

/// A lock that is held for a moment; who waits gives way, because the holder may have lost its CPU.
pub struct Lock<T> {
    held: AtomicBool,
    value: core::cell::UnsafeCell<T>,
}

// SAFETY: one task at a time reaches the value.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    /// A lock that nobody holds.
    pub const fn new(value: T) -> Lock<T> {
        Lock { held: AtomicBool::new(false), value: core::cell::UnsafeCell::new(value) }
    }

    /// Do `work` alone.
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        while self.held.swap(true, SeqCst) {
            sys::give_way();
        }
        // SAFETY: the lock is held.
        let result = work(unsafe { &mut *self.value.get() });
        self.held.store(false, SeqCst);
        result
    }
}

/// What all tasks of a run share. It lies in the arena, as everything that is allocated.
pub struct World {
    /// The program.
    pub program: Choice,
    /// The run's seed, and the number of the first task: other machines number daemons before it.
    pub seed: [u64; 2],
    /// CPUs of the guest.
    pub cpus: u32,
    /// Bytes that the program was left with.
    pub memory: u64,
    /// Held while a file is made.
    pub making: Lock<()>,
    /// KiB that were written past the page cache to make files, which no program wrote.
    pub made_kib: AtomicU64,
    /// Faults of processes on what is the guest's own.
    pub own_faults: AtomicU64,
    /// Sums over the tasks that have ended.
    pub accesses: AtomicU64,
    /// The same for the program's own units.
    pub progress: AtomicU64,
    /// Tasks that were started.
    pub tasks: AtomicU32,
    /// Tasks that a signal ended.
    pub signals: AtomicU32,
    /// Control groups that were made.
    pub groups: AtomicU32,
    slots: Lock<Vec<Arc<Slot>>>,
    barriers: Lock<Vec<Arc<Barrier>>>,
}

/// A task as others see it.
struct Slot {
    /// The kernel's number; of a thread, cleared by the kernel when it has ended.
    number: AtomicU32,
    is_process: bool,
    stack: Lock<Option<Box<[u128]>>>,
}

struct Barrier {
    id: u32,
    came: AtomicU32,
    round: AtomicU32,
}

/// What a task does between its start and its end: `os` runs the program as the task of this number.
pub type Body = fn(&'static World, u32, Role);

/// What a new task finds at its start.
struct Start {
    world: &'static World,
    task: u32,
    role: Role,
    is_process: bool,
    body: Body,
}

impl World {
    /// A run of this program.
    pub fn new(program: Choice, seed: [u64; 2], cpus: u32, memory: u64) -> World {
        World {
            program,
            seed,
            cpus,
            memory,
            making: Lock::new(()),
            made_kib: AtomicU64::new(0),
            own_faults: AtomicU64::new(0),
            accesses: AtomicU64::new(0),
            progress: AtomicU64::new(0),
            tasks: AtomicU32::new(0),
            signals: AtomicU32::new(0),
            groups: AtomicU32::new(0),
            slots: Lock::new(Vec::new()),
            barriers: Lock::new(Vec::new()),
        }
    }

    /// Starts a task and returns its number in this run.
    pub fn start(&'static self, role: Role, is_process: bool, body: Body) -> Result<u32, Code> {
        // VM, FS, FILES, SIGHAND, THREAD, SYSVSEM; CHILD_CLEARTID tells who joins.
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
        let start = Box::into_raw(Box::new(Start { world: self, task, role, is_process, body }));
        let flags = PARENT_SETTID | if is_process { SIGCHLD } else { THREAD };
        let live = live as extern "C" fn(*mut Start) -> ! as *const () as u64;
        // SAFETY: the stack is the new task's alone, and stays until it was joined; so does the slot.
        let answer = unsafe { linux_clone(flags, top, live, start as u64, slot.number.as_ptr() as u64) };
        if answer < 0 {
            // SAFETY: nobody else has come to know it.
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

    /// A process has ended; if a signal did it, that is told.
    pub fn ended(&self, ended: Ended) {
        if ended.signal == 0 {
            return;
        }
        const SIGKILL: u32 = 9;
        self.signals.fetch_add(1, SeqCst);
        if self.program.may_die() {
            return;
        }
        match ended.signal {
            SIGKILL => report::say(format_args!("@oom process {} was killed", ended.pid)),
            signal => report::say(format_args!("@signal process {}: signal {signal}", ended.pid)),
        }
    }

    /// Wait until `tasks` tasks have come to barrier `id`.
    pub fn barrier(&self, id: u32, tasks: u32) {
        let barrier = self.barriers.with(|barriers| {
            if let Some(barrier) = barriers.iter().find(|barrier| barrier.id == id) {
                return barrier.clone();
            }
            let barrier = Barrier { id, came: AtomicU32::new(0), round: AtomicU32::new(0) };
            barriers.push(Arc::new(barrier));
            barriers[barriers.len() - 1].clone()
        });
        let round = barrier.round.load(SeqCst);
        if barrier.came.fetch_add(1, SeqCst) + 1 >= tasks {
            barrier.came.store(0, SeqCst);
            barrier.round.fetch_add(1, SeqCst);
            sys::wake(&barrier.round);
            return;
        }
        while barrier.round.load(SeqCst) == round {
            sys::wait(&barrier.round, round);
        }
    }
}

/// A task's life, on its own stack.
extern "C" fn live(start: *mut Start) -> ! {
    // SAFETY: it was made for this task, which takes it.
    let Start { world, task, role, is_process, body } = *unsafe { Box::from_raw(start) };
    if is_process {
        world.own_faults.fetch_add(heap::enter(), SeqCst);
    }
    body(world, task, role);
    sys::exit(if is_process { nr::EXIT_GROUP } else { nr::EXIT }, 0)
}
