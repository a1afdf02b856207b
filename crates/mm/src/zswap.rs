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

use crate::knobs::{Compressor, Knob, Knobs, ZswapForm};
use crate::lock::Lock;
use crate::lru::Groups;
use crate::machine::{Machine, WaitKey, Work};
use crate::primitive::{AtomicBool, AtomicU64, Ordering::Relaxed};
use crate::slab::Record;
use crate::stat::{GroupStat, Stat};
use crate::units::*;
use crate::zsmalloc::{ZsHandle, ZsMemory, ZsPool};
use std_alloc::collections::BTreeMap;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec::Vec;

/// No slot.
const NONE: u32 = u32::MAX;

/// What zswap takes memory from, and whom it charges.
pub(crate) struct ZswapMemory<'a, M> {
    pub(crate) zs: ZsMemory<'a, M>,
    pub(crate) groups: &'a Groups,
}

impl<'a, M> core::ops::Deref for ZswapMemory<'a, M> {
    type Target = ZsMemory<'a, M>;

    fn deref(&self) -> &ZsMemory<'a, M> {
        &self.zs
    }
}

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
    bytes: u32,
    list: ListKey,
    /// It has come since the daemon last met it.
    referenced: bool,
    /// Its neighbours' slots.
    prev: u32,
    next: u32,
}

/// A list that is not empty.
#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
    count: u64,
}

/// The pages, by slot.
#[derive(Default)]
struct Entries {
    entries: BTreeMap<u32, ZswapEntry>,
    lists: BTreeMap<ListKey, Ends>,
    /// Pages of a list's group and node that came back from devices since the list was last counted
    /// (`nr_disk_swapins`).
    disk_swapins: BTreeMap<ListKey, u64>,
    /// What the shrinker has put off of its work on a list.
    deferred: BTreeMap<ListKey, u64>,
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
        let ends = self.lists.entry(list).or_insert(Ends { head: slot, tail: NONE, count: 0 });
        ends.count += 1;
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
                ends.count -= 1;
                ends.head = if prev == NONE { next } else { ends.head };
                ends.tail = if next == NONE { prev } else { ends.tail };
            }
        }
    }

    /// What was put off of the lists of a removed group is put off of those of a group above.
    fn reparent_deferred(&mut self, from: GroupId, to: GroupId) {
        let own = (from, NodeId(0))..=(from, NodeId(u8::MAX));
        let gone: Vec<_> = self.deferred.range(own).map(|(list, &deferred)| (list.1, deferred)).collect();
        for (node, deferred) in gone {
            self.deferred.remove(&(from, node));
            *self.deferred.entry((to, node)).or_default() += deferred;
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

    /// Store a locked page of a folio, of a group, instead of writing it to its slot. `allowed`: the group's limits
    /// let it. `false`: it is not here; an older content of the slot is gone.
    pub(crate) fn store<M: Machine>(
        &self,
        memory: &ZswapMemory<'_, M>,
        (page, group): (Pfn, GroupId),
        slot: SwapSlot,
        allowed: bool,
    ) -> bool {
        let knobs = &memory.mmu.knobs;
        let enabled = knobs.get(Knob::ZswapEnabled) != 0;
        if enabled && allowed && !self.is_full(knobs) && self.compress(memory, (page, group), slot) {
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
        memory: &ZswapMemory<'_, M>,
        (page, group): (Pfn, GroupId),
        slot: SwapSlot,
    ) -> bool {
        let (mmu, compressor) = (memory.mmu, memory.mmu.knobs.zswap_compressor());
        mmu.charge(Work::compress(compressor), 1);
        let made = mmu.machine.compress(page, compressor);
        let Some(bytes) = self.kept_bytes(memory, made, group) else {
            self.rejections.compress_poor.fetch_add(1, Relaxed);
            return false;
        };
        let Some(handle) = self.pool.alloc(memory, bytes) else {
            self.rejections.alloc_fail.fetch_add(1, Relaxed);
            return false;
        };
        self.pool.with_place(handle, |place| mmu.machine.pack(page, place));
        self.used.store(true, Relaxed);
        if let Some(old) = self.take(memory, slot) {
            self.free(memory, &old);
        }
        let mut entries = self.entries.lock();
        // The group may have been removed since.
        let list = (memory.groups.nearest_live(group), mmu.frames[page].node());
        memory.groups.charge_zswap(mmu, list.0, i64::from(bytes));
        let entry = ZswapEntry { handle, compressor, bytes, list, referenced: true, prev: NONE, next: NONE };
        entries.insert(slot.0, entry);
        drop(entries);
        memory.note_records(Record::ZswapEntry, 1);
        mmu.count(Stat::Zswpout, 1);
        memory.groups.count(list.0, GroupStat::Zswpout, 1);
        true
    }

    /// Bytes that are kept of a page of a group that became `made`. `None`: it is not to be kept.
    fn kept_bytes<M: Machine>(&self, memory: &ZswapMemory<'_, M>, made: u32, group: GroupId) -> Option<u32> {
        let whole = PAGE_SIZE as u32;
        match memory.mmu.knobs.zswap_form() {
            ZswapForm::V612 => Some(made).filter(|&made| made <= whole),
            ZswapForm::V618 if made < whole => Some(made),
            // It is written back in its turn. Where nothing may be written back, it would only take memory.
            ZswapForm::V618 => memory.groups.may_write_from_zswap(group).then_some(whole),
        }
    }

    /// Take a page out, and uncharge it.
    fn take<M: Machine>(&self, memory: &ZswapMemory<'_, M>, slot: SwapSlot) -> Option<ZswapEntry> {
        let mut entries = self.entries.lock();
        let entry = entries.remove(slot.0)?;
        memory.groups.charge_zswap(memory.mmu, entry.list.0, -i64::from(entry.bytes));
        Some(entry)
    }

    /// Fill a page that no task uses yet, if it is here. `keeps`: the slot's content stays here as well.
    pub(crate) fn load<M: Machine>(
        &self,
        memory: &ZswapMemory<'_, M>,
        page: Pfn,
        slot: SwapSlot,
        keeps: bool,
    ) -> bool {
        let group = if keeps {
            let entries = self.entries.lock();
            let Some(entry) = entries.entries.get(&slot.0) else { return false };
            let (handle, compressor, group) = (entry.handle, entry.compressor, entry.list.0);
            drop(entries);
            self.decompress(memory, page, (handle, compressor));
            group
        } else {
            let Some(entry) = self.take(memory, slot) else { return false };
            self.decompress(memory, page, (entry.handle, entry.compressor));
            self.free(memory, &entry);
            entry.list.0
        };
        memory.mmu.count(Stat::Zswpin, 1);
        memory.groups.count(group, GroupStat::Zswpin, 1);
        true
    }

    fn decompress<M: Machine>(
        &self,
        memory: &ZswapMemory<'_, M>,
        page: Pfn,
        (handle, compressor): (ZsHandle, Compressor),
    ) {
        let bytes = self.pool.with_place(handle, |place| {
            memory.mmu.machine.unpack(place, page, compressor);
            place.bytes
        });
        let whole = u64::from(bytes) == PAGE_SIZE;
        memory.mmu.charge(if whole { Work::CopyPage } else { Work::decompress(compressor) }, 1);
    }

    fn free<M: Machine>(&self, memory: &ZswapMemory<'_, M>, entry: &ZswapEntry) {
        self.pool.free(memory, entry.handle);
        memory.note_records(Record::ZswapEntry, -1);
    }

    /// A slot is free, or has another content now.
    pub(crate) fn invalidate<M: Machine>(&self, memory: &ZswapMemory<'_, M>, slot: SwapSlot) {
        if !self.is_used() {
            return;
        }
        if let Some(entry) = self.take(memory, slot) {
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

    /// A page of a group was read from a device.
    pub(crate) fn note_disk_swapin(&self, group: GroupId, node: NodeId) {
        *self.entries.lock().disk_swapins.entry((group, node)).or_default() += 1;
    }

    /// How many pages the shrinker may look at on a list, scaled by what they save. As many as have come back from
    /// devices since the last call are not among them: had they been kept, these would not have been read.
    pub(crate) fn shrinkable(&self, groups: &Groups, group: GroupId, node: NodeId) -> u64 {
        let [bytes, stored] = groups.zswap_usage(group);
        if stored == 0 {
            return 0;
        }
        let mut entries = self.entries.lock();
        let listed = entries.lists.get(&(group, node)).map_or(0, |ends| ends.count);
        let Some(swapins) = entries.disk_swapins.get_mut(&(group, node)).filter(|_| listed > 0) else {
            return scaled(listed, bytes / PAGE_SIZE, stored);
        };
        let spared = listed.min(*swapins);
        *swapins -= spared;
        scaled(listed - spared, bytes / PAGE_SIZE, stored)
    }

    /// What was put off of a list. From now on nothing is.
    pub(crate) fn take_deferred(&self, group: GroupId, node: NodeId) -> u64 {
        self.entries.lock().deferred.remove(&(group, node)).unwrap_or(0)
    }

    /// Put something off.
    pub(crate) fn defer(&self, group: GroupId, node: NodeId, objects: u64) {
        *self.entries.lock().deferred.entry((group, node)).or_default() += objects;
    }

    /// Fill a page with what is to be written to its slot, and forget it. `false`: it is not here any more.
    pub(crate) fn take_to_write<M: Machine>(
        &self,
        memory: &ZswapMemory<'_, M>,
        page: Pfn,
        slot: SwapSlot,
    ) -> bool {
        let Some(entry) = self.take(memory, slot) else { return false };
        self.decompress(memory, page, (entry.handle, entry.compressor));
        self.free(memory, &entry);
        memory.mmu.count(Stat::Zswpwb, 1);
        memory.groups.count(entry.list.0, GroupStat::Zswpwb, 1);
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

    /// A group was removed: its pages are on the lists of the nearest group above from now on, before those that were
    /// there.
    pub(crate) fn reparent(&self, groups: &Groups, from: GroupId) {
        if !self.is_used() {
            return;
        }
        let mut entries = self.entries.lock();
        let to = groups.nearest_live(from);
        groups.reparent_zswap(from, to);
        entries.disk_swapins.retain(|list, _| list.0 != from);
        entries.reparent_deferred(from, to);
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

    /// Check lists and objects, what groups are charged, and that slots are in use. Returns the first error.
    pub(crate) fn validate(&self, groups: &Groups, is_used: impl Fn(SwapSlot) -> bool) -> Result<(), String> {
        let entries = self.entries.lock();
        let mut listed = 0;
        for (list, ends) in &entries.lists {
            let (mut at, mut prev, before) = (ends.head, NONE, listed);
            while at != NONE {
                let Some(entry) = entries.entries.get(&at) else {
                    return Err(format!("zswap lists slot {at}, which it does not hold"));
                };
                if entry.list != *list || entry.prev != prev || !is_used(SwapSlot(at)) {
                    return Err(format!("zswap has slot {at} on a wrong list, or it is free"));
                }
                (prev, at, listed) = (at, entry.next, listed + 1);
            }
            if (prev, listed - before) != (ends.tail, ends.count) {
                return Err(format!("zswap's list of {list:?} ends at {prev}, not {}", ends.tail));
            }
        }
        let mut bytes = BTreeMap::<GroupId, u64>::new();
        for entry in entries.entries.values() {
            *bytes.entry(entry.list.0).or_default() += u64::from(entry.bytes);
        }
        for group in (1..groups.bound()).map(|group| GroupId(group as u16)) {
            let (charged, found) = (groups.zswap_own(group), bytes.get(&group).copied().unwrap_or(0));
            if charged != found {
                return Err(format!("{group} is charged {charged} bytes in zswap, and has {found}"));
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

/// `count` times `backing / stored`.
fn scaled(count: u64, backing: u64, stored: u64) -> u64 {
    (u128::from(count) * u128::from(backing) / u128::from(stored)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{GroupLimits, ZswapLimits};
    use crate::lru::ROOT;
    use crate::testing::TestMachine;
    use crate::zsmalloc::tests::Bench;

    const NODE: NodeId = NodeId(0);

    /// A pool's memory, and the root with groups 1 and 2 below it.
    struct Grouped(Bench, Groups);

    impl core::ops::Deref for Grouped {
        type Target = Bench;

        fn deref(&self) -> &Bench {
            &self.0
        }
    }

    impl Grouped {
        fn memory(&self) -> ZswapMemory<'_, TestMachine> {
            ZswapMemory { zs: self.0.memory(), groups: &self.1 }
        }
    }

    fn store(bench: &Grouped, zswap: &Zswap, slot: u32, group: u16, stamp: u64) -> bool {
        bench.mmu.machine.set_stamp(bench.page, stamp);
        zswap.store(&bench.memory(), (bench.page, GroupId(group)), SwapSlot(slot), true)
    }

    fn enabled(percent: u64) -> (Grouped, Zswap) {
        let bench = Bench::new(1000);
        bench.mmu.knobs.set(Knob::ZswapEnabled, 1).unwrap();
        bench.mmu.knobs.set(Knob::ZswapMaxPoolPercent, percent).unwrap();
        let groups = Groups::new(1);
        for group in [1, 2] {
            assert_eq!(groups.add(ROOT, GroupLimits::default()), GroupId(group));
        }
        (Grouped(bench, groups), Zswap::new(1000))
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
        zswap.validate(&bench.1, |_| true).unwrap();
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
        bench.1.unlink(GroupId(2)).unwrap();
        zswap.reparent(&bench.1, GroupId(2));
        zswap.validate(&bench.1, |_| true).unwrap();
        assert_eq!((look(2), look(0)), (ZswapHead::Empty, ZswapHead::Old(SwapSlot(2))));
        assert_eq!((look(0), look(0)), (ZswapHead::Referenced, ZswapHead::Old(SwapSlot(2))));
        zswap.validate(&bench.1, |_| true).unwrap();
    }

    #[test]
    fn a_group_is_charged_for_its_objects_and_may_keep_its_limit() {
        let (bench, zswap) = enabled(50);
        let (group, groups) = (GroupId(1), &bench.1);
        let inner = groups.add(group, GroupLimits::default());
        groups.set_zswap_limits(group, ZswapLimits { max: 1, writeback: true }).unwrap();
        for slot in 0..4 {
            // 4500 bytes are the page that is allowed, and two pages of memory.
            assert_eq!(groups.may_zswap(inner), slot < 3, "{slot}");
            assert!(store(&bench, &zswap, slot, inner.0, 5 << 16 | 1500));
        }
        assert!(!groups.may_zswap(inner) && groups.may_zswap(GroupId(2)) && groups.may_zswap(ROOT));
        let usage = |group| (groups.zswap_usage(group), groups.usage(group));
        assert_eq!([inner, group, ROOT].map(usage), [([6000, 4], 2); 3]);
        let counted = [GroupStat::Zswpout, GroupStat::Zswpin].map(|stat| groups.counted(group, stat));
        assert_eq!(counted, [4, 0]);
        // What a removed group leaves is its parent's.
        assert!(store(&bench, &zswap, 9, group.0, 5 << 16 | 2000));
        assert_eq!([inner, group].map(usage), [([6000, 4], 2), ([8000, 5], 3)]);
        groups.unlink(inner).unwrap();
        zswap.reparent(groups, inner);
        assert_eq!([group, ROOT].map(usage), [([8000, 5], 2); 2]);
        (0..10).for_each(|slot| zswap.invalidate(&bench.memory(), SwapSlot(slot)));
        assert_eq!([inner, group, ROOT].map(usage), [([0, 0], 0); 3]);
        let closed = ZswapLimits { max: 0, writeback: false };
        groups.set_zswap_limits(group, closed).unwrap();
        assert!(!groups.may_zswap(group) && !groups.may_write_from_zswap(group));
        assert_eq!(groups.set_zswap_limits(ROOT, closed), Err(crate::api::Error::Invalid));
    }

    #[test]
    fn the_shrinker_spares_as_many_pages_as_came_back_from_devices() {
        let (bench, zswap) = enabled(50);
        let group = GroupId(1);
        let shrinkable = || zswap.shrinkable(&bench.1, group, NODE);
        assert_eq!(shrinkable(), 0);
        (0..40).for_each(|slot| assert!(store(&bench, &zswap, slot, group.0, 5 << 16 | 2048)));
        // Two pages are in one.
        assert_eq!(shrinkable(), 20);
        (0..50).for_each(|_| zswap.note_disk_swapin(group, NODE));
        assert_eq!([shrinkable(), shrinkable(), shrinkable()], [0, 15, 20]);
        // The root's own pages are not counted, as in Linux.
        assert_eq!(zswap.shrinkable(&bench.1, GroupId(2), NODE), 0);
        zswap.validate(&bench.1, |_| true).unwrap();
    }
}
