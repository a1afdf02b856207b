//! zswap's daemon: writes old pages to their slots when the pool is full.
//!
//! Source: `shrink_worker`, `shrink_memcg` and `zswap_writeback_entry` in mm/zswap.c of Linux 6.12.

use crate::cache::read_zswap_slot;
use crate::lru::ROOT;
use crate::machine::{Machine, Scope, WaitKey};
use crate::memory::{AllowedReadAhead, Gfp};
use crate::mm_core::MmCore;
use crate::units::*;
use crate::zswap::ZswapHead;

/// Failures after which the daemon gives up (MAX_RECLAIM_RETRIES).
const RETRIES: u32 = 16;

/// What became of a group's oldest pages, one of each node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GroupShrunk {
    /// There were none.
    Nothing,
    /// At least one was written.
    Some,
    /// None was.
    Failed,
}

/// Write pages when that is wanted, until the machine stops.
pub(crate) fn zswap<M: Machine>(core: &MmCore<M>) {
    let mut next = None;
    while !core.machine.stopping() {
        let ticket = core.machine.ticket(WaitKey::Zswap);
        if core.zswap.take_request() {
            shrink(core, &mut next);
        }
        if !core.machine.stopping() {
            core.machine.wait(ticket, None);
        }
    }
}

/// Write pages of one group after the other, from the one after `at` on, until the pool has shrunk to the threshold.
fn shrink<M: Machine>(core: &MmCore<M>, at: &mut Option<GroupId>) {
    let _scope = core.scope(Scope::ShrinkWorker);
    let (mut failures, mut attempts) = (0, 0);
    while failures < RETRIES && !core.machine.stopping() {
        // A group that was removed meanwhile leads nowhere.
        *at = core.lru.groups.next(ROOT, at.map(|group| core.lru.groups.nearest_live(group)));
        match at.map(|group| shrink_group(core, group)) {
            // All groups had their turn.
            None => {
                failures += u32::from(attempts == 0);
                attempts = 0;
            }
            Some(GroupShrunk::Nothing) => {}
            Some(GroupShrunk::Some) => attempts += 1,
            Some(GroupShrunk::Failed) => {
                attempts += 1;
                failures += 1;
            }
        }
        core.machine.resched();
        if !core.zswap.is_above_threshold(&core.knobs) {
            return;
        }
    }
}

fn shrink_group<M: Machine>(core: &MmCore<M>, group: GroupId) -> GroupShrunk {
    let mut shrunk = GroupShrunk::Nothing;
    for node in (0..core.lru.nodes()).map(|node| NodeId(node as u8)) {
        let written = match core.zswap.look_at_head(group, node) {
            ZswapHead::Empty => continue,
            ZswapHead::Referenced => false,
            ZswapHead::Old(slot) => {
                let written = write(core, slot, group);
                core.zswap.count_write(written);
                written
            }
        };
        if written {
            shrunk = GroupShrunk::Some;
        } else if shrunk == GroupShrunk::Nothing {
            shrunk = GroupShrunk::Failed;
        }
    }
    shrunk
}

/// Write a page to its slot by way of the swap cache. `false`: it is in use, or gone, or there is no memory for it.
fn write<M: Machine>(core: &MmCore<M>, slot: SwapSlot, group: GroupId) -> bool {
    let gfp = Gfp { read_ahead: AllowedReadAhead::Nothing, ..Gfp::user(group) };
    let Some(pfn) = read_zswap_slot(core, slot, gfp) else { return false };
    core.cache.write_from_zswap(core, pfn);
    core.put(pfn);
    true
}
