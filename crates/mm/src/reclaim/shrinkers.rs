//! What reclaim does beside freeing folios: it has pools of compressed memory move their objects together, and zswap
//! write old pages to their slots.
//!
//! How much a pool could free is divided by the priority, as the scan of a list is; what that leaves too small to be
//! worth a look is added up.
//!
//! Source: `do_shrink_slab` in mm/shrinker.c, `zs_shrinker_scan` in mm/zsmalloc.c of Linux 6.12.

use super::{Reclaim, ScanControl};
use crate::knobs::Knob;
use crate::lru::ROOT;
use crate::machine::Machine;
use crate::units::*;
use crate::zsmalloc::ZsPool;

/// The most objects of one look (SHRINK_BATCH).
const BATCH: u64 = 128;
/// How many looks an object is worth (DEFAULT_SEEKS).
const SEEKS: u64 = 2;

/// How much a shrinker should look at now, and what it did not look at so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Share {
    now: u64,
    delta: u64,
    deferred: u64,
    freeable: u64,
}

impl Share {
    fn new(freeable: u64, deferred: u64, priority: u32) -> Share {
        let delta = (freeable >> priority) * 4 / SEEKS;
        let now = ((deferred >> priority) + delta).min(2 * freeable);
        Share { now, delta, deferred, freeable }
    }

    /// Look at batches, until `look`, which says whether to go on, has had enough. Returns what is deferred.
    fn spend(self, mut look: impl FnMut(u64) -> bool) -> u64 {
        let (mut left, mut scanned) = (self.now, 0);
        while left > 0 && (left >= BATCH || left >= self.freeable) {
            let batch = left.min(BATCH);
            if !look(batch) {
                break;
            }
            left -= batch;
            scanned += batch;
        }
        (self.deferred + self.delta).saturating_sub(scanned).min(2 * self.freeable)
    }
}

impl<M: Machine> Reclaim<'_, M> {
    /// Have shrinkers work after a group's lists were scanned.
    pub(super) fn shrink_slab(self, node: NodeId, group: GroupId, sc: &ScanControl) {
        if !self.core.packs() {
            return;
        }
        if group == ROOT {
            let zrams = self.core.zrams.iter().flatten().map(|zram| zram.pool());
            zrams.chain([self.core.zswap.pool()]).for_each(|pool| self.shrink_pool(pool, sc.priority));
        }
        if self.core.knobs.get(Knob::ZswapShrinkerEnabled) != 0 && self.core.may_write_to_slot(group) {
            self.shrink_zswap(node, group, sc.priority);
        }
    }

    fn shrink_zswap(self, node: NodeId, group: GroupId, priority: u32) {
        let (core, zswap) = (self.core, &self.core.zswap);
        let freeable = zswap.shrinkable(&core.lru.groups, group, node);
        if freeable > 0 {
            let share = Share::new(freeable, zswap.take_deferred(group, node), priority);
            let look = |most| core.cache.shrink_zswap_list(core, group, node, most);
            zswap.defer(group, node, share.spend(look));
        }
    }

    fn shrink_pool(self, pool: &ZsPool, priority: u32) {
        let freeable = pool.compactable();
        if freeable > 0 {
            let share = Share::new(freeable, pool.take_deferred(), priority);
            pool.defer(share.spend(|_| pool.compact(&self.core.zs()) > 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shrinker_is_deferred_until_its_share_is_worth_a_look() {
        let mut looks = 0;
        let mut deferred = 0;
        let mut pass = |freeable, priority, looks: &mut u32| {
            let share = Share::new(freeable, deferred, priority);
            deferred = share.spend(|_| {
                *looks += 1;
                true
            });
            deferred
        };
        // 4096 at priority 12 are worth 2 of 128.
        assert_eq!(pass(4096, 12, &mut looks), 2);
        assert_eq!((pass(4096, 12, &mut looks), looks), (4, 0));
        // At priority 2 they are 2048 and a quarter of what was deferred: 16 batches.
        assert_eq!((pass(4096, 2, &mut looks), looks), (4, 16));
        // A few are all looked at when their number is reached.
        assert_eq!((pass(10, 0, &mut looks), looks), (4, 17));
    }
}
