//! The machine: threads as CPUs, a slice as memory, a thread as disk.

use crate::disk::Disk;
use crate::mmu::Mmu;
use crate::task::{self, Turn};
use mm::api::AccessKind;
use mm::machine::*;
use mm::primitive::{AtomicU64, Ordering::*};
use mm::units::*;
use std::cell::Cell;
use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// CPUs of each node.
const CPUS: u16 = 2;
/// Frames of each node: a few of the largest blocks.
const FRAMES: u32 = 4 << MAX_ORDER.0;
/// Nodes.
const NODES: u8 = 2;
/// Address-space numbers of a CPU.
const ASIDS: usize = 4;

#[derive(Default)]
struct Cpu {
    turn: Turn,
    /// Held by the CPU while it has interrupts off, and by the thread that handles an interrupt for it.
    interrupts: Mutex<()>,
    mmu: Mutex<Mmu>,
}

/// The machine.
pub struct Threads {
    cpus: Vec<Cpu>,
    memory: Vec<MemoryRange>,
    /// A frame is 512 words, whether it is a page table or not.
    frames: Box<[TablePage]>,
    disk: Disk,
    /// Number of wake-ups, by key.
    wakes: Mutex<HashMap<WaitKey, u64>>,
    wakeups: Condvar,
    started: Instant,
    stopping: AtomicBool,
    /// Whether work takes time.
    slow: AtomicBool,
}

impl Threads {
    /// A machine.
    pub fn new(disk: Disk) -> Threads {
        let range = |node: u8| MemoryRange {
            node: NodeId(node),
            kind: ZoneKind::Normal,
            start: Pfn(u32::from(node) * FRAMES),
            frames: FRAMES,
        };
        let empty = || std::array::from_fn(|_| AtomicU64::new(0));
        Threads {
            cpus: (0..CPUS * u16::from(NODES)).map(|_| Cpu::default()).collect(),
            memory: (0..NODES).map(range).collect(),
            frames: (0..FRAMES * u32::from(NODES)).map(|_| empty()).collect(),
            disk,
            wakes: Mutex::default(),
            wakeups: Condvar::new(),
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            slow: AtomicBool::new(false),
        }
    }

    /// Make some kinds of work take time: then a CPU pauses there, and others overtake it.
    pub fn set_slow(&self, slow: bool) {
        self.slow.store(slow, Relaxed);
    }

    /// Access a word as a program does; `None` for a fault. No interrupt arrives during an access.
    pub fn access(&self, page: Vpn, word: usize, access: AccessKind, value: u64) -> Option<u64> {
        let mut mmu = self.mmu();
        let word = &self.frames[mmu.translate(&self.frames, page, access)?.index()][word];
        if access == AccessKind::Store {
            word.store(value, Release);
        }
        Some(word.load(Acquire))
    }

    /// The words of a frame, for the disk.
    pub fn frame(&self, pfn: Pfn) -> &TablePage {
        &self.frames[pfn.index()]
    }

    /// Interrupts are off on a CPU while this is held.
    pub fn interrupt_latch(&self, cpu: CpuId) -> MutexGuard<'_, ()> {
        self.cpus[cpu.index()].interrupts.lock().unwrap()
    }

    /// The turn of a CPU.
    pub fn turn(&self, cpu: CpuId) -> &Turn {
        &self.cpus[cpu.index()].turn
    }

    /// Shut down: sleeping daemons are woken to notice it.
    pub fn stop(&self) {
        self.stopping.store(true, SeqCst);
        self.wakes.lock().unwrap().values_mut().for_each(|wakes| *wakes += 1);
        self.wakeups.notify_all();
    }

    fn mmu(&self) -> MutexGuard<'_, Mmu> {
        self.cpus[self.cpu().index()].mmu.lock().unwrap()
    }
}

impl Machine for Threads {
    fn cpus(&self) -> usize {
        self.cpus.len()
    }

    fn node_of(&self, cpu: CpuId) -> NodeId {
        NodeId((cpu.0 / CPUS) as u8)
    }

    fn memory(&self) -> &[MemoryRange] {
        &self.memory
    }

    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        if from == to { 10 } else { 20 }
    }

    fn cpu(&self) -> CpuId {
        task::current_cpu()
    }

    fn now(&self) -> Nanos {
        self.started.elapsed().as_nanos() as Nanos
    }

    fn table(&self, pfn: Pfn) -> &TablePage {
        &self.frames[pfn.index()]
    }

    fn zero(&self, pfn: Pfn, pages: u32) {
        let frames = &self.frames[pfn.index()..][..pages as usize];
        frames.iter().flatten().for_each(|word| word.store(0, Release));
    }

    fn copy(&self, to: Pfn, from: Pfn, pages: u32) {
        for i in 0..pages {
            let (to, from) = (self.frame(to.add(i)), self.frame(from.add(i)));
            to.iter().zip(from).for_each(|(to, from)| to.store(from.load(Acquire), Release));
        }
    }

    fn has_hw_pte_young(&self) -> bool {
        true
    }

    fn has_hw_nonleaf_young(&self) -> bool {
        true
    }

    fn asids(&self) -> usize {
        ASIDS
    }

    fn load_root(&self, root: Pfn, asid: Asid, keep: bool) {
        self.mmu().load_root(root, asid, keep);
    }

    fn flush(&self, what: Flush) {
        self.mmu().flush(what);
    }

    fn shootdown(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
        targets.iter().for_each(|cpu| task::interrupt(self, cpu, || remote(cpu)));
        local();
    }

    fn submit(&self, io: Io) {
        self.disk.submit(io);
    }

    fn ticket(&self, key: WaitKey) -> Ticket {
        let mark = *self.wakes.lock().unwrap().entry(key).or_default();
        Ticket { key, mark }
    }

    fn wait(&self, ticket: Ticket, deadline: Option<Nanos>) -> bool {
        // Another task may have this CPU during the wait.
        task::put_cpu();
        let mut wakes = self.wakes.lock().unwrap();
        let woken = loop {
            if wakes.get(&ticket.key).is_some_and(|&wakes| wakes != ticket.mark) {
                break true;
            }
            let rest = deadline.map_or(u64::MAX >> 1, |deadline| deadline.saturating_sub(self.now()));
            if rest == 0 {
                break false;
            }
            wakes = self.wakeups.wait_timeout(wakes, Duration::from_nanos(rest)).unwrap().0;
        };
        drop(wakes);
        task::get_cpu();
        woken
    }

    fn wake(&self, key: WaitKey) {
        *self.wakes.lock().unwrap().entry(key).or_default() += 1;
        self.wakeups.notify_all();
    }

    fn resched(&self) {
        task::yield_cpu();
    }

    fn stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    fn charge(&self, work: Work, _count: u64) {
        thread_local!(static DONE: Cell<u32> = const { Cell::new(0) });
        let delayed = matches!(work, Work::CacheLookup | Work::CacheRemove | Work::RmapAdd | Work::SwapSlot);
        if delayed && self.slow.load(Relaxed) {
            DONE.set(DONE.get() + 1);
            if DONE.get().is_multiple_of(5) {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }

    fn listens(&self) -> bool {
        false
    }
}
