//! The kernel.

use pagefold_flush::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard};

const CPUS: usize = 4;
/// Pages of a process, all in one table.
const PAGES: usize = 12;
/// Fewer than the processes' pages, so that reclaim has work.
const FRAMES: u32 = 20;
/// The record of a process's page table is this frame's and following.
const TABLES: u32 = FRAMES;

thread_local! {
    static HERE: Cell<u16> = const { Cell::new(0) };
}

/// A CPU. Its interrupts are off while the first lock is held.
#[derive(Default)]
struct Cpu {
    interrupts: Mutex<()>,
    cached: Mutex<Vec<(Vpn, Pfn, bool)>>,
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
        self.cpus[self.cpu().index()].cached.lock().unwrap().retain(|(page, ..)| match what {
            Flush::Pages { start, count, .. } => !(start.0..start.0 + u64::from(count)).contains(&page.0),
            Flush::All | Flush::Current => false,
        });
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

    fn load_root(&self, _root: Pfn, _asid: Asid, keep: bool) {
        if !keep {
            self.flush(Flush::Current);
        }
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

impl Kernel {
    fn interrupts_off(&self) -> MutexGuard<'_, ()> {
        self.cpus[self.cpu().index()].interrupts.lock().unwrap()
    }

    /// A frame, paid for.
    fn allocate(&self, ledger: &Tlb) -> Option<Pfn> {
        let frame = self.free.lock().unwrap().pop()?;
        let owed = ledger.owed_by_tag(ZoneId(0), self.tag(frame));
        if owed > ledger.paid_up_to(ZoneId(0)) && !self.broken {
            ledger.settle_zone(self, ZoneId(0), owed, frame, Order::ZERO);
        }
        self.set_tag(frame, 0);
        Some(frame)
    }

    /// Drop the last references of a frame, and free it.
    fn release(&self, ledger: &Tlb, refs: Refs) {
        let (frame, _) = refs.release(self);
        ledger.adopt(self, frame);
        self.free.lock().unwrap().push(frame);
    }

    /// One instruction: it uses what is cached, or walks the table. `None`: a fault.
    fn access(&self, space: SpaceId, page: Vpn, store: Option<u64>) -> Option<u64> {
        let _off = self.interrupts_off();
        let mut cached = self.cpus[self.cpu().index()].cached.lock().unwrap();
        let usable = |&&(at, _, write): &&(Vpn, Pfn, bool)| at == page && (write || store.is_none());
        let frame = match cached.iter().find(usable) {
            Some(&(_, frame, _)) => frame,
            None => {
                // Hardware takes no lock: `try_lock` fails only while the kernel changes the table.
                let entry = self.tables[space.0 as usize].try_lock().ok()?[page.0 as usize];
                let Entry::Mapped(frame, write) = entry else { return None };
                if store.is_some() && !write {
                    return None;
                }
                cached.retain(|&(at, ..)| at != page);
                cached.push((page, frame, write));
                frame
            }
        };
        let cell = &self.memory[frame.index()];
        store.inspect(|&value| cell.store(value, Relaxed));
        Some(cell.load(Relaxed))
    }

    /// Map a page, or allow stores to it. The table is settled first: an old translation must not read what follows.
    fn fault(&self, ledger: &Tlb, space: SpaceId, page: Vpn, store: bool) {
        let mut table = self.tables[space.0 as usize].lock().unwrap();
        let record = Pfn(TABLES + space.0);
        let frame = match table[page.0 as usize] {
            Entry::Mapped(_, write) if write || !store => return,
            Entry::Mapped(frame, _) => frame,
            Entry::Swapped(content) => {
                let Some(frame) = self.allocate(ledger) else { return };
                self.memory[frame.index()].store(content, Relaxed);
                frame
            }
        };
        if self.tag(record) != 0 {
            ledger.settle_table(self, space, Vpn(0), self.tag(record));
            self.set_tag(record, 0);
        }
        table[page.0 as usize] = Entry::Mapped(frame, store);
        // A CPU that has the page read-only faults once more, and walks.
        self.flush(Flush::Pages { start: page, count: 1, stride: Order::ZERO });
    }

    /// Reclaim a page. One that can be stored to is swapped out after the batch has flushed; one that cannot is gone at
    /// once, and a policy may leave the flush to the frame's next use.
    fn reclaim(&self, ledger: &Tlb, space: SpaceId, page: Vpn) {
        let mut table = self.tables[space.0 as usize].lock().unwrap();
        let Entry::Mapped(frame, writable) = table[page.0 as usize] else { return };
        let mut batch = UnmapBatch::new(self);
        table[page.0 as usize] = Entry::Swapped(self.memory[frame.index()].load(Relaxed));
        let cleared = Cleared { writable, ..Cleared::page(space, page, frame) };
        let emptied = Emptied::new(cleared, (Pfn(TABLES + space.0), 0), 0);
        let refs = batch.take(self, ledger, emptied);
        batch.settle(self, ledger);
        if writable {
            table[page.0 as usize] = Entry::Swapped(self.memory[frame.index()].load(Relaxed));
        }
        drop(table);
        self.release(ledger, refs);
    }

    fn reclaim_any(&self, ledger: &Tlb, random: &mut u64) {
        step(random);
        let (space, page) = ((*random >> 40) as u32 % CPUS as u32, (*random >> 33) % PAGES as u64);
        self.reclaim(ledger, SpaceId(space), Vpn(page));
    }

    /// A process: counts in its pages. Each page holds the number of its last round, and who wrote it.
    fn run(&self, ledger: &Tlb, space: SpaceId, rounds: u64) {
        let off = self.interrupts_off();
        ledger.switch(self, space, Pfn(TABLES + space.0));
        drop(off);
        let mut random = u64::from(space.0) + 1;
        let mut written = [0; PAGES];
        for round in 1..=rounds {
            step(&mut random);
            let page = (random >> 33) as usize % PAGES;
            let store = (random >> 60 == 0).then_some(round << 8 | u64::from(space.0));
            let read = loop {
                match self.access(space, Vpn(page as u64), store) {
                    Some(read) => break read,
                    None => self.fault(ledger, space, Vpn(page as u64), store.is_some()),
                }
                if self.free.lock().unwrap().is_empty() {
                    self.reclaim_any(ledger, &mut random);
                }
            };
            written[page] = store.unwrap_or(written[page]);
            assert_eq!(
                read, written[page],
                "process {space} reads another content of page {page} in round {round}"
            );
            if random >> 61 == 1 {
                self.reclaim_any(ledger, &mut random);
            }
        }
        let _off = self.interrupts_off();
        ledger.enter_lazy(self);
    }
}

/// The next random number; its high bits are good.
fn step(random: &mut u64) {
    *random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
}

/// Run a process on each CPU until all have ended.
pub fn run_all() {
    let words: Vec<String> = std::env::args().collect();
    let says = |word: &str| words.iter().any(|given| given == word);
    let shape =
        if says("batch") { Shape::Collect { listed: false } } else { Shape::Defer { at_ticks: false } };
    let kernel = Kernel {
        cpus: Default::default(),
        tags: (0..FRAMES + CPUS as u32).map(|_| AtomicU32::new(0)).collect(),
        memory: (0..FRAMES).map(|_| AtomicU64::new(0)).collect(),
        free: Mutex::new((0..FRAMES).map(Pfn).collect()),
        tables: (0..CPUS).map(|_| Mutex::new([Entry::Swapped(0); PAGES])).collect(),
        shape,
        broken: says("broken"),
    };
    let ledger = Tlb::new(CPUS, 1, 1);
    std::thread::scope(|scope| {
        for cpu in 0..CPUS as u16 {
            let (kernel, ledger, space) = (&kernel, &ledger, ledger.create());
            scope.spawn(move || {
                HERE.set(cpu);
                kernel.run(ledger, space, 300_000);
            });
        }
    });
    println!("no process has read another content than it wrote last");
}
