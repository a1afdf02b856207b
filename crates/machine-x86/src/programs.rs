//! Programs on this machine: the kernel (the crate of that name) on this hardware, and ring 3's side.
//!
//! The first task of a run creates what all tasks share (the program, the checker) in ring 3, on the
//! programs' heap, from the [`LaunchInfo`] that ring 0 writes at the start of the arena.

use crate::arch::call::system_call;
use crate::arch::frame::Frame;
use crate::arch::touch::{self, AccessError};
use crate::arch::{clock, cpu, paging, user};
use crate::bench::calls;
use crate::hooks::{self, Hooks};
use crate::machine::{X86, kernel, mm};
use crate::{arena, quiesce, report, sched};
use abi::call::Tell;
use abi::{Buffer, Errno, Signal};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::arch::asm;
use core::ops::Range;
use kernel::{After, GroupSpec, Host, Key, Outcome, Rings, Task, TaskStart};
use machine_x86::user::choice::Choice;
use machine_x86::user::{LaunchInfo, Ring, Settings};
use mm::api::AccessKind;
use mm::machine::Machine;
use mm::units::{Nanos, PAGE_SHIFT, Pfn};

/// What to run.
pub struct Run {
    /// The program, as for [`Choice::find`].
    pub program: String,
    /// The trace that came with the image.
    pub trace: Option<&'static [u8]>,
    /// Seed of random choices.
    pub seed: u64,
    /// Whether loads are checked.
    pub check: bool,
    /// Control groups at the start.
    pub groups: Vec<GroupSpec>,
    /// The entry of its tasks in ring 3: [`PROGRAM`], except for the benchmark.
    pub entry: user::Entry,
}

/// Run a program to its end, report, and end the run of the machine.
pub fn run(run: Run) -> ! {
    let machine = mm().machine();
    let Run { program, trace, seed, check, groups, entry } = run;
    ENTRY.call_once(|| entry);
    let settings = Settings { check, seed, cpus: machine.cpus() as u32, memory: machine.bytes() };
    let launch = LaunchInfo::new(&program, trace, settings)
        .unwrap_or_else(|error| report::bad(format_args!("{error}")));
    let may_be_killed = Choice::find(&program, trace).is_ok_and(|program| program.may_be_oom_killed());
    // SAFETY: the memory is reserved for it, and nothing reads it before the first task begins.
    unsafe { LAUNCH_INFO.write(launch) };
    hooks::set(&Programs);
    kernel().make_groups(&groups).unwrap_or_else(|why| report::bad(format_args!("{why}")));
    let start = clock::now();
    if let Err(errno) = kernel().start() {
        report::bad(format_args!(
            "the first process does not start: {errno:?}; give the machine more memory"
        ));
    }
    kernel().wait_for_end();
    let totals = kernel().totals();
    report::counters(&mm().mmu().stats);
    report::metrics();
    kernel().group_outcomes().iter().for_each(report::group);
    kernel().signals().iter().for_each(|signal| report::text("signal", signal));
    mm().oom_reports().iter().for_each(|oom| report::text("oom", format_args!("{oom:?}")));
    report::check(totals.checked, totals.violations);
    report::done(totals.ended_at.saturating_sub(start), totals.accesses, totals.progress, totals.tasks);
    quiesce::quiesce();
    if let Err(fault) = mm().validate() {
        report::failed(format_args!("validate at the end: {fault}"));
    }
    let killed = !kernel().signals().is_empty() && !may_be_killed;
    if totals.violations > 0 || killed { report::end_failed() } else { report::end_ok() }
}

// --- tasks -------------------------------------------------------------------------------------------------

static ENTRY: spin::Once<user::Entry> = spin::Once::new();

/// A running task of a program.
struct RunningTask {
    task: Arc<Task>,
    /// The end of its stack in the arena.
    stack: u64,
}

/// The program's task that runs on this CPU.
fn running_task() -> &'static RunningTask {
    let word = sched::current().data();
    assert!(word != 0, "a trap from ring 3 must come from a program's task");
    // SAFETY: set when the task started, and freed only when it ends, by itself.
    unsafe { &*(word as *const RunningTask) }
}

/// End the current task.
fn end_task() -> ! {
    let running_task = core::ptr::from_ref(running_task()).cast_mut();
    sched::current().set_data(0);
    // SAFETY: from `Box::into_raw` when the task started; there is no other pointer.
    let running_task = unsafe { Box::from_raw(running_task) };
    arena::release_stack(running_task.stack);
    drop(running_task);
    sched::exit()
}

/// The first function of a program's task, in ring 0.
fn enter_program(running_task: RunningTask) -> ! {
    let TaskStart { task, process, role } = running_task.task.start();
    let stack = running_task.stack;
    sched::current().set_data(Box::into_raw(Box::new(running_task)) as u64);
    let machine = mm().machine();
    let entry = *ENTRY.get().expect("the entry must be set before the first task starts");
    let machine_size = machine.bytes() + machine.cpus() as u64;
    user::enter(entry, stack, [task as u64, process as u64, role as u64, machine_size])
}

// --- ring 3 -----------------------------------------------------------------------------------------------

/// Address of the launch information in both rings.
const LAUNCH_INFO: *mut LaunchInfo = paging::ARENA as *mut LaunchInfo;
const _: () = assert!(size_of::<LaunchInfo>() as u64 <= arena::LAUNCH_INFO_BYTES);

/// The entry of a program's tasks.
pub const PROGRAM: user::Entry = user_task;

extern "C" fn user_task(task: u64, process: u64, role: u64, _: u64) -> ! {
    // SAFETY: ring 0 has written it before the first task began, and it does not move.
    let launch = unsafe { &*LAUNCH_INFO };
    launch.run_task(&Cpu, TaskStart { task: task as u32, process: process as u32, role: role as u32 });
    unreachable!("the last call does not return")
}

/// Ring 3 on this hardware.
struct Cpu;

fn signal(error: AccessError, addr: u64) -> Signal {
    Signal::of(error.0, addr).expect("the fault handler must return a signal's number")
}

impl Ring for Cpu {
    fn call(&self, number: u64, args: [u64; 6]) -> [u64; 2] {
        // SAFETY: calls of `abi`; the buffers belong to this task.
        unsafe { system_call(number, args) }
    }

    fn load(&self, addr: u64) -> Result<u64, Signal> {
        // SAFETY: ring 3 has no access to devices.
        unsafe { touch::load(addr) }.map_err(|error| signal(error, addr))
    }

    fn store(&self, addr: u64, word: u64) -> Result<(), Signal> {
        // SAFETY: the program's own half of the address space, as a program uses only such addresses.
        unsafe { touch::store(addr, word) }.map_err(|error| signal(error, addr))
    }

    fn compute(&self, instructions: u64) {
        // SAFETY: changes only its own register.
        unsafe {
            asm!("2: dec {0}", "jnz 2b", inout(reg) instructions / 2 + 1 => _, options(nomem, nostack))
        };
    }
}

// --- ring 0 -----------------------------------------------------------------------------------------------

struct Programs;

impl Hooks for Programs {
    fn user_fault(&self, address: u64, access: AccessKind, frame: &mut Frame) {
        let Outcome::Signal(signal) = kernel().fault(&running_task().task, address, access) else { return };
        if !touch::fail(frame, |_| None, AccessError(signal.number())) {
            let number = running_task().task.number();
            report::failed(format_args!("task {number}: {access:?} of {address:#x} at {:#x}", frame.rip));
        }
    }

    fn user_tick(&self) {
        let task = &running_task().task;
        kernel().mm().task_work(task.space(), task.scan(), sched::run_time());
    }

    fn syscall(&self, number: u64, args: [u64; 6]) -> [u64; 2] {
        if let Some(answer) = calls::serve(number, args) {
            return answer;
        }
        match kernel().trap(&running_task().task, number, args) {
            After::Return(answer) => answer,
            After::Ended => end_task(),
            After::Panicked(text) => report::failed(format_args!("{}", report::OneLine(&text))),
        }
    }
}

fn key(key: Key) -> sched::Key {
    match key {
        Key::End(task) => sched::Key::Other(1, task as u64),
        Key::Barrier(id) => sched::Key::Other(2, id as u64),
        Key::Sleep(task) => sched::Key::Other(3, task as u64),
        Key::AllEnded => sched::Key::Other(4, 0),
    }
}

/// Address of a byte of a frame.
fn byte(pfn: Pfn, at: u32) -> *mut u8 {
    paging::direct(((pfn.0 as u64) << PAGE_SHIFT) + at as u64)
}

impl Host for X86 {
    fn start_task(&self, task: &Arc<Task>) -> Result<(), Errno> {
        let stack = arena::take_stack().ok_or(Errno::Again)?;
        let running_task = RunningTask { task: task.clone(), stack };
        sched::spawn(format!("task {}", task.number()), Some(task.space()), move || {
            enter_program(running_task)
        });
        Ok(())
    }

    fn leave_space(&self, _: &Task, switch: &mut dyn FnMut()) {
        sched::leave_space(switch);
    }

    fn give_way(&self) {
        sched::yield_now();
    }

    fn key_ticket(&self, wanted: Key) -> u64 {
        sched::mark(key(wanted))
    }

    fn key_wait(&self, wanted: Key, mark: u64, deadline: Option<Nanos>) -> bool {
        sched::wait(key(wanted), mark, deadline)
    }

    fn key_wake(&self, wanted: Key) {
        sched::wake(key(wanted));
    }

    fn read_user(&self, from: Buffer, to: &mut [u8]) -> Result<(), Errno> {
        // SAFETY: the caller passes a range of the arena; any bytes may be read.
        unsafe { to.as_mut_ptr().copy_from(from.addr as *const u8, to.len()) };
        Ok(())
    }
}

impl Rings for X86 {
    fn user_arena(&self) -> Range<u64> {
        paging::ARENA..paging::ARENA + arena::heap_bytes()
    }

    fn copy_to_user(&self, to: u64, from: Pfn, at: u32, bytes: u32) {
        // SAFETY: the caller passes a range of the arena, which is mapped, and a part of a frame that it
        // holds.
        unsafe { byte(from, at).copy_to(to as *mut u8, bytes as usize) };
    }

    fn copy_from_user(&self, to: Pfn, at: u32, from: u64, bytes: u32) {
        // SAFETY: as above.
        unsafe { byte(to, at).copy_from(from as *const u8, bytes as usize) };
    }

    fn tell(&self, what: Tell, text: &str) {
        let text = report::OneLine(text);
        match what {
            Tell::Note => report::text("note", text),
            Tell::Violation | Tell::Panic => {
                report::text("violation", format_args!("cpu {}: {text}", cpu::current().id().0));
            }
        }
    }
}
