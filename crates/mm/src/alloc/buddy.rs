//! The buddy lists of a zone.
//!
//! Free memory lies in blocks of 2^order frames, aligned to their size, on one list per order and mobility group. A
//! block that comes back merges with its buddy as long as that is free too; a request takes the smallest block that
//! is large enough and puts the halves it does not need back. All state of a free block stands in its head's record:
//! flag BUDDY, and the order in the private word.
//!
//! **Mobility.** Pages that can never move, scattered over memory, would keep every large block from forming. So each
//! page block (2 MiB) belongs to one mobility group, and a free block lies on the list of the group that its page
//! block belongs to. A request whose own group has nothing left takes from another, in this order: the *largest* block
//! of another group with its whole page block, if at least half of that page block is then compatible (or if it is a
//! whole page block anyway); else the *smallest* sufficient block, leaving the page block as it is. The second mixes
//! groups for good, so before it the zone's watermarks are boosted: kswapd then makes room for whole blocks.
//!
//! **Lazy records.** The records of frames in a block that was never split are not written, not even at start: a frame
//! learns its zone and node when it first heads a block or joins a folio. Nor are the tails of a freed folio: the order
//! in a free head's record says how far they still point to it. Whatever else becomes of one of those frames goes by
//! way of a split, and a split block's first part is formed anew with its own, smaller order.
//!
//! **Debts.** A free block carries the newest debt tag of its frames in its head: a merge keeps the larger tag, both
//! halves of a split inherit it.

use super::watermark::{Mark, max_boost};
use super::zone::{BLOCK_FRAMES, Zone};
use crate::base::Base;
use crate::event::Event;
use crate::frame::{Frame, FrameFlags, List, Mobility, Owner};
use crate::knobs::Knob;
use crate::lock::Guard;
use crate::machine::Machine;
use crate::stat::Stat;
use crate::units::*;

/// Number of orders.
pub(super) const ORDERS: usize = MAX_ORDER.0 as usize + 1;

/// Groups to take from when one's own has nothing, best first.
const FALLBACKS: [[Mobility; 2]; Mobility::COUNT] = [
    [Mobility::Reclaimable, Mobility::Movable],
    [Mobility::Reclaimable, Mobility::Unmovable],
    [Mobility::Unmovable, Mobility::Movable],
];

/// The free blocks of a zone. Changed through [`Area`].
pub(super) struct FreeLists {
    lists: [[List; Mobility::COUNT]; ORDERS],
    /// For each mobility, bit n: the list of order n is not empty.
    occupied: [u32; Mobility::COUNT],
    /// Pages in all blocks.
    free: u64,
}

impl FreeLists {
    /// No blocks.
    pub fn new() -> FreeLists {
        FreeLists { lists: Default::default(), occupied: [0; Mobility::COUNT], free: 0 }
    }

    /// Blocks on one list.
    pub fn count(&self, order: Order, mobility: Mobility) -> u64 {
        self.list(order, mobility).len() as u64
    }

    /// Pages in all blocks.
    pub fn free(&self) -> u64 {
        self.free
    }

    /// One list.
    pub fn list(&self, order: Order, mobility: Mobility) -> &List {
        &self.lists[order.0 as usize][mobility as usize]
    }
}

/// May a request mix mobility groups within a page block?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mixing {
    /// Yes, if nothing else is left.
    Allowed,
    /// No: only whole page blocks go over to another group.
    WholeBlocks,
}

/// A zone whose lock is held.
pub(super) struct Area<'a, M: Machine> {
    base: &'a Base<M>,
    zone: &'a Zone,
    lists: Guard<'a, FreeLists>,
    free_before: u64,
    boosted: bool,
}

impl<M: Machine> Drop for Area<'_, M> {
    /// Lock-free readers see the new numbers, and `nr_free_pages` follows.
    fn drop(&mut self) {
        let FreeLists { free, occupied, .. } = *self.lists;
        self.zone.publish(free, occupied.iter().fold(0, |all, some| all | some));
        let change = free as i64 - self.free_before as i64;
        if change != 0 {
            self.base.count(Stat::NrFreePages, change);
        }
    }
}

impl<'a, M: Machine> Area<'a, M> {
    /// Take the zone's lock.
    pub fn lock(base: &'a Base<M>, zone: &'a Zone) -> Area<'a, M> {
        let lists = zone.lists.lock();
        let free_before = lists.free;
        Area { base, zone, lists, free_before, boosted: false }
    }

    /// Did a take raise the zone's watermarks, so that kswapd is wanted?
    pub fn boosted(&self) -> bool {
        self.boosted
    }

    /// Read access to the lists.
    pub fn lists(&self) -> &FreeLists {
        &self.lists
    }

    /// Make all frames of a new zone free, touching only the heads of the largest blocks.
    pub fn populate(&mut self) {
        let (mut at, end) = (self.zone.start(), self.zone.end());
        let mut order = MAX_ORDER;
        while at < end {
            while end.0 - at.0 < order.frames() {
                order.0 -= 1;
            }
            self.frame(at).place(self.zone.node(), self.zone.id());
            self.insert(at, order, Mobility::Movable, true);
            at = at.add(order.frames());
        }
        self.lists.free = self.zone.managed();
    }

    /// Take a block out: flags clear, not yet a folio. Its frames beyond the head may not be placed yet.
    pub fn take(&mut self, order: Order, mobility: Mobility, mixing: Mixing) -> Option<Pfn> {
        let pfn = self
            .take_own(order, mobility)
            .or_else(|| self.claim(order, mobility, mixing))
            .or_else(|| (mixing == Mixing::Allowed).then(|| self.steal(order, mobility)).flatten())?;
        self.lists.free -= order.frames() as u64;
        Some(pfn)
    }

    /// Put a block back that is no folio any more, merging it with its free buddies.
    pub fn put(&mut self, pfn: Pfn, order: Order) {
        self.lists.free += order.frames() as u64;
        self.frame(pfn).assign(FrameFlags::empty());
        let mobility = self.zone.mobility_of(pfn);
        let (mut head, mut order, mut debt) = (pfn, order, self.frame(pfn).debt());
        while order < MAX_ORDER {
            let buddy = head.buddy(order);
            if !self.is_free(buddy, order) {
                break;
            }
            let group = self.zone.mobility_of(buddy);
            self.remove(buddy, order, group);
            if group != mobility {
                // Only whole page blocks can differ; later splits must find one group in the merged block.
                self.zone.set_mobility(buddy, order, mobility);
            }
            debt = debt.max(self.frame(buddy).debt());
            self.frame(buddy.max(head)).set_debt(0);
            head = head.min(buddy);
            order.0 += 1;
        }
        self.frame(head).set_debt(debt);
        // Where the next merge only waits for this block's buddy, take from this block last.
        let parent = Order(order.0 + 1);
        let waits = parent < MAX_ORDER && self.is_free(head.align_down(parent).buddy(parent), parent);
        self.insert(head, order, mobility, waits);
    }

    fn frame(&self, pfn: Pfn) -> &'a Frame {
        &self.base.frames[pfn]
    }

    /// Is this the head of a free block of exactly this order, in this zone?
    fn is_free(&self, pfn: Pfn, order: Order) -> bool {
        pfn < self.zone.end()
            && self.frame(pfn).has(FrameFlags::BUDDY)
            && self.frame(pfn).private() == order.0 as u64
    }

    fn insert(&mut self, pfn: Pfn, order: Order, mobility: Mobility, tail: bool) {
        self.frame(pfn).set_private(order.0 as u64);
        self.frame(pfn).assign(FrameFlags::BUDDY);
        let list = &mut self.lists.lists[order.0 as usize][mobility as usize];
        if tail {
            list.push_tail(&self.base.frames, pfn);
        } else {
            list.push_head(&self.base.frames, pfn);
        }
        self.lists.occupied[mobility as usize] |= 1 << order.0;
    }

    fn remove(&mut self, pfn: Pfn, order: Order, mobility: Mobility) {
        let list = &mut self.lists.lists[order.0 as usize][mobility as usize];
        list.remove(&self.base.frames, pfn);
        if list.is_empty() {
            self.lists.occupied[mobility as usize] &= !(1 << order.0);
        }
        self.frame(pfn).assign(FrameFlags::empty());
        self.frame(pfn).set_private(0);
    }

    /// The smallest sufficient block of the group itself.
    fn take_own(&mut self, order: Order, mobility: Mobility) -> Option<Pfn> {
        let fitting = self.lists.occupied[mobility as usize] >> order.0;
        if fitting == 0 {
            return None;
        }
        let from = Order(order.0 + fitting.trailing_zeros() as u8);
        self.take_head(from, order, mobility)
    }

    /// Take the first block of a list, keep its first 2^`order` frames and put the rest back.
    fn take_head(&mut self, from: Order, order: Order, mobility: Mobility) -> Option<Pfn> {
        let pfn = self.lists.list(from, mobility).head()?;
        self.remove(pfn, from, mobility);
        self.put_rest(pfn, from, order, mobility);
        Some(pfn)
    }

    /// Put the halves of a block back until its first 2^`to` frames are left.
    fn put_rest(&mut self, head: Pfn, from: Order, to: Order, mobility: Mobility) {
        let debt = self.frame(head).debt();
        for order in (to.0..from.0).rev().map(Order) {
            let half = head.add(order.frames());
            self.frame(half).place(self.zone.node(), self.zone.id());
            self.frame(half).set_debt(debt);
            self.insert(half, order, mobility, false);
        }
    }

    /// The first other group that has a block of this order.
    fn fallback(&self, order: Order, mobility: Mobility) -> Option<Mobility> {
        FALLBACKS[mobility as usize].into_iter().find(|&other| !self.lists.list(order, other).is_empty())
    }

    /// Take from another group by claiming a whole page block, from the largest free block downwards.
    fn claim(&mut self, order: Order, mobility: Mobility, mixing: Mixing) -> Option<Pfn> {
        let least = match mixing {
            Mixing::Allowed => order,
            Mixing::WholeBlocks => order.max(PAGEBLOCK_ORDER),
        };
        for from in (least.0..=MAX_ORDER.0).rev().map(Order) {
            let Some(other) = self.fallback(from, mobility) else { continue };
            // A small block is not worth claiming a page block for, except for requests that would spoil one.
            if mobility == Mobility::Movable && from.0 < PAGEBLOCK_ORDER.0 / 2 {
                break;
            }
            let claimed = if from >= PAGEBLOCK_ORDER {
                self.claim_whole(from, order, other, mobility)
            } else {
                self.claim_part(from, order, other, mobility)
            };
            if let Some(pfn) = claimed {
                self.mixed(pfn, order, other, mobility);
                return claimed;
            }
        }
        None
    }

    /// Take from a free block of at least a page block, which goes over to the new group.
    fn claim_whole(&mut self, from: Order, order: Order, other: Mobility, mobility: Mobility) -> Option<Pfn> {
        let pfn = self.lists.list(from, other).head()?;
        self.remove(pfn, from, other);
        self.zone.set_mobility(pfn, from, mobility);
        self.put_rest(pfn, from, order, mobility);
        Some(pfn)
    }

    /// Take over the page block around a smaller free block, if at least half of it is free or alike.
    fn claim_part(&mut self, from: Order, order: Order, other: Mobility, mobility: Mobility) -> Option<Pfn> {
        let start = self.lists.list(from, other).head()?.align_down(PAGEBLOCK_ORDER);
        self.boost();
        if start.add(BLOCK_FRAMES) > self.zone.end() {
            return None;
        }
        let (free, movable) = self.survey(start);
        let alike = match (mobility, other) {
            (Mobility::Movable, _) => movable,
            (_, Mobility::Movable) => BLOCK_FRAMES - free - movable,
            _ => 0,
        };
        if free + alike < BLOCK_FRAMES / 2 {
            return None;
        }
        self.regroup(start, other, mobility);
        self.take_own(order, mobility)
    }

    /// Free and movable frames of a page block that is not one free block.
    fn survey(&self, start: Pfn) -> (u32, u32) {
        let (mut free, mut movable, mut at) = (0, 0, start);
        while at < start.add(BLOCK_FRAMES) {
            let frame = self.frame(at);
            if frame.has(FrameFlags::BUDDY) {
                let pages = 1 << frame.private();
                free += pages;
                at = at.add(pages);
                continue;
            }
            movable += self.is_movable(at) as u32;
            at = at.add(1);
        }
        (free, movable)
    }

    /// Does this frame hold user memory? A guess: its holder may be changing it.
    fn is_movable(&self, pfn: Pfn) -> bool {
        let head = self.base.frames.get(self.base.frames.head(pfn));
        head.is_some_and(|head| head.has(FrameFlags::LRU) || head.owner() != Owner::None)
    }

    /// Give a page block and its free blocks to another group.
    fn regroup(&mut self, start: Pfn, from: Mobility, to: Mobility) {
        let mut at = start;
        while at < start.add(BLOCK_FRAMES) {
            if !self.frame(at).has(FrameFlags::BUDDY) {
                at = at.add(1);
                continue;
            }
            let order = Order(self.frame(at).private() as u8);
            self.remove(at, order, from);
            self.insert(at, order, to, true);
            at = at.add(order.frames());
        }
        self.zone.set_mobility(start, PAGEBLOCK_ORDER, to);
    }

    /// Take the smallest sufficient block of another group and leave its page block as it is.
    fn steal(&mut self, order: Order, mobility: Mobility) -> Option<Pfn> {
        let (from, other) = (order.0..=MAX_ORDER.0)
            .map(Order)
            .find_map(|from| self.fallback(from, mobility).map(|other| (from, other)))?;
        let pfn = self.take_head(from, order, other)?;
        self.mixed(pfn, order, other, mobility);
        Some(pfn)
    }

    fn mixed(&self, pfn: Pfn, order: Order, from: Mobility, to: Mobility) {
        let args = [pfn.0 as u64, order.0 as u64, from as u64, to as u64];
        self.base.event(Event::MmPageAllocExtfrag, args);
    }

    /// Raise the watermarks by a page block, unless the zone is too small to gain from it.
    fn boost(&mut self) {
        let most =
            max_boost(self.zone.bare_mark(Mark::High), self.base.knobs.get(Knob::WatermarkBoostFactor));
        if most != 0 && self.zone.managed() >= 4 * BLOCK_FRAMES as u64 {
            self.zone.set_boost(most.min(self.zone.boost() + BLOCK_FRAMES as u64));
            self.boosted = true;
        }
    }
}
