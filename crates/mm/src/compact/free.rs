//! The free scanner: finds places to move folios to.
//!
//! It searches the zone's free lists first, for blocks high between the scanners; if that finds nothing, it goes
//! downwards page block by page block. The blocks are kept as they are, by size (`alloc::HeldBlocks`).

use super::{Compaction, end_of};
use crate::alloc::{CLUSTER, Fresh, Search, SearchOutcome};
use crate::frame::{FrameFlags, Mobility};
use crate::machine::Machine;
use crate::migrate::Target;
use crate::mm_core::MmCore;
use crate::stat::Stat;
use crate::units::*;

const BLOCK: u32 = PAGEBLOCK_ORDER.frames();

impl<M: Machine> Target<M> for Compaction<'_, M> {
    fn take(&mut self, core: &MmCore<M>, _from: Pfn, order: Order) -> Option<Fresh> {
        if !self.folios.keeps(order) {
            return None;
        }
        let split = self.folios.splits_free();
        let mmu = core;
        let taken = self.held.take(mmu, self.zone, order, split).or_else(|| {
            match self.emptying {
                Some(block) => self.isolate_in_fullest(order, block),
                None => self.isolate_free(),
            }
            self.held.take(mmu, self.zone, order, split)
        })?;
        self.waiting = self.waiting.saturating_sub(order.frames() as u64);
        Some(taken)
    }

    fn give_back(&mut self, core: &MmCore<M>, unused: Fresh) {
        self.waiting += unused.order().frames() as u64;
        self.held.give_back(core, unused);
    }
}

impl<M: Machine> Compaction<'_, M> {
    fn has_enough(&self) -> bool {
        self.held.pages() >= self.waiting
    }

    /// Isolate free pages for the folios that wait to be moved.
    fn isolate_free(&mut self) {
        self.search_lists();
        if self.held.pages() > 0 {
            return;
        }
        let mut stride = if self.is_async() { CLUSTER } else { 1 };
        let lowest = end_of(self.migrate_at, PAGEBLOCK_ORDER);
        let mut block = self.free_at.align_down(PAGEBLOCK_ORDER);
        let mut at = self.free_at;
        while block >= lowest {
            if block.0.is_multiple_of(CLUSTER * BLOCK) {
                self.core.machine.resched();
            }
            let end = Pfn((block.0 + BLOCK).min(self.zone.end().0));
            let below = Pfn(block.0 - BLOCK);
            if self.is_target(block) && !self.skips(block) {
                let found = self.isolate_block(&mut at, end, stride);
                if at == end {
                    self.note_scanned(block, below);
                }
                if self.has_enough() {
                    // The next scan continues in this block.
                    at = if at >= end { below } else { at };
                    break;
                }
                if at < end {
                    // The zone has no pages to spare.
                    break;
                }
                stride = if found > 0 { 1 } else { (stride * 2).min(CLUSTER) };
            }
            block = below;
            at = below;
        }
        self.free_at = at;
    }

    /// Record that a page block has been scanned to its end, so it is full or has nothing to offer.
    fn note_scanned(&self, block: Pfn, below: Pfn) {
        self.zone.compaction.set_skip(block);
        self.zone.compaction.note_free(below);
    }

    /// Isolate free pages of one page block from `at` on, and advance `at`. Returns the number of pages.
    fn isolate_block(&mut self, at: &mut Pfn, end: Pfn, stride: u32) -> u64 {
        let mmu = &self.core;
        let done = self.core.alloc.isolate_free(mmu, &mut self.held, at, end, (stride, self.waiting));
        self.free_scanned += done.scanned;
        self.core.count(Stat::CompactIsolated, done.pages as i64);
        done.pages
    }

    /// Whether folios may be moved to a page block: not if that breaks up a free block that is large enough already.
    fn is_target(&self, block: Pfn) -> bool {
        let frame = &self.core.frames[block];
        let most = self.how.order.filter(|order| order.0 > 0).unwrap_or(PAGEBLOCK_ORDER);
        if frame.has(FrameFlags::BUDDY) && frame.guess_free_order() >= most {
            return false;
        }
        self.how.ignore_suitable || self.zone.mobility_of(block) == Mobility::Movable
    }

    /// Search the zone's free lists of smaller orders than the wanted one for a block high up: in the last quarter
    /// between the scanners, or else in the upper half.
    fn search_lists(&mut self) {
        let Some(wanted) = self.how.order.filter(|order| order.0 > 0) else { return };
        let mut limit = (self.search_limit() / 2).max(1);
        let starts = self.free_at >= self.zone.compaction.first_free();
        if starts {
            limit = u64::from(BLOCK / 2);
        }
        let distance = self.free_at.0.saturating_sub(self.migrate_at.0);
        let low = Pfn(self.free_at.0 - distance / 4).align_down(PAGEBLOCK_ORDER);
        let least = Pfn(self.free_at.0 - distance / 2).align_down(PAGEBLOCK_ORDER);
        let mut search = ListSearch { low, least, limit, highest: Pfn(0), found: None };
        self.search_order = self.search_order.min(wanted.0 - 1);
        let first = self.search_order;
        for order in (0..=first).rev().chain((first + 1..wanted.0).rev()).map(Order) {
            if !self.search_list(order, &mut search) || self.has_enough() {
                break;
            }
        }
        if search.found.is_none() {
            // The next search begins one order lower.
            self.search_order = first.checked_sub(1).unwrap_or(wanted.0 - 1);
            self.search_failed += 1;
            if starts {
                self.start_below(&mut search);
            }
        }
        let compaction = &self.zone.compaction;
        if search.highest.0 >= compaction.cached_free().0.max(1) {
            compaction.set_free(Pfn(search.highest.0.saturating_sub(BLOCK)));
        }
        if let Some(found) = search.found {
            self.isolate_around(found);
        }
    }

    /// Search the list of one order. Returns whether to search further lists.
    fn search_list(&mut self, order: Order, search: &mut ListSearch) -> bool {
        let mmu = &self.core;
        let (mut looked, mut best) = (0, Pfn(0));
        let (found, scanned) = self.core.alloc.isolate_by_list(mmu, &mut self.held, order, |pfn| {
            looked += 1;
            search.highest = search.highest.max(pfn.align_down(PAGEBLOCK_ORDER));
            if pfn >= search.low {
                best = pfn;
                return Search::Take;
            }
            let better = pfn >= search.least && pfn > best;
            if better {
                best = pfn;
                search.limit /= 2;
            }
            match (looked >= search.limit, better) {
                (true, true) => Search::Take,
                (true, false) => Search::Stop,
                (false, true) => Search::Note,
                (false, false) => Search::Pass,
            }
        });
        self.free_scanned += scanned;
        match found {
            SearchOutcome::Block(pfn) => {
                if pfn >= search.low {
                    self.search_failed = 0;
                    self.search_order = order.0;
                }
                self.free_scanned += order.frames() as u64 - 1;
                self.core.count(Stat::CompactIsolated, order.frames() as i64);
                search.found = Some(pfn);
                return false;
            }
            SearchOutcome::Refused => return false,
            SearchOutcome::Nothing => {}
        }
        if looked >= search.limit {
            search.limit = (search.limit / 2).max(1);
        }
        true
    }

    /// Reposition the scanner after the first search of a pass has failed: at the highest block seen, or half-way.
    fn start_below(&mut self, search: &mut ListSearch) {
        if search.highest >= search.least && search.highest.0 > 0 {
            self.free_at = search.highest;
            search.found = Some(search.highest);
        } else if self.how.direct {
            self.free_at = search.least.max(self.zone.start());
            search.found = Some(self.free_at).filter(|&block| self.is_target(block));
        }
    }

    /// Isolate more free pages around a free block that was found.
    fn isolate_around(&mut self, pfn: Pfn) {
        if self.has_enough() || (self.how.direct && self.is_async()) {
            return;
        }
        let mut at = pfn.align_down(PAGEBLOCK_ORDER).max(self.zone.start());
        let block = at;
        let end = Pfn(end_of(pfn, PAGEBLOCK_ORDER).0.min(self.zone.end().0));
        self.isolate_block(&mut at, end, 1);
        if at == end {
            self.zone.compaction.set_skip(block);
        }
    }
}

/// What a search of the lists wants, and what it has seen.
struct ListSearch {
    /// A block from here on is preferred.
    low: Pfn,
    /// A block from here on is acceptable.
    least: Pfn,
    /// Blocks to examine per list.
    limit: u64,
    /// The highest page block that had a free block.
    highest: Pfn,
    found: Option<Pfn>,
}
