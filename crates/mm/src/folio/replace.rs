//! Replacing a folio by one of the same size and content.
//!
//! A lookup in a cache takes a reference under a lock of that cache, so it finds either the old folio or the new one,
//! with its complete state.

use crate::cache::CACHE_AND_CALLER;
use crate::frame::{FolioPages, FrameFlags, Owner};
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::units::*;
use base::demand;

/// Flags that describe a folio's content and move with it.
const OF_CONTENT: FrameFlags = FrameFlags::UPTODATE
    .union(FrameFlags::DIRTY)
    .union(FrameFlags::SWAPBACKED)
    .union(FrameFlags::BUFFERS)
    .union(FrameFlags::READAHEAD)
    .union(FrameFlags::RECLAIM);

impl<M: Machine> MmCore<M> {
    /// Replace `from` by `to`, a new folio of the same size that no other task can find: in its cache, if it is in
    /// one, in its list and its group. The content has been copied. Both folios are locked, `from` is not mapped, and
    /// the caller holds a reference to each. On return no task can get a reference to `from`; it keeps its owner for
    /// tasks that look for its entries. Returns `false` if `from` is in use; then nothing has changed.
    pub(crate) fn replace_folio(&self, from: Pfn, to: Pfn) -> bool {
        let platform = self;
        let (frame, new) = (&self.frames[from], &self.frames[to]);
        demand!(
            frame.has(FrameFlags::LOCKED) && new.has(FrameFlags::LOCKED), [from, to];
            "both folios must be locked to replace {from} by {to}"
        );
        assert!(frame.order() == new.order(), "a folio must be replaced by one of the same size");
        let take = |refs| {
            if frame.mapcount() > 0 || !frame.freeze(refs) {
                return false;
            }
            new.set(frame.flags() & OF_CONTENT);
            new.set_owner(frame.owner(), frame.page_index());
            self.lru.succeed(platform, from, to);
            true
        };
        if frame.has(FrameFlags::SWAPCACHE) {
            return self.swap.cache_exchange(platform, from, to, || take(CACHE_AND_CALLER));
        }
        match frame.owner() {
            Owner::Anon(_) => take(1),
            Owner::File(file) => self.cache.put_in_place(self, file, &[from], to, |_| take(CACHE_AND_CALLER)),
            // The folio was truncated from its file.
            Owner::None => false,
        }
    }

    /// Release a replaced folio after no entry waits for it any more: it has no owner, and its references, which are
    /// frozen, are gone.
    pub(crate) fn leave_replaced(&self, head: Pfn) {
        let frame = &self.frames[head];
        if frame.is_anon() && frame.order() > Order::ZERO {
            for tail in FolioPages::all(&self.frames, head).iter().skip(1) {
                self.frames[tail].clear(FrameFlags::EXCLUSIVE);
            }
        }
        // The count of anonymous folios by size passes to the new folio, so the old one must not be uncounted.
        frame.set_owner(Owner::None, PageIndex(0));
    }
}
