//! The meaning of system calls: an arm for each call, and a function where the arm would be long.

use crate::process::Open;
use crate::range::range;
use crate::{File, Host, Kernel, Task};
use abi::{Call, Errno, Group, Map, MapSource, Remap, Role, Text};
use alloc::borrow::{Cow, ToOwned};
use alloc::string::String;
use alloc::vec;
use mm::Mm;
use mm::api::{self, Backing, MapRequest};
use mm::knobs::Knob;
use mm::machine::Work;
use mm::units::{FileId, GroupId, NodeId, PAGE_SIZE, PageIndex, Pfn, SpaceId, Vpn};

/// Longest name of a file or a knob in bytes: Linux's PATH_MAX without the terminating zero.
const LONGEST_NAME: u64 = 4095;

/// Copies a part of a page for a read or a write: the frame, the first byte in it, and the number of bytes.
pub type Copier<'a> = dyn FnMut(Pfn, u32, u32) + 'a;

/// The result of a call, as one number.
trait Value {
    fn value(self) -> u64;
}

macro_rules! values {
    ($($type:ty: $value:expr,)*) => {
        $(impl Value for $type {
            fn value(self) -> u64 {
                let value: fn($type) -> u64 = $value;
                value(self)
            }
        })*
    };
}

values! {
    (): |()| 0,
    u64: |value| value,
    Vpn: Vpn::addr,
    GroupId: |group| group.0.into(),
    mm::mm::Moved: |moved| moved.failed,
}

impl<H: Host> Kernel<H> {
    /// Carry out a call. Calls that only a machine can answer (transfers without an address, the end of a task,
    /// reports) return [`Errno::NoSys`] here. Every call has its arm, so a new call does not compile without one.
    pub fn call(&self, task: &Task, call: Call<'_>) -> Result<u64, Errno> {
        let _in_call = task.enter_call();
        match call {
            Call::Mmap(map) => self.mmap(task, &map),
            Call::Munmap(addr, len) => self.on_range(task, (addr, len), Mm::munmap),
            Call::Mprotect(addr, len, prot) => self.on_range(task, (addr, len), |mm, space, start, pages| {
                mm.mprotect(space, start, pages, prot)
            }),
            Call::Mremap(remap) => self.mremap(task, &remap),
            Call::Madvise(addr, len, advice) => {
                self.on_range(task, (addr, len), |mm, space, start, pages| {
                    mm.madvise(space, start, pages, advice)
                })
            }
            Call::NeverDefer(never) => self.on_space(task, |mm, space| {
                mm.set_never_deferred(space, never);
                Ok(())
            }),
            Call::Mlock(addr, len) => self
                .on_range(task, (addr, len), |mm, space, start, pages| mm.mlock(space, start, pages, true)),
            Call::Munlock(addr, len) => self
                .on_range(task, (addr, len), |mm, space, start, pages| mm.mlock(space, start, pages, false)),
            Call::Msync(addr, len) => self.on_range(task, (addr, len), Mm::msync),
            Call::MovePages(addr, len, node) => {
                let node = node.map(NodeId::try_from).transpose()?;
                let call = |mm: &Mm<H>, space, start, pages| mm.move_pages(space, start, pages, node);
                self.on_range(task, (addr, len), call)
            }
            Call::MigratePages(from, to) => {
                self.on_space(task, |mm, space| mm.migrate_pages(space, from, to))
            }
            Call::Mbind(addr, len, policy, moving) => {
                let ((start, pages), policy) = (range(addr, len)?, policy.try_into()?);
                self.on_space(task, |mm, space| mm.mbind(space, start, pages, policy, moving))
            }
            Call::SetMempolicy(policy) => {
                let policy = policy.try_into()?;
                self.on_space(task, |mm, space| mm.set_mempolicy(space, policy))
            }
            Call::Open(name, size, in_memory, writable) => self.open(task, name, size, in_memory, writable),
            Call::Close(fd) => self.alive(task).and_then(|()| task.process().close(fd)).map(Value::value),
            Call::Fsync(fd) => self.on_file(task, fd, Mm::fsync),
            Call::Ftruncate(fd, size) => self.ftruncate(task, fd, size),
            Call::Fadvise(fd, offset, len, advice) => {
                self.on_file(task, fd, |mm, file| mm.fadvise(file, offset, len, advice))
            }
            Call::GroupCreate(parent, limits) => {
                self.on_group(task, parent, |mm, _, parent| mm.create_group(parent, limits.into()))
            }
            Call::GroupLimit(group, limits) => {
                self.on_group(task, group, |mm, _, group| mm.set_group_limits(group, limits.into()))
            }
            Call::GroupEnter(group) => {
                self.on_group(task, group, |mm, space, group| mm.move_space(space, group))
            }
            Call::GroupRemove(group) => self.on_group(task, group, |mm, _, group| mm.remove_group(group)),
            Call::SetKnob(name, value) => {
                let knob = self.knob(name)?;
                self.on_space(task, |mm, _| mm.set_knob(knob, value))
            }
            Call::GroupKnob(group, name, value) => {
                let (group, knob) = (GroupId::try_from(group)?, self.knob(name)?);
                self.on_space(task, |mm, _| mm.set_group_knob(group, knob, value))
            }
            Call::Spawn(role) => self.spawn(task, role),
            Call::Fork(role) => self.fork(task, role),
            Call::Join(other) => self.join(task, other),
            Call::Sleep(nanos) => self.sleep(task, nanos),
            Call::Barrier(id, tasks) => self.barrier(task, id, tasks),
            Call::Now() => Ok(self.host().now()),
            Call::Yield() => self.give_way(task),
            Call::Pread(..) | Call::Pwrite(..) | Call::Tell(..) | Call::Exit(_) => Err(Errno::NoSys),
        }
    }

    fn spawn(&self, task: &Task, role: Role) -> Result<u64, Errno> {
        self.charge();
        self.start_task(task.process(), role).map(|task| task.number().into())
    }

    fn fork(&self, task: &Task, role: Role) -> Result<u64, Errno> {
        let child = self.fork_memory(task)?;
        self.start_forked(task, child, role)
    }

    fn give_way(&self, task: &Task) -> Result<u64, Errno> {
        self.host().give_way();
        Ok(self.is_dying(task).into())
    }

    fn charge(&self) {
        self.host().charge(Work::Syscall, 1);
    }

    /// A process that is to end makes no more calls.
    fn alive(&self, task: &Task) -> Result<(), Errno> {
        if task.process().is_dead() {
            return Err(Errno::NoMem);
        }
        self.charge();
        Ok(())
    }

    /// Run a call on the task's space, unless its process is to end.
    fn on_space<T: Value>(
        &self,
        task: &Task,
        call: impl FnOnce(&Mm<H>, SpaceId) -> Result<T, api::Error>,
    ) -> Result<u64, Errno> {
        self.alive(task)?;
        let result = call(&self.mm, task.space());
        if matches!(result, Err(api::Error::Killed)) {
            self.killed(task);
        }
        Ok(result?.value())
    }

    /// Run a call on a range of the task's space, given in bytes.
    fn on_range<T: Value>(
        &self,
        task: &Task,
        (addr, len): (u64, u64),
        call: impl FnOnce(&Mm<H>, SpaceId, Vpn, u64) -> Result<T, api::Error>,
    ) -> Result<u64, Errno> {
        let (start, pages) = range(addr, len)?;
        self.on_space(task, |mm, space| call(mm, space, start, pages))
    }

    /// Run a call on the file of a descriptor.
    fn on_file<T: Value>(
        &self,
        task: &Task,
        fd: u32,
        call: impl FnOnce(&Mm<H>, FileId) -> Result<T, api::Error>,
    ) -> Result<u64, Errno> {
        let id = self.file(task, fd)?.0.id;
        self.on_space(task, |mm, _| call(mm, id))
    }

    /// Run a call on a control group.
    fn on_group<T: Value>(
        &self,
        task: &Task,
        group: Group,
        call: impl FnOnce(&Mm<H>, SpaceId, GroupId) -> Result<T, api::Error>,
    ) -> Result<u64, Errno> {
        let group = GroupId::try_from(group)?;
        self.on_space(task, |mm, space| call(mm, space, group))
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
        let Map { prot, locked, populate, .. } = *map;
        let request = MapRequest { at: map.addr.map(|_| start), pages, prot, backing, locked, populate };
        self.on_space(task, |mm, space| mm.mmap(space, &request))
    }

    fn mremap(&self, task: &Task, remap: &Remap) -> Result<u64, Errno> {
        let (start, old) = range(remap.addr, remap.old_len)?;
        let new = range(0, remap.new_len)?.1;
        let fixed = remap.fixed.map(|to| range(to, remap.new_len)).transpose()?.map(|(to, _)| to);
        self.on_space(task, |mm, space| mm.mremap(space, start, old, new, remap.may_move, fixed))
    }

    /// First half of a fork: copy the memory. No task runs in the copy yet.
    pub fn fork_space(&self, task: &Task) -> Result<SpaceId, Errno> {
        let _in_call = task.enter_call();
        self.fork_memory(task)
    }

    /// Second half: start a process with that memory and the parent's descriptors. Returns the value of the call.
    pub fn start_child(&self, task: &Task, child: SpaceId, role: Role) -> Result<u64, Errno> {
        let _in_call = task.enter_call();
        self.start_forked(task, child, role)
    }

    fn fork_memory(&self, task: &Task) -> Result<SpaceId, Errno> {
        self.alive(task)?;
        let child = self.mm.fork(task.space());
        if matches!(child, Err(api::Error::Killed)) {
            self.killed(task);
        }
        Ok(child?)
    }

    fn start_forked(&self, task: &Task, child: SpaceId, role: Role) -> Result<u64, Errno> {
        let parent = task.process().number();
        assert!(child != task.space(), "a child of process {parent} must have a space of its own");
        let started = self.start_process(child, task.process().descriptors(), role)?;
        Ok(abi::call::pair(started.number(), started.process().number()))
    }

    // --- files ---

    /// The file of a descriptor.
    pub fn file(&self, task: &Task, fd: u32) -> Result<(File, Open), Errno> {
        let open = task.process().file(fd)?;
        let file = self.files.lock().list().get(open.file as usize).copied();
        let process = task.process().number();
        let file = file.unwrap_or_else(|| panic!("descriptor {fd} of process {process} must name a file"));
        Ok((file, open))
    }

    /// Number of files. Files are numbered from 0.
    pub fn file_count(&self) -> u32 {
        self.files.lock().list().len() as u32
    }

    /// The number of the file that has this id in the memory manager.
    pub fn file_number(&self, id: FileId) -> Option<u32> {
        self.files.lock().list().iter().position(|file| file.id == id).map(|number| number as u32)
    }

    fn open(
        &self,
        task: &Task,
        name: Text<'_>,
        size: u64,
        in_memory: bool,
        writable: bool,
    ) -> Result<u64, Errno> {
        let name = self.name(name)?;
        self.charge();
        // Hold the lock while the file is created, so that a name has one file. Creating a file never waits.
        let file = self.files.lock().find(&name, size, in_memory, |kind| self.mm.create_file(kind, size))?;
        Ok(abi::call::pair(task.process().open(Open { file, writable }), file))
    }

    /// Read from a file. `copy` takes the bytes.
    pub fn read(
        &self,
        task: &Task,
        fd: u32,
        offset: u64,
        len: u64,
        copy: &mut Copier<'_>,
    ) -> Result<u64, Errno> {
        let _in_call = task.enter_call();
        let (file, _) = self.file(task, fd)?;
        self.charge();
        Ok(self.mm.read(file.id, offset, len, self.mm.group_of(task.space()), copy)?)
    }

    /// Write to a file. `copy` provides the bytes.
    pub fn write(
        &self,
        task: &Task,
        fd: u32,
        offset: u64,
        len: u64,
        copy: &mut Copier<'_>,
    ) -> Result<u64, Errno> {
        let _in_call = task.enter_call();
        let file = self.may_write(task, fd, offset, len)?;
        self.charge();
        Ok(self.mm.write(file.id, offset, len, self.mm.group_of(task.space()), copy)?)
    }

    /// The file of a write, if the write is allowed.
    pub fn may_write(&self, task: &Task, fd: u32, offset: u64, len: u64) -> Result<File, Errno> {
        let (file, open) = self.file(task, fd)?;
        if !open.writable {
            return Err(Errno::BadF);
        }
        let end = offset.checked_add(len).ok_or(Errno::Inval)?;
        if end > file.capacity { Err(Errno::NoSpc) } else { Ok(file) }
    }

    fn ftruncate(&self, task: &Task, fd: u32, size: u64) -> Result<u64, Errno> {
        let (file, open) = self.file(task, fd)?;
        if !open.writable {
            return Err(Errno::Inval);
        }
        if size > file.capacity {
            return Err(Errno::NoSpc);
        }
        self.on_space(task, |mm, _| mm.ftruncate(file.id, size))
    }

    // --- texts ---

    fn name<'t>(&self, text: Text<'t>) -> Result<Cow<'t, str>, Errno> {
        let bytes = match text {
            Text::Said(name) => name.len() as u64,
            Text::At(place) => place.len,
        };
        if bytes > LONGEST_NAME {
            return Err(Errno::Inval);
        }
        match text {
            Text::Said(name) => Ok(Cow::Borrowed(name)),
            Text::At(_) => self.text(text, LONGEST_NAME).map(Cow::Owned),
        }
    }

    fn knob(&self, name: Text<'_>) -> Result<Knob, Errno> {
        Knob::from_name(&self.name(name)?).ok_or(Errno::NoEnt)
    }

    /// Read a text argument. Invalid UTF-8 is replaced.
    pub(crate) fn text(&self, text: Text<'_>, longest: u64) -> Result<String, Errno> {
        match text {
            Text::Said(text) => Ok(text.to_owned()),
            Text::At(mut place) => {
                place.len = place.len.min(longest);
                let mut bytes = vec![0; place.len as usize];
                self.host().read_user(place, &mut bytes)?;
                Ok(String::from_utf8_lossy(&bytes).into_owned())
            }
        }
    }
}
