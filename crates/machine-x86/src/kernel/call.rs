//! System calls: what was decoded is carried out on the memory manager.

use super::convert::range;
use super::files::File;
use super::process::Open;
use super::{After, Host, Kernel, Task};
use crate::user::calls::{self, Buffer, Call, Tell};
use alloc::string::{String, ToString};
use alloc::vec;
use mm::Mm;
use mm::api::{self, Backing, MapRequest};
use mm::knobs::Knob;
use mm::units::{GroupId, NodeId, PAGE_SIZE, PageIndex, Pfn, SpaceId, Vpn};
use program::{Errno, Map, MapSource, Remap};

/// Longest name of a file, in bytes.
const LONGEST_NAME: u64 = 255;
/// Longest text that a task may tell, in bytes.
const LONGEST_TEXT: u64 = 4096;

impl<H: Host> Kernel<H> {
    /// Carry out the system call that `task` makes.
    pub fn call(&self, task: &Task, number: u64, args: [u64; 6]) -> After {
        let call = calls::decode(number, args, &self.host().user_arena());
        match call {
            Ok(Call::Exit(exit)) => {
                self.exit(task, &exit);
                return After::Ended;
            }
            Ok(Call::Tell(Tell::Panic, text)) if !self.is_dying(task) => {
                return After::Panicked(self.text(text, LONGEST_TEXT));
            }
            // Programs may find it strange that calls fail; a process that is to end may do so in this way, too.
            Ok(Call::Tell(Tell::Panic, _)) => {
                let signal = Some(program::Signal::Kill);
                self.exit(task, &calls::Exit { signal, accesses: 0, progress: 0, checked: 0, violations: 0 });
                return After::Ended;
            }
            _ => {}
        }
        let answer = call.and_then(|call| self.answer(task, &call));
        After::Return(calls::encode_answer(answer))
    }

    fn answer(&self, task: &Task, call: &Call) -> Result<u64, Errno> {
        match *call {
            Call::Join(other) => self.join(task, other),
            Call::Sleep(nanos) => self.sleep(task, nanos),
            Call::Barrier { id, tasks } => self.barrier(task, id, tasks),
            Call::Now => return Ok(self.host().now()),
            Call::Yield => {
                self.host().give_way();
                return Ok(self.is_dying(task) as u64);
            }
            Call::Tell(what, text) => self.host().tell(what, &self.text(text, LONGEST_TEXT)),
            Call::Spawn(role) => {
                return self.start_task(task.process(), role).map(|task| task.number() as u64);
            }
            Call::Open { .. }
            | Call::Close { .. }
            | Call::Pread { .. }
            | Call::Pwrite { .. }
            | Call::Ftruncate { .. }
            | Call::Fsync { .. }
            | Call::Fadvise { .. } => {
                let result = self.file_call(task, call);
                self.is_dying(task);
                return result;
            }
            _ => {
                let result = self.memory_call(task, call);
                self.is_dying(task);
                return result;
            }
        }
        Ok(0)
    }

    // --- memory ---

    /// Run a call on the task's space, if its process is to live.
    fn on_space<T>(
        &self,
        task: &Task,
        call: impl FnOnce(&Mm<H>, SpaceId) -> Result<T, api::Error>,
    ) -> Result<T, Errno> {
        match task.process().is_dead() {
            true => Err(Errno::NoMem),
            false => call(&self.mm, task.space()).map_err(Errno::from),
        }
    }

    fn memory_call(&self, task: &Task, call: &Call) -> Result<u64, Errno> {
        match *call {
            Call::Mmap(map) => return self.mmap(task, &map),
            Call::Mremap(remap) => return self.mremap(task, &remap),
            Call::Fork(role) => return self.fork(task, role),
            Call::Munmap { addr, len } => {
                let (start, pages) = range(addr, len)?;
                self.on_space(task, |mm, space| mm.munmap(space, start, pages))?;
            }
            Call::Mprotect { addr, len, prot } => {
                let (start, pages) = range(addr, len)?;
                self.on_space(task, |mm, space| mm.mprotect(space, start, pages, prot))?;
            }
            Call::Madvise { addr, len, advice } => {
                let (start, pages) = range(addr, len)?;
                self.on_space(task, |mm, space| mm.madvise(space, start, pages, advice))?;
            }
            Call::Mlock { addr, len, lock } => {
                let (start, pages) = range(addr, len)?;
                self.on_space(task, |mm, space| mm.mlock(space, start, pages, lock))?;
            }
            Call::MovePages { addr, len, node } => {
                let (start, pages) = range(addr, len)?;
                let node = node.map(NodeId::try_from).transpose()?;
                let moved = self.on_space(task, |mm, space| mm.move_pages(space, start, pages, node))?;
                return Ok(moved.failed);
            }
            Call::MigratePages { from, to } => {
                return self.on_space(task, |mm, space| mm.migrate_pages(space, from, to));
            }
            Call::Mbind { addr, len, policy, moving } => {
                let ((start, pages), policy) = (range(addr, len)?, policy.try_into()?);
                return self.on_space(task, |mm, space| mm.mbind(space, start, pages, policy, moving));
            }
            Call::SetMempolicy(policy) => {
                let policy = policy.try_into()?;
                self.on_space(task, |mm, space| mm.set_mempolicy(space, policy))?;
            }
            Call::Msync { addr, len } => {
                let (start, pages) = range(addr, len)?;
                self.on_space(task, |mm, space| mm.msync(space, start, pages))?;
            }
            Call::GroupCreate { parent, limits } => {
                let (parent, limits) = (GroupId::try_from(parent)?, limits.into());
                return self
                    .on_space(task, |mm, _| mm.create_group(parent, limits))
                    .map(|group| group.0.into());
            }
            Call::GroupLimit { group, limits } => {
                let (group, limits) = (GroupId::try_from(group)?, limits.into());
                self.on_space(task, |mm, _| mm.set_group_limits(group, limits))?;
            }
            Call::GroupEnter(group) => {
                let group = GroupId::try_from(group)?;
                self.on_space(task, |mm, space| mm.move_space(space, group))?;
            }
            Call::GroupRemove(group) => {
                let group = GroupId::try_from(group)?;
                self.on_space(task, |mm, _| mm.remove_group(group))?;
            }
            Call::SetKnob { name, value } => {
                let knob = Knob::from_name(&self.text(name, LONGEST_NAME)).ok_or(Errno::NoEnt)?;
                self.on_space(task, |mm, _| mm.set_knob(knob, value))?;
            }
            Call::GroupKnob { group, name, value } => {
                let group = GroupId::try_from(group)?;
                let knob = Knob::from_name(&self.text(name, LONGEST_NAME)).ok_or(Errno::NoEnt)?;
                self.on_space(task, |mm, _| mm.set_group_knob(group, knob, value))?;
            }
            Call::NeverDefer(never) => self.on_space(task, |mm, space| {
                mm.set_never_deferred(space, never);
                Ok(())
            })?,
            _ => return Err(Errno::NoSys),
        }
        Ok(0)
    }

    fn mmap(&self, task: &Task, map: &Map) -> Result<u64, Errno> {
        let (start, pages) = range(map.addr.unwrap_or(0), map.len)?;
        let backing = match map.source {
            MapSource::Anonymous => Backing::Anonymous,
            MapSource::AnonymousShared => Backing::AnonymousShared,
            MapSource::File { offset, .. } if !offset.is_multiple_of(PAGE_SIZE) => return Err(Errno::Inval),
            MapSource::File { fd, offset, shared } => {
                let (file, Open { writable, .. }) = self.file(task, fd)?;
                Backing::File { file: file.id, offset: PageIndex(offset / PAGE_SIZE), shared, writable }
            }
        };
        let request = MapRequest {
            at: map.addr.map(|_| start),
            pages,
            prot: map.prot,
            backing,
            locked: map.locked,
            populate: map.populate,
        };
        self.on_space(task, |mm, space| mm.mmap(space, &request)).map(Vpn::addr)
    }

    fn mremap(&self, task: &Task, remap: &Remap) -> Result<u64, Errno> {
        let (start, old) = range(remap.addr, remap.old_len)?;
        let new = range(0, remap.new_len)?.1;
        let fixed = remap.fixed.map(|to| range(to, remap.new_len)).transpose()?.map(|(to, _)| to);
        let moved = self.on_space(task, |mm, space| mm.mremap(space, start, old, new, remap.may_move, fixed));
        moved.map(Vpn::addr)
    }

    fn fork(&self, task: &Task, role: program::Role) -> Result<u64, Errno> {
        let child = self.on_space(task, |mm, space| mm.fork(space))?;
        let started = self.start_process(child, task.process().descriptors(), role)?;
        Ok(calls::pair(started.number(), started.process().number()))
    }

    // --- files ---

    fn file(&self, task: &Task, fd: u32) -> Result<(File, Open), Errno> {
        let open = task.process().file(fd)?;
        Ok((self.files.lock().get(open.file), open))
    }

    fn file_call(&self, task: &Task, call: &Call) -> Result<u64, Errno> {
        match *call {
            Call::Open { name, size, in_memory, writable } => {
                return self.open(task, name, size, in_memory, writable);
            }
            Call::Close { fd } => task.process().close(fd)?,
            Call::Pread { fd, offset, buffer } => return self.pread(task, fd, offset, buffer),
            Call::Pwrite { fd, offset, buffer } => return self.pwrite(task, fd, offset, buffer),
            Call::Fsync { fd } => {
                let id = self.file(task, fd)?.0.id;
                self.on_space(task, |mm, _| mm.fsync(id))?;
            }
            Call::Ftruncate { fd, size } => {
                let (file, open) = self.file(task, fd)?;
                if !open.writable {
                    return Err(Errno::Inval);
                }
                if size > file.capacity {
                    return Err(Errno::NoSpc);
                }
                self.on_space(task, |mm, _| mm.ftruncate(file.id, size))?;
            }
            Call::Fadvise { fd, offset, len, advice } => {
                let id = self.file(task, fd)?.0.id;
                self.on_space(task, |mm, _| mm.fadvise(id, offset, len, advice))?;
            }
            _ => return Err(Errno::NoSys),
        }
        Ok(0)
    }

    fn open(
        &self,
        task: &Task,
        name: Buffer,
        size: u64,
        in_memory: bool,
        writable: bool,
    ) -> Result<u64, Errno> {
        if name.len > LONGEST_NAME {
            return Err(Errno::Inval);
        }
        let name = self.text(name, LONGEST_NAME);
        // Held while the file is made, so that a name never stands for two; making one waits for nothing.
        let file = self.files.lock().find(&name, size, in_memory, |kind| self.mm.create_file(kind, size))?;
        Ok(calls::pair(task.process().open(Open { file, writable }), file))
    }

    fn pread(&self, task: &Task, fd: u32, offset: u64, buffer: Buffer) -> Result<u64, Errno> {
        let (file, _) = self.file(task, fd)?;
        // Pages come in order. Where one stands its frame does not tell: it may just have been cut off its file.
        let mut to = buffer.addr;
        let mut sink = |pfn: Pfn, at: u32, bytes: u32| {
            self.host().copy_to_user(to, pfn, at, bytes);
            to += u64::from(bytes);
        };
        self.mm
            .read(file.id, offset, buffer.len, self.mm.group_of(task.space()), &mut sink)
            .map_err(Errno::from)
    }

    fn pwrite(&self, task: &Task, fd: u32, offset: u64, buffer: Buffer) -> Result<u64, Errno> {
        let (file, open) = self.file(task, fd)?;
        if !open.writable {
            return Err(Errno::BadF);
        }
        let end = offset.checked_add(buffer.len).ok_or(Errno::Inval)?;
        if end > file.capacity {
            return Err(Errno::NoSpc);
        }
        let mut from = buffer.addr;
        let mut source = |pfn: Pfn, at: u32, bytes: u32| {
            self.host().copy_from_user(pfn, at, from, bytes);
            from += u64::from(bytes);
        };
        self.mm
            .write(file.id, offset, buffer.len, self.mm.group_of(task.space()), &mut source)
            .map_err(Errno::from)
    }

    /// Text of ring 3, as far as it is text.
    fn text(&self, text: Buffer, longest: u64) -> String {
        let mut bytes = vec![0; text.len.min(longest) as usize];
        self.host().read_user(text.addr, &mut bytes);
        String::from_utf8_lossy(&bytes).to_string()
    }
}
