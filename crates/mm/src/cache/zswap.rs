//! Writing pages that zswap holds to their slots, the oldest of a group first.
//!
//! Source: `shrink_memcg`, `zswap_writeback_entry`, `zswap_shrinker_count` and `zswap_shrinker_scan` in mm/zswap.c of
//! Linux 6.12.

use super::Cache;
use super::swapin::{ZswapRead, read_zswap_slot};
use crate::knobs::Knob;
use crate::machine::Machine;
use crate::memory::{AllowedReadAhead, Gfp, Memory};
use crate::units::*;
use crate::zswap::ZswapHead;

/// What became of a group's oldest pages, one of each node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GroupShrunk {
    /// There were none, or they may not be written.
    Nothing,
    /// At least one was written.
    Some,
    /// None was.
    Failed,
}

/// What became of the first page of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum HeadShrunk {
    Empty,
    /// It has come since it was last met, and gets a second chance.
    Spared,
    Written,
    /// It is in the swap cache: a task needs it.
    InUse,
    /// It is gone, or there is no memory to write it.
    Failed,
}

impl Cache {
    /// Write the oldest page of a group on each node.
    pub(crate) fn shrink_zswap<M: Machine>(&self, memory: &Memory<M>, group: GroupId) -> GroupShrunk {
        let mut shrunk = GroupShrunk::Nothing;
        if !memory.lru.groups.may_write_from_zswap(group) {
            return shrunk;
        }
        for node in (0..memory.lru.nodes()).map(|node| NodeId(node as u8)) {
            match self.shrink_zswap_head(memory, group, node) {
                HeadShrunk::Empty => {}
                HeadShrunk::Written => shrunk = GroupShrunk::Some,
                _ if shrunk == GroupShrunk::Nothing => shrunk = GroupShrunk::Failed,
                _ => {}
            }
        }
        shrunk
    }

    /// Whether zswap may take a page of a group: if one from it upwards is at its limit, a page of the group is written
    /// first.
    pub(super) fn makes_room_in_zswap<M: Machine>(&self, memory: &Memory<M>, group: GroupId) -> bool {
        memory.knobs.get(Knob::ZswapEnabled) != 0
            && (memory.lru.groups.may_zswap(group) || self.shrink_zswap(memory, group) == GroupShrunk::Some)
    }

    /// Write up to `most` of the oldest pages of a group on a node. Returns whether to go on: not if none was written,
    /// or one is needed, so that younger ones are probably, too.
    pub(crate) fn shrink_zswap_list<M: Machine>(
        &self,
        memory: &Memory<M>,
        group: GroupId,
        node: NodeId,
        most: u64,
    ) -> bool {
        let mut written = 0;
        for _ in 0..most {
            match self.shrink_zswap_head(memory, group, node) {
                HeadShrunk::Empty => break,
                HeadShrunk::InUse => return false,
                HeadShrunk::Written => written += 1,
                HeadShrunk::Spared | HeadShrunk::Failed => {}
            }
        }
        written > 0
    }

    fn shrink_zswap_head<M: Machine>(&self, memory: &Memory<M>, group: GroupId, node: NodeId) -> HeadShrunk {
        let slot = match memory.zswap.look_at_head(group, node) {
            ZswapHead::Empty => return HeadShrunk::Empty,
            ZswapHead::Referenced => return HeadShrunk::Spared,
            ZswapHead::Old(slot) => slot,
        };
        let shrunk = self.write_zswap_slot(memory, slot, group);
        memory.zswap.count_write(shrunk == HeadShrunk::Written);
        shrunk
    }

    /// Write a page to its slot by way of the swap cache.
    fn write_zswap_slot<M: Machine>(&self, memory: &Memory<M>, slot: SwapSlot, group: GroupId) -> HeadShrunk {
        let gfp = Gfp { read_ahead: AllowedReadAhead::Nothing, ..Gfp::user(group) };
        match read_zswap_slot(memory, slot, gfp) {
            ZswapRead::Done(pfn) => {
                self.write_from_zswap(memory, pfn);
                memory.put(pfn);
                HeadShrunk::Written
            }
            ZswapRead::Cached => HeadShrunk::InUse,
            ZswapRead::Failed => HeadShrunk::Failed,
        }
    }
}
