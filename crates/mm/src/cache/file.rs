//! One file: its kind, its size, and where its pages are.

use super::readahead::Readahead;
use super::tree::PageTree;
use crate::api::FileKind;
use crate::lock::{Lock, LockClass};
use crate::primitive::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use crate::units::*;
use core::ops::Range;
use std_alloc::vec::Vec;

/// No device: the file is only in memory and swap.
const SHMEM: u32 = u32::MAX;

/// A file, and its page cache.
pub struct File {
    size: AtomicU64,
    device: AtomicU32,
    block: AtomicU64,
    nameless: AtomicBool,
    /// When the oldest dirty page became dirty; 0 if none is.
    dirtied_at: AtomicU64,
    /// A write has failed, and no call has reported it (`AS_EIO`).
    write_error: AtomicBool,
    /// A read has failed: some folios may be neither up to date nor being read.
    read_error: AtomicBool,
    pub(super) tree: Lock<PageTree>,
    pub(super) readahead: Lock<Readahead>,
    /// Pages whose content is on the device; the rest reads as zeroes.
    pub(super) extents: Lock<Extents>,
}

impl Default for File {
    fn default() -> Self {
        File {
            size: AtomicU64::new(0),
            device: AtomicU32::new(SHMEM),
            block: AtomicU64::new(0),
            nameless: AtomicBool::new(false),
            dirtied_at: AtomicU64::new(0),
            write_error: AtomicBool::new(false),
            read_error: AtomicBool::new(false),
            tree: Lock::of(LockClass::CachePages, PageTree::default()),
            readahead: Lock::default(),
            extents: Lock::default(),
        }
    }
}

impl File {
    /// Begin a new file. The tree is empty.
    pub(super) fn reset(&self, kind: FileKind, size: u64, nameless: bool) {
        let (device, block) = match kind {
            FileKind::Shmem => (SHMEM, 0),
            FileKind::Disk { device, block } => (device.0 as u32, block),
        };
        self.device.store(device, Relaxed);
        self.block.store(block, Relaxed);
        self.nameless.store(nameless, Relaxed);
        self.dirtied_at.store(0, Relaxed);
        self.write_error.store(false, Relaxed);
        self.read_error.store(false, Relaxed);
        *self.readahead.lock() = Readahead::default();
        *self.extents.lock() = Extents::default();
        if device != SHMEM {
            self.extents.lock().add(0..pages_of(size));
        }
        self.size.store(size, Release);
    }

    /// Its kind.
    pub fn kind(&self) -> FileKind {
        match self.device.load(Relaxed) {
            SHMEM => FileKind::Shmem,
            device => FileKind::Disk { device: DeviceId(device as u8), block: self.block.load(Relaxed) },
        }
    }

    /// Whether it is only in memory and swap.
    #[inline]
    pub(crate) fn is_shmem(&self) -> bool {
        self.device.load(Relaxed) == SHMEM
    }

    /// Whether it was made for a shared anonymous mapping.
    pub(crate) fn is_nameless(&self) -> bool {
        self.nameless.load(Relaxed)
    }

    /// Size in bytes.
    #[inline]
    pub fn size(&self) -> u64 {
        self.size.load(Acquire)
    }

    /// Size in pages.
    #[inline]
    pub fn pages(&self) -> u64 {
        pages_of(self.size())
    }

    /// Set the size. What is on the device after a smaller one is forgotten in the same step as the size changes, so
    /// that a write-back that still sees the larger one cannot note it again ([`File::note_written`]).
    pub(super) fn set_size(&self, size: u64) {
        let mut extents = self.extents.lock();
        if size < self.size() {
            extents.cut(pages_of(size));
        }
        self.size.store(size, Release);
    }

    /// Note that those of `[index, index + pages)` that the file has will be on the device. What is after a new end is
    /// about to be truncated, and must not be found again when the file grows.
    pub(super) fn note_written(&self, index: PageIndex, pages: u64) {
        let mut extents = self.extents.lock();
        let end = (index.0 + pages).min(self.pages());
        if index.0 < end && !extents.holds_all(index.0..end) {
            extents.add(index.0..end);
        }
    }

    /// Extend the file to at least this size.
    pub(super) fn grow_to(&self, size: u64) {
        self.size.fetch_max(size, AcqRel);
    }

    pub(crate) fn dirtied_at(&self) -> Option<Nanos> {
        Some(self.dirtied_at.load(Relaxed)).filter(|&at| at != 0)
    }

    /// Note that a page became dirty (`Some`), or that a write-back begins and the time starts again (`None`).
    pub(crate) fn note_dirtied(&self, now: Option<Nanos>) {
        match now {
            // The clock starts at 0, which means "clean" here.
            Some(now) => drop(self.dirtied_at.compare_exchange(0, now.max(1), Relaxed, Relaxed)),
            None => self.dirtied_at.store(0, Relaxed),
        }
    }

    /// A page could not be written.
    pub(super) fn note_write_error(&self) {
        self.write_error.store(true, Relaxed);
    }

    /// A page could not be read.
    pub(super) fn note_read_error(&self) {
        self.read_error.store(true, Relaxed);
    }

    /// Whether a page could not be read so far.
    pub(super) fn has_read_error(&self) -> bool {
        self.read_error.load(Relaxed)
    }

    /// Whether a page could not be written since the last call.
    pub(crate) fn take_write_error(&self) -> bool {
        self.write_error.load(Relaxed) && self.write_error.swap(false, Relaxed)
    }

    /// Device and block of a page.
    ///
    /// # Panics
    /// If the file has no device.
    pub(super) fn place(&self, index: PageIndex) -> (DeviceId, u64) {
        assert!(!self.is_shmem(), "a file with a device is needed");
        (DeviceId(self.device.load(Relaxed) as u8), self.block.load(Relaxed) + index.0)
    }

    /// Number of pages in its cache.
    pub fn cached(&self) -> u64 {
        self.tree.look().folios()
    }
}

/// A set of pages as ascending, disjoint, non-adjacent ranges. Most files have one.
#[derive(Default)]
pub(super) struct Extents {
    ranges: Vec<Range<u64>>,
}

impl Extents {
    /// Whether all pages of a range that is not empty are in the set, or none (`Some(false)`). `None`: some are.
    pub(super) fn holds(&self, pages: Range<u64>) -> Option<bool> {
        let after = self.ranges.partition_point(|range| range.start <= pages.start);
        let before = after.checked_sub(1).map(|i| &self.ranges[i]).filter(|range| pages.start < range.end);
        match before {
            Some(range) => (pages.end <= range.end).then_some(true),
            None => self.ranges.get(after).is_none_or(|next| pages.end <= next.start).then_some(false),
        }
    }

    pub(super) fn holds_all(&self, pages: Range<u64>) -> bool {
        self.holds(pages) == Some(true)
    }

    pub(super) fn contains(&self, page: u64) -> bool {
        self.holds_all(page..page + 1)
    }

    pub(super) fn add(&mut self, new: Range<u64>) {
        if new.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|range| range.end < new.start);
        let last = self.ranges.partition_point(|range| range.start <= new.end);
        let touched = &self.ranges[first..last];
        let start = touched.first().map_or(new.start, |range| range.start.min(new.start));
        let end = touched.last().map_or(new.end, |range| range.end.max(new.end));
        self.ranges.splice(first..last, core::iter::once(start..end));
    }

    /// Remove the pages from `end` on.
    pub(super) fn cut(&mut self, end: u64) {
        self.ranges.retain(|range| range.start < end);
        if let Some(last) = self.ranges.last_mut() {
            last.end = last.end.min(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std_alloc::collections::BTreeSet;

    proptest! {
        #[test]
        fn extents_are_a_set(ops in prop::collection::vec((0u8..5, 0u64..40, 0u64..6), 0..60)) {
            let (mut extents, mut model) = (Extents::default(), BTreeSet::new());
            for (op, start, len) in ops {
                if op == 0 {
                    extents.cut(start);
                    model.retain(|&page| page < start);
                } else {
                    extents.add(start..start + len);
                    model.extend(start..start + len);
                }
                for page in 0..50 {
                    prop_assert_eq!(extents.contains(page), model.contains(&page));
                    let inside = (page..page + 4).filter(|page| model.contains(page)).count();
                    let expected = [Some(false), None, None, None, Some(true)][inside];
                    prop_assert_eq!(extents.holds(page..page + 4), expected);
                }
                prop_assert!(extents.ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }

    /// A write-back notes its pages as on the device while the file is cut before them.
    #[cfg(not(any(feature = "one-thread", feature = "loom", feature = "shuttle")))]
    #[test]
    fn written_pages_after_a_new_end_are_forgotten() {
        const PAGES: u64 = 8;
        const ROUNDS: u64 = 20_000;
        let (file, arrived) = (File::default(), AtomicU64::new(0));
        // The threads wait for each other so that both begin at the same time. If they share a core, one gives way.
        let wait_for_both = |times: u64| {
            arrived.fetch_add(1, AcqRel);
            let mut spins = 0;
            while arrived.load(Acquire) < 2 * times {
                spins += 1;
                if spins % 1000 == 0 {
                    std::thread::yield_now();
                } else {
                    core::hint::spin_loop();
                }
            }
        };
        let mut kept = 0;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    wait_for_both(2 * round + 1);
                    file.note_written(PageIndex(0), PAGES);
                    wait_for_both(2 * round + 2);
                }
            });
            for round in 0..ROUNDS {
                file.set_size(PAGES * PAGE_SIZE);
                wait_for_both(2 * round + 1);
                file.set_size(PAGE_SIZE);
                wait_for_both(2 * round + 2);
                kept += u64::from(file.extents.lock().contains(1));
            }
        });
        assert_eq!(kept, 0, "of {ROUNDS} times, old content was found after the end");
    }
}
