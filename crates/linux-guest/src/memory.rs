//! Memory: the program is left with an exact number of free pages, and the rest is locked away.

use crate::sys::{self, nr};
use alloc::vec;
use alloc::vec::Vec;

const PAGE: u64 = 4096;
/// Where what is locked away is mapped.
const HIDDEN: u64 = 0x6400_0000_0000;
/// Rounds after which the number is as near as it gets: the kernel's own work moves it by a page now and then.
const ROUNDS: usize = 200;

/// What is known of a node.
#[derive(Clone, Copy, Default)]
struct Found {
    /// Free pages, with those on CPUs' lists.
    free: u64,
    /// Pages of the zones, as the kernel counts them for watermarks.
    managed: u64,
    /// Pages that the kernel uses for itself and that the simulated machine has not: slabs and stacks.
    kernels: u64,
}

/// All nodes, as they are now.
fn nodes(count: usize) -> Vec<Found> {
    let text = sys::read_text("/proc/zoneinfo").unwrap_or_default();
    let mut nodes = vec![Found::default(); count];
    let mut at = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        if let ["Node", node, ..] = words[..] {
            at = node.trim_end_matches(',').parse().unwrap_or(usize::MAX);
        }
        let Some(node) = nodes.get_mut(at) else { continue };
        match words.first() {
            Some(&"pages") if words.get(1) == Some(&"free") => node.free += value(2),
            Some(&"count:") => node.free += value(1),
            Some(&"managed") => node.managed += value(1),
            Some(&("nr_slab_reclaimable" | "nr_slab_unreclaimable")) => node.kernels += value(1),
            Some(&"nr_kernel_stack") => node.kernels += value(1) * 1024 / PAGE,
            _ => {}
        }
    }
    nodes
}

/// What is locked away of a node.
struct Hidden {
    node: usize,
    /// How many nodes there are.
    of: usize,
    pages: u64,
    /// Pages that were handed back since.
    given: i64,
    /// What the kernel had for itself when the program began.
    kernels: u64,
    managed: u64,
}

impl Hidden {
    fn end(&self) -> u64 {
        HIDDEN + ((self.node as u64) << 40) + self.pages * PAGE
    }

    /// Lock `pages` more away; children do not get them.
    fn hide(&mut self, pages: u64) -> Result<(), sys::Code> {
        const READ_WRITE: u64 = 3;
        const PRIVATE_FIXED_ANONYMOUS: u64 = 0x2 | 0x10 | 0x20;
        const BIND: u64 = 2;
        const DONT_FORK: u64 = 10;
        let (at, len) = (self.end(), pages * PAGE);
        let node = 1u64 << self.node;
        // SAFETY: nothing else lies there.
        unsafe {
            sys::call(nr::MMAP, [at, len, READ_WRITE, PRIVATE_FIXED_ANONYMOUS, u64::MAX, 0])?;
            if self.of > 1 {
                sys::call(nr::MBIND, [at, len, BIND, &raw const node as u64, 64, 0])?;
            }
            sys::call(nr::MADVISE, [at, len, DONT_FORK])?;
            sys::call(nr::MLOCK, [at, len])?;
        }
        self.pages += pages;
        Ok(())
    }

    /// Hand so many back.
    fn show(&mut self, pages: u64) {
        self.pages -= pages;
        // SAFETY: nobody looks at what is hidden.
        let _ = unsafe { sys::call(nr::MUNMAP, [self.end(), pages * PAGE]) };
    }

    /// Go nearer to `wanted` free pages, of which there are `free`. Is it done, or all that can be?
    fn approach(&mut self, free: u64, wanted: u64) -> bool {
        // Page tables of what is locked away come on top, one for each 512 pages.
        let more = (free as i64 - wanted as i64) * 512 / 513;
        match more {
            0 if free == wanted => return true,
            0.. => return self.hide(more.max(1) as u64).is_err(),
            _ => self.show(more.unsigned_abs().min(self.pages)),
        }
        free < wanted && self.pages == 0
    }

    /// Keep what the program has constant while what the kernel has for itself changes; returns by how many pages it
    /// has changed since the start.
    fn balance(&mut self, kernels: u64) -> i64 {
        // Slabs come and go by a few pages all the time.
        const SLACK: i64 = 16;
        let growth = kernels as i64 - self.kernels as i64;
        let due = growth - self.given;
        if due >= SLACK {
            let less = (due as u64).min(self.pages);
            self.show(less);
            self.given += less as i64;
        } else if due <= -SLACK && self.hide(due.unsigned_abs()).is_ok() {
            self.given += due;
        }
        growth
    }
}

/// What was taken from the program, node by node.
pub struct Taken(Vec<Hidden>);

/// Lock memory away until each node has so many free pages. Fails with a node and the number of its free pages if there
/// are fewer.
pub fn leave(wanted: &[u64]) -> Result<Taken, (usize, u64)> {
    let _ = sys::write_file("/proc/sys/vm/drop_caches", "3");
    let of = wanted.len();
    let new = |node| Hidden { node, of, pages: 0, given: 0, kernels: 0, managed: 0 };
    let mut hidden: Vec<Hidden> = (0..of).map(new).collect();
    for _ in 0..ROUNDS {
        let found = nodes(of);
        let all = hidden.iter_mut().zip(&found).zip(wanted);
        // All of them: what is taken from one node costs tables of another.
        if all.fold(true, |done, ((hidden, found), wanted)| hidden.approach(found.free, *wanted) & done) {
            break;
        }
        sys::sleep(1_000_000);
    }
    for (hidden, (found, wanted)) in hidden.iter_mut().zip(nodes(of).iter().zip(wanted)) {
        // A few pages to and fro are the kernel's.
        if found.free + 32 < *wanted {
            return Err((hidden.node, found.free));
        }
        hidden.managed = found.managed;
    }
    Ok(Taken(hidden))
}

impl Taken {
    /// Pages that are locked away.
    pub fn hidden(&self) -> u64 {
        self.0.iter().map(|node| node.pages).sum()
    }

    /// Pages of the zones, as the kernel counts them for watermarks.
    pub fn managed(&self) -> u64 {
        self.0.iter().map(|node| node.managed).sum()
    }

    /// The program begins.
    pub fn begin(&mut self) {
        let found = nodes(self.0.len());
        self.0.iter_mut().zip(found).for_each(|(node, found)| node.kernels = found.kernels);
    }

    /// Keep what the program has constant while what the kernel has for itself changes; returns by how many pages it
    /// has changed since the program began.
    pub fn balance(&mut self) -> i64 {
        let found = nodes(self.0.len());
        self.0.iter_mut().zip(found).map(|(node, found)| node.balance(found.kernels)).sum()
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
