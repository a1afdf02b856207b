//! A task: a stack, what it runs, and in which space.
//!
//! Tasks and their stacks are never given back to the heap: the places of ended ones are used again. So a reference to
//! a task is good for ever, and says by its [`TaskId`] whether it is still the same one.

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
use mm::units::{CpuId, Nanos, SpaceId};

/// A task's number; never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TaskId(pub u32);

/// "No space", as a number.
pub(super) const NO_SPACE: u32 = u32::MAX;

/// "Any CPU", as a number.
const ANY_CPU: u32 = u32::MAX;

/// Bytes of a kernel stack.
const STACK_BYTES: u64 = 64 << 10;
/// Lists of sleepers.
pub(super) const BUCKETS: usize = 256;

/// What a task can sleep on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// Something of the memory manager's.
    Mm(WaitKey),
    /// Something else of the kernel's, by kind and number: the end of a task, a barrier, a disk.
    Other(u32, u64),
}

impl Key {
    /// The list that it belongs to.
    pub(super) fn bucket(self) -> usize {
        let mut hash = Mix(0);
        match self {
            Key::Mm(key) => core::hash::Hash::hash(&key, &mut hash),
            Key::Other(kind, number) => {
                hash.write_u64(!(kind as u64));
                hash.write_u64(number);
            }
        }
        hash.finish() as usize % BUCKETS
    }

    /// Is it what tasks in the background wait for that have nothing to do?
    pub(super) fn is_background(self) -> bool {
        matches!(
            self,
            Key::Mm(
                WaitKey::Kswapd(_)
                    | WaitKey::Kcompactd(_)
                    | WaitKey::Flusher
                    | WaitKey::Khugepaged
                    | WaitKey::Kpromoted
            ) | Key::Other(..)
        )
    }

    /// Is only the time waited for?
    pub(super) fn is_time(self) -> bool {
        self == Key::Mm(WaitKey::Timer)
    }
}

/// A hash of a few small numbers, each mixed in by one multiplication with 2^64 divided by the golden ratio.
struct Mix(u64);

impl Hasher for Mix {
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

/// See the module.
pub struct Task {
    place: usize,
    /// Top of its stack; 0 for idle tasks, which have that of their CPU.
    stack: u64,
    /// Where the stack stood when the task was left.
    context: UnsafeCell<u64>,
    id: AtomicU32,
    name: IrqLock<String>,
    body: IrqLock<Option<Body>>,
    space: AtomicU32,
    /// The only CPU that it runs on; [`ANY_CPU`] if there are others.
    home: AtomicU32,
    woken: AtomicBool,
    data: AtomicU64,
    ran: AtomicU64,
}

// SAFETY: `context` is touched only by who holds the queue's lock; the rest is atomic or locked.
unsafe impl Sync for Task {}

static LAST_ID: AtomicU32 = AtomicU32::new(0);
static PLACES: AtomicUsize = AtomicUsize::new(0);

impl Task {
    fn new(place: usize, stack: u64) -> &'static Task {
        Box::leak(Box::new(Task {
            place,
            stack,
            context: UnsafeCell::new(0),
            id: AtomicU32::new(LAST_ID.fetch_add(1, Relaxed)),
            name: IrqLock::new(String::new()),
            body: IrqLock::new(None),
            space: AtomicU32::new(NO_SPACE),
            home: AtomicU32::new(ANY_CPU),
            woken: AtomicBool::new(false),
            data: AtomicU64::new(0),
            ran: AtomicU64::new(0),
        }))
    }

    /// What a CPU runs already.
    pub(super) fn idle(cpu: CpuId) -> &'static Task {
        let task = Task::new(PLACES.fetch_add(1, Relaxed), 0);
        *task.name.lock() = alloc::format!("idle {}", cpu.0);
        task
    }

    /// Its number.
    pub fn id(&self) -> TaskId {
        TaskId(self.id.load(Relaxed))
    }

    /// What it is called in reports.
    pub fn name(&self) -> String {
        self.name.lock().clone()
    }

    /// The space that it runs in.
    pub fn space(&self) -> Option<SpaceId> {
        let raw = self.space.load(Relaxed);
        (raw != NO_SPACE).then_some(SpaceId(raw))
    }

    /// A word for whoever started it; 0 at first.
    pub fn data(&self) -> u64 {
        self.data.load(Relaxed)
    }

    /// Set the word.
    pub fn set_data(&self, data: u64) {
        self.data.store(data, Relaxed);
    }

    /// Nanoseconds that it had run when its CPU last left it.
    pub(super) fn ran(&self) -> Nanos {
        self.ran.load(Relaxed)
    }

    pub(super) fn set_ran(&self, ran: Nanos) {
        self.ran.store(ran, Relaxed);
    }

    pub(super) fn set_space(&self, space: Option<SpaceId>) {
        self.space.store(space.map_or(NO_SPACE, |space| space.0), Relaxed);
    }

    /// The only CPU that it runs on, if there is but one.
    pub(super) fn home(&self) -> Option<CpuId> {
        let home = self.home.load(Relaxed);
        (home != ANY_CPU).then_some(CpuId(home as u16))
    }

    /// May it run on that CPU?
    pub(super) fn may_run_on(&self, cpu: CpuId) -> bool {
        self.home().is_none_or(|home| home == cpu)
    }

    /// It runs on that CPU only. Before it comes into the queue.
    pub(super) fn bind(&self, cpu: CpuId) {
        self.home.store(cpu.0 as u32, Relaxed);
    }

    pub(super) fn place(&self) -> usize {
        self.place
    }

    pub(super) fn stack(&self) -> u64 {
        self.stack
    }

    pub(super) fn context(&self) -> *mut u64 {
        self.context.get()
    }

    pub(super) fn was_woken(&self) -> bool {
        self.woken.load(Relaxed)
    }

    pub(super) fn set_woken(&self, woken: bool) {
        self.woken.store(woken, Relaxed);
    }

    /// Do what the task is for.
    pub(super) fn run(&self) {
        let body = self.body.lock().take().expect("a task begins once");
        body();
    }
}

/// Make a task ready to begin: `ended`, which has left its stack, or a new one.
pub(super) fn prepare(
    ended: Option<&'static Task>,
    name: String,
    space: Option<SpaceId>,
    body: Body,
) -> &'static Task {
    unsafe extern "C" {
        fn task_begin();
    }
    /// Bytes that `switch_context` takes off the stack before it returns.
    const SAVED: u64 = 6 * 8;
    let task = ended.unwrap_or_else(|| {
        let place = PLACES.fetch_add(1, Relaxed);
        Task::new(place, new_stack(place))
    });
    task.id.store(LAST_ID.fetch_add(1, Relaxed), Relaxed);
    task.set_space(space);
    task.set_data(0);
    task.set_ran(0);
    task.home.store(ANY_CPU, Relaxed);
    *task.name.lock() = name;
    *task.body.lock() = Some(body);
    // SAFETY: nobody runs on the stack, and nobody can switch to the task before it comes into the queue.
    unsafe {
        (task.stack as *mut u64).sub(1).write(task_begin as *const () as u64);
        *task.context.get() = task.stack - 8 - SAVED;
    }
    task
}

/// A stack with a hole below it.
fn new_stack(place: usize) -> u64 {
    static MAPPING: IrqLock<()> = IrqLock::new(());
    let layout = Layout::from_size_align(STACK_BYTES as usize, 4096).expect("a stack's size");
    // SAFETY: the layout is not empty.
    let memory = unsafe { alloc(layout) };
    if memory.is_null() {
        handle_alloc_error(layout);
    }
    let from = paging::physical(memory);
    let bottom = STACKS + (2 * place as u64 + 1) * STACK_BYTES;
    let one_at_a_time = MAPPING.lock();
    paging::map_more(bottom, Span::new(from, from + STACK_BYTES), Access::Kernel);
    drop(one_at_a_time);
    bottom + STACK_BYTES
}
