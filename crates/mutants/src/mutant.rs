//! Which mutant is on: part of every mutated copy of the memory manager, and of nothing else.

extern crate std;

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::io::Write as _;

/// The environment has not been asked yet.
const UNREAD: u32 = u32::MAX;
/// None is on; those that are reached are written down.
const RECORD: u32 = u32::MAX - 1;

static ON: AtomicU32 = AtomicU32::new(UNREAD);
static REACHED: [AtomicBool; 1 << 16] = [const { AtomicBool::new(false) }; 1 << 16];

/// Is this mutant on? `MUTANT` holds the number of the one that is, or `record`: then `MUTANT_REACHED` names the file
/// that those are written to which are asked for.
#[inline]
pub fn on(number: u32) -> bool {
    let on = ON.load(Relaxed);
    if on < RECORD { on == number } else { ask(number) }
}

#[cold]
#[inline(never)]
fn ask(number: u32) -> bool {
    if ON.load(Relaxed) == UNREAD {
        let on = match std::env::var("MUTANT").as_deref() {
            Ok("record") => RECORD,
            Ok(text) => text.parse().expect("MUTANT is a number"),
            Err(_) => 0,
        };
        ON.store(on, Relaxed);
        return self::on(number);
    }
    if !REACHED[number as usize].swap(true, Relaxed) {
        let path = std::env::var_os("MUTANT_REACHED").expect("MUTANT_REACHED names a file");
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("it can be written");
        writeln!(file, "{number}").expect("it can be written");
    }
    false
}
