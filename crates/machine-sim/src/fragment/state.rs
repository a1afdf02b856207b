//! The state of free memory, as /proc/buddyinfo and /proc/pagetypeinfo show it.

use super::target::ORDERS;
use crate::machine::SimMachine;
use mm::Mm;
use mm::alloc::{FreeBlocks, PageTypeInfo};
use mm::frame::Mobility;
use mm::units::PAGEBLOCK_ORDER;
use std::fmt::Display;

/// Free blocks and page blocks of all zones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemoryState {
    /// The zones.
    pub zones: Vec<ZoneState>,
}

/// Free blocks and page blocks of one zone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ZoneState {
    /// Its node.
    pub node: u8,
    /// Its name in Linux.
    pub name: &'static str,
    /// For each mobility type (unmovable, movable, reclaimable), the free blocks of each order.
    pub blocks: [[u64; ORDERS]; Mobility::COUNT],
    /// For each mobility type, its page blocks.
    pub pageblocks: [u64; Mobility::COUNT],
}

impl ZoneState {
    fn by_order(&self) -> [u64; ORDERS] {
        std::array::from_fn(|order| self.blocks.iter().map(|blocks| blocks[order]).sum())
    }
}

impl MemoryState {
    /// The current state, without pages on per-CPU lists.
    pub(crate) fn of(mm: &Mm<SimMachine>) -> MemoryState {
        let lines = mm.core().alloc.pagetypeinfo();
        let zone = |lines: &[PageTypeInfo]| ZoneState {
            node: lines[0].node.0,
            name: lines[0].kind.name(),
            blocks: std::array::from_fn(|group| lines[group].blocks),
            pageblocks: std::array::from_fn(|group| lines[group].pageblocks),
        };
        MemoryState { zones: lines.chunks_exact(Mobility::COUNT).map(zone).collect() }
    }

    /// Free blocks of each order.
    pub fn by_order(&self) -> [u64; ORDERS] {
        let zones: Vec<_> = self.zones.iter().map(ZoneState::by_order).collect();
        std::array::from_fn(|order| zones.iter().map(|blocks| blocks[order]).sum())
    }

    /// Free pages.
    pub fn free(&self) -> u64 {
        FreeBlocks(self.by_order()).pages()
    }

    /// Free pages in blocks of these orders.
    pub(crate) fn free_in(&self, orders: std::ops::Range<usize>) -> u64 {
        orders.map(|order| self.by_order()[order] << order).sum()
    }

    /// Share of the free memory, in per cent, that is of no use for a block of 2 MiB.
    pub fn unusable(&self) -> f64 {
        FreeBlocks(self.by_order()).unusable_index(PAGEBLOCK_ORDER) as f64 / 10.0
    }

    /// Page blocks of each mobility type.
    pub fn pageblocks(&self) -> [u64; Mobility::COUNT] {
        std::array::from_fn(|group| self.zones.iter().map(|zone| zone.pageblocks[group]).sum())
    }

    /// As /proc/buddyinfo shows it.
    pub fn buddyinfo(&self) -> String {
        let line = |zone: &ZoneState| {
            format!("Node {}, zone {:>8} {}\n", zone.node, zone.name, columns(6, zone.by_order()))
        };
        self.zones.iter().map(line).collect()
    }

    /// As /proc/pagetypeinfo shows it.
    pub fn pagetypeinfo(&self) -> String {
        let free = |zone: &ZoneState| -> String {
            let line = |(group, blocks): (&Mobility, [u64; ORDERS])| {
                let (node, name, group) = (zone.node, zone.name, format!("{group:?}"));
                format!("Node {node:>4}, zone {name:>8}, type {group:>12} {}\n", columns(6, blocks))
            };
            Mobility::ALL.iter().zip(zone.blocks).map(line).collect()
        };
        let blocks = |zone: &ZoneState| {
            format!("Node {}, zone {:>8} {}\n", zone.node, zone.name, columns(12, zone.pageblocks))
        };
        let groups = Mobility::ALL.map(|group| format!("{group:?}"));
        format!(
            "{:<43} {}\n{}\n{:<23} {}\n{}",
            "Free pages count per migrate type at order",
            columns(6, 0..ORDERS),
            self.zones.iter().map(free).collect::<String>(),
            "Number of blocks type",
            columns(12, groups),
            self.zones.iter().map(blocks).collect::<String>()
        )
    }
}

fn columns<T: Display>(width: usize, cells: impl IntoIterator<Item = T>) -> String {
    cells.into_iter().map(|cell| format!("{cell:>width$} ")).collect()
}
