// A kernel for tests and for the examples in the documents: three CPUs that take turns, each with the TLB of the
// specification, and two spaces of three pages. Its page table returns linear values where it changes entries, and its
// allocator takes references where it frees: these two rules are what a port adds to the ledger.

use pagefold_flush::spec::{Cache, Tables, Translation};
use pagefold_flush::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

pub const CPUS: usize = 3;
pub const SPACES: usize = 2;
pub const PAGES: u64 = 3;
pub const FRAMES: u32 = 8;
/// Address-space numbers of a CPU.
pub const ASIDS: u16 = 2;
/// The zone of all frames.
pub const ZONE: ZoneId = ZoneId(0);
/// Spaces and their pages, as the tests use them.
pub const A: SpaceId = SpaceId(0);
pub const B: SpaceId = SpaceId(1);
pub const P: Vpn = Vpn(0);
pub const Q: Vpn = Vpn(1);
pub const R: Vpn = Vpn(2);
/// Records of the tables and numbers of the roots follow the frames.
const TABLES: u32 = FRAMES;
const ROOTS: u32 = TABLES + SPACES as u32;

/// The page tables: which table is in each tree, what its entries map, and tables that were freed.
#[derive(Clone, Default, Hash)]
pub struct Trees {
    pub tables: BTreeMap<Pfn, Pfn>,
    pub entries: BTreeMap<(Pfn, Vpn), Translation>,
    pub freed: BTreeSet<Pfn>,
}

impl Tables for Trees {
    fn table(&self, root: Pfn, _page: Vpn) -> Option<Pfn> {
        self.tables.get(&root).copied()
    }

    fn entry(&self, table: Pfn, page: Vpn) -> Option<Translation> {
        assert!(!self.freed.contains(&table), "a CPU walks a table that was freed");
        self.entries.get(&(table, page)).copied()
    }
}

/// What a host can get wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Deaf {
    /// It asks no other CPU.
    Fully,
    /// It asks only the first.
    AfterTheFirst,
    /// It never drops what a number held when it loads it.
    AtLoads,
}

pub struct Kernel {
    pub cpu: AtomicU16,
    pub caches: [Mutex<Cache>; CPUS],
    pub trees: Mutex<Trees>,
    pub memory: Vec<AtomicU64>,
    pub free: Mutex<Vec<Pfn>>,
    tags: Vec<AtomicU32>,
    pub shape: Shape,
    pub deaf: Option<Deaf>,
    pub clean_first: bool,
}

impl Host for Kernel {
    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.load(Relaxed))
    }

    fn now(&self) -> Nanos {
        0
    }

    fn flush(&self, what: Flush) {
        self.cache().flush(what);
    }

    fn send(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
        let reached = match self.deaf {
            Some(Deaf::Fully) => 0,
            Some(Deaf::AfterTheFirst) => 1,
            _ => CPUS,
        };
        let here = self.cpu();
        for cpu in targets.iter().take(reached) {
            self.on(cpu.0);
            remote(cpu);
        }
        self.on(here.0);
        local();
    }

    fn load_root(&self, root: Pfn, asid: Asid, keep: bool) {
        self.cache().load(root, asid, keep || self.deaf == Some(Deaf::AtLoads));
    }

    fn folio(&self, _head: Pfn) -> Folio {
        Folio { file: Some(FileId(0)), order: Order::ZERO }
    }

    fn tag(&self, frame: Pfn) -> u32 {
        self.tags[frame.index()].load(Relaxed)
    }

    fn set_tag(&self, frame: Pfn, tag: u32) {
        self.tags[frame.index()].store(tag, Relaxed);
    }

    fn shape(&self) -> Shape {
        self.shape
    }

    /// Lists fill up at two pages, so that short models meet both.
    fn tunable(&self, which: Tunable) -> u64 {
        match which {
            Tunable::ListedPages => 2,
            _ => which.usual(),
        }
    }
}

impl Kernel {
    /// All CPUs but 0 run the first space, and 0 runs a kernel task. Page p of a space s is mapped by frame 3 s + p,
    /// whose content is that number and 100. CPUs have read nothing yet.
    pub fn new(shape: Shape) -> (Kernel, Tlb) {
        let kernel = Kernel {
            cpu: AtomicU16::new(0),
            caches: Default::default(),
            trees: Mutex::default(),
            memory: (0..FRAMES).map(|frame| AtomicU64::new(100 + u64::from(frame))).collect(),
            free: Mutex::new((PAGES as u32 * SPACES as u32..FRAMES).map(Pfn).collect()),
            tags: (0..ROOTS).map(|_| AtomicU32::new(0)).collect(),
            shape,
            deaf: None,
            clean_first: false,
        };
        let ledger = Tlb::new(CPUS, usize::from(ASIDS), 1);
        for space in (0..SPACES as u32).map(SpaceId) {
            assert_eq!(ledger.create(), space);
            kernel.trees.lock().unwrap().tables.insert(kernel.root(space), kernel.table(space));
            for page in 0..PAGES {
                kernel.map(space, Vpn(page), Pfn(space.0 * PAGES as u32 + page as u32), false);
            }
        }
        for cpu in 1..CPUS as u16 {
            kernel.on(cpu);
            ledger.switch(&kernel, A, kernel.root(A));
        }
        kernel.on(0);
        (kernel, ledger)
    }

    /// As [`Kernel::new`], and all CPUs that run a space have read its first two pages.
    pub fn that_was_read(shape: Shape) -> (Kernel, Tlb) {
        let (kernel, ledger) = Kernel::new(shape);
        for cpu in 1..CPUS as u16 {
            kernel.on(cpu);
            assert_eq!((kernel.read(P), kernel.read(Q)), (Some(100), Some(101)));
        }
        kernel.on(0);
        (kernel, ledger)
    }

    /// This thread is another CPU from now on.
    pub fn on(&self, cpu: u16) {
        self.cpu.store(cpu, Relaxed);
    }

    pub fn cache(&self) -> MutexGuard<'_, Cache> {
        self.caches[self.cpu().index()].lock().unwrap()
    }

    pub fn root(&self, space: SpaceId) -> Pfn {
        Pfn(ROOTS + space.0)
    }

    /// The table of a space; its record has the tag of the table.
    pub fn table(&self, space: SpaceId) -> Pfn {
        Pfn(TABLES + space.0)
    }

    pub fn entry(&self, space: SpaceId, page: Vpn) -> Option<Translation> {
        self.trees.lock().unwrap().entries.get(&(self.table(space), page)).copied()
    }

    /// Write an entry that is empty, or gains rights.
    pub fn map(&self, space: SpaceId, page: Vpn, frame: Pfn, writable: bool) {
        let entry = Translation { page, frame, order: Order::ZERO, writable };
        self.trees.lock().unwrap().entries.insert((self.table(space), page), entry);
    }

    /// Empty an entry.
    pub fn clear(&self, space: SpaceId, page: Vpn) -> Emptied {
        let entry = self.trees.lock().unwrap().entries.remove(&(self.table(space), page));
        let entry = entry.expect("the page must be mapped");
        let (writable, dirty) = (entry.writable, entry.writable);
        let cleared = Cleared { writable, dirty, ..Cleared::page(space, page, entry.frame) };
        Emptied::new(cleared, (self.table(space), 0), 0)
    }

    /// Take the right to write from an entry.
    pub fn forbid_stores(&self, space: SpaceId, page: Vpn) -> Tightened {
        let entry = self.entry(space, page).expect("the page must be mapped");
        self.map(space, page, entry.frame, false);
        Tightened::new(Cleared::page(space, page, entry.frame), 0)
    }

    /// Take the table of a space out of its tree.
    pub fn unlink_table(&self, space: SpaceId) -> Pfn {
        self.trees.lock().unwrap().tables.remove(&self.root(space)).expect("the tree must have a table")
    }

    /// Its frame is used for something else from now on.
    pub fn free_table(&self, table: Pfn) {
        self.trees.lock().unwrap().freed.insert(table);
    }

    /// Drop the references of a frame, and free it: entries hold all that there are.
    pub fn free(&self, ledger: &Tlb, refs: Refs) {
        let (frame, _) = refs.release(self);
        self.free_frame(ledger, frame);
    }

    /// Free a frame whose last reference was dropped.
    pub fn free_frame(&self, ledger: &Tlb, frame: Pfn) {
        ledger.adopt(self, frame);
        self.free.lock().unwrap().insert(0, frame);
    }

    /// The frame that is allocated next: the one that was freed last, or one that owes nothing.
    pub fn next_free(&self) -> Pfn {
        let free = self.free.lock().unwrap();
        let clean = free.iter().find(|&&frame| self.clean_first && self.tag(frame) == 0);
        *clean.unwrap_or(&free[0])
    }

    /// Take a free frame, which was paid for.
    pub fn allocate(&self, ledger: &Tlb) -> Pfn {
        let frame = self.next_free();
        self.free.lock().unwrap().retain(|&free| free != frame);
        let owed = ledger.owed_by_tag(ZONE, self.tag(frame));
        if owed > ledger.paid_up_to(ZONE) {
            ledger.settle_zone(self, ZONE, owed, frame, Order::ZERO);
        }
        self.set_tag(frame, 0);
        frame
    }

    /// Pay for what reclaim left with a table.
    pub fn settle(&self, ledger: &Tlb, space: SpaceId) {
        let table = self.table(space);
        if self.tag(table) != 0 {
            ledger.settle_table(self, space, Vpn(0), self.tag(table));
            self.set_tag(table, 0);
        }
    }

    pub fn fill(&self, frame: Pfn, content: u64) {
        self.memory[frame.index()].store(content, Relaxed);
    }

    pub fn content(&self, frame: Pfn) -> u64 {
        self.memory[frame.index()].load(Relaxed)
    }

    /// A program on this CPU reads a page. `None`: a fault.
    pub fn read(&self, page: Vpn) -> Option<u64> {
        let frame = self.cache().translate(page, false, &*self.trees.lock().unwrap())?;
        Some(self.content(frame))
    }

    /// A program on this CPU writes a page. `false`: a fault.
    pub fn write(&self, page: Vpn, content: u64) -> bool {
        let frame = self.cache().translate(page, true, &*self.trees.lock().unwrap());
        frame.map(|frame| self.fill(frame, content)).is_some()
    }
}
