//! The first process of a Linux guest.
//!
//! `pagefold linux` boots a Linux kernel with this program as the only one. The program sets up the
//! conditions that the host asks for, leaves the workload exactly as many free pages as the simulated machine
//! has, runs it by real calls and accesses through the trait `Os`, and reads the kernel's counters. It needs
//! no C library. The only other program that it may start is the one that was recorded.
//!
//! ```text
//! init      everything that happens, in order     memory    pages that the program gets
//! os        the trait Os on Linux                 counters  the kernel's counters
//! task      threads and processes                 swap      swap space
//! touch     accesses that may fault               heap      memory of the guest's own, invisible to reclaim
//! sys       system calls                          report    the guest's output
//! choice    the program                           facts     what the guest has that the simulated machine has, too
//! bench     instructions of known work               original  a program of the system's own
//! lock      a lock that tasks share
//! disks     how long disks take                     packed    compressed swap, and what pages hold
//! ```
#![no_std]
#![no_main]

extern crate alloc;

mod bench;
mod choice;
mod counters;
mod disks;
mod facts;
mod heap;
mod init;
mod lock;
mod memory;
mod original;
mod os;
mod packed;
mod report;
mod swap;
mod sys;
mod task;
mod touch;

use core::panic::PanicInfo;

core::arch::global_asm!(".globl _start", "_start:", "xor ebp, ebp", "and rsp, -16", "call start", "ud2");

// The compiler's memcpy, memset and memcmp: the booted machine's.
core::arch::global_asm!(include_str!("../../machine-x86/src/arch/memory.s"), options(att_syntax));

/// The precompiled `alloc` refers to unwinding; here a panic ends the machine.
#[unsafe(no_mangle)]
extern "C" fn rust_eh_personality() {}

/// Likewise.
#[unsafe(no_mangle)]
extern "C" fn _Unwind_Resume() -> ! {
    sys::end_machine(report::Verdict::Failed as u8)
}

#[unsafe(no_mangle)]
extern "C" fn start() -> ! {
    init::main()
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    match info.location() {
        Some(place) => report::failed(format_args!("{}:{}: {}", place.file(), place.line(), info.message())),
        None => report::failed(format_args!("{}", info.message())),
    }
}
