//! Swap space: which slots are used, by how many entries, and which folio has the content of a slot (the swap cache).
//!
//! A slot is used by page-table entries and shmem trees that refer to it ([`Swap::dup`], [`Swap::free_entry`]), and by
//! the cache while a folio with its content is in memory. It is free when no user is left. A folio that is evicted
//! from the cache may leave a shadow in the slot; the shadow stays until the content comes back or the slot is free.
//!
//! Areas of higher priority are filled first; areas of equal priority take turns. Inside an area every CPU fills its
//! own cluster ([`clusters`]). The state of all slots is in dense arrays: no hashing, one lock per area. Linux gives
//! slots to CPUs by 64 and takes freed ones back by 64 (mm/swap_slots.c of 6.12); in simulated time its
//! lock is held once for each 64 ([`Batched`]).

mod area;
pub mod clusters;
mod groups;
mod names;
mod readahead;

use crate::api::{SwapArea, ZramConfig};
use crate::batched::Batched;
use crate::frame::FrameFlags;
use crate::lock::{Guard, Lock, LockClass};
use crate::machine::{Machine, Work};
use crate::platform::Platform;
use crate::primitive::{AtomicBool, AtomicI64, AtomicU32, Ordering::Relaxed};
use crate::stat::Stat;
use crate::units::*;
use area::{Sums, SwapSlots};
pub use groups::SwapGroups;
pub(crate) use names::NamedSlots;
pub(crate) use readahead::RangeReadahead;
pub(crate) use readahead::SwapReadahead;
use std_alloc::boxed::Box;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec::Vec;

/// Slots allocated from one area before an area of equal priority has its turn.
const TURN: u32 = 64;

/// Slots that a CPU takes from an area, or gives back, under one hold of its lock.
const BATCH: u64 = 64;

/// Kinds of batches.
const TAKEN: usize = 0;
const FREED: usize = 1;

struct Area {
    info: SwapArea,
    /// Number of the area's first slot.
    base: u32,
    slots: Lock<SwapSlots>,
}

impl Area {
    /// `locks`: Linux takes the area's lock for this.
    #[inline]
    fn lock_if(&self, locks: bool) -> Guard<'_, SwapSlots> {
        if locks { self.slots.lock() } else { self.slots.look() }
    }
}

/// The users of a slot that an entry refers to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotUse {
    /// That entry.
    Single,
    /// That entry, and a task that reads the slot without the cache.
    Held,
    /// The cache has a folio there, or other entries refer to it.
    Shared,
}

/// All swap areas.
pub struct Swap {
    /// Highest priority first; `platform` ascending.
    areas: Box<[Area]>,
    /// Slots allocated so far, for the turns of areas of equal priority.
    turns: AtomicU32,
    /// Pages that are being written.
    writing: AtomicU32,
    /// By how much the number of the cache's nodes has changed.
    node_changes: AtomicI64,
    /// Slots that CPUs have taken and freed since they last held an area's lock.
    batches: Batched<2>,
    /// Whether zeroes have ever been swapped out.
    zeroes: AtomicBool,
    /// Usage and limits of control groups.
    pub groups: SwapGroups,
    /// State of readahead by slot.
    pub(crate) readahead: SwapReadahead,
}

impl Swap {
    /// Create swap space on these areas, all free, for `cpus` CPUs.
    ///
    /// # Panics
    /// If the areas together have 2^32 slots or more.
    pub fn new(areas: &[SwapArea], cpus: usize) -> Swap {
        let mut sorted: Vec<SwapArea> = areas.to_vec();
        sorted.sort_by_key(|area| core::cmp::Reverse(area.priority));
        let mut base = 0;
        let areas = sorted.into_iter().map(|info| {
            let area =
                Area { info, base, slots: Lock::of(LockClass::SwapArea, SwapSlots::new(info.pages, cpus)) };
            base += info.pages;
            area
        });
        let [turns, writing] = [0; 2].map(AtomicU32::new);
        let (groups, readahead) = Default::default();
        let (node_changes, batches, zeroes) = (AtomicI64::new(0), Batched::new(cpus), AtomicBool::new(false));
        Swap { areas: areas.collect(), turns, writing, node_changes, batches, zeroes, groups, readahead }
    }

    /// Allocate a slot for a page of `group`; the cache holds it until [`Swap::cache_remove`]. `None` if swap is full
    /// or the group has reached its limit.
    pub fn alloc<M: Machine>(&self, base: &Platform<M>, group: GroupId) -> Option<SwapSlot> {
        self.alloc_run(base, group, Order::ZERO)
    }

    /// As [`Swap::alloc`], for the pages of a folio of `order`: consecutive slots, aligned to their number. `None` if
    /// no such run was found.
    pub(crate) fn alloc_run<M: Machine>(
        &self,
        base: &Platform<M>,
        group: GroupId,
        order: Order,
    ) -> Option<SwapSlot> {
        let count = order.frames() as u64;
        if !self.groups.try_charge(group, count) {
            return None;
        }
        let found = self.find_run(base, group, order);
        if found.is_none() {
            self.groups.uncharge(group, count);
        }
        found
    }

    fn find_run<M: Machine>(&self, base: &Platform<M>, group: GroupId, order: Order) -> Option<SwapSlot> {
        let cpu = base.machine.cpu();
        let turn = self.turns.fetch_add(1, Relaxed) / TURN;
        let mut rest = &self.areas[..];
        while let Some(first) = rest.first() {
            let equal = rest.partition_point(|area| area.info.priority == first.info.priority);
            let (class, lower) = rest.split_at(equal);
            for step in 0..equal {
                let area = &class[(turn as usize + step) % equal];
                let completes = order != Order::ZERO || self.batches.completes(base, TAKEN, || BATCH);
                let mut slots = area.lock_if(completes);
                let found = if order == Order::ZERO { slots.alloc(cpu) } else { slots.alloc_run(cpu, order) };
                if let Some(offset) = found {
                    slots.set_group(offset, order.frames(), group);
                    self.batches.charge(base, (TAKEN, Work::SwapSlot), completes, 1);
                    return Some(SwapSlot(area.base + offset));
                }
            }
            rest = lower;
        }
        None
    }

    /// Record that the write of `pages` pages to their slots begins.
    pub fn begin_write(&self, pages: u32) {
        self.writing.fetch_add(pages, Relaxed);
    }

    /// Record that the write of `pages` pages has ended.
    pub fn end_write(&self, pages: u32) {
        self.writing.fetch_sub(pages, Relaxed);
    }

    /// Pages that are being written to slots.
    pub(crate) fn under_way(&self) -> u32 {
        self.writing.load(Relaxed)
    }

    /// Add an entry's reference to the slot.
    pub(crate) fn dup(&self, slot: SwapSlot) {
        self.dup_run(slot, 1);
    }

    /// Add an entry's reference to each of `count` consecutive slots.
    pub(crate) fn dup_run(&self, first: SwapSlot, count: u32) {
        let (mut slots, offset) = self.slots(first);
        (offset..offset + count).for_each(|offset| slots.dup(offset));
    }

    /// Drop an entry's reference to the slot. Returns the number of entries left. `gone` is told of a slot that is
    /// free.
    pub(crate) fn free_entry<M: Machine>(
        &self,
        base: &Platform<M>,
        slot: SwapSlot,
        gone: impl Fn(SwapSlot),
    ) -> u32 {
        let completes = self.batches.completes(base, FREED, || BATCH);
        let (mut slots, offset) = self.slots_if(slot, completes);
        if slots.free_entry(offset) {
            gone(slot);
            self.note_nodes(&mut slots);
            self.note_freed(base, slots.group(offset), 1, completes);
            return 0;
        }
        slots.entries(offset)
    }

    /// Drop an entry's reference to each of `count` consecutive slots that the cache holds, for a folio or without one.
    pub(crate) fn free_entries<M: Machine>(&self, base: &Platform<M>, first: SwapSlot, count: u32) {
        let completes = self.batches.completes(base, FREED, || BATCH);
        let (mut slots, offset) = self.slots_if(first, completes);
        let freed = (offset..offset + count).filter(|&offset| slots.free_entry(offset)).count();
        debug_assert_eq!(freed, 0, "the cache holds the slots from {first} on");
        self.note_nodes(&mut slots);
        self.note_freed(base, slots.group(offset), freed as u64, completes);
    }

    /// Number of entries that refer to the slot.
    pub fn entries(&self, slot: SwapSlot) -> u32 {
        self.entries_of_run(slot, 1)
    }

    /// Number of entries that refer to any of `count` consecutive slots.
    pub(crate) fn entries_of_run(&self, first: SwapSlot, count: u32) -> u32 {
        let (slots, offset) = self.slots(first);
        (offset..offset + count).map(|offset| slots.entries(offset)).sum()
    }

    /// Whether the cache holds the slot: it has a folio there, or is about to.
    pub(crate) fn is_cached(&self, slot: SwapSlot) -> bool {
        let (slots, offset) = self.slots(slot);
        slots.has_cache(offset)
    }

    /// The folio in the swap cache, without a reference: the caller must ensure that the folio stays there.
    #[cfg(test)]
    pub(crate) fn cache_folio(&self, slot: SwapSlot) -> Option<Pfn> {
        let (slots, offset) = self.slots(slot);
        slots.folio(offset)
    }

    /// The folio in the swap cache, with a reference. The slot need not be its first.
    pub(crate) fn cache_get<M: Machine>(&self, base: &Platform<M>, slot: SwapSlot) -> Option<Pfn> {
        let (slots, offset) = self.slots(slot);
        slots.folio(offset).filter(|&pfn| base.try_get(pfn))
    }

    /// Put a locked folio into the swap cache, in consecutive slots from `slot` on: mark it, take the cache's one
    /// reference, count its pages. Returns the shadow that an earlier folio left in the first slot.
    pub(crate) fn cache_insert<M: Machine>(
        &self,
        base: &Platform<M>,
        slot: SwapSlot,
        pfn: Pfn,
    ) -> Option<Shadow> {
        let (mut slots, offset) = self.slots(slot);
        note_cached(base, slot, pfn);
        for offset in (offset + 1..).take(base.frames[pfn].pages() as usize - 1) {
            slots.insert(offset, pfn);
        }
        let shadow = slots.insert(offset, pfn);
        self.note_nodes(&mut slots);
        shadow
    }

    /// As [`Swap::cache_insert`], unless a folio is there already or no entry refers to the slot any more: then
    /// nothing changes and the outer `Option` is `None`. The inner one is the shadow.
    pub(crate) fn cache_try_insert<M: Machine>(
        &self,
        base: &Platform<M>,
        slot: SwapSlot,
        pfn: Pfn,
    ) -> Option<Option<Shadow>> {
        let (mut slots, offset) = self.slots(slot);
        if slots.entries(offset) == 0 || slots.has_cache(offset) {
            return None;
        }
        note_cached(base, slot, pfn);
        let shadow = slots.insert(offset, pfn);
        self.note_nodes(&mut slots);
        Some(shadow)
    }

    /// Replace `from`, a folio in the swap cache, by `to`, a folio of the same size. `freeze` runs while no task can
    /// look up either. If it returns true, it has copied the state of `from` except its slots to `to`; then the folios
    /// are exchanged, and the cache's reference to `from` is gone.
    pub(crate) fn cache_exchange<M: Machine>(
        &self,
        base: &Platform<M>,
        from: Pfn,
        to: Pfn,
        freeze: impl FnOnce() -> bool,
    ) -> bool {
        let (old, new) = (&base.frames[from], &base.frames[to]);
        let first = old.swap_slot();
        let (mut slots, offset) = self.slots(first);
        if !freeze() {
            return false;
        }
        (offset..offset + old.pages()).for_each(|offset| slots.exchange(offset, from, to));
        new.set_swap_slot(first);
        new.set(FrameFlags::SWAPCACHE);
        new.get(1);
        old.clear(FrameFlags::SWAPCACHE);
        old.clear_private();
        true
    }

    /// Remove the folio that has this first slot from the swap cache, leaving a shadow in each slot that entries still
    /// refer to. The cache's reference passes to the caller, which must drop it (reclaim has frozen it already). The
    /// cache may also hold the slot without a folio. `gone` is told of slots that are free.
    pub(crate) fn cache_remove<M: Machine>(
        &self,
        base: &Platform<M>,
        slot: SwapSlot,
        shadow: Option<Shadow>,
        gone: impl Fn(SwapSlot),
    ) {
        let completes = self.batches.completes(base, FREED, || BATCH);
        let (mut slots, offset) = self.slots_if(slot, completes);
        let mut pages = 1;
        if let Some(pfn) = slots.folio(offset) {
            assert_eq!(
                base.frames[pfn].swap_slot(),
                slot,
                "folio {pfn} must leave the swap cache from its first slot"
            );
            pages = base.frames[pfn].pages();
            base.frames[pfn].clear(FrameFlags::SWAPCACHE);
            base.frames[pfn].clear_private();
            base.count(Stat::NrSwapcached, -i64::from(pages));
            base.count(Stat::NrFilePages, -i64::from(pages));
            base.charge(Work::CacheRemove, 1);
        }
        let removes = |at: &u32| {
            let free = slots.remove(*at, shadow);
            if free {
                gone(SwapSlot(slot.0 + (at - offset)));
            }
            free
        };
        let freed = (offset..offset + pages).filter(removes).count();
        self.note_nodes(&mut slots);
        self.note_freed(base, slots.group(offset), freed as u64, completes);
    }

    /// The users of a slot that an entry refers to.
    pub(crate) fn slot_use(&self, slot: SwapSlot) -> SlotUse {
        let (slots, offset) = self.slots(slot);
        match (slots.entries(offset), slots.has_cache(offset), slots.folio(offset)) {
            (1, false, _) => SlotUse::Single,
            (1, true, None) => SlotUse::Held,
            _ => SlotUse::Shared,
        }
    }

    /// Hold consecutive slots without a folio, if one entry refers to each and the cache holds none. Returns the shadow
    /// that was in the first; those of others are gone. [`Swap::cache_remove`] of each slot ends this.
    pub(crate) fn cache_prepare(&self, first: SwapSlot, count: u32) -> Option<Option<Shadow>> {
        let (mut slots, offset) = self.slots(first);
        if !(offset..offset + count).all(|offset| slots.can_hold(offset)) {
            return None;
        }
        let shadow = slots.hold(offset);
        (offset + 1..offset + count).for_each(|offset| _ = slots.hold(offset));
        self.note_nodes(&mut slots);
        Some(shadow)
    }

    /// Note whether zeroes, which are not written, are swapped out to these slots.
    #[inline]
    pub(crate) fn set_zeroes(&self, first: SwapSlot, count: u32, zeroes: bool) {
        if zeroes || self.zeroes.load(Relaxed) {
            self.set_zeroes_slow(first, count, zeroes);
        }
    }

    #[cold]
    fn set_zeroes_slow(&self, first: SwapSlot, count: u32, zeroes: bool) {
        self.zeroes.store(true, Relaxed);
        let (mut slots, offset) = self.slots(first);
        slots.set_zeroes(offset, count, zeroes);
    }

    /// Whether the content of a slot is zeroes.
    #[inline]
    pub(crate) fn has_zeroes(&self, slot: SwapSlot) -> bool {
        self.zeroes.load(Relaxed) && {
            let (slots, offset) = self.slots(slot);
            slots.has_zeroes(offset)
        }
    }

    /// Whether a slot is in use.
    pub(crate) fn is_used(&self, slot: SwapSlot) -> bool {
        let (slots, offset) = self.slots(slot);
        slots.is_used(offset)
    }

    /// The areas in memory, by number: pages and configuration.
    pub(crate) fn zrams(&self) -> impl Iterator<Item = Option<(u32, ZramConfig)>> {
        self.areas.iter().map(|area| area.info.zram.map(|config| (area.info.pages, config)))
    }

    /// The number of a slot's area, and the slot's in it.
    pub(crate) fn in_area(&self, slot: SwapSlot) -> (usize, u32) {
        let number = self.areas.partition_point(|area| area.base <= slot.0) - 1;
        (number, slot.0 - self.areas[number].base)
    }

    /// The slot with this number in an area.
    pub(crate) fn slot_in(&self, area: usize, number: u32) -> SwapSlot {
        SwapSlot(self.areas[area].base + number)
    }

    /// Record that slots of one folio, and so of one group, are free.
    fn note_freed<M: Machine>(&self, base: &Platform<M>, group: GroupId, slots: u64, completes: bool) {
        if slots > 0 {
            self.groups.uncharge(group, slots);
            self.batches.charge(base, (FREED, Work::SwapSlot), completes, 1);
        }
    }

    #[inline]
    fn note_nodes(&self, slots: &mut SwapSlots) {
        let change = slots.take_node_changes();
        if change != 0 {
            self.node_changes.fetch_add(change, Relaxed);
        }
    }

    /// By how much the number of the cache's nodes has changed since the last call. Linux has a tree for each 64 MiB of
    /// an area; of its nodes, those above the lowest level are not counted here.
    #[inline]
    pub(crate) fn take_node_changes(&self) -> i64 {
        if self.node_changes.load(Relaxed) == 0 { 0 } else { self.node_changes.swap(0, Relaxed) }
    }

    /// Nodes of the cache that [`Swap::take_node_changes`] has told of.
    pub(crate) fn told_nodes(&self) -> u64 {
        let nodes: u64 = self.areas.iter().map(|area| area.slots.look().nodes()).sum();
        nodes
            .checked_add_signed(-self.node_changes.load(Relaxed))
            .expect("no more than there are can have come")
    }

    /// Slots still available to a folio of `group`.
    pub(crate) fn free_for(&self, group: GroupId) -> u64 {
        self.free_slots().min(self.groups.room(group))
    }

    /// Free slots of all areas.
    pub fn free_slots(&self) -> u64 {
        self.areas.iter().map(|area| area.slots.look().free()).sum()
    }

    /// Slots of all areas.
    pub fn total(&self) -> u64 {
        self.areas.iter().map(|area| area.info.pages as u64).sum()
    }

    /// Whether slots are scarce, so that folios in memory had better release theirs.
    pub(crate) fn is_half_full(&self) -> bool {
        self.free_slots() * 2 < self.total()
    }

    /// Device and block of a slot.
    pub fn place(&self, slot: SwapSlot) -> (DeviceId, u64) {
        let area = self.area(slot);
        (area.info.device, (slot.0 - area.base) as u64)
    }

    /// The slots of the aligned window of `1 << shift` blocks around a slot, inside its area.
    pub fn window(&self, slot: SwapSlot, shift: u32) -> core::ops::Range<u32> {
        let area = self.area(slot);
        let start = ((slot.0 - area.base) >> shift) << shift;
        let end = (start as u64 + (1 << shift)).min(area.info.pages as u64) as u32;
        area.base + start..area.base + end
    }

    /// Call `visit` for every folio in the swap cache.
    pub(crate) fn for_cached(&self, visit: &mut dyn FnMut(SwapSlot, Pfn)) {
        for area in &self.areas {
            area.slots.look().cached().for_each(|(offset, pfn)| visit(SwapSlot(area.base + offset), pfn));
        }
    }

    /// Check slot maps and clusters. Returns how many entries all slots count, or the first error.
    pub fn validate(&self) -> Result<u64, String> {
        let mut sums = Sums::default();
        for area in &self.areas {
            area.slots
                .look()
                .validate(&mut sums)
                .map_err(|fault| format!("{}: {fault}", area.info.device))?;
        }
        self.groups.validate(&sums.charged)?;
        Ok(sums.entries)
    }

    fn area(&self, slot: SwapSlot) -> &Area {
        self.areas.iter().rfind(|area| area.base <= slot.0).expect("every slot must belong to an area")
    }

    /// The slots of a slot's area. In Linux a lock of the slot's cluster, or of its part of the cache, is enough.
    fn slots(&self, slot: SwapSlot) -> (Guard<'_, SwapSlots>, u32) {
        self.slots_if(slot, false)
    }

    /// The same. `locks`: Linux takes the area's lock.
    fn slots_if(&self, slot: SwapSlot, locks: bool) -> (Guard<'_, SwapSlots>, u32) {
        let area = self.area(slot);
        (area.lock_if(locks), slot.0 - area.base)
    }
}

/// Mark and count a folio that enters the swap cache.
fn note_cached<M: Machine>(base: &Platform<M>, slot: SwapSlot, pfn: Pfn) {
    let frame = &base.frames[pfn];
    assert!(frame.has(FrameFlags::LOCKED), "folio {pfn} must be locked to enter the swap cache");
    frame.get(1);
    frame.set_swap_slot(slot);
    frame.set(FrameFlags::SWAPCACHE);
    base.charge(Work::CacheInsert, 1);
    base.count(Stat::NrSwapcached, frame.pages() as i64);
    base.count(Stat::NrFilePages, frame.pages() as i64);
}

#[cfg(test)]
mod tests;
