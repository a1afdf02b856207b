//! Compressed memory: objects of up to a page, packed into frames of the machine.
//!
//! An object is in a *zspage*: up to 8 single frames that are filled as if they were one after the other, so an object
//! may end in another frame than it begins. All objects of a zspage have one size ([`class`]). Zspages of a class are
//! on lists by how full they are; an object comes from the fullest that has room, and a zspage that becomes empty is
//! freed. What is left over where objects were freed is regained by [`ZsPool::compact`], which moves objects of the
//! emptiest zspages to the fullest. So an object has a handle, which stays, and a place, which does not.
//!
//! Objects come when pages are swapped out, and so in reclaim: their frames may come from all reserves.
//!
//! In Linux each class has a lock, and its frames can be moved by compaction of memory; here a pool has one lock, and
//! its frames stay where they are until the pool gives them back.
//!
//! Source: mm/zsmalloc.c of Linux 6.12.

mod class;
mod zspage;

use crate::alloc::{AllocRequest, Allocator, Reserve, Watermark};
use crate::frame::Mobility;
use crate::lock::Lock;
use crate::machine::{Machine, ObjectPlace, Work, ZoneKind};
use crate::mmu::Mmu;
use crate::primitive::{AtomicU64, Ordering::Relaxed};
use crate::slab::{Record, Slabs};
use crate::stat::Stat;
use crate::units::*;
pub use class::HUGE_SIZE;
use class::{MAX_FRAMES, ZsClasses};
use smallvec::SmallVec;
use std_alloc::format;
use std_alloc::string::String;
use zspage::{ZspageFrames, Zspages};

/// An object of a pool, wherever it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ZsHandle(u32);

/// What a pool takes frames and records from.
pub(crate) struct ZsMemory<'a, M> {
    pub(crate) mmu: &'a Mmu<M>,
    pub(crate) alloc: &'a Allocator,
    pub(crate) slabs: &'a Slabs,
}

impl<M: Machine> ZsMemory<'_, M> {
    /// The number of records of a kind has changed.
    pub(crate) fn note_records(&self, record: Record, by: i64) {
        self.slabs.change(self.mmu, self.alloc, record, by);
    }

    /// A frame for a zspage, from the reserves if nothing else is left.
    fn take_frame(&self) -> Option<Pfn> {
        let request = AllocRequest {
            highest: ZoneKind::Movable,
            ..AllocRequest::of_kernel(Mobility::Movable, Order::ZERO, self.mmu.node())
        };
        let last = AllocRequest { reserve: Reserve::All, ..request };
        let taken = self.alloc.take(self.mmu, &request, Watermark::Low);
        let taken = taken.or_else(|_| self.alloc.take(self.mmu, &last, Watermark::Min)).ok()?;
        self.mmu.count(Stat::NrZspages, 1);
        Some(taken.into_pfn())
    }

    fn free_frames(&self, frames: &[Pfn]) {
        for &pfn in frames {
            assert!(self.mmu.frames[pfn].put(1), "{pfn} of a zspage has one reference");
        }
        self.mmu.count(Stat::NrZspages, -(frames.len() as i64));
        self.alloc.free(self.mmu, frames);
    }
}

/// A pool of compressed memory.
pub(crate) struct ZsPool {
    classes: ZsClasses,
    zspages: Lock<Zspages>,
    /// Frames of all zspages.
    frames: AtomicU64,
    /// The most that these were.
    most: AtomicU64,
    /// Frames that compaction has freed.
    compacted: AtomicU64,
    /// What reclaim has put off of its work on the pool.
    deferred: AtomicU64,
}

impl ZsPool {
    pub(crate) fn new() -> ZsPool {
        let classes = ZsClasses::new();
        let zspages = Lock::new(Zspages::new(classes.classes.len()));
        let [frames, most, compacted, deferred] = [0; 4].map(AtomicU64::new);
        ZsPool { classes, zspages, frames, most, compacted, deferred }
    }

    /// Frames of the pool.
    pub(crate) fn total_pages(&self) -> u64 {
        self.frames.load(Relaxed)
    }

    /// The most frames that it had.
    pub(crate) fn most_pages(&self) -> u64 {
        self.most.load(Relaxed)
    }

    /// Frames that compaction has freed so far.
    pub(crate) fn pages_compacted(&self) -> u64 {
        self.compacted.load(Relaxed)
    }

    /// What reclaim has put off; from now on nothing.
    pub(crate) fn take_deferred(&self) -> u64 {
        self.deferred.swap(0, Relaxed)
    }

    /// Reclaim puts something off.
    pub(crate) fn defer(&self, more: u64) {
        self.deferred.fetch_add(more, Relaxed);
    }

    /// The class of objects of `bytes`; a smaller one takes less memory.
    pub(crate) fn class_of(&self, bytes: u32) -> usize {
        self.classes.of(bytes)
    }

    /// Allocate an object of 1 to [`PAGE_SIZE`] bytes. `None`: there is no memory at all.
    pub(crate) fn alloc<M: Machine>(&self, memory: &ZsMemory<'_, M>, bytes: u32) -> Option<ZsHandle> {
        assert!((1..=PAGE_SIZE as u32).contains(&bytes), "an object of {bytes} bytes");
        memory.mmu.charge(Work::ZsObject, 1);
        let class = self.classes.of(bytes);
        if let Some(handle) = self.zspages.lock().alloc(&self.classes.classes[class], class, bytes) {
            memory.note_records(Record::ZsHandle, 1);
            return Some(ZsHandle(handle));
        }
        // No lock is held: to use a frame again may send interrupts.
        let frames = self.take_frames(memory, self.classes.classes[class].frames)?;
        let before = self.frames.fetch_add(frames.len() as u64, Relaxed);
        self.most.fetch_max(before + frames.len() as u64, Relaxed);
        let handle = self.zspages.lock().add(&self.classes.classes[class], class, frames, bytes);
        memory.note_records(Record::Zspage, 1);
        memory.note_records(Record::ZsHandle, 1);
        Some(ZsHandle(handle))
    }

    fn take_frames<M: Machine>(&self, memory: &ZsMemory<'_, M>, count: u32) -> Option<ZspageFrames> {
        let mut frames = ZspageFrames::new();
        for _ in 0..count {
            let Some(frame) = memory.take_frame() else {
                memory.free_frames(&frames);
                return None;
            };
            frames.push(frame);
        }
        Some(frames)
    }

    /// Free an object.
    pub(crate) fn free<M: Machine>(&self, memory: &ZsMemory<'_, M>, handle: ZsHandle) {
        memory.mmu.charge(Work::ZsObject, 1);
        let mut zspages = self.zspages.lock();
        let emptied = zspages.free(&self.classes.classes, handle.0);
        drop(zspages);
        memory.note_records(Record::ZsHandle, -1);
        if let Some(frames) = emptied {
            self.give_back(memory, &frames);
        }
    }

    fn give_back<M: Machine>(&self, memory: &ZsMemory<'_, M>, frames: &ZspageFrames) {
        self.frames.fetch_sub(frames.len() as u64, Relaxed);
        memory.free_frames(frames);
        memory.note_records(Record::Zspage, -1);
    }

    /// Use the place of an object, which stays there meanwhile.
    pub(crate) fn with_place<T>(&self, handle: ZsHandle, then: impl FnOnce(ObjectPlace) -> T) -> T {
        let zspages = self.zspages.lock();
        then(zspages.place(&self.classes.classes, handle.0))
    }

    /// Frames that [`ZsPool::compact`] could free.
    pub(crate) fn compactable(&self) -> u64 {
        self.zspages.lock().compactable()
    }

    /// Move objects together, in each class, until no zspage can be freed any more. Returns the frames that are free.
    pub(crate) fn compact<M: Machine>(&self, memory: &ZsMemory<'_, M>) -> u64 {
        let mut freed: SmallVec<[ZspageFrames; MAX_FRAMES]> = SmallVec::new();
        let mut pages = 0;
        for (number, class) in self.classes.classes.iter().enumerate().rev() {
            let mut zspages = self.zspages.lock();
            let moved = zspages.compact(class, number, &mut freed, |from, to| {
                memory.mmu.machine.move_object(from, to);
                memory.mmu.charge(Work::ZsObject, 1);
            });
            drop(zspages);
            debug_assert!(moved || freed.is_empty());
            for frames in freed.drain(..) {
                pages += frames.len() as u64;
                self.give_back(memory, &frames);
            }
        }
        self.compacted.fetch_add(pages, Relaxed);
        pages
    }

    /// Check lists, counts and objects. Returns the first error.
    pub(crate) fn validate<M: Machine>(&self, mmu: &Mmu<M>) -> Result<(), String> {
        let zspages = self.zspages.lock();
        let frames = zspages.validate(&self.classes.classes)?;
        if frames.len() as u64 != self.total_pages() {
            return Err(format!("a pool counts {} frames of {}", self.total_pages(), frames.len()));
        }
        let used = |pfn: &&Pfn| {
            let frame = &mmu.frames[**pfn];
            frame.refs() != 1 || frame.mapcount() != 0 || !frame.flags().is_empty()
        };
        match frames.iter().find(used) {
            Some(pfn) => Err(format!("frame {pfn} of a zspage has {:?}", mmu.frames[*pfn].flags())),
            None => Ok(()),
        }
    }

    /// Objects and zspages, for checks of records.
    pub(crate) fn records(&self) -> [u64; 2] {
        self.zspages.lock().records()
    }
}

#[cfg(test)]
pub(crate) mod tests;
