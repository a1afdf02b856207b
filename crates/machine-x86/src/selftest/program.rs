//! Programs in ring 3, in memory of the memory manager, while the kernel changes their mappings.

use super::check;
use super::tasks::{log_tasks, until};
use crate::arch::frame::Frame;
use crate::arch::trap;
use crate::arch::{call, user};
use crate::arch::{clock, cpu, paging};
use crate::hooks::{self, Hooks};
use crate::{arena, log, machine, report, sched};
use alloc::format;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::*};
use mm::api::{AccessKind, Advice, Backing, FaultError, MapRequest, Prot};
use mm::stat::Stat;
use mm::units::{GroupId, SpaceId, Vpn};

/// Calls of the test programs.
const EXIT: u64 = 1;
const ADD: u64 = 2;
const SLEEP: u64 = 3;

/// Pages of each thread.
const PAGES: u64 = 64;
const ROUNDS: u64 = 60;
/// Pages that are dropped again and again while threads read them.
const SHARED: u64 = 32;
const PAGE: u64 = 4096;
/// Programs that take longer have failed.
const TIMEOUT: u64 = 120_000_000_000;

static ENDED: AtomicU64 = AtomicU64::new(0);
static ACCESSES: AtomicU64 = AtomicU64::new(0);

struct Kernel;

impl Hooks for Kernel {
    fn user_fault(&self, address: u64, access: AccessKind, frame: &mut Frame) {
        let space = sched::current().space().expect("a task in ring 3 must have a space");
        let outcome = match address < 1 << 47 {
            true => machine::mm().fault(space, Vpn::of(address), access),
            false => Err(FaultError::Segv),
        };
        if let Err(error) = outcome
            && !trap::end_probe(frame)
        {
            let name = sched::current().name();
            report::counters(&machine::mm().mmu().stats);
            fail(&format!("{name}: {access:?} of {address:#x} at {:#x}", frame.rip), error);
        }
    }

    fn syscall(&self, number: u64, args: [u64; 6]) -> [u64; 2] {
        match number {
            ADD => [args.iter().sum(), args[5]],
            SLEEP => {
                sched::sleep_until(clock::now() + args[0]);
                [0; 2]
            }
            EXIT => {
                arena::release_stack(sched::current().data());
                ACCESSES.fetch_add(args[0], SeqCst);
                // First: after this task is counted as ended, the space may be removed.
                sched::set_space(None);
                ENDED.fetch_add(1, SeqCst);
                sched::exit()
            }
            number => report::failed(format_args!("selftest: call {number}")),
        }
    }
}

fn call(number: u64, args: [u64; 6]) -> [u64; 2] {
    // SAFETY: the calls above take only numbers.
    unsafe { call::system_call(number, args) }
}

/// The code of each thread in ring 3: `base` is its own memory, `shared` that of all threads.
extern "C" fn thread(base: u64, shared: u64, number: u64, forbidden: u64) -> ! {
    let mut accesses = 0;
    let word = |page: u64| (base + page * PAGE + 8 * (page % 512)) as *mut u64;
    for round in 1..=ROUNDS {
        for page in 0..PAGES {
            let stamp = number << 32 | round << 16 | page;
            // SAFETY: the pages are mapped for this thread alone, until it has ended.
            unsafe { word(page).write_volatile(stamp) };
        }
        for page in 0..PAGES {
            let stamp = number << 32 | round << 16 | page;
            // SAFETY: as above.
            let found = unsafe { word(page).read_volatile() };
            assert!(found == stamp, "thread {number}: page {page} has {found:#x} instead of {stamp:#x}");
        }
        for page in 0..SHARED {
            // SAFETY: mapped for reading, and never written.
            let found = unsafe { ((shared + page * PAGE) as *const u64).read_volatile() };
            assert!(found == 0, "thread {number}: shared page {page} has {found:#x}");
        }
        accesses += 2 * PAGES + SHARED;
        let [sum, last] = call(ADD, [1, 2, 3, 4, round, number]);
        assert!(sum == 10 + round + number && last == number, "a call returned {sum} and {last}");
        let words: Vec<u64> = (0..round * 8).collect();
        let text = format!("{:.3} {}", words.iter().sum::<u64>() as f64 / 8.0, words.len());
        assert!(text.ends_with(&format!(" {}", words.len())), "{text}");
        if round % 20 == 0 {
            call(SLEEP, [2_000_000, 0, 0, 0, 0, 0]);
        }
    }
    assert!(!trap::can_read(forbidden), "a program reads the kernel's data");
    assert!(!trap::can_read(paging::DIRECT), "a program reads physical memory");
    end(accesses)
}

/// End the calling thread, which made this many accesses.
pub(super) fn end(accesses: u64) -> ! {
    call(EXIT, [accesses, 0, 0, 0, 0, 0]);
    unreachable!("the thread has ended")
}

/// Threads to run in ring 3. Their arguments are the address of a thread's own memory, that of the memory
/// that the space's threads share (or the number of the thread's own pages, if they share none), the thread's
/// number, and an address that it may not read.
pub(super) struct Program {
    pub(super) entry: user::Entry,
    /// Address spaces.
    pub(super) spaces: u64,
    /// Threads of each.
    pub(super) threads: u64,
    /// Pages of each thread's own.
    pub(super) own: u64,
    /// Pages that all threads of a space share.
    pub(super) shared: u64,
}

/// Run threads while the kernel changes their mappings. Returns the numbers of accesses and threads.
pub fn run() -> (u64, u64) {
    hooks::set(&Kernel);
    let mm = machine::mm();
    let threads = 2 * cpu::all().len() as u64;
    let program = Program { entry: thread, spaces: 1, threads, own: PAGES, shared: SHARED };
    let mut changes = 0;
    let accesses = run_all(&program, |space, shared| {
        let prot = if changes % 2 == 0 { Prot::READ } else { Prot::READ | Prot::WRITE };
        mm.mprotect(space, shared, SHARED, prot).unwrap_or_else(|error| fail("mprotect", error));
        mm.madvise(space, shared, SHARED, Advice::DontNeed).unwrap_or_else(|error| fail("madvise", error));
        changes += 1;
    });
    let faults = mm.mmu().stats.read(Stat::Pgfault);
    log!("selftest: {threads} threads in ring 3, {faults} faults, {changes} changes of their mappings");
    (accesses, threads)
}

/// Run all threads of a program; call `change` every millisecond with each space and its shared memory.
/// Returns the number of accesses.
pub(super) fn run_all(program: &Program, mut change: impl FnMut(SpaceId, Vpn)) -> u64 {
    let mm = machine::mm();
    let (ended, accesses) = (ENDED.load(SeqCst), ACCESSES.load(SeqCst));
    let others = sched::alive();
    let create = |_| mm.create_space(GroupId(0)).unwrap_or_else(|error| fail("create_space", error));
    let spaces: Vec<(SpaceId, Vpn)> =
        (0..program.spaces).map(create).map(|space| (space, map(space, program.shared.max(1)))).collect();
    for (i, &(space, shared)) in (0..).zip(&spaces) {
        for number in i * program.threads..(i + 1) * program.threads {
            let base = map(space, program.own).addr();
            let second = if program.shared == 0 { program.own } else { shared.addr() };
            start(program.entry, space, number, [base, second, number, (&raw const ENDED) as u64]);
        }
    }
    let end = clock::now() + TIMEOUT;
    while ENDED.load(SeqCst) < ended + program.spaces * program.threads {
        if clock::now() >= end {
            log_tasks();
        }
        check!(clock::now() < end, "programs do not end");
        spaces.iter().for_each(|&(space, shared)| change(space, shared));
        sched::sleep_until(clock::now() + 1_000_000);
    }
    until("ended threads are not removed", || sched::alive() <= others);
    spaces.iter().for_each(|&(space, _)| mm.exit_space(space));
    ACCESSES.load(SeqCst) - accesses
}

fn map(space: SpaceId, pages: u64) -> Vpn {
    let prot = Prot::READ | Prot::WRITE;
    let request =
        MapRequest { at: None, pages, prot, backing: Backing::Anonymous, locked: false, populate: false };
    machine::mm().mmap(space, &request).unwrap_or_else(|error| fail("mmap", error))
}

/// Run a program that executes a privileged instruction.
pub fn crash() {
    extern "C" fn halt(_: u64, _: u64, _: u64, _: u64) -> ! {
        // SAFETY: it faults, and the handler ends the run.
        unsafe { core::arch::asm!("hlt") };
        end(0)
    }
    hooks::set(&Kernel);
    let space = machine::mm().create_space(GroupId(0)).unwrap_or_else(|error| fail("create_space", error));
    start(halt, space, 0, [0; 4]);
    until("a program halts the CPU", || ENDED.load(SeqCst) == 1);
}

fn start(entry: user::Entry, space: SpaceId, number: u64, args: [u64; 4]) {
    sched::spawn(format!("thread {number}"), Some(space), move || {
        let stack = arena::take_stack().unwrap_or_else(|| fail("take_stack", "no free stack"));
        sched::current().set_data(stack);
        user::enter(entry, stack, args)
    });
}

fn fail(what: &str, error: impl core::fmt::Debug) -> ! {
    report::failed(format_args!("selftest: {what}: {error:?}"))
}
