//! The system as a simulated task sees it.

mod access;
mod files;

use crate::coroutine;
use crate::machine::{Class, SimMachine};
use crate::oracle::{InFlux, Oracle, What};
use crate::run::{END, RunError};
use crate::sched::{Key, TaskId};
use crate::spec::Hardware;
use crate::world::{Kind, Open, World};
use abi::Forget;
use mm::Mm;
use mm::api::{self, Backing, MapRequest};
use mm::knobs::Knob;
use mm::machine::{Machine, WaitKey, Work};
use mm::space::TaskScan;
use mm::units::{GroupId, NodeId, PAGE_SIZE, PageIndex, Pfn, SpaceId, Vpn, pages_of};
use program::{
    Access, AccessKind, Advice, Errno, FileAdvice, FileSpec, Group, GroupLimits, Map, MapSource, MemPolicy,
    Os, Program, Prot, Remap, Role, Signal, TaskHandle,
};

/// Bits of a user address.
const ADDRESS_BITS: u32 = 47;
/// How long a task that spins looks again, in picoseconds, at least and at most.
const SPIN: u64 = 100_000;
const LONGEST_SPIN: u64 = 10_000_000;

/// One task's view.
pub(crate) struct SimOs<'w, P> {
    world: &'w World<'w, P>,
    machine: &'w SimMachine,
    process: usize,
    space: SpaceId,
    task: TaskId,
    /// Does somebody want to see every access?
    watched: bool,
    access_cost: u64,
    instruction_cost: u64,
    accesses: u64,
    scan: TaskScan,
}

/// Pages of a range given in bytes, if it is one.
fn range(addr: u64, len: u64) -> Result<(Vpn, u64), Errno> {
    let end = addr.checked_add(len).filter(|&end| end <= 1 << ADDRESS_BITS);
    match end {
        Some(_) if addr.is_multiple_of(PAGE_SIZE) && len > 0 => Ok((Vpn::of(addr), pages_of(len))),
        _ => Err(Errno::Inval),
    }
}

impl<'w, P: Program> SimOs<'w, P> {
    /// The view of `task` of `process`.
    pub(crate) fn new(world: &'w World<'w, P>, process: usize, task: TaskId) -> SimOs<'w, P> {
        let machine = world.machine();
        let costs = machine.spec().costs();
        SimOs {
            world,
            machine,
            process,
            space: world.kernel.borrow().processes[process].space,
            task,
            watched: world.oracle.is_some() || machine.optimum.is_some(),
            access_cost: costs.hardware(Hardware::Access),
            instruction_cost: costs.hardware(Hardware::Instruction),
            accesses: 0,
            scan: TaskScan::default(),
        }
    }

    /// Live a task's life.
    pub(crate) fn live(mut self, role: Role) {
        let world = self.world;
        if let Err(signal) = world.program.run(&mut self, role) {
            if !self.dead() {
                let name = match signal {
                    Signal::Segv { addr } => format!("SIGSEGV at {addr:#x}"),
                    Signal::Bus { addr } => format!("SIGBUS at {addr:#x}"),
                    Signal::Kill => "SIGKILL: out of memory".into(),
                };
                let text = format!("task {} (role {role}): {name}", self.task);
                world.kernel.borrow_mut().signals.push(text);
            }
            world.kill(self.process);
        }
        let last = {
            let mut kernel = world.kernel.borrow_mut();
            kernel.accesses += self.accesses;
            kernel.tasks[self.task as usize] = Kind::Leaving;
            kernel.processes[self.process].tasks -= 1;
            kernel.processes[self.process].tasks == 0
        };
        if last {
            self.leave_space();
            world.mm.exit_space(self.space);
            self.oracle(|oracle| oracle.exit(self.space.0));
        }
        let mut kernel = world.kernel.borrow_mut();
        kernel.live -= 1;
        kernel.ended_at = kernel.ended_at.max(self.machine.here().clock.get());
    }

    /// The process has ended: no CPU runs its space any more. Not this one; nor one that has run the end of another
    /// task of the process, whose clock is ahead, and which has not gone on to the task that waits there.
    fn leave_space(&self) {
        for (i, cpu) in self.machine.cpus.iter().enumerate() {
            if cpu.loaded.get() == Some(self.space) {
                self.machine.on(i, Class::System, || {
                    self.machine.run_space(None);
                    self.world.mm.switch(None);
                });
            }
        }
    }

    fn dead(&self) -> bool {
        self.world.kernel.borrow().processes[self.process].dead
    }

    /// Let others run if it is their turn; is this process still to live?
    #[cold]
    fn breathe(&mut self) -> Result<(), Signal> {
        coroutine::suspend();
        self.task_work();
        if self.world.mm.killed(self.space) {
            self.killed();
        }
        if self.dead() { Err(Signal::Kill) } else { Ok(()) }
    }

    /// The memory manager has chosen this process to die.
    fn killed(&self) {
        if !self.dead() {
            let text = format!("task {}: SIGKILL: out of memory", self.task);
            self.world.kernel.borrow_mut().signals.push(text);
            self.world.kill(self.process);
        }
    }

    /// The run has failed. It ends here; this task never runs again.
    fn fail(&self, reason: String) -> ! {
        let seed = self.world.config.seed;
        *self.world.failure.borrow_mut() = Some(RunError::Failed { reason, seed });
        loop {
            coroutine::suspend();
        }
    }

    fn oracle<T>(&self, ask: impl FnOnce(&mut Oracle) -> T) -> Option<T> {
        self.world.oracle.as_ref().map(|oracle| ask(&mut oracle.borrow_mut()))
    }

    fn in_flux(&self, begin: impl FnOnce(&mut Oracle, u64) -> InFlux) -> Option<InFlux> {
        let since = self.world.newest();
        self.oracle(|oracle| begin(oracle, since))
    }

    /// One more is there: how many wait now (0: all have met), and how often all had met before.
    fn come_to_barrier(&self, id: u32, tasks: u32) -> (u32, u64) {
        let mut kernel = self.world.kernel.borrow_mut();
        let (here, met) = kernel.barriers.entry(id).or_default();
        let before = *met;
        *here = (*here + 1) % tasks.max(1);
        *met += u64::from(*here == 0);
        (*here, before)
    }

    fn after_operation(&self) {
        if !self.world.wants_validation() {
            return;
        }
        if let Err(fault) = self.machine.unseen(|| self.world.check_translations()) {
            self.fail(format!("oracle: {fault}"));
        }
        if self.world.at_rest()
            && let Err(fault) = self.machine.unseen(|| self.world.mm.validate())
        {
            self.fail(format!("validate: {fault}"));
        }
    }

    // --- calls ---

    /// Run a system call.
    fn call<T>(
        &mut self,
        call: impl FnOnce(&Mm<SimMachine>, SpaceId) -> Result<T, api::Error>,
    ) -> Result<T, Errno> {
        if self.dead() {
            return Err(Errno::NoMem);
        }
        self.machine.charge(Work::Syscall, 1);
        self.enter();
        let result = call(&self.world.mm, self.space);
        self.leave();
        if matches!(result, Err(api::Error::Killed)) {
            self.killed();
        }
        result.map_err(Errno::from)
    }

    /// After a call, when the oracle knows of it.
    fn done<T>(&mut self, result: Result<T, Errno>) -> Result<T, Errno> {
        self.after_operation();
        self.go_back();
        if self.world.mm.killed(self.space) {
            self.killed();
        }
        result
    }

    fn file(&self, fd: u32) -> Result<Open, Errno> {
        let kernel = self.world.kernel.borrow();
        kernel.processes[self.process].fds.get(fd as usize).copied().flatten().ok_or(Errno::BadF)
    }

    fn file_id(&self, open: Open) -> mm::units::FileId {
        self.world.kernel.borrow().files[open.file].id
    }

    /// What a mapping shows: for the memory manager, and for the oracle.
    fn backing(&self, source: MapSource) -> Result<(Backing, What), Errno> {
        match source {
            MapSource::Anonymous => Ok((Backing::Anonymous, What::Anonymous)),
            MapSource::AnonymousShared => {
                let mut kernel = self.world.kernel.borrow_mut();
                kernel.shared_maps += 1;
                // Numbers above those of all named files.
                let file = 1 << 40 | kernel.shared_maps;
                Ok((Backing::AnonymousShared, What::File { file, offset: 0, private: false }))
            }
            MapSource::File { fd, offset, shared } => {
                if !offset.is_multiple_of(PAGE_SIZE) {
                    return Err(Errno::Inval);
                }
                let (open, page) = (self.file(fd)?, offset / PAGE_SIZE);
                let file = self.file_id(open);
                let writable = open.writable;
                let backing = Backing::File { file, offset: PageIndex(page), shared, writable };
                Ok((backing, What::File { file: open.file as u64, offset: page, private: !shared }))
            }
        }
    }
}

impl<P: Program> Os for SimOs<'_, P> {
    /// The path of most accesses: the page that its set of the TLB was last asked for, and time left to run. Everything
    /// else goes to `access_slow`, in a tail call, so that this one stays small.
    #[inline(always)]
    fn access(&mut self, access: Access) -> Result<(), Signal> {
        let cpu = self.machine.here();
        if access.addr >> ADDRESS_BITS == 0
            && let Some(cached) = cpu.tlb.recent(Vpn::of(access.addr))
            && (access.mode == AccessKind::Load || (access.mode == AccessKind::Store && cached.storable()))
            && !self.watched
        {
            let clock = cpu.clock.get() + self.access_cost * access.count as u64;
            if clock < self.machine.limit.get() {
                cpu.clock.set(clock);
                self.accesses += access.count as u64;
                return Ok(());
            }
        }
        self.access_slow(access)
    }

    fn compute(&mut self, instructions: u64) {
        self.machine.here().spend(self.instruction_cost.saturating_mul(instructions).min(END));
        self.go_back();
    }

    fn mmap(&mut self, map: Map) -> Result<u64, Errno> {
        let (at, pages) = match map.addr {
            Some(addr) => {
                let (at, pages) = range(addr, map.len)?;
                (Some(at), pages)
            }
            None => (None, range(0, map.len)?.1),
        };
        let (backing, what) = self.backing(map.source)?;
        let (locked, populate) = (map.locked, map.populate);
        let request = MapRequest { at, pages, prot: map.prot, backing, locked, populate };
        let space = self.space.0;
        let flux =
            at.and_then(|at| self.in_flux(|oracle, since| oracle.begin_take(space, at.0, pages, since)));
        let since = self.world.newest();
        let result = self.call(|mm, space| mm.mmap(space, &request));
        self.oracle(|oracle| {
            let stored = flux.map(|flux| oracle.end_take(flux, result.is_ok())).unwrap_or_default();
            if let Ok(start) = result {
                if let (MapSource::AnonymousShared, What::File { file, .. }) = (map.source, what) {
                    oracle.create_file(file, pages * PAGE_SIZE, 0);
                }
                oracle.map(space, start.0, pages, request.prot, what);
                oracle.stored_meanwhile(space, stored);
                if populate || locked {
                    oracle.populated(space, start.0, pages, since);
                }
            }
        });
        self.done(result).map(Vpn::addr)
    }

    fn munmap(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        let (start, pages) = range(addr, len)?;
        let id = self.space.0;
        let flux = self.in_flux(|oracle, since| oracle.begin_take(id, start.0, pages, since));
        let result = self.call(|mm, space| mm.munmap(space, start, pages));
        self.oracle(|oracle| flux.map(|flux| oracle.end_take(flux, result.is_ok())));
        self.done(result)
    }

    fn mprotect(&mut self, addr: u64, len: u64, rights: Prot) -> Result<(), Errno> {
        let (start, pages) = range(addr, len)?;
        let id = self.space.0;
        let flux = self.in_flux(|oracle, since| oracle.begin_change(id, start.0, pages, since));
        let result = self.call(|mm, space| mm.mprotect(space, start, pages, rights));
        self.oracle(|oracle| {
            flux.into_iter().for_each(|flux| oracle.end_protect(flux, rights, result.is_ok()))
        });
        self.done(result)
    }

    fn mremap(&mut self, remap: Remap) -> Result<u64, Errno> {
        let (start, old) = range(remap.addr, remap.old_len)?;
        let new = range(0, remap.new_len)?.1;
        let fixed = remap.fixed.map(|to| range(to, remap.new_len)).transpose()?.map(|(to, _)| to);
        let id = self.space.0;
        let flux = self.in_flux(|oracle, since| oracle.begin_take(id, start.0, old, since));
        let there =
            fixed.and_then(|to| self.in_flux(|oracle, since| oracle.begin_take(id, to.0, new, since)));
        let may_move = remap.may_move;
        let result = self.call(|mm, space| mm.mremap(space, start, old, new, may_move, fixed));
        self.oracle(|oracle| {
            let stored = there.map(|flux| oracle.end_take(flux, result.is_ok())).unwrap_or_default();
            flux.into_iter().for_each(|flux| match result {
                Ok(to) => oracle.end_move(flux, to.0, new),
                Err(_) => drop(oracle.end_take(flux, false)),
            });
            oracle.stored_meanwhile(id, stored);
        });
        self.done(result).map(Vpn::addr)
    }

    fn madvise(&mut self, addr: u64, len: u64, advice: Advice) -> Result<(), Errno> {
        let (start, pages) = range(addr, len)?;
        let forget = advice.forgets();
        let id = self.space.0;
        let flux = match forget {
            Forget::Not => None,
            _ => self.in_flux(|oracle, since| oracle.begin_change(id, start.0, pages, since)),
        };
        let result = self.call(|mm, space| mm.madvise(space, start, pages, advice));
        let forget = if result.is_err() { Forget::Perhaps } else { forget };
        self.oracle(|oracle| flux.into_iter().for_each(|flux| oracle.end_forget(flux, forget)));
        self.done(result)
    }

    fn mlock(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        let (start, pages) = range(addr, len)?;
        let (id, since) = (self.space.0, self.world.newest());
        // Pages of private files are copied one after the other, while others may store to the file.
        let flux = self.in_flux(|oracle, since| oracle.begin_change(id, start.0, pages, since));
        let result = self.call(|mm, space| mm.mlock(space, start, pages, true));
        self.oracle(|oracle| {
            flux.into_iter().for_each(|flux| oracle.end_forget(flux, Forget::Not));
            oracle.populated(id, start.0, pages, since);
        });
        self.done(result)
    }

    fn munlock(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        let (start, pages) = range(addr, len)?;
        let result = self.call(|mm, space| mm.mlock(space, start, pages, false));
        self.done(result)
    }

    fn move_pages(&mut self, addr: u64, len: u64, node: Option<u32>) -> Result<u64, Errno> {
        let (start, pages) = range(addr, len)?;
        let node = node.map(NodeId::try_from).transpose()?;
        let result = self.call(|mm, space| mm.move_pages(space, start, pages, node));
        self.done(result.map(|moved| moved.failed))
    }

    fn migrate_pages(&mut self, from: u64, to: u64) -> Result<u64, Errno> {
        let result = self.call(|mm, space| mm.migrate_pages(space, from, to));
        self.done(result)
    }

    fn mbind(&mut self, addr: u64, len: u64, policy: MemPolicy, moving: bool) -> Result<u64, Errno> {
        let ((start, pages), policy) = (range(addr, len)?, policy.try_into()?);
        let result = self.call(|mm, space| mm.mbind(space, start, pages, policy, moving));
        self.done(result)
    }

    fn set_mempolicy(&mut self, policy: MemPolicy) -> Result<(), Errno> {
        let policy = policy.try_into()?;
        let result = self.call(|mm, space| mm.set_mempolicy(space, policy));
        self.done(result)
    }

    fn msync(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        let (start, pages) = range(addr, len)?;
        let result = self.call(|mm, space| mm.msync(space, start, pages));
        self.done(result)
    }

    fn open(&mut self, spec: FileSpec<'_>) -> Result<u32, Errno> {
        self.machine.charge(Work::Syscall, 1);
        let file = self.machine.stoppable(false, || self.world.find_file(&spec))?;
        let mut kernel = self.world.kernel.borrow_mut();
        let fds = &mut kernel.processes[self.process].fds;
        let fd = fds.iter().position(Option::is_none).unwrap_or(fds.len());
        if fd == fds.len() {
            fds.push(None);
        }
        fds[fd] = Some(Open { file, writable: spec.writable });
        Ok(fd as u32)
    }

    fn close(&mut self, fd: u32) -> Result<(), Errno> {
        if self.dead() {
            return Err(Errno::NoMem);
        }
        self.machine.charge(Work::Syscall, 1);
        self.file(fd)?;
        self.world.kernel.borrow_mut().processes[self.process].fds[fd as usize] = None;
        Ok(())
    }

    fn pread(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        let open = self.file(fd)?;
        let file = self.file_id(open);
        let (this, mut copying) = (&*self, self.copying(open, offset));
        let mut sink = |pfn: Pfn, _: u32, bytes: u32| this.copy(&mut copying, pfn, bytes, false);
        this.enter();
        this.machine.charge(Work::Syscall, 1);
        let result = this
            .world
            .mm
            .read(file, offset, len, this.world.mm.group_of(this.space), &mut sink)
            .map_err(Errno::from);
        this.leave();
        self.done(result)
    }

    fn pwrite(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        let open = self.file(fd)?;
        if !open.writable {
            return Err(Errno::BadF);
        }
        let capacity =
            self.world.kernel.borrow().files[open.file].blocks.map_or(u64::MAX, |(_, count)| count);
        let end = offset.checked_add(len).ok_or(Errno::Inval)?;
        if pages_of(end) > capacity {
            return Err(Errno::NoSpc);
        }
        let result = self.with_file(open, |this| this.write(open, offset, len));
        self.done(result)
    }

    fn fsync(&mut self, fd: u32) -> Result<(), Errno> {
        let file = self.file_id(self.file(fd)?);
        let result = self.call(|mm, _| mm.fsync(file));
        self.done(result)
    }

    fn ftruncate(&mut self, fd: u32, size: u64) -> Result<(), Errno> {
        let open = self.file(fd)?;
        if !open.writable {
            return Err(Errno::Inval);
        }
        let blocks = self.world.kernel.borrow().files[open.file].blocks;
        if blocks.is_some_and(|(_, count)| pages_of(size) > count) {
            return Err(Errno::NoSpc);
        }
        let result = self.with_file(open, |this| this.truncate(open, size));
        self.done(result)
    }

    fn never_defer_flushes(&mut self, never: bool) {
        let _ = self.call(|mm, space| {
            mm.set_never_deferred(space, never);
            Ok(())
        });
    }

    fn fadvise(&mut self, fd: u32, offset: u64, len: u64, advice: FileAdvice) -> Result<(), Errno> {
        let open = self.file(fd)?;
        let file = self.file_id(open);
        let result = self.call(|mm, _| mm.fadvise(file, offset, len, advice));
        if advice == FileAdvice::DontNeed {
            self.not_needed(open, offset / PAGE_SIZE, if len == 0 { u64::MAX } else { pages_of(len) });
        }
        self.done(result)
    }

    fn spawn(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        self.machine.charge(Work::Syscall, 1);
        let process = self.process;
        Ok(TaskHandle(self.world.start(Kind::Program { process, role })))
    }

    fn fork(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        let since = self.world.newest();
        let parent = self.space.0;
        let result = self.call(|mm, space| mm.fork(space));
        if let Ok(child) = result {
            self.oracle(|oracle| oracle.fork(parent, child.0, since));
        }
        let child = self.done(result)?;
        let fds = self.world.kernel.borrow().processes[self.process].fds.clone();
        Ok(TaskHandle(self.world.start_process(child, fds, role)))
    }

    fn join(&mut self, task: TaskHandle) {
        while !self.dead() && !self.machine.sched.borrow().ended(task.0) {
            self.machine.sleep(Key::End(task.0), None);
        }
    }

    fn sleep(&mut self, nanos: u64) {
        let picos = nanos.saturating_mul(1000).min(END);
        if self.dead() {
            // It is on its way to its end, but time passes: who sleeps until others have come further must see them
            // come.
            self.machine.here().spend(picos);
            self.machine.yield_if_due();
            return;
        }
        let until = self.machine.here().clock.get() + picos;
        self.machine.sleep(Key::Mm(WaitKey::Timer), Some(until));
        self.task_work();
    }

    fn barrier(&mut self, id: u32, tasks: u32) {
        if self.dead() {
            return;
        }
        match self.come_to_barrier(id, tasks) {
            (0, _) => self.machine.wake_key(Key::Barrier(id)),
            _ => drop(self.machine.sleep(Key::Barrier(id), None)),
        }
    }

    fn spin_barrier(&mut self, id: u32, tasks: u32) {
        let (here, mut met) = self.come_to_barrier(id, tasks);
        let before = met;
        while here > 0 && met == before {
            // Nothing changes before another CPU runs.
            let (cpu, limit) = (self.machine.here(), self.machine.limit.get());
            cpu.spend(limit.saturating_sub(cpu.clock.get()).clamp(SPIN, LONGEST_SPIN));
            if self.breathe().is_err() {
                return;
            }
            met = self.world.kernel.borrow().barriers[&id].1;
        }
    }

    fn group_create(&mut self, parent: Group, limits: GroupLimits) -> Result<Group, Errno> {
        let parent = GroupId::try_from(parent)?;
        let result = self.call(|mm, _| mm.create_group(parent, limits.into()));
        self.done(result).map(Group::from)
    }

    fn group_limit(&mut self, group: Group, limits: GroupLimits) -> Result<(), Errno> {
        let group = GroupId::try_from(group)?;
        let result = self.call(|mm, _| mm.set_group_limits(group, limits.into()));
        self.done(result)
    }

    fn group_enter(&mut self, group: Group) -> Result<(), Errno> {
        let group = GroupId::try_from(group)?;
        let result = self.call(|mm, space| mm.move_space(space, group));
        self.done(result)
    }

    fn group_remove(&mut self, group: Group) -> Result<(), Errno> {
        let group = GroupId::try_from(group)?;
        let result = self.call(|mm, _| mm.remove_group(group));
        self.done(result)
    }

    fn set_knob(&mut self, name: &str, value: u64) -> Result<(), Errno> {
        let knob = Knob::from_name(name).ok_or(Errno::NoEnt)?;
        let result = self.call(|mm, _| mm.set_knob(knob, value));
        self.world.ticks.set(self.world.mm.wants_ticks());
        self.done(result)
    }

    fn group_knob(&mut self, group: Group, name: &str, value: u64) -> Result<(), Errno> {
        let (group, knob) = (GroupId::try_from(group)?, Knob::from_name(name).ok_or(Errno::NoEnt)?);
        let result = self.call(|mm, _| mm.set_group_knob(group, knob, value));
        self.done(result)
    }

    fn now(&self) -> u64 {
        self.machine.now()
    }

    fn cpus(&self) -> u32 {
        self.machine.cpus() as u32
    }

    fn memory(&self) -> u64 {
        self.machine.spec().memory()
    }

    fn seed(&self) -> u64 {
        program::rng::task_seed(self.world.config.seed, self.task - self.world.promoters())
    }

    fn progress(&mut self, units: u64) {
        self.world.kernel.borrow_mut().progress += units;
    }

    fn rate(&mut self, bytes: u64, nanos: u64) {
        let rate = (u128::from(bytes) * 1_000_000_000 / 1024 / u128::from(nanos.max(1))) as u64;
        self.machine.throughput.set(self.machine.throughput.get() + rate);
    }

    fn took(&mut self, nanos: u64) {
        self.machine.operations.borrow_mut().record(nanos);
    }
}
