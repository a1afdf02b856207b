//! From the buddy lists to use, through the ledger.
//!
//! A block leaves the buddy lists, or the pending list of a CPU, as an [`Owing`]: CPUs may still hold translations to
//! its frames. It can only be settled, with no lock held, because a payment may send interrupts. Only a [`Clean`] block
//! is put on a CPU's other lists or handed out. So nothing else sees a block that owes before it is paid for.

use super::zone::Zone;
use crate::event::{Concern, Event};
use crate::frame::{FrameTable, List};
use crate::machine::Machine;
use crate::mmu::Mmu;
use crate::stat::Stat;
use crate::tlb::Generation;
use crate::units::*;
use base::linear;

/// A block just taken from the buddy lists.
#[derive(Debug)]
#[must_use = "dropping it loses the pages"]
pub(super) struct Owing {
    pfn: Pfn,
    order: Order,
    generation: Generation,
}

linear!(Owing, "a block taken from the buddy lists must be settled");

impl Owing {
    pub fn new(pfn: Pfn, order: Order, generation: Generation) -> Owing {
        Owing { pfn, order, generation }
    }

    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    pub fn order(&self) -> Order {
        self.order
    }

    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Pay its debt, if that is not paid yet.
    pub fn settle<M: Machine>(self, mmu: &Mmu<M>, zone: &Zone) -> Clean {
        settle(mmu, zone, self.generation, self.pfn, self.order);
        let clean = Clean { pfn: self.pfn };
        self.spend();
        clean
    }
}

/// A block that owes nothing.
#[derive(Debug)]
#[must_use = "dropping it loses the pages"]
pub(super) struct Clean {
    pfn: Pfn,
}

impl Clean {
    /// A block of a CPU's list, which is clean.
    #[inline]
    pub(crate) fn of_list(pfn: Pfn) -> Clean {
        Clean { pfn }
    }

    #[inline]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// Hand it out as a folio of this order.
    #[inline]
    pub(crate) fn into_fresh(self, order: Order) -> Fresh {
        Fresh { pfn: self.pfn, order }
    }
}

/// One folio, just allocated: one reference, no flags but HEAD, no owner, unmapped, not charged.
///
/// Only the allocator makes one, from a block that owes nothing, and it is used once.
#[derive(Debug)]
#[must_use = "dropping it loses the pages"]
pub struct Fresh {
    pfn: Pfn,
    order: Order,
}

impl Fresh {
    /// The folio's head.
    #[inline]
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The folio's order.
    #[inline]
    pub fn order(&self) -> Order {
        self.order
    }

    /// Start to use it.
    #[inline]
    pub fn into_pfn(self) -> Pfn {
        self.pfn
    }
}

/// Blocks of one order just taken from the buddy lists.
#[must_use = "dropping it loses the pages"]
pub(super) struct OwingList {
    blocks: List,
    order: Order,
    newest: Generation,
}

impl OwingList {
    pub fn new(order: Order) -> OwingList {
        OwingList { blocks: List::new(), order, newest: Generation::NONE }
    }

    /// Add a block that has been divided into blocks of this list's order.
    pub fn push(&mut self, frames: &FrameTable, block: Owing) {
        self.newest = self.newest.max(block.generation);
        let step = self.order.frames();
        self.blocks.push_tail_run(frames, block.pfn, block.order.frames() / step, step);
        block.spend();
    }

    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Pay all their debts in one payment.
    pub fn settle<M: Machine>(self, mmu: &Mmu<M>, zone: &Zone) -> CleanList {
        if let Some(first) = self.blocks.head() {
            settle(mmu, zone, self.newest, first, self.order);
        }
        if self.newest != Generation::NONE {
            for pfn in self.blocks.iter(&mmu.frames) {
                let concern = Concern::Frames { first: pfn, count: self.order.frames() };
                mmu.event(Event::TlbSettle, concern.args());
            }
        }
        CleanList(self.blocks)
    }
}

/// Blocks that owe nothing.
#[must_use = "dropping it loses the pages"]
pub(super) struct CleanList(List);

impl CleanList {
    pub fn pop(&mut self, frames: &FrameTable) -> Option<Clean> {
        self.0.pop_head(frames).map(|pfn| Clean { pfn })
    }

    pub(crate) fn into_list(self) -> List {
        self.0
    }
}

/// Pay a block's debt, if that is not paid yet. The caller holds no lock: this may send interrupts.
pub(super) fn settle<M: Machine>(mmu: &Mmu<M>, zone: &Zone, generation: Generation, pfn: Pfn, order: Order) {
    if generation == Generation::NONE {
        return;
    }
    mmu.count(Stat::TlbPendingTaken, 1);
    if generation > mmu.tlb.paid_up_to(zone.id()) {
        mmu.tlb.settle_zone(mmu.host(), zone.id(), generation, pfn, order);
    }
}
