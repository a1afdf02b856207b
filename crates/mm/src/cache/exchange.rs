//! Putting a folio in the place of others that hold the same pages of a file: of those that it is a collapse of, or of
//! the one whose content was moved ([`Store::replace_folio`](crate::mm_core::Store::replace_folio)).

use super::Cache;
use super::tree::{CachedFolio, PageTree};
use crate::machine::Machine;
use crate::memory::Memory;
use crate::units::*;

impl Cache {
    /// Put `whole` in the place of `parts`, which follow each other in a file and are frozen, if `ready` says so,
    /// called when nobody can find either. One part is exchanged with its marks. The cache's reference is the new
    /// folio's then.
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
        let mut pages = 0;
        if let &[part] = parts
            && frames[part].order() == folio.order
        {
            let old = tree.exchange_folio(first(part), folio);
            assert_eq!(old.head, part, "another folio stands where one is exchanged");
            pages = old.pages();
        } else {
            for &part in parts {
                let old = tree.replace_folio(first(part), None);
                assert_eq!(old.head, part, "another folio stands where one is exchanged");
                pages += old.pages();
            }
            tree.insert_folio(frames[whole].page_index(), folio).expect("its place was just emptied");
        }
        frames[whole].get(1);
        let changes = tree.take_node_changes();
        drop(tree);
        self.apply_node_changes(memory, id, changes);
        self.count_added(memory, f, 1, -(pages as i64));
        self.count_added(memory, f, 1, folio.pages() as i64);
        true
    }
}
