//! System calls on files.

use super::Mm;
use crate::api::{Error, FileAdvice, FileKind};
use crate::cache::CacheError;
use crate::event::{Concern, Event};
use crate::machine::{Machine, Scope, WaitKey};
use crate::space::zap_file;
use crate::truncate;
use crate::units::*;
use crate::writeback;

/// Pages of an announced range that are read in one step: 2 MiB, as in Linux.
const READ_IN: u64 = 512;

impl From<CacheError> for Error {
    fn from(error: CacheError) -> Error {
        match error {
            CacheError::Shortage(_) => Error::NoMemory,
            CacheError::BeyondEnd => Error::Invalid,
            CacheError::Io => Error::Io,
        }
    }
}

impl<M: Machine> Mm<M> {
    /// Create a file of `size` bytes. Disk files start with the device's content, shmem files with zeroes.
    pub fn create_file(&self, kind: FileKind, size: u64) -> FileId {
        self.core.cache.create(kind, size)
    }

    /// Size in bytes.
    pub fn file_size(&self, file: FileId) -> u64 {
        self.core.cache.file(file).size()
    }

    /// Read `len` bytes at `offset` through the page cache. Calls `sink(frame, offset_in_page, bytes)` for every page
    /// while its folio is up to date and held. Returns the number of bytes read (fewer at the end of the file).
    pub fn read(
        &self,
        file: FileId,
        offset: u64,
        len: u64,
        group: GroupId,
        sink: &mut dyn FnMut(Pfn, u32, u32),
    ) -> Result<u64, Error> {
        let _scope = self.mmu().scope(Scope::FilemapRead);
        let mut done = 0;
        while done < len {
            let read = self.with_room(None, group, |gfp| {
                self.core.cache.read(&self.core, file, offset + done, len - done, gfp, sink)
            });
            match read {
                // What was read before counts.
                Err(CacheError::Io) if done > 0 => break,
                Ok(0) => break,
                got => done += got?,
            }
        }
        Ok(done)
    }

    /// Write through the page cache, and extend the file if needed. Calls `source(frame, offset_in_page, bytes)`,
    /// which fills in the bytes, for every page while its folio is locked.
    pub fn write(
        &self,
        file: FileId,
        offset: u64,
        len: u64,
        group: GroupId,
        source: &mut dyn FnMut(Pfn, u32, u32),
    ) -> Result<u64, Error> {
        let _scope = self.mmu().scope(Scope::GenericPerformWrite);
        let _held = self.inodes.ensure(file.0).0.write(&self.mmu().machine, WaitKey::File(file));
        let mut done = 0;
        while done < len {
            let written = self.with_room(None, group, |gfp| {
                self.core.cache.write(&self.core, file, offset + done, len - done, gfp, source)
            });
            match written {
                // What was written before counts.
                Err(CacheError::Io) if done > 0 => break,
                written => done += written?,
            }
            writeback::balance_dirty(&self.core, &self.writeback, file);
        }
        Ok(done)
    }

    /// Write the file's dirty pages and wait for them.
    pub fn fsync(&self, file: FileId) -> Result<(), Error> {
        let _scope = self.mmu().scope(Scope::DoFsync);
        self.sync(file, PageIndex(0), PageIndex(u64::MAX))
    }

    /// Write the dirty pages of a range and wait for them. An error if a write of the file has failed since the last
    /// call.
    pub(super) fn sync(&self, file: FileId, first: PageIndex, end: PageIndex) -> Result<(), Error> {
        writeback::sync_range(&self.core, &self.writeback, file, first, end);
        if self.core.cache.file(file).take_write_error() { Err(Error::Io) } else { Ok(()) }
    }

    /// Set the size; pages beyond it are unmapped everywhere and dropped.
    pub fn ftruncate(&self, file: FileId, size: u64) -> Result<(), Error> {
        let _scope = self.mmu().scope(Scope::TruncatePagecache);
        let _held = self.inodes.ensure(file.0).0.write(&self.mmu().machine, WaitKey::File(file));
        let old = self.file_size(file);
        self.core.cache.set_size(file, size);
        if size < old {
            let first = PageIndex(pages_of(size));
            // Unmap before and after: a fault that saw the old size may map a page in between.
            zap_file(&self.core, file, first);
            truncate::cut_astride(&self.core, file, first);
            self.core.cache.truncate(&self.core, file, first);
            zap_file(&self.core, file, first);
            self.mmu().event(Event::TlbHazard, Concern::file_from(file, first).args());
        }
        Ok(())
    }

    /// posix_fadvise on `[offset, offset + len)`; `len` 0 means to the end.
    pub fn fadvise(&self, file: FileId, offset: u64, len: u64, advice: FileAdvice) -> Result<(), Error> {
        let _scope = self.mmu().scope(Scope::GenericFadvise);
        let end = if len == 0 { self.file_size(file) } else { offset.saturating_add(len) };
        match advice {
            FileAdvice::WillNeed => {
                let first = offset / PAGE_SIZE;
                self.read_in(file, PageIndex(first), pages_of(end).saturating_sub(first), GroupId(0));
            }
            FileAdvice::DontNeed => {
                // Drop only whole pages, as the call promises; write dirty ones first.
                let (first, last) = (PageIndex(pages_of(offset)), PageIndex(end / PAGE_SIZE));
                let last = if end >= self.file_size(file) { PageIndex(pages_of(end)) } else { last };
                if first < last {
                    writeback::sync_range(&self.core, &self.writeback, file, first, last);
                    self.core.cache.invalidate(&self.core, file, first, last);
                }
            }
            _ => self.core.cache.advise(file, advice),
        }
        Ok(())
    }

    /// Read pages in without waiting for them, and reclaim for them.
    pub(super) fn read_in(&self, file: FileId, first: PageIndex, pages: u64, group: GroupId) {
        let end = first.0.saturating_add(pages).min(pages_of(self.file_size(file)));
        for from in (first.0..end).step_by(READ_IN as usize) {
            let pages = READ_IN.min(end - from);
            let read = |gfp| self.core.cache.read_ahead(&self.core, file, PageIndex(from), pages, gfp);
            // Read-ahead may fail silently.
            if self.with_room(None, group, read).is_err() {
                return;
            }
        }
    }
}
