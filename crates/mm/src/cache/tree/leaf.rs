//! Many changes in one leaf: what follows from them, in the nodes above and in the counts, is done once.

use super::{CachedFolio, MAX_INDEX, Occupied, PageTree, SLOT_BITS, SLOTS, TreeMark};
use crate::units::{Order, PageIndex, Pfn, Shadow};

/// A leaf in which single pages take the place of shadows or of nothing, or shadows that of single pages.
/// [`Leaf::finish`] makes it known.
#[must_use = "what was changed is to be made known"]
pub struct Leaf<'t> {
    tree: &'t mut PageTree,
    node: u32,
    /// The indices of its slots without their low bits.
    high: u64,
    /// Slots that have got a page, of these those that held a shadow, and slots that have got a shadow.
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
        let (node, _) = self.find(index).expect("a folio is taken out once");
        Leaf { tree: self, node, high: index.0 >> SLOT_BITS, added: 0, back: 0, evicted: 0 }
    }

    /// The leaf that holds an index, which is made if it is not there.
    pub fn leaf_or_new(&mut self, index: PageIndex) -> Leaf<'_> {
        let found = self.find(index).map(|(node, _)| node);
        let node = found.unwrap_or_else(|| self.leaf_for(index.0));
        Leaf { tree: self, node, high: index.0 >> SLOT_BITS, added: 0, back: 0, evicted: 0 }
    }

    /// Put folios of one order at their first indices, which ascend. Calls `inserted` with each one's number and the
    /// last shadow that was in its place, or [`Occupied`]; a folio whose place is not free is not put in.
    ///
    /// # Panics
    /// If an index is not a multiple of the folios' size, or a folio reaches beyond [`MAX_INDEX`].
    #[inline]
    pub fn insert_run(
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

    /// Put a page, a folio by itself, into a slot; returns the shadow that stood there.
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

    /// Leave a shadow in the slot of a page, which is returned.
    ///
    /// # Panics
    /// If there is no folio, or one of more pages.
    #[inline]
    pub fn evict(&mut self, slot: usize, shadow: Shadow) -> Pfn {
        let node = &mut self.tree.nodes[self.node as usize];
        let bit = 1 << slot;
        assert!(node.marks[TreeMark::Folio as usize] & !self.evicted & bit != 0, "a folio is taken out once");
        let folio = CachedFolio::unpack(core::mem::replace(&mut node.slots[slot], shadow.0));
        assert_eq!(folio.order, Order::ZERO, "a larger folio is taken out whole");
        self.evicted |= bit;
        folio.head
    }

    /// Make what was changed known.
    pub fn finish(self) {
        let Leaf { tree, node, added, back, evicted, .. } = self;
        debug_assert!(added & evicted == 0, "a slot is changed once");
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
            // It may have been made for what was refused.
            tree.prune(node);
        }
    }
}
