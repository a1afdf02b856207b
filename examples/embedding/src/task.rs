//! Tasks and CPUs.
//!
//! Every task is a thread of the host, and belongs to one CPU. A CPU is represented by a turn: only the task
//! whose turn it is runs. So at most one task of each CPU runs at a time, and CPUs run in parallel.
//!
//! A thread cannot be interrupted. The sender of an interrupt runs the handler itself, on behalf of the
//! target CPU ([`interrupt`]), in parallel with whatever that CPU does. If the target has interrupts off, it
//! holds a latch that the sender must wait for.

use crate::kernel;
use mm::machine::Machine;
use mm::units::{CpuId, SpaceId};
use std::cell::Cell;
use std::sync::{Condvar, Mutex};
use std::thread::JoinHandle;

thread_local! {
    /// The CPU that this thread runs on, or for which it handles an interrupt.
    static CPU: Cell<CpuId> = const { Cell::new(CpuId(0)) };
    /// The space that this thread's task belongs to.
    static SPACE: Cell<Option<SpaceId>> = const { Cell::new(None) };
}

/// A CPU's turn: a ticket lock.
#[derive(Default)]
pub struct Turn {
    /// The next ticket, and the ticket that is served.
    numbers: Mutex<(u64, u64)>,
    called: Condvar,
}

impl Turn {
    fn take(&self) {
        let mut numbers = self.numbers.lock().unwrap();
        let mine = numbers.0;
        numbers.0 += 1;
        drop(self.called.wait_while(numbers, |numbers| numbers.1 != mine).unwrap());
    }

    fn give(&self) {
        self.numbers.lock().unwrap().1 += 1;
        self.called.notify_all();
    }

    fn is_wanted(&self) -> bool {
        let numbers = self.numbers.lock().unwrap();
        numbers.0 > numbers.1 + 1
    }
}

/// The CPU that runs this task.
pub fn current_cpu() -> CpuId {
    CPU.get()
}

/// The space of this task.
pub fn space() -> Option<SpaceId> {
    SPACE.get()
}

/// Start a task, which stays on its CPU.
pub fn start(cpu: CpuId, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        CPU.set(cpu);
        get_cpu();
        body();
        put_cpu();
    })
}

/// Wait for this task's turn, and switch to its space.
pub fn get_cpu() {
    kernel::machine().turn(current_cpu()).take();
    switch(space());
}

/// Give up the CPU, which then is idle or runs another task. For the memory manager it runs a kernel task,
/// until it switches to a space.
pub fn put_cpu() {
    switch(None);
    kernel::machine().turn(current_cpu()).give();
}

/// Let the task belong to `space`.
pub fn enter(space: Option<SpaceId>) {
    SPACE.set(space);
    switch(space);
}

fn switch(space: Option<SpaceId>) {
    let _interrupts_off = kernel::machine().interrupt_latch(current_cpu());
    kernel::mm().switch(space);
}

/// Let other tasks of this CPU run, if there are any, or else other threads of the host, which may have fewer
/// CPUs.
pub fn yield_cpu() {
    if kernel::machine().turn(current_cpu()).is_wanted() {
        put_cpu();
        get_cpu();
    } else {
        std::thread::yield_now();
    }
}

/// Run `handler` as if it had interrupted `cpu`.
pub fn interrupt(machine: &crate::machine::Threads, cpu: CpuId, handler: impl FnOnce()) {
    let _latch = machine.interrupt_latch(cpu);
    let before = CPU.replace(cpu);
    handler();
    CPU.set(before);
}

/// Start the memory manager's daemons.
pub fn start_daemons() -> Vec<JoinHandle<()>> {
    let cpus = kernel::machine().cpus() as u16;
    let on = |number: u16| CpuId(number % cpus);
    let daemons = kernel::mm().daemons().into_iter();
    daemons.zip(0..).map(|(daemon, number)| start(on(number), move || kernel::mm().daemon(daemon))).collect()
}
