//! The frame table: one record of 64 bytes for each physical frame.
//!
//! Every field is an atomic cell, so any CPU may read any frame at any time; the comment of each field says who may
//! *change* it. A folio is 2^order frames from an aligned head. Its state is in the head's record, and the records of
//! its other frames only point to the head.

mod flags;
pub mod list;
mod mapcount;
mod private;
mod run;
mod split;

pub use flags::{FrameFlags, LruGen};
pub use list::List;
pub use mapcount::{FolioPages, Remapped};
pub(crate) use private::FreeBlock;
pub use run::FolioRun;

use crate::primitive::{AtomicU32, AtomicU64, Ordering::*};
use crate::units::*;
use std_alloc::boxed::Box;

/// The owner of a folio's content, which tells where its reverse map is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// No owner: free, a page table, or fresh from the allocator.
    None,
    /// Anonymous memory.
    Anon(AnonId),
    /// The page cache of a file (shmem included).
    File(FileId),
}

/// How an allocation may be moved or reclaimed; free blocks are grouped by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mobility {
    /// Cannot be moved (page tables).
    Unmovable = 0,
    /// Can be migrated or reclaimed (user pages).
    Movable = 1,
    /// Can be reclaimed but not moved.
    Reclaimable = 2,
}

impl Mobility {
    /// Number of kinds.
    pub const COUNT: usize = 3;
    /// All kinds, in index order.
    pub const ALL: [Mobility; 3] = [Mobility::Unmovable, Mobility::Movable, Mobility::Reclaimable];
}

/// The record of one frame.
///
/// Aligned to 16 bytes and no more: a hosted allocator returns untouched zeroed memory only up to this alignment, and
/// most records of a large machine are never touched. Such memory begins 16 bytes into a cache line, so the last 16
/// bytes of a record are in the next line: the fields that hot paths use least.
#[repr(C, align(16))]
pub struct Frame {
    flags: AtomicU32,
    /// References to the folio: one for the page cache or swap cache, one for each mapping, one for each holder.
    refs: AtomicU32,
    /// Page-table entries that map the folio. In the first tail of a folio: those of them that map it whole.
    mapcount: AtomicU32,
    /// Folio order (bits 0-7), zone (8-15), node (16-23), mobility group (24-31).
    shape: AtomicU32,
    /// Links of the one list that the frame is on; meaningless if it is on none. In a page table the first is its lock
    /// (`private`).
    next: AtomicU32,
    prev: AtomicU32,
    /// [`Owner`], encoded.
    owner: AtomicU64,
    /// Place in the owner: page index in the file, or in the anonymous set's numbering.
    index: AtomicU64,
    /// Group that is charged (bits 0-15), queue of its list vector that it is in (16-23), a policy's mark (24-31).
    group: AtomicU32,
    /// The tag of a flush that waits until the folio is freed and used again; in a page table, of the newest flush
    /// that waits for one of its entries; 0: none. A free block keeps its tag in the private word.
    debt: AtomicU32,
    /// A word whose meaning depends on the frame's state, see `private`.
    private: AtomicU64,
    /// In each page of a larger folio, including the head: entries that map this page alone.
    page_mapcount: AtomicU32,
    /// In the head of a larger folio: number of its pages that are mapped, see `mapcount`.
    pages_mapped: AtomicU32,
}

// SAFETY: every field is an atomic integer or a cell of one, for which all-zero bytes mean the integer 0.
#[allow(unsafe_code)]
unsafe impl bytemuck::Zeroable for Frame {}

const _: () = assert!(size_of::<Frame>() == 64);

const OWNER_ANON: u64 = 1 << 32;
const OWNER_FILE: u64 = 2 << 32;

impl Frame {
    /// The flags.
    #[inline]
    pub fn flags(&self) -> FrameFlags {
        FrameFlags::from_bits_retain(self.flags.load(Acquire))
    }

    /// Whether all of these flags are set.
    #[inline]
    pub fn has(&self, flags: FrameFlags) -> bool {
        self.flags().contains(flags)
    }

    #[inline]
    pub(crate) fn has_any(&self, flags: FrameFlags) -> bool {
        self.flags().intersects(flags)
    }

    /// Set flags; returns the previous ones.
    #[inline]
    pub fn set(&self, flags: FrameFlags) -> FrameFlags {
        FrameFlags::from_bits_retain(self.flags.fetch_or(flags.bits(), AcqRel))
    }

    /// Clear flags; returns the previous ones.
    #[inline]
    pub fn clear(&self, flags: FrameFlags) -> FrameFlags {
        FrameFlags::from_bits_retain(self.flags.fetch_and(!flags.bits(), AcqRel))
    }

    /// Set one flag; `true` if it was not set.
    #[inline]
    pub(crate) fn test_and_set(&self, flag: FrameFlags) -> bool {
        !self.set(flag).intersects(flag)
    }

    /// Clear one flag; `true` if it was set.
    #[inline]
    pub(crate) fn test_and_clear(&self, flag: FrameFlags) -> bool {
        self.clear(flag).intersects(flag)
    }

    /// Change flags in one step; `None` from `change` leaves them as they are. Returns the previous ones.
    #[inline]
    pub fn update(&self, mut change: impl FnMut(FrameFlags) -> Option<FrameFlags>) -> FrameFlags {
        let mut old = self.flags.load(Acquire);
        loop {
            let before = FrameFlags::from_bits_retain(old);
            let Some(new) = change(before) else { return before };
            match self.flags.compare_exchange(old, new.bits(), AcqRel, Acquire) {
                Ok(_) => return before,
                Err(now) => old = now,
            }
        }
    }

    /// Replace all flags. Only for the allocator, while no other CPU may change them.
    #[inline]
    pub(crate) fn assign(&self, flags: FrameFlags) {
        self.flags.store(flags.bits(), Release);
    }

    /// Erase what the last owner left, and set `flags`. Shape, links and debt stay.
    #[inline]
    pub(crate) fn wipe(&self, flags: FrameFlags) {
        self.owner.store(0, Relaxed);
        self.index.store(0, Relaxed);
        self.private.store(0, Relaxed);
        self.group.store(0, Relaxed);
        self.assign(flags);
    }

    /// Current number of references.
    #[inline]
    pub fn refs(&self) -> u32 {
        self.refs.load(Acquire)
    }

    /// The references of its entries and its cache. Others are of tasks that hold it.
    pub(crate) fn known_refs(&self) -> u32 {
        let cached = matches!(self.owner(), Owner::File(_)) || self.has(FrameFlags::SWAPCACHE);
        self.mapcount() + u32::from(cached)
    }

    /// Take `n` references; the caller already holds one or owns the folio.
    #[inline]
    pub fn get(&self, n: u32) {
        self.refs.fetch_add(n, AcqRel);
    }

    /// Take a reference unless the folio is being freed.
    #[inline]
    pub(crate) fn try_get(&self) -> bool {
        let mut old = self.refs.load(Acquire);
        while old != 0 {
            match self.refs.compare_exchange(old, old + 1, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Drop `n` references; `true` if they were the last and the caller must free the folio.
    #[inline]
    #[must_use]
    pub fn put(&self, n: u32) -> bool {
        let old = self.refs.fetch_sub(n, AcqRel);
        if old < n {
            fewer_than_none("references", old, n);
        }
        old == n
    }

    /// Take all `expected` references at once, if there are exactly this many: then no other task can reach the folio.
    #[inline]
    #[must_use]
    pub(crate) fn freeze(&self, expected: u32) -> bool {
        debug_assert!(expected > 0, "a folio without references is being freed and cannot be frozen");
        self.refs.compare_exchange(expected, 0, AcqRel, Acquire).is_ok()
    }

    /// As [`Frame::freeze`], if the content is clean, so that the folio may leave its cache. The dirty flag is checked
    /// only after the freeze: a task that unmaps the folio marks it dirty before it drops the entry's reference.
    #[inline]
    pub(crate) fn freeze_clean(&self, expected: u32) -> bool {
        if !self.freeze(expected) {
            return false;
        }
        let clean = !self.has(FrameFlags::DIRTY);
        if !clean {
            self.unfreeze(expected);
        }
        clean
    }

    /// Undo `freeze`, leaving `refs` references.
    #[inline]
    pub(crate) fn unfreeze(&self, refs: u32) {
        debug_assert_eq!(self.refs(), 0, "only a frozen folio can be given references this way");
        self.refs.store(refs, Release);
    }

    /// Number of entries that map the folio.
    #[inline]
    pub fn mapcount(&self) -> u32 {
        self.mapcount.load(Acquire)
    }

    /// Count `n` fewer mappings; returns the count after.
    #[inline]
    pub(crate) fn mapcount_sub(&self, n: u32) -> u32 {
        let old = self.mapcount.fetch_sub(n, AcqRel);
        if old < n {
            fewer_than_none("mappings", old, n);
        }
        old.wrapping_sub(n)
    }

    /// Order of the folio that this frame heads. In a free block's head: the order of the folio whose tails are still
    /// in place after it (see [`FrameTable::make_folio`]).
    #[inline]
    pub fn order(&self) -> Order {
        Order(self.shape.load(Relaxed) as u8)
    }

    /// Number of frames in the folio that this frame heads.
    #[inline]
    pub fn pages(&self) -> u32 {
        self.order().frames()
    }

    /// Zone that the frame belongs to; never changes.
    #[inline]
    pub fn zone(&self) -> ZoneId {
        ZoneId((self.shape.load(Relaxed) >> 8) as u8)
    }

    /// Node that the frame belongs to; never changes.
    #[inline]
    pub fn node(&self) -> NodeId {
        NodeId((self.shape.load(Relaxed) >> 16) as u8)
    }

    /// Mobility group of the page block when the folio last left the buddy lists. The page block may have moved to
    /// another group since.
    #[inline]
    pub(crate) fn mobility(&self) -> Mobility {
        match self.shape.load(Relaxed) >> 24 {
            0 => Mobility::Unmovable,
            1 => Mobility::Movable,
            _ => Mobility::Reclaimable,
        }
    }

    /// Order, zone and node in one word: folios with the same word are counted and freed alike.
    #[inline]
    pub(crate) fn order_zone_node(&self) -> u32 {
        self.shape.load(Relaxed) & 0x00ff_ffff
    }

    /// Record the mobility group. The caller owns the folio.
    pub(crate) fn set_mobility(&self, mobility: Mobility) {
        let shape = self.shape.load(Relaxed);
        self.shape.store((shape & 0x00ff_ffff) | (mobility as u32) << 24, Relaxed);
    }

    /// Set the folio's order. The caller owns the folio or holds its zone's lock.
    #[inline]
    pub(crate) fn set_order(&self, order: Order) {
        debug_assert!(order <= MAX_ORDER, "no block is of {order}");
        let shape = self.shape.load(Relaxed);
        self.shape.store((shape & !0xff) | order.0 as u32, Relaxed);
    }

    /// Record the frame's node and zone, order 0, and its page block's mobility group. The allocator does this before
    /// the frame heads a block or joins a folio.
    #[inline]
    pub fn place(&self, node: NodeId, zone: ZoneId, mobility: Mobility) {
        self.shape.store((zone.0 as u32) << 8 | (node.0 as u32) << 16 | (mobility as u32) << 24, Relaxed);
    }

    /// The owner of the content.
    #[inline]
    pub fn owner(&self) -> Owner {
        let raw = self.owner.load(Acquire);
        match raw >> 32 {
            0 => Owner::None,
            1 => Owner::Anon(AnonId(raw as u32)),
            _ => Owner::File(FileId(raw as u32)),
        }
    }

    /// Set the owner and the place in it. The caller holds the folio's lock or is its only holder.
    #[inline]
    pub fn set_owner(&self, owner: Owner, index: PageIndex) {
        let raw = match owner {
            Owner::None => 0,
            Owner::Anon(id) => OWNER_ANON | id.0 as u64,
            Owner::File(id) => OWNER_FILE | id.0 as u64,
        };
        self.index.store(index.0, Relaxed);
        self.owner.store(raw, Release);
    }

    #[inline]
    pub(crate) fn is_anon(&self) -> bool {
        self.owner.load(Acquire) >> 32 == 1
    }

    /// Place in the owner.
    #[inline]
    pub(crate) fn page_index(&self) -> PageIndex {
        PageIndex(self.index.load(Relaxed))
    }

    /// Group that is charged for the folio.
    #[inline]
    pub fn group(&self) -> GroupId {
        GroupId(self.group.load(Relaxed) as u16)
    }

    #[inline]
    pub(crate) fn set_group(&self, group: GroupId) {
        let place = self.group.load(Relaxed) & 0xffff_0000;
        self.group.store(place | group.0 as u32, Relaxed);
    }

    /// The queue of its list vector that the folio is in, if it is not one of the classic lists; else 0. Guarded by
    /// the vector's lock; if the folio is on no list, only its holder changes it.
    #[inline]
    pub(crate) fn queue(&self) -> u8 {
        (self.group.load(Relaxed) >> 16) as u8
    }

    #[inline]
    pub(crate) fn set_queue(&self, queue: u8) {
        let others = self.group.load(Relaxed) & 0xff00_ffff;
        self.group.store(others | (queue as u32) << 16, Relaxed);
    }

    /// The mark of a replacement policy. Guarded like the queue.
    #[inline]
    pub(crate) fn mark(&self) -> u8 {
        (self.group.load(Relaxed) >> 24) as u8
    }

    #[inline]
    pub(crate) fn set_mark(&self, mark: u8) {
        let others = self.group.load(Relaxed) & 0x00ff_ffff;
        self.group.store(others | (mark as u32) << 24, Relaxed);
    }

    /// Group, queue and mark in one word: folios with the same word are in one list.
    #[inline]
    pub(crate) fn group_and_queue(&self) -> u32 {
        self.group.load(Relaxed)
    }

    /// The debt tag of a folio in use; 0: it owes nothing.
    #[inline]
    pub(crate) fn debt(&self) -> u32 {
        self.debt.load(Relaxed)
    }

    #[inline]
    pub(crate) fn set_debt(&self, tag: u32) {
        self.debt.store(tag, Relaxed);
    }
}

#[cold]
#[inline(never)]
fn fewer_than_none(what: &str, old: u32, n: u32) -> ! {
    panic!("dropped {n} {what} of {old}");
}

/// The records of all frames of the machine, indexed by [`Pfn`].
pub struct FrameTable {
    frames: Box<[Frame]>,
}

impl FrameTable {
    /// Records for frames 0 to `count` - 1, all zero: on a hosted machine this does not touch the memory.
    pub fn new(count: usize) -> FrameTable {
        assert!(count < u32::MAX as usize, "frame numbers are 32 bits wide");
        FrameTable { frames: bytemuck::zeroed_slice_box(count) }
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Whether the table is empty.
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The record of a frame, or `None` past the end.
    #[inline]
    pub fn get(&self, pfn: Pfn) -> Option<&Frame> {
        self.frames.get(pfn.index())
    }

    /// The head of the folio that contains this frame; the frame itself if it is in no folio.
    ///
    /// Tails of a freed folio still point to their old head, so the head's record decides.
    #[inline]
    pub fn head(&self, pfn: Pfn) -> Pfn {
        let frame = &self[pfn];
        if !frame.has(FrameFlags::TAIL) {
            return pfn;
        }
        let head = frame.as_tail();
        let record = &self[head];
        let holds = record.has(FrameFlags::HEAD) && pfn.0.wrapping_sub(head.0) < record.pages();
        if holds { head } else { pfn }
    }

    /// Place in its owner of any page of a folio.
    pub fn index_of(&self, page: Pfn) -> PageIndex {
        let head = self.head(page);
        PageIndex(self[head].page_index().0.wrapping_add((page.0 - head.0) as u64))
    }

    /// Make `head`'s block one folio of `order`. The caller owns all of its frames.
    ///
    /// The head's previous order says how many tails of the last folio here are still in place: a large block that is
    /// allocated and freed whole is not written again.
    #[inline]
    pub fn make_folio(&self, head: Pfn, order: Order) {
        let record = &self[head];
        let done = record.order().frames();
        debug_assert!((1..done.min(order.frames())).all(|i| {
            let tail = &self[head.add(i)];
            tail.has(FrameFlags::TAIL) && tail.as_tail() == head
        }));
        record.set_order(order);
        if order == Order::ZERO {
            return;
        }
        assert!(head.align_down(order) == head, "{head} cannot head a folio of {order}");
        record.set(FrameFlags::HEAD);
        self.make_tails(head, done..order.frames());
    }

    fn make_tails(&self, head: Pfn, places: core::ops::Range<u32>) {
        let record = &self[head];
        let (node, zone, mobility) = (record.node(), record.zone(), record.mobility());
        for i in places {
            let tail = &self[head.add(i)];
            tail.place(node, zone, mobility);
            tail.assign(FrameFlags::TAIL);
            tail.set_tail(head);
        }
    }

    /// Undo [`FrameTable::make_folio`], so that the frames can become smaller folios.
    pub(crate) fn unmake_folio(&self, head: Pfn) {
        let order = self[head].order();
        if order != Order::ZERO {
            assert!(self[head].has(FrameFlags::HEAD), "{head} heads no folio");
            self[head].clear(FrameFlags::HEAD);
            self[head].set_order(Order::ZERO);
            for i in 1..order.frames() {
                self[head.add(i)].clear(FrameFlags::TAIL);
                self[head.add(i)].clear_private();
            }
        }
    }
}

// Not a method, and without the length: it takes no register from the code that has a frame.
#[cold]
#[inline(never)]
fn no_frame(pfn: Pfn) -> ! {
    panic!("there is no frame {pfn}");
}

impl core::ops::Index<Pfn> for FrameTable {
    type Output = Frame;

    #[inline]
    fn index(&self, pfn: Pfn) -> &Frame {
        let Some(frame) = self.frames.get(pfn.index()) else { no_frame(pfn) };
        frame
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_round_trips() {
        let table = FrameTable::new(2);
        let frame = &table[Pfn(1)];
        for owner in [Owner::None, Owner::Anon(AnonId(7)), Owner::File(FileId(u32::MAX))] {
            frame.set_owner(owner, PageIndex(99));
            assert_eq!((frame.owner(), frame.page_index()), (owner, PageIndex(99)));
        }
    }

    #[test]
    fn freeze_takes_all_references_or_none() {
        let table = FrameTable::new(1);
        let frame = &table[Pfn(0)];
        frame.get(3);
        assert!(!frame.freeze(2));
        assert!(frame.freeze(3));
        assert!(!frame.try_get());
        frame.unfreeze(1);
        assert!(frame.try_get());
        assert!(!frame.put(1));
        assert!(frame.put(1));
    }

    #[test]
    fn every_frame_of_a_folio_finds_its_head() {
        let table = FrameTable::new(16);
        table.make_folio(Pfn(8), Order(3));
        for i in 8..16 {
            assert_eq!(table.head(Pfn(i)), Pfn(8));
        }
        table.unmake_folio(Pfn(8));
        assert_eq!(table.head(Pfn(12)), Pfn(12));
    }

    #[test]
    fn a_tail_that_was_left_in_place_counts_only_under_a_head_that_reaches_it() {
        let table = FrameTable::new(16);
        table.make_folio(Pfn(8), Order(3));
        table[Pfn(8)].assign(FrameFlags::BUDDY);
        assert_eq!(table.head(Pfn(9)), Pfn(9));
        table.make_folio(Pfn(8), Order(1));
        assert_eq!((table.head(Pfn(9)), table.head(Pfn(10))), (Pfn(8), Pfn(10)));
        table[Pfn(8)].assign(FrameFlags::empty());
        table.make_folio(Pfn(8), Order(3));
        assert_eq!((table.head(Pfn(10)), table.head(Pfn(15))), (Pfn(8), Pfn(8)));
    }
}
