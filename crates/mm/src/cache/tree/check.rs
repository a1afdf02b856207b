//! The tree's own consistency.

use super::{ALL_MARKS, NONE, PageTree, SLOT_BITS, SLOTS, TreeEntry, TreeMark};
use crate::units::PageIndex;
use std_alloc::format;
use std_alloc::string::String;

impl PageTree {
    /// Check links, counts, stamps, and marks against the nodes below. Returns the first fault.
    pub fn validate(&self) -> Result<(), String> {
        let mut counts = [0; 3];
        let mut nodes = 0;
        if self.root != NONE {
            if self.nodes[self.root as usize].parent != NONE {
                return Err(format!("root node {} has a parent", self.root));
            }
            self.check_node(self.root, 0, &mut counts, &mut nodes)?;
        }
        if counts != self.counts {
            return Err(format!("tree counts {:?} entries, found {counts:?}", self.counts));
        }
        let mut at = self.unused;
        while at != NONE && nodes <= self.nodes.len() {
            nodes += 1;
            at = self.nodes[at as usize].parent;
        }
        if nodes != self.nodes.len() {
            return Err(format!("{nodes} tree nodes are reached, of {}", self.nodes.len()));
        }
        Ok(())
    }

    /// The number of leaves that hold only shadows, counted by a walk.
    pub(crate) fn count_shadow_leaves(&self) -> u64 {
        let mut count = 0;
        let mut from = 0;
        while let Some((index, _)) = self.next(TreeMark::Shadow, PageIndex(from)) {
            let (leaf, _) = self.find(index).expect("the leaf of an entry");
            count += self.nodes[leaf as usize].only_shadows() as u64;
            from = (index.0 / SLOTS as u64 + 1) * SLOTS as u64;
        }
        count
    }

    /// `base` is the first index below the node.
    fn check_node(&self, at: u32, base: u64, counts: &mut [u64; 3], nodes: &mut usize) -> Result<(), String> {
        let node = &self.nodes[at as usize];
        *nodes += 1;
        if node.is_empty() {
            return Err(format!("tree node {at} is empty"));
        }
        let [folios, shadows, swaps, dirty, writeback, towrite] = node.marks;
        if node.shift == 0 {
            if folios & shadows | folios & swaps | shadows & swaps != 0 {
                return Err(format!("leaf {at} has a slot of two kinds"));
            }
            if (dirty | writeback | towrite) & !folios != 0 {
                return Err(format!("leaf {at} marks a slot without a folio"));
            }
            if node.only_shadows() != (node.stamp != 0) {
                return Err(format!("leaf {at} has stamp {} and folios {folios:#x}", node.stamp));
            }
            for (count, kind) in counts.iter_mut().zip([folios, shadows, swaps]) {
                *count += kind.count_ones() as u64;
            }
            return self.check_folios(at, base);
        }
        for slot in 0..SLOTS {
            let child = node.slots[slot];
            if child == 0 {
                if ALL_MARKS.iter().any(|&mark| node.has(mark, slot)) {
                    return Err(format!("tree node {at} marks slot {slot}, which is empty"));
                }
                continue;
            }
            let below = &self.nodes[child as usize - 1];
            if below.parent != at
                || below.offset as usize != slot
                || below.shift as u32 + SLOT_BITS != node.shift as u32
            {
                return Err(format!("tree node {} does not know its parent {at}", child - 1));
            }
            for mark in ALL_MARKS {
                if node.has(mark, slot) != (below.marks[mark as usize] != 0) {
                    return Err(format!("tree node {at} has {mark:?} wrong for slot {slot}"));
                }
            }
            let base = base + ((slot as u64) << node.shift);
            self.check_node(child as u32 - 1, base, counts, nodes)?;
        }
        Ok(())
    }

    /// Check that a folio is in all of its slots, with the same marks.
    fn check_folios(&self, leaf: u32, base: u64) -> Result<(), String> {
        let node = &self.nodes[leaf as usize];
        for slot in 0..SLOTS {
            let index = PageIndex(base + slot as u64);
            let Some(TreeEntry::Folio(folio)) = node.entry(slot) else { continue };
            let first = folio.first(index);
            let alike = |at: &PageIndex| {
                let (leaf, there) = self.find(*at)?;
                let other = &self.nodes[leaf as usize];
                let same = other.entry(there) == Some(TreeEntry::Folio(folio))
                    && other.marks_at(there) == node.marks_at(slot);
                same.then_some(())
            };
            let ends = [first, PageIndex(first.0 + folio.pages() - 1)];
            let before = PageIndex(first.0.max(index.0.saturating_sub(1)));
            if !ends.iter().chain([&before]).all(|at| alike(at).is_some()) {
                return Err(format!(
                    "page {index} is of {folio:?}, which is not in all of its slots, or not marked alike"
                ));
            }
        }
        Ok(())
    }
}
