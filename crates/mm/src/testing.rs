//! A machine for unit tests: it records everything, and time passes only on request.

#![allow(dead_code, reason = "each room's tests use a part of it")]

use crate::alloc::{AllocRequest, Reserve};
use crate::api::{Backing, MapRequest, Prot};
use crate::event::Event;
use crate::frame::Mobility;
use crate::lock::Lock;
use crate::machine::*;
use crate::primitive::{AtomicBool, AtomicU16, AtomicU64, Ordering::Relaxed};
use crate::units::*;
use std_alloc::boxed::Box;
use std_alloc::collections::{BTreeMap, VecDeque};
use std_alloc::vec::Vec;

/// Configuration of a long property test: this many cases, unless the environment sets another number.
pub(crate) fn cases(cases: u32) -> proptest::prelude::ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let default = proptest::prelude::ProptestConfig::default();
    if asked { default } else { proptest::prelude::ProptestConfig { cases, ..default } }
}

/// Content of devices, by device and block.
pub(crate) type Blocks = Lock<BTreeMap<(DeviceId, u64), u64>>;

/// A CPU's translation of a page under a number.
type HeldUnder = (CpuId, Asid, Vpn);

/// A function that a test gives to the machine, which CPUs of other threads may call.
#[cfg(feature = "one-thread")]
macro_rules! act {
    ($($act:tt)*) => { Box<dyn $($act)*> };
}
#[cfg(not(feature = "one-thread"))]
macro_rules! act {
    ($($act:tt)*) => { Box<dyn $($act)* + Send> };
}

/// What a test does at each event, before anything else happens.
pub(crate) type Watcher = act!(Fn(&TestMachine, Event, [u64; 4]));
/// What a test does at a moment of the machine.
pub(crate) type Hook = act!(Fn(&TestMachine));
/// What a test does when work of a scope begins.
pub(crate) type Beginning = act!(Fn(&TestMachine, Scope));
/// What a test does once.
type Once = act!(FnOnce());

/// A moment at which a test can let another CPU run ([`TestMachine::at`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Moment {
    /// The memory manager asks which CPU runs it.
    Cpu,
    /// A shootdown is about to be sent.
    Shootdown,
    Charge(Work),
    /// This event is about to be counted.
    Event(Event),
    /// A CPU is about to write to this line.
    Writes(SharedLine),
    /// Tasks that wait for this have just been woken.
    Wake(WaitKey),
}

/// First argument of the `tlb_flush` that the machine itself reports when it flushes all CPUs without asking them.
pub(crate) const BROADCAST: u64 = 99;

/// A zone as compaction shows it: the fields of [`ZoneSight`], and the use and order of all that begins in it.
pub(crate) struct Sight {
    pub zone: ZoneId,
    pub start: Pfn,
    pub frames: u32,
    pub order: Option<Order>,
    pub ended: Option<Compacted>,
    pub uses: BTreeMap<Pfn, (FrameUse, Order)>,
}

/// A machine for unit tests. Tests set the CPU that runs with [`TestMachine::run_on`].
pub(crate) struct TestMachine {
    nodes: Vec<NodeId>,
    memory: Vec<MemoryRange>,
    current: AtomicU16,
    task: AtomicU16,
    clock: AtomicU64,
    tables: Box<[TablePage]>,
    stamps: Box<[AtomicU64]>,
    work: [AtomicU64; Work::COUNT],
    events: [AtomicU64; Event::COUNT],
    /// All flushes, with the CPU of each.
    pub flushes: Lock<Vec<(CpuId, Flush)>>,
    pub shootdowns: Lock<Vec<CpuSet>>,
    /// The loaded space of each CPU: root, number, and whether its translations were kept.
    pub roots: Lock<BTreeMap<CpuId, (Pfn, Asid, bool)>>,
    /// The content of CPUs' TLBs under each number: the frame, and whether it is writable. Set by
    /// [`TestMachine::hold`].
    held: Lock<BTreeMap<HeldUnder, (Pfn, bool)>>,
    /// Whether interrupts are off on the running CPU. Then it cannot send a shootdown.
    pub interrupts_off: AtomicBool,
    /// Transfers that were submitted and not taken by the test yet.
    pub ios: Lock<VecDeque<Io>>,
    /// Called when a wait, or [`TestMachine::end_one`], has ended a transfer. `None`: they end none.
    pub io_done: Option<fn(&Io)>,
    /// The stamps that transfers have written, by device and block.
    blocks: Lock<BTreeMap<(DeviceId, u64), u64>>,
    /// Whether the machine compresses: a page becomes as many bytes as the low 16 bits of its stamp say, three quarters
    /// with zstd; 0 are zeroes,
    /// and the highest bit is set in a stamp that repeats one word.
    pub compresses: bool,
    /// Objects of compressed memory, by where they begin, and their stamps.
    objects: Lock<BTreeMap<(Pfn, u32), (ObjectPlace, u64)>>,
    /// Nodes from this one on have memory of half the speed.
    pub slow_from: NodeId,
    /// Whether all nodes are equally far from each other; else those with close numbers are near.
    pub equally_far: bool,
    /// Whether the machine stops.
    pub stops: AtomicBool,
    wakes: Lock<BTreeMap<WaitKey, u64>>,
    /// Whether the machine has young bits: of pages, of tables.
    pub young: (bool, bool),
    /// Address-space numbers of each CPU.
    pub asids: usize,
    /// Broadcast flushes so far, if the machine can flush all CPUs without asking.
    pub broadcast: Option<Lock<Vec<Broadcast>>>,
    /// Called at every event except those that it causes itself.
    pub watcher: Lock<Option<Watcher>>,
    /// Called when a scope is entered.
    pub entered: Lock<Option<Beginning>>,
    /// The action of [`TestMachine::at`].
    at: Lock<Option<(Moment, Once)>>,
    /// Called when a CPU has just flushed and has done nothing since.
    pub flushed: Lock<Option<Hook>>,
    /// Called when a transfer has just been submitted.
    pub submitted: Lock<Option<Hook>>,
    /// Called when a task is about to sleep and a transfer, for example, could end its sleep.
    pub idle: Lock<Option<Hook>>,
    /// Zones that were shown so far, if the machine looks at them.
    pub sights: Lock<Option<Vec<Sight>>>,
    /// Frames that are sampled next.
    pub samples: Lock<Vec<Pfn>>,
    /// Reads of each node whose latency the machine models.
    pub reads: Lock<BTreeMap<NodeId, Reads>>,
}

impl TestMachine {
    /// A machine whose CPU `i` is on node `nodes[i]`.
    pub fn new(nodes: &[u8], memory: &[MemoryRange]) -> TestMachine {
        let end = memory.iter().map(|range| range.start.index() + range.frames as usize).max().unwrap_or(0);
        TestMachine {
            nodes: nodes.iter().copied().map(NodeId).collect(),
            memory: memory.to_vec(),
            current: AtomicU16::new(0),
            task: AtomicU16::new(0),
            clock: AtomicU64::new(0),
            tables: bytemuck::zeroed_slice_box(end),
            stamps: bytemuck::zeroed_slice_box(end),
            work: core::array::from_fn(|_| AtomicU64::new(0)),
            events: core::array::from_fn(|_| AtomicU64::new(0)),
            flushes: Lock::default(),
            shootdowns: Lock::default(),
            roots: Lock::default(),
            held: Lock::default(),
            interrupts_off: AtomicBool::new(false),
            ios: Lock::default(),
            io_done: None,
            blocks: Lock::default(),
            compresses: false,
            objects: Lock::default(),
            slow_from: NodeId(u8::MAX),
            equally_far: false,
            stops: AtomicBool::new(false),
            wakes: Lock::default(),
            young: (true, true),
            asids: 6,
            broadcast: None,
            watcher: Lock::default(),
            entered: Lock::default(),
            at: Lock::default(),
            flushed: Lock::default(),
            submitted: Lock::default(),
            idle: Lock::default(),
            sights: Lock::default(),
            samples: Lock::default(),
            reads: Lock::default(),
        }
    }

    /// `cpus` CPUs on one node with one Normal zone of `frames` frames.
    pub fn simple(cpus: usize, frames: u32) -> TestMachine {
        TestMachine::new(&std_alloc::vec![0; cpus], &[range(0, ZoneKind::Normal, 0, frames)])
    }

    pub fn run_on(&self, cpu: u16) {
        assert!((cpu as usize) < self.nodes.len());
        self.current.store(cpu, Relaxed);
    }

    pub fn run_task(&self, task: u16) {
        self.task.store(task, Relaxed);
    }

    /// Let time pass.
    pub fn advance(&self, by: Nanos) {
        self.clock.fetch_add(by, Relaxed);
    }

    /// Set the clock of the running CPU.
    pub fn set_clock(&self, now: Nanos) {
        self.clock.store(now, Relaxed);
    }

    /// The content of a frame: 0 after [`Machine::zero`].
    pub fn stamp(&self, pfn: Pfn) -> u64 {
        self.stamps[pfn.index()].load(Relaxed)
    }

    /// Write to a frame.
    pub fn set_stamp(&self, pfn: Pfn, value: u64) {
        self.stamps[pfn.index()].store(value, Relaxed);
    }

    /// The stamp of a block of a device.
    pub fn block(&self, device: DeviceId, block: u64) -> u64 {
        self.blocks.lock().get(&(device, block)).copied().unwrap_or(virgin(device, block))
    }

    /// End the oldest transfer. Returns `false` if there is none.
    pub fn end_one(&self) -> bool {
        let Some(done) = self.io_done else { return false };
        let Some(io) = self.ios.lock().pop_front() else { return false };
        for i in (0..io.pages).filter(|_| !io.write) {
            self.set_stamp(io.frame.add(i), self.block(io.device, io.block + i as u64));
        }
        done(&io);
        true
    }

    /// The running CPU uses a page of the space that it has loaded, and caches the translation.
    pub fn hold(&self, page: Vpn, pfn: Pfn, writable: bool) {
        let cpu = self.cpu();
        let asid = self.roots.lock()[&cpu].1;
        self.held.lock().insert((cpu, asid, page), (pfn, writable));
    }

    /// The translation of a page that the TLB of a CPU holds for the loaded space.
    pub fn held(&self, cpu: CpuId, page: Vpn) -> Option<(Pfn, bool)> {
        let &(root, asid, _) = self.roots.lock().get(&cpu)?;
        let held = self.held.lock();
        held.get(&(cpu, asid, page)).copied().filter(|_| root.is_some())
    }

    /// CPUs that can reach one of these frames through cached translations of the loaded space.
    pub fn readers(&self, first: Pfn, pages: u32) -> Vec<CpuId> {
        let roots = self.roots.lock();
        let reads = |&(cpu, asid, _): &HeldUnder, pfn: Pfn| {
            let (root, loaded, _) = roots[&cpu];
            root.is_some() && loaded == asid && (first..first.add(pages)).contains(&pfn)
        };
        self.held.lock().iter().filter(|(key, held)| reads(key, held.0)).map(|(key, _)| key.0).collect()
    }

    /// Run a test's action, but not at events that the action causes.
    fn call(&self, hook: &Lock<Option<Hook>>) {
        let taken = hook.lock().take();
        if let Some(act) = taken {
            act(self);
            *hook.lock() = Some(act);
        }
    }

    /// Run `act` when this moment comes for the first time from now on.
    #[cfg(feature = "one-thread")]
    pub fn at(&self, moment: Moment, act: impl FnOnce() + 'static) {
        *self.at.lock() = Some((moment, Box::new(act)));
    }

    /// Run `act` when this moment comes for the first time from now on.
    #[cfg(not(feature = "one-thread"))]
    pub fn at(&self, moment: Moment, act: impl FnOnce() + Send + 'static) {
        *self.at.lock() = Some((moment, Box::new(act)));
    }

    /// Run the test's action for this moment.
    fn reach(&self, moment: Moment) {
        let taken = self.at.lock().take_if(|(at, _)| *at == moment);
        if let Some((_, act)) = taken {
            act();
        }
    }

    /// The stamp of an object of compressed memory.
    pub fn object(&self, place: ObjectPlace) -> u64 {
        let (found, stamp) = self.objects.lock()[&(place.frame, place.offset)];
        assert_eq!(found, place, "an object is read as it was written");
        stamp
    }

    /// Take the oldest transfer that has not ended.
    pub fn next_io(&self) -> Option<Io> {
        self.ios.lock().pop_front()
    }

    /// Transfer between frames and the content of devices; `unwritten` is what a block holds at first, if it may be
    /// read then.
    pub fn transfer(&self, io: &Io, blocks: &Blocks, unwritten: Option<u64>) {
        for (pfn, block) in (0..io.pages).map(|i| (io.frame.add(i), (io.device, io.block + u64::from(i)))) {
            if io.write {
                blocks.lock().insert(block, self.stamp(pfn));
            } else {
                self.set_stamp(pfn, blocks.lock().get(&block).copied().or(unwritten).unwrap());
            }
        }
    }

    /// Units of work charged so far.
    pub fn work(&self, work: Work) -> u64 {
        self.work[work as usize].load(Relaxed)
    }

    /// Events of a kind so far.
    pub fn events(&self, event: Event) -> u64 {
        self.events[event as usize].load(Relaxed)
    }

    /// Wake-ups of a key so far.
    pub fn wakes(&self, key: WaitKey) -> u64 {
        self.wakes.lock().get(&key).copied().unwrap_or(0)
    }
}

/// The stamp of a block before anything is written.
pub(crate) fn virgin(device: DeviceId, block: u64) -> u64 {
    (device.0 as u64 + 1) << 32 | block
}

/// A request for a block, with all reserves.
pub(crate) fn block(order: Order, mobility: Mobility) -> AllocRequest {
    AllocRequest { reserve: Reserve::All, ..AllocRequest::of_kernel(mobility, order, NodeId(0)) }
}

/// A request to map pages there, for loads and stores.
pub(crate) fn request(at: Vpn, pages: u64, backing: Backing) -> MapRequest {
    MapRequest { at: Some(at), pages, prot: Prot::RW, backing, locked: false, populate: false }
}

/// A memory range from its node, kind, first frame and number of frames.
pub(crate) fn range(node: u8, kind: ZoneKind, start: u32, frames: u32) -> MemoryRange {
    MemoryRange { node: NodeId(node), kind, start: Pfn(start), frames }
}

impl Machine for TestMachine {
    fn cpus(&self) -> usize {
        self.nodes.len()
    }

    fn node_of(&self, cpu: CpuId) -> NodeId {
        self.nodes[cpu.index()]
    }

    fn memory(&self) -> &[MemoryRange] {
        &self.memory
    }

    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        let steps = from.0.abs_diff(to.0);
        10 + 10 * u32::from(if self.equally_far { steps.min(1) } else { steps })
    }

    fn memory_distance(&self, node: NodeId) -> u32 {
        DRAM_DISTANCE * if node < self.slow_from { 1 } else { 2 }
    }

    fn cpu(&self) -> CpuId {
        self.reach(Moment::Cpu);
        CpuId(self.current.load(Relaxed))
    }

    fn task(&self) -> u32 {
        self.task.load(Relaxed).into()
    }

    fn now(&self) -> Nanos {
        self.clock.load(Relaxed)
    }

    fn table(&self, pfn: Pfn) -> &TablePage {
        &self.tables[pfn.index()]
    }

    fn zero(&self, pfn: Pfn, pages: u32) {
        for pfn in (0..pages).map(|i| pfn.add(i)) {
            self.set_stamp(pfn, 0);
            for entry in self.table(pfn).iter().filter(|entry| entry.load(Relaxed) != 0) {
                entry.store(0, Relaxed);
            }
        }
    }

    fn copy(&self, to: Pfn, from: Pfn, pages: u32) {
        for i in 0..pages {
            self.set_stamp(to.add(i), self.stamp(from.add(i)));
        }
    }

    fn has_hw_pte_young(&self) -> bool {
        self.young.0
    }

    fn has_hw_nonleaf_young(&self) -> bool {
        self.young.1
    }

    fn asids(&self) -> usize {
        self.asids
    }

    fn load_root(&self, root: Pfn, asid: Asid, keep: bool) {
        if !keep {
            let me = self.cpu();
            self.held.lock().retain(|&(cpu, number, _), _| (cpu, number) != (me, asid));
        }
        self.roots.lock().insert(self.cpu(), (root, asid, keep));
    }

    fn flush(&self, what: Flush) {
        let me = self.cpu();
        self.flushes.lock().push((me, what));
        let loaded = self.roots.lock().get(&me).map_or(Asid(0), |root| root.1);
        self.held.lock().retain(|&(cpu, asid, page), _| {
            let named = match what {
                Flush::All => true,
                Flush::Current => asid == loaded,
                Flush::Pages { start, count, stride } => {
                    asid == loaded && (start.0..start.0 + ((count as u64) << stride.0)).contains(&page.0)
                }
            };
            cpu != me || !named
        });
        self.call(&self.flushed);
    }

    fn shootdown(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
        let here = self.cpu();
        assert!(!targets.contains(here), "a shootdown that targets its own CPU");
        assert!(!self.interrupts_off.load(Relaxed), "a shootdown while interrupts are off");
        self.reach(Moment::Shootdown);
        self.shootdowns.lock().push(*targets);
        for cpu in targets.iter() {
            self.run_on(cpu.0);
            remote(cpu);
        }
        self.run_on(here.0);
        local();
    }

    fn has_broadcast_flush(&self) -> bool {
        self.broadcast.is_some()
    }

    fn flush_everywhere(&self, what: Broadcast) {
        self.broadcast.as_ref().expect("only asked for if it can").lock().push(what);
        // For observers: the moment at which other CPUs drop their translations.
        self.event(Event::TlbFlush, [BROADCAST, 0, 0, 0]);
    }

    fn submit(&self, io: Io) {
        for i in (0..io.pages).filter(|_| io.write) {
            self.blocks.lock().insert((io.device, io.block + i as u64), self.stamp(io.frame.add(i)));
        }
        self.ios.lock().push_back(io);
        self.call(&self.submitted);
    }

    fn is_zero_filled(&self, first: Pfn, pages: u32) -> bool {
        self.compresses && (0..pages).all(|page| self.stamp(first.add(page)) == 0)
    }

    fn same_filled(&self, page: Pfn) -> Option<u64> {
        Some(self.stamp(page)).filter(|stamp| self.compresses && stamp >> 63 == 1)
    }

    fn fill(&self, page: Pfn, word: u64) {
        self.set_stamp(page, word);
    }

    fn compress(&self, page: Pfn, by: Compressor) -> u32 {
        let bytes = (self.stamp(page) as u32 & 0xffff).max(1);
        match by {
            _ if !self.compresses => PAGE_SIZE as u32,
            Compressor::Zstd => bytes - bytes / 4,
            Compressor::LzoRle | Compressor::Lz4 => bytes,
        }
    }

    fn pack(&self, page: Pfn, object: ObjectPlace) {
        self.objects.lock().insert((object.frame, object.offset), (object, self.stamp(page)));
    }

    fn unpack(&self, object: ObjectPlace, page: Pfn, _: Compressor) {
        self.set_stamp(page, self.object(object));
    }

    fn move_object(&self, from: ObjectPlace, to: ObjectPlace) {
        let stamp = self.object(from);
        self.objects.lock().insert((to.frame, to.offset), (to, stamp));
    }

    fn take_samples(&self, each: &mut dyn FnMut(Pfn)) -> u64 {
        core::mem::take(&mut *self.samples.lock()).into_iter().for_each(each);
        0
    }

    fn reads_of(&self, node: NodeId) -> Option<Reads> {
        self.reads.lock().get(&node).copied()
    }

    fn ticket(&self, key: WaitKey) -> Ticket {
        Ticket { key, mark: self.wakes(key) }
    }

    /// Returns at once if the wake-up has come; otherwise time passes until the deadline.
    fn wait(&self, ticket: Ticket, deadline: Option<Nanos>) -> bool {
        self.call(&self.idle);
        while self.ticket(ticket.key) == ticket && self.end_one() {}
        if self.wakes(ticket.key) > ticket.mark {
            return true;
        }
        let deadline = deadline.unwrap_or_else(|| panic!("nobody will ever wake {:?}", ticket.key));
        self.clock.fetch_max(deadline, Relaxed);
        false
    }

    fn wake(&self, key: WaitKey) {
        *self.wakes.lock().entry(key).or_default() += 1;
        self.reach(Moment::Wake(key));
    }

    fn resched(&self) {}

    fn stopping(&self) -> bool {
        self.stops.load(Relaxed)
    }

    fn enter(&self, scope: Scope) {
        let entered = self.entered.lock().take();
        if let Some(act) = entered {
            act(self, scope);
            *self.entered.lock() = Some(act);
        }
    }

    fn charge(&self, work: Work, count: u64) {
        self.reach(Moment::Charge(work));
        self.work[work as usize].fetch_add(count, Relaxed);
    }

    fn writes(&self, line: SharedLine) {
        self.reach(Moment::Writes(line));
    }

    fn event(&self, event: Event, args: [u64; 4]) {
        self.reach(Moment::Event(event));
        self.events[event as usize].fetch_add(1, Relaxed);
        let watcher = self.watcher.lock().take();
        if let Some(watch) = watcher {
            watch(self, event, args);
            *self.watcher.lock() = Some(watch);
        }
    }

    fn looks_at_zones(&self) -> bool {
        self.sights.lock().is_some()
    }

    fn sees_zone(&self, sight: &ZoneSight<'_>) {
        let &ZoneSight { zone, start, frames, order, ended, look } = sight;
        let (mut at, mut uses) = (start, BTreeMap::new());
        while at < start.add(frames) {
            let seen = look(at);
            uses.insert(at, seen);
            at = at.add(seen.1.frames());
        }
        self.sights.lock().as_mut().unwrap().push(Sight { zone, start, frames, order, ended, uses });
    }
}
