//! The kernel image: a bootable machine of the memory manager.
#![no_std]
#![no_main]

extern crate alloc;

mod arch;
mod arena;
mod bench;
mod boot;
mod compression;
mod conformance;
mod devices;
mod disk;
mod heap;
mod hooks;
mod machine;
mod programs;
mod quiesce;
mod report;
mod sched;
mod selftest;
mod shootdown;

use core::panic::PanicInfo;

/// The entry of the first CPU from `boot.s`, with the address of the emulator's start info.
#[unsafe(no_mangle)]
extern "C" fn kernel_main(info: u64) -> ! {
    report::begin();
    boot::start(info)
}

/// The entry of every other CPU from `boot.s`, with its number.
#[unsafe(no_mangle)]
extern "C" fn cpu_main(cpu: usize) -> ! {
    boot::start_other(cpu)
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    if arch::instructions::ring() != 0 {
        arch::user::panic(info);
    }
    match info.location() {
        Some(place) => report::failed(format_args!("{}:{}: {}", place.file(), place.line(), info.message())),
        None => report::failed(format_args!("{}", info.message())),
    }
}
