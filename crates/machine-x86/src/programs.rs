//! Programs on this machine: the kernel (the crate of that name) on this hardware, and ring 3's
//! side.
//!
//! What all tasks of a run share (the program, the checker) is made by the first of them in ring 3, and so on the
//! programs' heap, out of the [`Home`] that ring 0 leaves at the start of the arena.

use crate::arch::call::system_call;
use crate::arch::frame::Frame;
use crate::arch::touch::{self, Why};
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
use machine_x86::user::{Home, Ring};
use mm::api::AccessKind;
use mm::machine::Machine;
use mm::units::{Nanos, PAGE_SHIFT, Pfn};

/// What is to be run.
pub struct Run {
    /// The program, as [`Choice::find`] takes it.
    pub program: String,
    /// The trace that came with the image.
    pub trace: Option<&'static [u8]>,
    /// Seed of random choices.
    pub seed: u64,
    /// Is what loads bring to be checked?
    pub check: bool,
    /// Control groups that it begins with.
    pub groups: Vec<GroupSpec>,
    /// Where its tasks begin in ring 3; [`PROGRAM`], but for the benchmark.
    pub entry: user::Entry,
}

/// Run a program to its end, report, and end the run of the machine.
pub fn run(run: Run) -> ! {
    let machine = mm().machine();
    let Run { program, trace, seed, check, groups, entry } = run;
    ENTRY.call_once(|| entry);
    let home = Home::new(&program, trace, check, seed, machine.cpus() as u32, machine.bytes());
    let home = home.unwrap_or_else(|error| report::bad(format_args!("{error}")));
    let may_die = Choice::find(&program, trace).is_ok_and(|program| program.may_die());
    // SAFETY: the place is set aside for it, and nobody looks before the first task begins.
    unsafe { HOME.write(home) };
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
    kernel().signals().iter().for_each(report::signal);
    mm().oom_reports().iter().for_each(|oom| report::oom(format!("{oom:?}")));
    report::check(totals.checked, totals.violations);
    report::done(totals.ended_at.saturating_sub(start), totals.accesses, totals.progress, totals.tasks);
    quiesce::quiesce();
    if let Err(fault) = mm().validate() {
        report::failed(format_args!("validate at the end: {fault}"));
    }
    let died = !kernel().signals().is_empty() && !may_die;
    if totals.violations > 0 || died { report::end_failed() } else { report::end_ok() }
}

// --- tasks -------------------------------------------------------------------------------------------------

static ENTRY: spin::Once<user::Entry> = spin::Once::new();

/// A task of a program, as long as it lives.
struct Living {
    task: Arc<Task>,
    /// The end of its stack in the arena.
    stack: u64,
}

/// The program's task that runs here.
fn living() -> &'static Living {
    let word = sched::current().data();
    assert!(word != 0, "ring 3 comes in, but no program's task runs");
    // SAFETY: set when the task started, and freed only when it ends, by itself.
    unsafe { &*(word as *const Living) }
}

/// The task that runs ends.
fn end_task() -> ! {
    let living = core::ptr::from_ref(living()).cast_mut();
    sched::current().set_data(0);
    // SAFETY: made by `Box::leak` when the task started; nobody else knows it.
    let living = unsafe { Box::from_raw(living) };
    arena::release_stack(living.stack);
    drop(living);
    sched::exit()
}

/// What a task of a program does first, in ring 0.
fn begin(living: Living) -> ! {
    let TaskStart { task, process, role } = living.task.start();
    let stack = living.stack;
    sched::current().set_data(Box::into_raw(Box::new(living)) as u64);
    let machine = mm().machine();
    let entry = *ENTRY.get().expect("set before the first task starts");
    let described = machine.bytes() + machine.cpus() as u64;
    user::enter(entry, stack, [task as u64, process as u64, role as u64, described])
}

// --- ring 3 -----------------------------------------------------------------------------------------------

/// Where both rings find the run's home.
const HOME: *mut Home = paging::ARENA as *mut Home;
const _: () = assert!(size_of::<Home>() as u64 <= arena::HOME_BYTES);

/// Where the tasks of a program begin.
pub const PROGRAM: user::Entry = user_task;

extern "C" fn user_task(task: u64, process: u64, role: u64, _: u64) -> ! {
    // SAFETY: ring 0 has made it before the first task began, and nobody moves it.
    let home = unsafe { &*HOME };
    home.live(&Cpu, TaskStart { task: task as u32, process: process as u32, role: role as u32 });
    unreachable!("the last call does not return")
}

/// Ring 3 of this hardware.
struct Cpu;

fn signal(why: Why, addr: u64) -> Signal {
    Signal::of(why.0, addr).expect("the fault handler gave a signal's number")
}

impl Ring for Cpu {
    fn call(&self, number: u64, args: [u64; 6]) -> [u64; 2] {
        // SAFETY: calls of `abi`; buffers that they name are this task's own.
        unsafe { system_call(number, args) }
    }

    fn load(&self, addr: u64) -> Result<u64, Signal> {
        // SAFETY: ring 3 reaches no devices.
        unsafe { touch::load(addr) }.map_err(|why| signal(why, addr))
    }

    fn store(&self, addr: u64, word: u64) -> Result<(), Signal> {
        // SAFETY: the program's own half of the address space, as the program names addresses only there.
        unsafe { touch::store(addr, word) }.map_err(|why| signal(why, addr))
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
        let Outcome::Signal(signal) = kernel().fault(&living().task, address, access) else { return };
        if !touch::fail(frame, |_| None, Why(signal.number())) {
            let number = living().task.number();
            report::failed(format_args!("task {number}: {access:?} of {address:#x} at {:#x}", frame.rip));
        }
    }

    fn user_tick(&self) {
        let task = &living().task;
        kernel().mm().task_work(task.space(), task.scan(), sched::ran());
    }

    fn syscall(&self, number: u64, args: [u64; 6]) -> [u64; 2] {
        if let Some(answer) = calls::serve(number, args) {
            return answer;
        }
        match kernel().trap(&living().task, number, args) {
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

/// A byte of a frame.
fn byte(pfn: Pfn, at: u32) -> *mut u8 {
    paging::direct(((pfn.0 as u64) << PAGE_SHIFT) + at as u64)
}

impl Host for X86 {
    fn start_task(&self, task: &Arc<Task>) -> Result<(), Errno> {
        let stack = arena::take_stack().ok_or(Errno::Again)?;
        let living = Living { task: task.clone(), stack };
        sched::spawn(format!("task {}", task.number()), Some(task.space()), move || begin(living));
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
        // SAFETY: the caller gives a range of the arena; bytes are read whatever they are.
        unsafe { to.as_mut_ptr().copy_from(from.addr as *const u8, to.len()) };
        Ok(())
    }
}

impl Rings for X86 {
    fn user_arena(&self) -> Range<u64> {
        paging::ARENA..paging::ARENA + arena::heap_bytes()
    }

    fn copy_to_user(&self, to: u64, from: Pfn, at: u32, bytes: u32) {
        // SAFETY: the caller gives a range of the arena, which is mapped, and a part of a frame that it holds.
        unsafe { byte(from, at).copy_to(to as *mut u8, bytes as usize) };
    }

    fn copy_from_user(&self, to: Pfn, at: u32, from: u64, bytes: u32) {
        // SAFETY: as above.
        unsafe { byte(to, at).copy_from(from as *const u8, bytes as usize) };
    }

    fn tell(&self, what: Tell, text: &str) {
        let text = report::OneLine(text);
        match what {
            Tell::Note => report::note(text),
            Tell::Violation | Tell::Panic => {
                report::violation(format_args!("cpu {}: {text}", cpu::current().id().0));
            }
        }
    }
}
