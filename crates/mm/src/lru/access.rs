//! Moves of single folios between lists, by accesses and advice: the second chance.

use super::Lru;
use super::folio_batch::BatchKind;
use super::policy::{AccessEffect, InsertReason, Policy};
use crate::frame::FrameFlags;
use crate::machine::Machine;
use crate::platform::Platform;
use crate::stat::Stat;
use crate::units::*;

impl Lru {
    /// The folio was used through a file descriptor.
    pub(crate) fn mark_accessed<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn) {
        let frame = &platform.frames[pfn];
        if self.policy_of(frame).used(platform, frame) == AccessEffect::Activate {
            self.activate(platform, pfn);
            frame.clear(FrameFlags::REFERENCED);
            self.age_nonresident(frame.node(), frame.group(), frame.pages() as u64);
        }
        if frame.has(FrameFlags::IDLE) {
            frame.clear(FrameFlags::IDLE);
        }
    }

    pub(crate) fn activate<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn) {
        let frame = &platform.frames[pfn];
        if self.claim(platform, pfn, FrameFlags::ACTIVE | FrameFlags::UNEVICTABLE) {
            self.relink(platform, pfn, (BatchKind::Activate, InsertReason::Used), FrameFlags::ACTIVE, NONE);
            platform.count(Stat::Pgactivate, frame.pages() as i64);
        }
    }

    /// Deactivate an active folio (MADV_COLD).
    pub(crate) fn deactivate<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn) {
        let frame = &platform.frames[pfn];
        let moves = frame.has(FrameFlags::ACTIVE) || self.policy_of(frame).deactivates_all();
        if moves && self.claim(platform, pfn, FrameFlags::UNEVICTABLE) {
            self.relink(
                platform,
                pfn,
                (BatchKind::Deactivate, InsertReason::Cold),
                NONE,
                ACTIVE_OR_REFERENCED,
            );
            platform.count(Stat::Pgdeactivate, frame.pages() as i64);
        }
    }

    /// Have reclaim take a file folio soon that could not be dropped on request (it is dirty, under write-back, or in
    /// use). A clean one goes to the tail; one that must be written first goes to the head and is freed after its
    /// write.
    pub(crate) fn deactivate_file<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn) {
        let frame = &platform.frames[pfn];
        if frame.mapcount() > 0 || !self.claim(platform, pfn, FrameFlags::UNEVICTABLE) {
            return;
        }
        let flags = frame.flags();
        if flags.intersects(FrameFlags::WRITEBACK | FrameFlags::DIRTY) {
            self.relink(
                platform,
                pfn,
                (BatchKind::DeactivateFile, InsertReason::Cold),
                NONE,
                ACTIVE_OR_REFERENCED,
            );
            frame.set(FrameFlags::RECLAIM);
        } else {
            self.relink(
                platform,
                pfn,
                (BatchKind::DeactivateFile, InsertReason::Wanted),
                NONE,
                ACTIVE_OR_REFERENCED,
            );
            platform.count(Stat::Pgrotated, frame.pages() as i64);
        }
        if flags.contains(FrameFlags::ACTIVE) {
            platform.count(Stat::Pgdeactivate, frame.pages() as i64);
        }
    }

    /// The content of an anonymous folio may be dropped (MADV_FREE): the folio goes to the inactive file list, from
    /// which reclaim drops it without a write.
    pub(crate) fn lazyfree<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn) {
        let frame = &platform.frames[pfn];
        let eligible = frame.is_anon() && frame.has(FrameFlags::SWAPBACKED);
        if eligible && self.claim(platform, pfn, FrameFlags::SWAPCACHE | FrameFlags::UNEVICTABLE) {
            let gone = ACTIVE_OR_REFERENCED | FrameFlags::SWAPBACKED;
            self.relink(platform, pfn, (BatchKind::LazyFree, InsertReason::Cold), NONE, gone);
            platform.count(Stat::Pglazyfree, frame.pages() as i64);
        }
    }

    /// The write of a folio that reclaim wants has ended: it goes to the tail of the inactive list.
    pub(crate) fn rotate_reclaimable<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn) {
        let busy = FrameFlags::LOCKED | FrameFlags::DIRTY | FrameFlags::UNEVICTABLE;
        let frame = &platform.frames[pfn];
        if self.claim(platform, pfn, busy) {
            self.relink(platform, pfn, (BatchKind::Rotate, InsertReason::Wanted), NONE, FrameFlags::ACTIVE);
            platform.count(Stat::Pgrotated, frame.pages() as i64);
        }
    }

    /// A mapping locks the folio in memory: it goes to the unevictable list, now or when the task that has isolated it
    /// puts it back.
    pub fn mlock<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn) {
        let frame = &platform.frames[pfn];
        if frame.test_and_set(FrameFlags::MLOCKED) {
            platform.count(Stat::NrMlock, frame.pages() as i64);
            platform.count(Stat::UnevictablePgsMlocked, frame.pages() as i64);
        }
        if self.claim(platform, pfn, FrameFlags::UNEVICTABLE) {
            self.relink(platform, pfn, (BatchKind::Mlock, InsertReason::Back), NONE, NONE);
        }
    }

    /// The same for a folio that is on no list yet and has the content of an mlocked one.
    pub(crate) fn keep_locked<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn) {
        let frame = &platform.frames[pfn];
        if frame.test_and_set(FrameFlags::MLOCKED) {
            platform.count(Stat::NrMlock, frame.pages() as i64);
        }
    }

    /// The last mapping that locked the folio was removed. If another one is left, reclaim finds it and locks the folio
    /// again.
    pub fn munlock<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn) {
        let frame = &platform.frames[pfn];
        if frame.test_and_clear(FrameFlags::MLOCKED) {
            platform.count(Stat::NrMlock, -(frame.pages() as i64));
            platform.count(Stat::UnevictablePgsMunlocked, frame.pages() as i64);
        }
        if frame.has(FrameFlags::UNEVICTABLE) && self.claim(platform, pfn, FrameFlags::MLOCKED) {
            self.relink(platform, pfn, (BatchKind::Mlock, InsertReason::Back), NONE, NONE);
        }
    }

    /// Take the right to move a folio, unless it has one of the flags or is on no list.
    fn claim<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn, unless: FrameFlags) -> bool {
        let frame = &platform.frames[pfn];
        !frame.has_any(unless) && frame.test_and_clear(FrameFlags::LRU)
    }
}

const NONE: FrameFlags = FrameFlags::empty();
const ACTIVE_OR_REFERENCED: FrameFlags = FrameFlags::ACTIVE.union(FrameFlags::REFERENCED);
