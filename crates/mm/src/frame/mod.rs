//! The frame table: one record of 64 bytes for each physical frame.
//!
//! Every field is an atomic cell, so any CPU may look at any frame at any time; what may be *changed* by whom is said
//! at each field. A folio is 2^order frames from an aligned head; its state stands in the head's record, and the
//! records of its other frames only point to the head.

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

/// Who owns the content of a folio, and so where its reverse map is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// Nobody: free, a page table, or fresh from the allocator.
    None,
    /// Anonymous memory.
    Anon(AnonId),
    /// The page cache of a file (shmem included).
    File(FileId),
}

/// How an allocation may be moved or taken back; free blocks are grouped by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
#[repr(u8)]
pub enum Mobility {
    /// Stays where it is (page tables).
    Unmovable = 0,
    /// Can be migrated or reclaimed (user pages).
    Movable = 1,
    /// Can be taken back but not moved.
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
/// Aligned to 16 bytes and no more: that is what a hosted allocator gives zeroed memory with that it has not touched,
/// and the records of a large machine are mostly never touched. Such memory then begins 16 bytes into a cache line, so
/// the last 16 bytes of a record stand in the next line: they are those that the hot paths use least.
#[repr(C, align(16))]
pub struct Frame {
    /// [`FrameFlags`].
    flags: AtomicU32,
    /// References to the folio: one for the page cache or swap cache, one for each mapping, one for each holder.
    refs: AtomicU32,
    /// Page-table entries that map the folio. Of the first tail of a folio: those of them that map it whole.
    mapcount: AtomicU32,
    /// Folio order (bits 0-7), zone (8-15), node (16-23), mobility group (24-31).
    shape: AtomicU32,
    /// Links of the one list that the frame is on; meaningless when on none.
    next: AtomicU32,
    prev: AtomicU32,
    /// [`Owner`], encoded.
    owner: AtomicU64,
    /// Where in its owner: page index in the file, or the anonymous set's numbering.
    index: AtomicU64,
    /// Group that is charged for it (bits 0-15), and the queue of its list vector that it stands in (16-23).
    group: AtomicU32,
    /// The tag of a flush that waits until the folio is freed and used again; of a page table, of the newest that waits
    /// for one of its entries; 0: none. A free block's stands in its private word.
    debt: AtomicU32,
    /// A word whose meaning the frame's state tells, see `private`.
    private: AtomicU64,
    /// Of a page of a larger folio, its head's too: entries that map this page alone.
    page_mapcount: AtomicU32,
    /// Of the head of a larger folio: how many of its pages are mapped, see `mapcount`.
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

    /// Are all of these flags set?
    #[inline]
    pub fn has(&self, flags: FrameFlags) -> bool {
        self.flags().contains(flags)
    }

    /// Is any of these flags set?
    #[inline]
    pub(crate) fn has_any(&self, flags: FrameFlags) -> bool {
        self.flags().intersects(flags)
    }

    /// Set flags; returns those that stood before.
    #[inline]
    pub fn set(&self, flags: FrameFlags) -> FrameFlags {
        FrameFlags::from_bits_retain(self.flags.fetch_or(flags.bits(), AcqRel))
    }

    /// Clear flags; returns those that stood before.
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

    /// Change flags in one step; `None` from `change` leaves them as they are. Returns what they were.
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

    /// Replace all flags. Only for the allocator, while nobody else may change them.
    #[inline]
    pub(crate) fn assign(&self, flags: FrameFlags) {
        self.flags.store(flags.bits(), Release);
    }

    /// Forget what the last owner left, and stand under `flags`. Shape, links and debt stay.
    #[inline]
    pub(crate) fn wipe(&self, flags: FrameFlags) {
        self.owner.store(0, Relaxed);
        self.index.store(0, Relaxed);
        self.private.store(0, Relaxed);
        self.group.store(0, Relaxed);
        self.assign(flags);
    }

    /// References now.
    #[inline]
    pub fn refs(&self) -> u32 {
        self.refs.load(Acquire)
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

    /// Take all `expected` references at once, if there are exactly as many: nobody else can then reach the folio.
    #[inline]
    #[must_use]
    pub(crate) fn freeze(&self, expected: u32) -> bool {
        debug_assert!(expected > 0, "what nobody refers to is freed, and cannot be frozen");
        self.refs.compare_exchange(expected, 0, AcqRel, Acquire).is_ok()
    }

    /// As [`Frame::freeze`], if the content is clean, so that the folio may leave its cache. Whether it is clean is
    /// asked only after the freeze: a task that unmaps the folio marks it dirty before it drops the entry's reference.
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

    /// Give back what `freeze` took, as `refs` references.
    #[inline]
    pub(crate) fn unfreeze(&self, refs: u32) {
        debug_assert_eq!(self.refs(), 0, "what is not frozen is given references that nobody counts");
        self.refs.store(refs, Release);
    }

    /// Entries that map the folio.
    #[inline]
    pub fn mapcount(&self) -> u32 {
        self.mapcount.load(Acquire)
    }

    /// Note `n` more mappings; returns the count before.
    #[inline]
    #[cfg(test)]
    pub(crate) fn mapcount_add(&self, n: u32) -> u32 {
        self.mapcount.fetch_add(n, AcqRel)
    }

    /// Note `n` fewer mappings; returns the count after.
    #[inline]
    pub(crate) fn mapcount_sub(&self, n: u32) -> u32 {
        let old = self.mapcount.fetch_sub(n, AcqRel);
        if old < n {
            fewer_than_none("mappings", old, n);
        }
        old.wrapping_sub(n)
    }

    /// Order of the folio that this frame heads. Of a free block's head: the order of the folio whose tails are still
    /// in place behind it (see [`FrameTable::make_folio`]).
    #[inline]
    pub fn order(&self) -> Order {
        Order(self.shape.load(Relaxed) as u8)
    }

    /// Frames in the folio that this frame heads.
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

    /// Mobility group of the page block when the folio last left the buddy lists. The page block may have gone over to
    /// another group since.
    #[inline]
    pub(crate) fn mobility(&self) -> Mobility {
        Mobility::ALL[(self.shape.load(Relaxed) >> 24).min(Mobility::Reclaimable as u32) as usize]
    }

    /// Order, zone and node in one word: folios that agree in it are counted and freed alike.
    #[inline]
    pub(crate) fn order_zone_node(&self) -> u32 {
        self.shape.load(Relaxed) & 0x00ff_ffff
    }

    /// Note the mobility group. The caller owns the folio.
    pub(crate) fn set_mobility(&self, mobility: Mobility) {
        let shape = self.shape.load(Relaxed);
        self.shape.store((shape & 0x00ff_ffff) | (mobility as u32) << 24, Relaxed);
    }

    /// Set the folio's order. The caller owns the folio or its zone's lock.
    #[inline]
    pub(crate) fn set_order(&self, order: Order) {
        debug_assert!(order <= MAX_ORDER, "no block is of {order}");
        let shape = self.shape.load(Relaxed);
        self.shape.store((shape & !0xff) | order.0 as u32, Relaxed);
    }

    /// Note where the frame lives, as order 0, and its page block's mobility group. The allocator does this before the
    /// frame heads a block or joins a folio.
    #[inline]
    pub fn place(&self, node: NodeId, zone: ZoneId, mobility: Mobility) {
        self.shape.store((zone.0 as u32) << 8 | (node.0 as u32) << 16 | (mobility as u32) << 24, Relaxed);
    }

    /// Who owns the content.
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

    /// Is this anonymous memory?
    #[inline]
    pub(crate) fn is_anon(&self) -> bool {
        self.owner.load(Acquire) >> 32 == 1
    }

    /// Place in the owner.
    #[inline]
    pub(crate) fn page_index(&self) -> PageIndex {
        PageIndex(self.index.load(Relaxed))
    }

    /// Group that is charged.
    #[inline]
    pub fn group(&self) -> GroupId {
        GroupId(self.group.load(Relaxed) as u16)
    }

    /// Set the group that is charged.
    #[inline]
    pub(crate) fn set_group(&self, group: GroupId) {
        let place = self.group.load(Relaxed) & 0xffff_0000;
        self.group.store(place | group.0 as u32, Relaxed);
    }

    /// The queue of its list vector that a folio stands in, if it is none of the classic lists; else 0. Guarded by the
    /// vector's lock; of a folio that is on no list, its holder's.
    #[inline]
    pub(crate) fn queue(&self) -> u8 {
        (self.group.load(Relaxed) >> 16) as u8
    }

    /// Note the queue.
    #[inline]
    pub(crate) fn set_queue(&self, queue: u8) {
        let others = self.group.load(Relaxed) & 0xff00_ffff;
        self.group.store(others | (queue as u32) << 16, Relaxed);
    }

    /// What a replacement policy has noted. Guarded as the queue is.
    #[inline]
    pub(crate) fn mark(&self) -> u8 {
        (self.group.load(Relaxed) >> 24) as u8
    }

    /// Note something.
    #[inline]
    pub(crate) fn set_mark(&self, mark: u8) {
        let others = self.group.load(Relaxed) & 0x00ff_ffff;
        self.group.store(others | (mark as u32) << 24, Relaxed);
    }

    /// Group, queue and mark in one word: folios that agree in it stand in one list.
    #[inline]
    pub(crate) fn group_and_queue(&self) -> u32 {
        self.group.load(Relaxed)
    }

    /// The debt tag of a folio in use; 0 owes nothing.
    #[inline]
    pub(crate) fn debt(&self) -> u32 {
        self.debt.load(Relaxed)
    }

    /// Set the debt tag.
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
    /// Records for frames 0 to `count` - 1, all zero: on a hosted machine the memory is not touched until used.
    pub fn new(count: usize) -> FrameTable {
        assert!(count < u32::MAX as usize, "frame numbers are 32 bits wide");
        FrameTable { frames: bytemuck::zeroed_slice_box(count) }
    }

    /// Number of frames.
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// The record, or `None` past the end.
    #[inline]
    pub fn get(&self, pfn: Pfn) -> Option<&Frame> {
        self.frames.get(pfn.index())
    }

    /// The head of the folio that holds this frame; of a frame that is in no folio, itself.
    ///
    /// Records of a freed folio's tails still point to their old head, so the head has the last word.
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

    /// Place in its owner of a page, which need not be its folio's first.
    pub fn index_of(&self, page: Pfn) -> PageIndex {
        let head = self.head(page);
        PageIndex(self[head].page_index().0.wrapping_add((page.0 - head.0) as u64))
    }

    /// Make `head`'s block one folio of `order`. The caller owns all of its frames.
    ///
    /// The head's order before says how many tails are already in place, from the last folio here: a large block that
    /// comes and goes whole is not written again.
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

impl core::ops::Index<Pfn> for FrameTable {
    type Output = Frame;

    #[inline]
    fn index(&self, pfn: Pfn) -> &Frame {
        &self.frames[pfn.index()]
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
