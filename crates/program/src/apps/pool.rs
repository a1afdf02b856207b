//! A database's own cache of a file's pages, in its memory: what it holds is also in the page cache, for a while.
//!
//! Each task has a pool of its own, for the part of the file that it serves. Real pools are shared; but then what is in
//! them depended on which task comes first, and two policies would not be given the same work.

use super::parts::{Heap, must, read, touch, write};
use crate::{AccessKind, Os, Signal};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// How often the hand of the clock passes a frame that is used again and again (PostgreSQL's `BM_MAX_USAGE_COUNT`).
const MOST_USES: u8 = 5;

#[derive(Clone, Copy, Debug)]
struct Frame {
    page: u64,
    uses: u8,
    dirty: bool,
}

/// Pages of a file in memory.
#[derive(Debug)]
pub(super) struct Pool {
    memory: Heap,
    fd: u32,
    page: u64,
    most: usize,
    frames: Vec<Frame>,
    at: BTreeMap<u64, usize>,
    hand: usize,
    asked: u64,
    read: u64,
}

impl Pool {
    /// In `memory`, of pages of `page` bytes of a file.
    pub(super) fn new(memory: Heap, fd: u32, page: u64) -> Pool {
        let most = (memory.len / page) as usize;
        assert!(most >= 4, "a pool of {most} pages is none");
        let (frames, at) = Default::default();
        Pool { memory, fd, page, most, frames, at, hand: 0, asked: 0, read: 0 }
    }

    /// Touch `len` bytes of a page of the file, which is brought in if it is not there; a store makes it dirty.
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

    /// Write what is dirty to the file, in its order, and wait until it is on the disk.
    pub(super) fn checkpoint<O: Os>(&mut self, os: &mut O) -> Result<(), Signal> {
        let dirty: Vec<usize> = self.at.values().copied().filter(|&frame| self.frames[frame].dirty).collect();
        dirty.into_iter().try_for_each(|frame| self.clean(os, frame))?;
        must(os.fsync(self.fd))
    }

    /// Is it full, and does what was asked of it explain what it has read?
    pub(super) fn assert_used(&self) {
        assert_eq!(self.frames.len(), self.most, "a pool that is smaller than its file is full");
        assert!(self.read >= self.most as u64 && self.read <= self.asked, "{} of {}", self.read, self.asked);
    }

    fn find<O: Os>(&mut self, os: &mut O, page: u64) -> Result<usize, Signal> {
        self.asked += 1;
        if let Some(&frame) = self.at.get(&page) {
            self.frames[frame].uses = (self.frames[frame].uses + 1).min(MOST_USES);
            return Ok(frame);
        }
        let frame = self.room(os)?;
        self.read += 1;
        read(os, self.fd, page * self.page, self.page)?;
        touch(os, self.memory.start + frame as u64 * self.page, self.page, AccessKind::Store)?;
        self.frames[frame] = Frame { page, uses: 1, dirty: false };
        self.at.insert(page, frame);
        Ok(frame)
    }

    /// A frame that holds nothing: a new one, or that which the hand finds not used since it came by so often.
    fn room<O: Os>(&mut self, os: &mut O) -> Result<usize, Signal> {
        if self.frames.len() < self.most {
            self.frames.push(Frame { page: 0, uses: 0, dirty: false });
            return Ok(self.frames.len() - 1);
        }
        loop {
            let frame = self.hand;
            self.hand = (frame + 1) % self.most;
            match self.frames[frame].uses {
                0 => {
                    self.clean(os, frame)?;
                    self.at.remove(&self.frames[frame].page);
                    return Ok(frame);
                }
                uses => self.frames[frame].uses = uses - 1,
            }
        }
    }

    /// Write a frame if it is dirty.
    fn clean<O: Os>(&mut self, os: &mut O, frame: usize) -> Result<(), Signal> {
        let Frame { page, dirty, .. } = self.frames[frame];
        if dirty {
            touch(os, self.memory.start + frame as u64 * self.page, self.page, AccessKind::Load)?;
            write(os, self.fd, page * self.page, self.page)?;
            self.frames[frame].dirty = false;
        }
        Ok(())
    }
}
