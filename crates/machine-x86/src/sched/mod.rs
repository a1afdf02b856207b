//! Tasks, and which CPU runs which.
//!
//! Kernel code is never preempted: a task gives its CPU up where it waits, where the memory manager says that it is a
//! good moment, and before it goes back to ring 3. There is one queue for all CPUs, under one lock, which is held
//! across the switch of stacks: so nobody can take up a task on another CPU before it has left its stack. A CPU with
//! nothing to do sleeps until an interrupt; who makes a task ready wakes one of them.
//!
//! A wake-up is never lost: `wait` names the mark of its key that it has seen before it looked at its condition, a
//! wake-up changes the mark first, and both look at what the other one has done (the count of waiters, the mark) only
//! afterwards. Keys share marks, so a wait may end early; who waits for a condition looks at it again.

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
/// Tasks that could run and do not.
static READY: AtomicU32 = AtomicU32::new(0);
/// The first deadline of a sleeper.
static EARLIEST: AtomicU64 = AtomicU64::new(u64::MAX);
/// Wake-ups so far, by bucket of keys.
static MARKS: [AtomicU64; BUCKETS] = [const { AtomicU64::new(0) }; BUCKETS];
/// Tasks that wait, or are about to, by bucket of keys.
static WAITERS: [AtomicU32; BUCKETS] = [const { AtomicU32::new(0) }; BUCKETS];
/// What each CPU runs.
static CURRENT: [AtomicPtr<Task>; MAX_CPUS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; MAX_CPUS];
/// When each CPU took up what it runs.
static SINCE: [AtomicU64; MAX_CPUS] = [const { AtomicU64::new(0) }; MAX_CPUS];
/// The space that the memory manager was last told of, by CPU.
static TOLD: [AtomicU32; MAX_CPUS] = [const { AtomicU32::new(task::NO_SPACE) }; MAX_CPUS];

/// Tells the memory manager that this CPU runs another space.
static ON_SWITCH: Once<fn(Option<SpaceId>)> = Once::new();

unsafe extern "C" {
    fn switch_context(save: *mut u64, load: u64);
}

/// `tell` is called on each CPU that begins to run another space than before. Only the first call counts.
pub fn on_switch(tell: fn(Option<SpaceId>)) {
    ON_SWITCH.call_once(|| tell);
}

/// Make what runs on this CPU its idle task. Called once on each CPU, before it enables interrupts.
pub fn adopt_cpu() {
    let me = cpu::current();
    let task = Task::idle(me.id());
    QUEUE.lock().add(task, State::Idle, me.id());
    CURRENT[me.id().index()].store(core::ptr::from_ref(task).cast_mut(), Release);
}

/// The task that runs here.
pub fn current() -> &'static Task {
    // SAFETY: set by `adopt_cpu` and by switches to tasks, which are never given back to the heap.
    unsafe { &*CURRENT[cpu::current().id().index()].load(Acquire) }
}

/// How long the task that runs here has run.
pub fn ran() -> Nanos {
    without_interrupts(|| {
        let since = SINCE[cpu::current().id().index()].load(Relaxed);
        current().ran() + clock::now().saturating_sub(since)
    })
}

/// Start a task. `space`: that in which it runs, for one that will go to ring 3.
pub fn spawn(
    name: impl Into<String>,
    space: Option<SpaceId>,
    body: impl FnOnce() + Send + 'static,
) -> TaskId {
    let ended = QUEUE.lock().take_ended();
    begin(task::prepare(ended, name.into(), space, Box::new(body)))
}

/// Start a task of the kernel's that runs on one CPU only.
pub fn spawn_on(cpu: CpuId, name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> TaskId {
    let ended = QUEUE.lock().take_ended();
    let task = task::prepare(ended, name.into(), None, Box::new(body));
    task.bind(cpu);
    begin(task)
}

fn begin(task: &'static Task) -> TaskId {
    let mut queue = QUEUE.lock();
    queue.add(task, State::Ready, cpu::current().id());
    queue.push_back(task);
    note_ready(&mut queue, task);
    task.id()
}

/// Where every new task begins, on its own stack, in the middle of a switch.
#[unsafe(no_mangle)]
extern "C" fn task_main() -> ! {
    after_switch();
    enable_interrupts();
    current().run();
    exit()
}

/// The task that calls ends.
pub fn exit() -> ! {
    disable_interrupts();
    let mut queue = QUEUE.lock();
    queue.end(current());
    switch(queue);
    unreachable!("an ended task is never switched to")
}

/// The task that calls runs in another space from now on.
pub fn set_space(space: Option<SpaceId>) {
    let enabled = interrupts_enabled();
    disable_interrupts();
    current().set_space(space);
    tell_of_space();
    if enabled {
        enable_interrupts();
    }
}

/// The task that calls runs in no space from now on; `switch` tells the memory manager, with interrupts off.
pub fn leave_space(switch: &mut dyn FnMut()) {
    without_interrupts(|| {
        current().set_space(None);
        TOLD[cpu::current().id().index()].store(task::NO_SPACE, Relaxed);
        switch();
    });
}

// --- switching --------------------------------------------------------------------------------------------

/// Go over to the next ready task, or to this CPU's idle task. Interrupts are off. Returns when the task that calls is
/// switched to again, perhaps on another CPU.
fn switch(mut queue: IrqGuard<'_, Queue>) {
    let me = cpu::current();
    let before = current();
    let next = match queue.pop(me.id()) {
        Some(task) => {
            READY.fetch_sub(1, Relaxed);
            queue.set_state(task, State::Running);
            task
        }
        None => queue.idle_task(me.id()),
    };
    me.resched.store(false, Relaxed);
    queue.ran_on(next, me.id());
    if core::ptr::eq(before, next) {
        return;
    }
    me.counts.switches.fetch_add(1, Relaxed);
    let now = clock::now();
    before.set_ran(before.ran() + now.saturating_sub(SINCE[me.id().index()].swap(now, Relaxed)));
    me.set_kernel_stack(next.stack());
    CURRENT[me.id().index()].store(core::ptr::from_ref(next).cast_mut(), Release);
    // The next task opens the lock.
    core::mem::forget(queue);
    // SAFETY: `next` has left its stack, as the lock says, and nobody else can take it up; interrupts are off.
    unsafe { switch_context(before.context(), next.context().read()) };
    after_switch();
}

/// What a task does first when it was switched to.
fn after_switch() {
    // SAFETY: the task before has taken the lock on this CPU and forgotten its guard.
    unsafe { QUEUE.release() };
    tell_of_space();
}

/// Tell the memory manager which space this CPU runs, if that is another than before. Interrupts are off.
fn tell_of_space() {
    let space = current().space();
    let told = &TOLD[cpu::current().id().index()];
    let raw = space.map_or(task::NO_SPACE, |space| space.0);
    if told.swap(raw, Relaxed) != raw {
        ON_SWITCH.get().expect("the memory manager is made before tasks run in spaces")(space);
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

/// Let another task run, if it is time.
#[inline]
pub fn yield_if_due() {
    if cpu::current().resched.load(Relaxed) {
        yield_now();
    }
}

/// What a CPU does that has nothing to do. Never returns: tasks run in between.
pub fn idle() -> ! {
    loop {
        disable_interrupts();
        let mut queue = QUEUE.lock();
        let me = cpu::current().id();
        if !queue.has_work_for(me) {
            queue.set_resting(me);
            drop(queue);
            rest(me);
            QUEUE.lock().clear_resting(me);
        } else {
            switch(queue);
        }
    }
}

/// Time stamps that CPUs have rested for, summed up.
static RESTED: AtomicU64 = AtomicU64::new(0);

/// Time stamps that CPUs have rested for, summed up; what the interrupt that ends a rest does, counts as rest.
pub fn rested() -> u64 {
    RESTED.load(Relaxed)
}

/// Sleep until an interrupt. The first CPU goes on ticking: it looks after deadlines for all.
fn rest(me: CpuId) {
    let ticks = me == CpuId(0);
    if !ticks {
        apic::stop_timer();
    }
    let start = rdtsc();
    wait_for_interrupt();
    RESTED.fetch_add(rdtsc() - start, Relaxed);
    if !ticks {
        apic::start_timer();
    }
}

/// A task has come to the queue: have a CPU take it.
fn note_ready(queue: &mut Queue, task: &Task) {
    READY.fetch_add(1, Relaxed);
    let target = match queue.take_resting(task) {
        Some(cpu) => cpu,
        // The kernel's own tasks are short, and others wait for them.
        None if task.space().is_none() => task.home().unwrap_or_else(|| queue.last_cpu(task)),
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

/// Wake-ups of `key` so far, and of keys that share its bucket.
pub fn mark(key: Key) -> u64 {
    MARKS[key.bucket()].load(SeqCst)
}

/// Sleep until a wake-up of `key` that came after `mark` was taken, or until `deadline`. `false` if the deadline came
/// first.
pub fn wait(key: Key, mark: u64, deadline: Option<Nanos>) -> bool {
    debug_assert!(interrupts_enabled(), "a task sleeps with interrupts off");
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
    let over = deadline.is_some_and(|deadline| deadline <= clock::now());
    // A daemon may have looked whether the machine stops just before it was told so.
    let woken = stale || (stopping() && key.is_background());
    if woken || over {
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
    task.was_woken()
}

/// Let time pass.
pub fn sleep_until(deadline: Nanos) {
    let key = Key::Mm(mm::machine::WaitKey::Timer);
    wait(key, mark(key), Some(deadline));
}

/// Wake all that sleep on `key`.
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
    task.set_woken(woken);
    queue.set_state(task, State::Ready);
    match task.space() {
        Some(_) => queue.push_back(task),
        None => queue.push_front(task),
    }
    note_ready(queue, task);
}

/// Tasks in the background are to end. All that sleep are woken to see that, but those that wait for the time only.
pub fn stop() {
    STOPPING.store(true, SeqCst);
    MARKS.iter().for_each(|mark| {
        mark.fetch_add(1, SeqCst);
    });
    let mut queue = QUEUE.lock();
    while let Some(task) = queue.take_waiter() {
        make_ready(&mut queue, task, true);
    }
}

/// Is the machine going down?
pub fn stopping() -> bool {
    STOPPING.load(Relaxed)
}

/// Who waits for what: for a report of a run that does not go on.
pub fn describe(line: impl FnMut(&Task, &'static str, Option<Key>)) {
    QUEUE.lock().describe(line);
}

/// Tasks that have been started and have not ended, those of idle CPUs not counted.
pub fn alive() -> usize {
    QUEUE.lock().alive()
}

/// The timer has ticked on this CPU. Interrupts are off.
pub fn timer() {
    let me = cpu::current();
    me.counts.ticks.fetch_add(1, Relaxed);
    me.ticked.store(true, Relaxed);
    let now = clock::now();
    if EARLIEST.load(Relaxed) <= now {
        let mut queue = QUEUE.lock();
        while let Some(task) = queue.take_overdue(now) {
            make_ready(&mut queue, task, false);
        }
        EARLIEST.store(queue.earliest(), Relaxed);
    }
    if READY.load(Relaxed) != 0 {
        me.resched.store(true, Relaxed);
    }
}
