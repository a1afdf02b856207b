//! Instructions that known work takes, counted by the clock: the operations of `pagefold boot --bench`, in the same
//! order and by the same method, so that the kernels can be compared.
//!
//! Under `-icount` the time stamp counter is the number of instructions that the emulator's CPUs have executed, in user
//! mode and in the kernel. While a task waits for a disk, a process of the idle class spins and counts its turns, so
//! that they can be subtracted: the machine is never idle, and the clock never leaps. Each step of a repeated
//! instruction counts as one, so clearing a page is measured by itself and subtracted where a figure leaves it out.

use crate::report::{self, print};
use crate::sys;
use crate::task::RunState;
use crate::touch;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use core::arch::asm;
use core::arch::x86_64::_rdtsc;
use core::sync::atomic::{AtomicU64, Ordering::*};
use program::{Advice, Call, Map, MapSource, Prot, Role};

const PAGE: u64 = 4096;
/// Instructions of a turn of a spinning task.
const TURN: u64 = 3;
/// A setting of Linux that selects the policy of reclaim.
const GENERATIONS: &str = "/sys/kernel/mm/lru_gen/enabled";
const GENERATIONS_FILE: &str = "/sys/kernel/debug/lru_gen";

/// Turns of the spinning process. It is in the arena, which all processes share.
struct Spinner(AtomicU64);

/// Measure, report, and end the machine.
pub fn run(state: &'static RunState) -> ! {
    if !time_counts_instructions() {
        report::bad(format_args!(
            "the benchmark counts instructions by the clock, which needs -icount shift=0"
        ));
    }
    let spinner: &'static Spinner = Box::leak(Box::new(Spinner(AtomicU64::new(0))));
    SPINNER.store(core::ptr::from_ref(spinner).cast_mut(), SeqCst);
    for body in [spin, measure] {
        if let Err(why) = state.start(0, true, body) {
            report::failed(format_args!("a process of the benchmark: error {}", why.0));
        }
    }
    // The one that measures ends first, and then the machine.
    match sys::wait_for(-1, true) {
        Ok(Some(ended)) if ended.signal == 0 => report::end(report::Verdict::Ok),
        other => report::failed(format_args!("the benchmark's process: {other:?}")),
    }
}

/// Where the turns are; processes inherit it.
static SPINNER: core::sync::atomic::AtomicPtr<Spinner> =
    core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());

fn turns() -> &'static AtomicU64 {
    // SAFETY: it was set before the processes began, and is never freed.
    unsafe { &(*SPINNER.load(SeqCst)).0 }
}

/// Whether the clock counts instructions.
fn time_counts_instructions() -> bool {
    const TURNS: u64 = 500_000;
    let before = ticks();
    // SAFETY: changes only its own register.
    unsafe { asm!("2: dec {0}", "jnz 2b", inout(reg) TURNS => _, options(nomem, nostack)) };
    // A tick of the kernel may come in between.
    (2 * TURNS..2 * TURNS + TURNS / 2).contains(&(ticks() - before))
}

fn ticks() -> u64 {
    // SAFETY: reading the counter changes nothing.
    unsafe { _rdtsc() }
}

/// Use the time that no other task wants, and count the turns.
fn spin(_: &'static RunState, _: u32, _: Role) {
    sys::enter_idle_class();
    let turns = turns();
    loop {
        // SAFETY: counts in a word that only this process writes.
        unsafe {
            asm!("2: inc qword ptr [{turns}]", "dec {left}", "jnz 2b", turns = in(reg) turns.as_ptr(),
                left = inout(reg) 1_000_000u64 => _, options(nostack));
        }
    }
}

/// The number of instructions of `work` without those of the spinning process.
fn count(work: impl FnOnce()) -> u64 {
    let (turns_before, before) = (turns().load(Relaxed), ticks());
    work();
    let all = ticks() - before;
    all.saturating_sub((turns().load(Relaxed) - turns_before) * TURN)
}

/// Report `instructions` for `units` of an operation.
fn tell(operation: &str, instructions: u64, units: u64) {
    let tenths = instructions * 10 / units.max(1);
    print(format_args!("@insns {operation} {}.{} {units}", tenths / 10, tenths % 10));
}

fn must<T>(what: &str, result: Result<T, sys::Code>) -> T {
    result.unwrap_or_else(|why| report::failed(format_args!("{what}: error {}", why.0)))
}

fn make(call: Call<'_>) -> u64 {
    // SAFETY: the calls are about memory that the benchmark has mapped.
    must("a call of the benchmark", unsafe { sys::make(call) })
}

fn write(addr: u64) {
    touch::store(addr, 1).unwrap_or_else(|why| report::failed(format_args!("a store to {addr:#x}: {why:?}")));
}

fn read(addr: u64) {
    touch::load(addr)
        .map(drop)
        .unwrap_or_else(|why| report::failed(format_args!("a load from {addr:#x}: {why:?}")));
}

fn pages_at(start: u64, pages: u64) -> impl Iterator<Item = u64> {
    (0..pages).map(move |page| start + page * PAGE)
}

fn map(pages: u64) -> u64 {
    make(Call::Mmap(Map::anonymous(pages * PAGE)))
}

fn unmap(addr: u64, pages: u64) {
    make(Call::Munmap(addr, pages * PAGE));
}

/// Instructions that clear a page in this kernel: it takes the string instruction that the CPU is said to be best at.
fn count_clearing(page: u64) -> u64 {
    let by_bytes = sys::read_text("/proc/cpuinfo").is_ok_and(|text| text.contains(" erms"));
    count(|| match by_bytes {
        // SAFETY: a page that the benchmark has mapped and touched.
        true => unsafe {
            asm!("rep stosb", inout("rcx") PAGE => _, inout("rdi") page => _, in("al") 0u8, options(nostack));
        },
        // SAFETY: as above.
        false => unsafe {
            asm!("rep stosq", inout("rcx") PAGE / 8 => _, inout("rdi") page => _, in("rax") 0u64, options(nostack));
        },
    })
}

/// Every operation.
fn measure(state: &'static RunState, _: u32, _: Role) {
    const PAGES: u64 = 512;
    const CALLS: u64 = 64;
    // The first page creates the tables: what follows differs only in the entry.
    let area = map(2 * PAGES).next_multiple_of(PAGES * PAGE);
    write(area);
    let clear = count_clearing(area);
    let rest = area + PAGE;
    let faults = count(|| pages_at(rest, PAGES - 1).for_each(write));
    let repeated = count(|| pages_at(rest, PAGES - 1).for_each(write));
    tell("anon_fault", faults - repeated - (PAGES - 1) * clear, PAGES - 1);
    tell("munmap_512", count(|| unmap(area, PAGES)), PAGES);
    let calls = (0..CALLS).map(|_| {
        let page = map(1);
        write(page);
        count(|| unmap(page, 1))
    });
    tell("munmap_1", calls.sum(), CALLS);
    measure_compaction(state.memory);
    measure_reclaim("reclaim_file", "0");
    measure_reclaim("reclaim_file_mglru", "y");
    measure_walk(state.memory);
    let _ = sys::write_file(GENERATIONS, "0");
    let pages = 2 * state.memory / PAGE;
    let large = map_file("stream", pages);
    pages_at(large, pages).for_each(read);
    tell("stream", count(|| pages_at(large, pages).for_each(read)), pages);
}

/// Reclaim pages of a file that are mapped once.
fn measure_reclaim(operation: &str, generations: &str) {
    const PAGES: u64 = 1024;
    // A kernel without generations has one policy.
    let _ = sys::write_file(GENERATIONS, generations);
    let file = map_file(operation, PAGES);
    pages_at(file, PAGES).for_each(read);
    tell(operation, count(|| _ = make(Call::Madvise(file, PAGES * PAGE, Advice::PageOut))), PAGES);
    unmap(file, PAGES);
}

/// Free every second page of half of memory, and compact the rest.
fn measure_compaction(memory: u64) {
    let pages = memory / 2 / PAGE;
    let area = map(pages);
    pages_at(area, pages).for_each(write);
    for page in pages_at(area, pages).step_by(2) {
        make(Call::Madvise(page, PAGE, Advice::DontNeed));
    }
    let before = migrated();
    let all = count(|| must("vm.compact_memory", sys::write_file("/proc/sys/vm/compact_memory", "1")));
    tell("compact_page", all, migrated() - before);
    unmap(area, pages);
}

/// Pages migrated so far.
fn migrated() -> u64 {
    let text = sys::read_text("/proc/vmstat").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("pgmigrate_success "));
    line.and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The walk over page tables that looks for used pages.
fn measure_walk(memory: u64) {
    let Some((group, _)) = youngest() else { return };
    let pages = memory / 2 / PAGE;
    let area = map(pages);
    let age = || {
        pages_at(area, pages).for_each(write);
        let (_, youngest) = youngest().unwrap_or_default();
        count(|| _ = sys::write_file(GENERATIONS_FILE, &format!("+ {group} 0 {youngest} 200 1")))
    };
    // The first walk moves the pages to the youngest generation; the second finds that all of them were used again.
    age();
    tell("age_page", age(), pages);
    unmap(area, pages);
}

/// The number of the root group, and of its youngest generation; `None` in a kernel without generations.
fn youngest() -> Option<(u64, u64)> {
    let text: String = sys::read_text(GENERATIONS_FILE).ok()?;
    let mut found = None;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next()?;
        if first == "memcg" && found.is_some() {
            break;
        }
        match (first, &mut found) {
            ("memcg", _) => found = Some((words.next()?.parse().ok()?, 0)),
            ("node", _) => {}
            (number, Some((_, youngest))) => *youngest = number.parse().ok()?,
            _ => {}
        }
    }
    found
}

/// Map a new file for reading.
fn map_file(name: &str, pages: u64) -> u64 {
    let size = pages * PAGE;
    let path = format!("/files/{name}");
    let fd = must(&path, sys::open(&path, sys::O_RDWR | sys::O_CREAT | sys::O_DIRECT));
    must(&path, crate::os::allocate_blocks(fd, size));
    must(&path, sys::close(fd));
    let fd = must(&path, sys::open(&path, sys::O_RDONLY));
    let source = MapSource::File { fd, offset: 0, shared: true };
    make(Call::Mmap(Map { prot: Prot::READ, source, ..Map::anonymous(size) }))
}
