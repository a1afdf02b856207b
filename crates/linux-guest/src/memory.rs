//! Memory: hide pages until the program has an exact number of free ones.

use crate::report::print;
use crate::sys::{self, nr};
use alloc::vec;
use alloc::vec::Vec;

const PAGE: u64 = 4096;
/// Where hidden pages are mapped.
const HIDDEN: u64 = 0x6400_0000_0000;
/// Rounds after which the number cannot come closer: the kernel's own work changes it now and then.
const ROUNDS: usize = 200;

/// The state of a node.
#[derive(Clone, Copy, Default)]
struct NodeState {
    /// Free pages, with those on CPUs' lists.
    free: u64,
    /// Pages of the zones, as the kernel counts them for watermarks.
    managed: u64,
    /// Pages that the kernel uses for itself and that the simulated machine does not have: slabs and stacks.
    kernels: u64,
}

/// The current state of all nodes.
fn nodes(count: usize) -> Vec<NodeState> {
    let text = sys::read_text("/proc/zoneinfo").unwrap_or_default();
    let mut nodes = vec![NodeState::default(); count];
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

/// The hidden pages of a node.
struct Hidden {
    node: usize,
    /// Number of nodes.
    nodes: usize,
    pages: u64,
    /// Pages released since the program began.
    released: i64,
    /// What the kernel used when the pages were hidden, and then when the program began.
    kernels: u64,
    managed: u64,
}

impl Hidden {
    fn end(&self) -> u64 {
        HIDDEN + ((self.node as u64) << 40) + self.pages * PAGE
    }

    /// Hide `pages` more; children do not inherit them.
    fn hide(&mut self, pages: u64) -> Result<(), sys::Code> {
        const READ_WRITE: u64 = 3;
        const PRIVATE_FIXED_ANONYMOUS: u64 = 0x2 | 0x10 | 0x20;
        const BIND: u64 = 2;
        const DONT_FORK: u64 = 10;
        let (at, len) = (self.end(), pages * PAGE);
        let node = 1u64 << self.node;
        // SAFETY: nothing else is mapped there.
        unsafe {
            sys::call(nr::MMAP, [at, len, READ_WRITE, PRIVATE_FIXED_ANONYMOUS, u64::MAX, 0])?;
            if self.nodes > 1 {
                sys::call(nr::MBIND, [at, len, BIND, &raw const node as u64, 64, 0])?;
            }
            sys::call(nr::MADVISE, [at, len, DONT_FORK])?;
            sys::call(nr::MLOCK, [at, len])?;
        }
        self.pages += pages;
        Ok(())
    }

    /// Release `pages` hidden pages.
    fn release(&mut self, pages: u64) {
        self.pages -= pages;
        // SAFETY: hidden pages are never accessed.
        let _ = unsafe { sys::call(nr::MUNMAP, [self.end(), pages * PAGE]) };
    }

    /// Bring the number of free pages from `free` closer to `wanted`. Returns whether it is reached or cannot
    /// come closer.
    fn adjust(&mut self, free: u64, wanted: u64) -> bool {
        // Hidden pages need page tables, too: one for each 512 pages.
        let more = (free as i64 - wanted as i64) * 512 / 513;
        match more {
            0 if free == wanted => return true,
            0.. => return self.hide(more.max(1) as u64).is_err(),
            _ => self.release(more.unsigned_abs().min(self.pages)),
        }
        free < wanted && self.pages == 0
    }

    /// Keep the program's memory constant when the kernel's own use changes by `slack` pages or more. Returns that
    /// change since the start, in pages.
    fn balance(&mut self, kernels: u64, slack: i64) -> i64 {
        let growth = kernels as i64 - self.kernels as i64;
        let due = growth - self.released;
        if due >= slack {
            let less = (due as u64).min(self.pages);
            self.release(less);
            self.released += less as i64;
        } else if due <= -slack && self.hide(due.unsigned_abs()).is_ok() {
            self.released += due;
        }
        growth
    }
}

/// Say how many pages of each node are free, and how many its zones have.
pub fn tell_free(count: usize) {
    let _ = sys::write_file("/proc/sys/vm/drop_caches", "3");
    for (node, NodeState { free, managed, .. }) in nodes(count).iter().enumerate() {
        print(format_args!("@condition node {node} free = {free}"));
        print(format_args!("@condition node {node} managed = {managed}"));
    }
}

/// The hidden pages, by node.
pub struct HiddenMemory(Vec<Hidden>);

/// Hide memory until each node has the wanted number of free pages. Fails with a node and the number of its
/// free pages if it has fewer.
pub fn leave(wanted: &[u64]) -> Result<HiddenMemory, (usize, u64)> {
    let _ = sys::write_file("/proc/sys/vm/drop_caches", "3");
    let of = wanted.len();
    let new = |node| Hidden { node, nodes: of, pages: 0, released: 0, kernels: 0, managed: 0 };
    let mut hidden: Vec<Hidden> = (0..of).map(new).collect();
    for _ in 0..ROUNDS {
        let found = nodes(of);
        let all = hidden.iter_mut().zip(&found).zip(wanted);
        // All nodes: hiding pages of one node takes tables from another.
        if all.fold(true, |done, ((hidden, found), wanted)| hidden.adjust(found.free, *wanted) & done) {
            break;
        }
        sys::sleep(1_000_000);
    }
    for (hidden, (found, wanted)) in hidden.iter_mut().zip(nodes(of).iter().zip(wanted)) {
        // A few pages come and go with the kernel.
        if found.free + 32 < *wanted {
            return Err((hidden.node, found.free));
        }
        hidden.managed = found.managed;
        hidden.kernels = found.kernels;
    }
    Ok(HiddenMemory(hidden))
}

impl HiddenMemory {
    /// Number of hidden pages.
    pub fn hidden(&self) -> u64 {
        self.0.iter().map(|node| node.pages).sum()
    }

    /// Pages of the zones, as the kernel counts them for watermarks.
    pub fn managed(&self) -> u64 {
        self.0.iter().map(|node| node.managed).sum()
    }

    /// Called when the program begins: give back what the kernel began to use since the pages were hidden.
    pub fn begin(&mut self) {
        let found = nodes(self.0.len());
        for (node, NodeState { kernels, .. }) in self.0.iter_mut().zip(found) {
            node.balance(kernels, 1);
            (node.kernels, node.released) = (kernels, 0);
        }
    }

    /// Keep the program's memory constant when the kernel's own use changes. Returns that change since the
    /// program began, in pages.
    pub fn balance(&mut self) -> i64 {
        // Slabs change by a few pages all the time.
        const SLACK: i64 = 16;
        let found = nodes(self.0.len());
        self.0.iter_mut().zip(found).map(|(node, found)| node.balance(found.kernels, SLACK)).sum()
    }
}
