//! Getting a page that is needed now.

use super::tree::CachedFolio;
use super::{BlockRequest, Cache, CacheError, Page, ReadHint, is_page_of, lookup};
use crate::frame::FrameFlags;
use crate::machine::Machine;
use crate::memory::{Gfp, Memory};
use crate::units::*;

/// A page that a caller needs: the first of `wanted` pages from `index` on.
#[derive(Clone, Copy)]
pub(super) struct Need {
    pub(super) file: FileId,
    pub(super) index: PageIndex,
    pub(super) wanted: u64,
    pub(super) hint: ReadHint,
    pub(super) gfp: Gfp,
}

impl Cache {
    /// The page at `index`, which is read if it is not cached. Waits for the device. A page fault that finds the page
    /// marked, or missing, reads ahead.
    pub(crate) fn get_page<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        index: PageIndex,
        hint: ReadHint,
        gfp: Gfp,
    ) -> Result<Page, CacheError> {
        self.needed_page(memory, Need { file, index, wanted: 1, hint, gfp })
    }

    #[inline]
    pub(super) fn needed_page<M: Machine>(&self, memory: &Memory<M>, need: Need) -> Result<Page, CacheError> {
        let f = self.file(need.file);
        if need.index.0 >= f.pages() {
            return Err(CacheError::BeyondEnd);
        }
        if let Some(folio) = lookup(memory, f, need.index) {
            if !f.is_shmem()
                && let Err(shortage) = self.read_on_hit(memory, folio, need)
            {
                memory.put(folio.head);
                return Err(shortage.into());
            }
            if memory.frames[folio.head].has(FrameFlags::UPTODATE) {
                return Ok(Page {
                    folio: folio.head,
                    pfn: folio.frame(need.index),
                    major: false,
                    waited: false,
                });
            }
            memory.put(folio.head);
        }
        self.needed_page_slow(memory, need)
    }

    #[cold]
    fn needed_page_slow<M: Machine>(&self, memory: &Memory<M>, need: Need) -> Result<Page, CacheError> {
        let Need { file: id, index, gfp, .. } = need;
        let f = self.file(id);
        if f.is_shmem() {
            return self.get_shmem_page(memory, id, index, gfp);
        }
        let (mut waited, mut missed) = (false, false);
        // Whether this call has read the page by itself.
        let mut alone = false;
        while index.0 < f.pages() {
            let mut found = lookup(memory, f, index);
            if found.is_none() && !missed {
                missed = true;
                self.read_on_miss(memory, need)?;
                found = lookup(memory, f, index);
            }
            if found.is_none() {
                let added = self.add_new(memory, id, (index, Order::ZERO), gfp)?;
                if let Some(pfn) = added {
                    self.fill(memory, f, pfn, &mut BlockRequest::default());
                    alone = true;
                }
                found = added.map(CachedFolio::single);
            }
            let Some(folio) = found else { continue };
            let frame = &memory.frames[folio.head];
            if !frame.has(FrameFlags::UPTODATE) {
                waited = true;
                memory.wait_unlocked(folio.head);
            }
            if is_page_of(memory, folio.head, id, index) && frame.has(FrameFlags::UPTODATE) {
                return Ok(Page { folio: folio.head, pfn: folio.frame(index), major: missed, waited });
            }
            // It was truncated during the wait, or its read has failed. That of read-ahead is done again.
            let failed = alone && is_page_of(memory, folio.head, id, index);
            alone |= !failed && self.read_again(memory, (id, index), folio);
            memory.put(folio.head);
            if failed {
                return Err(CacheError::Io);
            }
        }
        Err(CacheError::BeyondEnd)
    }

    /// Start to read the folio of a page again if its read has failed. Returns whether it has started.
    pub(super) fn read_again<M: Machine>(
        &self,
        memory: &Memory<M>,
        (id, index): (FileId, PageIndex),
        folio: CachedFolio,
    ) -> bool {
        let (f, pfn) = (self.file(id), folio.head);
        memory.lock_folio(pfn);
        let failed = is_page_of(memory, pfn, id, index) && !memory.frames[pfn].has(FrameFlags::UPTODATE);
        let first = folio.first(index).0;
        if failed && f.extents.lock().holds(first..first + folio.pages()).is_some() {
            self.fill(memory, f, pfn, &mut BlockRequest::default());
            return true;
        }
        if failed {
            // The file was cut in the folio's middle meanwhile: the page gets another folio.
            self.remove(memory, pfn);
            memory.put(pfn);
        }
        memory.unlock_folio(pfn);
        false
    }
}
