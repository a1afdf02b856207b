//! Read-ahead: what to read before it is needed.
//!
//! A reader that goes through a file in order should never wait, and one that reads at random should read nothing in
//! addition. The state of a file is the last window that was read ahead:
//!
//! ```text
//!                |<------ async ------->|
//!     |------------------ size -------->|
//!     start      ^ the folio marked READAHEAD
//! ```
//!
//! When the reader reaches the marked folio, the next window is submitted, so that its I/O proceeds while the rest of
//! the last window is used. Windows start small and grow to the largest (`queue.read_ahead_kb`) while use stays in
//! order. A miss that continues no sequence is read alone. Mapped files are faulted in no clear order, so a fault that
//! misses reads around itself, until misses outnumber hits by far.
//!
//! Large folios: a sequence is read in folios that are four times as large with each window, up to `file.max_order`
//! and the size of the window; pages that are read alone, or by announcement, are single. A folio begins at a multiple
//! of its size, so a window that begins unaligned has small folios first; it ends aligned, so that the next window
//! begins aligned. No folio extends beyond the window or the file, or over the edge of a hole. From a page on that is
//! cached already, the rest of the window is single pages. If memory has no block of the size, smaller folios are made:
//! read-ahead does not justify reclaim. (6.12 takes the last window's size from its marked folio. In a window that
//! begins unaligned this is the first and smallest folio, so sizes stop growing; 6.17 remembers the size and aligns the
//! end of windows, as is done here.)
//!
//! The rules are those of mm/readahead.c (page_cache_ra_order for sizes) and do_sync_mmap_readahead in Linux 6.12, for
//! large folios in 7.3. One difference: the state belongs to the file and not to an open descriptor, because
//! descriptors are above the memory manager.

use super::file::File;
use super::get::Need;
use super::request::BlockRequest;
use super::tree::{CachedFolio, TreeMark};
use super::{Cache, ReadHint};
use crate::alloc::Watermark;
use crate::api::FileAdvice;
use crate::folio::NewPages;
use crate::frame::FrameFlags;
use crate::knobs::{Knob, ReadAheadForm};
use crate::machine::{Machine, Scope, Work};
use crate::memory::{AllowedReadAhead, Gfp, Memory, Shortage, Worth};
use crate::stat::SizeStat;
use crate::units::*;
use core::ops::Range;

/// Excess of misses over hits of mapped use at which reading around stops.
const MMAP_LOTSAMISS: u32 = 100;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Readahead {
    start: u64,
    size: u64,
    async_size: u64,
    /// Where the last read ended, in bytes; all ones before the first read.
    prev_pos: u64,
    mmap_miss: u32,
    /// Size of the window's folios, except those at its edges.
    order: Order,
    advice: FileAdvice,
}

impl Default for Readahead {
    fn default() -> Self {
        Readahead {
            start: 0,
            size: 0,
            async_size: 0,
            prev_pos: u64::MAX,
            mmap_miss: 0,
            order: Order::ZERO,
            advice: FileAdvice::Normal,
        }
    }
}

/// The pages to read now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ReadaheadWindow {
    pub(super) start: u64,
    pub(super) count: u64,
    /// Number of pages at the end that are for later: the first of them is marked.
    pub(super) lookahead: u64,
}

/// Pages of a file to read.
pub(super) struct PagesToRead {
    pub(super) range: Range<u64>,
    /// The page that gets the flag READAHEAD.
    pub(super) mark: Option<u64>,
    /// Pages for those that are not cached; more are allocated as needed.
    pub(super) pages: NewPages,
}

/// A folio of a file to read.
pub(super) struct FolioToRead {
    pub(super) index: PageIndex,
    pub(super) order: Order,
    /// It gets the flag READAHEAD.
    pub(super) marked: bool,
}

impl ReadaheadWindow {
    /// The first page behind it, or the file's end.
    fn end(&self, file: &File) -> u64 {
        self.start.saturating_add(self.count).min(file.pages())
    }
}

impl Readahead {
    pub(super) fn advise(&mut self, advice: FileAdvice) {
        self.advice = advice;
    }

    /// Whether it was announced that pages are used once, so that accesses do not predict further accesses.
    pub(super) fn is_once(&self) -> bool {
        self.advice == FileAdvice::NoReuse
    }

    /// Whether the byte before `pos` was the last that was read, and is in the same folio, one of `order`.
    pub(super) fn continues_folio(&self, pos: u64, order: Order) -> bool {
        let folio = |pos: u64| pos >> (PAGE_SHIFT + order.0 as u32);
        folio(self.prev_pos.wrapping_sub(1)) == folio(pos)
    }

    pub(super) fn note_read(&mut self, pos: u64) {
        self.prev_pos = pos;
    }

    /// Note that cached pages are being mapped.
    pub(super) fn mapped(&mut self, pages: u32) {
        self.mmap_miss = self.mmap_miss.saturating_sub(pages);
    }

    fn limit(&self, read_ahead_kb: u64) -> u64 {
        let pages = read_ahead_kb * 1024 / PAGE_SIZE;
        if self.advice == FileAdvice::Sequential { pages * 2 } else { pages }
    }

    /// The window to read, which becomes the last one.
    fn window(&self) -> ReadaheadWindow {
        ReadaheadWindow { start: self.start, count: self.size, lookahead: self.async_size }
    }

    /// The window for a read of `wanted` pages that missed at `index`. `cached_before` counts the cached pages just
    /// before it, up to a number; reaching back to the first page of the file is as good as that number.
    fn on_miss(
        &mut self,
        index: u64,
        wanted: u64,
        max: u64,
        cached_before: impl FnOnce(u64) -> (u64, bool),
    ) -> ReadaheadWindow {
        let prev_index = self.prev_pos >> PAGE_SHIFT;
        if index == 0 || wanted > max || index.wrapping_sub(prev_index) <= 1 {
            self.start = index;
            self.size = initial_size(wanted, max);
            self.async_size = if self.size > wanted { self.size - wanted } else { self.size / 2 };
            return self.window();
        }
        let (mut history, from_start) = cached_before(max);
        if history <= wanted {
            return ReadaheadWindow { start: index, count: wanted, lookahead: 0 };
        }
        if from_start {
            history *= 2;
        }
        self.start = index;
        self.size = (history + wanted).min(max);
        self.async_size = 1;
        self.window()
    }

    /// The window for a reader of `wanted` pages that has reached the marked folio, one of `order`, at `index`.
    /// `next_hole` finds the first page from the given one on, within the given number, that is not cached. Its end,
    /// which no task waits for, is moved back to the end of a folio, one of `align` at most.
    fn on_mark(
        &mut self,
        (index, order): (u64, Order),
        wanted: u64,
        (max, align): (u64, Order),
        next_hole: impl FnOnce(u64, u64) -> Option<u64>,
    ) -> Option<ReadaheadWindow> {
        let marked = (self.start + self.size).wrapping_sub(self.async_size);
        if index == marked >> order.0 << order.0 {
            self.start += self.size;
            self.size = self.size.max(next_size(self.size, max));
        } else {
            // Several readers share the state: the pages that are cached from here on were this reader's window.
            let hole = next_hole(index + 1, max).filter(|hole| hole - index <= max)?;
            self.start = hole;
            self.size = next_size(hole - index + wanted, max);
        }
        self.order = grown(self.order);
        let align = u32::from(self.order.min(align).0).min(max.trailing_zeros());
        let end = (self.start + self.size) >> align << align;
        if end > self.start {
            self.size = end - self.start;
        }
        self.async_size = self.size;
        Some(self.window())
    }

    /// Limit the size of the folios to `most` and to the window.
    fn fit(&mut self, most: Order) -> ReadaheadWindow {
        let room = Order(self.size.checked_ilog2().unwrap_or(0) as u8);
        self.order = self.order.min(most).min(room);
        self.window()
    }

    /// Program text is used at random, but from its entry on: read forward, and nothing for later.
    fn on_text_miss(&mut self, index: u64, max: u64, end: u64) -> ReadaheadWindow {
        (self.start, self.size, self.async_size) = (index, max.min(end - index), 0);
        self.order = Order::ZERO;
        self.window()
    }

    fn on_fault_miss(&mut self, index: u64, max: u64) -> Option<ReadaheadWindow> {
        self.mmap_miss = (self.mmap_miss + 1).min(MMAP_LOTSAMISS * 10);
        if self.mmap_miss > MMAP_LOTSAMISS {
            return None;
        }
        self.start = index.saturating_sub(max / 2);
        self.size = max;
        self.async_size = max / 4;
        Some(self.window())
    }
}

/// The order of the folios in the window after one with folios of `order`.
const fn grown(order: Order) -> Order {
    Order(order.0 + 2)
}

/// The first window of a sequence that starts with a read of `wanted` pages.
fn initial_size(wanted: u64, max: u64) -> u64 {
    let size = wanted.next_power_of_two();
    if size <= max / 32 {
        size * 4
    } else if size <= max / 4 {
        size * 2
    } else {
        max
    }
}

/// The window after one of `size` pages.
fn next_size(size: u64, max: u64) -> u64 {
    if size < max / 16 {
        size * 4
    } else if size <= max / 2 {
        size * 2
    } else {
        max
    }
}

impl Cache {
    /// Read a page that is not cached, and the rest of its window. It may still be missing afterwards.
    pub(super) fn read_on_miss<M: Machine>(&self, memory: &Memory<M>, need: Need) -> Result<(), Shortage> {
        if need.gfp.read_ahead == AllowedReadAhead::Nothing {
            return Ok(());
        }
        let Need { index, wanted, hint, .. } = need;
        let f = self.file(need.file);
        let mut state = *f.readahead.lock();
        let max = state.limit(memory.knobs.get(Knob::ReadAheadKb));
        let form = memory.knobs.read_ahead_form();
        let text_end = hint.text_end.filter(|_| form == ReadAheadForm::V72 && !hint.sequential);
        let window = if let Some(end) = text_end {
            (max > 0).then(|| state.on_text_miss(index.0, max, end))
        } else if hint.fault && !hint.sequential {
            if hint.random || max == 0 { None } else { state.on_fault_miss(index.0, max) }
        } else if hint.random || state.advice == FileAdvice::Random || max == 0 {
            let count = if max == 0 { 1 } else { wanted };
            Some(ReadaheadWindow { start: index.0, count, lookahead: 0 })
        } else {
            let wanted = if hint.fault { max } else { wanted };
            Some(state.on_miss(index.0, wanted, max, |most| history(f, index.0, most)))
        };
        // A window without lookahead is no part of a sequence.
        let (window, order) = match window {
            Some(window) if window.lookahead > 0 => {
                state.order = match form {
                    ReadAheadForm::V612 => grown(Order::ZERO),
                    ReadAheadForm::V72 => Order::ZERO,
                };
                (Some(state.fit(max_order(memory))), state.order)
            }
            window => (window, Order::ZERO),
        };
        // Before anything is changed, because the request may be repeated.
        let pages = self.ask_for_room(memory, need.file, (window, order), max, need.gfp)?;
        *f.readahead.lock() = state;
        if let Some(window) = window {
            self.read_window(memory, need.file, window, order, pages, need.gfp);
        }
        Ok(())
    }

    /// Ask for what a window needs: a block for its first folio, if this is a large one, else its pages, at most
    /// `most`. `Err`: make room first.
    fn ask_for_room<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        (window, order): (Option<ReadaheadWindow>, Order),
        most: u64,
        gfp: Gfp,
    ) -> Result<NewPages, Shortage> {
        let f = self.file(id);
        match window {
            Some(window) if order == Order::ZERO => {
                let end = window.end(f).min(window.start.saturating_add(most.max(1)));
                self.pages_to_read(memory, id, window.start..end, gfp)
            }
            _ => self.ask_for_block(memory, f, window, order, gfp).map(|()| NewPages::new()),
        }
    }

    /// Ask for a block for the first folio of a window. `Err`: make one first.
    fn ask_for_block<M: Machine>(
        &self,
        memory: &Memory<M>,
        f: &File,
        window: Option<ReadaheadWindow>,
        order: Order,
        gfp: Gfp,
    ) -> Result<(), Shortage> {
        let Some(window) = window else { return Ok(()) };
        let end = window.end(f);
        if window.start < end && f.tree.look().folio(PageIndex(window.start)).is_none() {
            let order = f.order_at(window.start, order, end);
            if order > Order::ZERO {
                memory.find_block(order, gfp, Worth::FILE)?;
            }
        }
        Ok(())
    }

    /// Read the next window if a cached page is the marked one.
    #[inline]
    pub(super) fn read_on_hit<M: Machine>(
        &self,
        memory: &Memory<M>,
        folio: CachedFolio,
        need: Need,
    ) -> Result<(), Shortage> {
        if memory.frames[folio.head].has(FrameFlags::READAHEAD) {
            return self.read_on_mark(memory, folio, need);
        } else if need.hint.fault && !need.hint.random && lowers_misses(memory, folio, need.hint) {
            self.file(need.file).readahead.lock().mapped(1);
        }
        Ok(())
    }

    #[cold]
    fn read_on_mark<M: Machine>(
        &self,
        memory: &Memory<M>,
        folio: CachedFolio,
        need: Need,
    ) -> Result<(), Shortage> {
        let Need { index, wanted, hint, .. } = need;
        let f = self.file(need.file);
        let mut state = *f.readahead.lock();
        let max = state.limit(memory.knobs.get(Knob::ReadAheadKb));
        if max == 0 || hint.fault && hint.random || need.gfp.read_ahead == AllowedReadAhead::Nothing {
            return Ok(());
        }
        if memory.frames[folio.head].has(FrameFlags::WRITEBACK) {
            // In Linux the mark is the bit that says that reclaim waits for the write.
            return Ok(());
        }
        if hint.fault && lowers_misses(memory, folio, hint) {
            state.mapped(1);
        }
        let wanted = if hint.fault { max } else { wanted };
        // A read is at the folio, a fault at the page.
        let at = (if hint.fault { index.0 } else { index.0 >> folio.order.0 << folio.order.0 }, folio.order);
        // Since 6.17 windows end aligned even where there are no large folios.
        let align = match memory.knobs.read_ahead_form() {
            ReadAheadForm::V612 => max_order(memory),
            ReadAheadForm::V72 => Order(u8::MAX),
        };
        let window = state.on_mark(at, wanted, (max, align), |from, most| next_hole(f, from, most));
        let window = window.map(|_| state.fit(max_order(memory)));
        let pages = self.ask_for_room(memory, need.file, (window, state.order), max, need.gfp)?;
        memory.frames[folio.head].clear(FrameFlags::READAHEAD);
        *f.readahead.lock() = state;
        if let Some(window) = window {
            self.read_window(memory, need.file, window, state.order, pages, need.gfp);
        }
        Ok(())
    }

    /// Submit reads for the pages of a window that are not cached, in folios of at most `order`; single pages are taken
    /// from `pages`. Stops when these are used up and memory is short.
    pub(super) fn read_window<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        window: ReadaheadWindow,
        order: Order,
        pages: NewPages,
        gfp: Gfp,
    ) {
        let _scope = memory.scope(Scope::PageCacheRa);
        let f = self.file(id);
        let end = window.end(f);
        let count = end.saturating_sub(window.start);
        let ends_file = memory.knobs.read_ahead_form() == ReadAheadForm::V72
            && window.start.saturating_add(window.count) >= f.pages();
        let mark = count
            .checked_sub(window.lookahead)
            .map(|at| window.start + at)
            .filter(|_| window.lookahead > 0 && !ends_file);
        let mut largest = order;
        let mut index = window.start;
        let request = &mut BlockRequest::default();
        if order == Order::ZERO {
            // Also if the file has shrunk meanwhile: the pages must go somewhere.
            return self.read_pages(memory, id, PagesToRead { range: index..end, mark, pages }, gfp, request);
        }
        while index < end {
            if largest == Order::ZERO {
                return self.read_pages(
                    memory,
                    id,
                    PagesToRead { range: index..end, mark, pages },
                    gfp,
                    request,
                );
            }
            let order = f.order_at(index, largest, end);
            if f.tree.look().folio(PageIndex(index)).is_some() {
                largest = Order::ZERO;
                continue;
            }
            if order > Order::ZERO && !count_block(memory, order, memory.has_block(order, gfp)) {
                largest = Order(order.0 / 2);
                continue;
            }
            let marked = mark.is_some_and(|mark| mark >> order.0 << order.0 == index);
            let folio = FolioToRead { index: PageIndex(index), order, marked };
            match self.read_folio(memory, id, folio, gfp, request) {
                Ok(added) => {
                    added.into_iter().for_each(|pfn| memory.put(pfn));
                    index += order.frames() as u64;
                }
                Err(_) if order > Order::ZERO => largest = Order(order.0 / 2),
                Err(_) => return,
            }
        }
    }

    /// Add a folio and start its read. Returns it with a reference. `None`: another task has added one, or the file has
    /// changed its size.
    pub(super) fn read_folio<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        folio: FolioToRead,
        gfp: Gfp,
        request: &mut BlockRequest,
    ) -> Result<Option<Pfn>, Shortage> {
        let FolioToRead { index, order, marked } = folio;
        let place = (index, order);
        let added = match self.add_new(memory, id, place, gfp) {
            // The pages between the marks are for the time until kswapd, which has been woken, has made room.
            Err(Shortage::Zone(_)) if gfp.mark == Watermark::Low && order == Order::ZERO => {
                self.add_new(memory, id, place, Gfp { mark: Watermark::Min, ..gfp })?
            }
            other => other?,
        };
        let Some(pfn) = added else { return Ok(None) };
        let (f, pages) = (self.file(id), index.0..index.0 + order.frames() as u64);
        if order > Order::ZERO && f.extents.lock().holds(pages).is_none() {
            // The file was truncated after the size was chosen. From here on a truncation waits for the folio's lock.
            self.remove(memory, pfn);
            memory.unlock_folio(pfn);
            memory.put_many(pfn, 2);
            return Ok(None);
        }
        if marked {
            memory.frames[pfn].set(FrameFlags::READAHEAD);
        }
        self.fill(memory, f, pfn, request);
        Ok(Some(pfn))
    }

    /// Start to fill a new, locked folio. It is unlocked when it is up to date.
    pub(super) fn fill<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: &File,
        pfn: Pfn,
        request: &mut BlockRequest,
    ) {
        let frame = &memory.frames[pfn];
        let _stall = memory.refault_stall(pfn);
        let (index, pages) = (frame.page_index(), frame.pages() as u64);
        if !file.is_shmem() && file.extents.lock().holds_all(index.0..index.0 + pages) {
            super::io::submit_read(memory, pfn, file.place(index), request);
        } else {
            super::io::fill_with_zeroes(memory, pfn);
            memory.unlock_folio(pfn);
        }
    }

    /// Start reading a range, without waiting (MADV_WILLNEED, readahead).
    pub(crate) fn read_ahead<M: Machine>(
        &self,
        memory: &Memory<M>,
        id: FileId,
        first: PageIndex,
        pages: u64,
        gfp: Gfp,
    ) -> Result<(), super::CacheError> {
        if self.file(id).is_shmem() {
            self.read_ahead_shmem(memory, id, first.0..first.0.saturating_add(pages), gfp);
        } else {
            memory.charge(Work::CacheLookup, 1);
            let window = ReadaheadWindow { start: first.0, count: pages, lookahead: 0 };
            if gfp.read_ahead == AllowedReadAhead::Nothing {
                return Ok(());
            }
            let room = self.ask_for_room(memory, id, (Some(window), Order::ZERO), pages, gfp)?;
            self.read_window(memory, id, window, Order::ZERO, room, gfp);
        }
        Ok(())
    }
}

impl File {
    /// The order, at most `largest`, of a folio that may begin at `index`, where nothing is cached: the folio ends
    /// before `end` and before the next cached folio, and is entirely on the device or entirely in a hole.
    pub(super) fn order_at(&self, index: u64, largest: Order, end: u64) -> Order {
        let next = self.tree.look().folios_in(TreeMark::Folio, index..end).next();
        let end = next.map_or(end, |(next, _)| next.0);
        let room = end.saturating_sub(index).checked_ilog2().unwrap_or(0);
        let order = largest.0.min(index.trailing_zeros().min(room) as u8);
        let extents = self.extents.lock();
        let alike = |order: &u8| extents.holds(index..index + (1 << order)).is_some();
        Order((0..=order).rev().find(alike).unwrap_or(0))
    }
}

/// Whether a fault on a cached folio is a hit that makes up for a miss. Since 7.2 not while another fault reads it.
fn lowers_misses<M: Machine>(memory: &Memory<M>, folio: CachedFolio, hint: ReadHint) -> bool {
    let form = memory.knobs.read_ahead_form();
    let is_read = form == ReadAheadForm::V72 && memory.frames[folio.head].has(FrameFlags::LOCKED);
    hint.counts_misses(form) && !is_read
}

/// The number of cached pages just before `index`, up to `most`, and whether they reach to the start of the file.
fn history(file: &File, index: u64, most: u64) -> (u64, bool) {
    let tree = file.tree.look();
    let least = index - most.min(index);
    let mut first = index;
    while first > least
        && let Some(folio) = tree.folio(PageIndex(first - 1))
    {
        first = folio.first(PageIndex(first - 1)).0.max(least);
    }
    (index - first, first == 0)
}

/// The first of the `most` pages from `from` on that is not cached.
fn next_hole(file: &File, from: u64, most: u64) -> Option<u64> {
    let tree = file.tree.look();
    let mut at = from;
    while at < from + most {
        match tree.folio(PageIndex(at)) {
            Some(folio) => at = folio.end(PageIndex(at)),
            None => return Some(at),
        }
    }
    None
}

pub(super) fn max_order<M: Machine>(memory: &Memory<M>) -> Order {
    Order(memory.knobs.get(Knob::FileMaxOrder) as u8)
}

/// Count whether memory has a block for a large folio.
pub(super) fn count_block<M: Machine>(memory: &Memory<M>, order: Order, found: bool) -> bool {
    memory.sizes.count(if found { SizeStat::FileAlloc } else { SizeStat::FileFallback }, order, 1);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 128 KiB, the default, is 32 pages.
    #[test]
    fn first_window_depends_on_the_request() {
        let sizes: std_alloc::vec::Vec<u64> =
            [1, 2, 4, 8, 9, 32].map(|wanted| initial_size(wanted, 32)).into();
        assert_eq!(sizes, [4, 4, 8, 16, 32, 32]);
        assert_eq!([1, 2, 4, 16, 17, 32].map(|size| next_size(size, 32)), [4, 4, 8, 32, 32, 32]);
    }

    #[test]
    fn sequence_grows_windows_and_jump_reads_alone() {
        let mut state = Readahead::default();
        let none = |_| (0, false);
        assert_eq!(state.on_miss(0, 1, 32, none), ReadaheadWindow { start: 0, count: 4, lookahead: 3 });
        let next = |state: &mut Readahead, at| {
            state.on_mark((at, Order::ZERO), 1, (32, Order::ZERO), |_, _| None).unwrap()
        };
        assert_eq!(next(&mut state, 1), ReadaheadWindow { start: 4, count: 8, lookahead: 8 });
        assert_eq!(next(&mut state, 4), ReadaheadWindow { start: 12, count: 16, lookahead: 16 });
        assert_eq!(next(&mut state, 12), ReadaheadWindow { start: 28, count: 32, lookahead: 32 });
        assert_eq!(next(&mut state, 28), ReadaheadWindow { start: 60, count: 32, lookahead: 32 });
        let before = state;
        assert_eq!(state.on_miss(1000, 1, 32, none), ReadaheadWindow { start: 1000, count: 1, lookahead: 0 });
        assert_eq!(state, before);
    }

    #[test]
    fn cached_pages_before_a_miss_indicate_a_sequence() {
        let mut state = Readahead::default();
        let window = state.on_miss(500, 1, 32, |_| (6, false));
        assert_eq!(window, ReadaheadWindow { start: 500, count: 7, lookahead: 1 });
        let window = state.on_miss(10, 1, 32, |_| (10, true));
        assert_eq!(window, ReadaheadWindow { start: 10, count: 21, lookahead: 1 });
    }

    #[test]
    fn unexpected_mark_starts_at_the_next_hole() {
        let mut state = Readahead { start: 900, size: 8, async_size: 8, ..Readahead::default() };
        let window =
            state.on_mark((100, Order::ZERO), 1, (32, Order::ZERO), |from, _| Some(from + 7)).unwrap();
        assert_eq!(window, ReadaheadWindow { start: 108, count: 18, lookahead: 18 });
        assert_eq!(state.on_mark((100, Order::ZERO), 1, (32, Order::ZERO), |_, _| None), None);
    }

    /// Linux 7.3's page_cache_async_ra: the order grows with each window, and the end is cut before the window limits
    /// the order.
    #[test]
    fn windows_end_where_larger_and_larger_folios_end() {
        let begin = Readahead { start: 101, size: 32, async_size: 8, ..Readahead::default() };
        let mut state = begin;
        let mut marked = 125;
        let windows = [0; 3].map(|_| {
            state.on_mark((marked, Order::ZERO), 1, (32, Order(u8::MAX)), |_, _| None).unwrap();
            let window = state.fit(Order(9));
            marked = window.start;
            (window.start, window.count, state.order)
        });
        assert_eq!(windows, [(133, 31, Order(2)), (164, 28, Order(4)), (192, 32, Order(5))]);
        // A fault inside the marked folio is no reader of the sequence, one at its beginning is.
        let expects =
            |index| { begin }.on_mark((index, Order(2)), 1, (32, Order::ZERO), |_, _| None).is_some();
        assert_eq!([124, 125].map(expects), [true, false]);
    }

    /// Linux 7.2's do_sync_mmap_readahead for VM_EXEC.
    #[test]
    fn text_is_read_forward_to_the_end_of_its_range() {
        let mut state = Readahead::default();
        let mut of = |index, end| {
            let window = state.on_text_miss(index, 32, end);
            (window.start, window.count, window.lookahead)
        };
        assert_eq!([of(100, 1000), of(990, 1000)], [(100, 32, 0), (990, 10, 0)]);
    }

    #[test]
    fn faults_read_around_until_misses_dominate() {
        let mut state = Readahead::default();
        assert_eq!(
            state.on_fault_miss(100, 32),
            Some(ReadaheadWindow { start: 84, count: 32, lookahead: 8 })
        );
        for _ in 1..MMAP_LOTSAMISS {
            assert!(state.on_fault_miss(5, 32).is_some());
        }
        assert_eq!(state.on_fault_miss(5, 32), None);
        state.mapped(2);
        assert!(state.on_fault_miss(5, 32).is_some());
    }
}
