//! Instructions that known work takes, counted in ring 3 by the machine's clock.
//!
//! With `-icount shift=0,sleep=off` the emulator's time is the number of instructions executed by its CPUs.
//! So the time stamp counter, read before and after, counts them: the program's, which are a handful, and the
//! kernel's. Each step of a repeated instruction counts as one, so clearing a page is measured separately and
//! subtracted where comparable figures exclude it. While all CPUs are idle the clock leaps; the scheduler
//! knows that time, and it is subtracted, too (with the handler of the interrupt that ends the idle time).
//!
//! With several CPUs, the others spin in ring 3 and count their iterations, so that their instructions can be
//! subtracted. The emulator runs the CPUs alternately, each for much longer than an operation takes, so some
//! dozen timer interrupts occur during an operation; the cost of such an interrupt is measured first, and
//! subtracted, too.

pub mod calls;

use self::calls as own;
use crate::arch::call::system_call;
use crate::arch::instructions::rdtsc;
use crate::arch::{paging, touch};
use crate::programs::{self, Run};
use crate::{arena, report};
use abi::call::{Buffer, Call, Exit, Text, decode_answer, unpair};
use alloc::vec::Vec;
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering::*};
use mm::units::PAGE_SIZE;
use program::{Advice, Map, MapSource, Prot};

/// Instructions of one iteration of a spinning thread.
const SPIN_INSTRUCTIONS: u64 = 3;
/// Threads that spin besides the measuring one, on a machine with four CPUs.
const SPINNERS: u64 = 3;

/// What the threads share, in the arena after the launch information.
#[repr(C)]
struct Shared {
    stop: AtomicU64,
    spins: [AtomicU64; SPINNERS as usize + 1],
}

const SHARED_AT: u64 = 2048;
const SHARED: *mut Shared = (paging::ARENA + SHARED_AT) as *mut Shared;
const _: () = assert!(SHARED_AT + size_of::<Shared>() as u64 <= arena::LAUNCH_INFO_BYTES);

/// Run the benchmark and end the run.
pub fn run(seed: u64) -> ! {
    if !time_counts_instructions() {
        report::bad(format_args!(
            "program=bench counts instructions by the clock, which needs -accel tcg,thread=single -icount shift=0,sleep=off"
        ));
    }
    // SAFETY: the memory is reserved, and nothing reads it before the first task begins.
    unsafe { SHARED.write(Shared { stop: AtomicU64::new(0), spins: Default::default() }) };
    // The program of a task does not matter here, but it is checked.
    let (program, groups) = ("uniform:1048576".into(), Vec::new());
    programs::run(Run { program, trace: None, seed, check: false, groups, entry: task })
}

/// Whether the clock counts instructions.
fn time_counts_instructions() -> bool {
    const ITERATIONS: u64 = 500_000;
    let before = rdtsc();
    // SAFETY: changes only its own register.
    unsafe { asm!("2: dec {0}", "jnz 2b", inout(reg) ITERATIONS => _, options(nomem, nostack)) };
    // A tick or two may occur during this.
    (2 * ITERATIONS..2 * ITERATIONS + ITERATIONS / 10).contains(&(rdtsc() - before))
}

// --- ring 3 -----------------------------------------------------------------------------------------------

/// The entry of every task of the benchmark: role 0 measures, the others spin. `machine`: bytes of memory,
/// which are whole pages, plus number of CPUs.
extern "C" fn task(_: u64, _: u64, role: u64, machine: u64) -> ! {
    let (memory, cpus) = (machine & !(PAGE_SIZE - 1), machine & (PAGE_SIZE - 1));
    match role {
        0 if cpus > SPINNERS => measure_shared(),
        0 => measure(memory),
        spinner => spin(spinner),
    }
    syscall(&Call::Exit(Exit::default()));
    unreachable!("the task has ended")
}

fn shared() -> &'static Shared {
    // SAFETY: ring 0 has initialized it before the first task began.
    unsafe { &*SHARED }
}

fn spin(role: u64) {
    let spins = &shared().spins[role as usize % shared().spins.len()];
    while shared().stop.load(Relaxed) == 0 {
        // SAFETY: counts in a word that only this thread writes.
        unsafe {
            asm!("2: inc qword ptr [{spins}]", "dec {left}", "jnz 2b", spins = in(reg) spins.as_ptr(),
                left = inout(reg) 100_000u64 => _, options(nostack));
        }
    }
}

fn spins() -> u64 {
    shared().spins.iter().map(|spins| spins.load(Relaxed)).sum()
}

/// Make a call that must succeed.
fn syscall(call: &Call) -> u64 {
    let text = &mut Vec::new();
    let (number, args) = call.encode(|name| {
        // Ring 0 reads names from the programs' heap.
        text.extend_from_slice(name.as_bytes());
        Buffer { addr: text.as_ptr() as u64, len: text.len() as u64 }
    });
    // SAFETY: calls of `abi`; the buffers belong to this task.
    let answer = decode_answer(unsafe { system_call(number, args) });
    answer.unwrap_or_else(|errno| panic!("{call:?}: {errno:?}"))
}

fn bench_call(number: u64, args: [u64; 6]) -> u64 {
    // SAFETY: the benchmark's own calls take only numbers.
    let [answer, _] = unsafe { system_call(number, args) };
    answer
}

/// Report `instructions` for `units` of an operation.
fn report_result(operation: &str, instructions: u64, units: u64) {
    let index =
        own::OPERATIONS.iter().position(|&name| name == operation).expect("an operation must be known");
    bench_call(own::RESULT, [index as u64, instructions * 10 / units, units, 0, 0, 0]);
}

/// The number of instructions of `work`.
fn count(work: impl FnOnce()) -> u64 {
    let before = rdtsc();
    work();
    rdtsc() - before
}

/// The number of instructions of `work`, during which the machine may be idle.
fn count_busy(work: impl FnOnce()) -> u64 {
    let rested = bench_call(own::IDLE, [0; 6]);
    let all = count(work);
    all - (bench_call(own::IDLE, [0; 6]) - rested)
}

fn write(addr: u64) {
    // SAFETY: memory that the benchmark has mapped.
    unsafe { touch::store(addr, 1) }.unwrap_or_else(|why| panic!("a store to {addr:#x}: {why:?}"));
}

fn read(addr: u64) {
    // SAFETY: as above.
    unsafe { touch::load(addr) }.unwrap_or_else(|why| panic!("a load from {addr:#x}: {why:?}"));
}

fn pages_at(start: u64, pages: u64) -> impl Iterator<Item = u64> {
    (0..pages).map(move |page| start + page * PAGE_SIZE)
}

fn map(pages: u64) -> u64 {
    syscall(&Call::Mmap(Map::anonymous(pages * PAGE_SIZE)))
}

fn unmap(addr: u64, pages: u64) {
    syscall(&Call::Munmap(addr, pages * PAGE_SIZE));
}

/// The number of instructions that clear a page: the steps of one repeated instruction.
fn count_clearing(page: u64) -> u64 {
    count(|| {
        // SAFETY: a page that the benchmark has mapped and touched.
        unsafe {
            asm!("rep stosq", inout("rcx") 512u64 => _, inout("rdi") page => _, in("rax") 0u64, options(nostack));
        }
    })
}

/// The operations that need one CPU.
fn measure(memory: u64) {
    const PAGES: u64 = 512;
    const CALLS: u64 = 64;
    // First touch one page, which creates the tables: what follows differs only in the entry.
    let area = map(2 * PAGES).next_multiple_of(PAGES * PAGE_SIZE);
    write(area);
    let clear = count_clearing(area);
    let rest = area + PAGE_SIZE;
    let faults = count(|| pages_at(rest, PAGES - 1).for_each(write));
    let repeated = count(|| pages_at(rest, PAGES - 1).for_each(write));
    report_result("anon_fault", faults - repeated - (PAGES - 1) * clear, PAGES - 1);
    report_result("munmap_512", count(|| unmap(area, PAGES)), PAGES);
    let calls = (0..CALLS).map(|_| {
        let page = map(1);
        write(page);
        count(|| unmap(page, 1))
    });
    report_result("munmap_1", calls.sum(), CALLS);
    measure_compaction(memory);
    measure_reclaim("reclaim_file");
    // Before memory is short: kswapd would run during the walk.
    measure_generations(memory);
    let pages = 2 * memory / PAGE_SIZE;
    let large = map_file("stream", pages);
    pages_at(large, pages).for_each(read);
    report_result("stream", count_busy(|| pages_at(large, pages).for_each(read)), pages);
}

/// Reclaim pages of a file that are mapped once.
fn measure_reclaim(operation: &str) {
    const PAGES: u64 = 1024;
    let file = map_file("bench", PAGES);
    pages_at(file, PAGES).for_each(read);
    let advice = Call::Madvise(file, PAGES * PAGE_SIZE, Advice::PageOut);
    report_result(operation, count_busy(|| _ = syscall(&advice)), PAGES);
    unmap(file, PAGES);
}

/// Free every second page of half of memory, and compact the rest.
fn measure_compaction(memory: u64) {
    let pages = memory / 2 / PAGE_SIZE;
    let area = map(pages);
    pages_at(area, pages).for_each(write);
    pages_at(area, pages).step_by(2).for_each(|page| {
        syscall(&Call::Madvise(page, PAGE_SIZE, Advice::DontNeed));
    });
    let migrated = || bench_call(own::MIGRATED, [0; 6]);
    let before = migrated();
    let all = count_busy(|| set_knob("vm.compact_memory", 1));
    report_result("compact_page", all, migrated() - before);
    unmap(area, pages);
}

/// The operations under MGLRU; switches the machine to it, and back.
fn measure_generations(memory: u64) {
    set_knob("reclaim.policy", 1);
    measure_reclaim("reclaim_file_mglru");
    let pages = memory / 2 / PAGE_SIZE;
    let area = map(pages);
    let age = || {
        pages_at(area, pages).for_each(write);
        let youngest = bench_call(own::YOUNGEST, [0; 6]);
        count(|| _ = bench_call(own::AGE, [youngest, 0, 0, 0, 0, 0]))
    };
    // The first walk moves the pages to the youngest generation; the second finds that all of them were used
    // again.
    age();
    report_result("age_page", age(), pages);
    unmap(area, pages);
    set_knob("reclaim.policy", 0);
}

fn set_knob(name: &str, value: u64) {
    syscall(&Call::SetKnob(Text::Said(name), value));
}

/// Map a new file for reading.
fn map_file(name: &str, pages: u64) -> u64 {
    let size = pages * PAGE_SIZE;
    let (fd, _) = unpair(syscall(&Call::Open(Text::Said(name), size, false, false)));
    let source = MapSource::File { fd, offset: 0, shared: true };
    syscall(&Call::Mmap(Map { prot: Prot::READ, source, ..Map::anonymous(size) }))
}

/// The number of instructions of `work` on all CPUs without those of the spinning threads, and the number of
/// timer interrupts.
fn count_without_spinners(work: impl FnOnce()) -> (u64, u64) {
    let ticks = || bench_call(own::TICKS, [0; 6]);
    let ticks_before = ticks();
    // Nothing may come between reading the clock and the iterations: others would spin during a call.
    let turns_before = spins();
    let all = count(work);
    let spun = spins() - turns_before;
    (all - spun * SPIN_INSTRUCTIONS, ticks() - ticks_before)
}

/// Iterations of a pause during which timers tick on all CPUs, and instructions of each.
const PAUSE: u64 = 100_000_000;
const PAUSE_INSTRUCTIONS: u64 = 2;

fn pause(spins: u64) {
    // SAFETY: changes only its own register.
    unsafe { asm!("2: dec {0}", "jnz 2b", inout(reg) spins => _, options(nomem, nostack)) };
}

/// The operations that need other CPUs: they run this space, and spin.
fn measure_shared() {
    // While the initiator waits, the emulator lets the others spin for as long as a tick, each time.
    const CALLS: u64 = 40;
    let spinners: Vec<u64> = (1..=SPINNERS as u32).map(|role| syscall(&Call::Spawn(role))).collect();
    // Until all of them have started.
    while shared().spins[1..].iter().any(|spins| spins.load(Relaxed) == 0) {
        syscall(&Call::Yield());
    }
    let (alone, ticks) = count_without_spinners(|| pause(PAUSE));
    let tick = (alone - PAUSE * PAUSE_INSTRUCTIONS) / ticks.max(1);
    let own = (0..CALLS).map(|_| {
        let page = map(1);
        write(page);
        let (own, ticks) = count_without_spinners(|| unmap(page, 1));
        own - ticks * tick
    });
    report_result("munmap_shared_4", own.sum(), CALLS);
    shared().stop.store(1, Relaxed);
    spinners.into_iter().for_each(|task| _ = syscall(&Call::Join(task as u32)));
}
