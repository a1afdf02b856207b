//! A database's own cache of a file's pages, in its memory. What it holds is also in the page cache, for a
//! while.
//!
//! Each task has a pool of its own, for the part of the file that it serves. Real pools are shared, but then
//! their content would depend on the order of tasks, and two policies would not get the same work.

use super::parts::{Heap, must, read, touch, write};
use crate::{AccessKind, Os, Signal};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How often the clock's hand passes a frame that is used again and again (PostgreSQL's
/// `BM_MAX_USAGE_COUNT`).
const MAX_USAGE: u8 = 5;

#[derive(Clone, Copy, Debug)]
struct Frame {
    page: u64,
    usage: u8,
    dirty: bool,
}

/// Pages of a file in memory.
#[derive(Debug)]
pub(super) struct Pool {
    memory: Heap,
    fd: u32,
    page: u64,
    capacity: usize,
    frames: Vec<Frame>,
    at: BTreeMap<u64, usize>,
    hand: usize,
    lookups: u64,
    misses: u64,
}

impl Pool {
    /// A pool in `memory`, of pages of `page` bytes of a file.
    pub(super) fn new(memory: Heap, fd: u32, page: u64) -> Pool {
        let capacity = (memory.len / page) as usize;
        assert!(capacity >= 4, "a pool must have at least 4 pages, not {capacity}");
        let (frames, at) = Default::default();
        Pool { memory, fd, page, capacity, frames, at, hand: 0, lookups: 0, misses: 0 }
    }

    /// Touch `len` bytes of a page of the file, which is read if it is not in the pool; a store makes it
    /// dirty.
    pub(super) fn touch<O: Os>(
        &mut self,
        os: &mut O,
        page: u64,
        (offset, len): (u64, u64),
        mode: AccessKind,
    ) -> Result<(), Signal> {
        let frame = self.find(os, page)?;
        self.frames[frame].dirty |= mode == AccessKind::Store;
        touch(os, self.memory.start + frame as u64 * self.page + offset, len.min(self.page - offset), mode)
    }

    /// Write the dirty pages to the file, in its order, and wait until they are on the disk.
    pub(super) fn checkpoint<O: Os>(&mut self, os: &mut O) -> Result<(), Signal> {
        let dirty: Vec<usize> = self.at.values().copied().filter(|&frame| self.frames[frame].dirty).collect();
        dirty.into_iter().try_for_each(|frame| self.write_back(os, frame))?;
        must(os.fsync(self.fd))
    }

    /// Assert that the pool is full, and that its lookups explain what it has read.
    pub(super) fn assert_used(&self) {
        assert_eq!(self.frames.len(), self.capacity, "a pool that is smaller than its file must be full");
        assert!(
            self.misses >= self.capacity as u64 && self.misses <= self.lookups,
            "{} misses of {} lookups in a pool of {} pages",
            self.misses,
            self.lookups,
            self.capacity
        );
    }

    fn find<O: Os>(&mut self, os: &mut O, page: u64) -> Result<usize, Signal> {
        self.lookups += 1;
        if let Some(&frame) = self.at.get(&page) {
            self.frames[frame].usage = (self.frames[frame].usage + 1).min(MAX_USAGE);
            return Ok(frame);
        }
        let frame = self.free_frame(os)?;
        self.misses += 1;
        read(os, self.fd, page * self.page, self.page)?;
        touch(os, self.memory.start + frame as u64 * self.page, self.page, AccessKind::Store)?;
        self.frames[frame] = Frame { page, usage: 1, dirty: false };
        self.at.insert(page, frame);
        Ok(frame)
    }

    /// Get a free frame: an unused one, or the first whose usage count has fallen to 0 when the hand reaches
    /// it.
    fn free_frame<O: Os>(&mut self, os: &mut O) -> Result<usize, Signal> {
        if self.frames.len() < self.capacity {
            self.frames.push(Frame { page: 0, usage: 0, dirty: false });
            return Ok(self.frames.len() - 1);
        }
        loop {
            let frame = self.hand;
            self.hand = (frame + 1) % self.capacity;
            match self.frames[frame].usage {
                0 => {
                    self.write_back(os, frame)?;
                    self.at.remove(&self.frames[frame].page);
                    return Ok(frame);
                }
                usage => self.frames[frame].usage = usage - 1,
            }
        }
    }

    /// Write a frame if it is dirty.
    fn write_back<O: Os>(&mut self, os: &mut O, frame: usize) -> Result<(), Signal> {
        let Frame { page, dirty, .. } = self.frames[frame];
        if dirty {
            touch(os, self.memory.start + frame as u64 * self.page, self.page, AccessKind::Load)?;
            write(os, self.fd, page * self.page, self.page)?;
            self.frames[frame].dirty = false;
        }
        Ok(())
    }
}
