//! The kernel.

use pagefold_flush::spec::{Cache, Tables, Translation};
use pagefold_flush::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard};

const CPUS: usize = 4;
/// Pages of a process, all in one table.
const PAGES: usize = 12;
/// Fewer than the processes' pages, so that reclaim has work.
const FRAMES: u32 = 20;
/// The record of a process's page table, which is its root, too, is this frame's and following.
const TABLES: u32 = FRAMES;
const ZONE: ZoneId = ZoneId(0);

thread_local! {
    static HERE: Cell<u16> = const { Cell::new(0) };
}

/// A CPU. Its interrupts are off while the first lock is held.
#[derive(Default)]
struct Cpu {
    interrupts: Mutex<()>,
    cached: Mutex<Cache>,
}

/// An entry of a page table: a frame and the right to write, or the content in swap.
#[derive(Clone, Copy)]
enum Entry {
    Mapped(Pfn, bool),
    Swapped(u64),
}

struct Kernel {
    cpus: [Cpu; CPUS],
    tags: Vec<AtomicU32>,
    memory: Vec<AtomicU64>,
    free: Mutex<Vec<Pfn>>,
    tables: Vec<Mutex<[Entry; PAGES]>>,
    shape: Shape,
    broken: bool,
}

impl Host for Kernel {
    fn cpu(&self) -> CpuId {
        CpuId(HERE.get())
    }
    fn now(&self) -> Nanos {
        0
    }
    fn flush(&self, what: Flush) {
        self.cached().flush(what);
    }
    /// The handler runs on this thread while the target is between two instructions.
    fn send(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
        let here = self.cpu();
        for cpu in targets.iter() {
            let _off = self.cpus[cpu.index()].interrupts.lock().unwrap();
            HERE.set(cpu.0);
            remote(cpu);
            HERE.set(here.0);
        }
        local();
    }
    fn load_root(&self, root: Pfn, asid: Asid, keep: bool) {
        self.cached().load(root, asid, keep);
    }
    fn folio(&self, _head: Pfn) -> Folio {
        Folio { file: None, order: Order::ZERO }
    }
    fn tag(&self, frame: Pfn) -> u32 {
        self.tags[frame.index()].load(Acquire)
    }
    fn set_tag(&self, frame: Pfn, tag: u32) {
        self.tags[frame.index()].store(tag, Release);
    }
    fn shape(&self) -> Shape {
        self.shape
    }
}

impl Tables for Kernel {
    fn table(&self, root: Pfn, _page: Vpn) -> Option<Pfn> {
        Some(root)
    }
    /// Hardware takes no lock: `try_lock` fails only while the kernel changes the table.
    fn entry(&self, table: Pfn, page: Vpn) -> Option<Translation> {
        let entries = self.tables[(table.0 - TABLES) as usize].try_lock().ok()?;
        let Entry::Mapped(frame, writable) = entries[page.0 as usize] else { return None };
        Some(Translation { page, frame, order: Order::ZERO, writable })
    }
}

impl Kernel {
    fn cached(&self) -> MutexGuard<'_, Cache> {
        self.cpus[self.cpu().index()].cached.lock().unwrap()
    }

    fn interrupts_off(&self) -> MutexGuard<'_, ()> {
        self.cpus[self.cpu().index()].interrupts.lock().unwrap()
    }

    /// A frame, paid for.
    fn allocate(&self, ledger: &Tlb) -> Option<Pfn> {
        let frame = self.free.lock().unwrap().pop()?;
        let owed = ledger.owed_by_tag(ZONE, self.tag(frame));
        if owed > ledger.paid_up_to(ZONE) && !self.broken {
            ledger.settle_zone(self, ZONE, owed, frame, Order::ZERO);
        }
        self.set_tag(frame, 0);
        Some(frame)
    }

    /// One instruction: it uses what is cached, or walks the table. `None`: a fault.
    fn access(&self, page: Vpn, store: Option<u64>) -> Option<u64> {
        let _off = self.interrupts_off();
        let frame = self.cached().translate(page, store.is_some(), self)?;
        store.inspect(|&value| self.memory[frame.index()].store(value, Relaxed));
        Some(self.memory[frame.index()].load(Relaxed))
    }

    /// Map a page, or allow stores to it. The table is settled first: an old translation must not read what follows.
    fn fault(&self, ledger: &Tlb, space: SpaceId, page: Vpn, store: bool) {
        let mut table = self.tables[space.0 as usize].lock().unwrap();
        let frame = match table[page.0 as usize] {
            Entry::Mapped(_, write) if write || !store => return,
            Entry::Mapped(frame, _) => frame,
            Entry::Swapped(content) => {
                let Some(frame) = self.allocate(ledger) else { return };
                self.memory[frame.index()].store(content, Relaxed);
                frame
            }
        };
        let record = Pfn(TABLES + space.0);
        if self.tag(record) != 0 {
            ledger.settle_table(self, space, Vpn(0), self.tag(record));
            self.set_tag(record, 0);
        }
        table[page.0 as usize] = Entry::Mapped(frame, store);
    }

    /// Reclaim a page. One that can be stored to is swapped out after the batch has flushed; one that cannot is gone at
    /// once, and a policy may leave the flush to the frame's next use.
    fn reclaim(&self, ledger: &Tlb, space: SpaceId, page: Vpn) {
        let mut table = self.tables[space.0 as usize].lock().unwrap();
        let Entry::Mapped(frame, writable) = table[page.0 as usize] else { return };
        let content = || Entry::Swapped(self.memory[frame.index()].load(Relaxed));
        let mut batch = UnmapBatch::new(self);
        table[page.0 as usize] = content();
        let cleared = Cleared { writable, dirty: writable, ..Cleared::page(space, page, frame) };
        let refs = batch.take(self, ledger, Emptied::new(cleared, (Pfn(TABLES + space.0), 0), 0));
        batch.settle(self, ledger);
        if writable {
            table[page.0 as usize] = content();
        }
        drop(table);
        let (frame, _) = refs.release(self);
        ledger.adopt(self, frame);
        self.free.lock().unwrap().push(frame);
    }

    /// A process: counts in its pages. Each page holds the number of its last round, and who wrote it.
    fn run(&self, ledger: &Tlb, space: SpaceId, rounds: u64) {
        let off = self.interrupts_off();
        ledger.switch(self, space, Pfn(TABLES + space.0));
        drop(off);
        let mut random = u64::from(space.0) + 1;
        let mut draw = |below: usize| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) as usize % below
        };
        let mut written = [0; PAGES];
        for round in 1..=rounds {
            let page = draw(PAGES);
            let store = (draw(16) == 0).then_some(round << 8 | u64::from(space.0));
            let read = loop {
                if draw(8) == 0 || self.free.lock().unwrap().is_empty() {
                    self.reclaim(ledger, SpaceId(draw(CPUS) as u32), Vpn(draw(PAGES) as u64));
                }
                if let Some(read) = self.access(Vpn(page as u64), store) {
                    break read;
                }
                self.fault(ledger, space, Vpn(page as u64), store.is_some());
            };
            written[page] = store.unwrap_or(written[page]);
            assert_eq!(
                read, written[page],
                "page {page} of process {space} reads another content in round {round}"
            );
        }
        let _off = self.interrupts_off();
        ledger.enter_lazy(self);
    }
}

/// Run a process on each CPU until all have ended.
pub fn run_all(shape: Shape, broken: bool, rounds: u64) {
    let kernel = Kernel {
        cpus: Default::default(),
        tags: (0..FRAMES + CPUS as u32).map(|_| AtomicU32::new(0)).collect(),
        memory: (0..FRAMES).map(|_| AtomicU64::new(0)).collect(),
        free: Mutex::new((0..FRAMES).map(Pfn).collect()),
        tables: (0..CPUS).map(|_| Mutex::new([Entry::Swapped(0); PAGES])).collect(),
        shape,
        broken,
    };
    let ledger = Tlb::new(CPUS, 1, 1);
    std::thread::scope(|scope| {
        for cpu in 0..CPUS as u16 {
            let (kernel, ledger, space) = (&kernel, &ledger, ledger.create());
            scope.spawn(move || {
                HERE.set(cpu);
                kernel.run(ledger, space, rounds);
            });
        }
    });
}
