//! read and write: between a file's pages and a process.

use super::file::File;
use super::get::Need;
use super::{Cache, CacheError, ReadHint};
use crate::event::{Concern, Event};
use crate::frame::{FrameFlags, Owner};
use crate::machine::{Machine, Work};
use crate::memory::{Gfp, Memory};
use crate::tlb::FileSettled;
use crate::units::*;

/// Pages after which other tasks may run, and writers look at the amount of dirty memory.
const BATCH_PAGES: u64 = 32;

/// The part of a request that lies in one page.
#[derive(Clone, Copy)]
struct Part {
    index: PageIndex,
    offset: u32,
    bytes: u32,
}

impl Part {
    fn of(pos: u64, end: u64) -> Part {
        let offset = pos % PAGE_SIZE;
        let bytes = (PAGE_SIZE - offset).min(end - pos);
        Part { index: PageIndex(pos / PAGE_SIZE), offset: offset as u32, bytes: bytes as u32 }
    }
}

impl Cache {
    /// Read up to `len` bytes at `offset`. `sink(frame, offset_in_page, bytes)` is called for each page in order, while
    /// its folio is held. Returns the bytes read: fewer at the end of the file, or when memory is short after some have
    /// been read.
    pub fn read<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        offset: u64,
        len: u64,
        gfp: Gfp,
        sink: &mut dyn FnMut(Pfn, u32, u32),
    ) -> Result<u64, CacheError> {
        let f = self.file(id);
        let last_page = pages_of(offset.saturating_add(len));
        let mut pos = offset;
        loop {
            let end = offset.saturating_add(len).min(f.size());
            if pos >= end {
                break;
            }
            let part = Part::of(pos, end);
            let (index, wanted) = (part.index, last_page - part.index.0);
            let need = Need { file: id, index, wanted, hint: ReadHint::default(), gfp };
            let page = match self.needed_page(memory, need) {
                Ok(page) => page,
                Err(CacheError::BeyondEnd) => break,
                Err(error) if pos == offset => return Err(error),
                Err(_) => break,
            };
            // The file may have become shorter while we waited.
            let bytes = part.bytes.min(f.size().saturating_sub(pos).min(PAGE_SIZE) as u32);
            if bytes > 0 {
                sink(page.pfn, part.offset, bytes);
                memory.charge(Work::CopyUser, 1);
                self.note_read(memory, f, page.pfn, pos, bytes as u64);
            }
            memory.put(page.pfn);
            pos += bytes as u64;
            if bytes < part.bytes {
                break;
            }
            if part.index.0 % BATCH_PAGES == BATCH_PAGES - 1 {
                memory.machine.resched();
            }
        }
        Ok(pos - offset)
    }

    /// Bytes of a page were read: it was used, once for each run of reads that stays in it.
    fn note_read<M: Machine>(&self, memory: &Memory<M>, f: &File, pfn: Pfn, pos: u64, bytes: u64) {
        let mut readahead = f.readahead.lock();
        let used = !readahead.continues_page(pos) && !readahead.is_once();
        readahead.note_read(pos + bytes);
        drop(readahead);
        if used {
            memory.lru.mark_accessed(memory.ground(), pfn);
        }
    }

    /// Write `len` bytes at `offset`, growing the file. `source(frame, offset_in_page, bytes)` is called for each page in
    /// order, while its folio is locked. Returns the bytes written: at most as many as may pass between two looks at the
    /// amount of dirty memory, fewer when memory is short after some have been written.
    pub fn write<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        offset: u64,
        len: u64,
        gfp: Gfp,
        source: &mut dyn FnMut(Pfn, u32, u32),
    ) -> Result<u64, CacheError> {
        let end = offset.saturating_add(len).min((offset / PAGE_SIZE + BATCH_PAGES) * PAGE_SIZE);
        let f = self.file(id);
        let mut pos = offset;
        while pos < end {
            let part = Part::of(pos, end);
            let pfn = match self.page_for_write(memory, id, part, gfp) {
                Ok(pfn) => pfn,
                Err(error) if pos == offset => return Err(error),
                Err(_) => break,
            };
            let settled = memory.tlb.settle_file(memory.ground(), id);
            change_content(memory, settled, pfn, part, source);
            memory.frames[pfn].set(FrameFlags::UPTODATE);
            pos += part.bytes as u64;
            f.grow_to(pos);
            self.mark_dirty(memory, pfn);
            memory.unlock_folio(pfn);
            memory.put(pfn);
        }
        memory.machine.resched();
        Ok(pos - offset)
    }

    /// The locked folio of a page that is about to be written, with a reference: up to date, unless all of it is going
    /// to be overwritten.
    fn page_for_write<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        part: Part,
        gfp: Gfp,
    ) -> Result<Pfn, CacheError> {
        let f = self.file(id);
        loop {
            if f.is_shmem() {
                f.grow_to(part.index.0 * PAGE_SIZE + (part.offset + part.bytes) as u64);
            }
            let pfn = match self.lookup(memory, id, part.index) {
                Some(pfn) => pfn,
                None if f.is_shmem() => self.get_page(memory, id, part.index, ReadHint::default(), gfp)?.pfn,
                None => match self.new_page_for_write(memory, id, part, gfp)? {
                    Some(pfn) => return Ok(pfn),
                    None => continue,
                },
            };
            memory.lock_folio(pfn);
            let frame = &memory.frames[pfn];
            let is_it = (frame.owner(), frame.page_index()) == (Owner::File(id), part.index);
            if is_it && frame.has(FrameFlags::UPTODATE) {
                return Ok(pfn);
            }
            memory.unlock_folio(pfn);
            memory.put(pfn);
        }
    }

    /// Add the page of a disk file. `None`: it is being read, or somebody else was faster; look again.
    fn new_page_for_write<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        part: Part,
        gfp: Gfp,
    ) -> Result<Option<Pfn>, CacheError> {
        let f = self.file(id);
        let Some(pfn) = self.add(memory, id, part.index, |_| u64::MAX, gfp)? else { return Ok(None) };
        if part.bytes as u64 == PAGE_SIZE {
            return Ok(Some(pfn));
        }
        if f.extents.lock().contains(part.index.0) {
            self.fill(memory, f, pfn, part.index);
            memory.put(pfn);
            return Ok(None);
        }
        super::shmem::fill_with_zeroes(memory, pfn);
        Ok(Some(pfn))
    }
}

/// Put new bytes into a locked page of a file of which nobody holds an old translation.
fn change_content<M: Machine>(
    memory: &Memory<M>,
    settled: FileSettled,
    pfn: Pfn,
    part: Part,
    source: &mut dyn FnMut(Pfn, u32, u32),
) {
    let frame = &memory.frames[pfn];
    debug_assert!(frame.has(FrameFlags::LOCKED) && frame.owner() == Owner::File(settled.file()));
    let concern = Concern::File { file: settled.file(), first: part.index, count: 1 };
    memory.event(Event::TlbHazard, concern.args());
    source(pfn, part.offset, part.bytes);
    memory.charge(Work::CopyUser, 1);
}
