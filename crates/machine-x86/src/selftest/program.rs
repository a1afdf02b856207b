//! Programs in ring 3, on memory of the memory manager's, while the kernel changes their mappings.

use super::{check, tasks::until};
use crate::arch::trap::{self, Frame};
use crate::arch::user;
use crate::arch::{clock, cpu, paging};
use crate::hooks::{self, Hooks};
use crate::{arena, log, machine, report, sched};
use alloc::format;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::*};
use mm::api::{AccessKind, Advice, Backing, MapRequest, Prot};
use mm::stat::Stat;
use mm::units::{GroupId, SpaceId, Vpn};

/// Calls of the test programs.
const EXIT: u64 = 1;
const ADD: u64 = 2;
const SLEEP: u64 = 3;

/// Pages of each thread.
const PAGES: u64 = 64;
const ROUNDS: u64 = 60;
/// Pages that are thrown away again and again while threads read them.
const SHARED: u64 = 32;
const PAGE: u64 = 4096;

static ENDED: AtomicU64 = AtomicU64::new(0);
static ACCESSES: AtomicU64 = AtomicU64::new(0);

struct Kernel;

impl Hooks for Kernel {
    fn user_fault(&self, address: u64, access: AccessKind, frame: &mut Frame) {
        let space = sched::current().space().expect("ring 3 has a space");
        if address < 1 << 47 && machine::mm().fault(space, Vpn::of(address), access).is_ok() {
            return;
        }
        if !trap::end_probe(frame) {
            let name = sched::current().name();
            report::failed(format_args!("selftest: {name}: {access:?} of {address:#x} at {:#x}", frame.rip));
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
                // Before anybody is told: the space may be taken apart then.
                sched::set_space(None);
                ENDED.fetch_add(1, SeqCst);
                sched::exit()
            }
            number => report::failed(format_args!("selftest: call {number}")),
        }
    }
}

fn call(number: u64, args: [u64; 6]) -> [u64; 2] {
    // SAFETY: the calls above take numbers only.
    unsafe { user::system_call(number, args) }
}

/// What each thread does in ring 3: `base` are its own pages, `shared` those of all.
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
            assert!(found == stamp, "thread {number}: page {page} has {found:#x} and not {stamp:#x}");
        }
        for page in 0..SHARED {
            // SAFETY: mapped for reading; nobody ever writes there.
            let found = unsafe { ((shared + page * PAGE) as *const u64).read_volatile() };
            assert!(found == 0, "thread {number}: shared page {page} has {found:#x}");
        }
        accesses += 2 * PAGES + SHARED;
        let [sum, last] = call(ADD, [1, 2, 3, 4, round, number]);
        assert!(sum == 10 + round + number && last == number, "a call gave {sum} and {last}");
        let words: Vec<u64> = (0..round * 8).collect();
        let text = format!("{:.3} {}", words.iter().sum::<u64>() as f64 / 8.0, words.len());
        assert!(text.ends_with(&format!(" {}", words.len())), "{text}");
        if round % 20 == 0 {
            call(SLEEP, [2_000_000, 0, 0, 0, 0, 0]);
        }
    }
    assert!(!trap::can_read(forbidden), "a program reads the kernel's data");
    assert!(!trap::can_read(paging::DIRECT), "a program reads physical memory");
    call(EXIT, [accesses, 0, 0, 0, 0, 0]);
    unreachable!("the thread has ended")
}

/// Run threads in one space. Returns accesses and threads.
pub fn run() -> (u64, u64) {
    hooks::set(&Kernel);
    let mm = machine::mm();
    let space = mm.create_space(GroupId(0)).unwrap_or_else(|error| fail("create_space", error));
    let map = |pages, prot| {
        let request =
            MapRequest { at: None, pages, prot, backing: Backing::Anonymous, locked: false, populate: false };
        mm.mmap(space, &request).unwrap_or_else(|error| fail("mmap", error)).addr()
    };
    let threads = 2 * cpu::all().len() as u64;
    let shared = map(SHARED, Prot::READ | Prot::WRITE);
    for number in 0..threads {
        let base = map(PAGES, Prot::READ | Prot::WRITE);
        start(space, number, [base, shared, number, (&raw const ENDED) as u64]);
    }
    let end = clock::now() + 60_000_000_000;
    let mut changes = 0;
    while ENDED.load(SeqCst) < threads {
        check!(clock::now() < end, "programs do not end");
        let prot = if changes % 2 == 0 { Prot::READ } else { Prot::READ | Prot::WRITE };
        mm.mprotect(space, Vpn::of(shared), SHARED, prot).unwrap_or_else(|error| fail("mprotect", error));
        mm.madvise(space, Vpn::of(shared), SHARED, Advice::DontNeed)
            .unwrap_or_else(|error| fail("madvise", error));
        changes += 1;
        sched::sleep_until(clock::now() + 1_000_000);
    }
    until("threads stay", || sched::alive() <= 1 + mm.daemons().len());
    mm.exit_space(space);
    let faults = mm.ground().stats.read(Stat::Pgfault);
    log!("selftest: {threads} threads in ring 3, {faults} faults, {changes} changes of their mappings");
    (ACCESSES.load(SeqCst), threads)
}

fn start(space: SpaceId, number: u64, args: [u64; 4]) {
    sched::spawn(format!("thread {number}"), Some(space), move || {
        let stack = arena::take_stack().unwrap_or_else(|| fail("take_stack", "none is left"));
        sched::current().set_data(stack);
        user::enter(thread, stack, args)
    });
}

fn fail(what: &str, error: impl core::fmt::Debug) -> ! {
    report::failed(format_args!("selftest: {what}: {error:?}"))
}
