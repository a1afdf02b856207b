//! Page caches: which folio holds which page of which file.
//!
//! A file has a tree ([`tree`]) under a lock of its own. A folio in it has the file as owner, and the tree holds one
//! reference. Content comes and goes by I/O (`io`): a folio is locked from its insertion until its read has ended, so
//! whoever finds one that is not up to date waits for the lock. What to read before it is asked for is decided in
//! `readahead`; the way to a page that is needed now is in `get`.
//!
//! Shmem files have no device. Their pages start as zeroes, go to swap and come back (`shmem`, `swapin`).
//!
//! Folios come in sizes of 1 to 512 pages (`file.max_order`): read-ahead makes them grow with the length of a sequence
//! (`readahead`), a write makes them as large as what it overwrites (`rw`). A folio is read, made dirty, written and
//! dropped whole; where a file is cut in its middle it is split ([`Cache::split`]).
//!
//! Locks: a folio's lock before a tree's lock. A folio leaves its tree only while it is locked, so its owner and index
//! are stable for who holds the lock. Nothing here sleeps with a tree locked.
//!
//! **Owner, index, and who may rely on them.** They change under the folio's lock and in no other way: when it enters a
//! tree (it is new then, or comes from swap), when it is cut off (the references of others stay theirs), when reclaim
//! or a collapse takes it out (its references are frozen first, so there are no others), and when shmem goes to swap. A
//! reference keeps a folio from being freed and from being split, but not in its file. So a page fault, which must not
//! map what is no longer the file's, holds the lock from its look at the owner until the entry stands
//! ([`Cache::resident`] hands folios out locked,
//! [`Cache::is_page`] asks for the lock): then whoever takes the folio out comes later, and finds the entry. Reclaim
//! has unmapped the folio under the same lock; a cut unmaps the file before it takes its pages out, and again when they
//! are out. Why not look at the owner under the lock of the tables alone: a cut that comes between the look and the
//! entry would be met half done, and shmem that goes to swap would be mapped, stored to, and unmapped by somebody who
//! finds no file to tell. (Linux: `filemap_map_pages` and `finish_fault` hold the folio's lock;
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
mod rw;
mod shadows;
mod shmem;
mod split;
mod swapin;
#[cfg(test)]
pub(crate) mod tests;
pub mod tree;

pub use collapse::Survey;
pub use file::File;
pub use readahead::Readahead;
pub use split::CACHE_AND_CALLER;
pub use swapin::{
    Nearby, SwapCacheLookup, SwappedIn, add_to_swap, drop_swap_entry, drop_unmapped, free_swap, page_of_slot,
    remove_from_swap_cache, swapin, swapin_near,
};

use crate::api::{FileAdvice, FileKind};
use crate::arena::Arena;
use crate::frame::{FrameFlags, Owner};
use crate::machine::{Machine, WaitKey, Work};
use crate::memory::{Memory, Shortage};
use crate::primitive::{AtomicBool, AtomicU32, Ordering::Relaxed};
use crate::stat::Stat;
use crate::units::*;
use shadows::Shadows;
use tree::{CachedFolio, TreeMark};

/// Why a page could not be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CacheError {
    /// For want of memory: make room and try again.
    Shortage(Shortage),
    /// The file ends before it.
    BeyondEnd,
}

impl From<Shortage> for CacheError {
    fn from(shortage: Shortage) -> CacheError {
        CacheError::Shortage(shortage)
    }
}

/// A page that was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// The head of its folio, which is up to date, with a reference for the caller.
    pub folio: Pfn,
    /// Its frame.
    pub pfn: Pfn,
    /// It was not cached: the caller had it read.
    pub major: bool,
    /// The caller had to wait until it was read, by whomever.
    pub waited: bool,
}

/// Cached pages of a file that follow each other in one folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CachedRun {
    /// Index of the first.
    pub index: PageIndex,
    /// Head of their folio.
    pub folio: Pfn,
    /// Frame of the first.
    pub pfn: Pfn,
    /// How many they are.
    pub pages: u32,
}

/// How the pages of a file are going to be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReadHint {
    /// It is a page fault (else a system call).
    pub fault: bool,
    /// Announced: in order.
    pub sequential: bool,
    /// Announced: in no order.
    pub random: bool,
}

/// All files.
#[derive(Default)]
pub struct Cache {
    files: Arena<File>,
    shadows: Shadows,
    /// Tasks that sleep because too much is dirty; the end of each write wakes them.
    throttled: AtomicU32,
    /// The flusher is to write all that is dirty.
    flusher_wanted: AtomicBool,
}

impl Cache {
    /// No files.
    pub fn new() -> Cache {
        Cache::default()
    }

    /// A file of `size` bytes.
    pub fn create(&self, kind: FileKind, size: u64) -> FileId {
        self.claim(kind, size, false)
    }

    /// A file without a name, for a shared anonymous mapping; it goes with its last mapping.
    pub fn create_nameless(&self, kind: FileKind, size: u64) -> FileId {
        self.claim(kind, size, true)
    }

    fn claim(&self, kind: FileKind, size: u64, nameless: bool) -> FileId {
        let id = FileId(self.files.claim());
        self.file(id).reset(kind, size, nameless);
        id
    }

    /// Was it made for a shared anonymous mapping?
    pub fn is_nameless(&self, file: FileId) -> bool {
        self.file(file).is_nameless()
    }

    /// Drop the file with all its pages. Nothing maps it, and nobody uses it any more.
    pub fn destroy<M: Machine>(&self, memory: &Memory<M>, file: FileId) {
        self.set_size(file, 0);
        self.truncate(memory, file, PageIndex(0));
        self.files.release(file.0);
    }

    /// The file.
    ///
    /// # Panics
    /// If there never was one of this number.
    #[inline]
    pub fn file(&self, file: FileId) -> &File {
        &self.files[file.0]
    }

    /// All files that there are or were.
    pub fn ids(&self) -> impl Iterator<Item = FileId> + use<> {
        (0..self.files.bound()).map(FileId)
    }

    /// Set the size of a file. Pages beyond it are the caller's to drop ([`Cache::truncate`]).
    pub fn set_size(&self, file: FileId, size: u64) {
        let file = self.file(file);
        if size < file.size() {
            file.extents.lock().cut(pages_of(size));
        }
        file.set_size(size);
    }

    /// What the file's readers are going to do.
    pub fn advise(&self, file: FileId, advice: FileAdvice) {
        self.file(file).readahead.lock().advise(advice);
    }

    /// The folio of a page, with a reference to it; it may be locked or not up to date.
    #[inline]
    pub fn lookup<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        index: PageIndex,
    ) -> Option<CachedFolio> {
        lookup(memory, self.file(file), index)
    }

    /// Call `found` for the pages of `[first, first + count)` that can be mapped without waiting, in order. Their folio
    /// is locked, and gets a reference for each of them.
    #[inline]
    pub fn resident<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        first: PageIndex,
        count: u64,
        mut found: impl FnMut(CachedRun),
    ) {
        let f = self.file(file);
        memory.charge(Work::CacheLookup, 1);
        let mut fresh = 0;
        let end = first.0.saturating_add(count).min(f.pages());
        {
            let tree = f.tree.lock();
            for (start, folio) in tree.folios_in(TreeMark::Folio, first.0..end) {
                let frame = &memory.frames[folio.head];
                let flags = frame.flags();
                let unfit = FrameFlags::LOCKED | FrameFlags::READAHEAD;
                let fit = flags.contains(FrameFlags::UPTODATE) && !flags.intersects(unfit);
                // While it is locked it stays in the tree, which has a reference.
                if fit && memory.try_lock_folio(folio.head) {
                    let index = start.max(first);
                    let pages = (folio.end(index).min(end) - index.0) as u32;
                    frame.get(pages);
                    fresh += if flags.contains(FrameFlags::WORKINGSET) { 0 } else { pages };
                    found(CachedRun { index, folio: folio.head, pfn: folio.frame(index), pages });
                }
            }
        }
        f.readahead.lock().mapped(fresh);
    }

    /// The folio that holds 2 MiB of a file from `first` on, if there is one that can be mapped without waiting;
    /// locked, and with a reference.
    pub fn resident_large<M: Machine>(
        &self,
        memory: &Memory<M>,
        file: FileId,
        first: PageIndex,
    ) -> Option<Pfn> {
        let f = self.file(file);
        memory.charge(Work::CacheLookup, 1);
        let folio = {
            let tree = f.tree.lock();
            let folio = tree.folio(first).filter(|folio| folio.order == PAGEBLOCK_ORDER)?;
            let frame = &memory.frames[folio.head];
            let unfit = FrameFlags::LOCKED | FrameFlags::READAHEAD;
            let fit = frame.has(FrameFlags::UPTODATE) && !frame.has_any(unfit);
            (fit && memory.try_lock_folio(folio.head)).then(|| frame.get(1))?;
            folio
        };
        if !memory.frames[folio.head].has(FrameFlags::WORKINGSET) {
            f.readahead.lock().mapped(folio.pages() as u32);
        }
        Some(folio.head)
    }

    /// Is the folio, which the caller has locked, in the cache of that file, and does it hold that page of it? (A page
    /// behind the end of its file is none, even if its folio is still there.)
    pub fn is_page<M: Machine>(
        &self,
        memory: &Memory<M>,
        folio: Pfn,
        file: FileId,
        index: PageIndex,
    ) -> bool {
        is_page_of(memory, folio, file, index) && index.0 < self.file(file).pages()
    }

    /// The folio's content is newer than its store. The caller holds it locked, or mapped with its table locked.
    pub fn mark_dirty<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) {
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
        }
    }

    /// Sleep until a write ends, or until `deadline`.
    pub fn wait_for_a_write<M: Machine>(&self, memory: &Memory<M>, deadline: Nanos) {
        self.throttled.fetch_add(1, Relaxed);
        let ticket = memory.machine.ticket(WaitKey::Writeback);
        memory.machine.wait(ticket, Some(deadline));
        self.throttled.fetch_sub(1, Relaxed);
    }

    /// Reclaim met nothing but dirty pages of files that nobody writes: have the flusher write all there are.
    pub fn want_flusher<M: Machine>(&self, memory: &Memory<M>) {
        if !self.flusher_wanted.swap(true, Relaxed) {
            memory.charge(Work::DaemonWake, 1);
            memory.machine.wake(WaitKey::Flusher);
        }
    }

    /// Was the flusher wanted since the last call?
    pub(crate) fn take_flusher_wanted(&self) -> bool {
        self.flusher_wanted.swap(false, Relaxed)
    }
}

/// The folio of a page, with a reference to it; it may be locked or not up to date.
#[inline]
fn lookup<M: Machine>(memory: &Memory<M>, file: &File, index: PageIndex) -> Option<CachedFolio> {
    memory.charge(Work::CacheLookup, 1);
    let tree = file.tree.lock();
    tree.folio(index).filter(|folio| memory.frames[folio.head].try_get())
}

/// Does the folio, of which the caller holds a reference, hold that page of that file?
fn is_page_of<M: Machine>(memory: &Memory<M>, pfn: Pfn, file: FileId, index: PageIndex) -> bool {
    let frame = &memory.frames[pfn];
    let first = frame.page_index().0;
    frame.owner() == Owner::File(file) && (first..first + frame.pages() as u64).contains(&index.0)
}
