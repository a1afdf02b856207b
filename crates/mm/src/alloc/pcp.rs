//! A CPU's lists of a zone: the pages that it took or freed last, available without the zone's lock.
//!
//! There is one list per order and mobility, for common orders. Blocks are added and taken at the head, so they are
//! likely in the caches; lists are refilled and drained in batches, oldest blocks first. A block remains formed as a
//! folio here (flag PCP beside HEAD), so a folio that is freed and taken again costs the same at any order.
//!
//! **Stacks.** The last few single pages of each mobility, at most a quarter of what the lists may always hold, are
//! in a small array in front of the list: taking one touches no record but its own and checks no limit. A full or
//! empty stack exchanges half of its pages with its list.
//!
//! **Debts.** Blocks from the buddy lists are settled on their way here. A freed folio that owes a flush keeps its tag
//! and waits on a list of its own, the *pending* one of its order and mobility. From there it is taken when its debt
//! has been paid, the oldest first, or, if nothing else is left, with a payment; and it goes to the buddy lists with
//! the others when there are too many. So a page that owes needs the zone's lock no more often than another one.
//!
//! **The size** moves between `high_min` and `high_max` (see [`pcp_sizes`](super::watermark::pcp_sizes)): a CPU that
//! keeps taking gets batches of doubling size and a higher limit; one that keeps freeing drains in larger steps.
//! While the zone is short of memory, or under reclaim, the limit decreases.

use super::buddy::{Debts, LockedZone, Mixing};
use super::owing::{Clean, CleanList, Owing, OwingList};
use super::watermark::{PcpSizes, Reserve, Watermark};
use super::zone::{BELOW_HIGH, RECLAIM_ACTIVE, Zone};
use crate::event::Event;
use crate::frame::{FrameFlags, FrameTable, List, Mobility};
use crate::machine::{Machine, Work, ZoneKind};
use crate::mmu::Mmu;
use crate::tlb::Generation;
use crate::units::*;

/// Orders 0 to 3, and the order of a page block.
const SMALL_ORDERS: u8 = 4;
const LISTS: usize = (SMALL_ORDERS as usize + 1) * Mobility::COUNT;
/// Most doublings of a batch.
const SCALE_MAX: u32 = 5;

/// Whether CPUs' lists hold blocks of this order.
#[inline]
pub(super) fn holds(order: Order) -> bool {
    order.0 < SMALL_ORDERS || order == PAGEBLOCK_ORDER
}

#[inline]
fn list_of(order: Order, mobility: Mobility) -> usize {
    order.0.min(SMALL_ORDERS) as usize * Mobility::COUNT + mobility as usize
}

fn order_of(list: usize) -> Order {
    match (list % LISTS / Mobility::COUNT) as u8 {
        SMALL_ORDERS => PAGEBLOCK_ORDER,
        order => Order(order),
    }
}

/// Most pages in a stack.
const STACK: usize = 64;

/// The single pages of one mobility that were freed last, the newest at the end.
struct Stack {
    len: u32,
    pages: [Pfn; STACK],
}

impl Stack {
    const EMPTY: Stack = Stack { len: 0, pages: [Pfn::NONE; STACK] };

    fn pages(&self) -> &[Pfn] {
        &self.pages[..self.len as usize]
    }
}

/// The lists of one CPU in one zone.
#[repr(align(64))]
pub(super) struct Pcp {
    stacks: [Stack; Mobility::COUNT],
    /// Pages that a stack may hold.
    depth: u32,
    /// Blocks that owe nothing, and behind these lists in the same order those of blocks that do.
    lists: [List; 2 * LISTS],
    /// Pages on all lists, not on stacks.
    count: u32,
    /// Those on pending lists.
    pending: u32,
    /// The present limit of pages on all lists.
    high: u32,
    /// Pages freed lately without a take.
    freed: u32,
    /// log2 of the scale of the next refill.
    scale: u32,
    /// Whether CPU and zone belong to the same node.
    local: bool,
}

impl Pcp {
    pub fn new(local: bool) -> Pcp {
        let lists = core::array::from_fn(|_| List::new());
        Pcp {
            stacks: [Stack::EMPTY; 3],
            depth: 0,
            lists,
            count: 0,
            pending: 0,
            high: 0,
            freed: 0,
            scale: 0,
            local,
        }
    }

    #[inline]
    pub(crate) fn is_local(&self) -> bool {
        self.local
    }

    /// Pages on all lists and stacks.
    pub fn count(&self) -> u32 {
        self.count + self.stacks.iter().map(|stack| stack.len).sum::<u32>()
    }

    /// Pages on all stacks.
    pub(crate) fn stacked(&self) -> impl Iterator<Item = Pfn> {
        self.stacks.iter().flat_map(|stack| stack.pages().iter().copied())
    }

    /// All lists with the order of their blocks, and whether these owe.
    pub fn lists(&self) -> impl Iterator<Item = (Order, bool, &List)> {
        self.lists.iter().enumerate().map(|(i, list)| (order_of(i), i >= LISTS, list))
    }

    /// Take the newest single page if it is on a stack. It keeps its flag PCP.
    #[inline]
    pub(crate) fn pop_stack(&mut self, mobility: Mobility) -> Option<Clean> {
        let stack = &mut self.stacks[mobility as usize];
        let top = stack.len.checked_sub(1)?;
        stack.len = top;
        Some(clean(stack.pages[top as usize % STACK]))
    }

    /// Take the newest block, or else the oldest whose debt has been paid. It keeps its flag PCP.
    pub fn pop<M: Machine>(
        &mut self,
        mmu: &Mmu<M>,
        zone: &Zone,
        order: Order,
        mobility: Mobility,
    ) -> Option<Clean> {
        let found = if order == Order::ZERO {
            self.pop_stack(mobility).or_else(|| {
                self.fill_stack(&mmu.frames, mobility);
                self.pop_stack(mobility)
            })
        } else {
            self.pop_list(&mmu.frames, order, mobility)
        };
        // With nothing to pay, settling sends nothing.
        found.or_else(|| {
            Some(self.pop_pending(mmu, zone, (order, mobility), Generation::NONE)?.settle(mmu, zone))
        })
    }

    fn pop_list(&mut self, frames: &FrameTable, order: Order, mobility: Mobility) -> Option<Clean> {
        let pfn = self.lists[list_of(order, mobility)].pop_head(frames)?;
        self.count -= order.frames();
        self.freed = 0;
        Some(clean(pfn))
    }

    /// Take the oldest block of a pending list if it owes no flush beyond this generation. It keeps its flag PCP.
    #[expect(clippy::disallowed_methods, reason = "the block that is being taken has the debt")]
    pub(crate) fn pop_pending<M: Machine>(
        &mut self,
        mmu: &Mmu<M>,
        zone: &Zone,
        (order, mobility): (Order, Mobility),
        most: Generation,
    ) -> Option<Owing> {
        if self.pending == 0 {
            return None;
        }
        let list = &mut self.lists[LISTS + list_of(order, mobility)];
        let frame = &mmu.frames[list.tail()?];
        let generation = mmu.tlb.owed_by_tag(zone.id(), frame.debt());
        if generation > most {
            return None;
        }
        let pfn = list.pop_tail(&mmu.frames)?;
        frame.set_debt(0);
        self.count -= order.frames();
        self.pending -= order.frames();
        self.freed = 0;
        Some(Owing::new(pfn, order, generation))
    }

    /// Put a single page on its stack, unless that is full.
    #[inline]
    #[must_use]
    pub(crate) fn push_stack(&mut self, mobility: Mobility, pfn: Pfn) -> bool {
        let stack = &mut self.stacks[mobility as usize];
        let room = stack.len < self.depth;
        if room {
            stack.pages[stack.len as usize % STACK] = pfn;
            stack.len += 1;
        }
        room
    }

    /// Add a block that has its flag PCP, and return the excess to the zone.
    #[cold]
    pub fn push<M: Machine>(&mut self, mmu: &Mmu<M>, zone: &Zone, pfn: Pfn, order: Order) {
        let mobility = mmu.frames[pfn].mobility();
        let frames = &mmu.frames;
        let pages = if order == Order::ZERO {
            self.empty_stack(frames, mobility, self.depth.div_ceil(2)) + 1
        } else {
            order.frames()
        };
        if order != Order::ZERO || !self.push_stack(mobility, pfn) {
            self.lists[list_of(order, mobility)].push_head(frames, pfn);
            self.count += order.frames();
        }
        self.note_freed(mmu, zone, pages);
    }

    /// Add a block that has its flag PCP and owes a flush, and return the excess to the zone.
    pub(crate) fn push_pending<M: Machine>(&mut self, mmu: &Mmu<M>, zone: &Zone, pfn: Pfn, order: Order) {
        let mobility = mmu.frames[pfn].mobility();
        self.lists[LISTS + list_of(order, mobility)].push_head(&mmu.frames, pfn);
        self.count += order.frames();
        self.pending += order.frames();
        self.note_freed(mmu, zone, order.frames());
    }

    fn note_freed<M: Machine>(&mut self, mmu: &Mmu<M>, zone: &Zone, pages: u32) {
        self.freed += pages;
        self.scale = 0;
        if self.count >= self.high || zone.pressure() != 0 {
            self.trim(mmu, zone);
        }
    }

    /// Move the oldest pages of a stack to its list. Returns their number.
    fn empty_stack(&mut self, frames: &FrameTable, mobility: Mobility, pages: u32) -> u32 {
        let stack = &mut self.stacks[mobility as usize];
        let pages = pages.min(stack.len);
        let list = &mut self.lists[list_of(Order::ZERO, mobility)];
        list.push_head_all(frames, &stack.pages[..pages as usize]);
        stack.pages.copy_within(pages as usize..stack.len as usize, 0);
        stack.len -= pages;
        self.count += pages;
        pages
    }

    /// Move the newest pages of a list to its empty stack: half as many as that can hold.
    fn fill_stack(&mut self, frames: &FrameTable, mobility: Mobility) {
        let list = &mut self.lists[list_of(Order::ZERO, mobility)];
        let stack = &mut self.stacks[mobility as usize];
        let want = (self.depth.div_ceil(2) as usize).min(list.len());
        list.pop_heads(frames, &mut stack.pages[..want]);
        stack.len = want as u32;
        self.count -= want as u32;
        self.freed = 0;
    }

    pub fn resize(&mut self, frames: &FrameTable, sizes: PcpSizes) {
        self.high = self.high.clamp(sizes.high_min, sizes.high_max);
        self.depth = (sizes.high_min / 4).clamp(1, STACK as u32 - 1);
        for mobility in Mobility::ALL {
            let over = self.stacks[mobility as usize].len.saturating_sub(self.depth);
            self.empty_stack(frames, mobility, over);
        }
    }

    /// Add blocks that were fetched from the buddy lists for this list.
    pub fn accept<M: Machine>(
        &mut self,
        mmu: &Mmu<M>,
        (order, mobility): (Order, Mobility),
        blocks: CleanList,
    ) {
        let mut blocks = blocks.into_list();
        for (pfn, frame) in blocks.records(&mmu.frames) {
            frame.assign(FrameFlags::PCP);
            mmu.frames.make_folio(pfn, order);
        }
        self.count += blocks.len() as u32 * order.frames();
        // After the blocks that are there: they come in ascending order and leave in it.
        self.lists[list_of(order, mobility)].splice_tail(&mmu.frames, &mut blocks);
    }

    /// Return what exceeds the limit.
    fn trim<M: Machine>(&mut self, mmu: &Mmu<M>, zone: &Zone) {
        let sizes = zone.pcp_sizes();
        self.freed = self.freed.min(sizes.batch << SCALE_MAX);
        let limit = self.limit(zone, sizes);
        if self.count >= limit {
            // At least as much as a full stack brings.
            let least = sizes.batch.max(self.depth.div_ceil(2));
            let most = limit.saturating_sub(sizes.batch).max(least);
            self.spill(mmu, zone, self.freed.clamp(least, most));
        }
        if zone.pressure() & BELOW_HIGH != 0
            && zone.watermark_ok(Order::ZERO, Watermark::High, ZoneKind::Movable, Reserve::None)
        {
            zone.set_pressure(BELOW_HIGH, false);
        }
    }

    pub fn drain<M: Machine>(&mut self, mmu: &Mmu<M>, zone: &Zone) {
        for mobility in Mobility::ALL {
            self.empty_stack(&mmu.frames, mobility, STACK as u32);
        }
        self.spill(mmu, zone, u32::MAX);
    }

    /// Return at least `pages` pages, the oldest of one list after the other, or all that the lists hold.
    fn spill<M: Machine>(&mut self, mmu: &Mmu<M>, zone: &Zone, pages: u32) {
        if self.count == 0 {
            return;
        }
        let mut area = LockedZone::lock(mmu, zone);
        let (mut freed, mut blocks, mut at) = (0, 0, 0);
        // By bit: lists that may not be empty yet.
        let lists = if self.pending > 0 { 2 * LISTS } else { LISTS };
        let mut left = (1u32 << lists) - 1;
        while freed < pages && self.count > 0 {
            at = (at + 1 + left.rotate_right(at + 1).trailing_zeros()) % u32::BITS;
            let Some(pfn) = self.lists[at as usize].pop_tail(&mmu.frames) else {
                left &= !(1 << at);
                continue;
            };
            let order = order_of(at as usize);
            area.put(pfn, order);
            self.count -= order.frames();
            self.pending -= if at as usize >= LISTS { order.frames() } else { 0 };
            freed += order.frames();
            blocks += 1;
        }
        mmu.charge(Work::FreeBuddy, blocks);
        mmu.event(Event::MmPagePcpuDrain, [zone.id().0 as u64, freed as u64, 0, 0]);
    }

    /// Number of blocks to fetch at once. Each refill without a free in between doubles the next one.
    pub(crate) fn refill_size(&mut self, zone: &Zone, order: Order) -> u32 {
        let PcpSizes { batch, high_min, high_max } = zone.pcp_sizes();
        self.high = self.high.clamp(high_min, high_max);
        let mut pages = if order == Order::ZERO { batch << self.scale } else { batch };
        if high_min != high_max && zone.pressure() & BELOW_HIGH == 0 {
            self.high = (self.high + pages).min(high_max);
        }
        if order == Order::ZERO {
            let most = self.high.saturating_sub(self.count + batch).max(batch);
            if pages <= most && self.scale < SCALE_MAX {
                self.scale += 1;
            }
            pages = pages.min(most);
        }
        // Blocks of a page block's size are fetched one by one: a second one would often come from other mobility
        // groups.
        let least = if order < PAGEBLOCK_ORDER { 2 } else { 1 };
        if batch == 1 { 1 } else { (pages >> order.0).max(least) }
    }

    /// The number of pages that the lists may hold now. Adjusts the limit of normal times.
    fn limit(&mut self, zone: &Zone, sizes: PcpSizes) -> u32 {
        let PcpSizes { batch, high_min, high_max } = sizes;
        self.high = self.high.clamp(high_min, high_max);
        let lower = self.high.saturating_sub(self.freed.max(batch)).max(high_min);
        if zone.pressure() & RECLAIM_ACTIVE != 0 {
            self.high = lower;
            return self.high.min(batch << 2);
        }
        if high_min == high_max {
            return self.high;
        }
        if zone.pressure() & BELOW_HIGH != 0 {
            self.high = lower;
            return self.count.max(high_min);
        }
        let limit = self.high;
        if self.count >= limit {
            // Leave room for as many pages as were just freed, in case that happens again.
            self.high = self.high.max((self.freed + batch).clamp(high_min, high_max));
        }
        limit
    }
}

/// Which blocks may be fetched beside the one that is wanted: none that needs a round which that block does not need.
fn beside<M: Machine>(mmu: &Mmu<M>, zone: &Zone, generation: Generation) -> Debts {
    let free = mmu.tlb.free_up_to(mmu.host(), zone.id());
    if generation > free { Debts::Allowed } else { Debts::UpTo(free) }
}

/// Fetch up to `want` blocks for a CPU's list from the buddy lists. Also returns whether that boosted the zone's
/// watermarks.
#[cold]
pub(super) fn fetch<M: Machine>(
    mmu: &Mmu<M>,
    zone: &Zone,
    (order, mobility): (Order, Mobility),
    (mixing, mut debts): (Mixing, Debts),
    want: u32,
) -> (OwingList, bool) {
    let mut blocks = OwingList::new(order);
    let mut area = LockedZone::lock(mmu, zone);
    while let left @ 1.. = (want as usize).saturating_sub(blocks.len())
        && let most = Order(order.0 + left.ilog2() as u8)
        && let Some(block) = area.take_up_to(order, most, mobility, mixing, debts)
    {
        if debts == Debts::Allowed && blocks.len() == 0 {
            debts = beside(mmu, zone, block.generation());
        }
        area.cut(&block, order);
        blocks.push(&mmu.frames, block);
    }
    mmu.charge(Work::AllocBuddy, blocks.len() as u64);
    (blocks, area.boosted())
}

/// Form a clean block into one folio with `flags` (and HEAD if it needs that).
pub(super) fn form<M: Machine>(
    mmu: &Mmu<M>,
    zone: &Zone,
    block: Clean,
    order: Order,
    flags: FrameFlags,
) -> Clean {
    let pfn = block.pfn();
    mmu.frames[pfn].assign(flags);
    mmu.frames[pfn].set_mobility(zone.mobility_of(pfn));
    mmu.frames.make_folio(pfn, order);
    block
}

/// A block of a CPU's list was settled before it came there, or freed without a tag.
#[inline]
#[expect(clippy::disallowed_methods, reason = "it was on a list of clean pages")]
fn clean(pfn: Pfn) -> Clean {
    Clean::of_list(pfn)
}
