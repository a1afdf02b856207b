//! A task: a stack, its code, and its space.
//!
//! Tasks and their stacks are never freed: the slots of ended tasks are reused. So a reference to a task is
//! valid forever, and its [`TaskId`] shows whether it is still the same task.

use crate::arch::lock::IrqLock;
use crate::arch::paging::{self, Access, STACKS};
use alloc::alloc::{Layout, alloc, handle_alloc_error};
use alloc::boxed::Box;
use alloc::string::String;
use core::cell::UnsafeCell;
use core::hash::Hasher;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use machine_x86::memory_map::Span;
use mm::machine::WaitKey;
use mm::units::{CpuId, SpaceId};

/// A task's id; never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(pub u32);

/// "No space" as a number.
pub(super) const NO_SPACE: u32 = u32::MAX;

/// "Any CPU" as a number.
const ANY_CPU: u32 = u32::MAX;

/// Bytes of a kernel stack.
const STACK_BYTES: u64 = 64 << 10;
/// Lists of sleeping tasks.
pub(super) const BUCKETS: usize = 256;

/// What a task can sleep on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// A key of the memory manager.
    Mm(WaitKey),
    /// Another key of the kernel, by kind and number: the end of a task, a barrier, a disk.
    Other(u32, u64),
}

impl Key {
    /// The list that it belongs to.
    pub(super) fn bucket(self) -> usize {
        let mut hash = MixHasher(0);
        match self {
            Key::Mm(key) => core::hash::Hash::hash(&key, &mut hash),
            Key::Other(kind, number) => {
                hash.write_u64(!(kind as u64));
                hash.write_u64(number);
            }
        }
        hash.finish() as usize % BUCKETS
    }

    /// Whether background tasks without work wait on it.
    pub(super) fn is_background(self) -> bool {
        matches!(
            self,
            Key::Mm(
                WaitKey::Kswapd(_)
                    | WaitKey::Kcompactd(_)
                    | WaitKey::Flusher
                    | WaitKey::Khugepaged
                    | WaitKey::Kpromoted
                    | WaitKey::Zswap
            ) | Key::Other(..)
        )
    }

    /// Whether the wait is only for a time.
    pub(super) fn is_time(self) -> bool {
        self == Key::Mm(WaitKey::Timer)
    }
}

/// A hash of a few small numbers, each mixed in by one multiplication with 2^64 divided by the golden ratio.
struct MixHasher(u64);

impl Hasher for MixHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte as u64));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value as u64);
    }

    fn write_isize(&mut self, value: isize) {
        self.write_u64(value as u64);
    }

    fn write_u64(&mut self, value: u64) {
        let mixed = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

type Body = Box<dyn FnOnce() + Send>;

/// A task; see the module.
pub struct Task {
    pub(super) slot: usize,
    /// Top of its stack; 0 for idle tasks, which use their CPU's first stack.
    pub(super) stack: u64,
    /// The stack pointer when the task was switched out.
    pub(super) context: UnsafeCell<u64>,
    id: AtomicU32,
    name: IrqLock<String>,
    body: IrqLock<Option<Body>>,
    space: AtomicU32,
    /// The only CPU that it runs on, or [`ANY_CPU`].
    pinned_cpu: AtomicU32,
    /// Whether a wake-up ended its last sleep.
    pub(super) woken: AtomicBool,
    data: AtomicU64,
    /// Nanoseconds that it had run when it was last switched out.
    pub(super) run_time: AtomicU64,
}

// SAFETY: `context` is accessed only with the queue's lock held; the rest is atomic or locked.
unsafe impl Sync for Task {}

static LAST_ID: AtomicU32 = AtomicU32::new(0);
static SLOTS: AtomicUsize = AtomicUsize::new(0);

impl Task {
    fn new(slot: usize, stack: u64) -> &'static Task {
        Box::leak(Box::new(Task {
            slot,
            stack,
            context: UnsafeCell::new(0),
            id: AtomicU32::new(LAST_ID.fetch_add(1, Relaxed)),
            name: IrqLock::new(String::new()),
            body: IrqLock::new(None),
            space: AtomicU32::new(NO_SPACE),
            pinned_cpu: AtomicU32::new(ANY_CPU),
            woken: AtomicBool::new(false),
            data: AtomicU64::new(0),
            run_time: AtomicU64::new(0),
        }))
    }

    /// The idle task of a CPU.
    pub(super) fn idle(cpu: CpuId) -> &'static Task {
        let task = Task::new(SLOTS.fetch_add(1, Relaxed), 0);
        *task.name.lock() = alloc::format!("idle {}", cpu.0);
        task
    }

    /// Its id.
    pub fn id(&self) -> TaskId {
        TaskId(self.id.load(Relaxed))
    }

    /// Its name in reports.
    pub fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// Its space.
    pub fn space(&self) -> Option<SpaceId> {
        let raw = self.space.load(Relaxed);
        (raw != NO_SPACE).then_some(SpaceId(raw))
    }

    /// A word for the code that started it; initially 0.
    pub fn data(&self) -> u64 {
        self.data.load(Relaxed)
    }

    /// Set the word.
    pub fn set_data(&self, data: u64) {
        self.data.store(data, Relaxed);
    }

    pub(super) fn set_space(&self, space: Option<SpaceId>) {
        self.space.store(space.map_or(NO_SPACE, |space| space.0), Relaxed);
    }

    /// The only CPU that it runs on, if it is pinned.
    pub(super) fn pinned_cpu(&self) -> Option<CpuId> {
        let pinned_cpu = self.pinned_cpu.load(Relaxed);
        (pinned_cpu != ANY_CPU).then_some(CpuId(pinned_cpu as u16))
    }

    /// Whether it may run on a CPU.
    pub(super) fn may_run_on(&self, cpu: CpuId) -> bool {
        self.pinned_cpu().is_none_or(|pinned_cpu| pinned_cpu == cpu)
    }

    /// Pin it to a CPU. Called before it enters the queue.
    pub(super) fn pin(&self, cpu: CpuId) {
        self.pinned_cpu.store(cpu.0 as u32, Relaxed);
    }

    /// Run the task's code.
    pub(super) fn run(&self) {
        let body = self.body.lock().take().expect("a task must run once");
        body();
    }
}

/// Prepare a task to start: `ended`, which has left its stack, or a new one.
pub(super) fn prepare(
    ended: Option<&'static Task>,
    name: String,
    space: Option<SpaceId>,
    body: Body,
) -> &'static Task {
    unsafe extern "C" {
        fn task_begin();
    }
    /// Bytes that `switch_context` pops from the stack before it returns.
    const SAVED: u64 = 6 * 8;
    let task = ended.unwrap_or_else(|| {
        let slot = SLOTS.fetch_add(1, Relaxed);
        Task::new(slot, new_stack(slot))
    });
    task.id.store(LAST_ID.fetch_add(1, Relaxed), Relaxed);
    task.set_space(space);
    task.set_data(0);
    task.run_time.store(0, Relaxed);
    task.pinned_cpu.store(ANY_CPU, Relaxed);
    *task.name.lock() = name;
    *task.body.lock() = Some(body);
    // SAFETY: no code uses the stack, and no CPU can switch to the task before it enters the queue.
    unsafe {
        (task.stack as *mut u64).sub(1).write(task_begin as *const () as u64);
        *task.context.get() = task.stack - 8 - SAVED;
    }
    task
}

/// A stack with a hole below it.
fn new_stack(slot: usize) -> u64 {
    static MAPPING: IrqLock<()> = IrqLock::new(());
    let layout = Layout::from_size_align(STACK_BYTES as usize, 4096).expect("a stack is a valid layout");
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    let from = paging::physical(memory);
    let bottom = STACKS + (2 * slot as u64 + 1) * STACK_BYTES;
    let guard = MAPPING.lock();
    paging::map_pages(bottom, Span::new(from, from + STACK_BYTES), Access::Kernel);
    drop(guard);
    bottom + STACK_BYTES
}
