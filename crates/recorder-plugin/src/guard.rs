//! A recorded program does not outlive who records it.
//!
//! When `pagefold` is killed it can end nothing, and processes that a program has left behind are nobody's children: so
//! each process of the recording looks for itself, in a thread that does nothing else. It holds no descriptor, since
//! all numbers of descriptors are the program's.

use std::time::Duration;

use crate::shared::EMULATOR;
use crate::system;

/// How often it looks.
const NAP: Duration = Duration::from_millis(250);
const SIGKILL: i32 = 9;

/// Begin to look, in the first thread of a process.
pub fn begin() {
    let Some(emulator) = EMULATOR.get() else { return };
    let alive = || system::kill(emulator.owner as i32, 0) == 0;
    // In a process namespace of its own the program cannot see it.
    if !alive() {
        return;
    }
    let look = move || {
        // Another process may have its number by now; the next recording removes the folder.
        while alive() && emulator.folder.exists() {
            std::thread::sleep(NAP);
        }
        system::kill(std::process::id() as i32, SIGKILL);
    };
    // Signals are for the program's threads, of which the emulator knows. Without the thread all else goes on.
    system::without_signals(|| drop(std::thread::Builder::new().stack_size(64 << 10).spawn(look)));
}
