//! read(2) and write(2) on the pages of a file.

use super::file::File;
use super::get::Need;
use super::readahead::{count_block, max_order};
use super::tree::CachedFolio;
use super::{BlockRequest, Cache, CacheError, ReadHint, is_page_of, lookup};
use crate::event::{Concern, Event};
use crate::frame::{FrameFlags, Owner};
use crate::machine::{Machine, Work};
use crate::memory::{AllocCause, Gfp, Memory, Worth};
use crate::tlb::FileSettled;
use crate::units::*;

/// Number of pages after which other tasks may run, and writers check the amount of dirty memory.
const BATCH_PAGES: u64 = 32;

/// The part of a folio that a request accesses.
#[derive(Clone, Copy)]
struct FolioSpan {
    folio: Pfn,
    order: Order,
    first: PageIndex,
}

impl FolioSpan {
    #[inline]
    fn of(folio: CachedFolio, index: PageIndex) -> FolioSpan {
        FolioSpan { folio: folio.head, order: folio.order, first: folio.first(index) }
    }

    /// The end of the folio in its file, in bytes.
    #[inline]
    fn end(&self) -> u64 {
        (self.first.0 + self.order.frames() as u64) * PAGE_SIZE
    }

    /// Call `each(frame, offset_in_page, bytes)` for each page of `[pos, end)`, which is in the folio and not empty.
    #[inline]
    fn pages(&self, pos: u64, end: u64, each: &mut dyn FnMut(Pfn, u32, u32)) {
        let mut pfn = self.folio.add((pos / PAGE_SIZE - self.first.0) as u32);
        let mut at = pos;
        loop {
            let next = ((at | (PAGE_SIZE - 1)) + 1).min(end);
            each(pfn, (at % PAGE_SIZE) as u32, (next - at) as u32);
            if next >= end {
                return;
            }
            (at, pfn) = (next, pfn.add(1));
        }
    }
}

/// Number of pages that a request for `[pos, end)` touches.
fn touched(pos: u64, end: u64) -> u64 {
    pages_of(end) - pos / PAGE_SIZE
}

impl Cache {
    /// Read up to `len` bytes at `offset`. Calls `sink(frame, offset_in_page, bytes)` for each page in order, while a
    /// reference keeps its folio. Returns the bytes read: fewer at the end of the file, or if memory gets short.
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
            let index = PageIndex(pos / PAGE_SIZE);
            let wanted = last_page - index.0;
            let need = Need { file: id, index, wanted, hint: ReadHint::default(), gfp };
            let page = match self.needed_page(memory, need) {
                Ok(page) => page,
                Err(CacheError::BeyondEnd) => break,
                Err(error) if pos == offset => return Err(error),
                Err(_) => break,
            };
            let order = memory.frames[page.folio].order();
            let part = FolioSpan::of(CachedFolio { head: page.folio, order }, index);
            let wanted = end.min(part.end());
            // The file may have become shorter during the wait.
            let got = wanted.min(f.size()).max(pos);
            if got > pos {
                part.pages(pos, got, sink);
                memory.charge(Work::CopyUser, touched(pos, got));
                self.note_read(memory, f, part, pos, got - pos);
            }
            memory.put(page.folio);
            let passed = pos / PAGE_SIZE / BATCH_PAGES != got / PAGE_SIZE / BATCH_PAGES;
            pos = got;
            if got < wanted {
                break;
            }
            if passed {
                memory.machine.resched();
            }
        }
        Ok(pos - offset)
    }

    /// Note that bytes of a folio were read: consecutive reads of a folio count as one use.
    fn note_read<M: Machine>(&self, memory: &Memory<M>, f: &File, part: FolioSpan, pos: u64, bytes: u64) {
        let mut readahead = f.readahead.lock();
        let used = !readahead.continues_folio(pos, part.order) && !readahead.is_once();
        readahead.note_read(pos + bytes);
        drop(readahead);
        if used {
            memory.lru.mark_accessed(memory, part.folio);
        }
    }

    /// Write `len` bytes at `offset`, and extend the file if necessary. Calls `source(frame, offset_in_page, bytes)`
    /// for each page in order, while its folio is locked. Returns the bytes written: at most up to the next check of
    /// the amount of dirty memory, fewer if memory gets short.
    pub fn write<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        offset: u64,
        len: u64,
        gfp: Gfp,
        source: &mut dyn FnMut(Pfn, u32, u32),
    ) -> Result<u64, CacheError> {
        let largest = max_order(memory);
        let end = offset.saturating_add(len).min(batch_end(offset / PAGE_SIZE, largest) * PAGE_SIZE);
        let f = self.file(id);
        let mut pos = offset;
        while pos < end {
            let part = match self.folio_for_write(memory, id, (pos, end), largest, gfp) {
                Ok(part) => part,
                Err(error) if pos == offset => return Err(error),
                Err(_) => break,
            };
            let until = end.min(part.end());
            let settled = memory.tlb.settle_file(memory.host(), id);
            change_content(memory, settled, part, (pos, until), source);
            memory.frames[part.folio].set(FrameFlags::UPTODATE);
            pos = until;
            f.grow_to(pos);
            self.mark_dirty(memory, part.folio);
            memory.unlock_folio(part.folio);
            memory.put(part.folio);
        }
        memory.machine.resched();
        Ok(pos - offset)
    }

    /// The locked folio of the page at `pos`, for a write of `[pos, end)`, with a reference. It is up to date, unless
    /// all of it is overwritten.
    fn folio_for_write<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        (pos, end): (u64, u64),
        largest: Order,
        gfp: Gfp,
    ) -> Result<FolioSpan, CacheError> {
        let f = self.file(id);
        let index = PageIndex(pos / PAGE_SIZE);
        let mut again = false;
        loop {
            if f.is_shmem() {
                f.grow_to(end.min((index.0 + 1) * PAGE_SIZE));
            }
            let folio = match lookup(memory, f, index) {
                Some(folio) => folio,
                None if f.is_shmem() => {
                    let page = self.get_page(memory, id, index, ReadHint::default(), gfp)?;
                    CachedFolio { head: page.folio, order: memory.frames[page.folio].order() }
                }
                None => match self.new_folio_for_write(memory, id, (pos, end), largest, gfp)? {
                    Some(folio) => return Ok(FolioSpan::of(folio, index)),
                    None => continue,
                },
            };
            memory.lock_folio(folio.head);
            let part = FolioSpan::of(folio, index);
            let is_page = is_page_of(memory, folio.head, id, index);
            let whole = part.first.0 * PAGE_SIZE == pos && part.end() <= end;
            if is_page && (whole || memory.frames[folio.head].has(FrameFlags::UPTODATE)) {
                return Ok(part);
            }
            memory.unlock_folio(folio.head);
            let failed = is_page && again;
            again |= !failed && self.read_again(memory, (id, index), folio);
            memory.put(folio.head);
            if failed {
                return Err(CacheError::Io);
            }
        }
    }

    /// Add a folio to a disk file at `pos`, as large as the overwritten pages allow. `None`: it is being read, or
    /// another task has added one; look again.
    fn new_folio_for_write<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        (pos, end): (u64, u64),
        largest: Order,
        gfp: Gfp,
    ) -> Result<Option<CachedFolio>, CacheError> {
        let f = self.file(id);
        let index = PageIndex(pos / PAGE_SIZE);
        let gfp = Gfp { cause: AllocCause::Overwrite, ..gfp };
        let whole_pages = if pos.is_multiple_of(PAGE_SIZE) { end / PAGE_SIZE - index.0 } else { 0 };
        let mut order = match largest {
            Order::ZERO => largest,
            largest => f.order_at(index.0, largest, index.0 + whole_pages.max(1)),
        };
        while order > Order::ZERO {
            if count_block(memory, order, memory.find_block(order, gfp, Worth::FILE)?)
                && let Ok(Some(head)) = self.add_new(memory, id, (index, order), gfp)
            {
                return Ok(Some(CachedFolio { head, order }));
            }
            order = Order(order.0 / 2);
        }
        let Some(pfn) = self.add_new(memory, id, (index, order), gfp)? else { return Ok(None) };
        if whole_pages > 0 {
            return Ok(Some(CachedFolio::single(pfn)));
        }
        if f.extents.lock().contains(index.0) {
            self.fill(memory, f, pfn, &mut BlockRequest::default());
            memory.put(pfn);
            return Ok(None);
        }
        super::io::fill_with_zeroes(memory, pfn);
        Ok(Some(CachedFolio::single(pfn)))
    }
}

/// The page before which a write that begins at `page` checks the amount of dirty memory, at the end of any folio that
/// could be made.
fn batch_end(page: u64, largest: Order) -> u64 {
    let end = page + BATCH_PAGES.max(largest.frames() as u64);
    end >> largest.0 << largest.0
}

/// Put new bytes into a locked folio of a file. `settled`: no CPU holds an old translation of the file's pages.
fn change_content<M: Machine>(
    memory: &Memory<M>,
    settled: FileSettled,
    part: FolioSpan,
    (pos, end): (u64, u64),
    source: &mut dyn FnMut(Pfn, u32, u32),
) {
    let frame = &memory.frames[part.folio];
    assert!(
        frame.has(FrameFlags::LOCKED) && frame.owner() == Owner::File(settled.file()),
        "a folio must be locked and of the settled file to be changed"
    );
    let (first, count) = (PageIndex(pos / PAGE_SIZE), touched(pos, end));
    let concern = Concern::File { file: settled.file(), first, count };
    memory.event(Event::TlbHazard, concern.args());
    part.pages(pos, end, source);
    memory.charge(Work::CopyUser, count);
}
