//! Splitting a folio into its pages while they are mapped.
#![expect(clippy::disallowed_methods, reason = "the parts of a folio owe what it owed")]

use super::{FrameFlags, FrameTable};
use crate::primitive::Ordering::Relaxed;
use crate::units::*;

/// Flags of a folio that its pages do not get when they become folios.
const OF_THE_WHOLE: FrameFlags =
    FrameFlags::LOCKED.union(FrameFlags::WAITERS).union(FrameFlags::HEAD).union(FrameFlags::EXCLUSIVE);

impl FrameTable {
    /// Make each page of an anonymous folio a folio. Each keeps the counts of its entries and whether it is exclusive
    /// to one process, and gets a reference for each entry and one for the caller. The first page stays locked if the
    /// folio was.
    ///
    /// The caller has frozen the folio's references, and no other task can change an entry that maps it. The folio is
    /// in no cache, and not mapped by 2 MiB entries.
    pub(crate) fn split_to_pages(&self, head: Pfn) {
        let record = &self[head];
        let order = record.order();
        assert!(record.refs() == 0 && record.is_anon(), "{head} is split while others can reach it");
        assert_eq!(self.entire_mapcount(head), 0, "{head} is split while a 2 MiB entry maps it");
        let shared = record.flags() - OF_THE_WHOLE;
        let (owner, index, group) = (record.owner(), record.page_index(), record.group());
        self.unmake_folio(head);
        record.pages_mapped.store(0, Relaxed);
        for i in 0..order.frames() {
            let page = &self[head.add(i)];
            let mapcount = page.page_mapcount.swap(0, Relaxed);
            page.mapcount.store(mapcount, Relaxed);
            if i > 0 {
                page.assign(shared | (page.flags() & FrameFlags::EXCLUSIVE));
                page.set_owner(owner, PageIndex(index.0.wrapping_add(i as u64)));
                page.set_group(group);
                page.set_debt(record.debt());
                page.set_mobility(record.mobility());
            }
            page.unfreeze(mapcount + 1);
        }
    }
}
