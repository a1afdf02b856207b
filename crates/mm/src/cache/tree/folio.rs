//! Operations on all slots of a folio of any size.

use super::{ALL_MARKS, MAX_INDEX, PageTree, SLOT_BITS, SLOTS, TreeEntry, TreeMark};
use crate::units::{Order, PageIndex, Pfn, Shadow, SwapSlot};
use core::ops::Range;

/// A folio as the tree knows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CachedFolio {
    /// Its first frame.
    pub head: Pfn,
    /// Its size. Its first index is a multiple of it.
    pub order: Order,
}

/// Part of the place for a folio is used by folios or pages in swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Occupied;

const ORDER_SHIFT: u32 = 32;

impl CachedFolio {
    /// A folio of one page.
    pub const fn single(pfn: Pfn) -> CachedFolio {
        CachedFolio { head: pfn, order: Order::ZERO }
    }

    /// Number of pages.
    #[inline]
    pub const fn pages(self) -> u64 {
        self.inside() + 1
    }

    /// The bits of an index that give a page's position in the folio. (Every lookup needs them, so there is no check
    /// whether the order is less than 64.)
    #[inline]
    const fn inside(self) -> u64 {
        !u64::MAX.wrapping_shl(self.order.0 as u32)
    }

    /// The index of its first page; `index` is that of any of its pages.
    #[inline]
    pub const fn first(self, index: PageIndex) -> PageIndex {
        PageIndex(index.0 & !self.inside())
    }

    /// The index after its last page; `index` is that of any of its pages.
    #[inline]
    pub const fn end(self, index: PageIndex) -> u64 {
        self.first(index).0 + self.pages()
    }

    /// The frame of the folio's page at `index`.
    #[inline]
    pub const fn frame(self, index: PageIndex) -> Pfn {
        Pfn(self.head.0 + (index.0 & self.inside()) as u32)
    }

    #[inline]
    pub(super) const fn pack(self) -> u64 {
        (self.order.0 as u64) << ORDER_SHIFT | self.head.0 as u64
    }

    #[inline]
    pub(super) const fn unpack(value: u64) -> CachedFolio {
        CachedFolio { head: Pfn(value as u32), order: Order((value >> ORDER_SHIFT) as u8) }
    }
}

/// The leaves of an aligned range of `pages`, each with its first index in the range and the mask of its slots.
#[inline]
fn leaves(first: PageIndex, pages: u64) -> impl Iterator<Item = (PageIndex, u64)> {
    assert!(
        first.0.is_multiple_of(pages) && pages.is_power_of_two(),
        "a folio of {pages} pages cannot begin at {first}"
    );
    let mask = if pages < SLOTS as u64 { (1 << pages) - 1 } else { u64::MAX };
    let mask = mask << (first.0 % SLOTS as u64);
    (first.0..first.0 + pages).step_by(SLOTS).map(move |at| (PageIndex(at), mask))
}

fn slots(mask: u64) -> impl Iterator<Item = usize> {
    (0..SLOTS).filter(move |slot| mask >> slot & 1 != 0)
}

impl PageTree {
    /// Put a folio at its indices, from `first` on, if none of them has a folio or a swap slot; returns the last
    /// shadow that was there. Otherwise nothing is changed.
    ///
    /// # Panics
    /// If `first` is not a multiple of the folio's size, or the folio extends beyond [`MAX_INDEX`].
    pub(crate) fn insert_folio(
        &mut self,
        first: PageIndex,
        folio: CachedFolio,
    ) -> Result<Option<Shadow>, Occupied> {
        let mut result = Ok(None);
        self.insert_run(folio.order, &[(first, folio.head)], |_, inserted| result = inserted);
        result
    }

    pub(super) fn insert_large(
        &mut self,
        first: PageIndex,
        folio: CachedFolio,
    ) -> Result<Option<Shadow>, Occupied> {
        let pages = folio.pages();
        assert!(
            first.0.is_multiple_of(pages) && first.0 + pages <= MAX_INDEX,
            "{folio:?} cannot be at {first}"
        );
        if !self.is_free(first, pages) {
            return Err(Occupied);
        }
        let mut last = None;
        for (at, mask) in leaves(first, pages) {
            let leaf = match self.find(at) {
                Some((leaf, _)) => leaf,
                None => self.leaf_for(at.0),
            };
            let node = &mut self.nodes[leaf as usize];
            let shadows = node.marks[TreeMark::Shadow as usize] & mask;
            if shadows != 0 {
                last = Some(Shadow(node.slots[63 - shadows.leading_zeros() as usize]));
            }
            slots(mask).for_each(|slot| node.slots[slot] = folio.pack());
            self.clear(leaf, shadows, TreeMark::Shadow);
            self.set(leaf, mask, TreeMark::Folio);
            self.counts[TreeMark::Shadow as usize] -= shadows.count_ones() as u64;
            self.counts[TreeMark::Folio as usize] += mask.count_ones() as u64;
            self.note_shadows(leaf);
        }
        Ok(last)
    }

    /// Whether an aligned range has neither folios nor swap slots.
    pub(crate) fn is_free(&self, first: PageIndex, pages: u64) -> bool {
        leaves(first, pages).all(|(at, mask)| {
            self.find(at).is_none_or(|(leaf, _)| {
                let marks = &self.nodes[leaf as usize].marks;
                (marks[TreeMark::Folio as usize] | marks[TreeMark::Swap as usize]) & mask == 0
            })
        })
    }

    /// Take out the folio with the first index `first`, and leave `rest` at each of its indices; if `rest` is a swap
    /// slot, consecutive slots. Returns the folio.
    ///
    /// # Panics
    /// If no folio begins there, or `rest` is a folio.
    pub(crate) fn replace_folio(&mut self, first: PageIndex, rest: Option<TreeEntry>) -> CachedFolio {
        let folio = self.folio(first).expect("a folio to take out");
        assert!(folio.first(first) == first && !matches!(rest, Some(TreeEntry::Folio(_))));
        if folio.order == Order::ZERO {
            match rest {
                Some(rest) => self.insert(first, rest),
                None => self.remove(first),
            };
            return folio;
        }
        for (at, mask) in leaves(first, folio.pages()) {
            let (leaf, _) = self.find(at).expect("a folio must be in all of its slots");
            let kept = rest.map(TreeEntry::kind);
            for mark in ALL_MARKS.into_iter().filter(|&mark| Some(mark) != kept) {
                self.clear(leaf, mask, mark);
            }
            self.counts[TreeMark::Folio as usize] -= mask.count_ones() as u64;
            if let Some(rest) = rest {
                let node = &mut self.nodes[leaf as usize];
                let offset = (at.0 - first.0) as u32;
                for (i, slot) in slots(mask).enumerate() {
                    node.slots[slot] = match rest {
                        TreeEntry::Swap(place) => {
                            TreeEntry::Swap(SwapSlot(place.0 + offset + i as u32)).pack()
                        }
                        other => other.pack(),
                    };
                }
                self.set(leaf, mask, rest.kind());
                self.counts[rest.kind() as usize] += mask.count_ones() as u64;
            }
            self.note_shadows(leaf);
            if rest.is_none() {
                self.prune(leaf);
            }
        }
        folio
    }

    /// Replace the folio with the first index `first` by `other`, of the same size, which gets its marks.
    pub(crate) fn exchange_folio(&mut self, first: PageIndex, other: CachedFolio) -> CachedFolio {
        let folio = self.folio(first).expect("a folio to exchange");
        assert!(
            folio.first(first) == first && folio.order == other.order,
            "{other:?} in the place of {folio:?}"
        );
        for (at, mask) in leaves(first, folio.pages()) {
            let (leaf, _) = self.find(at).expect("a folio must be in all of its slots");
            let node = &mut self.nodes[leaf as usize];
            slots(mask).for_each(|slot| node.slots[slot] = other.pack());
        }
        folio
    }

    /// The folio with the first index `first` was split into folios of order `to`, the first with the same head. They
    /// keep its marks.
    pub(crate) fn split_folio(&mut self, first: PageIndex, to: Order) {
        let folio = self.folio(first).expect("a folio to split");
        assert!(folio.first(first) == first && to < folio.order);
        for (at, mask) in leaves(first, folio.pages()) {
            let (leaf, _) = self.find(at).expect("a folio must be in all of its slots");
            let (node, offset) = (&mut self.nodes[leaf as usize], (at.0 - first.0) as u32);
            for (i, slot) in slots(mask).enumerate() {
                let part = (offset + i as u32) >> to.0 << to.0;
                node.slots[slot] = CachedFolio { head: folio.head.add(part), order: to }.pack();
            }
        }
    }

    /// Mark the whole folio at an index.
    ///
    /// # Panics
    /// If there is no folio, or the mark is a kind of entry.
    pub fn set_mark(&mut self, index: PageIndex, mark: TreeMark) {
        let (leaf, slot) = self.find(index).expect("only folios may be marked");
        let node = &self.nodes[leaf as usize];
        assert!(mark as usize >= 3 && node.has(TreeMark::Folio, slot));
        self.for_slots(index, (leaf, slot), |tree, leaf, mask| tree.set(leaf, mask, mark));
    }

    /// Clear a mark of the whole folio at an index, if it is set.
    pub(crate) fn clear_mark(&mut self, index: PageIndex, mark: TreeMark) {
        assert!(mark as usize >= 3, "a kind of entry cannot be cleared");
        let Some((leaf, slot)) = self.find(index) else { return };
        if self.nodes[leaf as usize].has(mark, slot) {
            self.for_slots(index, (leaf, slot), |tree, leaf, mask| tree.clear(leaf, mask, mark));
        }
    }

    /// Call `change` for each leaf of the folio at an index, which is in this slot, with the mask of its slots there.
    #[inline]
    fn for_slots(
        &mut self,
        index: PageIndex,
        (leaf, slot): (u32, usize),
        change: impl Fn(&mut PageTree, u32, u64),
    ) {
        let folio = CachedFolio::unpack(self.nodes[leaf as usize].slots[slot]);
        if folio.order == Order::ZERO {
            return change(self, leaf, 1 << slot);
        }
        for (at, mask) in leaves(folio.first(index), folio.pages()) {
            let (leaf, _) = self.find(at).expect("a folio must be in all of its slots");
            change(self, leaf, mask);
        }
    }

    /// The folios in a range (also those partly in it) that have the mark, in order, each with its first index.
    pub(crate) fn folios_in(
        &self,
        mark: TreeMark,
        range: Range<u64>,
    ) -> impl Iterator<Item = (PageIndex, CachedFolio)> + '_ {
        self.iter(mark, range).filter_map(|(index, entry)| match entry {
            TreeEntry::Folio(folio) => Some((folio.first(index), folio)),
            TreeEntry::Shadow(_) | TreeEntry::Swap(_) => None,
        })
    }
}

const _: () = assert!(SLOTS == 1 << SLOT_BITS && SLOTS == u64::BITS as usize);
