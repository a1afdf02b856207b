//! The buddy lists of a zone.
//!
//! Free memory consists of blocks of 2^order frames, aligned to their size, on one list per order and mobility group.
//! A freed block merges with its buddy as long as that is free, too; a request takes the smallest block that is large
//! enough and puts back the halves that it does not need. All state of a free block is in its head's record: the flag
//! BUDDY, and the order in the private word.
//!
//! **Mobility.** Unmovable pages scattered over memory would keep large blocks from forming. So each page block (2
//! MiB) belongs to one mobility group, and a free block is on the list of its page block's group. A request whose own
//! group has nothing left takes from another, in this order: the *largest* block of another group together with its
//! page block, if at least half of that page block is then compatible (or if the block is a whole page block anyway);
//! otherwise the *smallest* sufficient block, without changing the page block's group. The second mixes groups
//! permanently, so it first boosts the zone's watermarks: kswapd then makes room for whole blocks.
//!
//! **Lazy records.** The records of frames in a block that was never split are not written, not even at start: a
//! frame learns its zone and node when it first heads a block or joins a folio. The tails of a freed folio are not
//! written either: the order in a free head's record says how many of them still point to it. Any other use of such a
//! frame goes through a split, and the first part of a split block is formed again with its own, smaller order.
//!
//! **Debts.** A free block that owes a flush is on a separate list, the *pending* one of its order and group, and its
//! head's record has the generation of its debt: a merge keeps the newer generation, and both halves of a split
//! inherit it. Pending blocks are taken last and first in, first out, so that one payment covers as many as possible.
//! But they are taken first while little of the zone's free memory is without debts, because callers that cannot send
//! interrupts can take nothing else. When the zone's newest pending generation has been paid, all pending lists are
//! appended to the others at once.

use super::dense::Dense;
use super::owing::Owing;
use super::watermark::{Watermark, max_boost};
use super::zone::Zone;
use crate::event::Event;
use crate::frame::{Frame, FrameFlags, FrameTable, FreeBlock, List, Mobility, Owner};
use crate::knobs::Knob;
use crate::lock::Guard;
use crate::machine::{Machine, Work};
use crate::mmu::Mmu;
use crate::stat::Stat;
use crate::tlb::Generation;
use crate::units::*;
use std_alloc::boxed::Box;

pub(super) const ORDERS: usize = MAX_ORDER.0 as usize + 1;

/// Number of the fullest page blocks that are searched for a block of some size.
const FULLEST: usize = 32;
/// Number of sufficient blocks in one of them of which the smallest is taken.
const SUFFICIENT: usize = 4;

/// Other groups to take from, best first.
const FALLBACKS: [[Mobility; 2]; Mobility::COUNT] = [
    [Mobility::Reclaimable, Mobility::Movable],
    [Mobility::Reclaimable, Mobility::Unmovable],
    [Mobility::Unmovable, Mobility::Movable],
];

/// The free blocks of a zone. Changed through [`LockedZone`].
pub(super) struct FreeLists {
    clean: OrderLists,
    pending: OrderLists,
    /// Pages in all blocks.
    free: u64,
    /// Pages on pending lists.
    owing: u64,
    /// The newest generation on pending lists.
    newest: Generation,
    /// A block whose generation is not newer than this is on a clean list.
    cleared: Generation,
    /// How full page blocks are, if the placement needs that.
    pub dense: Option<Box<Dense>>,
}

/// One list for each order and group.
#[derive(Default)]
struct OrderLists {
    lists: [[List; Mobility::COUNT]; ORDERS],
    /// For each mobility, bit n: the list of order n is not empty.
    occupied: [u32; Mobility::COUNT],
}

impl OrderLists {
    fn list(&self, order: Order, mobility: Mobility) -> &List {
        &self.lists[order.0 as usize][mobility as usize]
    }

    fn push(&mut self, frames: &FrameTable, pfn: Pfn, order: Order, mobility: Mobility, tail: bool) {
        let list = &mut self.lists[order.0 as usize][mobility as usize];
        if tail {
            list.push_tail(frames, pfn);
        } else {
            list.push_head(frames, pfn);
        }
        self.occupied[mobility as usize] |= 1 << order.0;
    }

    fn remove(&mut self, frames: &FrameTable, pfn: Pfn, order: Order, mobility: Mobility) {
        let list = &mut self.lists[order.0 as usize][mobility as usize];
        list.remove(frames, &frames[pfn]);
        if list.is_empty() {
            self.occupied[mobility as usize] &= !(1 << order.0);
        }
    }

    /// Smallest order of at least `order` for which the group has a block.
    fn fitting(&self, order: Order, mobility: Mobility) -> Option<Order> {
        self.all_fitting(order, mobility).next()
    }

    /// All such orders.
    fn all_fitting(&self, order: Order, mobility: Mobility) -> impl Iterator<Item = Order> + use<> {
        let occupied = self.occupied[mobility as usize];
        (order.0..ORDERS as u8).filter(move |order| occupied >> order & 1 != 0).map(Order)
    }
}

impl FreeLists {
    pub fn new() -> FreeLists {
        let (clean, pending) = (OrderLists::default(), OrderLists::default());
        let (newest, cleared) = (Generation::NONE, Generation::NONE);
        FreeLists { clean, pending, free: 0, owing: 0, newest, cleared, dense: None }
    }

    /// Blocks on one list.
    pub fn count(&self, order: Order, mobility: Mobility) -> u64 {
        self.both(order, mobility).map(|list| list.len() as u64).iter().sum()
    }

    pub fn free(&self) -> u64 {
        self.free
    }

    /// Pages that owe a flush, as known when the lists were last locked.
    pub fn owing(&self) -> u64 {
        self.owing
    }

    /// Its clean and its pending list.
    pub fn both(&self, order: Order, mobility: Mobility) -> [&List; 2] {
        [self.clean.list(order, mobility), self.pending.list(order, mobility)]
    }

    /// The generation that a free block owes, from its record.
    pub(crate) fn debt_of(&self, frame: &Frame) -> Generation {
        self.still_owed(Generation(frame.as_free().owed))
    }

    /// The part of a debt of this generation that is still unpaid.
    fn still_owed(&self, generation: Generation) -> Generation {
        if generation <= self.cleared { Generation::NONE } else { generation }
    }

    fn occupied(&self) -> u32 {
        let all = self.clean.occupied.iter().chain(&self.pending.occupied);
        all.fold(0, |all, some| all | some)
    }
}

/// Which blocks a request accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Debts {
    /// All; one that owes will be paid for.
    Allowed,
    /// Only blocks with debts up to this generation.
    UpTo(Generation),
}

impl Debts {
    /// The newest generation that the request accepts.
    pub(crate) fn most(self) -> Generation {
        match self {
            Debts::Allowed => Generation(u64::MAX),
            Debts::UpTo(limit) => limit,
        }
    }
}

/// Whether a request may mix mobility groups within a page block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mixing {
    /// Yes, as a last resort.
    Allowed,
    /// No: only whole page blocks change their group.
    WholeBlocks,
}

/// A zone whose lock is held.
pub(super) struct LockedZone<'a, M: Machine> {
    mmu: &'a Mmu<M>,
    zone: &'a Zone,
    lists: Guard<'a, FreeLists>,
    free_before: u64,
    boosted: bool,
    debts: Debts,
}

impl<M: Machine> Drop for LockedZone<'_, M> {
    /// Publish the new numbers to lock-free readers and to `nr_free_pages`.
    fn drop(&mut self) {
        let free = self.lists.free;
        self.zone.publish(free, self.lists.occupied());
        let change = free as i64 - self.free_before as i64;
        if change != 0 {
            self.mmu.count(Stat::NrFreePages, change);
        }
    }
}

impl<'a, M: Machine> LockedZone<'a, M> {
    pub fn lock(mmu: &'a Mmu<M>, zone: &'a Zone) -> LockedZone<'a, M> {
        let lists = zone.lists.lock();
        let free_before = lists.free;
        let mut area = LockedZone { mmu, zone, lists, free_before, boosted: false, debts: Debts::Allowed };
        area.clear_paid();
        area
    }

    /// If everything pending has been paid, move it to the clean lists.
    fn clear_paid(&mut self) {
        let FreeLists { clean, pending, owing, newest, cleared, .. } = &mut *self.lists;
        if *owing == 0 || *newest > self.mmu.tlb.paid_up_to(self.zone.id()) {
            return;
        }
        for (lists, paid) in clean.lists.iter_mut().flatten().zip(pending.lists.iter_mut().flatten()) {
            lists.splice_tail(&self.mmu.frames, paid);
        }
        for (occupied, more) in clean.occupied.iter_mut().zip(&mut pending.occupied) {
            *occupied |= core::mem::take(more);
        }
        (*owing, *cleared) = (0, *newest);
    }

    /// Whether a take boosted the zone's watermarks, so that kswapd should run.
    pub(crate) fn boosted(&self) -> bool {
        self.boosted
    }

    pub fn lists(&self) -> &FreeLists {
        &self.lists
    }

    /// Make all frames of a new zone free. Touches only the heads of the largest blocks.
    pub fn populate(&mut self) {
        let (mut at, end) = (self.zone.start(), self.zone.end());
        let mut order = MAX_ORDER;
        while at < end {
            while end.0 - at.0 < order.frames() {
                order.0 -= 1;
            }
            self.frame(at).place(self.zone.node(), self.zone.id(), Mobility::Movable);
            self.insert(at, order, Mobility::Movable, true, Generation::NONE);
            at = at.add(order.frames());
        }
        self.lists.free = self.zone.managed();
    }

    /// Take a block that is not a folio yet: flags clear. The records of its other frames may not be written yet.
    pub fn take(&mut self, order: Order, mobility: Mobility, mixing: Mixing, debts: Debts) -> Option<Owing> {
        self.take_up_to(order, order, mobility, mixing, debts)
    }

    /// Take a block of at least 2^`order` frames, and up to 2^`most` if that saves splits: these are the frames that
    /// as many requests for 2^`order` would have got, in the same order.
    pub(crate) fn take_up_to(
        &mut self,
        order: Order,
        most: Order,
        mobility: Mobility,
        mixing: Mixing,
        debts: Debts,
    ) -> Option<Owing> {
        self.debts = debts;
        let block = self
            .take_own(order, most, mobility)
            .or_else(|| self.claim(order, mobility, mixing))
            .or_else(|| (mixing == Mixing::Allowed).then(|| self.steal(order, mobility)).flatten())?;
        self.lists.free -= block.order().frames() as u64;
        Some(block)
    }

    /// Form every part of 2^`order` frames of a block that was taken, for [`pcp`](super::pcp).
    #[expect(clippy::disallowed_methods, reason = "the block that is being taken has the debt of its parts")]
    pub fn cut(&self, block: &Owing, order: Order) {
        let (node, zone, mobility) = (self.zone.node(), self.zone.id(), self.zone.mobility_of(block.pfn()));
        self.frame(block.pfn()).set_mobility(mobility);
        let (first, end, step) = (block.pfn(), block.pfn().0 + block.order().frames(), order.frames());
        let mut part = first.add(step);
        while part.0 < end {
            let frame = self.frame(part);
            self.mmu.writes_frame(part);
            part = part.add(step);
            frame.place(node, zone, mobility);
            frame.set_debt(0);
            frame.clear_private();
        }
    }

    /// Put back a block that is no folio any more, with the debt of its folio, and merge it with free buddies.
    #[expect(clippy::disallowed_methods, reason = "the free lists keep the debt from here on")]
    pub fn put(&mut self, pfn: Pfn, order: Order) {
        let frame = self.frame(pfn);
        frame.assign(FrameFlags::empty());
        let generation = self.mmu.tlb.owed_by_tag(self.zone.id(), frame.debt());
        frame.set_debt(0);
        self.put_block(pfn, order, generation);
    }

    /// Put back a block whose debt is not in its record, and merge it with free buddies.
    pub(crate) fn put_block(&mut self, pfn: Pfn, order: Order, generation: Generation) {
        assert!(
            pfn.align_down(order) == pfn && pfn >= self.zone.start() && pfn < self.zone.end(),
            "{pfn} must head a block of {order} in this zone"
        );
        self.lists.free += order.frames() as u64;
        // It may have been paid while the block was held.
        let mut generation = self.lists.still_owed(generation);
        let mobility = self.zone.mobility_of(pfn);
        let (mut head, mut order) = (pfn, order);
        while order < MAX_ORDER {
            let buddy = head.buddy(order);
            if !self.is_free(buddy, order) {
                break;
            }
            // Only whole page blocks can differ. Later splits must find one group in the merged block.
            let group = if order < PAGEBLOCK_ORDER { mobility } else { self.zone.mobility_of(buddy) };
            generation = generation.max(self.remove(buddy, order, group));
            if group != mobility {
                self.zone.set_mobility(buddy, order, mobility);
            }
            head = head.min(buddy);
            order.0 += 1;
        }
        // If the next merge only needs this block's buddy, take from this block last.
        let parent = Order(order.0 + 1);
        let waits = parent < MAX_ORDER && self.is_free(head.align_down(parent).buddy(parent), parent);
        self.insert(head, order, mobility, waits, generation);
    }

    /// Order of the free block that this frame heads.
    pub(crate) fn free_order(&self, pfn: Pfn) -> Option<Order> {
        let frame = self.frame(pfn);
        frame.has(FrameFlags::BUDDY).then(|| frame.as_free().order)
    }

    /// Take this free block off its list. Returns the generation that it owes.
    pub fn detach(&mut self, pfn: Pfn, order: Order) -> Generation {
        self.lists.free -= order.frames() as u64;
        self.remove(pfn, order, self.zone.mobility_of(pfn))
    }

    /// Take this frame out of the free block that contains it, and put the rest back. Returns the generation that it
    /// owes.
    #[expect(clippy::disallowed_methods, reason = "the debt of the rest is noted when it is put back")]
    pub(crate) fn detach_one(&mut self, pfn: Pfn) -> Option<Generation> {
        let around = |order| (pfn.align_down(order), order);
        let (mut head, from) = (0..=MAX_ORDER.0)
            .map(|order| around(Order(order)))
            .find(|&(head, order)| self.is_free(head, order))?;
        let generation = self.detach(head, from);
        for half in (0..from.0).rev().map(Order) {
            let upper = head.add(half.frames());
            let rest = if pfn < upper { upper } else { core::mem::replace(&mut head, upper) };
            let frame = self.frame(rest);
            frame.place(self.zone.node(), self.zone.id(), self.zone.mobility_of(rest));
            frame.set_debt(0);
            self.put_block(rest, half, generation);
        }
        Some(generation)
    }

    /// Move the page block around a frame, with its free blocks, to another group, if all of it is in the zone.
    pub(crate) fn regroup_block(&mut self, pfn: Pfn, to: Mobility) {
        let start = pfn.align_down(PAGEBLOCK_ORDER);
        let from = self.zone.mobility_of(start);
        if from != to && start.add(PAGEBLOCK_FRAMES) <= self.zone.end() {
            self.regroup(start, from, to);
        }
    }

    /// Move the last `count` blocks of the movable list of an order, from `first` on, to its head: the clean list, or
    /// the pending one (`pending`).
    pub(crate) fn tail_to_head(&mut self, (order, pending): (Order, bool), first: Pfn, count: usize) {
        let frames = &self.mmu.frames;
        let list = self.movable(order, pending);
        let mut part = list.split_tail(frames, first, count);
        list.splice_head(frames, &mut part);
    }

    /// Move the first `count` blocks, up to `last`, to the tail.
    pub(crate) fn head_to_tail(&mut self, (order, pending): (Order, bool), last: Pfn, count: usize) {
        let frames = &self.mmu.frames;
        let list = self.movable(order, pending);
        let mut rest = list.split_tail(frames, frames[last].next(), list.len() - count);
        list.splice_head(frames, &mut rest);
    }

    fn movable(&mut self, order: Order, pending: bool) -> &mut List {
        let lists = if pending { &mut self.lists.pending } else { &mut self.lists.clean };
        &mut lists.lists[order.0 as usize][Mobility::Movable as usize]
    }

    pub fn zone(&self) -> &'a Zone {
        self.zone
    }

    pub fn mmu(&self) -> &'a Mmu<M> {
        self.mmu
    }

    fn frame(&self, pfn: Pfn) -> &'a Frame {
        &self.mmu.frames[pfn]
    }

    /// Whether this is the head of a free block of exactly this order in this zone.
    fn is_free(&self, pfn: Pfn, order: Order) -> bool {
        let frame = || self.frame(pfn);
        pfn < self.zone.end() && frame().has(FrameFlags::BUDDY) && frame().as_free().order == order
    }

    /// `tail`: the position on a clean list. On a pending list, a new block goes to the tail, and the rest of a block
    /// that was taken from the head (`!tail`) goes back there.
    fn insert(&mut self, pfn: Pfn, order: Order, mobility: Mobility, tail: bool, generation: Generation) {
        let frame = self.frame(pfn);
        frame.set_free(FreeBlock { order, owed: generation.0 });
        frame.assign(FrameFlags::BUDDY);
        let frames = &self.mmu.frames;
        if order < PAGEBLOCK_ORDER
            && let Some(dense) = &mut self.lists.dense
        {
            dense.add(pfn, order, mobility);
        }
        if generation == Generation::NONE {
            self.lists.clean.push(frames, pfn, order, mobility, tail);
        } else {
            self.lists.pending.push(frames, pfn, order, mobility, tail);
            self.lists.owing += order.frames() as u64;
            self.lists.newest = self.lists.newest.max(generation);
        }
    }

    /// Take a block off its list. Returns the generation that it owes.
    fn remove(&mut self, pfn: Pfn, order: Order, mobility: Mobility) -> Generation {
        self.mmu.writes_frame(pfn);
        let frame = self.frame(pfn);
        if order < PAGEBLOCK_ORDER
            && let Some(dense) = &mut self.lists.dense
        {
            dense.remove(pfn, order);
        }
        let generation = self.lists.debt_of(frame);
        if generation == Generation::NONE {
            self.lists.clean.remove(&self.mmu.frames, pfn, order, mobility);
        } else {
            self.lists.pending.remove(&self.mmu.frames, pfn, order, mobility);
            self.lists.owing -= order.frames() as u64;
        }
        frame.assign(FrameFlags::empty());
        frame.clear_private();
        generation
    }

    /// The smallest sufficient block of the group itself, or its first 2^`most` frames; a clean one if there are
    /// enough of those.
    fn take_own(&mut self, order: Order, most: Order, mobility: Mobility) -> Option<Owing> {
        let clean = self.lists.clean.fitting(order, mobility);
        let pending = &self.lists.pending;
        let pending = pending.all_fitting(order, mobility).find(|&order| self.may_take(order, mobility));
        let spare = (self.lists.free - self.lists.owing).saturating_sub(self.zone.bare_mark(Watermark::Min));
        let scarce = spare == 0;
        let from = if scarce { pending.or(clean) } else { clean.or(pending) }?;
        let owing = if scarce { pending.is_some() } else { clean.is_none() };
        let lists = if owing { &self.lists.pending } else { &self.lists.clean };
        let (pfn, from) = match (self.in_fullest(order, mobility, |_, _| true), owing) {
            (Some(found), false) => found,
            _ => (lists.list(from, mobility).head()?, from),
        };
        // Stop where clean blocks become scarce.
        let most = if owing || scarce { most } else { most.min(Order(spare.ilog2() as u8)) };
        Some(self.take_block(pfn, from, most.min(from).max(order), (mobility, mobility)))
    }

    /// A small one of the sufficient clean blocks in the fullest page block that has one and that `suits`, with its
    /// number of free pages.
    pub(crate) fn in_fullest(
        &self,
        order: Order,
        mobility: Mobility,
        suits: impl Fn(Pfn, u32) -> bool,
    ) -> Option<(Pfn, Order)> {
        let dense = self.lists.dense.as_ref().filter(|_| order < PAGEBLOCK_ORDER)?;
        let mut looked = 0;
        let in_block = |block: Pfn| {
            let heads = dense.heads(block).map(|pfn| (self.frame(pfn), pfn));
            let clean = heads.filter(|(frame, _)| self.lists.debt_of(frame) == Generation::NONE);
            let sized = clean.map(|(frame, pfn)| (frame.as_free().order, pfn));
            sized.inspect(|_| looked += 1).filter(|(size, _)| *size >= order).take(SUFFICIENT).min()
        };
        let blocks =
            dense.fullest(mobility, order.frames()).filter(|&block| suits(block, dense.free_in(block)));
        let found = blocks.take(FULLEST).find_map(in_block);
        self.mmu.charge(Work::CompactScan, looked);
        found.map(|(size, pfn)| (pfn, size))
    }

    /// Take a block of group `was` off its list, keep its first 2^`order` frames and put back the rest as group `is`.
    #[expect(clippy::disallowed_methods, reason = "the debt of the rest is noted when it is put back")]
    fn take_block(&mut self, pfn: Pfn, from: Order, order: Order, (was, is): (Mobility, Mobility)) -> Owing {
        let generation = self.remove(pfn, from, was);
        for half in (order.0..from.0).rev().map(Order) {
            let rest = pfn.add(half.frames());
            self.frame(rest).place(self.zone.node(), self.zone.id(), is);
            self.frame(rest).set_debt(0);
            self.insert(rest, half, is, false, generation);
        }
        Owing::new(pfn, order, generation)
    }

    /// The first block of a list that the request accepts.
    fn first(&self, order: Order, mobility: Mobility) -> Option<Pfn> {
        let [clean, pending] = self.lists.both(order, mobility);
        clean.head().or_else(|| pending.head().filter(|_| self.may_take(order, mobility)))
    }

    /// Whether the request accepts the first block of a pending list.
    fn may_take(&self, order: Order, mobility: Mobility) -> bool {
        let head = self.lists.pending.list(order, mobility).head();
        head.is_some_and(|head| self.lists.debt_of(self.frame(head)) <= self.debts.most())
    }

    /// The first other group that has a block of this order.
    fn fallback(&self, order: Order, mobility: Mobility) -> Option<Mobility> {
        FALLBACKS[mobility as usize].into_iter().find(|&other| self.first(order, other).is_some())
    }

    /// Take from another group by claiming a whole page block, from the largest free block downwards.
    fn claim(&mut self, order: Order, mobility: Mobility, mixing: Mixing) -> Option<Owing> {
        let least = match mixing {
            Mixing::Allowed => order,
            Mixing::WholeBlocks => order.max(PAGEBLOCK_ORDER),
        };
        for from in (least.0..=MAX_ORDER.0).rev().map(Order) {
            let Some(other) = self.fallback(from, mobility) else { continue };
            // Do not claim a page block for a small block, except for requests that would spoil it.
            if mobility == Mobility::Movable && from.0 < PAGEBLOCK_ORDER.0 / 2 {
                break;
            }
            let claimed = if from >= PAGEBLOCK_ORDER {
                // All of it moves to the new group.
                let pfn = self.first(from, other)?;
                self.zone.set_mobility(pfn, from, mobility);
                Some(self.take_block(pfn, from, order, (other, mobility)))
            } else {
                self.claim_part(from, order, other, mobility)
            };
            if let Some(block) = &claimed {
                self.mixed(block.pfn(), order, other, mobility);
                return claimed;
            }
        }
        None
    }

    /// Claim the page block around a smaller free block, if at least half of it is free or compatible.
    fn claim_part(
        &mut self,
        from: Order,
        order: Order,
        other: Mobility,
        mobility: Mobility,
    ) -> Option<Owing> {
        let start = self.first(from, other)?.align_down(PAGEBLOCK_ORDER);
        self.boost();
        if start.add(PAGEBLOCK_FRAMES) > self.zone.end() {
            return None;
        }
        let (free, movable) = self.survey(start);
        let alike = match (mobility, other) {
            (Mobility::Movable, _) => movable,
            (_, Mobility::Movable) => PAGEBLOCK_FRAMES - free - movable,
            _ => 0,
        };
        if free + alike < PAGEBLOCK_FRAMES / 2 {
            return None;
        }
        self.regroup(start, other, mobility);
        self.take_own(order, order, mobility)
    }

    /// Free and movable frames of a page block that is not one free block.
    fn survey(&self, start: Pfn) -> (u32, u32) {
        let (mut free, mut movable, mut at) = (0, 0, start);
        while at < start.add(PAGEBLOCK_FRAMES) {
            let frame = self.frame(at);
            if frame.has(FrameFlags::BUDDY) {
                let pages = frame.as_free().order.frames();
                free += pages;
                at = at.add(pages);
                continue;
            }
            movable += self.is_movable(at) as u32;
            at = at.add(1);
        }
        (free, movable)
    }

    /// Whether this frame holds user memory. A guess: its holder may be changing it.
    fn is_movable(&self, pfn: Pfn) -> bool {
        let head = self.mmu.frames.get(self.mmu.frames.head(pfn));
        head.is_some_and(|head| head.has(FrameFlags::LRU) || head.owner() != Owner::None)
    }

    /// Move a page block and its free blocks to another group.
    fn regroup(&mut self, start: Pfn, from: Mobility, to: Mobility) {
        let mut at = start;
        while at < start.add(PAGEBLOCK_FRAMES) {
            if !self.frame(at).has(FrameFlags::BUDDY) {
                at = at.add(1);
                continue;
            }
            let order = self.frame(at).as_free().order;
            let generation = self.remove(at, order, from);
            self.insert(at, order, to, true, generation);
            at = at.add(order.frames());
        }
        self.zone.set_mobility(start, PAGEBLOCK_ORDER, to);
    }

    /// Take the smallest sufficient block of another group without changing its page block's group.
    fn steal(&mut self, order: Order, mobility: Mobility) -> Option<Owing> {
        let (from, other) = (order.0..=MAX_ORDER.0)
            .map(Order)
            .find_map(|from| self.fallback(from, mobility).map(|other| (from, other)))?;
        let pfn = self.first(from, other)?;
        let block = self.take_block(pfn, from, order, (other, other));
        self.mixed(pfn, order, other, mobility);
        Some(block)
    }

    fn mixed(&self, pfn: Pfn, order: Order, from: Mobility, to: Mobility) {
        let args = [pfn.0 as u64, order.0 as u64, from as u64, to as u64];
        self.mmu.event(Event::MmPageAllocExtfrag, args);
    }

    /// Boost the watermarks by a page block, unless the zone is too small to gain from it.
    fn boost(&mut self) {
        let most =
            max_boost(self.zone.bare_mark(Watermark::High), self.mmu.knobs.get(Knob::WatermarkBoostFactor));
        if most != 0 && self.zone.managed() >= 4 * PAGEBLOCK_FRAMES as u64 {
            self.zone.set_boost(most.min(self.zone.boost() + PAGEBLOCK_FRAMES as u64));
            self.boosted = true;
        }
    }
}
