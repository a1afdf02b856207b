//! Page caches: which folio holds which page of which file.
//!
//! A file has a tree ([`tree`]) under a lock of its own. A folio in the tree has the file as owner, and the tree holds
//! one reference. Content is read and written by I/O (`io`): a folio is locked from its insertion until its read has
//! ended, so a task that finds a folio that is not up to date waits for the lock. `readahead` decides what to read
//! before it is needed; `get` gets a page that is needed now.
//!
//! Shmem files have no device. Their pages start as zeroes, go to swap and come back (`shmem`, `swapin`).
//!
//! Folios have 1 to 512 pages (`file.max_order`): read-ahead makes larger ones as a sequence goes on (`readahead`), a
//! write makes them as large as what it overwrites (`rw`). A folio is read, made dirty, written and dropped whole; if
//! its file is truncated in its middle, it is split ([`Cache::split`]).
//!
//! Locks: a folio's lock before a tree's lock. A folio leaves its tree only while it is locked, so its owner and index
//! are stable for the holder of the lock. Nothing here sleeps with a tree locked.
//!
//! **Owner and index.** They change only under the folio's lock: when the folio enters a tree (it is new then, or
//! comes from swap), when it is truncated (other tasks may keep references), when reclaim or a collapse takes it out
//! (its references are frozen first, so there are no others), and when shmem goes to swap. A reference keeps a folio
//! from being freed or split, but not in its file. A page fault must not map a page that is no longer the file's. So
//! it holds the folio lock from its look at the owner until the entry is set ([`Cache::resident`] returns locked
//! folios, [`Cache::is_page`] needs the lock): a task that takes the folio out comes later and finds the entry.
//! Reclaim unmaps the folio under the same lock; a truncation unmaps the file before it takes the pages out, and again
//! afterwards. It would not be enough to look at the owner under the lock of the tables: a truncation between the look
//! and the entry would be half done, and shmem that goes to swap would be mapped and stored to, and unmapping it would
//! find no file to mark dirty. (Linux: `filemap_map_pages` and `finish_fault` hold the folio's lock;
//! `truncate_cleanup_folio`.)

mod check;
mod collapse;
mod evict;
mod exchange;
mod file;
mod get;
mod io;
mod membership;
mod pages;
mod readahead;
mod request;
mod rw;
mod shadows;
mod shmem;
mod split;
mod swapin;
mod swapio;
#[cfg(test)]
pub(crate) mod tests;
pub mod tree;
mod zswap;

pub use file::File;
pub(crate) use request::BlockRequest;
pub(crate) use split::CACHE_AND_CALLER;
pub(crate) use swapin::{
    Nearby, SwapinStep, add_to_swap, drop_swap_entry, drop_unmapped, free_swap, page_of_slot, read_unshared,
    remove_from_swap_cache, swapin, swapin_near,
};

pub(crate) use zswap::GroupShrunk;

use crate::api::{FileAdvice, FileKind};
use crate::arena::Arena;
use crate::frame::{FrameFlags, Owner};
use crate::knobs::ReadAheadForm;
use crate::machine::{Machine, WaitKey, Work};
use crate::memory::{Memory, Shortage};
use crate::primitive::{AtomicU32, Ordering::Relaxed};
use crate::slab::Record;
use crate::stat::Stat;
use crate::units::*;
use shadows::Shadows;
use tree::{CachedFolio, TreeMark};

/// Why a page is not available.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheError {
    /// Memory is short: make room and try again.
    Shortage(Shortage),
    /// The file ends before it.
    BeyondEnd,
    /// A device could not read it.
    Io,
}

impl From<Shortage> for CacheError {
    fn from(shortage: Shortage) -> CacheError {
        CacheError::Shortage(shortage)
    }
}

/// A page of a file for a caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// The head of its folio, which is up to date, with a reference for the caller.
    pub folio: Pfn,
    /// Its frame.
    pub pfn: Pfn,
    /// It was not cached: the caller started its read.
    pub major: bool,
    /// The caller waited for its read.
    pub waited: bool,
}

/// Consecutive cached pages of a file in one folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CachedRun {
    /// Index of the first.
    pub index: PageIndex,
    /// Head of their folio.
    pub folio: Pfn,
    /// Frame of the first.
    pub pfn: Pfn,
    /// Number of pages.
    pub pages: u32,
}

/// How the pages of a file will be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ReadHint {
    /// For a page fault (else for a system call).
    pub fault: bool,
    pub sequential: bool,
    pub random: bool,
    /// For a fault on program text: the first page of the file behind the range.
    pub text_end: Option<u64>,
}

impl ReadHint {
    /// Whether hits and misses of such faults are counted: since Linux 7.2 only where read-ahead depends on them.
    pub(crate) fn counts_misses(&self, form: ReadAheadForm) -> bool {
        form == ReadAheadForm::V612 || !self.sequential && self.text_end.is_none()
    }
}

/// All files.
#[derive(Default)]
pub struct Cache {
    files: Arena<File>,
    shadows: Shadows,
    /// Number of tasks that sleep because too much is dirty; the end of each write wakes them.
    throttled: AtomicU32,
    /// What reclaim has asked of the flusher, as a [`FlusherRequest`].
    request: AtomicU32,
}

/// The state of reclaim's request that the flusher write all dirty pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
enum FlusherRequest {
    None = 0,
    /// The flusher has not begun.
    Waiting = 1,
    /// The flusher writes.
    UnderWay = 2,
}

impl Cache {
    /// A cache without files.
    pub fn new() -> Cache {
        Cache::default()
    }

    /// Create a file of `size` bytes.
    pub fn create(&self, kind: FileKind, size: u64) -> FileId {
        self.claim(kind, size, false)
    }

    /// Create a file without a name, for a shared anonymous mapping; it is destroyed with its last mapping.
    pub(crate) fn create_nameless(&self, kind: FileKind, size: u64) -> FileId {
        self.claim(kind, size, true)
    }

    fn claim(&self, kind: FileKind, size: u64, nameless: bool) -> FileId {
        let id = FileId(self.files.claim());
        self.file(id).reset(kind, size, nameless);
        id
    }

    /// Destroy a file with all its pages. It is not mapped and not used any more.
    pub(crate) fn destroy<M: Machine>(&self, memory: &Memory<M>, file: FileId) {
        self.set_size(file, 0);
        self.truncate(memory, file, PageIndex(0));
        self.files.release(file.0);
    }

    /// The file.
    ///
    /// # Panics
    /// If no file ever had this number.
    #[inline]
    pub fn file(&self, file: FileId) -> &File {
        &self.files[file.0]
    }

    /// The numbers of all files, destroyed ones included.
    pub fn ids(&self) -> impl Iterator<Item = FileId> + use<> {
        (0..self.files.bound()).map(FileId)
    }

    /// Set the size of a file. The caller drops the pages after the new end ([`Cache::truncate`]).
    pub fn set_size(&self, file: FileId, size: u64) {
        self.file(file).set_size(size);
    }

    /// Note how the file will be read.
    pub fn advise(&self, file: FileId, advice: FileAdvice) {
        self.file(file).readahead.lock().advise(advice);
    }

    /// The folio of a page, with a reference; it may be locked or not up to date.
    #[inline]
    pub fn lookup<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        index: PageIndex,
    ) -> Option<CachedFolio> {
        lookup(memory, self.file(file), index)
    }

    /// Call `found` for the pages of `[first, first + count)` that can be mapped without waiting, in order. Their
    /// folio is locked and has a reference for each of them. `faulted`: the page that they are mapped around, unless
    /// the fault has read it or waited for it.
    #[inline]
    pub fn resident<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        (first, count): (PageIndex, u64),
        faulted: Option<PageIndex>,
        mut found: impl FnMut(CachedRun),
    ) {
        let f = self.file(file);
        memory.charge(Work::CacheLookup, 1);
        let around = memory.knobs.read_ahead_form() == ReadAheadForm::V612;
        let mut fresh = 0;
        let end = first.0.saturating_add(count).min(f.pages());
        {
            let tree = f.tree.look();
            for (start, folio) in tree.folios_in(TreeMark::Folio, first.0..end) {
                let frame = &memory.frames[folio.head];
                let flags = frame.flags();
                let unfit = FrameFlags::LOCKED | FrameFlags::READAHEAD;
                let fit = flags.contains(FrameFlags::UPTODATE) && !flags.intersects(unfit);
                // While it is locked it stays in the tree, which has a reference.
                if fit && memory.try_lock_folio(folio.head) {
                    let index = start.max(first);
                    let pages = (folio.end(index).min(end) - index.0) as u32;
                    memory.writes_frame(folio.head);
                    frame.get(pages);
                    let hits = match around {
                        true => pages,
                        false => u32::from(
                            faulted.is_some_and(|at| (index.0..index.0 + u64::from(pages)).contains(&at.0)),
                        ),
                    };
                    fresh += if flags.contains(FrameFlags::WORKINGSET) { 0 } else { hits };
                    found(CachedRun { index, folio: folio.head, pfn: folio.frame(index), pages });
                }
            }
        }
        f.readahead.lock().mapped(fresh);
    }

    /// The folio that holds 2 MiB of a file from `first` on, locked and with a reference, if it can be mapped without
    /// waiting. `marked`: also if it has the flag READAHEAD.
    pub(crate) fn resident_large<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        first: PageIndex,
        marked: bool,
    ) -> Option<Pfn> {
        let f = self.file(file);
        memory.charge(Work::CacheLookup, 1);
        let folio = {
            let tree = f.tree.look();
            let folio = tree.folio(first).filter(|folio| folio.order == PAGEBLOCK_ORDER)?;
            let frame = &memory.frames[folio.head];
            let mut unfit = FrameFlags::LOCKED;
            unfit.set(FrameFlags::READAHEAD, !marked);
            let fit = frame.has(FrameFlags::UPTODATE) && !frame.has_any(unfit);
            (fit && memory.try_lock_folio(folio.head)).then(|| frame.get(1))?;
            memory.writes_frame(folio.head);
            folio
        };
        if !memory.frames[folio.head].has(FrameFlags::WORKINGSET) {
            let around = memory.knobs.read_ahead_form() == ReadAheadForm::V612;
            f.readahead.lock().mapped(if around { folio.pages() as u32 } else { 1 });
        }
        Some(folio.head)
    }

    /// Whether the folio, which the caller has locked, is in the cache of this file and holds this page. (Not if the
    /// page is after the end of the file, even if its folio is still there.)
    pub(crate) fn is_page<M: Machine>(
        &self,
        memory: &Memory<M>,
        folio: Pfn,
        file: FileId,
        index: PageIndex,
    ) -> bool {
        is_page_of(memory, folio, file, index) && index.0 < self.file(file).pages()
    }

    /// Mark a folio dirty: its content is newer than on the device. The caller holds the folio lock, or the folio is
    /// mapped and the caller holds the lock of the table.
    pub(crate) fn mark_dirty<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) {
        let frame = &memory.frames[pfn];
        if frame.has(FrameFlags::DIRTY) {
            return;
        }
        let Owner::File(id) = frame.owner() else { return };
        let f = self.file(id);
        if f.is_shmem() {
            frame.set(FrameFlags::DIRTY);
            return;
        }
        let mut tree = f.tree.lock();
        let index = frame.page_index();
        let still_there = tree.folio(index).is_some_and(|folio| folio.head == pfn);
        if still_there && frame.test_and_set(FrameFlags::DIRTY) {
            tree.set_mark(index, TreeMark::Dirty);
            f.note_dirtied(Some(memory.machine.now()));
            memory.count(Stat::NrDirty, frame.pages() as i64);
            memory.count(Stat::NrDirtied, frame.pages() as i64);
            let first = frame.test_and_set(FrameFlags::BUFFERS);
            drop(tree);
            if first {
                memory.note_records(Record::BufferHead, frame.pages() as i64);
            }
        }
    }

    /// Sleep until a write ends, or until `deadline`.
    pub(crate) fn wait_for_a_write<M: Machine>(&self, memory: &Memory<M>, deadline: Nanos) {
        self.throttled.fetch_add(1, Relaxed);
        let ticket = memory.machine.ticket(WaitKey::Writeback);
        memory.machine.wait(ticket, Some(deadline));
        self.throttled.fetch_sub(1, Relaxed);
    }

    /// Reclaim found only dirty pages of files that are not under write-back: have the flusher write all dirty pages.
    pub(crate) fn want_flusher<M: Machine>(&self, memory: &Memory<M>) {
        if self.request.swap(FlusherRequest::Waiting as u32, Relaxed) != FlusherRequest::Waiting as u32 {
            memory.charge(Work::DaemonWake, 1);
            memory.machine.wake(WaitKey::Flusher);
        }
    }

    /// Whether the flusher has not yet written what reclaim asked for.
    pub(crate) fn flusher_is_late(&self) -> bool {
        self.request.load(Relaxed) != FlusherRequest::None as u32
    }

    /// The flusher takes reclaim's request, if there is one; it calls [`Cache::has_written`] when it is done.
    pub(crate) fn take_request(&self) -> bool {
        self.change_request(FlusherRequest::Waiting, FlusherRequest::UnderWay)
    }

    /// The flusher has done what reclaim asked for. Reclaim may have asked again.
    pub(crate) fn has_written<M: Machine>(&self, memory: &Memory<M>) {
        if self.change_request(FlusherRequest::UnderWay, FlusherRequest::None)
            && self.throttled.load(Relaxed) > 0
        {
            memory.machine.wake(WaitKey::Writeback);
        }
    }

    fn change_request(&self, from: FlusherRequest, to: FlusherRequest) -> bool {
        self.request.compare_exchange(from as u32, to as u32, Relaxed, Relaxed).is_ok()
    }
}

/// The folio of a page, with a reference; it may be locked or not up to date.
#[inline]
fn lookup<M: Machine>(memory: &Memory<M>, file: &File, index: PageIndex) -> Option<CachedFolio> {
    memory.charge(Work::CacheLookup, 1);
    let tree = file.tree.look();
    tree.folio(index).filter(|folio| memory.try_get(folio.head))
}

/// Whether the folio, to which the caller holds a reference, holds this page of this file.
fn is_page_of<M: Machine>(memory: &Memory<M>, pfn: Pfn, file: FileId, index: PageIndex) -> bool {
    let frame = &memory.frames[pfn];
    let first = frame.page_index().0;
    frame.owner() == Owner::File(file) && (first..first + frame.pages() as u64).contains(&index.0)
}
