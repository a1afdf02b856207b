//! The simulated machine: [`SimMachine`] is what the memory manager sees of it.
//!
//! One thread of the host plays all CPUs. At any moment one of them is *current*; what is charged moves its clock.
//! While a CPU answers an interrupt from another, it is the current one, and the cost falls on its clock.

mod faults;
mod io;
mod load;
mod memory;
mod sample;

use crate::bound::Bound;
use crate::content::Content;
use crate::coroutine;
use crate::device::{Device, Plug};
use crate::histogram::Histogram;
use crate::moves::Moves;
use crate::optimum::Optimum;
use crate::placement::Placement;
use crate::preempt::Preempt;
use crate::profile::{Kind, Profiler};
use crate::run::RunConfig;
use crate::sched::{Key, Sched, TaskId};
use crate::spec::{Hardware, MachineSpec};
use crate::tables::Tables;
use crate::tlb::Tlb;
use load::Load;
use mm::event::Event;
use mm::machine::{
    Asid, CpuSet, Flush, Io, Machine, MemoryRange, Reads, RemoteCall, Scope, TablePage, Ticket, WaitKey,
    Work, ZoneSight,
};
use mm::units::{CpuId, Nanos, NodeId, PAGE_SIZE, Pfn, SpaceId};
use sample::Sampler;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// On whose behalf a CPU works in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    /// A program's: system calls and faults.
    System,
    /// kswapd's.
    Kswapd,
    /// The flusher's.
    Flusher,
    /// Another CPU's, or a device's.
    Interrupt,
}

const CLASSES: usize = 4;

/// What a CPU's translation hardware has counted.
#[derive(Default)]
pub(crate) struct CpuCounts {
    pub(crate) dtlb_misses: Cell<u64>,
    pub(crate) itlb_misses: Cell<u64>,
    pub(crate) walks: Cell<u64>,
    pub(crate) walk_steps: Cell<u64>,
    pub(crate) ipis_sent: Cell<u64>,
    pub(crate) ipis_received: Cell<u64>,
    pub(crate) rounds: Cell<u64>,
    pub(crate) switches: Cell<u64>,
}

/// One CPU.
pub(crate) struct Cpu {
    /// Picoseconds.
    pub(crate) clock: Rc<Cell<u64>>,
    pub(crate) tlb: Tlb,
    pub(crate) root: Cell<Pfn>,
    /// The space that the scheduler last asked for.
    pub(crate) loaded: Cell<Option<SpaceId>>,
    pub(crate) counts: CpuCounts,
    /// When its clock ticks next, if ticks do anything.
    pub(crate) next_tick: Cell<u64>,
    plug: RefCell<Plug>,
    /// Picoseconds in the kernel, by class.
    pub(crate) kernel: [Cell<u64>; CLASSES],
    node: u8,
}

impl Cpu {
    /// Time passes on this CPU.
    #[inline(always)]
    pub(crate) fn spend(&self, picos: u64) {
        self.clock.set(self.clock.get().wrapping_add(picos));
    }

    /// It passes for kernel work. (64 bits of picoseconds are 213 days: nothing here checks for overflow.)
    #[inline(always)]
    fn spend_kernel(&self, class: Class, picos: u64) {
        self.spend(picos);
        let class = &self.kernel[class as usize];
        class.set(class.get().wrapping_add(picos));
    }
}

/// A flush that is to go wrong: the oracle's own test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// Which flush, counted from 1 over all CPUs.
    pub nth: u64,
    /// Count only flushes done for another CPU's request (`Some(true)`), only others (`Some(false)`), or all.
    pub remote: Option<bool>,
    /// `None`: the flush never happens. `Some`: it happens that many nanoseconds late.
    pub delay: Option<Nanos>,
}

/// The simulated machine.
pub struct SimMachine {
    pub(crate) spec: MachineSpec,
    pub(crate) cpus: Rc<[Cpu]>,
    /// The same; none where CPUs may be stopped (`preempt`). Of all calls `charge` is the most frequent: who has to
    /// look for the CPU here need not ask whether it stops.
    unstopped: Rc<[Cpu]>,
    pub(crate) current: Cell<usize>,
    pub(crate) class: Cell<Class>,
    /// The current CPU runs on until its clock passes this.
    pub(crate) limit: Cell<u64>,
    pub(crate) task: Cell<TaskId>,
    pub(crate) sched: RefCell<Sched>,
    pub(crate) devices: RefCell<Vec<Device>>,
    pub(crate) tables: Tables,
    pub(crate) content: Option<RefCell<Content>>,
    /// Counts what any safe policy would need; `None`: nobody asked.
    pub(crate) bound: Option<RefCell<Bound>>,
    /// Counts how few refaults there could have been; `None`: nobody asked.
    pub(crate) optimum: Option<RefCell<Optimum>>,
    /// Holds compactions against the fewest pages to be moved; `None`: nobody asked.
    pub(crate) moves: Option<RefCell<Moves>>,
    /// Holds placement in tiers against the best there could be; `None`: nobody asked.
    pub(crate) placement: Option<RefCell<Placement>>,
    /// The first translation that was held where none could be, in words.
    pub(crate) held_over: RefCell<Option<String>>,
    /// Keeps a tree of where CPU time went; `None`: nobody asked.
    profile: Option<Box<Profiler>>,
    /// Stops CPUs in the middle of their work; `None`: nobody asked.
    pub(crate) preempt: Option<Rc<Preempt>>,
    /// Are scopes told to anybody?
    scopes: bool,
    /// Are events of what CPUs may hold told to anybody?
    listens: bool,
    /// Does the current CPU flush because another asked it to?
    answering: Cell<bool>,
    pub(crate) stopping: Cell<bool>,
    /// Nanoseconds that takes of frames waited for a payment.
    pub(crate) takeoff: RefCell<Histogram>,
    /// How long the program's own operations took, as it says.
    pub(crate) operations: RefCell<Histogram>,
    /// What the program's tasks came to, by their own measure, in KiB a second.
    pub(crate) throughput: Cell<u64>,
    /// How old debts were when they were paid, in nanoseconds.
    pub(crate) age: RefCell<Histogram>,
    /// Units of work done and picoseconds spent on it.
    pub(crate) work: [Cell<u64>; Work::COUNT],
    /// For each memory range: its end, the read latency from each node, and the time of a further line.
    latency: Vec<(u32, Vec<u64>, u64)>,
    /// For each memory range: how busy its node is, if that matters; empty: nowhere.
    loads: Vec<Option<Rc<Load>>>,
    /// Lines that programs read of each memory range, as far as tables had to be asked for their pages; empty: nobody
    /// asks.
    pub(crate) read_lines: Vec<Cell<u64>>,
    sampler: Sampler,
    fault: Option<Fault>,
    flushes: Cell<u64>,
    late: RefCell<Vec<(u64, usize, Flush, Asid)>>,
    asid: Vec<Cell<Asid>>,
}

impl SimMachine {
    /// A machine at rest, with what a run of `config` needs of it; it is made as `spec` says, not as the configuration
    /// does. An error says why what `config` asks to be counted cannot be, on this machine.
    pub(crate) fn new(spec: MachineSpec, config: &RunConfig) -> Result<SimMachine, String> {
        let placement = config.placement.then(|| memory::placement(&spec)).transpose()?;
        let node = |id: usize| std::iter::repeat_n(id as u8, spec.nodes()[id].cpus as usize);
        let nodes: Vec<u8> = (0..spec.nodes().len()).flat_map(node).collect();
        let sched = Sched::new(nodes.clone());
        let cpu = |(id, &node): (usize, &u8)| Cpu {
            clock: sched.clocks[id].clone(),
            tlb: Tlb::new(spec.tlb()),
            root: Cell::new(Pfn::NONE),
            loaded: Cell::new(None),
            counts: CpuCounts::default(),
            next_tick: Cell::new(0),
            plug: RefCell::default(),
            kernel: Default::default(),
            node,
        };
        let frames = spec.ranges().last().map_or(0, |range| range.start.0 + range.frames) as usize;
        let memory = spec.memory() / PAGE_SIZE;
        // Of tiers of memory it is of interest.
        let tiers = spec.nodes().iter().any(|node| node.cpus == 0);
        let read_lines = spec.ranges().iter().filter(|_| tiers).map(|_| Cell::new(0));
        let devices = spec
            .devices()
            .iter()
            .zip(0..)
            .map(|(device, id)| Device::new(device, config.seed.wrapping_add(id << 32)))
            .collect();
        let cpus: Rc<[Cpu]> = nodes.iter().enumerate().map(cpu).collect();
        Ok(SimMachine {
            latency: memory::latencies(&spec),
            loads: memory::loads(&spec),
            read_lines: read_lines.collect(),
            sampler: Sampler::new(nodes.len()),
            unstopped: if config.preempt.is_none() { cpus.clone() } else { Rc::default() },
            cpus,
            current: Cell::new(0),
            class: Cell::new(Class::System),
            limit: Cell::new(u64::MAX),
            task: Cell::new(0),
            sched: RefCell::new(sched),
            devices: RefCell::new(devices),
            tables: Tables::new(frames),
            content: config.verify.then(|| RefCell::new(Content::new(frames))),
            bound: config.bound.then(|| RefCell::new(Bound::new(nodes.len()))),
            optimum: config.optimum.then(|| RefCell::new(Optimum::new(frames, memory))),
            moves: config.moves.then(RefCell::default),
            placement: placement.map(RefCell::new),
            held_over: RefCell::default(),
            profile: config.profile.then(|| Box::new(Profiler::new())),
            preempt: config.preempt.map(|every| Rc::new(Preempt::new(every, config.seed))),
            scopes: config.profile || config.preempt.is_some() || config.moves,
            listens: config.verify || config.bound || config.optimum || config.placement,
            answering: Cell::new(false),
            stopping: Cell::new(false),
            takeoff: RefCell::new(Histogram::new()),
            operations: RefCell::new(Histogram::new()),
            throughput: Cell::new(0),
            age: RefCell::new(Histogram::new()),
            work: std::array::from_fn(|_| Cell::new(0)),
            fault: config.faulty,
            flushes: Cell::new(0),
            late: RefCell::new(Vec::new()),
            asid: nodes.iter().map(|_| Cell::default()).collect(),
            spec,
        })
    }

    /// Its description.
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// The current CPU.
    #[inline(always)]
    pub(crate) fn here(&self) -> &Cpu {
        &self.cpus[self.current.get()]
    }

    /// Kernel work takes time on the current CPU.
    #[inline]
    fn spend_kernel(&self, picos: u64) {
        self.here().spend_kernel(self.class.get(), picos);
    }

    #[cold]
    #[inline(never)]
    fn spend_and_stop(&self, picos: u64) {
        self.spend_kernel(picos);
        self.point();
    }

    /// Does something with the profile, if there is one, after what was done until now has found its place.
    #[inline]
    pub(crate) fn profiled<T>(&self, then: impl FnOnce(&Profiler) -> T) -> Option<T> {
        let profile = self.profile.as_deref()?;
        profile.settle(&self.work, self.spec.costs());
        Some(then(profile))
    }

    #[cold]
    #[inline(never)]
    fn enter_scope(&self, scope: Scope) {
        self.profiled(|profile| profile.enter(scope));
        if let Some(moves) = &self.moves {
            moves.borrow_mut().latency.begins(scope, self.task.get(), self.here().clock.get());
        }
        self.point();
    }

    #[cold]
    #[inline(never)]
    fn leave_scope(&self, scope: Scope) {
        self.profiled(|profile| profile.leave(scope));
        if let Some(moves) = &self.moves {
            moves.borrow_mut().latency.ends(scope, self.task.get());
        }
        self.point();
    }

    /// The current CPU goes over to a space, or to a kernel task or to nothing. Was it elsewhere?
    pub(crate) fn run_space(&self, space: Option<SpaceId>) -> bool {
        let cpu = self.here();
        let moves = cpu.loaded.replace(space) != space;
        if moves && let Some(bound) = &self.bound {
            bound.borrow_mut().runs(self.current.get(), space);
        }
        moves
    }

    /// The bound is told that the current CPU drops translations.
    fn tell_of_flush(&self) {
        if let Some(bound) = &self.bound
            && !self.answering.get()
        {
            bound.borrow_mut().flushes(self.current.get());
        }
    }

    /// Look at something on the current CPU without time or work being counted.
    pub(crate) fn unseen<T>(&self, look: impl FnOnce() -> T) -> T {
        let cpu = self.here();
        let clock = cpu.clock.get();
        let kernel = cpu.kernel[self.class.get() as usize].get();
        let work = self.work.each_ref().map(Cell::get);
        self.profiled(|profile| profile.mute(true));
        let result = self.stoppable(false, look);
        cpu.clock.set(clock);
        cpu.kernel[self.class.get() as usize].set(kernel);
        self.work.iter().zip(work).for_each(|(now, before)| now.set(before));
        self.profiled(|profile| profile.mute(false));
        result
    }

    fn spend_hardware(&self, item: Hardware, count: u64) {
        let picos = self.spec.costs().hardware(item) * count;
        self.spend_kernel(picos);
        if let Some(profile) = &self.profile {
            profile.note(Kind::Hardware(item), count, picos);
        }
    }

    /// Act as `cpu` in `class` while `work` runs.
    pub(crate) fn on<T>(&self, cpu: usize, class: Class, work: impl FnOnce() -> T) -> T {
        let (before, was) = (self.current.replace(cpu), self.class.replace(class));
        let place = self.profiled(|profile| profile.go_to_root(class));
        let result = self.stoppable(false, work);
        if let Some(place) = place {
            self.profiled(|profile| profile.go_to(place));
        }
        self.current.set(before);
        self.class.set(was);
        result
    }

    /// An interrupt comes to `cpu` at `now`: a CPU that is idle has been so until then.
    pub(crate) fn interrupt<T>(&self, cpu: usize, now: u64, work: impl FnOnce() -> T) -> T {
        {
            let mut sched = self.sched.borrow_mut();
            if sched.is_idle(cpu) {
                sched.come_to(cpu, now);
            }
        }
        self.on(cpu, Class::Interrupt, work)
    }

    /// The current task sleeps on `key`; `true` if it was woken, `false` if the deadline (picoseconds) came first.
    pub(crate) fn sleep(&self, key: Key, deadline: Option<u64>) -> bool {
        assert_eq!(mm::lock::held(), 0, "a task sleeps on {key:?} with locks held");
        let task = self.task.get();
        self.unplug();
        let since = self.here().clock.get();
        self.sched.borrow_mut().block(self.current.get(), key, deadline);
        coroutine::suspend();
        if let Some(profile) = &self.profile {
            profile.was_away(self.here().clock.get().saturating_sub(since));
        }
        self.sched.borrow().was_woken(task)
    }

    /// Wake who sleeps on `key`.
    pub(crate) fn wake_key(&self, key: Key) {
        let now = self.here().clock.get();
        let mut sched = self.sched.borrow_mut();
        if sched.wake(now, key) {
            self.limit.set(self.limit.get().min(sched.limit_now(self.current.get())));
        }
    }

    /// For how long the task that runs has run.
    pub(crate) fn ran(&self) -> Nanos {
        self.sched.borrow().ran(self.current.get()) / 1000
    }

    /// Something else may be due: let the scheduler look, if the current CPU has passed its limit. Has it looked?
    #[inline]
    pub(crate) fn yield_if_due(&self) -> bool {
        let due = self.here().clock.get() >= self.limit.get();
        if due {
            assert_eq!(mm::lock::held(), 0, "others are let run with locks held");
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
        // 0 stands for none.
        self.task.get() + 1
    }

    fn now(&self) -> Nanos {
        self.here().clock.get() / 1000
    }

    #[inline]
    fn table(&self, pfn: Pfn) -> &TablePage {
        self.tables.get_or_new(pfn)
    }

    fn zero(&self, pfn: Pfn, pages: u32) {
        (0..pages).for_each(|i| self.tables.release(pfn.add(i)));
        if let Some(content) = &self.content {
            content.borrow_mut().zero(pfn, pages);
        }
        self.point();
    }

    fn copy(&self, to: Pfn, from: Pfn, pages: u32) {
        (0..pages).for_each(|i| self.tables.release(to.add(i)));
        if let Some(content) = &self.content {
            content.borrow_mut().copy(to, from, pages);
        }
        if let Some(optimum) = &self.optimum {
            optimum.borrow_mut().copied(to, from, pages);
        }
        if let Some(placement) = &self.placement {
            placement.borrow_mut().copied(to, from, pages, [to, from].map(|pfn| self.is_fast(pfn)));
        }
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
        self.spend_hardware(Hardware::LoadRoot, 1);
        let cpu = self.here();
        cpu.root.set(root);
        self.asid[self.current.get()].set(asid);
        let keep = keep && self.asids() > 0;
        cpu.tlb.load(asid.0 as usize, keep || self.goes_wrong(Flush::Current));
        self.tell_of_flush();
    }

    fn flush(&self, what: Flush) {
        match Tlb::single_pages(what) {
            Some(count) => self.spend_hardware(Hardware::Invlpg, count as u64),
            None => self.spend_hardware(Hardware::FullFlush, 1),
        }
        if !self.goes_wrong(what) {
            self.here().tlb.flush(what);
        }
        self.tell_of_flush();
    }

    /// The sender pays for sending, works on, and then waits for the slowest answer: delivery, what the handler took on
    /// its CPU, and the way back. A target pays on its own clock, from wherever that stands.
    fn shootdown(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
        self.point();
        let count = targets.len() as u64;
        let sender = self.here();
        self.spend_hardware(Hardware::IpiSend, 1);
        self.spend_hardware(Hardware::IpiTarget, count);
        sender.counts.rounds.set(sender.counts.rounds.get() + 1);
        sender.counts.ipis_sent.set(sender.counts.ipis_sent.get() + count);
        let sent = sender.clock.get();
        let deliver = self.spec.costs().hardware(Hardware::IpiDeliver);
        if let Some(bound) = &self.bound {
            bound.borrow_mut().round(targets);
        }
        let mut slowest = 0;
        for target in targets.iter() {
            let received = &self.cpus[target.index()].counts.ipis_received;
            received.set(received.get() + 1);
            let took = self.interrupt(target.index(), sent + deliver, || {
                let start = self.here().clock.get();
                self.spend_hardware(Hardware::IpiReceive, 1);
                let before = self.answering.replace(true);
                remote(target);
                self.answering.set(before);
                self.here().clock.get() - start
            });
            slowest = slowest.max(took);
        }
        local();
        if count > 0 {
            let answered = sent + deliver + slowest + self.spec.costs().hardware(Hardware::IpiAck);
            let waited = answered.saturating_sub(sender.clock.get());
            self.spend_kernel(waited);
            if let Some(profile) = &self.profile {
                profile.note(Kind::IpiWait, 1, waited);
            }
        }
    }

    fn has_broadcast_flush(&self) -> bool {
        self.spec.cpu().broadcast_flush
    }

    fn flush_everywhere(&self) {
        self.spend_hardware(Hardware::BroadcastFlush, 1);
        let me = self.current.get();
        let mut others = CpuSet::EMPTY;
        (0..self.cpus.len()).filter(|&cpu| cpu != me).for_each(|cpu| others.insert(CpuId(cpu as u16)));
        if let Some(bound) = &self.bound {
            bound.borrow_mut().round(&others);
        }
        self.tell_of_flush();
        if !self.goes_wrong(Flush::All) {
            self.cpus.iter().for_each(|cpu| cpu.tlb.flush(Flush::All));
        }
    }

    fn submit(&self, io: Io) {
        if let Some(content) = &self.content {
            content.borrow_mut().begin(&io);
        }
        if let Some(optimum) = &self.optimum {
            optimum.borrow_mut().transfer(&io);
        }
        if !io.write {
            (0..io.pages).for_each(|i| self.tables.release(io.frame.add(i)));
        }
        let (now, cpu) = (self.here().clock.get(), self.current.get());
        let add = || self.here().plug.borrow_mut().add(now, io, cpu);
        let joined = add().or_else(|| {
            self.unplug();
            add()
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

    fn sample(&self, every: u64) {
        self.sampler.start(every);
    }

    fn take_samples(&self, each: &mut dyn FnMut(Pfn)) -> u64 {
        self.sampler.take(each)
    }

    fn reads_of(&self, node: NodeId) -> Option<Reads> {
        self.reads_of_node(node)
    }

    fn ticket(&self, key: WaitKey) -> Ticket {
        let mark = self.sched.borrow().mark(key);
        self.point();
        Ticket { key, mark }
    }

    fn wait(&self, ticket: Ticket, deadline: Option<Nanos>) -> bool {
        self.point();
        if self.sched.borrow().stale(ticket) {
            return true;
        }
        let deadline = deadline.map(|nanos| nanos.saturating_mul(1000));
        if deadline.is_some_and(|deadline| deadline <= self.here().clock.get()) {
            return false;
        }
        self.sleep(Key::Mm(ticket.key), deadline)
    }

    fn wake(&self, key: WaitKey) {
        self.wake_key(Key::Mm(key));
        self.point();
    }

    fn resched(&self) {
        let here = self.here();
        if here.plug.borrow().is_due(here.clock.get()) {
            self.unplug();
        }
        self.yield_if_due();
    }

    fn stopping(&self) -> bool {
        self.stopping.get()
    }

    #[inline]
    fn charge(&self, work: Work, count: u64) {
        let total = &self.work[work as usize];
        total.set(total.get().wrapping_add(count));
        let picos = self.spec.costs().work(work).wrapping_mul(count);
        match self.unstopped.get(self.current.get()) {
            Some(cpu) => cpu.spend_kernel(self.class.get(), picos),
            None => self.spend_and_stop(picos),
        }
    }

    #[inline]
    fn listens(&self) -> bool {
        self.listens
    }

    #[inline]
    fn enter(&self, scope: Scope) {
        if self.scopes {
            self.enter_scope(scope);
        }
    }

    #[inline]
    fn leave(&self, scope: Scope) {
        if self.scopes {
            self.leave_scope(scope);
        }
    }

    #[inline]
    fn event(&self, event: Event, args: [u64; 4]) {
        if let (Event::TlbPaid, [kind, took, age, _]) = (event, args) {
            self.age.borrow_mut().record(age);
            if kind == 2 {
                self.takeoff.borrow_mut().record(took);
            }
        }
        if let (Event::MmPageAlloc, Some(moves)) = (event, &self.moves) {
            moves.borrow_mut().latency.has(self.task.get(), args[1], self.here().clock.get());
        }
        if self.listens {
            self.tell(event, args);
        }
    }

    fn looks_at_zones(&self) -> bool {
        self.moves.is_some()
    }

    fn sees_zone(&self, sight: &ZoneSight<'_>) {
        if let Some(moves) = &self.moves {
            moves.borrow_mut().sees(self.task.get(), sight);
        }
    }
}

#[cfg(test)]
mod tests;
