//! What the guest's kernel has of its zones: how many pages, and in which page blocks.
//!
//! The guest tells the page blocks of each node that are unmovable and reclaimable, and how many free blocks of each
//! order there are in them. The simulated machine's kernel has the same, so that user memory finds the same pieces when
//! movable memory has run out: they decide how often it boosts the watermarks.

use crate::boot::Shape;
use mm::units::{PAGE_SIZE, PAGEBLOCK_ORDER};

/// Mobility types of page blocks that are told, as Linux and a machine's description name them.
const GROUPS: [(&str, &str); 2] = [("Unmovable", "unmovable"), ("Reclaimable", "reclaimable")];

/// What the kernel has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelsMemory {
    pages: u64,
    /// Of each node, in the order of the groups.
    blocks: Vec<Vec<PageBlocks>>,
}

/// Page blocks of one mobility type.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PageBlocks {
    group: &'static str,
    blocks: u64,
    /// Free blocks by order, below a page block.
    free: Vec<u64>,
}

impl PageBlocks {
    /// As the guest tells them: `12 blocks, free 2 1 0 1`. Page blocks that are free as a whole are left out, as any
    /// request may claim them.
    fn parse(group: &'static str, told: &str) -> Option<PageBlocks> {
        let (blocks, free) = told.split_once(" blocks, free ")?;
        let mut free: Vec<u64> =
            free.split_whitespace().map(|free| free.parse().ok()).collect::<Option<_>>()?;
        let whole = free.split_off(free.len().min(PAGEBLOCK_ORDER.0.into()));
        let whole: u64 = whole.iter().enumerate().map(|(order, free)| free << order).sum();
        Some(PageBlocks { group, blocks: blocks.parse::<u64>().ok()?.checked_sub(whole)?, free })
    }

    /// Pages in them that are the kernel's.
    fn kernels(&self) -> u64 {
        let free: u64 = self.free.iter().enumerate().map(|(order, free)| free << order).sum();
        (self.blocks << PAGEBLOCK_ORDER.0).saturating_sub(free)
    }

    /// A line of a machine's description.
    fn line(&self) -> String {
        format!("{} = {{ blocks = {}, free = {:?} }}\n", self.group, self.blocks, self.free)
    }
}

impl KernelsMemory {
    /// What is not the program's of `managed` pages. `found`: the guest's conditions; boots up to b6314f8e tell no page
    /// blocks.
    pub fn of(found: &[(String, String)], managed: u64, shape: &Shape) -> KernelsMemory {
        let told = |node: usize, (linux, group): (&str, &'static str)| {
            let name = format!("node {node} {linux}");
            let (_, told) = found.iter().find(|(what, _)| *what == name)?;
            PageBlocks::parse(group, told)
        };
        let of_node = |node| GROUPS.into_iter().filter_map(|group| told(node, group)).collect();
        KernelsMemory {
            pages: managed.saturating_sub(shape.memory() / PAGE_SIZE),
            blocks: (0..shape.count() as usize).map(of_node).collect(),
        }
    }

    /// Its pages of a node of which the program gets `bytes`.
    pub fn pages(&self, shape: &Shape, bytes: u64) -> u64 {
        self.pages * bytes / shape.memory()
    }

    /// The lines about a node in a machine's description.
    pub fn lines(&self, shape: &Shape, node: usize) -> String {
        let pages = self.pages(shape, shape.memory_by_node()[node]);
        let told = self.blocks.get(node).map_or(&[][..], Vec::as_slice);
        // The first node of several has more of the kernel's memory than its share.
        let fits = told.iter().map(PageBlocks::kernels).sum::<u64>() <= pages;
        let blocks: String = told.iter().filter(|_| fits).map(PageBlocks::line).collect();
        format!("kernels = {}\n{blocks}", pages * PAGE_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boot::Second;

    #[test]
    fn page_blocks_are_as_the_guest_tells() {
        let shape = Shape::new(1, Second::Missing, 32 << 20, 0).unwrap();
        let lines = |managed, free: &str| {
            let told =
                [("node 0 Unmovable", free), ("node 0 Movable", "42 blocks, free 1 1"), ("node 0 low", "5")];
            let found: Vec<_> =
                told.iter().map(|(what, told)| (what.to_string(), told.to_string())).collect();
            KernelsMemory::of(&found, managed, &shape).lines(&shape, 0)
        };
        // Of 12 blocks one is free as a whole, and one is half of such a free block.
        assert_eq!(
            lines(17_241, "12 blocks, free 1 0 0 1 0 1 0 1 0 1 0"),
            "kernels = 37064704\nunmovable = { blocks = 11, free = [1, 0, 0, 1, 0, 1, 0, 1, 0] }\n"
        );
        assert_eq!(
            lines(17_241, "12 blocks, free 3"),
            "kernels = 37064704\nunmovable = { blocks = 12, free = [3] }\n"
        );
        assert_eq!(lines(8_193, "12 blocks, free 1"), "kernels = 4096\n", "not enough pages");
        assert_eq!(lines(17_241, "many"), "kernels = 37064704\n", "boots that do not tell");
    }
}
