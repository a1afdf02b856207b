//! zswap's daemon: writes old pages to their slots when the pool is full.
//!
//! Source: `shrink_worker` in mm/zswap.c of Linux 6.12.

use crate::cache::GroupShrunk;
use crate::lru::ROOT;
use crate::machine::{Machine, Scope, WaitKey};
use crate::mm_core::MmCore;
use crate::units::*;

/// Failures after which the daemon gives up (MAX_RECLAIM_RETRIES).
const RETRIES: u32 = 16;

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
        match at.map(|group| core.cache.shrink_zswap(core, group)) {
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
