//! Ring 3: entering it, and the message of a program that panics.

use super::cpu;
use super::cpu::{USER_CODE, USER_DATA};
use super::instructions::disable_interrupts;
use super::trap::{self, Frame, call};
use crate::arena;
use crate::report;
use core::arch::asm;
use core::fmt::Write;

/// The entry of a program's thread. It is called with the arguments of [`enter`], on a stack of its own, and
/// never returns.
pub type Entry = extern "C" fn(u64, u64, u64, u64) -> !;

const INTERRUPTS_ON: u64 = 0x202;

unsafe extern "C" {
    fn user_start(frame: *const Frame) -> !;
}

/// Continue the calling task in ring 3, at `entry`, on the stack that ends at `stack`. It returns to ring 0
/// only by traps and calls. The content of its kernel stack is forgotten, not dropped.
pub fn enter(entry: Entry, stack: u64, args: [u64; 4]) -> ! {
    let [rdi, rsi, rdx, rcx] = args;
    disable_interrupts();
    trap::before_user();
    let frame = Frame {
        rdi,
        rsi,
        rdx,
        rcx,
        rip: entry as *const () as u64,
        cs: USER_CODE,
        rflags: INTERRUPTS_ON,
        // As after a call: functions expect their return address on an aligned stack.
        rsp: (stack & !15) - 8,
        ss: USER_DATA,
        ..Frame::default()
    };
    // SAFETY: ring 3 cannot harm the kernel, whatever it starts with; interrupts are off, as the stub
    // requires. The frame is read from this stack before anything else is written there.
    unsafe { user_start(&frame) }
}

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

/// Text that is truncated at a fixed length.
struct TruncatedText {
    bytes: [u8; 400],
    len: usize,
}

impl Write for TruncatedText {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let room = self.bytes.len() - self.len;
        let taken = text.len().min(room);
        self.bytes[self.len..self.len + taken].copy_from_slice(&text.as_bytes()[..taken]);
        self.len += taken;
        Ok(())
    }
}

/// Report a program's panic: the kernel ends the run. Called in ring 3.
pub fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let mut text = TruncatedText { bytes: [0; 400], len: 0 };
    let _ = write!(text, "{info}");
    // SAFETY: the text is on this thread's stack, and the call does not return.
    unsafe { system_call(call::PANIC, [text.bytes.as_ptr() as u64, text.len as u64, 0, 0, 0, 0]) };
    unreachable!("the kernel ends the run")
}

/// Handle the call of [`panic()`]. Only memory of the arena is read: the address is the program's.
pub(super) fn report_panic(address: u64, len: u64) -> ! {
    let text = match arena::contains(address, len) {
        // SAFETY: the arena is mapped, and any bytes may be read.
        true => unsafe { core::slice::from_raw_parts(address as *const u8, len as usize) },
        false => b"a message outside the arena",
    };
    let shown = core::str::from_utf8(text).unwrap_or("a message that is not UTF-8");
    report::failed(format_args!("program on cpu {}: {}", cpu::current().id().0, OneLine(shown)))
}

/// Text with line ends replaced by spaces.
pub struct OneLine<'a>(pub &'a str);

impl core::fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.split(['\n', '\r']).enumerate().try_for_each(|(i, part)| {
            if i > 0 {
                f.write_str(" ")?;
            }
            f.write_str(part)
        })
    }
}
