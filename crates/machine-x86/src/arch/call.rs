//! System calls: the instruction, and the numbers of the calls that the trap handler serves itself. The hooks get all
//! others.

use core::arch::asm;

/// Yield the CPU.
pub const YIELD: u64 = u64::MAX;
/// A program has panicked: address and length of its message.
pub const PANIC: u64 = u64::MAX - 1;
/// A program's heap has too little memory for this number of bytes.
pub const NO_MEMORY: u64 = u64::MAX - 2;

/// Make a system call. In ring 3 only.
///
/// # Safety
/// The effect of the call must be sound, and the program must own the memory in its arguments.
#[inline]
pub unsafe fn system_call(number: u64, args: [u64; 6]) -> [u64; 2] {
    let (first, second);
    // SAFETY: as the caller promises; the kernel preserves all registers except these and the vector
    // registers.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => first,
            in("rdi") args[0],
            in("rsi") args[1],
            inlateout("rdx") args[2] => second,
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            out("rcx") _,
            out("r11") _,
            clobber_abi("C"),
        );
    }
    [first, second]
}
