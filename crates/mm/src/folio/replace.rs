//! Replacing a folio by one of the same size that has the same content.
//!
//! Who finds a folio in a cache takes a reference under a lock of that cache, and who does so finds either the old or
//! the new one there, with all that must be known of it.

use crate::cache::CACHE_AND_CALLER;
use crate::frame::{FolioPages, FrameFlags, Owner};
use crate::machine::Machine;
use crate::mm_core::MmCore;
use crate::units::*;

/// What is known of a folio's content, and goes with it.
const OF_CONTENT: FrameFlags = FrameFlags::UPTODATE
    .union(FrameFlags::DIRTY)
    .union(FrameFlags::SWAPBACKED)
    .union(FrameFlags::READAHEAD)
    .union(FrameFlags::RECLAIM);

impl<M: Machine> MmCore<M> {
    /// Make `to`, a new folio of the same size that nobody sees, what `from` is: for its cache, if it is in one, for
    /// its list and its group. Its content has been copied. Both are locked, `from` is not mapped, and the caller holds
    /// a reference of each. On return nobody can get a reference of `from` any more; its owner it keeps for those who
    /// look for its entries. `false`: somebody uses it, and nothing has changed.
    pub fn replace_folio(&self, from: Pfn, to: Pfn) -> bool {
        let platform = self;
        let (frame, new) = (&self.frames[from], &self.frames[to]);
        assert!(
            frame.has(FrameFlags::LOCKED) && new.has(FrameFlags::LOCKED),
            "a folio takes the place of another and one of them is not locked"
        );
        assert_eq!(frame.order(), new.order(), "a folio takes the place of one of another size");
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
            // It was cut off its file.
            Owner::None => false,
        }
    }

    /// No entry waits any more for a folio that was replaced: it is nobody's, and its references, which are frozen, go.
    pub fn leave_replaced(&self, head: Pfn) {
        let frame = &self.frames[head];
        if frame.is_anon() && frame.order() > Order::ZERO {
            for tail in FolioPages::all(&self.frames, head).iter().skip(1) {
                self.frames[tail].clear(FrameFlags::EXCLUSIVE);
            }
        }
        // What counts the sizes of anonymous folios goes on counting the new one.
        frame.set_owner(Owner::None, PageIndex(0));
    }
}
