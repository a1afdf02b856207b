//! What system calls mean: an arm for each, and a function for those of which there is more to say than which of the
//! memory manager's it is.

use crate::process::Open;
use crate::range::range;
use crate::{File, Host, Kernel, Task};
use abi::{Call, Errno, Map, MapSource, Remap, Role, Text};
use alloc::borrow::{Cow, ToOwned};
use alloc::string::String;
use alloc::vec;
use mm::Mm;
use mm::api::{self, Backing, MapRequest};
use mm::knobs::Knob;
use mm::machine::Work;
use mm::units::{FileId, GroupId, NodeId, PAGE_SIZE, PageIndex, Pfn, SpaceId, Vpn};

/// Longest name of a file or a knob, in bytes: Linux's PATH_MAX without the zero.
const LONGEST_NAME: u64 = 4095;

/// Who copies a piece of a page, for a read or a write: the frame, the first byte in it, and how many.
pub type Copier<'a> = dyn FnMut(Pfn, u32, u32) + 'a;

/// What a call answers, as one number.
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
    /// Carry out a call. What only a machine can answer (reads and writes without their bytes, a task's end) is
    /// [`Errno::NoSys`] here.
    pub fn call(&self, task: &Task, call: Call<'_>) -> Result<u64, Errno> {
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
            Call::Mlock(addr, len, lock) => self
                .on_range(task, (addr, len), |mm, space, start, pages| mm.mlock(space, start, pages, lock)),
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
            Call::Fsync(fd) => {
                let id = self.file(task, fd)?.0.id;
                self.on_space(task, |mm, _| mm.fsync(id))
            }
            Call::Ftruncate(fd, size) => self.ftruncate(task, fd, size),
            Call::Fadvise(fd, offset, len, advice) => {
                let id = self.file(task, fd)?.0.id;
                self.on_space(task, |mm, _| mm.fadvise(id, offset, len, advice))
            }
            Call::GroupCreate(parent, limits) => {
                let (parent, limits) = (GroupId::try_from(parent)?, limits.into());
                self.on_space(task, |mm, _| mm.create_group(parent, limits))
            }
            Call::GroupLimit(group, limits) => {
                let (group, limits) = (GroupId::try_from(group)?, limits.into());
                self.on_space(task, |mm, _| mm.set_group_limits(group, limits))
            }
            Call::GroupEnter(group) => {
                let group = GroupId::try_from(group)?;
                self.on_space(task, |mm, space| mm.move_space(space, group))
            }
            Call::GroupRemove(group) => {
                let group = GroupId::try_from(group)?;
                self.on_space(task, |mm, _| mm.remove_group(group))
            }
            Call::SetKnob(name, value) => {
                let knob = self.knob(name)?;
                self.on_space(task, |mm, _| mm.set_knob(knob, value))
            }
            Call::GroupKnob(group, name, value) => {
                let (group, knob) = (GroupId::try_from(group)?, self.knob(name)?);
                self.on_space(task, |mm, _| mm.set_group_knob(group, knob, value))
            }
            _ => self.task_call(task, call),
        }
    }

    /// Calls about tasks and time.
    fn task_call(&self, task: &Task, call: Call<'_>) -> Result<u64, Errno> {
        match call {
            Call::Spawn(role) => {
                self.charge();
                return self.start_task(task.process(), role).map(|task| task.number().into());
            }
            Call::Fork(role) => {
                let child = self.fork_space(task)?;
                return self.start_child(task, child, role);
            }
            Call::Join(other) => self.join(task, other),
            Call::Sleep(nanos) => self.sleep(task, nanos),
            Call::Barrier(id, tasks) => self.barrier(task, id, tasks),
            Call::Now() => return Ok(self.host().now()),
            Call::Yield() => {
                self.host().give_way();
                return Ok(self.is_dying(task).into());
            }
            _ => return Err(Errno::NoSys),
        }
        Ok(0)
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

    /// Run a call on the task's space, if its process is to live.
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

    /// The first half of a fork: the child's memory. Nobody runs in it yet.
    pub fn fork_space(&self, task: &Task) -> Result<SpaceId, Errno> {
        self.alive(task)?;
        let child = self.mm.fork(task.space());
        if matches!(child, Err(api::Error::Killed)) {
            self.killed(task);
        }
        Ok(child?)
    }

    /// The second half: a process with that memory and the descriptors of its parent; the call's value.
    pub fn start_child(&self, task: &Task, child: SpaceId, role: Role) -> Result<u64, Errno> {
        let started = self.start_process(child, task.process().descriptors(), role)?;
        Ok(abi::call::pair(started.number(), started.process().number()))
    }

    // --- files ---

    /// What a descriptor of the task names.
    pub fn file(&self, task: &Task, fd: u32) -> Result<(File, Open), Errno> {
        let open = task.process().file(fd)?;
        Ok((self.files.lock().list()[open.file as usize], open))
    }

    /// Files that there are; their numbers are below that.
    pub fn file_count(&self) -> u32 {
        self.files.lock().list().len() as u32
    }

    /// The number of the file that the memory manager calls so.
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
        // Held while the file is made, so that a name never stands for two; making one waits for nothing.
        let file = self.files.lock().find(&name, size, in_memory, |kind| self.mm.create_file(kind, size))?;
        Ok(abi::call::pair(task.process().open(Open { file, writable }), file))
    }

    /// Read from a file; `copy` takes the bytes.
    pub fn read(
        &self,
        task: &Task,
        fd: u32,
        offset: u64,
        len: u64,
        copy: &mut Copier<'_>,
    ) -> Result<u64, Errno> {
        let (file, _) = self.file(task, fd)?;
        self.charge();
        Ok(self.mm.read(file.id, offset, len, self.mm.group_of(task.space()), copy)?)
    }

    /// Write to a file; `copy` brings the bytes.
    pub fn write(
        &self,
        task: &Task,
        fd: u32,
        offset: u64,
        len: u64,
        copy: &mut Copier<'_>,
    ) -> Result<u64, Errno> {
        let file = self.may_write(task, fd, offset, len)?;
        self.charge();
        Ok(self.mm.write(file.id, offset, len, self.mm.group_of(task.space()), copy)?)
    }

    /// The file of a write, if that may be.
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
        match text {
            Text::Said(name) if name.len() as u64 > LONGEST_NAME => Err(Errno::Inval),
            Text::Said(name) => Ok(Cow::Borrowed(name)),
            Text::At(place) if place.len > LONGEST_NAME => Err(Errno::Inval),
            Text::At(_) => self.text(text, LONGEST_NAME).map(Cow::Owned),
        }
    }

    fn knob(&self, name: Text<'_>) -> Result<Knob, Errno> {
        Knob::from_name(&self.name(name)?).ok_or(Errno::NoEnt)
    }

    /// A text of a program's, as far as it is text.
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
