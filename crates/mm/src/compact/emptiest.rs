//! Compaction of a whole zone by the fullness of its page blocks (`alloc.placement` = `densest`).
//!
//! Two scanners that approach each other move everything in the lower part, full page blocks as well as almost empty
//! ones. This mode empties the page block with the fewest pages in use into those with the most, then the next: the
//! fewest moves for each block that becomes whole. It ends when the pages of the next block do not fit into fuller
//! ones.

use super::{Compaction, Outcome};
use crate::frame::FrameFlags;
use crate::machine::{Machine, Work};
use crate::stat::Stat;
use crate::units::*;
use std_alloc::collections::BTreeSet;

const BLOCK: u32 = PAGEBLOCK_ORDER.frames();

impl<M: Machine> Compaction<'_, M> {
    /// Empty page blocks, the emptiest first, until compaction is finished.
    pub(super) fn go_by_fullness(&mut self) -> Outcome {
        let mut tried = BTreeSet::new();
        self.emptied_from = self.core.alloc.emptied_from(self.core, self.zone.id());
        loop {
            let enough = self.enough_by_fullness();
            if enough != Outcome::Continue {
                return enough;
            }
            let Some((block, room)) = self.emptiest(&tried) else { return Outcome::Complete };
            tried.insert(block);
            let Some(used) = self.movable_pages(block) else { continue };
            if used > room {
                return Outcome::Complete;
            }
            if !self.empty(block) {
                if self.emptied_from == u32::MAX {
                    return Outcome::Contended;
                }
                // Some blocks cannot be emptied: let them receive folios like others.
                self.emptied_from = u32::MAX;
            }
        }
    }

    fn enough_by_fullness(&self) -> Outcome {
        if self.core.machine.stopping() {
            return Outcome::Contended;
        }
        if self.how.proactive { self.proactive_enough() } else { Outcome::Continue }
    }

    /// The page block with the fewest pages in use that has not been tried, and the number of free pages in all other
    /// partly free blocks.
    fn emptiest(&self, tried: &BTreeSet<Pfn>) -> Option<(Pfn, u64)> {
        self.core.alloc.emptiest(self.core, self.zone.id(), |block| tried.contains(&block))
    }

    /// Number of pages in use in a page block; `None` if it visibly cannot be emptied.
    fn movable_pages(&mut self, block: Pfn) -> Option<u64> {
        let (mut at, mut used, end) = (block, 0, block.add(BLOCK));
        if end > self.zone.end() {
            return None;
        }
        while at < end {
            let frame = &self.core.frames[at];
            self.migrate_scanned += 1;
            self.core.charge(Work::CompactScan, 1);
            let flags = frame.flags();
            if flags.contains(FrameFlags::BUDDY) {
                at = at.add(frame.guess_free_order().frames());
                continue;
            }
            let listed = flags.contains(FrameFlags::LRU) && self.suits(flags);
            if !listed && !flags.contains(FrameFlags::PCP) {
                return None;
            }
            let pages = frame.pages();
            used += if listed { u64::from(pages) } else { 0 };
            at = at.add(pages);
        }
        Some(used)
    }

    /// Move everything out of a page block. Returns `false` if there is no room for it.
    fn empty(&mut self, block: Pfn) -> bool {
        self.migrate_at = block;
        self.emptying = Some(block);
        let (end, mut room) = (block.add(BLOCK), true);
        while self.migrate_at < end && room {
            let at = self.migrate_at;
            self.isolate_from(at, end);
            room = self.waiting == 0 || !self.move_sources().no_room;
        }
        self.core.alloc.drain_here(self.core, self.zone.id());
        room
    }

    /// Isolate a free block of at least `order` in the fullest page block that has one, but never in a block that is
    /// or will be emptied: its folios would be moved again.
    pub(super) fn isolate_in_fullest(&mut self, order: Order, emptying: Pfn) {
        let mmu = &self.core;
        let done = self.core.alloc.isolate_in_fullest(mmu, &mut self.held, order, |block, free| {
            block != emptying && free <= self.emptied_from
        });
        self.free_scanned += done.scanned;
        self.core.count(Stat::CompactIsolated, done.pages as i64);
    }
}
