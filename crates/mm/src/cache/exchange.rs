//! Replacing folios of a file by one that holds the same pages: by a collapse of them, or by the frame that a folio was
//! moved to ([`MmCore::replace_folio`](crate::mm_core::MmCore::replace_folio)).

use super::Cache;
use super::membership::drop_buffers;
use super::tree::{CachedFolio, PageTree};
use crate::machine::{Machine, Work};
use crate::memory::Memory;
use crate::slab::Record;
use crate::units::*;

impl Cache {
    /// Replace `parts`, consecutive folios of a file whose references are frozen, by `whole`, if `ready` returns true;
    /// it is called while no task can find either. A single part of the same size keeps its marks. The cache's
    /// reference is to the new folio afterwards.
    pub fn put_in_place<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        parts: &[Pfn],
        whole: Pfn,
        ready: impl FnOnce(&PageTree) -> bool,
    ) -> bool {
        let (f, frames) = (self.file(id), &memory.frames);
        let folio = CachedFolio { head: whole, order: frames[whole].order() };
        let mut tree = f.tree.lock();
        if !ready(&tree) {
            return false;
        }
        let first = |part: Pfn| frames[part].page_index();
        let (mut pages, mut buffers) = (0, 0);
        if let &[part] = parts
            && frames[part].order() == folio.order
        {
            let old = tree.exchange_folio(first(part), folio);
            assert_eq!(old.head, part, "the place of an exchanged folio must hold it");
            pages = old.pages();
        } else {
            for &part in parts {
                let old = tree.replace_folio(first(part), None);
                assert_eq!(old.head, part, "the place of an exchanged folio must hold it");
                pages += old.pages();
                buffers += drop_buffers(&frames[part]);
            }
            tree.insert_folio(frames[whole].page_index(), folio).expect("the emptied place must be free");
        }
        frames[whole].get(1);
        memory.charge(Work::CacheRemove, 1);
        self.unlock_tree(memory, id, tree);
        memory.note_records(Record::BufferHead, -buffers);
        self.count_added(memory, f, 1, -(pages as i64));
        self.count_added(memory, f, 1, folio.pages() as i64);
        true
    }
}
