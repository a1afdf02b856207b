//! Putting a folio in the place of others that hold the same pages, in a file or in the swap cache.
//!
//! Who finds a folio in a tree takes a reference under the tree's lock, and who does so finds either the old or the new one there, with
//! all that must be known of it.

use super::Cache;
use super::split::CACHE_AND_CALLER;
use super::tree::{Folio, PageTree};
use crate::frame::{FrameFlags, Owner};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::units::*;

/// What is known of a folio's content, and goes with it.
const OF_CONTENT: FrameFlags = FrameFlags::UPTODATE
    .union(FrameFlags::DIRTY)
    .union(FrameFlags::SWAPBACKED)
    .union(FrameFlags::READAHEAD)
    .union(FrameFlags::RECLAIM);

impl Cache {
    /// Make `to`, a new folio of the same size that nobody sees, what `from` is: for its cache, if it is in one, for its list and its
    /// group. Its content has been copied. Both are locked, `from` is not mapped, and the caller holds a reference of each. On return
    /// nobody can get a reference of `from` any more; its owner it keeps for those who look for its entries. `false`: somebody uses it,
    /// and nothing has changed.
    pub fn exchange<M: Machine>(&self, memory: &Memory<M>, from: Pfn, to: Pfn) -> bool {
        let (frame, new) = (&memory.frames[from], &memory.frames[to]);
        debug_assert!(frame.has(FrameFlags::LOCKED) && new.has(FrameFlags::LOCKED));
        let take = |refs| {
            if frame.mapcount() > 0 || !frame.freeze(refs) {
                return false;
            }
            new.set(frame.flags() & OF_CONTENT);
            new.set_owner(frame.owner(), frame.page_index());
            memory.lru.succeed(memory.ground(), from, to);
            true
        };
        if frame.has(FrameFlags::SWAPCACHE) {
            return memory.swap.cache_exchange(memory.ground(), from, to, || take(CACHE_AND_CALLER));
        }
        match frame.owner() {
            Owner::Anon(_) => take(1),
            Owner::File(file) => self.put_in_place(memory, file, &[from], to, |_| take(CACHE_AND_CALLER)),
            // It was cut off its file.
            Owner::None => false,
        }
    }

    /// Put `whole` in the place of `parts`, which follow each other in a file and are frozen, if `ready` says so, called when nobody can
    /// find either. One part is exchanged with its marks. The cache's reference is the new folio's then.
    pub(super) fn put_in_place<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        parts: &[Pfn],
        whole: Pfn,
        ready: impl FnOnce(&PageTree) -> bool,
    ) -> bool {
        let (f, frames) = (self.file(id), &memory.frames);
        let folio = Folio { head: whole, order: frames[whole].order() };
        let mut tree = f.tree.lock();
        if !ready(&tree) {
            return false;
        }
        let first = |part: Pfn| frames[part].page_index();
        let mut pages = 0;
        if let &[part] = parts
            && frames[part].order() == folio.order
        {
            let old = tree.exchange_folio(first(part), folio);
            debug_assert_eq!(old.head, part);
            pages = old.pages();
        } else {
            for &part in parts {
                let old = tree.replace_folio(first(part), None);
                debug_assert_eq!(old.head, part);
                pages += old.pages();
            }
            tree.insert_folio(frames[whole].page_index(), folio).expect("its place was just emptied");
        }
        frames[whole].get(1);
        let news = tree.take_news();
        drop(tree);
        self.heed(memory, id, news);
        self.count_added(memory, f, -(pages as i64));
        self.count_added(memory, f, folio.pages() as i64);
        true
    }
}
