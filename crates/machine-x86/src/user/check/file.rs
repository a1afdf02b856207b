//! The shadow of a file, which all processes share.

use super::backoff::{self, Backoff};
use super::page::Page;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering::*};
use spin::{Mutex, MutexGuard, Once};

/// log2 of the pages in the first block of shadows.
const FIRST: u32 = 6;

/// Shadows of a file's pages, in blocks that each have twice the size of the previous one: growing moves no
/// shadow, and a lookup takes no lock.
struct Pages {
    blocks: [Once<Box<[Page]>>; 40],
}

impl Pages {
    /// The block of a page, and its index in the block.
    fn place(page: u64) -> (usize, usize) {
        let n = page.saturating_add(1 << FIRST);
        let block = n.ilog2();
        ((block - FIRST) as usize, (n - (1 << block)) as usize)
    }

    fn get(&self, page: u64) -> Option<&Page> {
        let (block, at) = Pages::place(page);
        self.blocks.get(block)?.get()?.get(at)
    }

    /// Ensure that there are shadows for `pages` pages.
    fn ensure(&self, pages: u64) {
        let Some(last) = pages.checked_sub(1) else { return };
        for (block, once) in self.blocks.iter().enumerate().take(Pages::place(last).0 + 1) {
            once.call_once(|| (0..1 << (block as u32 + FIRST)).map(|_| Page::zeroes()).collect());
        }
    }
}

/// The shadow of a file.
pub struct File {
    /// Its number, for stamps and messages.
    pub number: u32,
    size: AtomicU64,
    pages: Pages,
    /// One call at a time changes the size or writes, as in the kernel, so this costs no concurrency.
    changing: Mutex<()>,
    /// The numbers of truncations begun and ended, and the first page that the latest ones remove.
    begun: AtomicU64,
    ended: AtomicU64,
    floor: AtomicU64,
}

/// A truncation in progress.
#[must_use]
pub struct Truncation {
    /// The first page that it removes.
    pub first: u64,
    pages: u64,
    size: u64,
}

/// The moment when an access began, in relation to truncations of the file.
#[derive(Clone, Copy, Debug)]
pub struct Moment(u64);

impl File {
    /// A file of `size` bytes, all zero.
    pub fn new(number: u32, size: u64) -> File {
        let file = File {
            number,
            size: AtomicU64::new(size),
            pages: Pages { blocks: [const { Once::new() }; 40] },
            changing: Mutex::new(()),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            floor: AtomicU64::new(0),
        };
        file.ensure(size);
        file
    }

    /// Ensure that there are shadows for `bytes` bytes.
    pub fn ensure(&self, bytes: u64) {
        self.pages.ensure(bytes.div_ceil(4096));
    }

    /// The shadow of a page, if the file has ever been that long.
    pub fn page(&self, page: u64) -> Option<&Page> {
        self.pages.get(page)
    }

    /// Whether the file has that page now.
    pub fn has(&self, page: u64) -> bool {
        page < self.size.load(Acquire).div_ceil(4096)
    }

    /// Must be held while a system call changes the size or writes.
    pub fn change(&self, backoff: &dyn Backoff) -> MutexGuard<'_, ()> {
        backoff::lock(&self.changing, backoff)
    }

    /// A write has made the file at least `size` bytes long.
    pub fn grow(&self, size: u64, _: &MutexGuard<'_, ()>) {
        self.size.fetch_max(size, AcqRel);
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size.load(Acquire)
    }

    /// Begin a call that sets the size. Returns `None` if it removes no pages.
    pub fn begin_truncate(&self, size: u64, _: &MutexGuard<'_, ()>) -> Option<Truncation> {
        let (old, first) = (self.size(), size.div_ceil(4096));
        if size >= old {
            return None;
        }
        self.floor.store(first, SeqCst);
        self.begun.fetch_add(1, SeqCst);
        Some(Truncation { first, pages: old.div_ceil(4096), size })
    }

    /// Set the size.
    pub fn set_size(&self, size: u64, _: &MutexGuard<'_, ()>) {
        self.size.store(size, Release);
    }

    /// End a truncation, after private copies of the pages were forgotten. `done`: it was successful.
    pub fn end_truncate(&self, truncation: Truncation, done: bool, backoff: &dyn Backoff) {
        if done {
            self.size.store(truncation.size, Release);
            for page in (truncation.first..truncation.pages).filter_map(|page| self.page(page)) {
                page.lock(backoff).forget(false);
            }
        }
        self.ended.fetch_add(1, SeqCst);
    }

    /// The current moment, before an access.
    pub fn moment(&self) -> Moment {
        Moment(self.ended.load(SeqCst))
    }

    /// Whether a truncation may have removed the page since that moment.
    pub fn truncated_since(&self, Moment(ended): Moment, page: u64) -> bool {
        let begun = self.begun.load(SeqCst);
        match begun - ended {
            0 => false,
            1 => page >= self.floor.load(SeqCst) || self.begun.load(SeqCst) != begun,
            _ => true,
        }
    }

    /// Whether a truncation may have removed any page since that moment.
    pub fn any_truncation_since(&self, Moment(ended): Moment) -> bool {
        self.begun.load(SeqCst) != ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_distinct_shadows() {
        let mut seen = std::collections::BTreeSet::new();
        for page in 0..10_000 {
            let (block, at) = Pages::place(page);
            assert!(at < 1 << (block as u32 + FIRST));
            assert!(seen.insert((block, at)));
        }
    }

    #[test]
    fn growing_keeps_shadows() {
        let file = File::new(1, 4096);
        let first = core::ptr::from_ref(file.page(0).unwrap());
        assert!(file.page(5000).is_none());
        file.ensure(5001 * 4096);
        assert!(file.page(5000).is_some() && core::ptr::eq(first, file.page(0).unwrap()));
    }

    #[test]
    fn overlapping_accesses_see_a_truncation() {
        let file = File::new(1, 10 * 4096);
        let backoff = || {};
        let before = file.moment();
        assert!(!file.truncated_since(before, 9));
        let guard = file.change(&backoff);
        let truncation = file.begin_truncate(4096 * 3 + 1, &guard).unwrap();
        assert_eq!(truncation.first, 4);
        assert!(file.truncated_since(before, 4) && !file.truncated_since(before, 3));
        file.end_truncate(truncation, true, &backoff);
        assert!(file.truncated_since(before, 4) && !file.truncated_since(file.moment(), 4));
        assert!(file.has(3) && !file.has(4));
        let truncation = file.begin_truncate(0, &guard).unwrap();
        assert!(file.truncated_since(before, 3), "after two truncations every page may have been removed");
        file.end_truncate(truncation, false, &backoff);
        assert!(file.has(3) && file.begin_truncate(4096 * 4, &guard).is_none());
    }
}
