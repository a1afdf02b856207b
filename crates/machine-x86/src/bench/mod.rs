//! Instructions that known work takes, counted in ring 3 by the machine's clock.
//!
//! With `-icount shift=0,sleep=off` the emulator's time is the number of instructions that its CPUs have executed, so
//! the time stamp counter, read before and after, counts them: of the program, which is a handful, and of the kernel.
//! Each step of a repeated instruction counts as one, so clearing a page is measured by itself and taken off where the
//! figures that ours are held against leave it out. While all CPUs rest the clock leaps; that time is known to the
//! scheduler and taken off too (with the handler of the interrupt that ends a rest).
//!
//! On several CPUs the others spin in ring 3 meanwhile and count their turns, so that what they execute can be taken
//! off. The emulator runs CPUs in turn, each for much longer than an operation takes, so timers interrupt them
//! meanwhile, some dozen times; what such an interrupt costs is measured first, and taken off too.

pub mod calls;

use self::calls::{self as own, Operation};
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

/// Instructions of one turn of a spinning thread.
const TURN: u64 = 3;
/// Threads that spin beside the one that measures, on a machine with four CPUs.
const SPINNERS: u64 = 3;

/// What the threads share, in the arena behind the home.
#[repr(C)]
struct Shared {
    stop: AtomicU64,
    turns: [AtomicU64; SPINNERS as usize + 1],
}

const SHARED_AT: u64 = 2048;
const SHARED: *mut Shared = (paging::ARENA + SHARED_AT) as *mut Shared;
const _: () = assert!(SHARED_AT + size_of::<Shared>() as u64 <= arena::HOME_BYTES);

/// Run the benchmark and end the run.
pub fn run(seed: u64) -> ! {
    if !time_counts_instructions() {
        report::bad(format_args!(
            "program=bench counts instructions by the clock, which needs -accel tcg,thread=single -icount shift=0,sleep=off"
        ));
    }
    // SAFETY: set aside, and nobody looks before the first task begins.
    unsafe { SHARED.write(Shared { stop: AtomicU64::new(0), turns: Default::default() }) };
    // What a task of a program is given does not matter here, but it is checked.
    let (program, groups) = ("uniform:1048576".into(), Vec::new());
    programs::run(Run { program, trace: None, seed, check: false, groups, entry: task })
}

/// Is the clock the count of instructions?
fn time_counts_instructions() -> bool {
    const TURNS: u64 = 500_000;
    let before = rdtsc();
    // SAFETY: changes only its own register.
    unsafe { asm!("2: dec {0}", "jnz 2b", inout(reg) TURNS => _, options(nomem, nostack)) };
    // A tick or two may come in between.
    (2 * TURNS..2 * TURNS + TURNS / 10).contains(&(rdtsc() - before))
}

// --- ring 3 -----------------------------------------------------------------------------------------------

/// Where every task of the benchmark begins: role 0 measures, others spin. `machine`: bytes of memory, which are whole
/// pages, and number of CPUs.
extern "C" fn task(_: u64, _: u64, role: u64, machine: u64) -> ! {
    let (memory, cpus) = (machine & !(PAGE_SIZE - 1), machine & (PAGE_SIZE - 1));
    match role {
        0 if cpus > SPINNERS => measure_shared(),
        0 => measure(memory),
        spinner => spin(spinner),
    }
    ask(&Call::Exit(Exit::default()));
    unreachable!("the task has ended")
}

fn shared() -> &'static Shared {
    // SAFETY: ring 0 has made it before the first task began.
    unsafe { &*SHARED }
}

fn spin(role: u64) {
    let turns = &shared().turns[role as usize % shared().turns.len()];
    while shared().stop.load(Relaxed) == 0 {
        // SAFETY: counts in a word that only this thread writes.
        unsafe {
            asm!("2: inc qword ptr [{turns}]", "dec {left}", "jnz 2b", turns = in(reg) turns.as_ptr(),
                left = inout(reg) 100_000u64 => _, options(nostack));
        }
    }
}

fn turns() -> u64 {
    shared().turns.iter().map(|turns| turns.load(Relaxed)).sum()
}

/// Make a call that must succeed.
fn ask(call: &Call) -> u64 {
    let text = &mut Vec::new();
    let (number, args) = call.encode(|name| {
        // Ring 0 reads names from the programs' heap.
        text.extend_from_slice(name.as_bytes());
        Buffer { addr: text.as_ptr() as u64, len: text.len() as u64 }
    });
    // SAFETY: calls of `abi`; buffers that they name are this task's own.
    let answer = decode_answer(unsafe { system_call(number, args) });
    answer.unwrap_or_else(|errno| panic!("{call:?}: {errno:?}"))
}

fn own_call(number: u64, args: [u64; 6]) -> u64 {
    // SAFETY: the benchmark's own calls take numbers only.
    let [answer, _] = unsafe { system_call(number, args) };
    answer
}

/// `instructions` for `units` of an operation.
fn tell(operation: Operation, instructions: u64, units: u64) {
    own_call(own::RESULT, [operation as u64, instructions * 10 / units, units, 0, 0, 0]);
}

/// Instructions that `work` takes.
fn count(work: impl FnOnce()) -> u64 {
    let before = rdtsc();
    work();
    rdtsc() - before
}

/// The same for work during which the machine may rest.
fn count_busy(work: impl FnOnce()) -> u64 {
    let rested = own_call(own::RESTED, [0; 6]);
    let all = count(work);
    all - (own_call(own::RESTED, [0; 6]) - rested)
}

fn write(addr: u64) {
    // SAFETY: memory that the benchmark has mapped for itself.
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
    ask(&Call::Mmap(Map::anonymous(pages * PAGE_SIZE)))
}

fn unmap(addr: u64, pages: u64) {
    ask(&Call::Munmap(addr, pages * PAGE_SIZE));
}

/// Instructions of clearing a page, which are the steps of one repeated instruction.
fn clearing(page: u64) -> u64 {
    count(|| {
        // SAFETY: a page that the benchmark has mapped and touched.
        unsafe {
            asm!("rep stosq", inout("rcx") 512u64 => _, inout("rdi") page => _, in("rax") 0u64, options(nostack));
        }
    })
}

/// All that needs one CPU.
fn measure(memory: u64) {
    const PAGES: u64 = 512;
    const CALLS: u64 = 64;
    // One page first: the tables are there then, and what follows differs only in the entry.
    let area = map(2 * PAGES).next_multiple_of(PAGES * PAGE_SIZE);
    write(area);
    let clear = clearing(area);
    let rest = area + PAGE_SIZE;
    let faults = count(|| pages_at(rest, PAGES - 1).for_each(write));
    let again = count(|| pages_at(rest, PAGES - 1).for_each(write));
    tell(Operation::AnonFault, faults - again - (PAGES - 1) * clear, PAGES - 1);
    tell(Operation::Munmap512, count(|| unmap(area, PAGES)), PAGES);
    let calls = (0..CALLS).map(|_| {
        let page = map(1);
        write(page);
        count(|| unmap(page, 1))
    });
    tell(Operation::Munmap1, calls.sum(), CALLS);
    measure_compaction(memory);
    measure_reclaim(Operation::ReclaimFile);
    // Before memory is short: kswapd would work beside the walk.
    measure_generations(memory);
    let pages = 2 * memory / PAGE_SIZE;
    let large = map_file("stream", pages);
    pages_at(large, pages).for_each(read);
    tell(Operation::Stream, count_busy(|| pages_at(large, pages).for_each(read)), pages);
}

/// Reclaim pages of a file that are mapped once.
fn measure_reclaim(operation: Operation) {
    const PAGES: u64 = 1024;
    let file = map_file("bench", PAGES);
    pages_at(file, PAGES).for_each(read);
    let advice = Call::Madvise(file, PAGES * PAGE_SIZE, Advice::PageOut);
    tell(operation, count_busy(|| _ = ask(&advice)), PAGES);
    unmap(file, PAGES);
}

/// Of a half of memory every other page is given back, and what is left put together.
fn measure_compaction(memory: u64) {
    let pages = memory / 2 / PAGE_SIZE;
    let area = map(pages);
    pages_at(area, pages).for_each(write);
    pages_at(area, pages).step_by(2).for_each(|page| {
        ask(&Call::Madvise(page, PAGE_SIZE, Advice::DontNeed));
    });
    let migrated = || own_call(own::MIGRATED, [0; 6]);
    let before = migrated();
    let all = count_busy(|| set_knob("vm.compact_memory", 1));
    tell(Operation::CompactPage, all, migrated() - before);
    unmap(area, pages);
}

/// What differs under MGLRU, to which the machine goes over, and back.
fn measure_generations(memory: u64) {
    set_knob("reclaim.policy", 1);
    measure_reclaim(Operation::ReclaimFileMglru);
    let pages = memory / 2 / PAGE_SIZE;
    let area = map(pages);
    let age = || {
        pages_at(area, pages).for_each(write);
        let youngest = own_call(own::YOUNGEST, [0; 6]);
        count(|| _ = own_call(own::AGE, [youngest, 0, 0, 0, 0, 0]))
    };
    // The first walk brings the pages into the youngest generation; the second finds all of them used again.
    age();
    tell(Operation::AgePage, age(), pages);
    unmap(area, pages);
    set_knob("reclaim.policy", 0);
}

fn set_knob(name: &str, value: u64) {
    ask(&Call::SetKnob(Text::Said(name), value));
}

/// Map a new file for reading.
fn map_file(name: &str, pages: u64) -> u64 {
    let size = pages * PAGE_SIZE;
    let (fd, _) = unpair(ask(&Call::Open(Text::Said(name), size, false, false)));
    let source = MapSource::File { fd, offset: 0, shared: true };
    ask(&Call::Mmap(Map { prot: Prot::READ, source, ..Map::anonymous(size) }))
}

/// Instructions that `work` takes on all CPUs without those of the spinning threads, and the timers' interrupts
/// meanwhile.
fn beside_spinners(work: impl FnOnce()) -> (u64, u64) {
    let ticks = || own_call(own::TICKS, [0; 6]);
    let ticks_before = ticks();
    // Nothing stands between the clock and the turns: while a call is made there, others might have theirs.
    let turns_before = turns();
    let all = count(work);
    let turned = turns() - turns_before;
    (all - turned * TURN, ticks() - ticks_before)
}

/// Turns of a wait during which timers tick on all CPUs, and instructions of each.
const PAUSE: u64 = 100_000_000;
const PAUSE_TURN: u64 = 2;

fn pause(turns: u64) {
    // SAFETY: changes only its own register.
    unsafe { asm!("2: dec {0}", "jnz 2b", inout(reg) turns => _, options(nomem, nostack)) };
}

/// What needs other CPUs: they run this space, and spin.
fn measure_shared() {
    // While the initiator waits, the emulator lets others spin for as long as a tick, each time.
    const CALLS: u64 = 40;
    let spinners: Vec<u64> = (1..=SPINNERS as u32).map(|role| ask(&Call::Spawn(role))).collect();
    // All of them have begun.
    while shared().turns[1..].iter().any(|turns| turns.load(Relaxed) == 0) {
        ask(&Call::Yield());
    }
    let (alone, ticks) = beside_spinners(|| pause(PAUSE));
    let tick = (alone - PAUSE * PAUSE_TURN) / ticks.max(1);
    let own = (0..CALLS).map(|_| {
        let page = map(1);
        write(page);
        let (own, ticks) = beside_spinners(|| unmap(page, 1));
        own - ticks * tick
    });
    tell(Operation::MunmapShared, own.sum(), CALLS);
    shared().stop.store(1, Relaxed);
    spinners.into_iter().for_each(|task| _ = ask(&Call::Join(task as u32)));
}
