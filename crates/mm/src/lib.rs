//! Pagefold's memory manager.
//!
//! It allocates physical pages, maps them, finds the cold ones, reclaims them, and keeps every CPU's TLB coherent
//! with the page tables. It knows nothing of what it runs on but the trait [`Machine`]: the simulator and the
//! bare-metal kernel run the same code.
//!
//! # Example
//!
//! The smallest machine that is one, and a program on it that needs more memory than there is. A kernel does more
//! (daemons, several CPUs, interrupts): `docs/embedding.md` of the repository is a guide, and the crate
//! `pagefold-conformance` checks that it keeps the contract.
//!
//! ```
//! use pagefold_mm::{Config, Machine, Mm, api::*, machine::*, primitive::Ordering::*};
//! use pagefold_mm::{stat::Stat, table::{Bits, Entry}, units::*};
//! use pagefold_mm::primitive::AtomicU64;
//! use std::collections::HashMap;
//! use std::sync::{Mutex, OnceLock};
//!
//! /// A computer with one CPU that has no TLB, one task, 8 MiB of memory, and a disk.
//! struct Computer {
//!     memory: [MemoryRange; 1],
//!     frames: Box<[TablePage]>,
//!     /// The root of the loaded page tables.
//!     root: Mutex<Pfn>,
//!     /// Blocks that were written.
//!     disk: Mutex<HashMap<u64, Vec<u64>>>,
//!     /// Transfers whose end the memory manager does not know yet.
//!     ended: Mutex<Vec<Io>>,
//!     /// Number of wake-ups.
//!     wakes: Mutex<HashMap<WaitKey, u64>>,
//!     /// Time passes while the task sleeps.
//!     clock: Mutex<Nanos>,
//!     mm: OnceLock<&'static Mm<Computer>>,
//! }
//!
//! impl Computer {
//!     fn new() -> Computer {
//!         let range = MemoryRange { node: NodeId(0), kind: ZoneKind::Normal, start: Pfn(0), frames: 2048 };
//!         let empty = |_| std::array::from_fn(|_| AtomicU64::new(0));
//!         Computer {
//!             memory: [range],
//!             frames: (0..range.frames).map(empty).collect(),
//!             root: Mutex::new(Pfn::NONE),
//!             disk: Mutex::default(),
//!             ended: Mutex::default(),
//!             wakes: Mutex::default(),
//!             clock: Mutex::default(),
//!             mm: OnceLock::new(),
//!         }
//!     }
//!
//!     /// What hardware does at an access: walk the tables, set the young and the dirty bit, or fault.
//!     fn walk(&self, page: Vpn, access: AccessKind) -> Option<Pfn> {
//!         let (mut frame, mut used) = (*self.root.lock().unwrap(), Bits::YOUNG);
//!         for level in (0..4).rev() {
//!             let slot = &self.frames[frame.index()][(page.0 >> (9 * level)) as usize % 512];
//!             let entry = Entry::from_raw(slot.load(Acquire));
//!             if level == 0 && access == AccessKind::Store {
//!                 used |= Bits::DIRTY;
//!             }
//!             if !entry.is_present() || used.contains(Bits::DIRTY) && !entry.has(Bits::WRITE) {
//!                 return None;
//!             }
//!             slot.store(entry.with(used).raw(), Release);
//!             frame = entry.pfn();
//!         }
//!         Some(frame)
//!     }
//!
//!     /// The first word of a page, as the program of `space` accesses it.
//!     fn word(&self, mm: &Mm<Computer>, space: SpaceId, page: Vpn, access: AccessKind) -> &AtomicU64 {
//!         loop {
//!             match self.walk(page, access) {
//!                 Some(frame) => return &self.frames[frame.index()][0],
//!                 None => mm.fault(space, page, access).expect("the page is mapped"),
//!             };
//!         }
//!     }
//!
//!     /// The words of consecutive frames.
//!     fn words(&self, first: Pfn, pages: u32) -> impl Iterator<Item = &AtomicU64> {
//!         self.frames[first.index()..][..pages as usize].iter().flatten()
//!     }
//! }
//!
//! impl Machine for Computer {
//!     fn cpus(&self) -> usize { 1 }
//!     fn node_of(&self, _: CpuId) -> NodeId { NodeId(0) }
//!     fn memory(&self) -> &[MemoryRange] { &self.memory }
//!     fn distance(&self, _: NodeId, _: NodeId) -> u32 { 10 }
//!     fn cpu(&self) -> CpuId { CpuId(0) }
//!     fn now(&self) -> Nanos { *self.clock.lock().unwrap() }
//!     fn table(&self, pfn: Pfn) -> &TablePage { &self.frames[pfn.index()] }
//!     fn zero(&self, pfn: Pfn, pages: u32) {
//!         self.words(pfn, pages).for_each(|word| word.store(0, Release));
//!     }
//!     fn copy(&self, to: Pfn, from: Pfn, pages: u32) {
//!         let pairs = self.words(to, pages).zip(self.words(from, pages));
//!         pairs.for_each(|(to, from)| to.store(from.load(Acquire), Release));
//!     }
//!     fn has_hw_pte_young(&self) -> bool { true }
//!     fn has_hw_nonleaf_young(&self) -> bool { true }
//!     // Without a TLB there is nothing to flush, and without other CPUs nobody to ask.
//!     fn asids(&self) -> usize { 0 }
//!     fn load_root(&self, root: Pfn, _: Asid, _keep: bool) { *self.root.lock().unwrap() = root }
//!     fn flush(&self, _: Flush) {}
//!     fn shootdown(&self, _: &CpuSet, _: &RemoteCall<'_>, local: &mut dyn FnMut()) { local() }
//!     // The disk is done at once, but the memory manager may hold locks: it is told later.
//!     fn submit(&self, io: Io) {
//!         let mut disk = self.disk.lock().unwrap();
//!         for i in 0..io.pages {
//!             let (block, words) = (io.block + u64::from(i), self.words(io.frame.add(i), 1));
//!             if io.write {
//!                 disk.insert(block, words.map(|word| word.load(Acquire)).collect());
//!             } else {
//!                 words.zip(&disk[&block]).for_each(|(word, stored)| word.store(*stored, Release));
//!             }
//!         }
//!         self.ended.lock().unwrap().push(io);
//!     }
//!     fn ticket(&self, key: WaitKey) -> Ticket {
//!         Ticket { key, mark: *self.wakes.lock().unwrap().entry(key).or_default() }
//!     }
//!     fn wait(&self, ticket: Ticket, deadline: Option<Nanos>) -> bool {
//!         self.resched();
//!         let woken = self.ticket(ticket.key).mark != ticket.mark;
//!         if !woken {
//!             let mut clock = self.clock.lock().unwrap();
//!             *clock = deadline.expect("there is no other task to wake this one").max(*clock);
//!         }
//!         woken
//!     }
//!     fn wake(&self, key: WaitKey) { *self.wakes.lock().unwrap().entry(key).or_default() += 1 }
//!     fn resched(&self) {
//!         let ended = std::mem::take(&mut *self.ended.lock().unwrap());
//!         ended.iter().for_each(|io| self.mm.get().expect("set at start").io_done(io));
//!     }
//!     fn stopping(&self) -> bool { false }
//!     fn charge(&self, _: Work, _: u64) {}
//! }
//!
//! // A computer that swaps to its disk.
//! let swap = vec![SwapArea { device: DeviceId(0), pages: 4096, priority: 0, zram: None }];
//! let mm = Mm::new(Computer::new(), Config { swap, ..Config::default() })?;
//! let mm: &'static Mm<Computer> = Box::leak(Box::new(mm));
//! let computer = mm.machine();
//! assert!(computer.mm.set(mm).is_ok());
//!
//! // A program maps 12 MiB, which takes no memory yet.
//! let space = mm.create_space(GroupId(0)).unwrap();
//! mm.switch(Some(space));
//! let (at, backing, pages) = (None, Backing::Anonymous, 3072);
//! let request = MapRequest { at, pages, prot: Prot::RW, backing, locked: false, populate: false };
//! let start = mm.mmap(space, &request).unwrap();
//! assert_eq!(mm.rss(space), 0);
//!
//! // It stores to each page. The first store faults; from 8 MiB on, reclaim makes room by swapping.
//! for page in (start.0..start.0 + pages).map(Vpn) {
//!     computer.word(mm, space, page, AccessKind::Store).store(page.0, Release);
//! }
//! assert!(mm.rss(space) < 2048 && mm.mmu().stats.read(Stat::PswpOut) > 1024);
//!
//! // It finds all of them again, and the structures are in order.
//! for page in (start.0..start.0 + pages).map(Vpn) {
//!     assert_eq!(computer.word(mm, space, page, AccessKind::Load).load(Acquire), page.0);
//! }
//! assert!(mm.mmu().stats.read(Stat::Pgmajfault) > 0);
//! assert_eq!(mm.validate(), Ok(()));
//! # Ok::<(), String>(())
//! ```
//!
//! # Principles
//!
//! **A flush is a debt, and a debt is a type.** Clearing a page-table entry yields an `Emptied`, taking rights from
//! one a `Tightened`. Both are values that must be consumed: by a flush, or by an [`UnmapBatch`](tlb::UnmapBatch) or
//! [`Gather`](tlb::Gather), which flushes later or records a debt with the frame, the space or the file that a stale
//! translation could expose. A frame with a debt is not handed out again, a space does not map something else at an
//! address, and a file does not change its content, before the debt is settled: the operations that do so take a
//! proof (`Clean`, `Settled`, `FileSettled`) that only settling returns. When to flush is a policy; that a flush
//! happens in time is not.
//!
//! **Rooms below the facade never reclaim.** An operation that cannot get memory undoes what it did and returns a
//! [`Shortage`](memory::Shortage). [`Mm`] reclaims, compacts or kills, and runs the operation again. So reclaim runs
//! under no lock of its caller, and one place decides what an allocation may cost.
//!
//! **Everything works on runs.** Walks of page tables yield runs of entries, and reverse maps, counters, LRU lists
//! and the allocator take runs of folios. A single page is a run of one.
//!
//! **Policies decide, mechanisms act.** A replacement policy says which folio goes; locking, unmapping, writing and
//! freeing are done once, for all policies. The same holds for flush policies and for promotion between tiers.
//!
//! **A lower floor never uses a higher one.** docs/architecture.md has the map of the floors, and a test holds every
//! import against it. The nested states make the compiler enforce it, too: a function that takes a
//! [`Platform`](platform::Platform) cannot reach a TLB, one that takes an [`Mmu`](mmu::Mmu) cannot allocate, one that
//! takes a [`Memory`](memory::Memory) cannot reach the page cache, and only [`Mm`] reaches address spaces from an
//! [`MmCore`](mm_core::MmCore).
//!
//! **Each structure can check itself.** Every room has a `validate` that tests call after each step, and the
//! simulator's oracle checks that every load returns the last store.
#![no_std]
#![deny(unsafe_code)]
// The pages of rooms describe their insides: `cargo doc --document-private-items` shows these.
#![allow(rustdoc::private_intra_doc_links)]
// Values of `linear` must be consumed. These lints close the ways around that.
#![deny(unused_must_use, clippy::let_underscore_must_use, clippy::mem_forget)]
// Functions that one room alone may call; `clippy.toml` names the room and what others use instead.
#![deny(clippy::disallowed_methods)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::let_underscore_must_use, clippy::mem_forget))]

extern crate alloc as std_alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod alloc;
pub mod api;
mod batched;
pub mod cache;
pub mod compact;
mod damon;
pub mod event;
pub mod folio;
pub mod frame;
pub mod hot;
pub mod knobs;
pub mod lru;
pub mod machine;
pub mod memory;
pub mod mempolicy;
pub mod migrate;
pub mod mm;
pub mod mm_core;
pub mod mmu;
pub mod platform;
pub mod policy;
pub mod promote;
pub mod reclaim;
pub mod rmap;
pub mod scope;
pub mod semaphore;
pub mod slab;
pub mod space;
pub mod stat;
pub mod swap;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;
pub mod tier;
pub mod tlb;
pub mod truncate;
pub mod units;
pub mod work;
pub mod writeback;
pub mod zram;
pub(crate) mod zsmalloc;
pub mod zswap;

pub use base::{arena, lock, primitive};
pub use machine::Machine;
pub use mm::{Config, GroupAccount, Mm, OomReport};
