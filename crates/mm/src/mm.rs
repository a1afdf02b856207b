//! The facade.

use crate::api::*;
use crate::base::Base;
use crate::knobs::Knobs;
use crate::machine::{Io, Machine};
use crate::units::*;
use std_alloc::string::String;
use std_alloc::vec::Vec;

/// What the memory manager is told at start.
pub struct Config {
    /// Tunables.
    pub knobs: Knobs,
    /// Swap space.
    pub swap: Vec<SwapArea>,
}

/// What the out-of-memory decision saw and did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OomReport {
    /// The space that was chosen.
    pub victim: SpaceId,
    /// Its resident pages.
    pub rss: u64,
    /// Text for people: free pages, marks, lists, candidates.
    pub text: String,
}

/// The memory manager of a machine.
pub struct Mm<M> {
    base: Base<M>,
}

impl<M: Machine> Mm<M> {
    /// Take over the memory of `machine`.
    pub fn new(machine: M, config: Config) -> Result<Mm<M>, String> {
        let _ = config.swap;
        Ok(Mm { base: Base::new(machine, config.knobs) })
    }

    /// The machine below.
    pub fn machine(&self) -> &M {
        &self.base.machine
    }

    /// Floors 1 and 2: frames, knobs, counters.
    pub fn base(&self) -> &Base<M> {
        &self.base
    }

    // --- spaces ---

    /// A new, empty address space charged to `group` (GroupId(0) is the root group).
    pub fn create_space(&self, group: GroupId) -> Result<SpaceId, Error> {
        let _ = group;
        todo!()
    }

    /// A copy of `parent`: private memory is shared until written.
    pub fn fork(&self, parent: SpaceId) -> Result<SpaceId, Error> {
        let _ = parent;
        todo!()
    }

    /// Unmap everything and forget the space. No CPU may run it any more (all have switched away or are lazy).
    pub fn exit_space(&self, space: SpaceId) {
        let _ = space;
        todo!()
    }

    /// This CPU goes over to `space`; `None`: to a kernel task, which keeps the last space loaded lazily.
    pub fn switch(&self, space: Option<SpaceId>) {
        let _ = space;
        todo!()
    }

    /// A translation of `space` is missing or forbids `access` at `page`. On success the access is to be retried.
    pub fn fault(&self, space: SpaceId, page: Vpn, access: AccessKind) -> Result<FaultDone, FaultError> {
        let _ = (space, page, access);
        todo!()
    }

    /// Was the space chosen to die? Its tasks must end.
    pub fn killed(&self, space: SpaceId) -> bool {
        let _ = space;
        todo!()
    }

    /// Out-of-memory decisions so far.
    pub fn oom_reports(&self) -> Vec<OomReport> {
        todo!()
    }

    /// mmap; returns the first page.
    pub fn mmap(&self, space: SpaceId, request: &MapRequest) -> Result<Vpn, Error> {
        let _ = (space, request);
        todo!()
    }

    /// munmap; holes are fine.
    pub fn munmap(&self, space: SpaceId, start: Vpn, pages: u64) -> Result<(), Error> {
        let _ = (space, start, pages);
        todo!()
    }

    /// mprotect.
    pub fn mprotect(&self, space: SpaceId, start: Vpn, pages: u64, prot: Prot) -> Result<(), Error> {
        let _ = (space, start, pages, prot);
        todo!()
    }

    /// mremap: returns the first page of the mapping's new place. `fixed`: move exactly there.
    pub fn mremap(
        &self,
        space: SpaceId,
        start: Vpn,
        old_pages: u64,
        new_pages: u64,
        may_move: bool,
        fixed: Option<Vpn>,
    ) -> Result<Vpn, Error> {
        let _ = (space, start, old_pages, new_pages, may_move, fixed);
        todo!()
    }

    /// madvise.
    pub fn madvise(&self, space: SpaceId, start: Vpn, pages: u64, advice: Advice) -> Result<(), Error> {
        let _ = (space, start, pages, advice);
        todo!()
    }

    /// mlock (`lock`) or munlock.
    pub fn mlock(&self, space: SpaceId, start: Vpn, pages: u64, lock: bool) -> Result<(), Error> {
        let _ = (space, start, pages, lock);
        todo!()
    }

    /// msync(MS_SYNC).
    pub fn msync(&self, space: SpaceId, start: Vpn, pages: u64) -> Result<(), Error> {
        let _ = (space, start, pages);
        todo!()
    }

    // --- files ---

    /// A file of `size` bytes. Disk files start with the device's content; shmem files with zeroes.
    pub fn create_file(&self, kind: FileKind, size: u64) -> FileId {
        let _ = (kind, size);
        todo!()
    }

    /// Size in bytes.
    pub fn file_size(&self, file: FileId) -> u64 {
        let _ = file;
        todo!()
    }

    /// Read `len` bytes at `offset` through the page cache. `sink(frame, offset_in_page, bytes)` is called for every
    /// page while its folio is up to date and held. Returns bytes read (short at end of file).
    pub fn read(
        &self,
        file: FileId,
        offset: u64,
        len: u64,
        group: GroupId,
        sink: &mut dyn FnMut(Pfn, u32, u32),
    ) -> Result<u64, Error> {
        let _ = (file, offset, len, group, sink);
        todo!()
    }

    /// Write through the page cache, growing the file. `source(frame, offset_in_page, bytes)` is called for every page
    /// while its folio is locked, and puts the bytes there.
    pub fn write(
        &self,
        file: FileId,
        offset: u64,
        len: u64,
        group: GroupId,
        source: &mut dyn FnMut(Pfn, u32, u32),
    ) -> Result<u64, Error> {
        let _ = (file, offset, len, group, source);
        todo!()
    }

    /// Write the file's dirty pages and wait.
    pub fn fsync(&self, file: FileId) -> Result<(), Error> {
        let _ = file;
        todo!()
    }

    /// Set the size; pages beyond it are unmapped everywhere and dropped.
    pub fn ftruncate(&self, file: FileId, size: u64) -> Result<(), Error> {
        let _ = (file, size);
        todo!()
    }

    /// posix_fadvise on `[offset, offset + len)`; `len` 0 = to the end.
    pub fn fadvise(&self, file: FileId, offset: u64, len: u64, advice: FileAdvice) -> Result<(), Error> {
        let _ = (file, offset, len, advice);
        todo!()
    }

    // --- groups ---

    /// A control group below `parent`.
    pub fn create_group(&self, parent: GroupId, limits: GroupLimits) -> Result<GroupId, Error> {
        let _ = (parent, limits);
        todo!()
    }

    // --- from the machine's owner ---

    /// A transfer that was submitted has ended.
    pub fn io_done(&self, io: &Io) {
        let _ = io;
        todo!()
    }

    /// The background tasks that want to run.
    pub fn daemons(&self) -> Vec<Daemon> {
        todo!()
    }

    /// Run a background task until the machine stops.
    pub fn daemon(&self, daemon: Daemon) {
        let _ = daemon;
        todo!()
    }

    // --- observing ---

    /// Check every structure against every other. Only when no task is inside a call. Returns the first fault.
    pub fn validate(&self) -> Result<(), String> {
        todo!()
    }

    /// For the machine's page walker: the root table of a space.
    pub fn root(&self, space: SpaceId) -> Pfn {
        let _ = space;
        todo!()
    }

    /// Resident pages of a space.
    pub fn rss(&self, space: SpaceId) -> u64 {
        let _ = space;
        todo!()
    }

    /// All free frames, those on CPUs' lists included.
    pub fn free_pages(&self) -> u64 {
        todo!()
    }
}
