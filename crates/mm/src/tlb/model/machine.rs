//! A machine whose CPUs are threads of a model checker.

extern crate std;

use crate::event::Event;
use crate::lock::{Guard, Lock};
use crate::machine::*;
use crate::primitive::{Ordering::*, modelled::AtomicU64};
use crate::units::*;
use core::cell::Cell;
use std::boxed::Box;
use std::sync::Mutex;
use std::vec::Vec;

/// Pages of each space.
pub(super) const PAGES: usize = 4;
/// The root of space s is this + s. The machine has no other frames there.
const ROOTS: u32 = 1000;
const PRESENT: u64 = 1;
const WRITE: u64 = 2;

#[cfg(feature = "loom")]
loom::thread_local! {
    static CURRENT: Cell<u16> = Cell::new(0);
}
#[cfg(feature = "shuttle")]
shuttle::thread_local! {
    static CURRENT: Cell<u16> = Cell::new(0);
}

/// A cached translation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Kept {
    asid: Asid,
    page: Vpn,
    pfn: Pfn,
    writable: bool,
}

/// The state of one CPU. Only its own code changes it, so it needs no place in the model.
struct Cpu {
    /// Held while interrupts are off.
    interrupts: Lock<()>,
    tlb: Mutex<Tlb>,
}

struct Tlb {
    root: Pfn,
    asid: Asid,
    kept: Vec<Kept>,
}

/// A machine of some CPUs and frames. The room's prose says what it models.
pub(super) struct ModelMachine {
    cpus: Box<[Cpu]>,
    memory: [MemoryRange; 1],
    entries: Box<[AtomicU64]>,
    frames: Box<[AtomicU64]>,
}

/// This thread acts as a CPU from now on.
pub(super) fn become_cpu(cpu: u16) {
    CURRENT.with(|current| current.set(cpu));
}

impl ModelMachine {
    pub fn new(cpus: usize, spaces: usize, frames: u32) -> ModelMachine {
        let cells = |count| (0..count).map(|_| AtomicU64::new(0)).collect();
        let tlb = || Tlb { root: Pfn::NONE, asid: Asid(0), kept: Vec::new() };
        ModelMachine {
            cpus: (0..cpus).map(|_| Cpu { interrupts: Lock::new(()), tlb: Mutex::new(tlb()) }).collect(),
            memory: [MemoryRange { node: NodeId(0), kind: ZoneKind::Normal, start: Pfn(0), frames }],
            entries: cells(spaces * PAGES),
            frames: cells(frames as usize),
        }
    }

    pub fn root(&self, space: SpaceId) -> Pfn {
        Pfn(ROOTS + space.0)
    }

    /// Turn interrupts off on this CPU until the guard is dropped.
    pub fn interrupts_off(&self) -> Guard<'_, ()> {
        self.cpus[self.cpu().index()].interrupts.lock()
    }

    fn entry(&self, space: SpaceId, page: Vpn) -> &AtomicU64 {
        &self.entries[space.0 as usize * PAGES + page.0 as usize]
    }

    /// Map a frame, under the lock of the space's tables.
    pub fn map(&self, space: SpaceId, page: Vpn, pfn: Pfn, writable: bool) {
        let write = if writable { WRITE } else { 0 };
        self.entry(space, page).store((pfn.0 as u64) << 2 | write | PRESENT, Release);
    }

    /// Clear an entry, under the lock of the space's tables. Returns the frame that it mapped, and whether it was
    /// writable.
    pub fn clear(&self, space: SpaceId, page: Vpn) -> Option<(Pfn, bool)> {
        let old = self.entry(space, page).swap(0, AcqRel);
        (old & PRESENT != 0).then_some((Pfn((old >> 2) as u32), old & WRITE != 0))
    }

    /// Write to a frame as the kernel does.
    pub fn fill(&self, pfn: Pfn, content: u64) {
        self.frames[pfn.index()].store(content, Relaxed);
    }

    /// Read a frame as the kernel does.
    pub fn content(&self, pfn: Pfn) -> u64 {
        self.frames[pfn.index()].load(Relaxed)
    }

    /// A program on this CPU reads a page; `None` is a fault. This is one instruction: an interrupt comes before or
    /// after it.
    pub fn load(&self, page: Vpn) -> Option<u64> {
        let _off = self.interrupts_off();
        let pfn = self.translate(page, false)?;
        Some(self.content(pfn))
    }

    /// A program on this CPU writes a page; `false` is a fault.
    pub fn store(&self, page: Vpn, content: u64) -> bool {
        let _off = self.interrupts_off();
        self.translate(page, true).map(|pfn| self.fill(pfn, content)).is_some()
    }

    /// The current content of an entry.
    pub fn mapped(&self, space: SpaceId, page: Vpn) -> Option<Pfn> {
        let raw = self.entry(space, page).load(Acquire);
        (raw & PRESENT != 0).then_some(Pfn((raw >> 2) as u32))
    }

    /// What a program on this CPU could use without a walk.
    pub fn usable(&self, cpu: CpuId) -> Vec<(SpaceId, Vpn, Pfn)> {
        let tlb = self.cpus[cpu.index()].tlb.lock().expect("no thread may panic while it holds the lock");
        let loaded = tlb.kept.iter().filter(|kept| kept.asid == tlb.asid && tlb.root != Pfn::NONE);
        loaded.map(|kept| (SpaceId(tlb.root.0 - ROOTS), kept.page, kept.pfn)).collect()
    }

    fn translate(&self, page: Vpn, write: bool) -> Option<Pfn> {
        let cpu = &self.cpus[self.cpu().index()];
        let (root, asid) = {
            let tlb = cpu.tlb.lock().expect("no thread may panic while it holds the lock");
            if let Some(kept) = tlb.kept.iter().find(|kept| kept.asid == tlb.asid && kept.page == page)
                && tlb.root != Pfn::NONE
                && (kept.writable || !write)
            {
                return Some(kept.pfn);
            }
            (tlb.root, tlb.asid)
        };
        let space = SpaceId(root.0.checked_sub(ROOTS).filter(|_| root != Pfn::NONE)?);
        // A hardware walk is a plain read.
        let raw = self.entry(space, page).load(Relaxed);
        if raw & PRESENT == 0 || (write && raw & WRITE == 0) {
            return None;
        }
        let (pfn, writable) = (Pfn((raw >> 2) as u32), raw & WRITE != 0);
        let mut tlb = cpu.tlb.lock().expect("no thread may panic while it holds the lock");
        tlb.kept.retain(|kept| kept.asid != asid || kept.page != page);
        tlb.kept.push(Kept { asid, page, pfn, writable });
        Some(pfn)
    }
}

impl Machine for ModelMachine {
    fn cpus(&self) -> usize {
        self.cpus.len()
    }

    fn node_of(&self, _: CpuId) -> NodeId {
        NodeId(0)
    }

    fn memory(&self) -> &[MemoryRange] {
        &self.memory
    }

    fn distance(&self, _: NodeId, _: NodeId) -> u32 {
        10
    }

    fn cpu(&self) -> CpuId {
        CpuId(CURRENT.with(Cell::get))
    }

    fn now(&self) -> Nanos {
        0
    }

    fn table(&self, _: Pfn) -> &TablePage {
        panic!("a model keeps no entries in frames")
    }

    fn zero(&self, pfn: Pfn, pages: u32) {
        (0..pages).for_each(|i| self.fill(pfn.add(i), 0));
    }

    fn copy(&self, to: Pfn, from: Pfn, pages: u32) {
        (0..pages).for_each(|i| self.fill(to.add(i), self.content(from.add(i))));
    }

    fn has_hw_pte_young(&self) -> bool {
        true
    }

    fn has_hw_nonleaf_young(&self) -> bool {
        true
    }

    fn asids(&self) -> usize {
        2
    }

    fn load_root(&self, root: Pfn, asid: Asid, keep: bool) {
        let mut tlb =
            self.cpus[self.cpu().index()].tlb.lock().expect("no thread may panic while it holds the lock");
        if !keep {
            tlb.kept.retain(|kept| kept.asid != asid);
        }
        (tlb.root, tlb.asid) = (root, asid);
    }

    fn flush(&self, what: Flush) {
        let mut tlb =
            self.cpus[self.cpu().index()].tlb.lock().expect("no thread may panic while it holds the lock");
        let loaded = tlb.asid;
        tlb.kept.retain(|kept| match what {
            Flush::All => false,
            Flush::Current => kept.asid != loaded,
            Flush::Pages { start, count, .. } => {
                kept.asid != loaded || !(start.0..start.0 + count as u64).contains(&kept.page.0)
            }
        });
    }

    /// The handler of each target runs on this thread while the target has interrupts off: between two of its
    /// instructions, but not within one and not within what it does with interrupts off.
    fn shootdown(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
        let here = self.cpu();
        assert!(!targets.contains(here), "a shootdown that targets its own CPU");
        for cpu in targets.iter() {
            let _off = self.cpus[cpu.index()].interrupts.lock();
            become_cpu(cpu.0);
            remote(cpu);
            become_cpu(here.0);
        }
        local();
    }

    fn submit(&self, _: Io) {
        panic!("a model has no devices")
    }

    fn ticket(&self, key: WaitKey) -> Ticket {
        Ticket { key, mark: 0 }
    }

    fn wait(&self, ticket: Ticket, _: Option<Nanos>) -> bool {
        panic!("a model must not sleep for {:?}", ticket.key)
    }

    fn wake(&self, _: WaitKey) {}

    fn resched(&self) {}

    fn stopping(&self) -> bool {
        false
    }

    fn charge(&self, _: Work, _: u64) {}

    fn event(&self, _: Event, _: [u64; 4]) {}
}
