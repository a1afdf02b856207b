//! zram: a block device in memory that compresses its pages, and serves as swap space.
//!
//! A page is written by the task that wants it written, and takes no time but that task's: it is compressed into an
//! object of a pool ([`zsmalloc`](crate::zsmalloc)). A page that repeats one word takes no memory, one that does not
//! get smaller is kept whole. A write fails if the pool gets no memory, or if the device has reached its limit; the
//! page stays in memory, dirty. Swap tells the device which pages it does not need any more.
//!
//! Pages that were not used for long can be compressed again by a second algorithm, and written to a backing device
//! (`upkeep`). Both are done when a program of user space wants them.
//!
//! Source: drivers/block/zram/zram_drv.c of Linux 6.12.

mod upkeep;

use crate::api::{ZramConfig, ZramPages, ZramUpkeep};
use crate::lock::Lock;
use crate::machine::{Compressor, Machine, Work};
use crate::primitive::{AtomicU64, Ordering::Relaxed};
use crate::slab::Record;
use crate::units::*;
pub use crate::zsmalloc::HUGE_SIZE;
use crate::zsmalloc::{ZsHandle, ZsMemory, ZsPool};
use std_alloc::collections::BTreeSet;
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
    /// bd_stat, if there is a backing device: pages that are there, pages read from it, pages written to it.
    pub backing: Option<[u64; 3]>,
}

/// What the device holds of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ZramPage {
    Nothing,
    /// This word, again and again.
    Same(u64),
    Object(ZsHandle, u32),
    /// This block of the backing device.
    Written(u32),
}

/// A page of the device.
#[derive(Clone, Copy, Debug)]
struct ZramSlot {
    page: ZramPage,
    /// When it was last read or written.
    accessed: Nanos,
    idle: bool,
    /// It is compressed by the second algorithm.
    again: bool,
    /// The second algorithm does not make it smaller.
    incompressible: bool,
    /// It is being written to the backing device, and was not used since.
    leaves: bool,
}

impl ZramSlot {
    fn new(page: ZramPage, accessed: Nanos) -> ZramSlot {
        ZramSlot { page, accessed, idle: false, again: false, incompressible: false, leaves: false }
    }

    /// Note a use.
    fn touch(&mut self, now: Nanos) {
        (self.accessed, self.idle, self.leaves) = (now, false, false);
    }

    /// Its object, if it is one of the chosen pages.
    fn chosen(&self, pages: ZramPages) -> Option<(ZsHandle, u32)> {
        let ZramPage::Object(handle, bytes) = self.page else { return None };
        let fits = (self.idle || !pages.idle) && (u64::from(bytes) == PAGE_SIZE || !pages.huge);
        fits.then_some((handle, bytes))
    }
}

/// Numbers that only grow, and the largest size.
#[derive(Default)]
struct Counters {
    used_max: AtomicU64,
    huge_since: AtomicU64,
    failed_writes: AtomicU64,
    notify_free: AtomicU64,
    writestall: AtomicU64,
    bd_reads: AtomicU64,
    bd_writes: AtomicU64,
}

/// Its pages, and what they add up to.
struct ZramTable {
    slots: Vec<ZramSlot>,
    stored: u64,
    same: u64,
    huge: u64,
    bytes: u64,
    /// Blocks of the backing device that are free again, and the first that was never used.
    free_blocks: BTreeSet<u32>,
    next_block: u32,
    /// Pages that may still be written there.
    limit: u64,
}

impl ZramTable {
    /// Put `slot` in a place. Returns the page that was there.
    fn replace(&mut self, at: u32, slot: ZramSlot) -> ZramPage {
        let old = core::mem::replace(&mut self.slots[at as usize], slot).page;
        let [gone, new] = [old, slot.page].map(|page| {
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

    /// Blocks of the backing device that are in use.
    fn blocks(&self) -> u64 {
        u64::from(self.next_block - 1) - self.free_blocks.len() as u64
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
        let slots = std_alloc::vec![ZramSlot::new(ZramPage::Nothing, 0); pages as usize];
        let limit = config.upkeep.and_then(|upkeep| upkeep.write_back_limit).unwrap_or(u64::MAX);
        let table = ZramTable {
            slots,
            stored: 0,
            same: 0,
            huge: 0,
            bytes: 0,
            free_blocks: BTreeSet::new(),
            next_block: 1,
            limit,
        };
        Zram { config, pool: ZsPool::new(), table: Lock::new(table), counters: Counters::default() }
    }

    /// The pool of its objects.
    pub(crate) fn pool(&self) -> &ZsPool {
        &self.pool
    }

    /// Its size in pages.
    pub(crate) fn pages(&self) -> u32 {
        self.table.lock().slots.len() as u32
    }

    /// What is done for it again and again.
    pub(crate) fn upkeep(&self) -> Option<ZramUpkeep> {
        self.config.upkeep
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
        let old = self.table.lock().replace(at, ZramSlot::new(new, machine.now()));
        self.free(memory, old);
        true
    }

    /// Make an object of a page. `None`: there is no memory for it.
    fn store<M: Machine>(&self, memory: &ZsMemory<'_, M>, page: Pfn) -> Option<ZramPage> {
        let machine = &memory.mmu.machine;
        let bytes = self.compress(memory, page, self.config.compressor);
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

    /// Compress a page. Returns its bytes: those of a page if it does not get smaller.
    fn compress<M: Machine>(&self, memory: &ZsMemory<'_, M>, page: Pfn, by: Compressor) -> u32 {
        memory.mmu.charge(Work::compress(by), 1);
        let bytes = memory.mmu.machine.compress(page, by);
        if bytes >= HUGE_SIZE { PAGE_SIZE as u32 } else { bytes }
    }

    /// Whether its pages may be on a backing device.
    pub(crate) fn has_backing(&self) -> bool {
        self.config.backing.is_some()
    }

    /// Read into a page that no task uses yet. `Some`: this block of the backing device has its content.
    pub(crate) fn read<M: Machine>(
        &self,
        memory: &ZsMemory<'_, M>,
        page: Pfn,
        at: u32,
    ) -> Option<(DeviceId, u64)> {
        let mmu = memory.mmu;
        let mut table = self.table.lock();
        let slot = &mut table.slots[at as usize];
        slot.touch(mmu.machine.now());
        let work = match slot.page {
            // zswap had the content. The task that got it from there has moved the page into its file since; this one
            // still holds the slot, and drops what it reads. (Linux gives zeroes, too.)
            ZramPage::Nothing => {
                mmu.machine.fill(page, 0);
                Work::ZeroPage
            }
            ZramPage::Same(word) => {
                mmu.machine.fill(page, word);
                Work::ZeroPage
            }
            ZramPage::Object(handle, bytes) => self.unpack(memory, page, slot.again, (handle, bytes)),
            ZramPage::Written(block) => {
                self.counters.bd_reads.fetch_add(1, Relaxed);
                return self.place_of(block);
            }
        };
        drop(table);
        mmu.charge(work, 1);
        None
    }

    /// Fill a page from an object. Returns the work that this is.
    fn unpack<M: Machine>(
        &self,
        memory: &ZsMemory<'_, M>,
        page: Pfn,
        again: bool,
        (handle, bytes): (ZsHandle, u32),
    ) -> Work {
        let second = self.config.upkeep.and_then(|upkeep| upkeep.recompress).filter(|_| again);
        let by = second.map_or(self.config.compressor, |(.., by)| by);
        self.pool.with_place(handle, |place| memory.mmu.machine.unpack(place, page, by));
        if u64::from(bytes) == PAGE_SIZE { Work::CopyPage } else { Work::decompress(by) }
    }

    /// Swap does not need a page any more.
    pub(crate) fn slot_free_notify<M: Machine>(&self, memory: &ZsMemory<'_, M>, at: u32) {
        self.counters.notify_free.fetch_add(1, Relaxed);
        let old = self.table.lock().replace(at, ZramSlot::new(ZramPage::Nothing, 0));
        self.free(memory, old);
    }

    fn free<M: Machine>(&self, memory: &ZsMemory<'_, M>, page: ZramPage) {
        match page {
            ZramPage::Object(handle, _) => self.pool.free(memory, handle),
            ZramPage::Written(block) => self.free_block(block),
            ZramPage::Nothing | ZramPage::Same(_) => {}
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
            backing: self.config.backing.map(|_| {
                let [reads, writes] =
                    [&counters.bd_reads, &counters.bd_writes].map(|count| count.load(Relaxed));
                [table.blocks(), reads, writes]
            }),
        }
    }

    /// Check that each object is some page's, that pages are in use in swap, and that each block is one page's. Returns
    /// the first error. The device is not being looked after.
    pub(crate) fn validate(&self, is_used: impl Fn(u32) -> bool) -> Result<(), String> {
        let table = self.table.lock();
        let pages = || (0..).zip(table.slots.iter().map(|slot| slot.page));
        let objects = pages().filter(|(_, page)| matches!(page, ZramPage::Object(..))).count() as u64;
        if objects != self.pool.records()[0] {
            return Err(format!("zram has {objects} pages for {} objects", self.pool.records()[0]));
        }
        let mut blocks = BTreeSet::new();
        for (at, page) in pages() {
            let ZramPage::Written(block) = page else { continue };
            let is_free = block >= table.next_block || table.free_blocks.contains(&block);
            if is_free || !blocks.insert(block) {
                return Err(format!("zram has page {at} in block {block}, which is free or another's"));
            }
        }
        if blocks.len() as u64 != table.blocks() {
            return Err(format!("zram has {} pages in {} blocks", blocks.len(), table.blocks()));
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
    use crate::api::ZramBacking;
    use crate::zsmalloc::tests::Bench;

    fn zram(mem_limit: u64) -> Zram {
        Zram::new(ZramConfig { mem_limit, ..ZramConfig::new(Compressor::Lz4) }, 16)
    }

    /// Write a page with this stamp, whose low 16 bits are its compressed bytes.
    fn write(bench: &Bench, zram: &Zram, at: u32, stamp: u64) -> bool {
        bench.mmu.machine.set_stamp(bench.page, stamp);
        zram.write(&bench.memory(), bench.page, at)
    }

    fn read(bench: &Bench, zram: &Zram, at: u32) -> u64 {
        assert_eq!(zram.read(&bench.memory(), bench.page, at), None);
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

    fn with_upkeep(upkeep: ZramUpkeep) -> Zram {
        let backing = Some(ZramBacking { device: DeviceId(3), block: 100, pages: 4 });
        let config = ZramConfig { backing, upkeep: Some(upkeep), ..ZramConfig::new(Compressor::Lz4) };
        Zram::new(config, 16)
    }

    const UPKEEP: ZramUpkeep = ZramUpkeep {
        every: 1,
        idle_age: 5,
        recompress: None,
        write_back: Some(ZramPages { idle: true, huge: false }),
        write_back_limit: None,
    };

    /// Write back what may be, as the daemon does; `each` is called while a page is on its way.
    fn write_back(bench: &Bench, zram: &Zram, written: bool, each: impl Fn(u32)) -> Vec<u32> {
        let mut left = Vec::new();
        for at in 0..16 {
            let Some((block, _)) =
                Some(()).filter(|_| zram.may_write_back()).and_then(|()| zram.take_block())
            else {
                break;
            };
            let begun = zram.begin_write_back(&bench.memory(), bench.page, at);
            if begun {
                each(at);
            }
            if begun && zram.end_write_back(&bench.memory(), at, block, written) {
                left.push(at);
            } else {
                zram.free_block(block);
            }
        }
        left
    }

    #[test]
    fn idle_pages_leave_for_the_backing_device_and_come_back_from_it() {
        let (bench, zram) = (Bench::new(512), with_upkeep(UPKEEP));
        for at in 0..6 {
            assert!(write(&bench, &zram, at, 5 << 16 | 1000));
        }
        assert!(write(&bench, &zram, 6, 1 << 63));
        bench.mmu.machine.advance(10);
        _ = read(&bench, &zram, 0);
        zram.mark_idle(bench.mmu.machine.now(), UPKEEP.idle_age);
        // Page 2 is used while it is on its way; the fourth block is the last.
        let used = |at| {
            if at == 2 {
                zram.read(&bench.memory(), bench.page, at);
            }
        };
        assert_eq!(write_back(&bench, &zram, false, |_| {}), []);
        zram.mark_idle(bench.mmu.machine.now(), UPKEEP.idle_age);
        assert_eq!(write_back(&bench, &zram, true, used), [1, 3, 4]);
        let stat = zram.stat();
        assert_eq!((stat.orig_data_size, stat.compr_data_size), (7 * 4096, 3000));
        assert_eq!(stat.backing, Some([3, 0, 4]));
        assert_eq!(zram.read(&bench.memory(), bench.page, 3), Some((DeviceId(3), 102)));
        zram.validate(|_| true).unwrap();
        // A page that is written again, or freed, gives its block up.
        assert!(write(&bench, &zram, 3, 5 << 16 | 1000));
        zram.slot_free_notify(&bench.memory(), 1);
        assert_eq!(zram.stat().backing, Some([1, 1, 4]));
        zram.validate(|_| true).unwrap();
    }

    #[test]
    fn huge_pages_leave_up_to_the_limit() {
        let pages = ZramPages { idle: false, huge: true };
        let upkeep = ZramUpkeep { write_back: Some(pages), write_back_limit: Some(1), ..UPKEEP };
        let (bench, zram) = (Bench::new(512), with_upkeep(upkeep));
        for (at, bytes) in [(0, 1000), (1, 4096), (2, 4096)] {
            assert!(write(&bench, &zram, at, 5 << 16 | bytes));
        }
        assert_eq!(write_back(&bench, &zram, true, |_| {}), [1]);
        assert!(!zram.may_write_back());
        assert_eq!(zram.stat().huge_pages, 1);
    }

    #[test]
    fn pages_are_compressed_again_if_that_saves_memory() {
        let sizes = |threshold| {
            let recompress = Some((ZramPages::default(), threshold, Compressor::Zstd));
            let (bench, zram) = (Bench::new(512), with_upkeep(ZramUpkeep { recompress, ..UPKEEP }));
            let stamps = [5 << 16 | 1200, 6 << 16 | 1000, 7 << 16 | 4096, 8 << 16 | 800, 9 << 16 | 20];
            for (at, stamp) in (0..).zip(stamps) {
                assert!(write(&bench, &zram, at, stamp));
            }
            (0..5).for_each(|at| zram.recompress(&bench.memory(), bench.page, at));
            let size = |at: u32| match zram.table.lock().slots[at as usize] {
                ZramSlot { page: ZramPage::Object(_, bytes), incompressible, .. } => (bytes, incompressible),
                slot => panic!("{slot:?}"),
            };
            let found = [0, 1, 2, 3, 4].map(size);
            assert_eq!(zram.stat().compr_data_size, found.iter().map(|size| u64::from(size.0)).sum::<u64>());
            assert_eq!([0, 1, 2, 3, 4].map(|at| read(&bench, &zram, at)), stamps);
            zram.validate(|_| true).unwrap();
            found
        };
        // The last has the smallest class already.
        assert_eq!(sizes(0), [(900, false), (750, false), (3072, false), (600, false), (20, true)]);
        assert_eq!(sizes(900), [(1200, false), (750, false), (4096, false), (800, false), (20, false)]);
    }
}
