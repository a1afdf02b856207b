//! The tree's own consistency.

use super::{ALL_MARKS, Mark, NONE, PageTree, SLOT_BITS, SLOTS};
use std_alloc::format;
use std_alloc::string::String;

impl PageTree {
    /// Check links, marks against what is below them, counts and stamps. Returns the first fault.
    pub fn validate(&self) -> Result<(), String> {
        let mut counts = [0; 3];
        let mut nodes = 0;
        if self.root != NONE {
            if self.nodes[self.root as usize].parent != NONE {
                return Err(format!("root node {} has a parent", self.root));
            }
            self.check_node(self.root, &mut counts, &mut nodes)?;
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

    /// Leaves that hold nothing but shadows, counted by a walk.
    pub fn count_shadow_leaves(&self) -> u64 {
        let mut count = 0;
        let mut from = 0;
        while let Some((index, _)) = self.next(Mark::Shadow, crate::units::PageIndex(from)) {
            let (leaf, _) = self.find(index).expect("an entry was found there");
            count += self.nodes[leaf as usize].only_shadows() as u64;
            from = (index.0 / SLOTS as u64 + 1) * SLOTS as u64;
        }
        count
    }

    fn check_node(&self, at: u32, counts: &mut [u64; 3], nodes: &mut usize) -> Result<(), String> {
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
            return Ok(());
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
            self.check_node(child as u32 - 1, counts, nodes)?;
        }
        Ok(())
    }
}
