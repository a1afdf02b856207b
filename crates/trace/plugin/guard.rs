//! A recorded program does not outlive its recorder.
//!
//! A killed `pagefold` can end nothing, and processes that a program has left behind have no parent that would end
//! them. So each process of the recording checks by itself, in a thread that does nothing else. This thread holds no
//! descriptor, since all descriptor numbers belong to the program.

use std::time::Duration;

use crate::shared::EMULATOR;
use crate::system;

/// Time between two checks.
const NAP: Duration = Duration::from_millis(250);
const SIGKILL: i32 = 9;

/// Begin to check, in the first thread of a process.
pub fn begin() {
    let Some(emulator) = EMULATOR.get() else { return };
    let alive = || system::kill(emulator.owner as i32, 0) == 0;
    // A program in a process namespace of its own cannot see the recorder.
    if !alive() {
        return;
    }
    let look = move || {
        // Another process may have the recorder's number by now, but the next recording removes the folder.
        while alive() && emulator.folder.exists() {
            std::thread::sleep(NAP);
        }
        system::kill(std::process::id() as i32, SIGKILL);
    };
    // Signals are for the program's threads, which the emulator knows. If the thread cannot start, recording goes on.
    system::without_signals(|| drop(std::thread::Builder::new().stack_size(64 << 10).spawn(look)));
}
