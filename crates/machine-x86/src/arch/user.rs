//! Ring 3: going there, and what a program says when it panics.

use super::call::{self, system_call};
use super::cpu::{USER_CODE, USER_DATA};
use super::frame::Frame;
use super::instructions::disable_interrupts;
use super::trap;
use core::fmt::Write;

/// Where a program's thread begins. It is called with what [`enter`] was given, on a stack of its own, and never
/// returns.
pub type Entry = extern "C" fn(u64, u64, u64, u64) -> !;

const INTERRUPTS_ON: u64 = 0x202;

unsafe extern "C" {
    fn user_start(frame: *const Frame) -> !;
}

/// The task that calls goes on in ring 3, at `entry`, on the stack that ends at `stack`, and comes back to ring 0 by
/// traps and calls only. What it has on its kernel stack is forgotten, not dropped.
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
        // As after a call: functions expect to find their return address on an aligned stack.
        rsp: (stack & !15) - 8,
        ss: USER_DATA,
        ..Frame::default()
    };
    // SAFETY: ring 3 cannot harm the kernel, whatever it starts with; interrupts are off, as the stub wants. The frame
    // is read off this stack before anything else can be written there.
    unsafe { user_start(&frame) }
}

/// A line of limited length.
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

/// A program panics: the kernel ends the run. Called in ring 3.
pub fn panic(info: &core::panic::PanicInfo<'_>) -> ! {
    let mut text = TruncatedText { bytes: [0; 400], len: 0 };
    let _ = write!(text, "{info}");
    // SAFETY: the text lies on this thread's stack, and the call does not come back.
    unsafe { system_call(call::PANIC, [text.bytes.as_ptr() as u64, text.len as u64, 0, 0, 0, 0]) };
    unreachable!("the kernel ends the run")
}
