//! A folio's life: how it is allocated, locked, split, replaced and dropped, whatever its size.
//!
//! - *Allocated* (here): charged to a group, with one reference and no owner yet.
//! - *Dropped* ([`Memory::put`] and its variants): dropping the last reference frees the folio. References held by
//!   entries are dropped after the flush.
//! - *Locked* ([`Memory::lock_folio`]): its owner and index, its size, and its place in a cache and in swap do not
//!   change while the caller holds the lock.
//! - *Split* ([`MmCore::split_folio`](crate::mm_core::MmCore::split_folio)): anonymous folios while mapped, file folios
//!   after they are unmapped.
//! - *Replaced* ([`MmCore::replace_folio`](crate::mm_core::MmCore::replace_folio)): another folio takes its place.
//!
//! The effects on files, page tables and lists are implemented there (`cache`, `rmap`, `lru`); other modules call the
//! functions here.

mod lock;
mod put;
mod replace;
mod split;

use crate::alloc::{AllocRequest, NeedsReclaim, Watermark};
use crate::frame::{FolioPages, FrameFlags, Mobility, Owner};
use crate::machine::{Machine, ZoneKind};
use crate::memory::{Gfp, Memory, Shortage, Worth};
use crate::mempolicy::NodePreference;
use crate::stat::{SizeStat, Stat};
use crate::units::*;
use smallvec::SmallVec;

/// Pages that nothing shows yet.
pub(crate) type NewPages = SmallVec<[Pfn; 32]>;

impl<M: Machine> Memory<M> {
    /// Allocate a movable folio for user data, charged to the group of `gfp`, with one reference. Its content is
    /// undefined: zero it or read into it.
    #[inline(always)]
    pub fn new_folio(&self, order: Order, gfp: Gfp) -> Result<Pfn, Shortage> {
        self.lru.groups.try_charge(self, gfp.group, order.frames() as u64).map_err(Shortage::Group)?;
        let (node, among) = self.place(gfp.place, order);
        let request = AllocRequest {
            order,
            mobility: Mobility::Movable,
            node,
            highest: ZoneKind::Movable,
            reserve: gfp.reserve,
            this_node_only: false,
            among,
            atomic: false,
            mixes: gfp.mixes,
        };
        match self.alloc.take(self, &request, gfp.mark) {
            Ok(fresh) => {
                let pfn = fresh.into_pfn();
                self.frames[pfn].set_group(gfp.group);
                if !gfp.place.is_near() {
                    self.note_turn(gfp.place, node, pfn);
                }
                Ok(pfn)
            }
            Err(needs) => {
                self.lru.groups.uncharge(self, gfp.group, 1, order.frames() as u64);
                Err(needs.into())
            }
        }
    }

    /// The same for several pages, or none of them if memory is short.
    pub(crate) fn new_pages(&self, count: usize, gfp: Gfp) -> Result<NewPages, Shortage> {
        let page = || match self.new_folio(Order::ZERO, gfp) {
            // The pages between the marks are for the time until kswapd, which has been woken, has made room.
            Err(Shortage::Zone(_)) if gfp.mark == Watermark::Low => {
                self.new_folio(Order::ZERO, Gfp { mark: Watermark::Min, ..gfp })
            }
            other => other,
        };
        let mut pages = NewPages::new();
        for _ in 0..count {
            match page() {
                Ok(pfn) => pages.push(pfn),
                Err(shortage) => {
                    self.put_folios(pages.into_iter().map(|pfn| (pfn, 1)));
                    return Err(shortage);
                }
            }
        }
        Ok(pages)
    }

    /// Count an interleaved allocation that got the node whose turn it was.
    #[cold]
    #[inline(never)]
    fn note_turn(&self, place: NodePreference, turn: NodeId, pfn: Pfn) {
        let frame = &self.frames[pfn];
        if place.is_interleaved() && frame.node() == turn {
            self.count(Stat::NumaInterleave, i64::from(frame.pages()));
        }
    }

    /// The preferred node for memory of an order, and the allowed nodes.
    #[inline]
    fn place(&self, place: NodePreference, order: Order) -> (NodeId, Nodes) {
        let here = self.node();
        if place.is_near() { (here, Nodes::ALL) } else { place.choose(&self.machine, here, order) }
    }

    /// Make a new folio of several pages anonymous memory from `index` of its owner on; one process alone maps each
    /// page. Its content is still undefined.
    pub(crate) fn make_large_anon(&self, pfn: Pfn, owner: Owner, index: PageIndex) {
        let frame = &self.frames[pfn];
        frame.set_owner(owner, index);
        frame.set(FrameFlags::UPTODATE | FrameFlags::SWAPBACKED | FrameFlags::EXCLUSIVE);
        for tail in FolioPages::all(&self.frames, pfn).iter().skip(1) {
            self.frames[tail].assign(FrameFlags::TAIL | FrameFlags::EXCLUSIVE);
        }
        self.sizes.count(SizeStat::NrAnon, frame.order(), 1);
    }

    /// Whether a block of `order` is available near this CPU without going below the mark. For large folios where
    /// smaller ones would do: no daemon is woken and nothing is reclaimed for a block that is only convenient.
    pub(crate) fn has_block(&self, order: Order, gfp: Gfp) -> bool {
        let highest = ZoneKind::Movable;
        let (node, _) = self.place(gfp.place, order);
        let mut zones = self.alloc.zones_of(node, highest);
        zones.any(|zone| zone.watermark_ok(order, gfp.mark, highest, gfp.reserve))
    }

    /// As [`Memory::has_block`]; if there is no block, make the effort that a block is worth. `Err`: the caller must
    /// have a block made and retry.
    pub(crate) fn find_block(&self, order: Order, gfp: Gfp, worth: Worth) -> Result<bool, Shortage> {
        if self.has_block(order, gfp) {
            return Ok(true);
        }
        let (node, among) = self.place(gfp.place, order);
        let needs = NeedsReclaim { order, node, highest: ZoneKind::Movable, among, apart: false };
        if gfp.given_up <= order {
            // The block may have been made on another node.
            let suits = |&id: &ZoneId| {
                among.contains(self.alloc.zone(id).node())
                    && self.alloc.zone(id).watermark_ok(order, gfp.mark, needs.highest, gfp.reserve)
            };
            return Ok(self.alloc.zonelist(needs.node, needs.highest).iter().any(suits));
        }
        if worth.wake {
            self.alloc.wake_for_block(self, needs.node, needs.order, needs.highest);
        }
        if worth.wait { Err(Shortage::Block { needs, hard: worth.hard }) } else { Ok(false) }
    }
}
