//! zswap: a cache of compressed pages in front of swap devices.
//!
//! A page that would be written to its slot is compressed into an object of a pool instead ([`zsmalloc`]), as long as
//! the pool is below its limit. It leaves when its page is read into the swap cache, or when its slot is freed. If the
//! pool has reached its limit, pages go to their devices, until a daemon ([`writeback`]) has written old ones there
//! and the pool has shrunk to the threshold.
//!
//! Pages are on lists by group and node. The daemon takes them from the head; one that has come since it last met them
//! gets a second chance.
//!
//! Source: mm/zswap.c of Linux 6.12.
//!
//! [`zsmalloc`]: crate::zsmalloc
//! [`writeback`]: crate::writeback

use crate::knobs::{Compressor, Knob, Knobs};
use crate::lock::Lock;
use crate::machine::{Machine, WaitKey, Work};
use crate::primitive::{AtomicBool, AtomicU64, Ordering::Relaxed};
use crate::slab::Record;
use crate::stat::Stat;
use crate::units::*;
use crate::zsmalloc::{ZsHandle, ZsMemory, ZsPool};
use std_alloc::collections::BTreeMap;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec::Vec;

/// No slot.
const NONE: u32 = u32::MAX;

/// What zswap has counted, with the names of its files in debugfs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZswapStat {
    /// Bytes of the pool.
    pub pool_total_size: u64,
    /// The most that these were; not in Linux.
    pub pool_max_size: u64,
    /// Pages that it holds.
    pub stored_pages: u64,
    /// Times that a page found the pool at its limit.
    pub pool_limit_hit: u64,
    /// Pages written to their devices.
    pub written_back_pages: u64,
    /// Pages that could not be written there.
    pub reject_reclaim_fail: u64,
    /// Pages that did not get smaller.
    pub reject_compress_poor: u64,
    /// Pages for which there was no memory.
    pub reject_alloc_fail: u64,
}

/// The list of a group's pages on a node.
type ListKey = (GroupId, NodeId);

struct ZswapEntry {
    handle: ZsHandle,
    compressor: Compressor,
    list: ListKey,
    /// It has come since the daemon last met it.
    referenced: bool,
    /// Its neighbours' slots.
    prev: u32,
    next: u32,
}

#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
}

/// The pages, by slot.
#[derive(Default)]
struct Entries {
    entries: BTreeMap<u32, ZswapEntry>,
    lists: BTreeMap<ListKey, Ends>,
}

impl Entries {
    fn entry(&mut self, slot: u32) -> &mut ZswapEntry {
        self.entries.get_mut(&slot).expect("a listed slot has an entry")
    }

    fn insert(&mut self, slot: u32, entry: ZswapEntry) {
        self.entries.insert(slot, entry);
        self.link_tail(slot);
    }

    fn link_tail(&mut self, slot: u32) {
        let list = self.entry(slot).list;
        let ends = self.lists.entry(list).or_insert(Ends { head: slot, tail: NONE });
        let prev = core::mem::replace(&mut ends.tail, slot);
        let entry = self.entry(slot);
        (entry.prev, entry.next) = (prev, NONE);
        if prev != NONE {
            self.entry(prev).next = slot;
        }
    }

    fn unlink(&mut self, slot: u32) {
        let &mut ZswapEntry { prev, next, list, .. } = self.entry(slot);
        match (prev, next) {
            (NONE, NONE) => drop(self.lists.remove(&list)),
            _ => {
                if prev != NONE {
                    self.entry(prev).next = next;
                }
                if next != NONE {
                    self.entry(next).prev = prev;
                }
                let ends = self.lists.get_mut(&list).expect("a listed slot has a list");
                ends.head = if prev == NONE { next } else { ends.head };
                ends.tail = if next == NONE { prev } else { ends.tail };
            }
        }
    }

    /// The slots of a list, from its head.
    fn slots(&self, list: ListKey) -> Vec<u32> {
        let head = self.lists.get(&list).map(|ends| ends.head);
        let next = |slot: &u32| Some(self.entries[slot].next).filter(|&next| next != NONE);
        core::iter::successors(head, next).collect()
    }

    fn remove(&mut self, slot: u32) -> Option<ZswapEntry> {
        self.entries.contains_key(&slot).then(|| self.unlink(slot))?;
        self.entries.remove(&slot)
    }
}

/// What the daemon finds at the head of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ZswapHead {
    /// There is no page.
    Empty,
    /// A page that gets a second chance, at the tail.
    Referenced,
    /// The page to write.
    Old(SwapSlot),
}

#[derive(Default)]
struct Rejections {
    limit_hit: AtomicU64,
    written_back: AtomicU64,
    reclaim_fail: AtomicU64,
    compress_poor: AtomicU64,
    alloc_fail: AtomicU64,
}

/// All that zswap holds.
pub(crate) struct Zswap {
    pool: ZsPool,
    /// Pages of memory, for the limit.
    total_ram: u64,
    entries: Lock<Entries>,
    /// Whether it has ever held a page.
    used: AtomicBool,
    /// The pool was at its limit and has not shrunk to the threshold since.
    reached_full: AtomicBool,
    /// Whether the daemon is wanted.
    wanted: AtomicBool,
    rejections: Rejections,
}

impl Zswap {
    /// Nothing, on a machine with `total_ram` pages.
    pub(crate) fn new(total_ram: u64) -> Zswap {
        Zswap {
            pool: ZsPool::new(),
            total_ram,
            entries: Lock::default(),
            used: AtomicBool::new(false),
            reached_full: AtomicBool::new(false),
            wanted: AtomicBool::new(false),
            rejections: Rejections::default(),
        }
    }

    /// Whether it has ever held a page.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// The pool of its objects.
    pub(crate) fn pool(&self) -> &ZsPool {
        &self.pool
    }

    fn max_pages(&self, knobs: &Knobs) -> u64 {
        self.total_ram * knobs.get(Knob::ZswapMaxPoolPercent) / 100
    }

    /// Whether the pool is larger than the size at which it takes pages again.
    pub(crate) fn is_above_threshold(&self, knobs: &Knobs) -> bool {
        self.pool.total_pages() > self.threshold(knobs)
    }

    fn threshold(&self, knobs: &Knobs) -> u64 {
        self.max_pages(knobs) * knobs.get(Knob::ZswapAcceptThresholdPercent) / 100
    }

    /// Whether the pool is full, or was and has not shrunk enough.
    fn is_full(&self, knobs: &Knobs) -> bool {
        let pages = self.pool.total_pages();
        if pages >= self.max_pages(knobs) {
            self.rejections.limit_hit.fetch_add(1, Relaxed);
            self.reached_full.store(true, Relaxed);
        } else if self.reached_full.load(Relaxed) && pages <= self.threshold(knobs) {
            self.reached_full.store(false, Relaxed);
        }
        self.reached_full.load(Relaxed)
    }

    /// Store a locked folio of one page, of a group, instead of writing it to its slot. `false`: it must be written
    /// there; an older content of the slot is gone.
    pub(crate) fn store<M: Machine>(
        &self,
        memory: &ZsMemory<'_, M>,
        (page, group): (Pfn, GroupId),
        slot: SwapSlot,
    ) -> bool {
        let knobs = &memory.mmu.knobs;
        let enabled = knobs.get(Knob::ZswapEnabled) != 0;
        if enabled && !self.is_full(knobs) && self.compress(memory, (page, group), slot) {
            return true;
        }
        if enabled && self.reached_full.load(Relaxed) && !self.wanted.swap(true, Relaxed) {
            memory.mmu.charge(Work::DaemonWake, 1);
            memory.mmu.machine.wake(WaitKey::Zswap);
        }
        self.invalidate(memory, slot);
        false
    }

    fn compress<M: Machine>(
        &self,
        memory: &ZsMemory<'_, M>,
        (page, group): (Pfn, GroupId),
        slot: SwapSlot,
    ) -> bool {
        let (mmu, compressor) = (memory.mmu, memory.mmu.knobs.zswap_compressor());
        mmu.charge(Work::compress(compressor), 1);
        let bytes = mmu.machine.compress(page, compressor);
        if u64::from(bytes) > PAGE_SIZE {
            self.rejections.compress_poor.fetch_add(1, Relaxed);
            return false;
        }
        let Some(handle) = self.pool.alloc(memory, bytes) else {
            self.rejections.alloc_fail.fetch_add(1, Relaxed);
            return false;
        };
        self.pool.with_place(handle, |place| mmu.machine.pack(page, place));
        let list = (group, mmu.frames[page].node());
        let entry = ZswapEntry { handle, compressor, list, referenced: true, prev: NONE, next: NONE };
        self.used.store(true, Relaxed);
        let mut entries = self.entries.lock();
        let old = entries.remove(slot.0);
        entries.insert(slot.0, entry);
        drop(entries);
        match old {
            Some(old) => self.pool.free(memory, old.handle),
            None => memory.note_records(Record::ZswapEntry, 1),
        }
        mmu.count(Stat::Zswpout, 1);
        true
    }

    /// Fill a page that no task uses yet, if it is here. `keeps`: the slot's content stays here as well.
    pub(crate) fn load<M: Machine>(
        &self,
        memory: &ZsMemory<'_, M>,
        page: Pfn,
        slot: SwapSlot,
        keeps: bool,
    ) -> bool {
        let mut entries = self.entries.lock();
        if keeps {
            let Some(entry) = entries.entries.get(&slot.0) else { return false };
            let (handle, compressor) = (entry.handle, entry.compressor);
            drop(entries);
            self.decompress(memory, page, (handle, compressor));
        } else {
            let Some(entry) = entries.remove(slot.0) else { return false };
            drop(entries);
            self.decompress(memory, page, (entry.handle, entry.compressor));
            self.free(memory, &entry);
        }
        memory.mmu.count(Stat::Zswpin, 1);
        true
    }

    fn decompress<M: Machine>(
        &self,
        memory: &ZsMemory<'_, M>,
        page: Pfn,
        (handle, compressor): (ZsHandle, Compressor),
    ) {
        self.pool.with_place(handle, |place| memory.mmu.machine.unpack(place, page, compressor));
        memory.mmu.charge(Work::decompress(compressor), 1);
    }

    fn free<M: Machine>(&self, memory: &ZsMemory<'_, M>, entry: &ZswapEntry) {
        self.pool.free(memory, entry.handle);
        memory.note_records(Record::ZswapEntry, -1);
    }

    /// A slot is free, or has another content now.
    pub(crate) fn invalidate<M: Machine>(&self, memory: &ZsMemory<'_, M>, slot: SwapSlot) {
        if !self.is_used() {
            return;
        }
        let entry = self.entries.lock().remove(slot.0);
        if let Some(entry) = entry {
            self.free(memory, &entry);
        }
    }

    /// Look at the page that has been on this list for longest. One that is returned goes to the tail.
    pub(crate) fn look_at_head(&self, group: GroupId, node: NodeId) -> ZswapHead {
        let mut entries = self.entries.lock();
        let Some(slot) = entries.lists.get(&(group, node)).map(|ends| ends.head) else {
            return ZswapHead::Empty;
        };
        let referenced = core::mem::take(&mut entries.entry(slot).referenced);
        entries.unlink(slot);
        entries.link_tail(slot);
        if referenced { ZswapHead::Referenced } else { ZswapHead::Old(SwapSlot(slot)) }
    }

    /// Fill a page with what is to be written to its slot, and forget it. `false`: it is not here any more.
    pub(crate) fn take_to_write<M: Machine>(
        &self,
        memory: &ZsMemory<'_, M>,
        page: Pfn,
        slot: SwapSlot,
    ) -> bool {
        let Some(entry) = self.entries.lock().remove(slot.0) else { return false };
        self.decompress(memory, page, (entry.handle, entry.compressor));
        self.free(memory, &entry);
        memory.mmu.count(Stat::Zswpwb, 1);
        true
    }

    /// Count an attempt to write a page to its slot.
    pub(crate) fn count_write(&self, written: bool) {
        let Rejections { written_back, reclaim_fail, .. } = &self.rejections;
        (if written { written_back } else { reclaim_fail }).fetch_add(1, Relaxed);
    }

    /// Whether the daemon is wanted; from now on it is not, until it is again.
    pub(crate) fn take_request(&self) -> bool {
        self.wanted.swap(false, Relaxed)
    }

    /// A group was removed: its pages are on its parent's lists from now on, before those that were there.
    pub(crate) fn reparent(&self, from: GroupId, to: GroupId) {
        if !self.is_used() {
            return;
        }
        let mut entries = self.entries.lock();
        let nodes: Vec<NodeId> = entries
            .lists
            .range((from, NodeId(0))..=(from, NodeId(u8::MAX)))
            .map(|(list, _)| list.1)
            .collect();
        for node in nodes {
            let kept = entries.slots((to, node));
            for slot in entries.slots((from, node)).into_iter().chain(kept) {
                entries.unlink(slot);
                entries.entry(slot).list = (to, node);
                entries.link_tail(slot);
            }
        }
    }

    /// Its counts.
    pub(crate) fn stat(&self) -> ZswapStat {
        let Rejections { limit_hit, written_back, reclaim_fail, compress_poor, alloc_fail } =
            &self.rejections;
        ZswapStat {
            pool_total_size: self.pool.total_pages() * PAGE_SIZE,
            pool_max_size: self.pool.most_pages() * PAGE_SIZE,
            stored_pages: self.entries.lock().entries.len() as u64,
            pool_limit_hit: limit_hit.load(Relaxed),
            written_back_pages: written_back.load(Relaxed),
            reject_reclaim_fail: reclaim_fail.load(Relaxed),
            reject_compress_poor: compress_poor.load(Relaxed),
            reject_alloc_fail: alloc_fail.load(Relaxed),
        }
    }

    /// Check lists and objects, and that slots are in use. Returns the first error.
    pub(crate) fn validate(&self, is_used: impl Fn(SwapSlot) -> bool) -> Result<(), String> {
        let entries = self.entries.lock();
        let mut listed = 0;
        for (list, ends) in &entries.lists {
            let (mut at, mut prev) = (ends.head, NONE);
            while at != NONE {
                let Some(entry) = entries.entries.get(&at) else {
                    return Err(format!("zswap lists slot {at}, which it does not hold"));
                };
                if entry.list != *list || entry.prev != prev || !is_used(SwapSlot(at)) {
                    return Err(format!("zswap has slot {at} on a wrong list, or it is free"));
                }
                (prev, at, listed) = (at, entry.next, listed + 1);
            }
            if prev != ends.tail {
                return Err(format!("zswap's list of {list:?} ends at {prev}, not {}", ends.tail));
            }
        }
        let counts = [listed, entries.entries.len() as u64, self.pool.records()[0]];
        if counts == [listed; 3] { Ok(()) } else { Err(format!("zswap counts {counts:?}")) }
    }

    /// Its records.
    pub(crate) fn records(&self) -> [(Record, u64); 3] {
        let [objects, zspages] = self.pool.records();
        let entries = self.entries.lock().entries.len() as u64;
        [(Record::ZsHandle, objects), (Record::Zspage, zspages), (Record::ZswapEntry, entries)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zsmalloc::tests::Bench;

    const NODE: NodeId = NodeId(0);

    fn store(bench: &Bench, zswap: &Zswap, slot: u32, group: u16, stamp: u64) -> bool {
        bench.mmu.machine.set_stamp(bench.page, stamp);
        zswap.store(&bench.memory(), (bench.page, GroupId(group)), SwapSlot(slot))
    }

    fn enabled(percent: u64) -> (Bench, Zswap) {
        let bench = Bench::new(1000);
        bench.mmu.knobs.set(Knob::ZswapEnabled, 1).unwrap();
        bench.mmu.knobs.set(Knob::ZswapMaxPoolPercent, percent).unwrap();
        (bench, Zswap::new(1000))
    }

    #[test]
    fn a_page_leaves_when_it_is_read_into_the_swap_cache() {
        let (bench, zswap) = enabled(20);
        assert!(store(&bench, &zswap, 3, 0, 5 << 16 | 1000));
        assert!(store(&bench, &zswap, 3, 0, 6 << 16 | 900), "the older content goes");
        assert!(!store(&bench, &zswap, 3, 0, 7 << 16 | 4112), "so it does where the new one is not kept");
        assert!(!zswap.load(&bench.memory(), bench.page, SwapSlot(3), false));
        assert!(store(&bench, &zswap, 3, 0, 8 << 16 | 900));
        for (keeps, stays) in [(true, true), (false, true), (false, false)] {
            bench.mmu.machine.set_stamp(bench.page, 0);
            assert_eq!(zswap.load(&bench.memory(), bench.page, SwapSlot(3), keeps), stays);
            assert_eq!(bench.mmu.machine.stamp(bench.page), if stays { 8 << 16 | 900 } else { 0 });
        }
        let stat = zswap.stat();
        assert_eq!((stat.stored_pages, stat.pool_total_size, stat.reject_compress_poor), (0, 0, 1));
        zswap.validate(|_| true).unwrap();
    }

    #[test]
    fn a_full_pool_takes_pages_again_at_the_threshold() {
        // Ten frames, and nine again.
        let (bench, zswap) = enabled(1);
        let full = (0..20).take_while(|&slot| store(&bench, &zswap, slot, 0, 5 << 16 | 4096)).count();
        assert_eq!((full, bench.mmu.machine.wakes(WaitKey::Zswap), zswap.take_request()), (10, 1, true));
        assert!(zswap.is_above_threshold(&bench.mmu.knobs));
        assert!(!zswap.take_request(), "a request is met once");
        zswap.invalidate(&bench.memory(), SwapSlot(0));
        assert!(!zswap.is_above_threshold(&bench.mmu.knobs));
        assert!(store(&bench, &zswap, 0, 0, 5 << 16 | 4096) && zswap.stat().pool_limit_hit == 1);
    }

    #[test]
    fn old_pages_are_written_first_after_a_second_chance() {
        let (bench, zswap) = enabled(20);
        for (slot, group) in [(1, 2), (2, 2), (3, 0)] {
            assert!(store(&bench, &zswap, slot, group, 5 << 16 | 1000));
        }
        let look = |group| zswap.look_at_head(GroupId(group), NODE);
        assert_eq!(
            [look(1), look(2), look(2)],
            [ZswapHead::Empty, ZswapHead::Referenced, ZswapHead::Referenced]
        );
        assert_eq!([look(2), look(2)], [1, 2].map(|slot| ZswapHead::Old(SwapSlot(slot))));
        assert!(zswap.take_to_write(&bench.memory(), bench.page, SwapSlot(1)));
        assert!(!zswap.take_to_write(&bench.memory(), bench.page, SwapSlot(1)), "it is gone");
        // What a removed group leaves is older than the pages of its parent.
        zswap.reparent(GroupId(2), GroupId(0));
        zswap.validate(|_| true).unwrap();
        assert_eq!((look(2), look(0)), (ZswapHead::Empty, ZswapHead::Old(SwapSlot(2))));
        assert_eq!((look(0), look(0)), (ZswapHead::Referenced, ZswapHead::Old(SwapSlot(2))));
        zswap.validate(|_| true).unwrap();
    }
}
