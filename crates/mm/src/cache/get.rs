//! The way to a page that is needed now.

use super::file::File;
use super::{Cache, CacheError, Page, ReadHint};
use crate::frame::{FrameFlags, Owner};
use crate::machine::Machine;
use crate::memory::{Gfp, Memory};
use crate::units::*;

impl Cache {
    /// The page at `index`, read if it is not cached. Waits for the device. A page fault that finds the page marked, or
    /// does not find it, reads ahead.
    pub fn get_page<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        index: PageIndex,
        hint: ReadHint,
        gfp: Gfp,
    ) -> Result<Page, CacheError> {
        self.page_of_read(memory, id, index, 1, hint, gfp)
    }

    /// [`Cache::get_page`] for the first of `wanted` pages.
    #[inline]
    pub(super) fn page_of_read<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        index: PageIndex,
        wanted: u64,
        hint: ReadHint,
        gfp: Gfp,
    ) -> Result<Page, CacheError> {
        let f = self.file(id);
        if index.0 >= f.pages() {
            return Err(CacheError::BeyondEnd);
        }
        if let Some(pfn) = self.lookup(memory, id, index) {
            if !f.is_shmem() {
                self.read_on_hit(memory, id, pfn, index, wanted, hint, gfp);
            }
            if memory.frames[pfn].has(FrameFlags::UPTODATE) {
                return Ok(Page { pfn, major: false });
            }
            memory.put(pfn);
        }
        self.get_page_slow(memory, id, index, wanted, hint, gfp)
    }

    #[cold]
    fn get_page_slow<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        index: PageIndex,
        wanted: u64,
        hint: ReadHint,
        gfp: Gfp,
    ) -> Result<Page, CacheError> {
        let f = self.file(id);
        if f.is_shmem() {
            return self.get_shmem_page(memory, id, index, gfp);
        }
        let mut major = false;
        let mut missed = false;
        while index.0 < f.pages() {
            let mut found = self.lookup(memory, id, index);
            if found.is_none() && !missed {
                missed = true;
                self.read_on_miss(memory, id, index, wanted, hint, gfp);
                found = self.lookup(memory, id, index);
            }
            if found.is_none() {
                found = self.add(memory, id, index, File::pages, gfp)?;
                if let Some(pfn) = found {
                    self.fill(memory, f, pfn, index);
                }
            }
            let Some(pfn) = found else { continue };
            let frame = &memory.frames[pfn];
            if !frame.has(FrameFlags::UPTODATE) {
                major = true;
                memory.wait_unlocked(pfn);
            }
            let is_it = (frame.owner(), frame.page_index()) == (Owner::File(id), index);
            if is_it && frame.has(FrameFlags::UPTODATE) {
                return Ok(Page { pfn, major });
            }
            // Cut off the file while we waited.
            memory.put(pfn);
        }
        Err(CacheError::BeyondEnd)
    }
}
