//! The tree of a file's pages: from page index to folio, shadow or swap slot.
//!
//! A radix tree with 64 slots for each node, as high as the largest index needs: three levels reach 1 GiB of pages.
//! Nodes are in one array and refer to each other by number.
//!
//! Every node has six words of marks, one bit for each slot. In a leaf a bit tells that the slot's entry has the
//! property; in an inner node, that an entry below the slot has it. Three marks are the kinds of entries themselves.
//! So "the next folio from here", "the next dirty page" and "does this node hold only shadows" are answered by the
//! same few instructions, and nothing else must be kept consistent.
//!
//! A large folio is in each slot that it covers, with its marks: there is an entry for each index, and not one entry
//! for many, as in Linux's xarray. The slots of a node are adjacent, so marking, checking whether a place is free, and
//! leaving shadows take an instruction for up to 64 pages; a lookup is the same for all sizes; a folio can be split
//! without memory for new nodes; and any order fits, where an entry of a node would span a power of 64. The price is a
//! leaf for 64 pages of a file, 0.3 % of them. A slot holds the folio's order in addition to its head, and a folio of
//! 2^n pages begins at a multiple of 2^n in its file: so a slot alone tells where its folio begins and ends (`folio`).
//!
//! A leaf that holds only shadows uses memory without holding a page. The tree counts such leaves and reports each new
//! one ([`PageTree::take_node_changes`]); the cache limits their number and has the oldest dropped
//! ([`PageTree::drop_shadow_leaf`]).

mod check;
mod folio;
mod leaf;
#[cfg(test)]
mod tests;

pub use folio::{CachedFolio, Occupied};
pub use leaf::Leaf;

use crate::units::{Order, PageIndex, Shadow, SwapSlot};
use core::cell::Cell;
use core::ops::Range;
use smallvec::SmallVec;
use std_alloc::vec::Vec;

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
const NONE: u32 = u32::MAX;

/// One more than the largest index; a file of 2^64 bytes has 2^52 pages.
pub(crate) const MAX_INDEX: u64 = 1 << 60;

/// The entry of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeEntry {
    /// A folio; a large one is in every slot that it covers.
    Folio(CachedFolio),
    /// The shadow of an evicted folio.
    Shadow(Shadow),
    /// The swap slot of a shmem page.
    Swap(SwapSlot),
}

/// A property of entries that the tree can search for. The first three are the kinds of entries; the others are set on
/// folios.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreeMark {
    /// The entry is a folio.
    Folio = 0,
    /// The entry is a shadow.
    Shadow = 1,
    /// The entry is a swap slot.
    Swap = 2,
    /// Newer than the device.
    Dirty = 3,
    /// Under write-back.
    Writeback = 4,
    /// Chosen by the current write-back, which ignores pages that become dirty later.
    ToWrite = 5,
}

const MARKS: usize = 6;
const ALL_MARKS: [TreeMark; MARKS] = [
    TreeMark::Folio,
    TreeMark::Shadow,
    TreeMark::Swap,
    TreeMark::Dirty,
    TreeMark::Writeback,
    TreeMark::ToWrite,
];

impl TreeEntry {
    const fn kind(self) -> TreeMark {
        match self {
            TreeEntry::Folio(_) => TreeMark::Folio,
            TreeEntry::Shadow(_) => TreeMark::Shadow,
            TreeEntry::Swap(_) => TreeMark::Swap,
        }
    }

    const fn pack(self) -> u64 {
        match self {
            TreeEntry::Folio(folio) => folio.pack(),
            TreeEntry::Shadow(shadow) => shadow.0,
            TreeEntry::Swap(slot) => slot.0 as u64,
        }
    }
}

/// A leaf that holds only shadows, since the time of `stamp`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ShadowLeaf {
    node: u32,
    stamp: u32,
}

/// Changes of the number of leaves that hold only shadows.
#[derive(PartialEq, Eq, Debug, Default)]
pub(crate) struct NodeChanges {
    /// The difference of their number since the last call.
    pub change: i64,
    /// The difference of the number of nodes.
    pub nodes: i64,
    /// The leaves that became one since.
    pub leaves: SmallVec<[ShadowLeaf; 2]>,
}

impl NodeChanges {
    /// Whether there are no changes.
    #[inline]
    pub fn is_none(&self) -> bool {
        self.change == 0 && self.nodes == 0 && self.leaves.is_empty()
    }
}

#[repr(align(64))]
struct TreeNode {
    marks: [u64; MARKS],
    parent: u32,
    /// Not 0: a leaf that holds only shadows, since this stamp.
    stamp: u32,
    /// Slot of the parent that leads here.
    offset: u8,
    /// Bits of the index below this node's own: 0 in a leaf.
    shift: u8,
    /// In a leaf, the packed entry; in an inner node, the child's number + 1, 0 for none.
    slots: [u64; SLOTS],
}

impl TreeNode {
    #[inline]
    fn slot_of(&self, index: u64) -> usize {
        (index >> self.shift) as usize % SLOTS
    }

    #[inline]
    fn has(&self, mark: TreeMark, slot: usize) -> bool {
        self.marks[mark as usize] >> slot & 1 != 0
    }

    /// The marks of a slot: bit n is mark n.
    #[inline]
    fn marks_at(&self, slot: usize) -> u32 {
        self.marks.iter().rev().fold(0, |all, mark| all << 1 | (mark >> slot & 1) as u32)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        self.marks[..3].iter().all(|&kind| kind == 0)
    }

    #[inline]
    fn only_shadows(&self) -> bool {
        self.shift == 0
            && self.marks[TreeMark::Shadow as usize] != 0
            && self.marks[TreeMark::Folio as usize] | self.marks[TreeMark::Swap as usize] == 0
    }

    #[inline]
    fn entry(&self, slot: usize) -> Option<TreeEntry> {
        let value = self.slots[slot];
        if self.has(TreeMark::Folio, slot) {
            Some(TreeEntry::Folio(CachedFolio::unpack(value)))
        } else if self.has(TreeMark::Shadow, slot) {
            Some(TreeEntry::Shadow(Shadow(value)))
        } else {
            self.has(TreeMark::Swap, slot).then_some(TreeEntry::Swap(SwapSlot(value as u32)))
        }
    }
}

/// The tree. Guarded by its file's tree lock.
pub struct PageTree {
    nodes: Vec<TreeNode>,
    root: u32,
    /// First unused node, linked through `parent`.
    unused: u32,
    counts: [u64; 3],
    last_stamp: u32,
    changes: NodeChanges,
    /// The high bits of the indices of the leaf that was found last, and the leaf: consecutive uses are mostly in one
    /// leaf.
    recent: Cell<(u64, u32)>,
}

/// No leaf, because no index has these high bits.
const NO_RECENT: (u64, u32) = (u64::MAX, NONE);

impl Default for PageTree {
    fn default() -> Self {
        PageTree::new()
    }
}

impl PageTree {
    /// An empty tree.
    pub fn new() -> PageTree {
        PageTree {
            nodes: Vec::new(),
            root: NONE,
            unused: NONE,
            counts: [0; 3],
            last_stamp: 0,
            changes: NodeChanges::default(),
            recent: Cell::new(NO_RECENT),
        }
    }

    /// Number of slots that hold a folio.
    pub fn folios(&self) -> u64 {
        self.counts[TreeMark::Folio as usize]
    }

    /// Number of nodes.
    pub(crate) fn nodes(&self) -> u64 {
        let there = |at: u32| (at != NONE).then_some(at);
        let unused = core::iter::successors(there(self.unused), |&at| there(self.nodes[at as usize].parent));
        (self.nodes.len() - unused.count()) as u64
    }

    /// Number of slots that hold a shadow.
    pub fn shadows(&self) -> u64 {
        self.counts[TreeMark::Shadow as usize]
    }

    /// Number of slots that hold a swap slot.
    pub fn swapped(&self) -> u64 {
        self.counts[TreeMark::Swap as usize]
    }

    /// The folio at an index.
    #[inline]
    pub fn folio(&self, index: PageIndex) -> Option<CachedFolio> {
        let (leaf, slot) = self.find(index)?;
        let node = &self.nodes[leaf as usize];
        node.has(TreeMark::Folio, slot).then(|| CachedFolio::unpack(node.slots[slot]))
    }

    /// The entry at an index.
    pub fn get(&self, index: PageIndex) -> Option<TreeEntry> {
        let (leaf, slot) = self.find(index)?;
        self.nodes[leaf as usize].entry(slot)
    }

    /// Put an entry at an index and clear its marks; returns the old entry. Large folios are inserted and replaced
    /// whole ([`PageTree::insert_folio`], [`PageTree::replace_folio`]).
    ///
    /// # Panics
    /// If the index is not below [`MAX_INDEX`].
    pub fn insert(&mut self, index: PageIndex, entry: TreeEntry) -> Option<TreeEntry> {
        assert!(index.0 < MAX_INDEX, "no file has a page {index}");
        debug_assert!(
            !matches!(entry, TreeEntry::Folio(folio) if folio.order > Order::ZERO),
            "a folio of several pages must be inserted whole"
        );
        let (leaf, slot) = match self.find(index) {
            Some(found) => found,
            None => (self.leaf_for(index.0), index.0 as usize % SLOTS),
        };
        let node = &mut self.nodes[leaf as usize];
        let old = node.entry(slot);
        node.slots[slot] = entry.pack();
        self.clear_all(leaf, slot, Some(entry.kind()));
        self.set(leaf, 1 << slot, entry.kind());
        self.counts[entry.kind() as usize] += 1;
        if let Some(old) = old {
            self.counts[old.kind() as usize] -= 1;
        }
        self.note_shadows(leaf);
        old
    }

    /// Remove the entry of an index; returns it.
    pub fn remove(&mut self, index: PageIndex) -> Option<TreeEntry> {
        let (leaf, slot) = self.find(index)?;
        let old = self.nodes[leaf as usize].entry(slot)?;
        self.clear_all(leaf, slot, None);
        self.counts[old.kind() as usize] -= 1;
        self.note_shadows(leaf);
        self.prune(leaf);
        Some(old)
    }

    pub(crate) fn has_mark(&self, index: PageIndex, mark: TreeMark) -> bool {
        self.find(index).is_some_and(|(leaf, slot)| self.nodes[leaf as usize].has(mark, slot))
    }

    /// Whether any entry has the mark.
    pub fn any(&self, mark: TreeMark) -> bool {
        self.root != NONE && self.nodes[self.root as usize].marks[mark as usize] != 0
    }

    /// The first entry from an index on that has the mark.
    pub fn next(&self, mark: TreeMark, from: PageIndex) -> Option<(PageIndex, TreeEntry)> {
        let (index, leaf) = self.next_slot(mark, from)?;
        Some((index, leaf.entry(leaf.slot_of(index.0))?))
    }

    /// The first index from this one on whose entry has the mark, and its leaf.
    fn next_slot(&self, mark: TreeMark, from: PageIndex) -> Option<(PageIndex, &TreeNode)> {
        let mut index = from.0;
        let mut at = self.root;
        if at == NONE || !self.covers(index) {
            return None;
        }
        loop {
            let node = &self.nodes[at as usize];
            let slot = node.slot_of(index);
            let rest = node.marks[mark as usize] >> slot;
            if rest == 0 {
                if at == self.root {
                    return None;
                }
                let span = node.shift as u32 + SLOT_BITS;
                index = ((index >> span) + 1) << span;
                at = self.root;
                if !self.covers(index) {
                    return None;
                }
                continue;
            }
            let ahead = rest.trailing_zeros() as usize;
            if ahead != 0 {
                index = ((index >> node.shift) + ahead as u64) << node.shift;
            }
            if node.shift == 0 {
                return Some((PageIndex(index), node));
            }
            at = (node.slots[slot + ahead] - 1) as u32;
        }
    }

    /// The entries in a range that have the mark, in order; a large folio once, with the first of its pages in the
    /// range.
    #[inline]
    pub fn iter(
        &self,
        mark: TreeMark,
        range: Range<u64>,
    ) -> impl Iterator<Item = (PageIndex, TreeEntry)> + '_ {
        // The current leaf, its first index, and its slots that are still to be visited.
        let (mut leaf, mut first, mut ahead) = (None, 0, 0);
        let mut from = range.start;
        core::iter::from_fn(move || {
            if ahead == 0 {
                let (index, node) = self.next_slot(mark, PageIndex(from))?;
                (leaf, first) = (Some(node), index.0 & !(SLOTS as u64 - 1));
                ahead = node.marks[mark as usize] & u64::MAX << (index.0 - first);
            }
            let slot = ahead.trailing_zeros() as usize;
            let index = first + slot as u64;
            let entry = leaf.filter(|_| index < range.end)?.entry(slot)?;
            from = match entry {
                TreeEntry::Folio(folio) => folio.end(PageIndex(index)),
                _ => index + 1,
            };
            let passed = (from - first).min(SLOTS as u64) as u32;
            ahead &= u64::MAX.checked_shl(passed).unwrap_or(0);
            Some((PageIndex(index), entry))
        })
    }

    /// The changes of leaves of shadows since the last call.
    #[inline]
    pub(crate) fn take_node_changes(&mut self) -> NodeChanges {
        core::mem::take(&mut self.changes)
    }

    /// Whether the leaf has held only shadows all the time since its stamp.
    pub(crate) fn is_shadow_leaf(&self, leaf: ShadowLeaf) -> bool {
        self.nodes[leaf.node as usize].stamp == leaf.stamp
    }

    /// Drop all shadows of a leaf if it has held only shadows since its stamp; returns their number.
    pub(crate) fn drop_shadow_leaf(&mut self, leaf: ShadowLeaf) -> u64 {
        let node = &mut self.nodes[leaf.node as usize];
        if node.stamp != leaf.stamp {
            return 0;
        }
        let dropped = node.marks[TreeMark::Shadow as usize].count_ones() as u64;
        self.clear(leaf.node, u64::MAX, TreeMark::Shadow);
        self.counts[TreeMark::Shadow as usize] -= dropped;
        self.note_shadows(leaf.node);
        self.prune(leaf.node);
        dropped
    }

    #[inline]
    fn covers(&self, index: u64) -> bool {
        index >> (self.nodes[self.root as usize].shift as u32 + SLOT_BITS) == 0
    }

    /// The leaf that would hold an index, and its slot there.
    #[inline]
    fn find(&self, index: PageIndex) -> Option<(u32, usize)> {
        let (high, leaf) = self.recent.get();
        if high == index.0 >> SLOT_BITS {
            return Some((leaf, index.0 as usize % SLOTS));
        }
        let mut at = self.root;
        if at == NONE || !self.covers(index.0) {
            return None;
        }
        loop {
            let node = &self.nodes[at as usize];
            let slot = node.slot_of(index.0);
            if node.shift == 0 {
                self.recent.set((index.0 >> SLOT_BITS, at));
                return Some((at, slot));
            }
            at = (node.slots[slot] as u32).checked_sub(1)?;
        }
    }

    /// The leaf for an index, which is made, with all nodes above it, if it does not exist.
    fn leaf_for(&mut self, index: u64) -> u32 {
        if self.root == NONE {
            let above_leaf = (u64::BITS - index.leading_zeros()).saturating_sub(1) / SLOT_BITS;
            self.root = self.new_node((above_leaf * SLOT_BITS) as u8, NONE, 0);
        }
        while !self.covers(index) {
            self.raise();
        }
        let mut at = self.root;
        loop {
            let node = &self.nodes[at as usize];
            if node.shift == 0 {
                return at;
            }
            let (slot, shift) = (node.slot_of(index), node.shift - SLOT_BITS as u8);
            at = match node.slots[slot] {
                0 => {
                    let child = self.new_node(shift, at, slot as u8);
                    self.nodes[at as usize].slots[slot] = child as u64 + 1;
                    child
                }
                child => (child - 1) as u32,
            };
        }
    }

    fn raise(&mut self) {
        let old = self.root;
        let shift = self.nodes[old as usize].shift + SLOT_BITS as u8;
        self.root = self.new_node(shift, NONE, 0);
        self.nodes[old as usize].parent = self.root;
        let marks = self.nodes[old as usize].marks.map(|mark| (mark != 0) as u64);
        let root = &mut self.nodes[self.root as usize];
        root.slots[0] = old as u64 + 1;
        root.marks = marks;
    }

    fn new_node(&mut self, shift: u8, parent: u32, offset: u8) -> u32 {
        let blank = TreeNode { marks: [0; MARKS], parent, stamp: 0, offset, shift, slots: [0; SLOTS] };
        self.changes.nodes += 1;
        if self.unused == NONE {
            self.nodes.push(blank);
            return self.nodes.len() as u32 - 1;
        }
        let node = self.unused;
        self.unused = self.nodes[node as usize].parent;
        self.nodes[node as usize] = blank;
        node
    }

    fn free_node(&mut self, node: u32) {
        self.changes.nodes -= 1;
        if self.recent.get().1 == node {
            self.recent.set(NO_RECENT);
        }
        self.nodes[node as usize].parent = self.unused;
        self.unused = node;
    }

    /// Free the node if it is empty, then its parents; lower the root as much as possible.
    fn prune(&mut self, mut at: u32) {
        while self.nodes[at as usize].is_empty() {
            let TreeNode { parent, offset, .. } = self.nodes[at as usize];
            self.free_node(at);
            if parent == NONE {
                self.root = NONE;
                return;
            }
            self.nodes[parent as usize].slots[offset as usize] = 0;
            at = parent;
        }
        loop {
            let root = &self.nodes[self.root as usize];
            let kinds = root.marks[..3].iter().fold(0, |all, kind| all | kind);
            if root.shift == 0 || kinds != 1 {
                return;
            }
            let child = (root.slots[0] - 1) as u32;
            self.free_node(self.root);
            self.root = child;
            self.nodes[child as usize].parent = NONE;
        }
    }

    /// Set a mark of the slots in `mask`.
    #[inline]
    fn set(&mut self, node: u32, mask: u64, mark: TreeMark) {
        let (mut at, mut mask) = (node, mask);
        loop {
            let node = &mut self.nodes[at as usize];
            let before = node.marks[mark as usize];
            node.marks[mark as usize] = before | mask;
            if before != 0 || node.parent == NONE {
                return;
            }
            (at, mask) = (node.parent, 1 << node.offset);
        }
    }

    /// Clear a mark of the slots in `mask`.
    #[inline]
    fn clear(&mut self, node: u32, mask: u64, mark: TreeMark) {
        let (mut at, mut mask) = (node, mask);
        loop {
            let node = &mut self.nodes[at as usize];
            let before = node.marks[mark as usize];
            node.marks[mark as usize] = before & !mask;
            if before & mask == 0 || before & !mask != 0 || node.parent == NONE {
                return;
            }
            (at, mask) = (node.parent, 1 << node.offset);
        }
    }

    #[inline]
    fn clear_all(&mut self, node: u32, slot: usize, keep: Option<TreeMark>) {
        let marks = self.nodes[node as usize].marks;
        for (mark, slots) in ALL_MARKS.into_iter().zip(marks) {
            if slots >> slot & 1 != 0 && Some(mark) != keep {
                self.clear(node, 1 << slot, mark);
            }
        }
    }

    /// The leaf's entries changed: note whether it holds only shadows now.
    #[inline]
    fn note_shadows(&mut self, leaf: u32) {
        let node = &mut self.nodes[leaf as usize];
        let only_shadows = node.only_shadows();
        if only_shadows && node.stamp == 0 {
            self.last_stamp = self.last_stamp.wrapping_add(1).max(1);
            node.stamp = self.last_stamp;
            self.changes.change += 1;
            self.changes.leaves.push(ShadowLeaf { node: leaf, stamp: node.stamp });
        } else if !only_shadows && node.stamp != 0 {
            node.stamp = 0;
            self.changes.change -= 1;
        }
    }
}
