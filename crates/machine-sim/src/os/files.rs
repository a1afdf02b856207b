//! Calls that read, write and truncate files: the memory manager does the work, and the oracle is told in the order in
//! which it was done.

use super::SimOs;
use crate::optimum::How;
use crate::oracle::Moment;
use crate::profile::About;
use crate::sched::Key;
use abi::Call;
use kernel::File;
use mm::api::FileKind;
use mm::frame::Owner;
use mm::units::{FileId, PAGE_SIZE, Pfn, pages_of};
use program::{Errno, Program};

/// The state of a read(2) or write(2).
pub(super) struct Copying {
    id: FileId,
    file: u64,
    /// The end of what has been copied, in bytes.
    end: u64,
    /// Its first page, and the next page to copy.
    first: u64,
    next: u64,
    since: Moment,
}

impl Copying {
    pub(super) fn file_id(&self) -> FileId {
        self.id
    }
}

/// Set in the number of a file, so that no space has it.
const FILES: u32 = 1 << 31;

impl<P: Program> SimOs<'_, P> {
    pub(super) fn write(&self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        let mut copying = self.copying(fd, offset)?;
        let (id, file, planned) = (copying.id, copying.file, offset + len);
        let mut copy = |pfn: Pfn, at: u32, bytes: u32| self.copy(&mut copying, pfn, at + bytes, true);
        self.oracle(|oracle| oracle.begin_write(file, planned));
        self.enter();
        let result =
            self.about(|| About::File(id), || self.sim.kernel.write(&self.task, fd, offset, len, &mut copy));
        self.leave();
        // Bytes that were copied and not accepted do not make the file longer.
        let end = copying.end.min(self.sim.mm().file_size(id));
        self.oracle(|oracle| oracle.end_write(file, end, planned));
        result
    }

    pub(super) fn truncate(&self, fd: u32, size: u64) -> Result<u64, Errno> {
        let (file, open) = self.sim.kernel.file(&self.task, fd)?;
        let change = self.begin(|oracle, since| oracle.begin_truncate(open.file.into(), size, since));
        let old = self.sim.mm().file_size(file.id);
        self.enter();
        let result = self.sim.kernel.call(&self.task, Call::Ftruncate(fd, size));
        self.leave();
        let (from, gone) = (pages_of(size), pages_of(old).saturating_sub(pages_of(size)));
        if let (Ok(_), FileKind::Disk { device, block }, Some(content)) =
            (result, file.kind, &self.machine.observers.content)
        {
            // The file system frees the blocks beyond the end.
            content.borrow_mut().discard(device.0, block + from, gone);
        }
        if result.is_ok() {
            self.not_needed(file, from, gone);
        }
        self.oracle(|oracle| change.map(|change| oracle.end_truncate(change, size, result.is_ok())));
        result
    }

    /// Tell the observers that the program does not need these pages of a file any more.
    pub(super) fn not_needed(&self, file: File, first: u64, pages: u64) {
        if let FileKind::Disk { device, block } = file.kind {
            let count = pages_of(file.capacity).saturating_sub(first);
            self.machine.observers.forgot(device.0, block + first, pages.min(count));
        }
    }

    /// The state of a read(2) or write(2) that begins at `offset`.
    pub(super) fn copying(&self, fd: u32, offset: u64) -> Result<Copying, Errno> {
        let (file, open) = self.sim.kernel.file(&self.task, fd)?;
        let first = offset / PAGE_SIZE;
        Ok(Copying { id: file.id, file: open.file.into(), end: 0, first, next: first, since: self.moment() })
    }

    /// Do `change`, which changes a file's size and tells the oracle. Where CPUs may be stopped, no other task changes
    /// that size at the same time: the memory manager has a lock for that, but only it knows who took the lock first.
    pub(super) fn alone_with_file<T>(
        &mut self,
        fd: u32,
        change: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, Errno> {
        let file = self.task.process().file(fd)?.file;
        if self.machine.preempt.is_none() {
            return Ok(change(self));
        }
        while !self.sim.state.borrow_mut().changing.insert(file) {
            self.machine.sleep(Key::File(file), None);
        }
        let result = change(self);
        self.sim.state.borrow_mut().changing.remove(&file);
        self.machine.wake_key(Key::File(file));
        Ok(result)
    }

    /// The oracle's clock.
    pub(super) fn moment(&self) -> Moment {
        self.oracle(|oracle| oracle.now()).unwrap_or_default()
    }

    /// Copy between a page of a file and the process, and ask or tell the oracle.
    pub(super) fn copy(&self, call: &mut Copying, pfn: Pfn, bytes: u32, write: bool) {
        self.machine.observers.used(pfn, How::Syscall);
        if let (true, Some(packing)) = (write, &self.machine.observers.packing) {
            let page = self.sim.mm().mmu().frames.index_of(pfn);
            packing.borrow_mut().store((FILES | call.file as u32, page.0), pfn);
        }
        let Some(content) = &self.machine.observers.content else { return };
        let Copying { id, file, first, next, since, .. } = *call;
        let frames = &self.sim.mm().mmu().frames;
        // A page that is read may be truncated during the copy: it then was the next one.
        let owned = frames[frames.head(pfn)].owner() == Owner::File(id);
        let page = if owned || write { frames.index_of(pfn).0 } else { next };
        // A call that ran out of memory halfway starts again, never beyond the next page.
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
