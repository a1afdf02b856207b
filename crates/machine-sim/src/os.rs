//! The system as a simulated task sees it.

mod access;
mod files;

use crate::config::RunError;
use crate::coroutine;
use crate::cpu::{END, add};
use crate::machine::SimMachine;
use crate::oracle::{Backing, Change, Oracle};
use crate::profile::{About, Part};
use crate::sched::Key;
use crate::simulation::{Simulation, TaskKind};
use crate::spec::Hardware;
use abi::call::{Exit, unpair};
use abi::{Call, Forget, Text};
use kernel::{ADDRESS_BITS, Task, range};
use mm::machine::{Machine, WaitKey};
use mm::table::{Bits, Entry};
use mm::units::{PAGE_SIZE, Pfn, SpaceId, Vpn, pages_of};
use program::{
    Access, AccessKind, Advice, Errno, FileAdvice, FileSpec, Map, MapSource, Os, Packed, Program, Prot,
    Remap, Role, Signal, TaskHandle,
};
use std::cell::Cell;
use std::sync::Arc;

/// Picoseconds between two looks of a task that spins, at least and at most.
const SPIN: u64 = 100_000;
const LONGEST_SPIN: u64 = 10_000_000;

/// The system as one task sees it.
pub(crate) struct SimOs<'s, P> {
    sim: &'s Simulation<'s, P>,
    machine: &'s SimMachine,
    task: Arc<Task>,
    space: SpaceId,
    /// Whether an observer wants to know of every access.
    watched: bool,
    access_cost: u64,
    instruction_cost: u64,
    accesses: u64,
    progress: u64,
    /// Picoseconds of instructions that touch no memory.
    computed: u64,
    /// The accesses, and the picoseconds of instructions, that the profile of tasks knows.
    told: Cell<[u64; 2]>,
}

impl<'s, P: Program> SimOs<'s, P> {
    pub(crate) fn new(sim: &'s Simulation<'s, P>, task: Arc<Task>) -> SimOs<'s, P> {
        let machine = sim.machine();
        let costs = machine.spec().costs();
        SimOs {
            sim,
            machine,
            space: task.space(),
            task,
            watched: machine.observers.watches_accesses(),
            access_cost: costs.hardware(Hardware::Access),
            instruction_cost: costs.hardware(Hardware::Instruction),
            accesses: 0,
            progress: 0,
            computed: 0,
            told: Cell::default(),
        }
    }

    /// Run the task from its start to its end.
    pub(crate) fn run(mut self) {
        let sim = self.sim;
        let role = self.task.start().role;
        let delay = sim.delay(&self.task);
        if delay > 0 {
            self.sleep(delay);
        }
        let signal = sim.program.run(&mut self, role).err();
        if role == 0 {
            let packed = (sim.mm().zram_stats(), sim.mm().zswap_stat());
            sim.state.borrow_mut().packed.get_or_insert(packed);
        }
        sim.state.borrow_mut().tasks[self.task.number() as usize] = TaskKind::Leaving;
        self.tell_profile();
        let (accesses, progress) = (self.accesses, self.progress);
        if sim.kernel.exit(&self.task, &Exit { signal, accesses, progress, ..Exit::default() }) {
            self.oracle(|oracle| oracle.exit(self.space.0));
        }
        let mut state = sim.state.borrow_mut();
        state.ended_at = state.ended_at.max(self.machine.clock());
    }

    /// Tell the profile of tasks what the task did in user mode since the last time.
    fn tell_profile(&self) {
        let Some(profile) = self.machine.observers.tasks() else { return };
        let [accesses, computed] = self.told.replace([self.accesses, self.computed]);
        profile.accessed(self.accesses - accesses);
        let picos = self.computed - computed;
        profile.note_part(Part::Instructions, picos / self.instruction_cost.max(1), picos);
    }

    fn is_dead(&self) -> bool {
        self.task.process().is_dead()
    }

    /// Let the scheduler choose what runs. An error if this process must die.
    #[cold]
    fn reschedule(&mut self) -> Result<(), Signal> {
        self.tell_profile();
        coroutine::suspend();
        self.task_work();
        if self.sim.kernel.is_dying(&self.task) { Err(Signal::Kill) } else { Ok(()) }
    }

    /// The run has failed and ends; this task never runs again.
    fn fail(&self, reason: String) -> ! {
        let seed = self.sim.config.seed;
        *self.sim.failure.borrow_mut() = Some(RunError::Failed { reason, seed });
        loop {
            coroutine::suspend();
        }
    }

    fn oracle<T>(&self, ask: impl FnOnce(&mut Oracle) -> T) -> Option<T> {
        self.sim.oracle.as_ref().map(|oracle| ask(&mut oracle.borrow_mut()))
    }

    /// Tell the oracle that a change of an address space or file begins.
    fn begin(&self, begin: impl FnOnce(&mut Oracle, u64) -> Change) -> Option<Change> {
        let since = self.sim.newest();
        self.oracle(|oracle| begin(oracle, since))
    }

    /// The same, for a call that removes mappings.
    fn begin_take(&self, (start, pages): (Vpn, u64)) -> Option<Change> {
        self.begin(|oracle, since| oracle.begin_take(self.space.0, start.0, pages, since))
    }

    /// The same, for a call that changes content or protection.
    fn begin_change(&self, (start, pages): (Vpn, u64)) -> Option<Change> {
        self.begin(|oracle, since| oracle.begin_change(self.space.0, start.0, pages, since))
    }

    fn after_operation(&self) {
        if let Some(preempt) = &self.machine.preempt {
            preempt.operation_ended();
        }
        if !self.sim.wants_validation() {
            return;
        }
        if let Err(fault) = self.machine.unaccounted(|| self.sim.check_translations()) {
            self.fail(format!("oracle: {fault}"));
        }
        if self.sim.at_rest()
            && let Err(fault) = self.machine.unaccounted(|| self.sim.mm().validate())
        {
            self.fail(format!("validate: {fault}"));
        }
    }

    // --- calls ---

    /// Make a call, and tell the oracle before another task can run.
    fn make(&mut self, call: Call<'_>, tell: impl FnOnce(&Self, Result<u64, Errno>)) -> Result<u64, Errno> {
        self.enter();
        let result = self.sim.kernel.call(&self.task, call);
        self.leave();
        tell(self, result);
        self.done(result)
    }

    /// Make a call whose begin the oracle knows; `end` tells it of the end, and whether the call has succeeded.
    fn make_change(
        &mut self,
        call: Call<'_>,
        change: Option<Change>,
        end: impl FnOnce(&mut Oracle, Change, bool),
    ) -> Result<(), Errno> {
        let tell = |this: &Self, result: Result<u64, Errno>| {
            this.oracle(|oracle| change.map(|change| end(oracle, change, result.is_ok())));
        };
        self.make(call, tell).map(drop)
    }

    /// The memory manager says that a device has failed: one must have.
    fn check_failure(&self, write: bool) {
        if !self.machine.has_failed(write) {
            self.fail(format!("task {}: an error of a device, and none has failed", self.task.number()));
        }
    }

    /// End a call of which the oracle has been told.
    fn done<T>(&mut self, result: Result<T, Errno>) -> Result<T, Errno> {
        if matches!(result, Err(Errno::Io)) {
            self.check_failure(self.machine.has_failed(true));
        }
        self.after_operation();
        self.return_to_user();
        self.sim.kernel.is_dying(&self.task);
        result
    }

    /// What backs a mapping, for the oracle.
    fn backing(&self, source: MapSource) -> Result<Backing, Errno> {
        Ok(match source {
            MapSource::Anonymous => Backing::Anonymous,
            MapSource::AnonymousShared => {
                let mut state = self.sim.state.borrow_mut();
                state.shared_maps += 1;
                // Numbers above those of all named files.
                Backing::File { file: 1 << 40 | state.shared_maps, offset: 0, private: false }
            }
            MapSource::File { fd, offset, shared } => {
                let file = self.task.process().file(fd)?.file.into();
                Backing::File { file, offset: offset / PAGE_SIZE, private: !shared }
            }
        })
    }
}

impl<P: Program> Os for SimOs<'_, P> {
    /// The path of most accesses: the page that its set of the TLB was asked for last, and time left to run. All else
    /// goes to `access_slow`, in a tail call, so that this function stays small.
    #[inline(always)]
    fn access(&mut self, access: Access) -> Result<(), Signal> {
        let cpu = self.machine.this_cpu();
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
        let mut left = self.instruction_cost.saturating_mul(instructions).min(END);
        loop {
            let part = self.machine.in_one_go(left);
            self.machine.this_cpu().spend(part);
            self.computed += part;
            self.return_to_user();
            left -= part;
            if left == 0 || self.is_dead() {
                return;
            }
        }
    }

    fn call(&mut self, call: Call<'_>) -> Result<u64, Errno> {
        self.tell_profile();
        match call {
            // After these the task goes on at once.
            Call::Close(_) | Call::Spawn(_) | Call::Join(_) | Call::Barrier(..) | Call::NeverDefer(_) => {
                self.sim.kernel.call(&self.task, call)
            }
            Call::SetKnob(..) => self.make(call, |this, _| this.sim.ticks.set(this.sim.mm().wants_ticks())),
            _ => self.make(call, |_, _| {}),
        }
    }

    fn mmap(&mut self, map: Map) -> Result<u64, Errno> {
        let range = range(map.addr.unwrap_or(0), map.len)?;
        let pages = range.1;
        let backing = self.backing(map.source)?;
        let space = self.space.0;
        let change = map.addr.and_then(|_| self.begin_take(range));
        let since = self.sim.newest();
        self.make(Call::Mmap(map), |this, result| {
            this.oracle(|oracle| {
                let stored = change.map(|change| oracle.end_take(change, result.is_ok())).unwrap_or_default();
                let Ok(start) = result.map(Vpn::of) else { return };
                if let (MapSource::AnonymousShared, Backing::File { file, .. }) = (map.source, backing) {
                    oracle.create_file(file, pages * PAGE_SIZE, 0);
                }
                oracle.map(space, start.0, pages, map.prot, backing);
                oracle.raced_with_stores(space, stored);
                if map.populate || map.locked {
                    oracle.populated(space, start.0, pages, since);
                }
            });
        })
    }

    fn munmap(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        let change = self.begin_take(range(addr, len)?);
        let end = |oracle: &mut Oracle, change, done| drop(oracle.end_take(change, done));
        self.make_change(Call::Munmap(addr, len), change, end)
    }

    fn mprotect(&mut self, addr: u64, len: u64, prot: Prot) -> Result<(), Errno> {
        let change = self.begin_change(range(addr, len)?);
        let end = |oracle: &mut Oracle, change, done| oracle.end_protect(change, prot, done);
        self.make_change(Call::Mprotect(addr, len, prot), change, end)
    }

    fn mremap(&mut self, remap: Remap) -> Result<u64, Errno> {
        let old = range(remap.addr, remap.old_len)?;
        let new = range(remap.fixed.unwrap_or(0), remap.new_len)?;
        let change = self.begin_take(old);
        let there = remap.fixed.and_then(|_| self.begin_take(new));
        self.make(Call::Mremap(remap), |this, result| {
            this.oracle(|oracle| {
                let stored = there.map(|change| oracle.end_take(change, result.is_ok())).unwrap_or_default();
                change.into_iter().for_each(|change| match result {
                    Ok(to) => oracle.end_move(change, Vpn::of(to).0, new.1),
                    Err(_) => drop(oracle.end_take(change, false)),
                });
                oracle.raced_with_stores(this.space.0, stored);
            });
        })
    }

    fn madvise(&mut self, addr: u64, len: u64, advice: Advice) -> Result<(), Errno> {
        let range = range(addr, len)?;
        let change = if advice.forgets() == Forget::Not { None } else { self.begin_change(range) };
        let end = |oracle: &mut Oracle, change, done| {
            oracle.end_forget(change, if done { advice.forgets() } else { Forget::Perhaps });
        };
        self.make_change(Call::Madvise(addr, len, advice), change, end)
    }

    fn mlock(&mut self, addr: u64, len: u64) -> Result<(), Errno> {
        let (start, pages) = range(addr, len)?;
        let (space, since) = (self.space.0, self.sim.newest());
        // Pages of private files are copied one after the other, while others may store to the file.
        let change = self.begin_change((start, pages));
        self.make_change(Call::Mlock(addr, len), change, |oracle, change, _| {
            oracle.end_forget(change, Forget::Not);
            oracle.populated(space, start.0, pages, since);
        })
    }

    fn open(&mut self, spec: FileSpec<'_>) -> Result<u32, Errno> {
        let kernel = &self.sim.kernel;
        let FileSpec { name, size, in_memory, writable } = spec;
        self.machine.stoppable(false, || {
            let before = kernel.file_count();
            let call = Call::Open(Text::Said(name), size, in_memory, writable);
            let (fd, number) = unpair(kernel.call(&self.task, call)?);
            if number == before {
                self.sim.fill_file(number.into(), kernel.file(&self.task, fd)?.0, size);
            }
            if let Some(profile) = self.machine.observers.tasks() {
                profile.name_file(kernel.file(&self.task, fd)?.0.id, name);
            }
            Ok(fd)
        })
    }

    fn pread(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        let mut copying = self.copying(fd, offset)?;
        let (this, id) = (&*self, copying.file_id());
        let mut copy = |pfn: Pfn, _: u32, bytes: u32| this.copy(&mut copying, pfn, bytes, false);
        this.enter();
        let result =
            this.about(|| About::File(id), || this.sim.kernel.read(&this.task, fd, offset, len, &mut copy));
        this.leave();
        self.done(result)
    }

    fn pwrite(&mut self, fd: u32, offset: u64, len: u64) -> Result<u64, Errno> {
        self.sim.kernel.may_write(&self.task, fd, offset, len)?;
        let result = self.alone_with_file(fd, |this| this.write(fd, offset, len))?;
        self.done(result)
    }

    fn ftruncate(&mut self, fd: u32, size: u64) -> Result<(), Errno> {
        let result = self.alone_with_file(fd, |this| this.truncate(fd, size))?;
        self.done(result).map(drop)
    }

    fn fadvise(&mut self, fd: u32, offset: u64, len: u64, advice: FileAdvice) -> Result<(), Errno> {
        let (file, _) = self.sim.kernel.file(&self.task, fd)?;
        let tell = |this: &Self, _: Result<u64, Errno>| {
            if advice == FileAdvice::DontNeed {
                this.not_needed(file, offset / PAGE_SIZE, if len == 0 { u64::MAX } else { pages_of(len) });
            }
        };
        self.make(Call::Fadvise(fd, offset, len, advice), tell).map(drop)
    }

    /// In two halves, between which other tasks may run.
    fn fork(&mut self, role: Role) -> Result<TaskHandle, Errno> {
        let since = self.sim.newest();
        self.enter();
        let child = self.sim.kernel.fork_space(&self.task);
        self.leave();
        if let Ok(child) = child {
            self.oracle(|oracle| oracle.fork(self.space.0, child.0, since));
        }
        let child = self.done(child)?;
        let started = self.sim.kernel.start_child(&self.task, child, role)?;
        Ok(TaskHandle(unpair(started).0))
    }

    fn sleep(&mut self, nanos: u64) {
        let picos = nanos.saturating_mul(1000).min(END);
        if self.is_dead() {
            // The task is about to end, but time must pass: a task that sleeps until others have made progress must see
            // their progress.
            self.machine.this_cpu().spend(picos);
            self.machine.yield_if_due();
            return;
        }
        let until = self.machine.clock() + picos;
        self.machine.sleep(Key::Mm(WaitKey::Timer), Some(until));
        self.task_work();
    }

    fn spin_barrier(&mut self, id: u32, tasks: u32) {
        let kernel = &self.sim.kernel;
        let Some(before) = kernel.come_to_barrier(&self.task, id, tasks) else { return };
        while !kernel.has_opened(id, before) {
            // Nothing changes until another CPU runs.
            let (cpu, limit) = (self.machine.this_cpu(), self.machine.limit.get());
            let spun = limit.saturating_sub(cpu.clock.get()).clamp(SPIN, LONGEST_SPIN);
            cpu.spend(spun);
            if let Some(profile) = self.machine.observers.tasks() {
                profile.note_part(Part::Spin, 1, spun);
            }
            if self.reschedule().is_err() {
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

    fn devices_may_fail(&self) -> bool {
        self.machine.spec().may_fail()
    }

    fn memory(&self) -> u64 {
        self.machine.spec().memory()
    }

    fn seed(&self) -> u64 {
        program::rng::task_seed(self.sim.config.seed, self.sim.number_for_seed(self.task.number()))
    }

    fn progress(&mut self, units: u64) {
        self.progress += units;
    }

    fn first_content(&mut self, addr: u64, packed: Packed) {
        if let Some(packing) = &self.machine.observers.packing {
            packing.borrow_mut().tell((self.space.0, Vpn::of(addr).0), None, packed);
        }
    }

    /// A page that holds zeroes has the stamp of a new page from now on. If it is clean, it was written to its device
    /// since the store that made it so: then it stays what it is there.
    fn content(&mut self, addr: u64, packed: Packed) {
        let Some(packing) = &self.machine.observers.packing else { return };
        let (space, vpn) = (self.space, Vpn::of(addr));
        let mapped = self.machine.look_up_entry(self.sim.mm().root(space), vpn);
        let changes = |entry: Entry| packed != Packed::ZERO || entry.has(Bits::DIRTY);
        let own = mapped
            .filter(|&(pfn, entry)| pfn != self.sim.mm().core().zero && changes(entry))
            .map(|(pfn, _)| pfn);
        packing.borrow_mut().tell((space.0, vpn.0), own, packed);
        if let (Packed::ZERO, Some(pfn), Some(content)) = (packed, own, &self.machine.observers.content) {
            content.borrow_mut().set(pfn, 0);
            self.oracle(|oracle| oracle.store(space.0, vpn.0, 0, || self.store_target(pfn)));
        }
    }

    fn rate(&mut self, bytes: u64, nanos: u64) {
        let rate = (u128::from(bytes) * 1_000_000_000 / 1024 / u128::from(nanos.max(1))) as u64;
        add(&self.machine.observers.throughput, rate);
    }

    fn took(&mut self, nanos: u64) {
        self.machine.observers.operations.borrow_mut().record(nanos);
    }
}
