//! What reads, writes and cuts files: the memory manager does it, and the oracle is told in the order in which it was
//! done.

use super::SimOs;
use crate::optimum::How;
use crate::oracle::Moment;
use crate::sched::Key;
use crate::world::Open;
use mm::frame::Owner;
use mm::machine::{Machine, Work};
use mm::units::{PAGE_SIZE, Pfn, pages_of};
use program::{Errno, Program};

/// A read(2) or write(2) on its way.
pub(super) struct Copying {
    open: Open,
    /// Where what has been copied ends, in bytes.
    end: u64,
    /// Its first page, and the next.
    first: u64,
    next: u64,
    since: Moment,
}

impl<P: Program> SimOs<'_, P> {
    pub(super) fn write(&self, open: Open, offset: u64, len: u64) -> Result<u64, Errno> {
        let file = self.file_id(open);
        let mut copying = self.copying(open, offset);
        let mut source = |pfn: Pfn, at: u32, bytes: u32| self.copy(&mut copying, pfn, at + bytes, true);
        let planned = offset + len;
        self.oracle(|oracle| oracle.file_grows(open.file as u64, planned));
        self.enter();
        self.machine.charge(Work::Syscall, 1);
        let result = self
            .world
            .mm
            .write(file, offset, len, self.world.mm.group_of(self.space), &mut source)
            .map_err(Errno::from);
        self.leave();
        // What was copied and not accepted does not make the file longer.
        let end = copying.end.min(self.world.mm.file_size(file));
        self.oracle(|oracle| oracle.file_grew(open.file as u64, end, planned));
        result
    }

    pub(super) fn truncate(&mut self, open: Open, size: u64) -> Result<(), Errno> {
        let file = self.file_id(open);
        let blocks = self.world.kernel.borrow().files[open.file].blocks;
        let flux = self.in_flux(|oracle, since| oracle.begin_truncate(open.file as u64, size, since));
        let old = self.world.mm.file_size(file);
        let result = self.call(|mm, _| mm.ftruncate(file, size));
        let (from, gone) = (pages_of(size), pages_of(old).saturating_sub(pages_of(size)));
        if let (Ok(()), Some((first, _)), Some(content)) = (&result, blocks, &self.machine.content) {
            // The file system gives the blocks beyond the end back.
            let device = self.machine.spec().file_device() as u8;
            content.borrow_mut().discard(device, first + from, gone);
        }
        if result.is_ok() {
            self.not_needed(open, from, gone);
        }
        let done = result.is_ok();
        self.oracle(|oracle| flux.into_iter().for_each(|flux| oracle.end_truncate(flux, size, done)));
        result
    }

    /// The program does not need these pages of a file any more.
    pub(super) fn not_needed(&self, open: Open, first: u64, pages: u64) {
        let blocks = self.world.kernel.borrow().files[open.file].blocks;
        if let (Some((block, count)), Some(optimum)) = (blocks, &self.machine.optimum) {
            let device = self.machine.spec().file_device() as u8;
            optimum.borrow_mut().forget(device, block + first, pages.min(count.saturating_sub(first)));
        }
    }

    /// What read(2) or write(2) from `offset` on needs to know as it copies.
    pub(super) fn copying(&self, open: Open, offset: u64) -> Copying {
        let first = offset / PAGE_SIZE;
        Copying { open, end: 0, first, next: first, since: self.moment() }
    }

    /// Do what changes a file's size, of which the oracle then is told. Where CPUs are stopped in the middle of their
    /// work nobody else does so meanwhile: the memory manager has a lock for that, but only it knows who had it first.
    pub(super) fn with_file<T>(&mut self, open: Open, change: impl FnOnce(&mut Self) -> T) -> T {
        if self.machine.preempt.is_none() {
            return change(self);
        }
        let lock =
            |locked| std::mem::replace(&mut self.world.kernel.borrow_mut().files[open.file].locked, locked);
        while lock(true) {
            self.machine.sleep(Key::File(open.file), None);
        }
        let result = change(self);
        self.world.kernel.borrow_mut().files[open.file].locked = false;
        self.machine.wake_key(Key::File(open.file));
        result
    }

    /// Now, as the oracle counts.
    pub(super) fn moment(&self) -> Moment {
        self.oracle(|oracle| oracle.now()).unwrap_or_default()
    }

    /// Copy between a page of a file and the process, and ask or tell the oracle.
    pub(super) fn copy(&self, call: &mut Copying, pfn: Pfn, bytes: u32, write: bool) {
        self.machine.charge(Work::CopyUser, 1);
        if let Some(optimum) = &self.machine.optimum {
            optimum.borrow_mut().used(pfn, How::Called);
        }
        let Some(content) = &self.machine.content else { return };
        let Copying { open, first, next, since, .. } = *call;
        let frames = &self.world.mm.ground().frames;
        // What is read may be cut off its file meanwhile: it is then the next one.
        let owned = frames[frames.head(pfn)].owner() == Owner::File(self.file_id(open));
        let page = if owned || write { frames.index_of(pfn).0 } else { next };
        // A call that ran short of memory halfway begins again, never further on.
        if page > next || page < first {
            let text =
                format!("oracle: task {}: expected page {next} of file {}, got {page}", self.task, open.file);
            self.fail(text);
        }
        call.next = page + 1;
        call.end = call.end.max(page * PAGE_SIZE + bytes as u64);
        if write {
            let stamp = content.borrow_mut().fresh();
            content.borrow_mut().set(pfn, stamp);
            self.oracle(|oracle| oracle.file_write(open.file as u64, page, stamp));
        } else {
            let got = content.borrow().frame(pfn);
            if let Some(Err(text)) =
                self.oracle(|oracle| oracle.file_read(open.file as u64, page, got, since))
            {
                self.fail(format!("oracle: task {}, file {}: {text}, frame {pfn}", self.task, open.file));
            }
        }
    }
}
