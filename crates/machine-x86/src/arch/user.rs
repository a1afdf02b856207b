//! Ring 3: entering it, and the message of a program that panics.

use super::call::{self, system_call};
use super::cpu::{USER_CODE, USER_DATA};
use super::frame::Frame;
use super::instructions::disable_interrupts;
use super::trap;
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
