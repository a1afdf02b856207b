//! zram: a block device in memory that compresses its pages, and serves as swap space.
//!
//! A page is written by the task that wants it written, and takes no time but that task's: it is compressed into an
//! object of a pool ([`zsmalloc`](crate::zsmalloc)). A page that repeats one word takes no memory, one that does not
//! get smaller is kept whole. A write fails if the pool gets no memory, or if the device has reached its limit; the
//! page stays in memory, dirty. Swap tells the device which pages it does not need any more.
//!
//! Source: drivers/block/zram/zram_drv.c of Linux 6.12.

use crate::api::ZramConfig;
use crate::lock::Lock;
use crate::machine::{Machine, Work};
use crate::primitive::{AtomicU64, Ordering::Relaxed};
use crate::slab::Record;
use crate::units::*;
use crate::zsmalloc::{ZsHandle, ZsMemory, ZsPool};
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec::Vec;

/// The counts of a device, with the names and units of mm_stat, io_stat and debug_stat.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZramStat {
    /// Bytes of the pages that it holds.
    pub orig_data_size: u64,
    /// Bytes of what became of them.
    pub compr_data_size: u64,
    /// Bytes of its memory.
    pub mem_used_total: u64,
    /// The most that these were.
    pub mem_used_max: u64,
    /// Pages that repeat one word and take no memory.
    pub same_pages: u64,
    /// Frames that compaction has freed.
    pub pages_compacted: u64,
    /// Pages that are kept whole.
    pub huge_pages: u64,
    /// Such pages that were written so far.
    pub huge_pages_since: u64,
    /// Writes that failed.
    pub failed_writes: u64,
    /// Pages that swap did not need any more.
    pub notify_free: u64,
    /// Writes that found no memory at their first attempt.
    pub writestall: u64,
}

/// What the device holds of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ZramPage {
    Nothing,
    /// This word, again and again.
    Same(u64),
    Object(ZsHandle, u32),
}

/// Numbers that only grow, and the largest size.
#[derive(Default)]
struct Counters {
    used_max: AtomicU64,
    huge_since: AtomicU64,
    failed_writes: AtomicU64,
    notify_free: AtomicU64,
    writestall: AtomicU64,
}

/// Its pages, and what they add up to.
struct ZramTable {
    pages: Vec<ZramPage>,
    stored: u64,
    same: u64,
    huge: u64,
    bytes: u64,
}

impl ZramTable {
    /// Put `page` in a place. Returns what was there.
    fn replace(&mut self, at: u32, page: ZramPage) -> ZramPage {
        let old = core::mem::replace(&mut self.pages[at as usize], page);
        let [gone, new] = [old, page].map(|page| {
            let bytes = if let ZramPage::Object(_, bytes) = page { u64::from(bytes) } else { 0 };
            let same = u64::from(matches!(page, ZramPage::Same(_)));
            [u64::from(page != ZramPage::Nothing), same, u64::from(bytes == PAGE_SIZE), bytes]
        });
        let sums = [&mut self.stored, &mut self.same, &mut self.huge, &mut self.bytes];
        for (sum, (new, gone)) in sums.into_iter().zip(new.into_iter().zip(gone)) {
            *sum = *sum + new - gone;
        }
        old
    }
}

/// A zram device.
pub(crate) struct Zram {
    config: ZramConfig,
    pool: ZsPool,
    table: Lock<ZramTable>,
    counters: Counters,
}

impl Zram {
    /// An empty device of this many pages (disksize).
    pub(crate) fn new(config: ZramConfig, pages: u32) -> Zram {
        let pages = std_alloc::vec![ZramPage::Nothing; pages as usize];
        let table = Lock::new(ZramTable { pages, stored: 0, same: 0, huge: 0, bytes: 0 });
        Zram { config, pool: ZsPool::new(), table, counters: Counters::default() }
    }

    /// The pool of its objects.
    pub(crate) fn pool(&self) -> &ZsPool {
        &self.pool
    }

    /// Write a page. `false`: the write has failed.
    pub(crate) fn write<M: Machine>(&self, memory: &ZsMemory<'_, M>, page: Pfn, at: u32) -> bool {
        let machine = &memory.mmu.machine;
        let new = match machine.same_filled(page) {
            Some(word) => Some(ZramPage::Same(word)),
            None => self.store(memory, page),
        };
        let Some(new) = new else {
            self.counters.failed_writes.fetch_add(1, Relaxed);
            return false;
        };
        let old = self.table.lock().replace(at, new);
        self.free(memory, old);
        true
    }

    /// Make an object of a page. `None`: there is no memory for it.
    fn store<M: Machine>(&self, memory: &ZsMemory<'_, M>, page: Pfn) -> Option<ZramPage> {
        let machine = &memory.mmu.machine;
        memory.mmu.charge(Work::compress(self.config.compressor), 1);
        let mut bytes = machine.compress(page, self.config.compressor);
        if bytes >= self.pool.huge_size() {
            bytes = PAGE_SIZE as u32;
        }
        let Some(handle) = self.pool.alloc(memory, bytes) else {
            // A second attempt may reclaim elsewhere, but not within reclaim.
            self.counters.writestall.fetch_add(1, Relaxed);
            return None;
        };
        let used = self.pool.total_pages();
        self.counters.used_max.fetch_max(used, Relaxed);
        if self.config.mem_limit != 0 && used > self.config.mem_limit {
            self.pool.free(memory, handle);
            return None;
        }
        self.pool.with_place(handle, |place| machine.pack(page, place));
        if u64::from(bytes) == PAGE_SIZE {
            memory.mmu.charge(Work::CopyPage, 1);
            self.counters.huge_since.fetch_add(1, Relaxed);
        }
        Some(ZramPage::Object(handle, bytes))
    }

    /// Read into a page that no task uses yet.
    pub(crate) fn read<M: Machine>(&self, memory: &ZsMemory<'_, M>, page: Pfn, at: u32) {
        let (mmu, compressor) = (memory.mmu, self.config.compressor);
        let found = self.table.lock().pages[at as usize];
        match found {
            ZramPage::Nothing => unreachable!("page {at} of zram is read before it is written"),
            ZramPage::Same(word) => {
                mmu.machine.fill(page, word);
                mmu.charge(Work::ZeroPage, 1);
            }
            ZramPage::Object(handle, bytes) => {
                self.pool.with_place(handle, |place| mmu.machine.unpack(place, page, compressor));
                let whole = u64::from(bytes) == PAGE_SIZE;
                mmu.charge(if whole { Work::CopyPage } else { Work::decompress(compressor) }, 1);
            }
        }
    }

    /// Swap does not need a page any more.
    pub(crate) fn slot_free_notify<M: Machine>(&self, memory: &ZsMemory<'_, M>, at: u32) {
        self.counters.notify_free.fetch_add(1, Relaxed);
        let old = self.table.lock().replace(at, ZramPage::Nothing);
        self.free(memory, old);
    }

    fn free<M: Machine>(&self, memory: &ZsMemory<'_, M>, page: ZramPage) {
        if let ZramPage::Object(handle, _) = page {
            self.pool.free(memory, handle);
        }
    }

    /// Its counts.
    pub(crate) fn stat(&self) -> ZramStat {
        let (table, counters) = (self.table.lock(), &self.counters);
        ZramStat {
            orig_data_size: table.stored * PAGE_SIZE,
            compr_data_size: table.bytes,
            mem_used_total: self.pool.total_pages() * PAGE_SIZE,
            mem_used_max: counters.used_max.load(Relaxed) * PAGE_SIZE,
            same_pages: table.same,
            pages_compacted: self.pool.pages_compacted(),
            huge_pages: table.huge,
            huge_pages_since: counters.huge_since.load(Relaxed),
            failed_writes: counters.failed_writes.load(Relaxed),
            notify_free: counters.notify_free.load(Relaxed),
            writestall: counters.writestall.load(Relaxed),
        }
    }

    /// Check that each object is some page's, and that pages are in use in swap. Returns the first error.
    pub(crate) fn validate(&self, is_used: impl Fn(u32) -> bool) -> Result<(), String> {
        let table = self.table.lock();
        let pages = || (0..).zip(table.pages.iter().copied());
        let objects = pages().filter(|(_, page)| matches!(page, ZramPage::Object(..))).count() as u64;
        if objects != self.pool.records()[0] {
            return Err(format!("zram has {objects} pages for {} objects", self.pool.records()[0]));
        }
        let lost = pages().find(|&(at, page)| page != ZramPage::Nothing && !is_used(at));
        lost.map_or(Ok(()), |(at, page)| Err(format!("zram keeps {page:?} for page {at}, which is free")))
    }

    /// Objects and zspages.
    pub(crate) fn records(&self) -> [(Record, u64); 2] {
        let [objects, zspages] = self.pool.records();
        [(Record::ZsHandle, objects), (Record::Zspage, zspages)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Compressor;
    use crate::zsmalloc::tests::Bench;

    fn zram(mem_limit: u64) -> Zram {
        Zram::new(ZramConfig { compressor: Compressor::Lz4, mem_limit }, 16)
    }

    /// Write a page with this stamp, whose low 16 bits are its compressed bytes.
    fn write(bench: &Bench, zram: &Zram, at: u32, stamp: u64) -> bool {
        bench.mmu.machine.set_stamp(bench.page, stamp);
        zram.write(&bench.memory(), bench.page, at)
    }

    fn read(bench: &Bench, zram: &Zram, at: u32) -> u64 {
        zram.read(&bench.memory(), bench.page, at);
        bench.mmu.machine.stamp(bench.page)
    }

    #[test]
    fn pages_come_back_as_they_were_written() {
        let (bench, zram) = (Bench::new(512), zram(0));
        let stamps = [1 << 63 | 7, 5 << 16 | 1000, 6 << 16 | 3624, 7 << 16 | 3625, 8 << 16 | 4112];
        for (at, stamp) in (0..).zip(stamps) {
            assert!(write(&bench, &zram, at, stamp));
        }
        assert_eq!([0, 1, 2, 3, 4].map(|at| read(&bench, &zram, at)), stamps);
        let stat = zram.stat();
        assert_eq!((stat.orig_data_size, stat.compr_data_size), (5 * 4096, 1000 + 3624 + 2 * 4096));
        assert_eq!((stat.same_pages, stat.huge_pages, stat.huge_pages_since), (1, 2, 2));
        // An object of 1008 bytes is in a frame for four; one of 3632 in eight frames for nine.
        assert_eq!(stat.mem_used_total, (1 + 8 + 2) * 4096);
        assert!(write(&bench, &zram, 4, 9 << 16 | 1000), "the old content goes");
        (0..5).for_each(|at| zram.slot_free_notify(&bench.memory(), at));
        let stat = zram.stat();
        assert_eq!((stat.orig_data_size, stat.mem_used_total, stat.notify_free), (0, 0, 5));
        assert_eq!((stat.huge_pages_since, stat.mem_used_max), (2, 11 * 4096));
        zram.validate(|_| false).unwrap();
    }

    #[test]
    fn a_write_above_the_limit_fails_and_keeps_the_old_content() {
        let (bench, zram) = (Bench::new(512), zram(1));
        assert!(write(&bench, &zram, 0, 5 << 16 | 4096));
        assert!(!write(&bench, &zram, 0, 6 << 16 | 1000) && !write(&bench, &zram, 1, 7 << 16 | 4096));
        assert!(write(&bench, &zram, 2, 1 << 63), "a repeated word takes no memory");
        assert_eq!((read(&bench, &zram, 0), zram.stat().failed_writes), (5 << 16 | 4096, 2));
        assert_eq!(zram.stat().mem_used_total, 4096);
        zram.validate(|at| at != 1).unwrap();
        assert!(zram.validate(|_| false).is_err(), "a free slot has no content");
    }
}
