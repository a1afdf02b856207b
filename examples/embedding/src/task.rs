//! Tasks and CPUs.
//!
//! Every task is a thread of the host, and belongs to one CPU. A CPU is a turn: only the task that has it runs. So at
//! any moment as many tasks run as there are CPUs, at the same time.
//!
//! A thread cannot be interrupted. Whoever sends an interrupt runs the handler itself, in the name of the CPU that it
//! is for ([`interrupt`]), beside whatever that CPU does; unless it has interrupts off, for then it holds the latch
//! that the sender needs.

use crate::kernel;
use mm::machine::Machine;
use mm::units::{CpuId, SpaceId};
use std::cell::Cell;
use std::sync::{Condvar, Mutex};
use std::thread::JoinHandle;

thread_local! {
    /// The CPU that this thread runs on, or in whose name it handles an interrupt.
    static HERE: Cell<CpuId> = const { Cell::new(CpuId(0)) };
    /// The space that this thread's task belongs to.
    static SPACE: Cell<Option<SpaceId>> = const { Cell::new(None) };
}

/// Whose turn it is on a CPU: as at a counter where everybody takes a number.
#[derive(Default)]
pub struct Turn {
    /// The next number to be given out, and the one that is served.
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

/// The CPU that runs this.
pub fn here() -> CpuId {
    HERE.get()
}

/// The space of the task that runs.
pub fn space() -> Option<SpaceId> {
    SPACE.get()
}

/// Start a task. It stays on its CPU.
pub fn start(cpu: CpuId, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::spawn(move || {
        HERE.set(cpu);
        get_cpu();
        body();
        put_cpu();
    })
}

/// Wait for this task's turn, and go over to its space.
pub fn get_cpu() {
    kernel::machine().turn(here()).take();
    switch(space());
}

/// The CPU is idle, or another task's: that is a kernel task for the memory manager, until it hears of a space.
pub fn put_cpu() {
    switch(None);
    kernel::machine().turn(here()).give();
}

/// The task belongs to `space` from now on.
pub fn enter(space: Option<SpaceId>) {
    SPACE.set(space);
    switch(space);
}

fn switch(space: Option<SpaceId>) {
    let _interrupts_off = kernel::machine().interrupt_latch(here());
    kernel::mm().switch(space);
}

/// Let other tasks of this CPU run, if there are any. A good moment for the host, too: its CPUs may be fewer.
pub fn give_way() {
    if kernel::machine().turn(here()).is_wanted() {
        put_cpu();
        get_cpu();
    } else {
        std::thread::yield_now();
    }
}

/// Run `handler` as if it had interrupted `cpu`.
pub fn interrupt(machine: &crate::machine::Threads, cpu: CpuId, handler: impl FnOnce()) {
    let _latch = machine.interrupt_latch(cpu);
    let before = HERE.replace(cpu);
    handler();
    HERE.set(before);
}

/// Start the memory manager's daemons.
pub fn start_daemons() -> Vec<JoinHandle<()>> {
    let cpus = kernel::machine().cpus() as u16;
    let on = |number: u16| CpuId(number % cpus);
    let daemons = kernel::mm().daemons().into_iter();
    daemons.zip(0..).map(|(daemon, number)| start(on(number), move || kernel::mm().daemon(daemon))).collect()
}
