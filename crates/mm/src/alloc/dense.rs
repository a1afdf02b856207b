//! Page blocks by fullness, so that requests are served from the fullest (`alloc.placement` = `densest`).
//!
//! The buddy lists know sizes only, and the block freed last is taken first. Over time every page block contains a
//! page in use, and no page block becomes whole again. If pages come from the page block with the fewest free pages,
//! the others run empty: whole blocks return without moving any page. (llfree chooses trees of 2 MiB blocks by such
//! classes; here each count is a class.)
//!
//! For each partly free page block this keeps the number of free pages, a bit for each free block that begins in it,
//! and its position on the list of page blocks with that number. Whole page blocks are not tracked: they are taken
//! when nothing else is left.

use crate::frame::Mobility;
use crate::units::*;
use std_alloc::boxed::Box;
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec;
use std_alloc::vec::Vec;

/// Frames in a page block.
const FRAMES: usize = PAGEBLOCK_ORDER.frames() as usize;
const WORDS: usize = FRAMES / 64;
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Block {
    /// Bit n: a free block begins at its frame n.
    heads: [u64; WORDS],
    /// Pages in these blocks.
    free: u16,
    group: Mobility,
    next: u32,
    prev: u32,
}

/// The page blocks of a zone.
pub(super) struct Dense {
    start: Pfn,
    blocks: Box<[Block]>,
    /// The first page block by number of free pages.
    first: Box<[[u32; FRAMES]; Mobility::COUNT]>,
    /// Bit n: there is one with n free pages.
    filled: [[u64; WORDS]; Mobility::COUNT],
    /// Free pages in all of them.
    free: [u64; Mobility::COUNT],
}

impl Dense {
    pub fn new(start: Pfn, frames: u32) -> Dense {
        let none = Block { heads: [0; WORDS], free: 0, group: Mobility::Movable, next: NONE, prev: NONE };
        Dense {
            start,
            blocks: vec![none; (frames as usize).div_ceil(FRAMES)].into(),
            first: Box::new([[NONE; FRAMES]; Mobility::COUNT]),
            filled: [[0; WORDS]; Mobility::COUNT],
            free: [0; Mobility::COUNT],
        }
    }

    /// A free block smaller than a page block was put on a list.
    pub fn add(&mut self, pfn: Pfn, order: Order, group: Mobility) {
        self.change(pfn, group, |block, (word, bit)| {
            assert_eq!(block.heads[word] & bit, 0, "{pfn} must not be free yet");
            block.heads[word] |= bit;
            block.free += order.frames() as u16;
        });
    }

    /// A free block was taken off its list.
    pub fn remove(&mut self, pfn: Pfn, order: Order) {
        let group = self.blocks[self.index(pfn)].group;
        self.change(pfn, group, |block, (word, bit)| {
            assert_ne!(block.heads[word] & bit, 0, "{pfn} must be free");
            block.heads[word] &= !bit;
            block.free -= order.frames() as u16;
        });
    }

    /// Page blocks of a group with at least `least` free pages, the fullest first, each by its first frame.
    pub(crate) fn fullest(&self, group: Mobility, least: u32) -> impl Iterator<Item = Pfn> {
        (least as usize..FRAMES).flat_map(move |free| self.with(group, free))
    }

    /// The page block of a group with the most free pages that does not count as `tried`, and the number of free
    /// pages in all others.
    pub(crate) fn emptiest(&self, group: Mobility, tried: impl Fn(Pfn) -> bool) -> Option<(Pfn, u64)> {
        let mut blocks = (1..FRAMES).rev().flat_map(|free| self.with(group, free));
        let block = blocks.find(|&block| !tried(block))?;
        Some((block, self.free[group as usize] - u64::from(self.blocks[self.index(block)].free)))
    }

    /// Free pages in partly free page blocks.
    pub fn free_in(&self, block: Pfn) -> u32 {
        u32::from(self.blocks[self.index(block)].free)
    }

    /// If page blocks of a group were emptied into fuller ones, the emptiest first: the fewest free pages of one that
    /// is emptied.
    pub(crate) fn emptied_from(&self, group: Mobility) -> u32 {
        let (mut room, mut least) = (self.free[group as usize], u32::MAX);
        let mut moved = 0;
        for block in (1..FRAMES).rev().flat_map(|free| self.with(group, free)) {
            let free = self.free_in(block);
            room -= u64::from(free);
            moved += FRAMES as u64 - u64::from(free);
            if moved > room {
                break;
            }
            least = free;
        }
        least
    }

    /// Those with this number of free pages.
    fn with(&self, group: Mobility, free: usize) -> impl Iterator<Item = Pfn> {
        let filled = self.filled[group as usize][free / 64] >> (free % 64) & 1 == 1;
        let first = filled.then(|| self.first[group as usize][free]);
        let next = |&index: &u32| Some(self.blocks[index as usize].next).filter(|&next| next != NONE);
        core::iter::successors(first, next).map(|index| self.start.add(index * FRAMES as u32))
    }

    /// Where free blocks begin in a page block.
    pub fn heads(&self, block: Pfn) -> impl Iterator<Item = Pfn> {
        let heads = self.blocks[self.index(block)].heads;
        (0..FRAMES as u32)
            .filter(move |&at| heads[at as usize / 64] >> (at % 64) & 1 == 1)
            .map(move |at| block.add(at))
    }

    fn index(&self, pfn: Pfn) -> usize {
        (pfn.0 - self.start.0) as usize / FRAMES
    }

    fn change(&mut self, pfn: Pfn, group: Mobility, change: impl FnOnce(&mut Block, (usize, u64))) {
        let at = (pfn.0 - self.start.0) as usize % FRAMES;
        let index = self.index(pfn);
        self.unlink(index);
        let block = &mut self.blocks[index];
        // It may have moved to another group meanwhile; then all its free blocks are put on lists again.
        block.group = group;
        change(block, (at / 64, 1 << (at % 64)));
        self.link(index);
    }

    fn link(&mut self, index: usize) {
        let Block { free, group, .. } = self.blocks[index];
        if free == 0 {
            return;
        }
        let (free, group) = (free as usize, group as usize);
        self.free[group] += free as u64;
        let next = core::mem::replace(&mut self.first[group][free], index as u32);
        self.filled[group][free / 64] |= 1 << (free % 64);
        (self.blocks[index].next, self.blocks[index].prev) = (next, NONE);
        if next != NONE {
            self.blocks[next as usize].prev = index as u32;
        }
    }

    fn unlink(&mut self, index: usize) {
        let Block { free, group, next, prev, .. } = self.blocks[index];
        if free == 0 {
            return;
        }
        let (free, group) = (free as usize, group as usize);
        self.free[group] -= free as u64;
        if next != NONE {
            self.blocks[next as usize].prev = prev;
        }
        match prev {
            NONE => self.first[group][free] = next,
            prev => self.blocks[prev as usize].next = next,
        }
        if self.first[group][free] == NONE {
            self.filled[group][free / 64] &= !(1 << (free % 64));
        }
    }

    /// Whether this tracks exactly these free blocks.
    pub fn validate(&self, free: &[(Pfn, Order, Mobility)]) -> Result<(), String> {
        let mut right = Dense::new(self.start, (self.blocks.len() * FRAMES) as u32);
        free.iter().for_each(|&(pfn, order, group)| right.add(pfn, order, group));
        for (index, (block, right)) in self.blocks.iter().zip(&right.blocks).enumerate() {
            let same = block.heads == right.heads && block.free == right.free;
            if !same || (block.free > 0 && block.group != right.group) {
                let (pages, group) = (block.free, block.group);
                return Err(format!("page block {index} is known with {pages} free pages of {group:?}"));
            }
        }
        for group in Mobility::ALL {
            let [mut listed, mut all]: [Vec<Pfn>; 2] =
                [self, &right].map(|dense| dense.fullest(group, 1).collect());
            listed.sort_unstable();
            all.sort_unstable();
            if listed != all || self.free[group as usize] != right.free[group as usize] {
                let (listed, all) = (listed.len(), all.len());
                return Err(format!("{listed} page blocks of {group:?} are listed instead of {all}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(number: u32) -> Pfn {
        Pfn(1024 + number * FRAMES as u32)
    }

    #[test]
    fn the_fullest_page_block_comes_first() {
        let mut dense = Dense::new(Pfn(1024), 4 * FRAMES as u32);
        assert!(dense_order(&dense, Mobility::Movable, 1).is_empty());
        dense.add(block(0), Order(8), Mobility::Movable);
        dense.add(block(1).add(7), Order(0), Mobility::Movable);
        dense.add(block(2).add(4), Order(2), Mobility::Movable);
        dense.add(block(3), Order(0), Mobility::Unmovable);
        assert_eq!(dense_order(&dense, Mobility::Movable, 1), [block(1), block(2), block(0)]);
        assert_eq!(dense_order(&dense, Mobility::Movable, 2), [block(2), block(0)]);
        assert_eq!(dense_order(&dense, Mobility::Unmovable, 1), [block(3)]);
        assert_eq!(dense.emptiest(Mobility::Movable, |_| false), Some((block(0), 5)));
        assert_eq!(dense.emptiest(Mobility::Movable, |tried| tried == block(0)), Some((block(2), 257)));
        assert_eq!(dense.emptiest(Mobility::Reclaimable, |_| false), None);
        // The content of the emptiest, half a block, does not fit into the others, which have five free pages.
        assert_eq!(dense.emptied_from(Mobility::Movable), u32::MAX);
        dense.add(block(0).add(256), Order(7), Mobility::Movable);
        dense.add(block(0).add(384), Order(6), Mobility::Movable);
        dense.add(block(2).add(64), Order(6), Mobility::Movable);
        assert_eq!(dense.emptied_from(Mobility::Movable), 448);
        dense.remove(block(0).add(256), Order(7));
        dense.remove(block(0).add(384), Order(6));
        dense.remove(block(2).add(64), Order(6));
        assert_eq!(dense.heads(block(2)).collect::<Vec<_>>(), [block(2).add(4)]);
        dense.add(block(1), Order(2), Mobility::Movable);
        dense.remove(block(2).add(4), Order(2));
        assert_eq!(dense_order(&dense, Mobility::Movable, 1), [block(1), block(0)]);
        let there = [(block(0), Order(8)), (block(1), Order(2)), (block(1).add(7), Order(0))];
        let mut all: Vec<_> = there.map(|(pfn, order)| (pfn, order, Mobility::Movable)).into();
        assert!(dense.validate(&all).is_err());
        all.push((block(3), Order(0), Mobility::Unmovable));
        dense.validate(&all).unwrap();
    }

    fn dense_order(dense: &Dense, group: Mobility, least: u32) -> Vec<Pfn> {
        dense.fullest(group, least).collect()
    }
}
