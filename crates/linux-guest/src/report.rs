//! What the guest says: lines on the console, in the words that `pagefold boot` reads from the booted machine.

use crate::sys;
use core::fmt::{self, Write};

/// The emulator's exit device makes 2v + 1 of what is written.
#[derive(Clone, Copy)]
pub enum Verdict {
    /// All went well.
    Ok = 16,
    /// The program, or the guest, failed.
    Failed = 17,
    /// It was asked for what cannot be done.
    Bad = 18,
}

/// One line, gathered so that it goes out in one piece.
struct Line {
    bytes: [u8; 480],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // The last place is for the line's end; what is too long is cut off.
        for byte in text.bytes().filter(|byte| !byte.is_ascii_control()) {
            if self.len < self.bytes.len() - 1 {
                self.bytes[self.len] = byte;
                self.len += 1;
            }
        }
        Ok(())
    }
}

/// Say a line.
pub fn say(text: fmt::Arguments<'_>) {
    let mut line = Line { bytes: [0; 480], len: 0 };
    let _ = line.write_fmt(text);
    line.bytes[line.len] = b'\n';
    let _ = sys::write(1, &line.bytes[..line.len + 1]);
}

/// The last word.
pub fn end(verdict: Verdict) -> ! {
    say(format_args!(
        "@end {}",
        match verdict {
            Verdict::Ok => "ok",
            Verdict::Failed => "failed",
            Verdict::Bad => "bad",
        }
    ));
    // What is on its way through the serial port would be lost.
    // SAFETY: TCSBRK with an argument waits for output to be sent; no memory takes part.
    let _ = unsafe { sys::call(16, [1, 0x5409, 1]) };
    sys::end_machine(verdict as u8)
}

/// End because of a fault of the guest's own.
pub fn failed(why: fmt::Arguments<'_>) -> ! {
    say(format_args!("@failed {why}"));
    end(Verdict::Failed)
}

/// End because what was asked for cannot be done here.
pub fn bad(why: fmt::Arguments<'_>) -> ! {
    say(format_args!("@bad {why}"));
    end(Verdict::Bad)
}
