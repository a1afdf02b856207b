//! Kernel entry.
//!
//! Problem: the host's precompiled `core` keeps data below its stack pointer (the red zone of the System V
//! ABI), exactly where an interrupt in ring 0 pushes its frame.
//!
//! Rule: every vector except the page fault arrives on a stack of its own (IST), so nothing is written below
//! the interrupted stack pointer. The stub then moves the frame: for ring 0 to below the red zone of the
//! interrupted stack, for ring 3 to the top of the task's kernel stack. So the IST stack is free again at
//! once, and a handler may enable interrupts, fault and sleep. A fault inside the stubs (a bad stack) is
//! fatal and reported on the IST stack.
//!
//! The page fault is by far the most frequent trap. From ring 3, hardware pushes its frame directly onto the
//! task's kernel stack. In ring 0, only the assembly functions that try an access ([`can_read`], `touch`) may
//! fault; neither they nor their callers keep anything below the stack pointer at that time. Any other fault
//! in ring 0 ends the run. A fault due to a bad stack cannot be pushed, and becomes a double fault.
//!
//! A shootdown is handled on its IST stack: the handler is short, and neither waits nor enables interrupts.
//!
//! A handler is a function, so it preserves some registers itself; frames hold the others. Vector registers
//! are saved around the handler, because `core` uses them; the caller of `syscall` does not expect them to be
//! preserved.

use super::frame::Frame;
use super::instructions::{disable_interrupts, enable_interrupts, read_cr2, read_msr, write_msr};
use super::{apic, call, cpu, io_apic, touch};
use crate::report;
use crate::{devices, hooks, machine, sched, shootdown};
use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::Ordering::Relaxed;
use mm::api::AccessKind;

const NMI: usize = 2;
const DOUBLE_FAULT: usize = 8;
const PAGE_FAULT: usize = 14;
const MACHINE_CHECK: usize = 18;
const SHOOTDOWN: usize = apic::SHOOTDOWN as usize;

const STUB_BYTES: u64 = 16;

unsafe extern "C" {
    static trap_stubs: u8;
    fn page_fault_entry();
    fn shootdown_entry();
    fn syscall_entry();
    fn probe_access();
    fn probe_failed();
    fn probe(address: u64) -> u64;
}

struct Gates(UnsafeCell<[[u64; 2]; 256]>);

// SAFETY: written by the first CPU before others run, then only read.
unsafe impl Sync for Gates {}

static GATES: Gates = Gates(UnsafeCell::new([[0; 2]; 256]));

/// IST index of a vector; 0 for the task's kernel stack.
fn ist_index(vector: usize) -> u64 {
    match vector {
        PAGE_FAULT => 0,
        NMI => 1,
        DOUBLE_FAULT => 2,
        MACHINE_CHECK => 3,
        _ => 4,
    }
}

/// Entry point of a vector. The stubs are 16 bytes each, in order.
fn entry_of(vector: usize) -> u64 {
    match vector {
        PAGE_FAULT => page_fault_entry as *const () as u64,
        SHOOTDOWN => shootdown_entry as *const () as u64,
        _ => (&raw const trap_stubs) as u64 + STUB_BYTES * vector as u64,
    }
}

/// Direct traps and system calls of this CPU to the handlers here.
///
/// # Safety
/// The CPU's segments must be loaded.
pub unsafe fn init() {
    // SAFETY: as the caller promises.
    unsafe {
        load_table();
        init_system_calls();
    }
}

/// Load the interrupt table on this CPU.
///
/// # Safety
/// The CPU's segments must be loaded.
unsafe fn load_table() {
    const INTERRUPT_GATE: u64 = 0x8e << 40;
    const KERNEL_CODE: u64 = 8 << 16;
    let gates = GATES.0.get();
    // SAFETY: every CPU writes the same values.
    unsafe {
        for vector in 0..256 {
            let entry = entry_of(vector);
            let low = entry & 0xffff
                | KERNEL_CODE
                | ist_index(vector) << 32
                | INTERRUPT_GATE
                | (entry >> 16 & 0xffff) << 48;
            (*gates)[vector] = [low, entry >> 32];
        }
        let pointer = cpu::pointer(gates as u64, size_of::<[[u64; 2]; 256]>());
        asm!("lidt [{}]", in(reg) &pointer, options(readonly, nostack, preserves_flags));
    }
}

/// Let ring 3 enter by `syscall`.
///
/// # Safety
/// The segments must be loaded.
unsafe fn init_system_calls() {
    const EFER: u32 = 0xc000_0080;
    const STAR: u32 = 0xc000_0081;
    const LSTAR: u32 = 0xc000_0082;
    const FMASK: u32 = 0xc000_0084;
    const LONG_MODE_NX_SYSCALL: u64 = 0xd01;
    /// Trap, interrupt, direction, nested, alignment-check flags are cleared on entry to the kernel.
    const CLEARED: u64 = 0x4_4700;
    // SAFETY: with these selectors both instructions use the CPU's segments.
    unsafe {
        write_msr(STAR, (0x10 | 3) << 48 | cpu::KERNEL_CODE << 32);
        write_msr(LSTAR, syscall_entry as *const () as u64);
        write_msr(FMASK, CLEARED);
        write_msr(EFER, LONG_MODE_NX_SYSCALL | 0x400 & read_msr(EFER));
    }
}

/// If [`can_read`] faulted, let it return "no".
pub fn end_probe(frame: &mut Frame) -> bool {
    let probing = frame.rip == probe_access as *const () as u64;
    if probing {
        frame.rip = probe_failed as *const () as u64;
    }
    probing
}

/// Whether this ring can read 8 bytes at an address. If not, the handler catches the fault.
pub fn can_read(address: u64) -> bool {
    // SAFETY: this only reads, and the trap handler recognizes the instruction.
    unsafe { probe(address) != 0 }
}

/// Handle everything except page faults, shootdowns and `syscall`. Interrupts are off.
#[unsafe(no_mangle)]
extern "C" fn trap_handler(frame: &mut Frame) {
    match frame.vector as u8 {
        vector @ 0..32 => exception(frame, vector),
        apic::TIMER => {
            apic::end_of_interrupt();
            sched::timer();
        }
        apic::RESCHEDULE => {
            apic::end_of_interrupt();
            cpu::current().resched.store(true, Relaxed);
        }
        io_apic::PCI => {
            devices::interrupt();
            apic::end_of_interrupt();
        }
        apic::SPURIOUS => {}
        vector => panic!("unexpected interrupt {vector:#x}"),
    }
    if frame.is_user() {
        before_user();
    }
}

/// Handle requests of other CPUs. Interrupts are off, and stay off.
#[unsafe(no_mangle)]
extern "C" fn shootdown_handler() {
    apic::end_of_interrupt();
    shootdown::handle_requests();
}

/// Bits of a page fault's error code.
mod fault {
    pub const WRITE: u64 = 1 << 1;
    pub const RESERVED: u64 = 1 << 3;
    pub const FETCH: u64 = 1 << 4;
}

/// Handle page faults. Interrupts are off.
#[unsafe(no_mangle)]
extern "C" fn page_fault_handler(frame: &mut Frame) {
    let address = read_cr2();
    if !frame.is_user() || frame.error & fault::RESERVED != 0 {
        return fault_in_kernel(frame, address);
    }
    let access = match frame.error {
        error if error & fault::FETCH != 0 => AccessKind::Fetch,
        error if error & fault::WRITE != 0 => AccessKind::Store,
        _ => AccessKind::Load,
    };
    enable_interrupts();
    hooks::get().user_fault(address, access, frame);
    disable_interrupts();
    before_user();
}

/// Handle the kernel's own faults, and those due to a broken table.
#[cold]
fn fault_in_kernel(frame: &mut Frame, address: u64) {
    if frame.error & fault::RESERVED != 0 {
        fatal(frame, format_args!("a page-table entry with reserved bits set, for {address:#x}"));
    }
    if end_probe(frame) {
        return;
    }
    // SAFETY: the kernel's stack, which has at least the return address of a call.
    let top = |stack: u64| Some(unsafe { (stack as *const u64).read() });
    if touch::fail(frame, top, touch::FAULT) {
        return;
    }
    let access = if frame.error & fault::WRITE != 0 { "store to" } else { "load from" };
    fatal(frame, format_args!("kernel page fault: {access} {address:#x}"));
}

fn exception(frame: &Frame, vector: u8) -> ! {
    let error = frame.error;
    if !frame.is_user() {
        fatal(frame, format_args!("exception {vector} in the kernel, error {error:#x}"));
    }
    let name = sched::current().name();
    fatal(frame, format_args!("exception {vector} in ring 3, task '{name}', error {error:#x}"))
}

/// Do pending work before the return to ring 3. Interrupts are off, and off again on return.
#[inline]
pub fn before_user() {
    let cpu = cpu::current();
    if cpu.ticked.load(Relaxed) || cpu.resched.load(Relaxed) {
        handle_work();
    }
}

#[cold]
fn handle_work() {
    // Read the CPU again each time: the task may continue on another CPU.
    loop {
        if cpu::current().ticked.swap(false, Relaxed) {
            enable_interrupts();
            machine::tick();
            hooks::get().user_tick();
            disable_interrupts();
        } else if cpu::current().resched.load(Relaxed) {
            sched::yield_now();
        } else {
            return;
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn syscall_handler(frame: &mut Frame) {
    enable_interrupts();
    let args = [frame.rdi, frame.rsi, frame.rdx, frame.r10, frame.r8, frame.r9];
    [frame.rax, frame.rdx] = match frame.rax {
        call::YIELD => {
            sched::yield_now();
            [0, 0]
        }
        call::NO_MEMORY => crate::heap::out_of_memory("arena", args[0]),
        call::PANIC => report::program_panic(args[0], args[1]),
        number => hooks::get().syscall(number, args),
    };
    disable_interrupts();
    before_user();
}

/// Handle faults in the stubs, and non-maskable traps.
#[unsafe(no_mangle)]
extern "C" fn trap_fatal(frame: &Frame) -> ! {
    let vector = frame.vector as usize;
    if vector != DOUBLE_FAULT {
        fatal(frame, format_args!("exception {vector} that cannot be handled"));
    }
    // The result of a page fault that could not be pushed.
    let address = read_cr2();
    fatal(
        frame,
        format_args!("double fault: kernel stack overflow or a bad stack, if {address:#x} is in one"),
    )
}

fn fatal(frame: &Frame, message: core::fmt::Arguments<'_>) -> ! {
    report::failed(format_args!("{message}, at {:#x}, stack {:#x}", frame.rip, frame.rsp))
}
