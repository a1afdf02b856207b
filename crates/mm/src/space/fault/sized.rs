//! First stores to anonymous memory that may have large folios.
//!
//! The folio has the largest enabled size whose aligned range is inside the mapped range, has no entry yet, and for
//! which memory has a block, or gets one within what the knob `thp.defrag` allows. The folio is zeroed whole, and
//! mapped whole in one step.

use super::{Fault, FaultStop, Served};
use crate::frame::{FolioPages, Owner};
use crate::knobs::AnonSizes;
use crate::machine::{Machine, Work};
use crate::memory::{Shortage, Worth};
use crate::primitive::Ordering::*;
use crate::space::VmaFlags;
use crate::stat::{SizeStat, Stat};
use crate::table::{LockedTables, Resident, Writes};
use crate::units::*;

impl<M: Machine> Fault<'_, M> {
    /// Serve the fault with a folio of one of these sizes. `None`: only a single page will do.
    #[cold]
    #[inline(never)]
    pub(super) fn store_to_large_folio(&self, sizes: AnonSizes) -> Result<Option<Served>, FaultStop> {
        if self.vma.flags.contains(VmaFlags::NOHUGEPAGE) {
            return Ok(None);
        }
        let asked = self.vma.flags.contains(VmaFlags::HUGEPAGE);
        let fits = |order: &Order| self.is_empty_around(*order);
        // A smaller range is part of a larger one: once one fits, all smaller ones do.
        for order in sizes.orders(asked).skip_while(|order| !fits(order)) {
            if let Some(pfn) = self.new_large_anon(order, asked)? {
                return self.map_large_anon(pfn, order).map(Some);
            }
            self.core.sizes.count(SizeStat::AnonFaultFallback, order, 1);
            self.core.count(Stat::ThpFaultFallback, i64::from(order == PAGEBLOCK_ORDER));
        }
        Ok(None)
    }

    /// First page of the aligned range of a size around the fault. The range is inside one table.
    pub(super) fn start_of(&self, order: Order) -> Vpn {
        Vpn(self.page.0 >> order.0 << order.0)
    }

    /// Whether the aligned range of a size around the fault is inside the mapped range and has no entry yet.
    fn is_empty_around(&self, order: Order) -> bool {
        let (start, pages) = (self.start_of(order), order.frames());
        if start < self.vma.start || start.0 + pages as u64 > self.vma.end().0 {
            return false;
        }
        let tables = self.lock();
        let Some(first) = tables.find(start) else { return true };
        if first.is_large() {
            return false;
        }
        let empty = tables.empty_from(first.slot, pages);
        self.core.charge(Work::EntryScan, u64::from(empty));
        empty == pages
    }

    /// A new zeroed folio for this range, with one reference. `None`: there is no room for it.
    fn new_large_anon(&self, order: Order, asked: bool) -> Result<Option<Pfn>, Shortage> {
        if !self.core.find_block(order, self.gfp, Worth::of_anon(&self.core.knobs, asked))? {
            return Ok(None);
        }
        let pfn = match self.core.new_folio(order, self.gfp) {
            Ok(pfn) => pfn,
            Err(Shortage::Group(_)) => {
                self.core.sizes.count(SizeStat::AnonFaultFallbackCharge, order, 1);
                return Ok(None);
            }
            Err(_) => return Ok(None),
        };
        let index = self.vma.anon_index(self.start_of(order));
        self.core.make_large_anon(pfn, Owner::Anon(self.anon_set()), index);
        self.core.zero(pfn, order.frames());
        Ok(Some(pfn))
    }

    /// Map a new folio whole. The caller's reference passes to its entries.
    fn map_large_anon(&self, pfn: Pfn, order: Order) -> Result<Served, FaultStop> {
        let (start, all) = (self.start_of(order), FolioPages::all(&self.core.frames, pfn));
        if order == PAGEBLOCK_ORDER
            && let Some(served) = self.map_anon_entirely(pfn, start)?
        {
            return Ok(served);
        }
        let is_empty = |tables: &LockedTables<'_, M>, slot| {
            tables.read(slot).is_none() && tables.empty_from(slot, all.count) == all.count
        };
        let (tables, slot) = match self.lock().reserve_first(&self.core.alloc, start, self.gfp.means()) {
            Ok((tables, slot)) if is_empty(&tables, slot) => (tables, slot),
            lost => {
                let lost = lost.map(drop);
                self.core.put(pfn);
                // If another task was faster, the access is tried again.
                return lost.map(|()| Served::MINOR).map_err(FaultStop::from);
            }
        };
        let mut tables = tables.settle_at(slot, start);
        self.core.frames[pfn].get(all.count - 1);
        for (at, pages) in self.steps(all) {
            let page = Vpn(start.0 + at as u64);
            self.install_at(&mut tables, slot.ahead(at), page, pages, Writes::Private);
        }
        // Once the tables are unlocked, another task may unmap and free it.
        self.core.lru.add(self.core, Some(pfn), self.gfp.is_faulted());
        drop(tables);
        self.core.sizes.count(SizeStat::AnonFaultAlloc, order, 1);
        Ok(Served::MINOR)
    }

    /// Map a new folio of 2 MiB by one entry. `None`: there is a table already, so its pages must be mapped one by
    /// one.
    fn map_anon_entirely(&self, pfn: Pfn, start: Vpn) -> Result<Option<Served>, FaultStop> {
        let alloc = &self.core.alloc;
        let mut tables = self.lock();
        let reserved = tables.reserve_large(alloc, start, self.gfp.means());
        let reserved = reserved.and_then(|slot| match slot {
            Some(_) => tables.deposit(alloc, self.gfp.means()).map(|()| slot),
            None => Ok(None),
        });
        let slot = match reserved {
            Ok(Some(slot)) => slot,
            Ok(None) => return Ok(None),
            Err(needs) => {
                drop(tables);
                self.core.put(pfn);
                return Err(needs.into());
            }
        };
        self.space.large.store(true, Relaxed);
        self.core.rmap.add_large(self.core, pfn);
        tables.counts().add(Resident::Anon, TABLE_ENTRIES as i64);
        self.core.charge(Work::EntrySet, 1);
        let mut tables = tables.settle_at(slot, start);
        tables.install_large(slot, start, pfn, self.rights(true), Writes::Private);
        self.core.lru.add(self.core, Some(pfn), self.gfp.is_faulted());
        drop(tables);
        self.core.sizes.count(SizeStat::AnonFaultAlloc, PAGEBLOCK_ORDER, 1);
        self.count(Stat::ThpFaultAlloc);
        Ok(Some(Served::MINOR))
    }
}
