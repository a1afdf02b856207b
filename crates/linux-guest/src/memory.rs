//! Memory: the program is left with an exact number of free pages, and the rest is locked away.

use crate::sys::{self, nr};
use alloc::vec::Vec;

const PAGE: u64 = 4096;
/// Where what is locked away is mapped.
const HIDDEN: u64 = 0x6400_0000_0000;
/// Rounds after which the number is as near as it gets: the kernel's own work moves it by a page now and then.
const ROUNDS: usize = 200;

/// What was taken from the program.
pub struct Taken {
    /// Pages that are locked away.
    pub hidden: u64,
    /// Pages of the zones, as the kernel counts them for watermarks.
    pub managed: u64,
    /// Pages that were handed back since.
    given: i64,
}

/// Free pages with those on CPUs' lists, and managed pages.
fn free() -> (u64, u64) {
    let text = sys::read_text("/proc/zoneinfo").unwrap_or_default();
    let (mut free, mut managed) = (0, 0);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        match words.first() {
            Some(&"pages") if words.get(1) == Some(&"free") => free += value(2),
            Some(&"count:") => free += value(1),
            Some(&"managed") => managed += value(1),
            _ => {}
        }
    }
    (free, managed)
}

/// Pages that the kernel uses for itself and that the simulated machine has not: slabs and stacks.
pub fn kernels_own() -> u64 {
    let text = sys::read_text("/proc/vmstat").unwrap_or_default();
    let mut pages = 0;
    for line in text.lines() {
        let Some((name, value)) = line.split_once(' ') else { continue };
        let value: u64 = value.parse().unwrap_or(0);
        match name {
            "nr_slab_reclaimable" | "nr_slab_unreclaimable" => pages += value,
            "nr_kernel_stack" => pages += value * 1024 / PAGE,
            _ => {}
        }
    }
    pages
}

/// Lock memory away until `wanted` pages are free. Fails with the number of free pages if there are fewer.
pub fn leave(wanted: u64) -> Result<Taken, u64> {
    let _ = sys::write_file("/proc/sys/vm/drop_caches", "3");
    let mut hidden = 0;
    for _ in 0..ROUNDS {
        let (now, _) = free();
        // Page tables of what is locked away come on top, one for each 512 pages.
        let more = (now as i64 - wanted as i64) * 512 / 513;
        match more {
            0 if now == wanted => break,
            0.. => {
                let more = more.max(1) as u64;
                if hide(hidden, more).is_err() {
                    break;
                }
                hidden += more;
            }
            _ => {
                let less = (-more) as u64;
                if less > hidden {
                    return Err(now);
                }
                hidden -= less;
                // SAFETY: nobody looks at what is hidden.
                let _ = unsafe { sys::call(nr::MUNMAP, [HIDDEN + hidden * PAGE, less * PAGE]) };
            }
        }
        sys::sleep(1_000_000);
    }
    let (now, managed) = free();
    // A few pages to and fro are the kernel's.
    if now + 32 < wanted { Err(now) } else { Ok(Taken { hidden, managed, given: 0 }) }
}

impl Taken {
    /// Keep what the program has constant while what the kernel has for itself changes by `growth` pages against the
    /// start.
    pub fn balance(&mut self, growth: i64) {
        // Slabs come and go by a few pages all the time.
        const SLACK: i64 = 16;
        let due = growth - self.given;
        if due.abs() < SLACK {
            return;
        }
        if due > 0 {
            let less = (due as u64).min(self.hidden);
            self.hidden -= less;
            // SAFETY: nobody looks at what is hidden.
            let _ = unsafe { sys::call(nr::MUNMAP, [HIDDEN + self.hidden * PAGE, less * PAGE]) };
            self.given += less as i64;
        } else if hide(self.hidden, -due as u64).is_ok() {
            self.hidden += -due as u64;
            self.given += due;
        }
    }
}

/// Nanoseconds that a fault on new memory takes here.
pub fn fault_nanos() -> u64 {
    const READ_WRITE: u64 = 3;
    const PRIVATE_FIXED_ANONYMOUS: u64 = 0x2 | 0x10 | 0x20;
    const PAGES: u64 = 1024;
    // SAFETY: nothing lies there; what is written is nobody's.
    unsafe {
        let args = [HIDDEN, PAGES * PAGE, READ_WRITE, PRIVATE_FIXED_ANONYMOUS, u64::MAX, 0];
        if sys::call(nr::MMAP, args).is_err() {
            return 0;
        }
        let start = sys::now();
        for page in 0..PAGES {
            ((HIDDEN + page * PAGE) as *mut u64).write_volatile(page);
        }
        let nanos = (sys::now() - start) / PAGES;
        let _ = sys::call(nr::MUNMAP, [HIDDEN, PAGES * PAGE]);
        nanos
    }
}

/// Lock `pages` more away after `hidden`; children do not get them.
fn hide(hidden: u64, pages: u64) -> Result<(), sys::Code> {
    const READ_WRITE: u64 = 3;
    const PRIVATE_FIXED_ANONYMOUS_LOCKED: u64 = 0x2 | 0x10 | 0x20 | 0x2000;
    const DONT_FORK: u64 = 10;
    let (at, len) = (HIDDEN + hidden * PAGE, pages * PAGE);
    // SAFETY: nothing else lies there.
    unsafe {
        sys::call(nr::MMAP, [at, len, READ_WRITE, PRIVATE_FIXED_ANONYMOUS_LOCKED, u64::MAX, 0])?;
        sys::call(nr::MADVISE, [at, len, DONT_FORK])?;
    }
    Ok(())
}
