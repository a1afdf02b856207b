//! The processor and the chips around it on a PC: booting, kernel entry, time, and interrupts.

use core::arch::global_asm;

pub mod apic;
pub mod call;
pub mod clock;
pub mod cpu;
pub mod firmware;
pub mod frame;
pub mod instructions;
pub mod io_apic;
pub mod lock;
pub mod paging;
pub mod serial;
pub mod smp;
pub mod torture;
pub mod touch;
pub mod trap;
pub mod user;

global_asm!(include_str!("boot.s"), options(att_syntax));
global_asm!(include_str!("trap.s"), options(att_syntax));
global_asm!(include_str!("switch.s"), options(att_syntax));
global_asm!(include_str!("memory.s"), options(att_syntax));
global_asm!(include_str!("touch.s"), options(att_syntax));

/// The precompiled `core` of the host's target refers to these two, although nothing here unwinds.
mod unwinding {
    #[unsafe(no_mangle)]
    extern "C" fn rust_eh_personality() {}

    #[unsafe(no_mangle)]
    extern "C" fn _Unwind_Resume() -> ! {
        unreachable!("panics abort")
    }
}

/// End the emulator, whose exit status is `2 * code + 1`.
pub fn exit(code: u8) -> ! {
    // SAFETY: the port belongs to the exit device of the emulator's command line; without that device the
    // write has no effect.
    unsafe { instructions::out32(0xf4, code as u32) };
    loop {
        // SAFETY: without interrupts this CPU halts forever, as intended.
        unsafe { core::arch::asm!("cli", "hlt", options(nomem, nostack)) };
    }
}
