//! The system as a simulated task sees it.

mod access;
mod files;

use crate::coroutine;
use crate::machine::SimMachine;
use crate::oracle::{InFlux, Oracle, What};
use crate::run::{END, RunError};
use crate::sched::Key;
use crate::spec::Hardware;
use crate::world::{Kind, World};
use abi::call::{Exit, unpair};
use abi::{Call, Forget, Text};
use kernel::{ADDRESS_BITS, Task, range};
use mm::machine::{Machine, WaitKey};
use mm::units::{PAGE_SIZE, Pfn, SpaceId, Vpn, pages_of};
use program::{
    Access, AccessKind, Advice, Errno, FileAdvice, FileSpec, Map, MapSource, Os, Program, Prot, Remap, Role,
    Signal, TaskHandle,
};
use std::sync::Arc;

/// How long a task that spins looks again, in picoseconds, at least and at most.
const SPIN: u64 = 100_000;
const LONGEST_SPIN: u64 = 10_000_000;

/// One task's view.
pub(crate) struct SimOs<'w, P> {
    world: &'w World<'w, P>,
    machine: &'w SimMachine,
    task: Arc<Task>,
    space: SpaceId,
    /// Does somebody want to see every access?
    watched: bool,
    access_cost: u64,
    instruction_cost: u64,
    accesses: u64,
    progress: u64,
}

impl<'w, P: Program> SimOs<'w, P> {
    /// The view of a task.
    pub(crate) fn new(world: &'w World<'w, P>, task: Arc<Task>) -> SimOs<'w, P> {
        let machine = world.machine();
        let costs = machine.spec().costs();
        SimOs {
            world,
            machine,
            space: task.space(),
            task,
            watched: world.oracle.is_some() || machine.optimum.is_some(),
            access_cost: costs.hardware(Hardware::Access),
            instruction_cost: costs.hardware(Hardware::Instruction),
            accesses: 0,
            progress: 0,
        }
    }

    /// Live a task's life.
    pub(crate) fn live(mut self) {
        let world = self.world;
        let role = self.task.start().role;
        let signal = world.program.run(&mut self, role).err();
        world.tables.borrow_mut().tasks[self.task.number() as usize] = Kind::Leaving;
        let (accesses, progress) = (self.accesses, self.progress);
        if world.kernel.exit(&self.task, &Exit { signal, accesses, progress, ..Exit::default() }) {
            self.oracle(|oracle| oracle.exit(self.space.0));
        }
        let mut tables = world.tables.borrow_mut();
        tables.ended_at = tables.ended_at.max(self.machine.here().clock.get());
    }

    fn dead(&self) -> bool {
        self.task.process().is_dead()
    }

    /// Let others run if it is their turn; is this process still to live?
    #[cold]
    fn breathe(&mut self) -> Result<(), Signal> {
        coroutine::suspend();
        self.task_work();
        if self.world.kernel.is_dying(&self.task) { Err(Signal::Kill) } else { Ok(()) }
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

    fn after_operation(&self) {
        if !self.world.wants_validation() {
            return;
        }
        if let Err(fault) = self.machine.unseen(|| self.world.check_translations()) {
            self.fail(format!("oracle: {fault}"));
        }
        if self.world.at_rest()
            && let Err(fault) = self.machine.unseen(|| self.world.mm().validate())
        {
            self.fail(format!("validate: {fault}"));
        }
    }

    // --- calls ---

    /// Make a call; then the oracle is told, before others may run.
    fn make(&mut self, call: Call<'_>, tell: impl FnOnce(&Self, Result<u64, Errno>)) -> Result<u64, Errno> {
        self.enter();
        let result = self.world.kernel.call(&self.task, call);
        self.leave();
        tell(self, result);
        self.done(result)
    }

    /// After a call, when the oracle knows of it.
    fn done<T>(&mut self, result: Result<T, Errno>) -> Result<T, Errno> {
        self.after_operation();
        self.go_back();
        self.world.kernel.is_dying(&self.task);
        result
    }

    /// What a mapping shows, for the oracle.
    fn shows(&self, source: MapSource) -> Result<What, Errno> {
        Ok(match source {
            MapSource::Anonymous => What::Anonymous,
            MapSource::AnonymousShared => {
                let mut tables = self.world.tables.borrow_mut();
                tables.shared_maps += 1;
                // Numbers above those of all named files.
                What::File { file: 1 << 40 | tables.shared_maps, offset: 0, private: false }
            }
            MapSource::File { fd, offset, shared } => {
                let file = self.task.process().file(fd)?.file.into();
                What::File { file, offset: offset / PAGE_SIZE, private: !shared }
            }
        })
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

    fn call(&mut self, call: Call<'_>) -> Result<u64, Errno> {
        match call {
            // After these a task goes on at once.
            Call::Close(_) | Call::Spawn(_) | Call::Join(_) | Call::Barrier(..) | Call::NeverDefer(_) => {
                self.world.kernel.call(&self.task, call)
            }
            Call::SetKnob(..) => {
                self.make(call, |this, _| this.world.ticks.set(this.world.mm().wants_ticks()))
            }
            _ => self.make(call, |_, _| {}),
        }
    }

    fn mmap(&mut self, map: Map) -> Result<u64, Errno> {
        let (at, pages) = range(map.addr.unwrap_or(0), map.len)?;
        let what = self.shows(map.source)?;
        let space = self.space.0;
        let flux =
            map.addr.and_then(|_| self.in_flux(|oracle, since| oracle.begin_take(space, at.0, pages, since)));
        let since = self.world.newest();
        self.make(Call::Mmap(map), |this, result| {
            this.oracle(|oracle| {
                let stored = flux.map(|flux| oracle.end_take(flux, result.is_ok())).unwrap_or_default();
                let Ok(start) = result.map(Vpn::of) else { return };
                if let (MapSource::AnonymousShared, What::File { file, .. }) = (map.source, what) {
                    oracle.create_file(file, pages * PAGE_SIZE, 0);
                }
                oracle.map(space, start.0, pages, map.prot, what);
                oracle.stored_meanwhile(space, stored);
                if map.populate || map.locked {
                    oracle.populated(space, start.0, pages, since);
                }
            });
        })
    }

    fn munmap(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        let ((start, pages), id) = (range(addr, len)?, self.space.0);
        let flux = self.in_flux(|oracle, since| oracle.begin_take(id, start.0, pages, since));
        let tell = |this: &Self, result: Result<u64, Errno>| {
            this.oracle(|oracle| flux.map(|flux| oracle.end_take(flux, result.is_ok())));
        };
        self.make(Call::Munmap(addr, len), tell).map(drop)
    }

    fn mprotect(&mut self, addr: u64, len: u64, rights: Prot) -> Result<(), Errno> {
        let ((start, pages), id) = (range(addr, len)?, self.space.0);
        let flux = self.in_flux(|oracle, since| oracle.begin_change(id, start.0, pages, since));
        let tell = |this: &Self, result: Result<u64, Errno>| {
            this.oracle(|oracle| flux.map(|flux| oracle.end_protect(flux, rights, result.is_ok())));
        };
        self.make(Call::Mprotect(addr, len, rights), tell).map(drop)
    }

    fn mremap(&mut self, remap: Remap) -> Result<u64, Errno> {
        let (start, old) = range(remap.addr, remap.old_len)?;
        let (to, new) = range(remap.fixed.unwrap_or(0), remap.new_len)?;
        let id = self.space.0;
        let flux = self.in_flux(|oracle, since| oracle.begin_take(id, start.0, old, since));
        let there =
            remap.fixed.and_then(|_| self.in_flux(|oracle, since| oracle.begin_take(id, to.0, new, since)));
        self.make(Call::Mremap(remap), |this, result| {
            this.oracle(|oracle| {
                let stored = there.map(|flux| oracle.end_take(flux, result.is_ok())).unwrap_or_default();
                flux.into_iter().for_each(|flux| match result {
                    Ok(to) => oracle.end_move(flux, Vpn::of(to).0, new),
                    Err(_) => drop(oracle.end_take(flux, false)),
                });
                oracle.stored_meanwhile(id, stored);
            });
        })
    }

    fn madvise(&mut self, addr: u64, len: u64, advice: Advice) -> Result<(), Errno> {
        let ((start, pages), id) = (range(addr, len)?, self.space.0);
        let flux = match advice.forgets() {
            Forget::Not => None,
            _ => self.in_flux(|oracle, since| oracle.begin_change(id, start.0, pages, since)),
        };
        let tell = |this: &Self, result: Result<u64, Errno>| {
            let forget = if result.is_err() { Forget::Perhaps } else { advice.forgets() };
            this.oracle(|oracle| flux.map(|flux| oracle.end_forget(flux, forget)));
        };
        self.make(Call::Madvise(addr, len, advice), tell).map(drop)
    }

    fn mlock(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        let ((start, pages), id, since) = (range(addr, len)?, self.space.0, self.world.newest());
        // Pages of private files are copied one after the other, while others may store to the file.
        let flux = self.in_flux(|oracle, since| oracle.begin_change(id, start.0, pages, since));
        let tell = |this: &Self, _: Result<u64, Errno>| {
            this.oracle(|oracle| {
                flux.into_iter().for_each(|flux| oracle.end_forget(flux, Forget::Not));
                oracle.populated(id, start.0, pages, since);
            });
        };
        self.make(Call::Mlock(addr, len), tell).map(drop)
    }

    fn open(&mut self, spec: FileSpec<'_>) -> Result<u32, Errno> {
        let kernel = &self.world.kernel;
        let FileSpec { name, size, in_memory, writable } = spec;
        self.machine.stoppable(false, || {
            let before = kernel.file_count();
            let call = Call::Open(Text::Said(name), size, in_memory, writable);
            let (fd, number) = unpair(kernel.call(&self.task, call)?);
            if number == before {
                self.world.made_file(number.into(), kernel.file(&self.task, fd)?.0, size);
            }
            Ok(fd)
        })
    }

    fn pread(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        let mut copying = self.copying(fd, offset)?;
        let this = &*self;
        let mut copy = |pfn: Pfn, _: u32, bytes: u32| this.copy(&mut copying, pfn, bytes, false);
        this.enter();
        let result = this.world.kernel.read(&this.task, fd, offset, len, &mut copy);
        this.leave();
        self.done(result)
    }

    fn pwrite(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        self.world.kernel.may_write(&self.task, fd, offset, len)?;
        let result = self.alone_with_file(fd, |this| this.write(fd, offset, len))?;
        self.done(result)
    }

    fn ftruncate(&mut self, fd: u32, size: u64) -> Result<(), Errno> {
        let result = self.alone_with_file(fd, |this| this.truncate(fd, size))?;
        self.done(result).map(drop)
    }

    fn fadvise(&mut self, fd: u32, offset: u64, len: u64, advice: FileAdvice) -> Result<(), Errno> {
        let (file, _) = self.world.kernel.file(&self.task, fd)?;
        let tell = |this: &Self, _: Result<u64, Errno>| {
            if advice == FileAdvice::DontNeed {
                this.not_needed(file, offset / PAGE_SIZE, if len == 0 { u64::MAX } else { pages_of(len) });
            }
        };
        self.make(Call::Fadvise(fd, offset, len, advice), tell).map(drop)
    }

    /// In two halves, between which others may run.
    fn fork(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        let since = self.world.newest();
        self.enter();
        let child = self.world.kernel.fork_space(&self.task);
        self.leave();
        if let Ok(child) = child {
            self.oracle(|oracle| oracle.fork(self.space.0, child.0, since));
        }
        let child = self.done(child)?;
        let started = self.world.kernel.start_child(&self.task, child, role)?;
        Ok(TaskHandle(unpair(started).0))
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

    fn spin_barrier(&mut self, id: u32, tasks: u32) {
        let kernel = &self.world.kernel;
        let Some(before) = kernel.come_to_barrier(&self.task, id, tasks) else { return };
        while !kernel.has_opened(id, before) {
            // Nothing changes before another CPU runs.
            let (cpu, limit) = (self.machine.here(), self.machine.limit.get());
            cpu.spend(limit.saturating_sub(cpu.clock.get()).clamp(SPIN, LONGEST_SPIN));
            if self.breathe().is_err() {
                return;
            }
        }
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
        program::rng::task_seed(self.world.config.seed, self.task.number() - self.world.promoters())
    }

    fn progress(&mut self, units: u64) {
        self.progress += units;
    }

    fn rate(&mut self, bytes: u64, nanos: u64) {
        let rate = (u128::from(bytes) * 1_000_000_000 / 1024 / u128::from(nanos.max(1))) as u64;
        self.machine.throughput.set(self.machine.throughput.get() + rate);
    }

    fn took(&mut self, nanos: u64) {
        self.machine.operations.borrow_mut().record(nanos);
    }
}
