//! The simulated machine: [`SimMachine`] is what the memory manager sees of it.
//!
//! One thread of the host plays all CPUs. At any moment one of them is *current*; what is charged moves its clock.
//! While a CPU answers an interrupt from another, it is the current one, and the cost falls on its clock.

mod host;
mod io;
mod observed;
mod point;

use crate::config::RunConfig;
use crate::coroutine;
use crate::cpu::{Class, Cpu, END, add};
use crate::device::Device;
use crate::flush_fault::FlushFaults;
use crate::memory::Memory;
use crate::observers::Observers;
use crate::preempt::Preempt;
use crate::profile::{Kind, Turn};
use crate::sched::{Key, Picked, Sched, TaskId};
use crate::spec::{Hardware, MachineSpec};
use crate::tables::Tables;
use crate::timeline::Happening;
use crate::tlb::Tlb;
use crate::waiting::Waiting;
use kernel::Task;
use mm::event::Event;
use mm::knobs::Knob;
use mm::machine::{
    Asid, Broadcast, Compressor, CpuSet, Flush, Io, Machine, MemoryRange, ObjectPlace, Reads, RemoteCall,
    Scope, SharedLine, Stall, TablePage, Ticket, WaitKey, Work, ZoneSight,
};
use mm::units::{CpuId, GroupId, Nanos, NodeId, Pfn, SpaceId};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// The simulated machine.
pub struct SimMachine {
    pub(crate) spec: MachineSpec,
    pub(crate) cpus: Rc<[Cpu]>,
    /// The same CPUs, or none if they may be stopped (`preempt`): so `charge`, the most frequent call of all, needs one
    /// test to find the CPU and to learn that it does not stop.
    unstopped: Rc<[Cpu]>,
    pub(crate) current: Cell<usize>,
    pub(crate) class: Cell<Class>,
    /// The current CPU runs until its clock passes this.
    pub(crate) limit: Cell<u64>,
    /// CPUs run in turn: asked for at each access, so not of the scheduler.
    pub(crate) in_turn: bool,
    pub(crate) task: Cell<TaskId>,
    pub(crate) sched: RefCell<Sched>,
    /// Tasks of programs that have no coroutine yet.
    pub(crate) new_tasks: RefCell<Vec<Arc<Task>>>,
    pub(crate) devices: RefCell<Vec<Device>>,
    pub(crate) tables: Tables,
    pub(crate) memory: Memory,
    /// Units of work that were done, by kind.
    pub(crate) work: [Cell<u64>; Work::COUNT],
    pub(crate) observers: Observers,
    /// Stops CPUs in the middle of their work, if the run asks for that.
    pub(crate) preempt: Option<Rc<Preempt>>,
    /// Lets CPUs wait for each other's locks, if the run asks for that.
    pub(crate) waiting: Option<Rc<Waiting>>,
    /// The CPU that wrote each frame's record last, + 1; empty if nobody waits.
    frame_writers: Rc<[Cell<u16>]>,
    /// Whether an observer, or `preempt`, wants to know of scopes.
    watches_scopes: bool,
    pub(crate) flush_faults: FlushFaults,
    pub(crate) stopping: Cell<bool>,
}

impl SimMachine {
    /// An idle machine of `spec`, with what a run of `config` needs; it ignores the configuration's own machine. It
    /// compresses if it knows the contents of pages. An error if an observer that `config` asks for cannot watch this
    /// machine.
    pub(crate) fn new(spec: MachineSpec, config: &RunConfig, contents: bool) -> Result<SimMachine, String> {
        let observers = Observers::new(&spec, config, contents)?;
        let node = |id: usize| std::iter::repeat_n(id as u8, spec.nodes()[id].cpus as usize);
        let nodes: Vec<u8> = (0..spec.nodes().len()).flat_map(node).collect();
        let mut sched = Sched::new(nodes.clone());
        if config.in_turn {
            sched.run_in_turn(config.devices_pace);
        }
        let cpus: Rc<[Cpu]> = nodes
            .iter()
            .zip(&sched.clocks)
            .map(|(&node, clock)| Cpu::new(clock.clone(), node, spec.tlb()))
            .collect();
        let device = |(device, id): (_, u64)| {
            let stream = id << 32 | u64::from(config.boot) << 48;
            Device::new(device, config.seed.wrapping_add(stream))
        };
        let devices = spec.devices().iter().zip(0..).map(device).collect();
        let preempt = config.preempt.map(|every| Rc::new(Preempt::new(every, config.seed)));
        let contends = config.knobs.iter().rfind(|(knob, _)| *knob == Knob::TimeContention);
        let contends = contends.map_or(Knob::TimeContention.info().default, |&(_, value)| value) != 0;
        let waiting = (contends && preempt.is_none() && cpus.len() > 1).then(|| {
            let profile = observers.profile.clone();
            Rc::new(Waiting::new(cpus.clone(), spec.end_pfn(), spec.costs(), profile))
        });
        Ok(SimMachine {
            frame_writers: waiting.as_ref().map(|waiting| waiting.frame_writers()).unwrap_or_default(),
            waiting,
            unstopped: if preempt.is_none() { cpus.clone() } else { Rc::default() },
            current: Cell::new(0),
            class: Cell::new(Class::System),
            limit: Cell::new(u64::MAX),
            in_turn: config.in_turn,
            task: Cell::new(0),
            sched: RefCell::new(sched),
            new_tasks: RefCell::default(),
            devices: RefCell::new(devices),
            tables: Tables::new(spec.end_pfn()),
            memory: Memory::new(&spec, cpus.len()),
            work: std::array::from_fn(|_| Cell::new(0)),
            watches_scopes: observers.watches_scopes() || preempt.is_some(),
            observers,
            preempt,
            flush_faults: FlushFaults::new(config.flush_fault),
            stopping: Cell::new(false),
            cpus,
            spec,
        })
    }

    /// Its description.
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// The current CPU.
    #[inline(always)]
    pub(crate) fn this_cpu(&self) -> &Cpu {
        &self.cpus[self.current.get()]
    }

    /// The clock of the current CPU, in picoseconds.
    #[inline(always)]
    pub(crate) fn clock(&self) -> u64 {
        self.this_cpu().clock.get()
    }

    /// The memory manager may name frames of the machine only.
    #[inline]
    fn assert_frames(&self, pfn: Pfn, pages: u32) {
        let end = self.tables.frames();
        assert!(
            pages > 0 && pfn.index() + pages as usize <= end,
            "{pages} frames from {pfn} must be below {end}"
        );
    }

    /// How much of `picos` of user mode the current CPU works in one go. One that runs in turn with others stops where
    /// its turn ends, or where something happens.
    #[inline]
    pub(crate) fn in_one_go(&self, picos: u64) -> u64 {
        match self.in_turn {
            true => picos.min(self.limit.get().saturating_sub(self.clock()).max(1)),
            false => picos,
        }
    }

    /// Kernel work takes time on the current CPU.
    #[inline]
    fn spend_kernel(&self, picos: u64) {
        self.this_cpu().spend_kernel(self.class.get(), picos);
    }

    #[cold]
    #[inline(never)]
    fn spend_and_stop(&self, picos: u64) {
        self.spend_kernel(picos);
        self.point();
    }

    /// Something with a cost of the hardware's happens on the current CPU, `count` times.
    fn spend_hardware(&self, item: Hardware, count: u64) {
        let picos = self.spec.costs().hardware(item) * count;
        self.spend_kernel(picos);
        self.observers.spent(Kind::Hardware(item), count, picos);
    }

    /// The current CPU begins to run the task that was picked for it, in `class`.
    pub(crate) fn begin_turn(&self, picked: Picked, class: Class) {
        self.class.set(class);
        if let Some(waiting) = &self.waiting {
            waiting.begin_turn(self.current.get(), class);
        }
        // Switching to the task and back belongs to the class, not to the place in which the task was left.
        self.profiled(|profile| {
            let (Picked { task, switched, .. }, cpu) = (picked, self.this_cpu());
            profile
                .begin_turn(class, &Turn { task, switched, woken: self.sched.borrow().ready_at(task), cpu });
        });
        self.task.set(picked.task);
        self.limit.set(picked.limit.min(END));
        if picked.switched {
            self.unplug();
            add(&self.this_cpu().counts.switches, 1);
            self.spend_hardware(Hardware::ContextSwitch, 1);
        }
    }

    /// Picoseconds that `cpu`, the current CPU, takes to read `lines` cache lines of a page from memory.
    pub(crate) fn memory_time(&self, cpu: &Cpu, pfn: Pfn, lines: u64) -> u64 {
        let sampler = &self.memory.sampler;
        if sampler.is_on()
            && let Some(half_full) = sampler.read(self.current.get(), pfn, lines)
        {
            cpu.spend(self.spec.costs().hardware(Hardware::Sample));
            if half_full {
                self.wake_key(Key::Mm(WaitKey::Kpromoted));
            }
        }
        self.memory.read(cpu, pfn, lines)
    }

    #[cold]
    #[inline(never)]
    fn write_shared(&self, line: SharedLine) {
        if let Some(waiting) = &self.waiting {
            waiting.write(line);
        }
    }

    #[cold]
    #[inline(never)]
    fn write_frame(&self, writer: &Cell<u16>) {
        if let Some(waiting) = &self.waiting {
            waiting.write_frame(writer);
        }
    }

    /// The current CPU switches to a space; `None`: to a kernel task or to idle. Returns whether it ran another.
    pub(crate) fn run_space(&self, space: Option<SpaceId>) -> bool {
        let switches = self.this_cpu().loaded.replace(space) != space;
        if switches {
            self.observers.runs(self.current.get(), space);
        }
        switches
    }

    /// Whether a flush of the current CPU goes wrong, as the configuration asks for.
    fn flush_fails(&self, what: Flush) -> bool {
        let remote = self.class.get() == Class::Interrupt;
        self.flush_faults.strikes((self.current.get(), self.this_cpu()), what, remote)
    }

    /// Do `work` on the current CPU without accounting time or work.
    pub(crate) fn unaccounted<T>(&self, work: impl FnOnce() -> T) -> T {
        let (clock, kernel) = (&self.this_cpu().clock, &self.this_cpu().kernel[self.class.get() as usize]);
        let times = (clock.get(), kernel.get());
        let counts = self.work.each_ref().map(Cell::get);
        self.profiled(|profile| profile.mute(true));
        self.observers.mute(true);
        self.waiting.iter().for_each(|waiting| waiting.mute(true));
        let result = self.stoppable(false, work);
        self.waiting.iter().for_each(|waiting| waiting.mute(false));
        clock.set(times.0);
        kernel.set(times.1);
        self.work.iter().zip(counts).for_each(|(now, before)| now.set(before));
        self.observers.mute(false);
        self.profiled(|profile| profile.mute(false));
        result
    }

    /// Do `work` as `cpu`, in `class`.
    pub(crate) fn on<T>(&self, cpu: usize, class: Class, work: impl FnOnce() -> T) -> T {
        let before = (self.current.replace(cpu), self.class.replace(class));
        let go_on = |cpu, class| self.waiting.iter().for_each(|waiting| waiting.go_on(cpu, class));
        go_on(cpu, class);
        let place = self.profiled(|profile| profile.go_to_root(class));
        let result = self.stoppable(false, work);
        if let Some(place) = place {
            self.profiled(|profile| profile.go_to(place));
        }
        self.current.set(before.0);
        self.class.set(before.1);
        go_on(before.0, before.1);
        result
    }

    /// An interrupt comes to `cpu` at `now`. If that CPU is idle, it has been so until then.
    pub(crate) fn interrupt<T>(&self, cpu: usize, now: u64, work: impl FnOnce() -> T) -> T {
        {
            let mut sched = self.sched.borrow_mut();
            if sched.is_idle(cpu) {
                sched.end_idle(cpu, now);
            }
        }
        self.on(cpu, Class::Interrupt, work)
    }

    /// The current task sleeps on `key`. Returns whether it was woken before the deadline (picoseconds).
    pub(crate) fn sleep(&self, key: Key, deadline: Option<u64>) -> bool {
        assert_eq!(mm::lock::held(), 0, "a task must not sleep on {key:?} with locks held");
        assert_ne!(self.class.get(), Class::Interrupt, "an interrupt must not sleep on {key:?}");
        let task = self.task.get();
        self.unplug();
        let since = self.clock();
        if let Some(profile) = self.observers.tasks() {
            profile.sleeps(self.sleep_on(key));
        }
        self.sched.borrow_mut().block(self.current.get(), key, deadline);
        coroutine::suspend();
        self.observers.was_away(self.clock().saturating_sub(since));
        self.sched.borrow().was_woken(task)
    }

    /// Wake all tasks that sleep on `key`.
    pub(crate) fn wake_key(&self, key: Key) {
        let woke = self.sched.borrow_mut().wake(self.clock(), key);
        if woke {
            self.lower_limit();
        }
    }

    /// The current CPU waits for answers of `targets`. If CPUs run in turn, busy ones answer when they have theirs.
    fn give_up_turn(&self, targets: &CpuSet) {
        if self.in_turn {
            let cpu = self.current.get();
            let mut sched = self.sched.borrow_mut();
            if targets.iter().any(|target| !sched.is_idle(target.index())) {
                sched.give_up_turn(cpu);
                self.limit.set(self.limit.get().min(sched.limit(cpu)));
            }
        }
    }

    /// The scheduler's plans have changed: the current CPU may have to stop earlier.
    pub(crate) fn lower_limit(&self) {
        let limit = self.sched.borrow().limit(self.current.get());
        self.limit.set(self.limit.get().min(limit));
    }

    /// How long the task that runs has run.
    pub(crate) fn ran(&self) -> Nanos {
        self.sched.borrow().ran(self.current.get()) / 1000
    }

    /// Let the scheduler choose what runs next, if the current CPU has passed its limit. Returns whether it has.
    #[inline]
    pub(crate) fn yield_if_due(&self) -> bool {
        let due = self.clock() >= self.limit.get();
        if due {
            assert_eq!(mm::lock::held(), 0, "a CPU must not let others run with locks held");
            coroutine::suspend();
        }
        due
    }
}

impl AsRef<SimMachine> for SimMachine {
    fn as_ref(&self) -> &SimMachine {
        self
    }
}

impl Machine for SimMachine {
    fn cpus(&self) -> usize {
        self.cpus.len()
    }

    #[inline]
    fn node_of(&self, cpu: CpuId) -> NodeId {
        NodeId(self.cpus[cpu.index()].node)
    }

    fn memory(&self) -> &[MemoryRange] {
        self.spec.ranges()
    }

    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        self.spec.distance(from.index(), to.index())
    }

    fn memory_distance(&self, node: NodeId) -> u32 {
        self.spec.memory_distance(node.index())
    }

    #[inline]
    fn cpu(&self) -> CpuId {
        CpuId(self.current.get() as u16)
    }

    fn task(&self) -> u32 {
        // 0 means none.
        self.task.get() + 1
    }

    fn now(&self) -> Nanos {
        self.clock() / 1000
    }

    #[inline]
    fn table(&self, pfn: Pfn) -> &TablePage {
        self.tables.get_or_new(pfn)
    }

    fn zero(&self, pfn: Pfn, pages: u32) {
        self.assert_frames(pfn, pages);
        (0..pages).for_each(|i| self.tables.release(pfn.add(i)));
        self.observers.zeroed(pfn, pages);
        self.point();
    }

    fn copy(&self, to: Pfn, from: Pfn, pages: u32) {
        [to, from].into_iter().for_each(|pfn| self.assert_frames(pfn, pages));
        assert!(
            to.0.abs_diff(from.0) >= pages,
            "frames {from} must not be copied to overlapping frames {to}"
        );
        (0..pages).for_each(|i| self.tables.release(to.add(i)));
        self.observers.copied(&self.spec, to, from, pages);
        self.point();
    }

    fn has_hw_pte_young(&self) -> bool {
        self.spec.cpu().hw_young
    }

    fn has_hw_nonleaf_young(&self) -> bool {
        self.spec.cpu().hw_nonleaf_young
    }

    fn asids(&self) -> usize {
        self.spec.cpu().asids as usize
    }

    fn load_root(&self, root: Pfn, asid: Asid, keep: bool) {
        assert!((asid.0 as usize) < self.asids().max(1), "ASID {} must be one of the machine's", asid.0);
        self.spend_hardware(Hardware::LoadRoot, 1);
        let cpu = self.this_cpu();
        cpu.root.set(root);
        cpu.asid.set(asid);
        // Under its own root the CPU caches nothing new, and keeps what the number had.
        if root.is_some() {
            cpu.roots[asid.0 as usize].set(root);
        }
        let keep = keep && self.asids() > 0 && !cpu.dropped[asid.0 as usize].replace(false);
        cpu.tlb.load(asid.0 as usize, keep || self.flush_fails(Flush::Current));
        self.observers.flushed(self.current.get());
    }

    fn flush(&self, what: Flush) {
        match Tlb::single_pages(what) {
            Some(count) => self.spend_hardware(Hardware::Invlpg, count as u64),
            None => self.spend_hardware(Hardware::FullFlush, 1),
        }
        if !self.flush_fails(what) {
            self.this_cpu().tlb.flush(what);
        }
        self.observers.flushed(self.current.get());
    }

    /// The sender pays for sending, does its own work, and then waits for the slowest answer: delivery, what the
    /// handler took on its CPU, and the way back. A target pays on its own clock, wherever that is.
    fn shootdown(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
        self.point();
        assert!(!targets.contains(self.cpu()), "CPU {} must not send itself a flush", self.current.get());
        let count = targets.len() as u64;
        let sender = self.this_cpu();
        self.spend_hardware(Hardware::IpiSend, 1);
        self.spend_hardware(Hardware::IpiTarget, count);
        add(&sender.counts.rounds, 1);
        add(&sender.counts.ipis_sent, count);
        let sent = sender.clock.get();
        let deliver = self.spec.costs().hardware(Hardware::IpiDeliver);
        self.observers.round(targets, || self.context());
        let mut slowest = 0;
        for target in targets.iter() {
            add(&self.cpus[target.index()].counts.ipis_received, 1);
            let took = self.interrupt(target.index(), sent + deliver, || {
                let start = self.clock();
                self.observers.receives(|| self.context());
                self.spend_hardware(Hardware::IpiReceive, 1);
                self.observers.answer(|| remote(target));
                self.observers.happens(|| self.context(), Happening::Answers);
                self.clock() - start
            });
            slowest = slowest.max(took);
        }
        local();
        self.give_up_turn(targets);
        if count > 0 {
            let answered = sent + deliver + slowest + self.spec.costs().hardware(Hardware::IpiAck);
            let waited = answered.saturating_sub(sender.clock.get());
            self.spend_kernel(waited);
            self.observers.spent(Kind::IpiWait, 1, waited);
        }
    }

    fn has_broadcast_flush(&self) -> bool {
        self.spec.cpu().broadcast_flush
    }

    fn flush_everywhere(&self, what: Broadcast) {
        self.spend_hardware(Hardware::BroadcastFlush, 1);
        let me = self.current.get();
        let mut others = CpuSet::EMPTY;
        (0..self.cpus.len()).filter(|&cpu| cpu != me).for_each(|cpu| others.insert(CpuId(cpu as u16)));
        self.observers.round(&others, || self.context());
        self.observers.flushed(me);
        match what {
            Broadcast::All if !self.flush_fails(Flush::All) => {
                self.cpus.iter().for_each(|cpu| cpu.tlb.flush(Flush::All));
            }
            Broadcast::Of(root, what) if !self.flush_fails(what) => {
                self.cpus.iter().for_each(|cpu| cpu.drop_of(root, what));
            }
            _ => {}
        }
    }

    fn submit(&self, io: Io) {
        self.assert_frames(io.frame, io.pages);
        self.observers.submitted(&io, || self.context());
        if !io.write {
            (0..io.pages).for_each(|i| self.tables.release(io.frame.add(i)));
        }
        let (now, cpu) = (self.clock(), self.current.get());
        let plug = || self.this_cpu().plug.borrow_mut().add(now, io, cpu);
        let joined = plug().or_else(|| {
            self.unplug();
            plug()
        });
        let mut devices = self.devices.borrow_mut();
        let device = &mut devices[io.device.index()];
        device.add_pages(io.write, io.pages);
        if joined == Some(true) {
            device.merged(io.write);
        }
        drop(devices);
        self.point();
    }

    fn is_zero_filled(&self, first: Pfn, pages: u32) -> bool {
        self.observers.is_zero_filled(first, pages)
    }

    fn same_filled(&self, page: Pfn) -> Option<u64> {
        self.observers.same_filled(page)
    }

    fn fill(&self, page: Pfn, word: u64) {
        self.tables.release(page);
        self.observers.filled(page, word);
    }

    fn compress(&self, page: Pfn, by: Compressor) -> u32 {
        self.observers.compressed(page, by)
    }

    fn pack(&self, page: Pfn, object: ObjectPlace) {
        self.observers.packed(page, object);
    }

    fn unpack(&self, object: ObjectPlace, page: Pfn, _: Compressor) {
        self.tables.release(page);
        self.observers.unpacked(object, page);
    }

    fn move_object(&self, from: ObjectPlace, to: ObjectPlace) {
        self.observers.moved_object(from, to);
    }

    fn sample(&self, every: u64) {
        self.memory.sample(every);
    }

    fn take_samples(&self, each: &mut dyn FnMut(Pfn)) -> u64 {
        self.memory.sampler.take(each)
    }

    fn reads_of(&self, node: NodeId) -> Option<Reads> {
        self.memory.reads_of(node)
    }

    fn ticket(&self, key: WaitKey) -> Ticket {
        let mark = self.sched.borrow().mark(Key::Mm(key));
        self.point();
        Ticket { key, mark }
    }

    fn wait(&self, ticket: Ticket, deadline: Option<Nanos>) -> bool {
        self.point();
        if self.sched.borrow().is_stale(ticket) {
            return true;
        }
        let deadline = deadline.map(|nanos| nanos.saturating_mul(1000));
        if deadline.is_some_and(|deadline| deadline <= self.clock()) {
            return false;
        }
        if self.hand_over() && self.sched.borrow().is_stale(ticket) {
            return true;
        }
        self.sleep(Key::Mm(ticket.key), deadline)
    }

    fn wake(&self, key: WaitKey) {
        self.wake_key(Key::Mm(key));
        self.point();
    }

    fn resched(&self) {
        if self.this_cpu().plug.borrow().is_due(self.clock()) {
            self.unplug();
        }
        self.yield_if_due();
    }

    fn stopping(&self) -> bool {
        self.stopping.get()
    }

    #[inline]
    fn charge(&self, work: Work, count: u64) {
        add(&self.work[work as usize], count);
        let picos = self.spec.costs().work(work).wrapping_mul(count);
        match self.unstopped.get(self.current.get()) {
            Some(cpu) => cpu.spend_kernel(self.class.get(), picos),
            None => self.spend_and_stop(picos),
        }
    }

    #[inline]
    fn writes(&self, line: SharedLine) {
        match line {
            // The most frequent case, and one test if nobody waits.
            SharedLine::Frame(pfn) => {
                if let Some(writer) = self.frame_writers.get(pfn.index())
                    && writer.get() != (self.current.get() as u16).wrapping_add(1)
                {
                    self.write_frame(writer);
                }
            }
            _ => self.write_shared(line),
        }
    }

    #[inline]
    fn listens(&self) -> bool {
        self.observers.listens()
    }

    #[inline]
    fn enter(&self, scope: Scope) {
        if self.watches_scopes {
            self.enter_scope(scope);
        }
    }

    #[inline]
    fn leave(&self, scope: Scope) {
        if self.watches_scopes {
            self.leave_scope(scope);
        }
    }

    #[inline]
    fn event(&self, event: Event, args: [u64; 4]) {
        self.observers.event(event, args, || self.context());
    }

    fn stall(&self, kind: Stall, begins: bool) {
        self.sched.borrow_mut().stall(self.current.get(), kind, begins);
    }

    fn space_enters(&self, space: SpaceId, groups: &[GroupId]) {
        self.sched.borrow_mut().space_enters(self.clock(), space, groups);
    }

    fn looks_at_zones(&self) -> bool {
        self.observers.moves.is_some()
    }

    fn sees_zone(&self, sight: &ZoneSight<'_>) {
        self.observers.see_zone(self.task.get(), sight);
    }
}

#[cfg(test)]
mod tests;
