//! Several changes in one leaf: the nodes above and the counts are updated once.

use super::{CachedFolio, MAX_INDEX, Occupied, PageTree, SLOT_BITS, SLOTS, TreeMark};
use crate::units::{Order, PageIndex, Pfn, Shadow};

/// A leaf in which single pages replace shadows or nothing, or shadows replace single pages. [`Leaf::finish`] updates
/// the nodes above and the counts.
#[must_use = "the nodes above and the counts must be updated"]
pub struct Leaf<'t> {
    tree: &'t mut PageTree,
    node: u32,
    /// The high bits of the indices of its slots.
    high: u64,
    /// Masks: slots that have got a page, those of them that had a shadow, and slots that have got a shadow.
    added: u64,
    back: u64,
    evicted: u64,
}

impl PageTree {
    /// The leaf that holds an index.
    ///
    /// # Panics
    /// If there is none.
    pub fn leaf(&mut self, index: PageIndex) -> Leaf<'_> {
        let (node, _) = self.find(index).expect("the leaf of a folio to take out");
        Leaf { tree: self, node, high: index.0 >> SLOT_BITS, added: 0, back: 0, evicted: 0 }
    }

    /// The leaf that holds an index, which is made if it does not exist.
    pub(crate) fn leaf_or_new(&mut self, index: PageIndex) -> Leaf<'_> {
        let found = self.find(index).map(|(node, _)| node);
        let node = found.unwrap_or_else(|| self.leaf_for(index.0));
        Leaf { tree: self, node, high: index.0 >> SLOT_BITS, added: 0, back: 0, evicted: 0 }
    }

    /// Insert folios of one order at their first indices, which ascend. Calls `inserted` with the number of each folio
    /// and the last shadow that was in its place, or [`Occupied`] if its place is not free and it was not inserted.
    ///
    /// # Panics
    /// If an index is not a multiple of the folios' size, or a folio extends beyond [`MAX_INDEX`].
    #[inline]
    pub(crate) fn insert_run(
        &mut self,
        order: Order,
        places: &[(PageIndex, Pfn)],
        mut inserted: impl FnMut(usize, Result<Option<Shadow>, Occupied>),
    ) {
        if order > Order::ZERO {
            for (at, &(first, head)) in places.iter().enumerate() {
                inserted(at, self.insert_large(first, CachedFolio { head, order }));
            }
            return;
        }
        let mut at = 0;
        while let Some(&(first, _)) = places.get(at) {
            assert!(first.0 < MAX_INDEX, "no file has a page {first}");
            let mut leaf = self.leaf_or_new(first);
            while let Some(&(index, page)) = places.get(at)
                && let Some(slot) = leaf.slot(index)
            {
                inserted(at, leaf.insert(slot, page));
                at += 1;
            }
            leaf.finish();
        }
    }
}

impl Leaf<'_> {
    /// The slot of an index, if it is one of this leaf's.
    #[inline]
    pub fn slot(&self, index: PageIndex) -> Option<usize> {
        (index.0 >> SLOT_BITS == self.high).then_some(index.0 as usize % SLOTS)
    }

    /// Put a single page into a slot; returns the shadow that was there.
    #[inline]
    pub fn insert(&mut self, slot: usize, page: Pfn) -> Result<Option<Shadow>, Occupied> {
        let node = &mut self.tree.nodes[self.node as usize];
        let bit = 1 << slot;
        if (node.marks[TreeMark::Folio as usize] | node.marks[TreeMark::Swap as usize] | self.added) & bit
            != 0
        {
            return Err(Occupied);
        }
        let old = core::mem::replace(&mut node.slots[slot], CachedFolio::single(page).pack());
        let back = node.marks[TreeMark::Shadow as usize] & bit;
        self.added |= bit;
        self.back |= back;
        Ok((back != 0).then_some(Shadow(old)))
    }

    /// Replace the page in a slot by a shadow; returns the page.
    ///
    /// # Panics
    /// If the slot has no folio, or one of several pages.
    #[inline]
    pub(crate) fn evict(&mut self, slot: usize, shadow: Shadow) -> Pfn {
        let node = &mut self.tree.nodes[self.node as usize];
        let bit = 1 << slot;
        assert!(
            node.marks[TreeMark::Folio as usize] & !self.evicted & bit != 0,
            "the slot of a page to evict must hold one"
        );
        let folio = CachedFolio::unpack(core::mem::replace(&mut node.slots[slot], shadow.0));
        assert_eq!(folio.order, Order::ZERO, "a larger folio must be taken out whole");
        self.evicted |= bit;
        folio.head
    }

    /// Update the nodes above and the counts.
    pub fn finish(self) {
        let Leaf { tree, node, added, back, evicted, .. } = self;
        debug_assert!(added & evicted == 0, "a slot must be changed only once");
        if evicted != 0 {
            tree.clear(node, evicted, TreeMark::Folio);
            tree.set(node, evicted, TreeMark::Shadow);
            for mark in [TreeMark::Dirty, TreeMark::Writeback, TreeMark::ToWrite] {
                tree.clear(node, evicted, mark);
            }
        }
        if added != 0 {
            tree.set(node, added, TreeMark::Folio);
            tree.clear(node, back, TreeMark::Shadow);
        }
        let [folio, shadow] = [TreeMark::Folio, TreeMark::Shadow].map(|mark| mark as usize);
        let count = |mask: u64| u64::from(mask.count_ones());
        tree.counts[folio] = tree.counts[folio] + count(added) - count(evicted);
        tree.counts[shadow] = tree.counts[shadow] + count(evicted) - count(back);
        tree.note_shadows(node);
        if added | evicted == 0 {
            // The leaf may have been made for pages that were refused.
            tree.prune(node);
        }
    }
}
