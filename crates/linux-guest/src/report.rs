//! The guest's output: lines on the console, in the protocol that `pagefold boot` reads.

use crate::sys;
use core::fmt::{self, Write};

/// The exit status, which the emulator's exit device turns into 2v + 1.
#[derive(Clone, Copy)]
pub enum Verdict {
    /// The run succeeded.
    Ok = 16,
    /// The program or the guest failed.
    Failed = 17,
    /// The guest cannot do what the host asked for.
    Bad = 18,
}

/// One line, collected so that it is written at once.
struct Line {
    bytes: [u8; 480],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last byte is for the newline; the rest of a long line is dropped.
        for byte in text.bytes().filter(|byte| !byte.is_ascii_control()) {
            if self.len < self.bytes.len() - 1 {
                self.bytes[self.len] = byte;
                self.len += 1;
            }
        }
        Ok(())
    }
}

/// Print a line.
pub fn print(text: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 480], len: 0 };
    let _ = line.write_fmt(text);
    line.bytes[line.len] = b'\n';
    let _ = sys::write(1, &line.bytes[..line.len + 1]);
}

/// Print the verdict and end the machine.
pub fn end(verdict: Verdict) -> ! {
    print(format_args!(
        "@end {}",
        match verdict {
            Verdict::Ok => "ok",
            Verdict::Failed => "failed",
            Verdict::Bad => "bad",
        }
    ));
    // Output still in the serial port would be lost.
    // SAFETY: TCSBRK with an argument waits for output to be sent; the call accesses no memory.
    let _ = unsafe { sys::call(16, [1, 0x5409, 1]) };
    sys::end_machine(verdict as u8)
}

/// End because of an error in the guest or its program.
pub fn failed(why: fmt::Arguments<'_>) -> ! {
    print(format_args!("@failed {why}"));
    end(Verdict::Failed)
}

/// End because this guest cannot do what the host asked for.
pub fn bad(why: fmt::Arguments<'_>) -> ! {
    print(format_args!("@bad {why}"));
    end(Verdict::Bad)
}
