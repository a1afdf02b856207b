//! What reads, writes and cuts files: the memory manager does it, and the oracle is told in the order in which it was
//! done.

use super::SimOs;
use crate::optimum::How;
use crate::oracle::Moment;
use crate::sched::Key;
use abi::Call;
use kernel::File;
use mm::api::FileKind;
use mm::frame::Owner;
use mm::machine::{Machine, Work};
use mm::units::{FileId, PAGE_SIZE, Pfn, pages_of};
use program::{Errno, Program};

/// A read(2) or write(2) on its way.
pub(super) struct Copying {
    id: FileId,
    file: u64,
    /// Where what has been copied ends, in bytes.
    end: u64,
    /// Its first page, and the next.
    first: u64,
    next: u64,
    since: Moment,
}

impl<P: Program> SimOs<'_, P> {
    pub(super) fn write(&self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        let mut copying = self.copying(fd, offset)?;
        let (id, file, planned) = (copying.id, copying.file, offset + len);
        let mut copy = |pfn: Pfn, at: u32, bytes: u32| self.copy(&mut copying, pfn, at + bytes, true);
        self.oracle(|oracle| oracle.file_grows(file, planned));
        self.enter();
        let result = self.world.kernel.write(&self.task, fd, offset, len, &mut copy);
        self.leave();
        // What was copied and not accepted does not make the file longer.
        let end = copying.end.min(self.world.mm().file_size(id));
        self.oracle(|oracle| oracle.file_grew(file, end, planned));
        result
    }

    pub(super) fn truncate(&self, fd: u32, size: u64) -> Result<u64, Errno> {
        let (file, open) = self.world.kernel.file(&self.task, fd)?;
        let flux = self.in_flux(|oracle, since| oracle.begin_truncate(open.file.into(), size, since));
        let old = self.world.mm().file_size(file.id);
        self.enter();
        let result = self.world.kernel.call(&self.task, Call::Ftruncate(fd, size));
        self.leave();
        let (from, gone) = (pages_of(size), pages_of(old).saturating_sub(pages_of(size)));
        if let (Ok(_), FileKind::Disk { device, block }, Some(content)) =
            (result, file.kind, &self.machine.content)
        {
            // The file system gives the blocks beyond the end back.
            content.borrow_mut().discard(device.0, block + from, gone);
        }
        if result.is_ok() {
            self.not_needed(file, from, gone);
        }
        self.oracle(|oracle| flux.map(|flux| oracle.end_truncate(flux, size, result.is_ok())));
        result
    }

    /// The program does not need these pages of a file any more.
    pub(super) fn not_needed(&self, file: File, first: u64, pages: u64) {
        if let (FileKind::Disk { device, block }, Some(optimum)) = (file.kind, &self.machine.optimum) {
            let count = pages_of(file.capacity).saturating_sub(first);
            optimum.borrow_mut().forget(device.0, block + first, pages.min(count));
        }
    }

    /// What read(2) or write(2) from `offset` on needs to know as it copies.
    pub(super) fn copying(&self, fd: u32, offset: u64) -> Result<Copying, Errno> {
        let (file, open) = self.world.kernel.file(&self.task, fd)?;
        let first = offset / PAGE_SIZE;
        Ok(Copying { id: file.id, file: open.file.into(), end: 0, first, next: first, since: self.moment() })
    }

    /// Do what changes a file's size, of which the oracle then is told. Where CPUs are stopped in the middle of their
    /// work nobody else does so meanwhile: the memory manager has a lock for that, but only it knows who had it first.
    pub(super) fn alone_with_file<T>(
        &mut self,
        fd: u32,
        change: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, Errno> {
        let file = self.task.process().file(fd)?.file;
        if self.machine.preempt.is_none() {
            return Ok(change(self));
        }
        while !self.world.tables.borrow_mut().changing.insert(file) {
            self.machine.sleep(Key::File(file), None);
        }
        let result = change(self);
        self.world.tables.borrow_mut().changing.remove(&file);
        self.machine.wake_key(Key::File(file));
        Ok(result)
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
        let Copying { id, file, first, next, since, .. } = *call;
        let frames = &self.world.mm().mmu().frames;
        // What is read may be cut off its file meanwhile: it is then the next one.
        let owned = frames[frames.head(pfn)].owner() == Owner::File(id);
        let page = if owned || write { frames.index_of(pfn).0 } else { next };
        // A call that ran short of memory halfway begins again, never further on.
        if page > next || page < first {
            let task = self.task.number();
            self.fail(format!("oracle: task {task}: expected page {next} of file {file}, got {page}"));
        }
        call.next = page + 1;
        call.end = call.end.max(page * PAGE_SIZE + bytes as u64);
        if write {
            let stamp = content.borrow_mut().fresh();
            content.borrow_mut().set(pfn, stamp);
            self.oracle(|oracle| oracle.file_write(file, page, stamp));
        } else {
            let got = content.borrow().frame(pfn);
            if let Some(Err(text)) = self.oracle(|oracle| oracle.file_read(file, page, got, since)) {
                let task = self.task.number();
                self.fail(format!("oracle: task {task}, file {file}: {text}, frame {pfn}"));
            }
        }
    }
}
