//! The private word of a frame's record, whose meaning depends on the frame's state.
//!
//! | state | meaning | read | set |
//! |---|---|---|---|
//! | head of a free block ([`FrameFlags::BUDDY`], [`FrameFlags::HELD`]) | its order and what it owes | [`Frame::as_free`] | [`Frame::set_free`] |
//! | page of a larger folio ([`FrameFlags::TAIL`]) | its folio's head | [`Frame::as_tail`] | [`Frame::set_tail`] |
//! | page table ([`FrameFlags::TABLE`]) | entries in use | [`Frame::as_table`] | [`Frame::set_table`], [`Frame::change_table`] |
//! | folio in the swap cache ([`FrameFlags::SWAPCACHE`]) | its first slot | [`Frame::swap_slot`] | [`Frame::set_swap_slot`] |
//!
//! In other states it is 0. Readers check the state. The words of a free block and of a swap slot are set before the
//! flag that announces them, so a CPU that sees the flag finds the word.

use super::{Frame, FrameFlags};
use crate::primitive::Ordering::*;
use crate::units::*;
use base::demand;

/// A free block, as recorded in its head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FreeBlock {
    pub order: Order,
    /// Number of the flush that it waits for; 0: it owes nothing.
    pub owed: u64,
}

impl Frame {
    /// The free block that this frame heads. The caller holds its zone's lock, or the block.
    #[inline]
    pub(crate) fn as_free(&self) -> FreeBlock {
        assert!(self.has_any(FrameFlags::BUDDY | FrameFlags::HELD), "not the head of a free block");
        let word = self.private.load(Acquire);
        FreeBlock { order: Order(word as u8), owed: word >> 8 }
    }

    /// Order of a block that was just seen to be free, without the lock that keeps it free: a guess, but always an
    /// order that a block can have.
    #[inline]
    pub(crate) fn guess_free_order(&self) -> Order {
        match Order(self.private.load(Acquire) as u8) {
            order if order <= MAX_ORDER => order,
            _ => Order::ZERO,
        }
    }

    /// Describe the free block that this frame is about to head.
    #[inline]
    pub(crate) fn set_free(&self, block: FreeBlock) {
        assert!(block.order <= MAX_ORDER && block.owed < 1 << 56, "no record has room for this block");
        self.private.store(block.owed << 8 | u64::from(block.order.0), Release);
    }

    /// The head that a tail points to. Its record tells whether it still heads the folio ([`FrameTable::head`]).
    ///
    /// [`FrameTable::head`]: super::FrameTable::head
    #[inline]
    pub(crate) fn as_tail(&self) -> Pfn {
        debug_assert!(self.has(FrameFlags::TAIL), "not a page of a larger folio");
        Pfn(self.private.load(Acquire) as u32)
    }

    /// Point to the head of the folio that this frame is a tail of.
    #[inline]
    pub(crate) fn set_tail(&self, head: Pfn) {
        debug_assert!(self.has(FrameFlags::TAIL), "not a page of a larger folio");
        self.private.store(u64::from(head.0), Release);
    }

    /// Number of entries in use in a page table. The caller holds its lock, or its tree alone.
    #[inline]
    pub(crate) fn as_table(&self) -> u64 {
        assert!(self.has(FrameFlags::TABLE), "not a page table");
        self.private.load(Acquire)
    }

    /// Set the number of entries in use in a page table.
    #[inline]
    pub(crate) fn set_table(&self, entries: u64) {
        let fits = entries <= TABLE_ENTRIES as u64;
        demand!(self.has(FrameFlags::TABLE) && fits, [entries]; "{entries} entries in use");
        self.private.store(entries, Release);
    }

    /// More or fewer entries of a page table are in use.
    #[inline]
    pub(crate) fn change_table(&self, by: i64) {
        // Fewer than none wraps around to too many.
        self.set_table(self.private.load(Relaxed).wrapping_add_signed(by));
    }

    /// A page table begins, with no entries and unlocked.
    #[inline]
    pub(crate) fn begin_table(&self) {
        self.set(FrameFlags::TABLE);
        self.set_table(0);
        // No list has it, so its link is free to be its lock.
        self.next.store(0, Release);
    }

    /// Lock a page table.
    #[cfg(not(feature = "one-thread"))]
    #[inline(always)]
    pub(crate) fn lock_table(&self) {
        if !self.try_lock_table() {
            self.lock_table_slowly();
        }
    }

    #[cfg(not(feature = "one-thread"))]
    #[cold]
    #[inline(never)]
    fn lock_table_slowly(&self) {
        while !self.try_lock_table() {
            while self.next.load(Relaxed) != 0 {
                core::hint::spin_loop();
            }
        }
    }

    /// Lock a page table unless another CPU has.
    #[cfg(not(feature = "one-thread"))]
    #[inline(always)]
    pub(crate) fn try_lock_table(&self) -> bool {
        self.next.compare_exchange(0, 1, Acquire, Relaxed).is_ok()
    }

    /// Unlock a page table.
    #[cfg(not(feature = "one-thread"))]
    #[inline(always)]
    pub(crate) fn unlock_table(&self) {
        self.next.store(0, Release);
    }

    /// Number of a page table's lock; 0: none.
    #[cfg(feature = "one-thread")]
    #[inline]
    pub(crate) fn table_lock(&self) -> u32 {
        self.next.load(Relaxed)
    }

    #[cfg(feature = "one-thread")]
    pub(crate) fn set_table_lock(&self, number: u32) {
        self.next.store(number, Relaxed);
    }

    /// The first swap slot that holds, or will hold, the content; only while [`FrameFlags::SWAPCACHE`] is set.
    #[inline]
    pub(crate) fn swap_slot(&self) -> SwapSlot {
        assert!(self.has(FrameFlags::SWAPCACHE), "not in the swap cache");
        SwapSlot(self.private.load(Acquire) as u32)
    }

    /// Set the first swap slot of a folio that is about to enter the swap cache.
    #[inline]
    pub(crate) fn set_swap_slot(&self, slot: SwapSlot) {
        debug_assert!(!self.has(FrameFlags::SWAPCACHE), "in the swap cache already");
        self.private.store(u64::from(slot.0), Release);
    }

    /// Clear the word when the state that gave it a meaning ends. The frame may still be marked as a tail: its head's
    /// record decides.
    #[inline]
    pub(crate) fn clear_private(&self) {
        let told = FrameFlags::BUDDY | FrameFlags::HELD | FrameFlags::TABLE | FrameFlags::SWAPCACHE;
        debug_assert!(!self.has_any(told), "the word still means something");
        self.private.store(0, Release);
    }

    #[cfg(test)]
    pub(crate) fn private(&self) -> u64 {
        self.private.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameTable;

    #[test]
    fn each_state_gives_back_what_was_put_in() {
        let frames = FrameTable::new(1);
        let frame = &frames[Pfn(0)];
        let block = FreeBlock { order: MAX_ORDER, owed: (1 << 56) - 1 };
        frame.set_free(block);
        frame.assign(FrameFlags::BUDDY);
        assert_eq!((frame.as_free(), frame.guess_free_order()), (block, MAX_ORDER));
        frame.assign(FrameFlags::TAIL);
        frame.set_tail(Pfn(u32::MAX - 1));
        assert_eq!((frame.as_tail(), frame.guess_free_order()), (Pfn(u32::MAX - 1), Order::ZERO));
        frame.assign(FrameFlags::TABLE);
        frame.set_table(512);
        assert_eq!(frame.as_table(), 512);
        frame.assign(FrameFlags::empty());
        frame.set_swap_slot(SwapSlot(7));
        frame.assign(FrameFlags::SWAPCACHE);
        assert_eq!(frame.swap_slot(), SwapSlot(7));
        frame.assign(FrameFlags::empty());
        frame.clear_private();
        assert_eq!(frame.private(), 0);
    }

    #[test]
    #[should_panic(expected = "not the head of a free block")]
    fn what_is_no_free_block_is_not_read_as_one() {
        FrameTable::new(1)[Pfn(0)].as_free();
    }

    #[test]
    #[should_panic(expected = "not a page table")]
    fn what_is_no_table_is_not_counted_as_one() {
        let frames = FrameTable::new(1);
        frames[Pfn(0)].assign(FrameFlags::TAIL);
        frames[Pfn(0)].as_table();
    }
}
