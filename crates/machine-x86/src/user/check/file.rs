//! The shadow of a file, shared by all processes.

use super::page::Page;
use super::patience::{self, Patience};
use alloc::boxed::Box;
use core::sync::atomic::{AtomicU64, Ordering::*};
use spin::{Mutex, MutexGuard, Once};

/// log2 of the pages in the first block of shadows.
const FIRST: u32 = 6;

/// Shadows of a file's pages: blocks, each twice as large as the one before, so that growing moves nothing and a
/// look-up takes no lock.
struct Pages {
    blocks: [Once<Box<[Page]>>; 40],
}

impl Pages {
    /// Block and place in it of a page.
    fn place(page: u64) -> (usize, usize) {
        let n = page.saturating_add(1 << FIRST);
        let block = n.ilog2();
        ((block - FIRST) as usize, (n - (1 << block)) as usize)
    }

    fn get(&self, page: u64) -> Option<&Page> {
        let (block, at) = Pages::place(page);
        self.blocks.get(block)?.get()?.get(at)
    }

    /// Have room for so many pages.
    fn ensure(&self, pages: u64) {
        let Some(last) = pages.checked_sub(1) else { return };
        for (block, once) in self.blocks.iter().enumerate().take(Pages::place(last).0 + 1) {
            once.call_once(|| (0..1 << (block as u32 + FIRST)).map(|_| Page::zeroes()).collect());
        }
    }
}

/// Shadow of a file.
pub struct File {
    /// Its number, for stamps and messages.
    pub number: u32,
    size: AtomicU64,
    pages: Pages,
    /// One call at a time changes the size or writes, as in the kernel; so no concurrency is lost.
    changing: Mutex<()>,
    /// Cuts begun and ended, and the first page that the latest ones take away.
    begun: AtomicU64,
    ended: AtomicU64,
    floor: AtomicU64,
}

/// A cut of the file is under way.
#[must_use]
pub struct Cut {
    /// First page that goes.
    pub first: u64,
    pages: u64,
    size: u64,
}

/// The moment at which an access began, as far as cuts of the file matter.
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

    /// Have shadows for so many bytes.
    pub fn ensure(&self, bytes: u64) {
        self.pages.ensure(bytes.div_ceil(4096));
    }

    /// The shadow of a page, if the file was ever that long.
    pub fn page(&self, page: u64) -> Option<&Page> {
        self.pages.get(page)
    }

    /// Does the file have that page now?
    pub fn has(&self, page: u64) -> bool {
        page < self.size.load(Acquire).div_ceil(4096)
    }

    /// To be held by who changes the size or writes by system calls.
    pub fn change(&self, patience: &dyn Patience) -> MutexGuard<'_, ()> {
        patience::lock(&self.changing, patience)
    }

    /// A write by system call has made the file at least so long.
    pub fn grow(&self, size: u64, _: &MutexGuard<'_, ()>) {
        self.size.fetch_max(size, AcqRel);
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size.load(Acquire)
    }

    /// A call that sets the size begins. `None`: it takes no pages away.
    pub fn begin_cut(&self, size: u64, _: &MutexGuard<'_, ()>) -> Option<Cut> {
        let (old, first) = (self.size(), size.div_ceil(4096));
        if size >= old {
            return None;
        }
        self.floor.store(first, SeqCst);
        self.begun.fetch_add(1, SeqCst);
        Some(Cut { first, pages: old.div_ceil(4096), size })
    }

    /// The size is set.
    pub fn set_size(&self, size: u64, _: &MutexGuard<'_, ()>) {
        self.size.store(size, Release);
    }

    /// What was to go is gone (if `done`), and private copies of it have been forgotten.
    pub fn end_cut(&self, cut: Cut, done: bool, patience: &dyn Patience) {
        if done {
            self.size.store(cut.size, Release);
            for page in (cut.first..cut.pages).filter_map(|page| self.page(page)) {
                page.lock(patience).forget(false);
            }
        }
        self.ended.fetch_add(1, SeqCst);
    }

    /// The moment before an access.
    pub fn moment(&self) -> Moment {
        Moment(self.ended.load(SeqCst))
    }

    /// May a cut have taken the page away since that moment?
    pub fn cut_since(&self, Moment(ended): Moment, page: u64) -> bool {
        let begun = self.begun.load(SeqCst);
        match begun - ended {
            0 => false,
            1 => page >= self.floor.load(SeqCst) || self.begun.load(SeqCst) != begun,
            _ => true,
        }
    }

    /// May a cut have taken anything away since that moment?
    pub fn any_cut_since(&self, Moment(ended): Moment) -> bool {
        self.begun.load(SeqCst) != ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_has_a_place_of_its_own() {
        let mut seen = std::collections::BTreeSet::new();
        for page in 0..10_000 {
            let (block, at) = Pages::place(page);
            assert!(at < 1 << (block as u32 + FIRST));
            assert!(seen.insert((block, at)));
        }
    }

    #[test]
    fn a_file_grows_and_keeps_its_shadows() {
        let file = File::new(1, 4096);
        let first = core::ptr::from_ref(file.page(0).unwrap());
        assert!(file.page(5000).is_none());
        file.ensure(5001 * 4096);
        assert!(file.page(5000).is_some() && core::ptr::eq(first, file.page(0).unwrap()));
    }

    #[test]
    fn a_cut_is_seen_by_accesses_that_it_overlaps() {
        let file = File::new(1, 10 * 4096);
        let patience = || {};
        let before = file.moment();
        assert!(!file.cut_since(before, 9));
        let held = file.change(&patience);
        let cut = file.begin_cut(4096 * 3 + 1, &held).unwrap();
        assert_eq!(cut.first, 4);
        assert!(file.cut_since(before, 4) && !file.cut_since(before, 3));
        file.end_cut(cut, true, &patience);
        assert!(file.cut_since(before, 4) && !file.cut_since(file.moment(), 4));
        assert!(file.has(3) && !file.has(4));
        let cut = file.begin_cut(0, &held).unwrap();
        assert!(file.cut_since(before, 3), "two cuts since then: nothing is known");
        file.end_cut(cut, false, &patience);
        assert!(file.has(3) && file.begin_cut(4096 * 4, &held).is_none());
    }
}
