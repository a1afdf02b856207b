//! The migrate scanner: finds folios to move.
//!
//! It goes upwards through a zone, page block by page block, and isolates folios that can be moved: those on LRU lists
//! that have no references but those of their entries and their cache. It isolates some thirty pages and moves them
//! before it continues. In asynchronous direct compaction it leaves a block of the wanted order alone once it finds an
//! immovable page there.

use super::{Compaction, FastStart, end_of};
use crate::alloc::{CLUSTER, COSTLY_ORDER, Search};
use crate::frame::{FrameFlags, List, Mobility};
use crate::knobs::Knob;
use crate::machine::{Machine, Work};
use crate::migrate::{self, Mode};
use crate::stat::Stat;
use crate::units::*;

/// What the scanner found at a frame.
enum Scanned {
    /// The head of a free block of this many pages.
    Free(u32),
    /// Nothing movable; this many pages can be skipped.
    Fixed(u32),
    /// A folio of this many pages was isolated.
    Isolated(u32),
    /// Another task is compacting this page block.
    Others,
}

/// State of the scan of one page block.
struct BlockScan {
    /// End of the block that is wanted: what was isolated is moved before the next block. `None`: it does not matter.
    boundary: Option<Pfn>,
    /// The block's skip bit has been tested and set.
    marked: bool,
    /// The scan began at the start of the block.
    from_start: bool,
    isolated: u64,
    scanned: u64,
}

impl<M: Machine> Compaction<'_, M> {
    /// Isolate folios from the first suitable page block at or after the scanner. Returns whether there are any.
    pub(super) fn isolate_sources(&mut self) -> bool {
        let mut low = self.find_source_block();
        let mut fast = low != self.migrate_at && self.search_failed == 0;
        let mut end = end_of(low, PAGEBLOCK_ORDER);
        while end <= self.free_at {
            if low.0.is_multiple_of(CLUSTER * PAGEBLOCK_ORDER.frames()) {
                self.core.machine.resched();
            }
            let begins = low.align_down(PAGEBLOCK_ORDER) == low || low == self.zone.start();
            let skipped = begins && !fast && self.skips(low);
            if !skipped && self.is_source(low) {
                self.isolate_from(low, end);
                break;
            }
            if !skipped {
                self.note_migrate(end);
            }
            fast = false;
            self.migrate_at = end;
            low = end;
            end = end.add(PAGEBLOCK_ORDER.frames());
        }
        self.waiting > 0
    }

    fn note_migrate(&self, pfn: Pfn) {
        self.zone.compaction.note_migrate(end_of(pfn, PAGEBLOCK_ORDER), !self.is_async());
    }

    /// Whether to isolate folios from a page block. Asynchronous direct compaction keeps to blocks of its own
    /// mobility; a block that is one folio is never a source.
    fn is_source(&self, pfn: Pfn) -> bool {
        let block = pfn.align_down(PAGEBLOCK_ORDER).max(self.zone.start());
        let first = &self.core.frames[block];
        if first.refs() > 0 && first.has(FrameFlags::HEAD) && first.order() >= PAGEBLOCK_ORDER {
            return false;
        }
        !(self.how.direct && self.is_async()) || self.zone.mobility_of(pfn) == self.how.mobility
    }

    /// Find a page block to empty in the free lists, near the scanner: a block that has free pages already is cheap to
    /// empty.
    fn find_source_block(&mut self) -> Pfn {
        let at = self.migrate_at;
        let begins = at == self.zone.start() || at.align_down(PAGEBLOCK_ORDER) == at;
        let order = self.how.order.filter(|&order| order > COSTLY_ORDER);
        let movable = !self.how.direct || self.how.mobility == Mobility::Movable;
        let (Some(order), true) = (order, begins && movable && !self.how.ignore_skip && !self.finish_block)
        else {
            return at;
        };
        let mut distance = self.free_at.0.saturating_sub(at.0) / 2;
        if at != self.zone.start() {
            distance /= 4;
        }
        let high = at.add(distance).align_down(PAGEBLOCK_ORDER);
        let (limit, mut looked) = (self.search_limit(), 0);
        for order in (COSTLY_ORDER.0..order.0).rev().map(Order) {
            if looked >= limit {
                break;
            }
            let mmu = &self.core;
            let (found, scanned) = self.core.alloc.find_in_list(mmu, self.zone, order, |pfn| {
                looked += 1;
                match () {
                    () if looked > limit => Search::Stop,
                    () if pfn < high && !self.zone.compaction.skips(pfn) => Search::Take,
                    () => Search::Pass,
                }
            });
            self.migrate_scanned += scanned;
            if let Some(found) = found {
                self.fast_start = match self.fast_start {
                    FastStart::Used => FastStart::Used,
                    FastStart::At(first) => FastStart::At(first.min(found)),
                    FastStart::Unknown => FastStart::At(found),
                };
                self.search_failed = 0;
                return found.align_down(PAGEBLOCK_ORDER).max(self.zone.start());
            }
        }
        self.search_failed += 1;
        if let FastStart::At(first) = self.fast_start {
            self.fast_start = FastStart::Used;
            self.migrate_at = first;
        }
        self.migrate_at
    }

    /// Isolate folios of one page block, from `low` on.
    pub(super) fn isolate_from(&mut self, low: Pfn, end: Pfn) {
        self.core.machine.resched();
        let wanted = self.how.order.filter(|_| self.how.direct && self.is_async());
        let begins = low.align_down(PAGEBLOCK_ORDER) == low || low == self.zone.start();
        let mut look = BlockScan {
            boundary: wanted.map(|order| end_of(low, order)),
            marked: false,
            from_start: begins,
            isolated: 0,
            scanned: 0,
        };
        let mut at = low;
        while at < end {
            if let (Some(boundary), Some(order)) = (look.boundary, wanted)
                && at >= boundary
            {
                if look.isolated > 0 {
                    break;
                }
                look.boundary = Some(end_of(at, order));
            }
            if at.0.is_multiple_of(CLUSTER) {
                self.core.machine.resched();
            }
            self.core.charge(Work::CompactScan, 1);
            match self.meet(at, &mut look) {
                Scanned::Others => {
                    look.scanned += 1;
                    at = end;
                }
                Scanned::Free(pages) => {
                    look.scanned += pages as u64;
                    at = at.add(pages);
                }
                Scanned::Isolated(pages) => {
                    look.scanned += pages as u64;
                    at = at.add(pages);
                    if self.waiting >= CLUSTER as u64 && !self.finish_block {
                        break;
                    }
                }
                Scanned::Fixed(pages) => {
                    look.scanned += pages as u64;
                    at = at.add(pages);
                    if let (Some(boundary), Some(order)) = (look.boundary, wanted) {
                        // The block cannot be made whole: the folios isolated for it stay where they are.
                        self.put_back_sources();
                        look.isolated = 0;
                        if at < boundary {
                            at = boundary;
                            look.boundary = Some(boundary.add(order.frames()));
                        }
                    }
                }
            }
        }
        self.end_look(at.min(end), end, look);
    }

    /// Record how far the scan of a page block came.
    fn end_look(&mut self, at: Pfn, end: Pfn, look: BlockScan) {
        if at == end && (look.isolated == 0 || self.finish_block) {
            if look.from_start && !look.marked {
                self.zone.compaction.set_skip(Pfn(end.0 - 1));
            }
            self.note_migrate(end);
        }
        self.migrate_scanned += look.scanned;
        self.core.count(Stat::CompactIsolated, look.isolated as i64);
        self.migrate_at = at;
    }

    /// Examine a frame, and isolate its folio if that can be moved.
    fn meet(&mut self, at: Pfn, look: &mut BlockScan) -> Scanned {
        let core = self.core;
        let frame = &core.frames[at];
        let flags = frame.flags();
        if flags.contains(FrameFlags::BUDDY) {
            // Read without the zone's lock: another task may be taking the block.
            return Scanned::Free(frame.guess_free_order().frames());
        }
        if flags.contains(FrameFlags::HEAD) && frame.refs() > 0 && self.too_large(frame.order()) {
            return Scanned::Fixed(frame.pages());
        }
        let movable = flags.contains(FrameFlags::LRU) && self.suits(flags);
        if !movable {
            return Scanned::Fixed(1);
        }
        if look.from_start && !look.marked {
            look.marked = true;
            let set = !self.how.ignore_skip && self.zone.compaction.set_skip(at);
            if set && !self.finish_block {
                return Scanned::Others;
            }
        }
        let Ok(order) = migrate::isolate(core, at) else { return Scanned::Fixed(1) };
        if self.too_large(order) {
            migrate::put_back(core, at);
            return Scanned::Fixed(order.frames());
        }
        self.sources.push_tail(&core.frames, at);
        self.waiting += order.frames() as u64;
        look.isolated += order.frames() as u64;
        Scanned::Isolated(order.frames())
    }

    /// Whether it is useless to move folios of this size. No free block fits folios as large as the wanted block, and
    /// free blocks larger than a page block are not made.
    fn too_large(&self, order: Order) -> bool {
        order >= PAGEBLOCK_ORDER
            || self.how.order.is_some_and(|wanted| order >= wanted)
            || (order > Order::ZERO && !self.folios.moves_large())
    }

    /// Whether a folio with these flags may be moved now.
    pub(super) fn suits(&self, flags: FrameFlags) -> bool {
        let unevictable = flags.contains(FrameFlags::UNEVICTABLE)
            && self.core.knobs.get(Knob::CompactUnevictableAllowed) == 0;
        let busy = flags.contains(FrameFlags::WRITEBACK) && self.how.mode != Mode::Sync;
        !unevictable && !busy
    }

    /// Put all isolated folios back on their lists.
    fn put_back_sources(&mut self) {
        while let Some(pfn) = self.sources.pop_tail(&self.core.frames) {
            migrate::put_back(self.core, pfn);
        }
        self.waiting = 0;
    }

    /// Take the isolated folios, in the order in which they are to be moved, from the tail.
    pub(super) fn take_sources(&mut self, largest_first: bool) -> List {
        let mut sources = core::mem::take(&mut self.sources);
        if !largest_first {
            return sources;
        }
        let frames = &self.core.frames;
        let mut by_order = [const { List::new() }; PAGEBLOCK_ORDER.0 as usize + 1];
        while let Some(pfn) = sources.pop_head(frames) {
            by_order[frames[pfn].order().0 as usize].push_tail(frames, pfn);
        }
        by_order.iter_mut().for_each(|list| sources.splice_tail(frames, list));
        sources
    }
}
