//! TLB flushes as debts, for any kernel.
//!
//! A CPU may use a cached translation after its page-table entry has changed, and no CPU can see another's cache. So
//! code that clears an entry must have other CPUs flush before the page, the address or the file behind it means
//! something else. This crate keeps account of the CPUs that must flush before each change, and lets the
//! flush wait until then:
//!
//! - Code that clears entries gets an [`Emptied`], code that takes rights a [`Tightened`]. They cannot be dropped (that
//!   panics, in every build), and only three things consume them: a [`Gather`] (a system call: one flush at its end),
//!   an [`UnmapBatch`] (reclaim: a flush by policy, or a debt), [`Tlb::flush_emptied`] (a flush at once).
//! - The references that entries held come back as [`Refs`], which only these three give.
//! - What a flush was put off for is a debt: CPUs, and a [`Generation`] after which they must have caught up. It is
//!   kept with the space, the file, the table and the frame that a stale translation could expose.
//!   [`Tlb::settle_space`], [`Tlb::settle_table`], [`Tlb::settle_file`] and [`Tlb::settle_zone`] pay it before these
//!   change.
//! - References that are dropped before their batch has flushed mark the frame. A frame that is freed with such a mark
//!   takes the debt along ([`Tlb::adopt`]).
//!
//! A kernel implements [`Host`]: eight methods. It calls [`Tlb::switch`] and [`Tlb::enter_lazy`] in its scheduler and,
//! if a policy defers, [`Tlb::tick`] in its timer. The order in which to bring it into a kernel is: `Host`, `switch`,
//! one `flush` wherever an entry changes; then gathers, then batches, then a policy that defers. [`spec`] says what a
//! TLB is, for tests; `docs/ports.md` of the repository is a guide.
//!
//! *What it does not do.* It reads and writes no page tables and takes no locks of the kernel's: that an [`Emptied`]
//! names the entries that were cleared, that it is given to a batch under the lock of their table, and that a zone is
//! settled before its tagged frames are handed out, is the kernel's part.
//!
//! ```
//! use pagefold_flush::*;
//! use std::sync::{Mutex, atomic::{AtomicU16, AtomicU32, Ordering::Relaxed}};
//!
//! /// Two CPUs, and this thread is one of them at a time. Each has cached some pages with their frames.
//! #[derive(Default)]
//! struct Kernel {
//!     cpu: AtomicU16,
//!     cached: [Mutex<Vec<(Vpn, Pfn)>>; 2],
//!     tags: [AtomicU32; 16],
//! }
//!
//! impl Host for Kernel {
//!     fn cpu(&self) -> CpuId {
//!         CpuId(self.cpu.load(Relaxed))
//!     }
//!     fn now(&self) -> Nanos {
//!         0
//!     }
//!     fn flush(&self, what: Flush) {
//!         self.cached[self.cpu().index()].lock().unwrap().retain(|(page, _)| match what {
//!             Flush::Pages { start, count, .. } => !(start.0..start.0 + u64::from(count)).contains(&page.0),
//!             Flush::All | Flush::Current => false,
//!         });
//!     }
//!     fn send(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
//!         let here = self.cpu();
//!         for cpu in targets.iter() {
//!             self.cpu.store(cpu.0, Relaxed);
//!             remote(cpu);
//!         }
//!         self.cpu.store(here.0, Relaxed);
//!         local();
//!     }
//!     fn load_root(&self, _root: Pfn, _asid: Asid, keep: bool) {
//!         if !keep {
//!             self.flush(Flush::Current);
//!         }
//!     }
//!     fn folio(&self, _head: Pfn) -> Folio {
//!         Folio { file: None, order: Order::ZERO }
//!     }
//!     fn tag(&self, frame: Pfn) -> u32 {
//!         self.tags[frame.index()].load(Relaxed)
//!     }
//!     fn set_tag(&self, frame: Pfn, tag: u32) {
//!         self.tags[frame.index()].store(tag, Relaxed);
//!     }
//! }
//!
//! const TABLE: Pfn = Pfn(0);
//! let (kernel, ledger) = (Kernel::default(), Tlb::new(2, 1, 1));
//! let space = ledger.create();
//! // CPU 1 runs the space and reads page 5, which frame 3 holds.
//! kernel.cpu.store(1, Relaxed);
//! ledger.switch(&kernel, space, TABLE);
//! kernel.cached[1].lock().unwrap().push((Vpn(5), Pfn(3)));
//! // CPU 0 clears the entry under its table's lock. Before the page is free, CPU 1 must flush.
//! kernel.cpu.store(0, Relaxed);
//! let emptied = Emptied::new(Cleared::page(space, Vpn(5), Pfn(3)), (TABLE, 0), 0);
//! let mut batch = UnmapBatch::new(&kernel);
//! let refs = batch.take(&kernel, &ledger, emptied);
//! assert_eq!(kernel.cached[1].lock().unwrap().len(), 1, "it may wait");
//! batch.settle(&kernel, &ledger);
//! assert_eq!(kernel.cached[1].lock().unwrap().len(), 0, "it has flushed");
//! let (frame, references) = refs.into_parts();
//! assert_eq!((frame, references), (Pfn(3), 1));
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![deny(unused_must_use, clippy::let_underscore_must_use)]

extern crate alloc as std_alloc;

mod cleared;
mod cpu;
mod debt;
mod emptied;
mod host;
#[cfg(feature = "inside")]
#[doc(hidden)]
pub mod inside;
mod range;
pub mod spec;
mod tlb;

/// ```
/// # use pagefold_flush::{CpuId, CpuSet, MAX_CPUS};
/// let mut cpus = CpuSet::EMPTY;
/// cpus.insert(CpuId(3));
/// assert!(cpus.contains(CpuId(3)) && cpus.iter().count() == 1);
/// assert!(usize::from(CpuId(3).0) < MAX_CPUS);
/// ```
pub use base::cpus::{CpuSet, MAX_CPUS};
/// ```
/// # use pagefold_flush::{CpuId, FileId, Nanos, Order, Pfn, SpaceId, Vpn, ZoneId};
/// // Numbers are types of their own: a page's is no frame's.
/// let (page, frame) = (Vpn(5), Pfn(3));
/// assert_ne!(page.0, u64::from(frame.0));
/// assert!(Pfn::NONE != frame, "no frame has this number");
/// // A folio of order 2 has four frames.
/// assert_eq!(Order(2).frames(), 4);
/// let age: Nanos = 100_000_000;
/// assert_eq!((CpuId(0), SpaceId(0), FileId(0), ZoneId(0), age / 1_000_000).4, 100);
/// ```
pub use base::units::{CpuId, FileId, Nanos, Order, Pfn, SpaceId, Vpn, ZoneId};
pub use cleared::Cleared;
pub use debt::Generation;
pub use emptied::{Emptied, Refs, Tightened};
pub use host::{
    Asid, Broadcast, Cause, Counter, Flush, Folio, Host, Notice, RemoteCall, Shape, Step, Tunable,
};
pub use range::Range;
pub use tlb::Tlb;
pub use tlb::batch::{EmptiedPages, UnmapBatch};
pub use tlb::gather::{Ascending, Finished, Gather, Tightening};
pub use tlb::ledger::FileSettled;
