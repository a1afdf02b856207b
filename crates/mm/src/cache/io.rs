//! Transfers between folios and devices, for files and swap.
//!
//! A read holds the folio's lock until it has ended, which keeps the folio in its cache. A write sets WRITEBACK and
//! needs the lock only to start: a folio under write-back is never taken out of its cache, so the cache's reference
//! stays. An interrupt reports the end of a transfer, so only short locks may be taken there.
//!
//! A read that fails leaves its folio unlocked and not up to date: the task that needs the page finds it so. A write to
//! swap that fails leaves its folio dirty, in memory. A write to a file that fails leaves the folio clean, as Linux
//! does: the file remembers the error for the next fsync(2), and the content is lost once the folio is reclaimed.

use super::Cache;
use super::request::BlockRequest;
use super::tree::TreeMark;
use crate::event::{Concern, Event};
use crate::frame::{Frame, FrameFlags, Owner};
use crate::machine::{Io, Machine, Scope, WaitKey, Work};
use crate::memory::Memory;
use crate::primitive::Ordering::Relaxed;
use crate::stat::Stat;
use crate::units::*;

pub(super) fn count_read<M: Machine>(memory: &Memory<M>, pages: u32) {
    memory.count(Stat::PgpgIn, pages as i64 * (PAGE_SIZE / 1024) as i64);
}

/// Fill a new folio that is on no device.
pub(super) fn fill_with_zeroes<M: Machine>(memory: &Memory<M>, pfn: Pfn) {
    let pages = memory.frames[pfn].pages();
    memory.zero(pfn, pages);
    memory.frames[pfn].set(FrameFlags::UPTODATE);
}

/// A folio could not be written to its slots: it must not be reclaimed.
pub(super) fn keep_in_memory(frame: &Frame) {
    frame.set(FrameFlags::DIRTY);
    frame.clear(FrameFlags::RECLAIM);
}

/// Read a locked folio from a device, as a part of `request` if it continues that.
pub(super) fn submit_read<M: Machine>(
    memory: &Memory<M>,
    pfn: Pfn,
    (device, block): (DeviceId, u64),
    request: &mut BlockRequest,
) {
    let pages = memory.frames[pfn].pages();
    count_read(memory, pages);
    submit(memory, Io { device, write: false, block, frame: pfn, pages, continues: false }, request);
}

/// Submit a transfer, as a part of `request` if it continues that.
pub(super) fn submit<M: Machine>(memory: &Memory<M>, mut io: Io, request: &mut BlockRequest) {
    io.continues = request.add(&io);
    if !io.continues {
        memory.charge(Work::IoSubmit, 1);
    }
    memory.machine.submit(io);
}

impl Cache {
    /// Start to write a locked folio that is up to date: a page of a file to its device, a page of the swap cache to
    /// its slot; a page of shmem moves to the swap cache first. The folio is no longer dirty then, has WRITEBACK set
    /// until it is written, and stays locked until the caller unlocks it. It is dirty again if zram could not take it.
    /// No page-table entry may be able to make it dirty unnoticed. A page of a file is part of `request` if it
    /// continues that.
    ///
    /// Returns `false` for a page of shmem if swap is full, and for a folio that only zswap may have and does not take;
    /// it is dirty then.
    pub(crate) fn write_page_start<M: Machine>(
        &self,
        memory: &Memory<M>,
        pfn: Pfn,
        request: &mut BlockRequest,
    ) -> bool {
        let frame = &memory.frames[pfn];
        assert!(
            frame.has(FrameFlags::LOCKED | FrameFlags::UPTODATE) && !frame.has(FrameFlags::WRITEBACK),
            "folio {pfn} must be locked, up to date and not under write-back to be written"
        );
        let pages = frame.pages();
        let (device, block) = match frame.owner() {
            Owner::File(id) if !frame.has_any(FrameFlags::SWAPCACHE | FrameFlags::SWAPBACKED) => {
                self.start_file_write(memory, id, pfn)
            }
            Owner::File(_) if !frame.has(FrameFlags::SWAPCACHE) && !self.move_to_swap(memory, pfn) => {
                return false;
            }
            _ => return self.start_swap_write(memory, pfn),
        };
        memory.count(Stat::NrWriteback, pages as i64);
        memory.count(Stat::PgpgOut, pages as i64 * (PAGE_SIZE / 1024) as i64);
        memory.event(Event::TlbHazard, Concern::Frames { first: pfn, count: pages }.args());
        submit(memory, Io { device, write: true, block, frame: pfn, pages, continues: false }, request);
        true
    }

    fn start_file_write<M: Machine>(&self, memory: &Memory<M>, id: FileId, pfn: Pfn) -> (DeviceId, u64) {
        let f = self.file(id);
        let frame = &memory.frames[pfn];
        let (index, pages) = (frame.page_index(), frame.pages());
        {
            let mut tree = f.tree.lock();
            if frame.test_and_clear(FrameFlags::DIRTY) {
                memory.count(Stat::NrDirty, -(pages as i64));
            }
            tree.clear_mark(index, TreeMark::Dirty);
            tree.clear_mark(index, TreeMark::ToWrite);
            tree.set_mark(index, TreeMark::Writeback);
            frame.set(FrameFlags::WRITEBACK);
        }
        f.note_written(index, pages as u64);
        f.place(index)
    }

    /// A transfer has ended. `done`: the device has not failed.
    pub(crate) fn end_io<M: Machine>(&self, memory: &Memory<M>, io: &Io, done: bool) {
        let _scope = memory.scope(Scope::BioEndio);
        if !io.continues {
            memory.charge(Work::IoComplete, 1);
        }
        memory.writes_frame(io.frame);
        let frame = &memory.frames[io.frame];
        if io.write && frame.has(FrameFlags::WRITEBACK) {
            if !done {
                self.note_failed_write(frame);
            }
            self.end_write(memory, io.frame);
        } else {
            if done {
                frame.set(FrameFlags::UPTODATE);
            } else if let Owner::File(id) = frame.owner() {
                self.file(id).note_read_error();
            }
            // A page for the device behind zram, too, is locked while it is written, and up to date if it is there.
            memory.unlock_folio(io.frame);
        }
    }

    /// A folio that is under write-back could not be written.
    fn note_failed_write(&self, frame: &Frame) {
        match frame.owner() {
            Owner::File(id) if !frame.has(FrameFlags::SWAPCACHE) => self.file(id).note_write_error(),
            _ => keep_in_memory(frame),
        }
    }

    pub(super) fn end_write<M: Machine>(&self, memory: &Memory<M>, pfn: Pfn) {
        let frame = &memory.frames[pfn];
        // As soon as WRITEBACK is clear, reclaim may free the folio.
        frame.get(1);
        if frame.test_and_clear(FrameFlags::RECLAIM) {
            memory.lru.rotate_reclaimable(memory, pfn);
        }
        memory.count(Stat::NrWriteback, -(frame.pages() as i64));
        memory.count(Stat::NrWritten, frame.pages() as i64);
        let before = match frame.owner() {
            Owner::File(id) if !frame.has(FrameFlags::SWAPCACHE) => {
                let mut tree = self.file(id).tree.lock();
                tree.clear_mark(frame.page_index(), TreeMark::Writeback);
                frame.clear(FrameFlags::WRITEBACK)
            }
            _ => {
                memory.swap.end_write(frame.pages());
                frame.clear(FrameFlags::WRITEBACK)
            }
        };
        if before.contains(FrameFlags::WAITERS) {
            memory.wake_folio(pfn);
        }
        if self.throttled.load(Relaxed) > 0 {
            memory.machine.wake(WaitKey::Writeback);
        }
        memory.put(pfn);
    }
}
