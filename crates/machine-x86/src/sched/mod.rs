//! Tasks, and which CPU runs which.
//!
//! Kernel code is never preempted: a task gives up its CPU where it waits, where the memory manager allows
//! it, and before it returns to ring 3. All CPUs share one queue with one lock, which is held across the
//! switch of stacks: so no other CPU can run a task before it has left its stack. A CPU without work sleeps
//! until an interrupt; the code that makes a task ready wakes one such CPU.
//!
//! A wake-up is never lost. A waiter reads the mark of its key before it checks its condition, and passes it
//! to `wait`; a wake-up changes the mark first. Each then looks at what the other has written: the waker at
//! the number of waiters, the waiter at the mark. Keys share marks, so a wait may end early; a waiter must
//! check its condition again.

mod queue;
mod task;

pub use task::{Key, Task, TaskId};

use crate::arch::cpu::{self, Cpu, MAX_CPUS};
use crate::arch::instructions::{
    disable_interrupts, enable_interrupts, interrupts_enabled, rdtsc, wait_for_interrupt, without_interrupts,
};
use crate::arch::lock::{IrqGuard, IrqLock};
use crate::arch::{apic, clock};
use alloc::boxed::Box;
use alloc::string::String;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering::*};
use mm::units::{CpuId, Nanos, SpaceId};
use queue::{Queue, State};
use spin::Once;
use task::BUCKETS;

static QUEUE: IrqLock<Queue> = IrqLock::new(Queue::new());
static STOPPING: AtomicBool = AtomicBool::new(false);
/// Number of tasks that are ready but not running.
static READY: AtomicU32 = AtomicU32::new(0);
/// The first deadline of a sleeping task.
static EARLIEST: AtomicU64 = AtomicU64::new(u64::MAX);
/// Number of wake-ups, by bucket of keys.
static MARKS: [AtomicU64; BUCKETS] = [const { AtomicU64::new(0) }; BUCKETS];
/// Tasks that wait or are about to, by bucket of keys.
static WAITERS: [AtomicU32; BUCKETS] = [const { AtomicU32::new(0) }; BUCKETS];
/// The current task of each CPU.
static CURRENT: [AtomicPtr<Task>; MAX_CPUS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CPUS];
/// When each CPU switched to its current task.
static SINCE: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
/// The space that the memory manager was last told about, by CPU.
static REPORTED_SPACE: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(task::NO_SPACE) }; MAX_CPUS];

/// Tells the memory manager that this CPU runs another space.
static ON_SWITCH: Once<fn(Option<SpaceId>)> = Once::new();

unsafe extern "C" {
    fn switch_context(save: *mut u64, load: u64);
}

/// Have `tell` called on each CPU that begins to run another space. Only the first call has an effect.
pub fn on_switch(tell: fn(Option<SpaceId>)) {
    ON_SWITCH.call_once(|| tell);
}

/// Make the running code this CPU's idle task. Called once on each CPU, before it enables interrupts.
pub fn adopt_cpu() {
    let this_cpu = cpu::current();
    let task = Task::idle(this_cpu.id());
    QUEUE.lock().add(task, State::Idle, this_cpu.id());
    CURRENT[this_cpu.id().index()].store(core::ptr::from_ref(task).cast_mut(), Release);
}

/// The current task.
pub fn current() -> &'static Task {
    // SAFETY: set by `adopt_cpu` and by switches to tasks, which are never freed.
    unsafe { &*CURRENT[cpu::current().id().index()].load(Acquire) }
}

/// How long the current task has run.
pub fn run_time() -> Nanos {
    without_interrupts(|| {
        let since = SINCE[cpu::current().id().index()].load(Relaxed);
        current().run_time.load(Relaxed) + clock::now().saturating_sub(since)
    })
}

/// Start a task. `space`: its address space, for a task that will enter ring 3.
pub fn spawn(
    name: impl Into<String>,
    space: Option<SpaceId>,
    body: impl FnOnce() + Send + 'static,
) -> TaskId {
    let ended = QUEUE.lock().take_ended();
    enqueue_new(task::prepare(ended, name.into(), space, Box::new(body)))
}

/// Start a kernel task that runs on one CPU only.
pub fn spawn_on(cpu: CpuId, name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> TaskId {
    let ended = QUEUE.lock().take_ended();
    let task = task::prepare(ended, name.into(), None, Box::new(body));
    task.pin(cpu);
    enqueue_new(task)
}

fn enqueue_new(task: &'static Task) -> TaskId {
    let mut queue = QUEUE.lock();
    queue.add(task, State::Ready, cpu::current().id());
    queue.push_back(task);
    announce_ready(&mut queue, task);
    task.id()
}

/// The entry of every new task, on its own stack, in the middle of a switch.
#[unsafe(no_mangle)]
extern "C" fn task_main() -> ! {
    after_switch();
    enable_interrupts();
    current().run();
    exit()
}

/// End the calling task.
pub fn exit() -> ! {
    disable_interrupts();
    let mut queue = QUEUE.lock();
    queue.end(current());
    switch(queue);
    unreachable!("an ended task is never switched to")
}

/// Set the space of the calling task.
pub fn set_space(space: Option<SpaceId>) {
    without_interrupts(|| {
        current().set_space(space);
        report_space();
    });
}

/// Let the calling task run without a space; `switch` tells the memory manager, with interrupts off.
pub fn leave_space(switch: &mut dyn FnMut()) {
    without_interrupts(|| {
        current().set_space(None);
        REPORTED_SPACE[cpu::current().id().index()].store(task::NO_SPACE, Relaxed);
        switch();
    });
}

// --- switching --------------------------------------------------------------------------------------------

/// Switch to the next ready task, or to this CPU's idle task. Interrupts are off. Returns when the calling
/// task runs again, perhaps on another CPU.
fn switch(mut queue: IrqGuard<'_, Queue>) {
    let this_cpu = cpu::current();
    let before = current();
    let next = match queue.pop(this_cpu.id()) {
        Some(task) => {
            READY.fetch_sub(1, Relaxed);
            queue.set_state(task, State::Running);
            task
        }
        None => queue.idle_task(this_cpu.id()),
    };
    this_cpu.resched.store(false, Relaxed);
    queue.ran_on(next, this_cpu.id());
    if core::ptr::eq(before, next) {
        return;
    }
    this_cpu.counts.switches.fetch_add(1, Relaxed);
    let now = clock::now();
    let ran = now.saturating_sub(SINCE[this_cpu.id().index()].swap(now, Relaxed));
    before.run_time.store(before.run_time.load(Relaxed) + ran, Relaxed);
    this_cpu.set_kernel_stack(next.stack);
    CURRENT[this_cpu.id().index()].store(core::ptr::from_ref(next).cast_mut(), Release);
    // The next task releases the lock.
    core::mem::forget(queue);
    // SAFETY: `next` has left its stack, as the lock is held, and no other CPU can run it; interrupts are
    // off.
    unsafe { switch_context(before.context.get(), next.context.get().read()) };
    after_switch();
}

/// The first thing that a task does after a switch to it.
fn after_switch() {
    // SAFETY: the previous task has taken the lock on this CPU and forgotten its guard.
    unsafe { QUEUE.release() };
    report_space();
}

/// Tell the memory manager the space of this CPU, if it has changed. Interrupts are off.
fn report_space() {
    let space = current().space();
    let reported = &REPORTED_SPACE[cpu::current().id().index()];
    let raw = space.map_or(task::NO_SPACE, |space| space.0);
    if reported.swap(raw, Relaxed) != raw {
        ON_SWITCH.get().expect("the memory manager must exist before tasks run in spaces")(space);
    }
}

/// Let another task run, if there is one.
pub fn yield_now() {
    let enabled = interrupts_enabled();
    disable_interrupts();
    cpu::current().resched.store(false, Relaxed);
    if READY.load(Relaxed) != 0 {
        let mut queue = QUEUE.lock();
        let task = current();
        if !queue.is_idle_task(task) {
            queue.set_state(task, State::Ready);
            queue.push_back(task);
            READY.fetch_add(1, Relaxed);
        }
        switch(queue);
    }
    if enabled {
        enable_interrupts();
    }
}

/// Let another task run, if one should.
#[inline]
pub fn yield_if_due() {
    if cpu::current().resched.load(Relaxed) {
        yield_now();
    }
}

/// The idle loop of a CPU. Never returns, but switches to tasks.
pub fn idle() -> ! {
    loop {
        disable_interrupts();
        let mut queue = QUEUE.lock();
        let this_cpu = cpu::current().id();
        if !queue.has_work_for(this_cpu) {
            queue.set_idle(this_cpu);
            drop(queue);
            halt(this_cpu);
            QUEUE.lock().clear_idle(this_cpu);
        } else {
            switch(queue);
        }
    }
}

/// Idle time of all CPUs, in time stamps.
static IDLE_TIME: AtomicU64 = AtomicU64::new(0);

/// Idle time of all CPUs, in time stamps; it includes the interrupt that ends an idle period.
pub fn idle_time() -> u64 {
    IDLE_TIME.load(Relaxed)
}

/// Halt until an interrupt. The first CPU keeps ticking: it handles deadlines for all.
fn halt(this_cpu: CpuId) {
    let ticks = this_cpu == CpuId(0);
    if !ticks {
        apic::stop_timer();
    }
    let start = rdtsc();
    wait_for_interrupt();
    IDLE_TIME.fetch_add(rdtsc() - start, Relaxed);
    if !ticks {
        apic::start_timer();
    }
}

/// A task was added to the queue: ask a CPU to run it.
fn announce_ready(queue: &mut Queue, task: &Task) {
    READY.fetch_add(1, Relaxed);
    let target = match queue.take_idle(task) {
        Some(cpu) => cpu,
        // The kernel's own tasks are short, and others wait for them.
        None if task.space().is_none() => task.pinned_cpu().unwrap_or_else(|| queue.last_cpu(task)),
        None => return,
    };
    let target: &Cpu = cpu::all()[target.index()];
    if core::ptr::eq(target, cpu::current()) {
        target.resched.store(true, Relaxed);
    } else {
        apic::send(target.apic(), apic::RESCHEDULE);
    }
}

// --- sleeping ---------------------------------------------------------------------------------------------

/// Number of wake-ups of `key` and of keys that share its bucket.
pub fn mark(key: Key) -> u64 {
    MARKS[key.bucket()].load(SeqCst)
}

/// Sleep until a wake-up of `key` after `mark` was read, or until `deadline`. Returns `false` if the deadline
/// came first.
pub fn wait(key: Key, mark: u64, deadline: Option<Nanos>) -> bool {
    debug_assert!(interrupts_enabled(), "interrupts must be on when a task sleeps");
    let bucket = key.bucket();
    WAITERS[bucket].fetch_add(1, SeqCst);
    let woken = sleep(key, bucket, mark, deadline);
    WAITERS[bucket].fetch_sub(1, SeqCst);
    woken
}

fn sleep(key: Key, bucket: usize, mark: u64, deadline: Option<Nanos>) -> bool {
    disable_interrupts();
    let mut queue = QUEUE.lock();
    let stale = !key.is_time() && MARKS[bucket].load(SeqCst) != mark;
    let expired = deadline.is_some_and(|deadline| deadline <= clock::now());
    // A daemon may have checked whether the machine stops just before `stop` was called.
    let woken = stale || (stopping() && key.is_background());
    if woken || expired {
        drop(queue);
        enable_interrupts();
        return woken;
    }
    let task = current();
    queue.block(task, key, deadline);
    if let Some(deadline) = deadline {
        EARLIEST.fetch_min(deadline, Relaxed);
    }
    switch(queue);
    enable_interrupts();
    task.woken.load(Relaxed)
}

/// Sleep until `deadline`.
pub fn sleep_until(deadline: Nanos) {
    let key = Key::Mm(mm::machine::WaitKey::Timer);
    wait(key, mark(key), Some(deadline));
}

/// Wake all tasks that sleep on `key`.
pub fn wake(key: Key) {
    let bucket = key.bucket();
    MARKS[bucket].fetch_add(1, SeqCst);
    if WAITERS[bucket].load(SeqCst) == 0 {
        return;
    }
    let mut queue = QUEUE.lock();
    while let Some(task) = queue.take_sleeper(key) {
        make_ready(&mut queue, task, true);
    }
}

fn make_ready(queue: &mut Queue, task: &'static Task, woken: bool) {
    task.woken.store(woken, Relaxed);
    queue.set_state(task, State::Ready);
    match task.space() {
        Some(_) => queue.push_back(task),
        None => queue.push_front(task),
    }
    announce_ready(queue, task);
}

/// Ask background tasks to end. This wakes all sleeping tasks to notice it, except those that only wait for a
/// time.
pub fn stop() {
    STOPPING.store(true, SeqCst);
    MARKS.iter().for_each(|mark| _ = mark.fetch_add(1, SeqCst));
    let mut queue = QUEUE.lock();
    while let Some(task) = queue.take_waiter() {
        make_ready(&mut queue, task, true);
    }
}

/// Whether the machine is shutting down.
pub fn stopping() -> bool {
    STOPPING.load(Relaxed)
}

/// Describe what each task waits for, for a report of a run that is stuck.
pub fn describe(line: impl FnMut(&Task, &'static str, Option<Key>)) {
    QUEUE.lock().describe(line);
}

/// Number of tasks that have started and not ended, without the idle tasks.
pub fn alive() -> usize {
    QUEUE.lock().alive()
}

/// Handle a timer tick on this CPU. Interrupts are off.
pub fn timer() {
    let this_cpu = cpu::current();
    this_cpu.counts.ticks.fetch_add(1, Relaxed);
    this_cpu.ticked.store(true, Relaxed);
    let now = clock::now();
    if EARLIEST.load(Relaxed) <= now {
        let mut queue = QUEUE.lock();
        while let Some(task) = queue.take_overdue(now) {
            make_ready(&mut queue, task, false);
        }
        EARLIEST.store(queue.earliest(), Relaxed);
    }
    if READY.load(Relaxed) != 0 {
        this_cpu.resched.store(true, Relaxed);
    }
}
