//! Free blocks that compaction takes off a zone's lists and holds, to move folios into.
//!
//! They are on separate lists, one for each order, and remain free blocks with their debts. Only a block that is
//! asked for becomes a folio ([`HeldBlocks::take`]); its debt is paid then, and no other. Unused blocks finally
//! return to the zone.
//!
//! A block that is larger than the request may be split, and the rest stays here. If blocks are merged (`merge`), a
//! returned block finds its buddy by the frame's record: the flag HELD says that a held block begins there, the
//! private word has its size, and the index its holder. Only the holder changes them, so a record that names this
//! holder is true.

use super::buddy::{LockedZone, ORDERS};
use super::owing::{Clean, Fresh, settle};
use super::watermark::{Watermark, above};
use super::zone::Zone;
use super::{Allocator, initialized, pcp};
use crate::frame::{FrameFlags, FrameTable, FreeBlock, List, Mobility, Owner};
use crate::machine::{Machine, Work};
use crate::mmu::Mmu;
use crate::primitive::Ordering::Relaxed;
use crate::stat::Stat;
use crate::tlb::Generation;
use crate::units::*;
use base::linear;

/// Frames to scan before other users get a chance at the zone's lock.
pub(crate) const CLUSTER: u32 = 32;

/// Free blocks of one zone, off its lists.
#[must_use = "dropping it loses the pages"]
pub struct HeldBlocks {
    zone: ZoneId,
    lists: [List; ORDERS],
    pages: u64,
    holder: u64,
    merge: bool,
}

linear!(HeldBlocks, held => held.pages > 0, "isolated free blocks must be released");

impl HeldBlocks {
    /// Pages in all of them.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Blocks by order.
    pub fn blocks(&self) -> [usize; ORDERS] {
        core::array::from_fn(|order| self.lists[order].len())
    }

    /// Take one as a folio of `order`, from the smallest block that is large enough; `split`: larger blocks may be
    /// split.
    pub fn take<M: Machine>(
        &mut self,
        mmu: &Mmu<M>,
        zone: &Zone,
        order: Order,
        split: bool,
    ) -> Option<Fresh> {
        let most = if split { ORDERS as u8 } else { order.0 + 1 };
        let from = (order.0..most).map(Order).find(|from| !self.lists[from.0 as usize].is_empty())?;
        let pfn = self.lists[from.0 as usize].head()?;
        let generation = self.remove(&mmu.frames, pfn, from);
        for half in (order.0..from.0).rev().map(Order) {
            let rest = pfn.add(half.frames());
            mmu.frames[rest].place(zone.node(), zone.id(), zone.mobility_of(rest));
            self.push(&mmu.frames, rest, half, generation, false);
        }
        settle(mmu, zone, generation, pfn, order);
        mmu.charge(Work::AllocBuddy, 1);
        Some(formed(mmu, zone, pfn, order))
    }

    /// Turn a folio that was taken into a block again.
    pub(crate) fn give_back<M: Machine>(&mut self, mmu: &Mmu<M>, unused: Fresh) {
        let order = unused.order();
        let pfn = unused.into_pfn();
        let last = mmu.frames[pfn].put(1);
        assert!(last, "{pfn} must have no other reference when it becomes a block again");
        mmu.frames[pfn].wipe(FrameFlags::empty());
        self.push(&mmu.frames, pfn, order, Generation::NONE, false);
    }

    /// Add a block whose record is not written yet, at the head or the tail of its list.
    #[expect(clippy::disallowed_methods, reason = "its private word holds its debt")]
    fn push(&mut self, frames: &FrameTable, pfn: Pfn, order: Order, generation: Generation, tail: bool) {
        self.pages += order.frames() as u64;
        let (mut head, mut order, mut generation) = (pfn, order, generation);
        while self.merge && order < MAX_ORDER {
            let buddy = head.buddy(order);
            if !self.holds(frames, buddy, order) {
                break;
            }
            generation = generation.max(self.unlink(frames, buddy, order));
            head = head.min(buddy);
            order.0 += 1;
        }
        let frame = &frames[head];
        frame.set_debt(0);
        frame.set_owner(Owner::None, PageIndex(self.holder));
        frame.set_free(FreeBlock { order, owed: generation.0 });
        frame.assign(FrameFlags::HELD);
        let list = &mut self.lists[order.0 as usize];
        if tail { list.push_tail(frames, head) } else { list.push_head(frames, head) }
    }

    fn holds(&self, frames: &FrameTable, pfn: Pfn, order: Order) -> bool {
        frames.get(pfn).is_some_and(|frame| {
            frame.has(FrameFlags::HELD)
                && frame.guess_free_order() == order
                && frame.page_index() == PageIndex(self.holder)
        })
    }

    fn unlink(&mut self, frames: &FrameTable, pfn: Pfn, order: Order) -> Generation {
        let frame = &frames[pfn];
        let generation = Generation(frame.as_free().owed);
        self.lists[order.0 as usize].remove(frames, frame);
        frame.wipe(FrameFlags::empty());
        generation
    }

    /// Take a block off its list. Returns the generation that it owes.
    fn remove(&mut self, frames: &FrameTable, pfn: Pfn, order: Order) -> Generation {
        self.pages -= order.frames() as u64;
        self.unlink(frames, pfn, order)
    }
}

/// Turn a clean block into a folio with one reference. It does not count as allocated: the folio that moves here was
/// counted.
#[expect(clippy::disallowed_methods, reason = "it has just been settled")]
pub(super) fn formed<M: Machine>(mmu: &Mmu<M>, zone: &Zone, pfn: Pfn, order: Order) -> Fresh {
    let block = pcp::form(mmu, zone, Clean::of_list(pfn), order, FrameFlags::empty());
    mmu.frames[pfn].set_debt(0);
    mmu.frames[pfn].unfreeze(1);
    initialized(mmu, block.into_fresh(order))
}

/// The result of a scan of a page block's frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Isolation {
    pub scanned: u64,
    pub pages: u64,
    /// The zone has nothing to spare.
    pub refused: bool,
}

impl Allocator {
    /// Prepare to hold blocks of a zone. `merge`: buddies are merged.
    pub fn hold(&self, zone: ZoneId, merge: bool) -> HeldBlocks {
        let holder = self.holders.fetch_add(1, Relaxed);
        HeldBlocks { zone, lists: [const { List::new() }; ORDERS], pages: 0, holder, merge }
    }

    /// Take the free blocks off the zone's lists that begin between `at`, which advances, and `end`, which is in the
    /// same page block, until there are `enough` pages. As long as nothing is found, only every `stride`th frame that
    /// is not free is scanned.
    pub(crate) fn isolate_free<M: Machine>(
        &self,
        mmu: &Mmu<M>,
        held: &mut HeldBlocks,
        at: &mut Pfn,
        end: Pfn,
        (mut stride, enough): (u32, u64),
    ) -> Isolation {
        let zone = self.zone(held.zone);
        let mut out = Isolation::default();
        let mut area: Option<LockedZone<'_, M>> = None;
        while *at < end {
            if at.0.is_multiple_of(CLUSTER) {
                area = None;
            }
            let frame = &mmu.frames[*at];
            if !frame.has(FrameFlags::BUDDY) {
                let head = frame.has(FrameFlags::HEAD).then(|| frame.pages()).filter(|_| frame.refs() > 0);
                let step = head.unwrap_or(stride);
                out.scanned += if head.is_some() { step as u64 } else { 1 };
                *at = Pfn(at.0 + step);
                continue;
            }
            let area = area.get_or_insert_with(|| LockedZone::lock(mmu, zone));
            out.scanned += 1;
            let Some(order) = area.free_order(*at) else {
                // It was taken meanwhile.
                *at = Pfn(at.0 + stride);
                continue;
            };
            if !area.isolate(held, *at, order) {
                out.refused = true;
                break;
            }
            stride = 1;
            out.pages += order.frames() as u64;
            out.scanned += order.frames() as u64 - 1;
            *at = at.add(order.frames());
            if held.pages >= enough {
                break;
            }
        }
        *at = (*at).min(end);
        mmu.charge(Work::CompactScan, out.scanned.min(PAGEBLOCK_FRAMES as u64));
        out
    }

    /// Search the lists of movable free blocks of one order from the tail, at most `limit` blocks, as `look` decides
    /// ([`Search`]). Isolate the block where the search stops, or else the last one that it noted. Blocks that were
    /// looked at move to the other end of the list. Returns the block, and how many were looked at.
    pub(crate) fn isolate_by_list<M: Machine>(
        &self,
        mmu: &Mmu<M>,
        held: &mut HeldBlocks,
        order: Order,
        mut look: impl FnMut(Pfn) -> Search,
    ) -> (SearchOutcome, u64) {
        let zone = self.zone(held.zone);
        if zone.free_orders() >> order.0 & 1 == 0 {
            return (SearchOutcome::Nothing, 0);
        }
        let mut area = LockedZone::lock(mmu, zone);
        let (chosen, looked) = area.search(order, &mut look);
        mmu.charge(Work::CompactScan, looked);
        let found = match chosen {
            None => SearchOutcome::Nothing,
            Some(pfn) if area.isolate(held, pfn, order) => SearchOutcome::Block(pfn),
            Some(_) => SearchOutcome::Refused,
        };
        (found, looked)
    }

    /// The same from the head of the list, for a block that stays where it is.
    pub(crate) fn find_in_list<M: Machine>(
        &self,
        mmu: &Mmu<M>,
        zone: &Zone,
        order: Order,
        mut look: impl FnMut(Pfn) -> Search,
    ) -> (Option<Pfn>, u64) {
        if zone.free_orders() >> order.0 & 1 == 0 {
            return (None, 0);
        }
        let mut area = LockedZone::lock(mmu, zone);
        let (chosen, looked) = area.search_from_head(order, &mut look);
        mmu.charge(Work::CompactScan, looked);
        (chosen, looked)
    }

    /// Take a free block of at least `order` off the lists, in the fullest movable page block that has one and that
    /// `suits`, with its number of free pages. Only if fullness is tracked.
    pub(crate) fn isolate_in_fullest<M: Machine>(
        &self,
        mmu: &Mmu<M>,
        held: &mut HeldBlocks,
        order: Order,
        suits: impl Fn(Pfn, u32) -> bool,
    ) -> Isolation {
        let mut area = LockedZone::lock(mmu, self.zone(held.zone));
        let Some((pfn, size)) = area.in_fullest(order, Mobility::Movable, suits) else {
            return Isolation::default();
        };
        let refused = !area.isolate(held, pfn, size);
        Isolation { scanned: 1, pages: if refused { 0 } else { size.frames() as u64 }, refused }
    }

    /// The partly free movable page block with the most free pages that does not count as `tried`, and the number of
    /// free pages in all others.
    pub(crate) fn emptiest<M: Machine>(
        &self,
        mmu: &Mmu<M>,
        zone: ZoneId,
        tried: impl Fn(Pfn) -> bool,
    ) -> Option<(Pfn, u64)> {
        let area = LockedZone::lock(mmu, self.zone(zone));
        area.lists().dense.as_ref()?.emptiest(Mobility::Movable, tried)
    }

    /// If movable page blocks were emptied into fuller ones, the emptiest first: the fewest free pages of one that is
    /// emptied.
    pub(crate) fn emptied_from<M: Machine>(&self, mmu: &Mmu<M>, zone: ZoneId) -> u32 {
        let area = LockedZone::lock(mmu, self.zone(zone));
        area.lists().dense.as_ref().map_or(u32::MAX, |dense| dense.emptied_from(Mobility::Movable))
    }

    /// Return all blocks to the zone. Returns the highest block.
    pub fn release<M: Machine>(&self, mmu: &Mmu<M>, held: &mut HeldBlocks) -> Option<Pfn> {
        if held.pages == 0 {
            return None;
        }
        let mut area = LockedZone::lock(mmu, self.zone(held.zone));
        let (mut highest, mut blocks) = (None, 0);
        for order in (0..ORDERS as u8).map(Order) {
            while let Some(pfn) = held.lists[order.0 as usize].head() {
                let generation = held.remove(&mmu.frames, pfn, order);
                if order > PAGEBLOCK_ORDER {
                    // Merged from page blocks that may have been in different groups before they were whole.
                    area.zone().set_mobility(pfn, order, area.zone().mobility_of(pfn));
                }
                area.put_block(pfn, order, generation);
                highest = highest.max(Some(pfn));
                mmu.count(Stat::Pgfree, order.frames() as i64);
                blocks += 1;
            }
        }
        mmu.charge(Work::FreeBuddy, blocks);
        highest
    }
}

/// The decision of a search on a free block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Search {
    /// Continue.
    Pass,
    /// Continue, and take this one if no better one follows.
    Note,
    /// Take this one.
    Take,
    /// Stop: none of the following is wanted.
    Stop,
}

/// What a search isolated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SearchOutcome {
    Block(Pfn),
    /// A block was found, but the zone has nothing to spare.
    Refused,
    Nothing,
}

impl<M: Machine> LockedZone<'_, M> {
    /// Take a block off the lists to hold it. `false`: the zone would fall below its min watermark.
    fn isolate(&mut self, held: &mut HeldBlocks, pfn: Pfn, order: Order) -> bool {
        let zone = self.zone();
        let mark = zone.mark(Watermark::Min) + order.frames() as u64;
        if !above(self.lists().free(), Order::ZERO, mark, 0) {
            return false;
        }
        let generation = self.detach(pfn, order);
        // Whatever moves there can be moved again.
        if order >= PAGEBLOCK_ORDER {
            zone.set_mobility(pfn, order, Mobility::Movable);
        } else if order.0 + 1 == PAGEBLOCK_ORDER.0 {
            self.regroup_block(pfn, Mobility::Movable);
        }
        held.push(&self.mmu().frames, pfn, order, generation, true);
        true
    }

    /// Search the list of an order from its tail, clean blocks first. Blocks that were looked at move to the other
    /// end.
    fn search(&mut self, order: Order, look: &mut dyn FnMut(Pfn) -> Search) -> (Option<Pfn>, u64) {
        let frames = &self.mmu().frames;
        let (mut noted, mut looked, mut ends) = (None, 0, false);
        for pending in [false, true] {
            let (mut last, mut count) = (None, 0);
            let mut at = self.lists().both(order, Mobility::Movable)[pending as usize].tail();
            while let Some(pfn) = at.filter(|_| !ends) {
                at = Some(frames[pfn].prev()).filter(|prev| prev.is_some());
                (last, count) = (Some(pfn), count + 1);
                match look(pfn) {
                    Search::Pass => {}
                    Search::Note => noted = Some(pfn),
                    Search::Take => (noted, ends) = (Some(pfn), true),
                    Search::Stop => ends = true,
                }
            }
            if let Some(first) = last {
                self.tail_to_head((order, pending), first, count);
            }
            looked += count as u64;
        }
        (noted, looked)
    }

    /// Search the list of an order from its head. Blocks that were looked at move to the other end if the search
    /// stopped.
    fn search_from_head(&mut self, order: Order, look: &mut dyn FnMut(Pfn) -> Search) -> (Option<Pfn>, u64) {
        let frames = &self.mmu().frames;
        let mut looked = 0;
        for pending in [false, true] {
            let mut count = 0;
            let mut at = self.lists().both(order, Mobility::Movable)[pending as usize].head();
            while let Some(pfn) = at {
                at = Some(frames[pfn].next()).filter(|next| next.is_some());
                count += 1;
                let found = match look(pfn) {
                    Search::Pass | Search::Note => continue,
                    Search::Take => Some(pfn),
                    Search::Stop => None,
                };
                self.head_to_tail((order, pending), pfn, count);
                return (found, looked + count as u64);
            }
            looked += count as u64;
        }
        (None, looked)
    }
}
