//! The serial line: the kernel's only output. Lines are written as a whole.

use super::instructions::{in8, out8};
use super::lock::IrqLock;
use core::fmt::{self, Write};

const PORT: u16 = 0x3f8;
const STATUS: u16 = PORT + 5;
const SENT: u8 = 0x20;

struct Line;

static LINE: IrqLock<Line> = IrqLock::new(Line);

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: the first serial port of a PC, which is polled and raises no interrupts.
            unsafe {
                while in8(STATUS) & SENT == 0 {}
                out8(PORT, byte);
            }
        }
        Ok(())
    }
}

/// Write one line.
pub fn write_line(text: fmt::Arguments<'_>) {
    // The port never fails.
    let _ = writeln!(LINE.lock(), "{text}");
}

/// Write one of the last lines, even if another CPU never finishes its line.
pub fn write_last_line(text: fmt::Arguments<'_>) {
    let _ = writeln!(LINE.lock_last(), "{text}");
}
