//! What accesses and advice do to a folio's place: the second chance, and the moves between lists of single folios.

use super::Lru;
use super::policy::{Policy, Used, Why};
use crate::base::Base;
use crate::frame::FrameFlags;
use crate::machine::Machine;
use crate::stat::Stat;
use crate::units::*;

impl Lru {
    /// The folio was used through a file descriptor.
    pub fn mark_accessed<M: Machine>(&self, base: &Base<M>, pfn: Pfn) {
        let frame = &base.frames[pfn];
        if self.policy_of(frame).used(base, frame) == Used::Activate {
            self.activate(base, pfn);
            frame.clear(FrameFlags::REFERENCED);
            self.age_nonresident(frame.node(), frame.group(), frame.pages() as u64);
        }
    }

    /// Move an inactive folio to the active list.
    pub fn activate<M: Machine>(&self, base: &Base<M>, pfn: Pfn) {
        let frame = &base.frames[pfn];
        if self.claim(base, pfn, FrameFlags::ACTIVE | FrameFlags::UNEVICTABLE) {
            self.relink(base, pfn, Why::Used, FrameFlags::ACTIVE, NONE);
            base.count(Stat::Pgactivate, frame.pages() as i64);
        }
    }

    /// Move an active folio to where inactive ones are (MADV_COLD).
    pub fn deactivate<M: Machine>(&self, base: &Base<M>, pfn: Pfn) {
        let frame = &base.frames[pfn];
        let moves = frame.has(FrameFlags::ACTIVE) || self.policy_of(frame).deactivates_all();
        if moves && self.claim(base, pfn, FrameFlags::UNEVICTABLE) {
            self.relink(base, pfn, Why::Cold, NONE, ACTIVE_OR_REFERENCED);
            base.count(Stat::Pgdeactivate, frame.pages() as i64);
        }
    }

    /// A file folio could not be dropped when asked for (it is dirty, being written, or in use): let reclaim meet it
    /// soon. A clean one goes to the tail; one that must be written first goes to the head and is freed after its
    /// write.
    pub fn deactivate_file<M: Machine>(&self, base: &Base<M>, pfn: Pfn) {
        let frame = &base.frames[pfn];
        if frame.mapcount() > 0 || !self.claim(base, pfn, FrameFlags::UNEVICTABLE) {
            return;
        }
        let flags = frame.flags();
        if flags.intersects(FrameFlags::WRITEBACK | FrameFlags::DIRTY) {
            self.relink(base, pfn, Why::Cold, NONE, ACTIVE_OR_REFERENCED);
            frame.set(FrameFlags::RECLAIM);
        } else {
            self.relink(base, pfn, Why::Wanted, NONE, ACTIVE_OR_REFERENCED);
            base.count(Stat::Pgrotated, frame.pages() as i64);
        }
        if flags.contains(FrameFlags::ACTIVE) {
            base.count(Stat::Pgdeactivate, frame.pages() as i64);
        }
    }

    /// The content of an anonymous folio may be forgotten (MADV_FREE): it goes to the inactive file list, from where
    /// reclaim drops it without writing.
    pub fn lazyfree<M: Machine>(&self, base: &Base<M>, pfn: Pfn) {
        let frame = &base.frames[pfn];
        let eligible = frame.is_anon() && frame.has(FrameFlags::SWAPBACKED);
        if eligible && self.claim(base, pfn, FrameFlags::SWAPCACHE | FrameFlags::UNEVICTABLE) {
            let gone = ACTIVE_OR_REFERENCED | FrameFlags::SWAPBACKED;
            self.relink(base, pfn, Why::Cold, NONE, gone);
            base.count(Stat::Pglazyfree, frame.pages() as i64);
        }
    }

    /// The write of a folio that reclaim wants has ended: it goes to the tail of the inactive list.
    pub fn rotate_reclaimable<M: Machine>(&self, base: &Base<M>, pfn: Pfn) {
        let busy = FrameFlags::LOCKED | FrameFlags::DIRTY | FrameFlags::UNEVICTABLE;
        let frame = &base.frames[pfn];
        if self.claim(base, pfn, busy) {
            self.relink(base, pfn, Why::Wanted, NONE, FrameFlags::ACTIVE);
            base.count(Stat::Pgrotated, frame.pages() as i64);
        }
    }

    /// A mapping locks the folio in memory: it goes to the unevictable list, now or when whoever isolated it puts it
    /// back.
    pub fn mlock<M: Machine>(&self, base: &Base<M>, pfn: Pfn) {
        let frame = &base.frames[pfn];
        if frame.test_and_set(FrameFlags::MLOCKED) {
            base.count(Stat::NrMlock, frame.pages() as i64);
            base.count(Stat::UnevictablePgsMlocked, frame.pages() as i64);
        }
        if self.claim(base, pfn, FrameFlags::UNEVICTABLE) {
            self.relink(base, pfn, Why::Back, NONE, NONE);
        }
    }

    /// The same for a folio on no list yet, to which the content of a locked one was moved.
    pub fn keep_locked<M: Machine>(&self, base: &Base<M>, pfn: Pfn) {
        let frame = &base.frames[pfn];
        if frame.test_and_set(FrameFlags::MLOCKED) {
            base.count(Stat::NrMlock, frame.pages() as i64);
        }
    }

    /// The last mapping that locked the folio is gone. Should another one be left, reclaim finds it and locks the folio
    /// again.
    pub fn munlock<M: Machine>(&self, base: &Base<M>, pfn: Pfn) {
        let frame = &base.frames[pfn];
        if frame.test_and_clear(FrameFlags::MLOCKED) {
            base.count(Stat::NrMlock, -(frame.pages() as i64));
            base.count(Stat::UnevictablePgsMunlocked, frame.pages() as i64);
        }
        if frame.has(FrameFlags::UNEVICTABLE) && self.claim(base, pfn, FrameFlags::MLOCKED) {
            self.relink(base, pfn, Why::Back, NONE, NONE);
        }
    }

    /// Get the right to move a folio, unless it has one of the flags or is on no list.
    fn claim<M: Machine>(&self, base: &Base<M>, pfn: Pfn, unless: FrameFlags) -> bool {
        let frame = &base.frames[pfn];
        !frame.has_any(unless) && frame.test_and_clear(FrameFlags::LRU)
    }
}

const NONE: FrameFlags = FrameFlags::empty();
const ACTIVE_OR_REFERENCED: FrameFlags = FrameFlags::ACTIVE.union(FrameFlags::REFERENCED);
