//! The active mutant: part of every mutated copy of the memory manager, and of nothing else.

extern crate std;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::io::Write as _;

/// The environment has not been read yet.
const UNREAD: u32 = u32::MAX;
/// No mutant is active; mutants that are reached are recorded.
const RECORD: u32 = u32::MAX - 1;

static ACTIVE: AtomicU32 = AtomicU32::new(UNREAD);
static REACHED: [AtomicBool; 1 << 16] = [const { AtomicBool::new(false) }; 1 << 16];

/// Returns whether this mutant is active. `MUTANT` is the active mutant's number, or `record`: then every
/// mutant that is reached is written to the file `MUTANT_REACHED`.
#[inline]
pub fn on(number: u32) -> bool {
    let on = ACTIVE.load(Relaxed);
    if on < RECORD { on == number } else { on_slow_path(number) }
}

#[cold]
#[inline(never)]
fn on_slow_path(number: u32) -> bool {
    if ACTIVE.load(Relaxed) == UNREAD {
        let on = match std::env::var("MUTANT").as_deref() {
            Ok("record") => RECORD,
            Ok(text) => text.parse().expect("MUTANT must be a number"),
            Err(_) => 0,
        };
        ACTIVE.store(on, Relaxed);
        return self::on(number);
    }
    if !REACHED[number as usize].swap(true, Relaxed) {
        let path = std::env::var_os("MUTANT_REACHED").expect("MUTANT_REACHED must name a file");
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("MUTANT_REACHED must be writable");
        writeln!(file, "{number}").expect("MUTANT_REACHED must be writable");
    }
    false
}
