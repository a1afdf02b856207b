//! The seam: what the memory manager needs from hardware, and nothing else.
//!
//! The machine's owner (a kernel, or the simulator) drives the memory manager from above. It must:
//! - call [`Mm::switch`](crate::Mm::switch) whenever a CPU switches to another address space, with interrupts disabled
//!   on that CPU until the call returns,
//! - call [`Mm::fault`](crate::Mm::fault) when a translation is missing or forbids an access, after dropping the
//!   faulting translation of that CPU (as hardware does), and retry the access afterwards,
//! - call [`Mm::io_done`](crate::Mm::io_done) once for every request that was passed to [`Machine::submit`], or
//!   [`Mm::io_failed`](crate::Mm::io_failed) if the device could not make the transfer,
//! - run [`Mm::daemon`](crate::Mm::daemon) for each of [`Mm::daemons`](crate::Mm::daemons) on a task of its own.
//!
//! Below the memory manager is this trait. Its methods allocate no memory that the memory manager manages.

use crate::event::Event;
use crate::primitive::{AtomicU64, Shared};
use crate::units::*;

pub use crate::knobs::Compressor;
pub use crate::scope::Scope;
pub use crate::work::Work;
pub use base::cpus::{CpuSet, MAX_CPUS};
pub use pagefold_flush::{Asid, Broadcast, Flush, RemoteCall};

/// The abstract distance of DRAM: the middle of a tier, with four tiers below it ([`tier`](crate::tier)).
pub const DRAM_DISTANCE: u32 = 4 * 128 + 64;

/// The content of a page-table page.
pub type TablePage = [AtomicU64; TABLE_ENTRIES];

/// What kind of memory a zone is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord, Hash)]
pub enum ZoneKind {
    /// Below 4 GiB, for devices with short addresses.
    Dma32,
    /// Ordinary memory.
    Normal,
    /// Movable allocations only.
    Movable,
}

impl ZoneKind {
    /// All kinds, in index order.
    pub const ALL: [ZoneKind; 3] = [ZoneKind::Dma32, ZoneKind::Normal, ZoneKind::Movable];

    /// Its name in Linux's files.
    pub const fn name(self) -> &'static str {
        match self {
            ZoneKind::Dma32 => "DMA32",
            ZoneKind::Normal => "Normal",
            ZoneKind::Movable => "Movable",
        }
    }
}

/// A run of frames that become one zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryRange {
    /// Node that the memory belongs to.
    pub node: NodeId,
    /// Kind of zone.
    pub kind: ZoneKind,
    /// First frame; aligned to the largest block ([`MAX_ORDER`]).
    pub start: Pfn,
    /// Number of frames.
    pub frames: u32,
}

/// One transfer between frames and a block device. Blocks are pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Io {
    /// The device.
    pub device: DeviceId,
    /// Direction: `true` writes to the device.
    pub write: bool,
    /// First block.
    pub block: u64,
    /// Head of the folio that holds or receives the data.
    pub frame: Pfn,
    /// Pages to transfer.
    pub pages: u32,
    /// It is part of the same request as the transfer that was submitted before it. Only costs depend on it.
    pub continues: bool,
}

/// Reads of one node's memory so far: their number, their total latency, and the latency of a read of idle memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reads {
    /// Number of reads.
    pub count: u64,
    /// Total latency in nanoseconds.
    pub nanos: u64,
    /// Total latency in nanoseconds had the memory been idle.
    pub idle: u64,
}

impl Reads {
    /// The sum of both.
    #[must_use]
    pub fn and(self, other: Reads) -> Reads {
        let idle = self.idle.max(other.idle);
        Reads { count: self.count + other.count, nanos: self.nanos + other.nanos, idle }
    }
}

/// A cache line that CPUs share: they write to it without the lock of a class, or to another line than the lock's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedLine {
    /// A frame's record: references, mapcount, flags, links (`struct page`).
    Frame(Pfn),
    /// Those of consecutive frames: the first, and their number.
    Frames(Pfn, u32),
    /// The lock of a mapped range (`vma->vm_lock`).
    Vma(VmaId),
    /// The CPUs that have a space loaded (`mm_cpumask`).
    CpuMask(SpaceId),
    /// The pages that are charged to a group (`page_counter.usage`).
    GroupUsage(GroupId),
}

/// Where an object of compressed memory is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ObjectPlace {
    /// The frame that it begins in.
    pub frame: Pfn,
    /// Its first byte there.
    pub offset: u32,
    /// The frame whose first bytes have the rest of it, if the first frame has not all.
    pub next: Pfn,
    /// Its bytes.
    pub bytes: u32,
}

/// What a task can sleep on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum WaitKey {
    /// A folio's lock or write-back ends.
    Frame(Pfn),
    /// A space's mapping semaphore is released.
    Space(SpaceId),
    /// A file's size semaphore is released.
    File(FileId),
    /// A node's kswapd is wanted.
    Kswapd(NodeId),
    /// A node's kcompactd is wanted.
    Kcompactd(NodeId),
    /// Reclaim on a node makes progress.
    Reclaim(NodeId),
    /// A vector of the node gets a new generation.
    Generation(NodeId),
    /// The flusher of dirty pages is wanted.
    Flusher,
    /// Writes to a device finish.
    Writeback,
    /// khugepaged's next round is due, or the machine stops.
    Khugepaged,
    /// The daemon of promotion is wanted.
    Kpromoted,
    /// zswap's daemon is wanted.
    Zswap,
    /// The deadline only.
    Timer,
}

/// What a task lacks while it stalls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stall {
    /// Memory: the task reclaims or compacts, or waits for a page of the working set that was evicted.
    Memory,
    /// A device: while the task sleeps, it waits for a transfer.
    Io,
}

/// A claim on the next wake-up. A task takes it before it checks its condition, so that a wake-up in between is not
/// lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// What the task waits for.
    pub key: WaitKey,
    /// The machine's own mark.
    pub mark: u64,
}

/// What the memory manager needs from hardware.
///
/// Context: no method except [`wait`](Machine::wait) and [`resched`](Machine::resched) may run another task on this
/// CPU, and these two are called with no [`Lock`](crate::lock::Lock) held. [`shootdown`](Machine::shootdown) may be
/// called with locks held if their holders never wait for an IPI; interrupts must be deliverable during the call.
pub trait Machine: Shared {
    // --- topology -----------------------------------------------------------------------------------------

    /// Number of CPUs, at most [`MAX_CPUS`].
    fn cpus(&self) -> usize;
    /// The node that a CPU sits on.
    fn node_of(&self, cpu: CpuId) -> NodeId;
    /// Memory, one entry a zone, ascending by start.
    fn memory(&self) -> &[MemoryRange];
    /// Distance of two nodes as in ACPI's SLIT (10 = local).
    fn distance(&self, from: NodeId, to: NodeId) -> u32;
    /// How slow a node's memory is, as an abstract distance ([`tier`](crate::tier)).
    fn memory_distance(&self, _node: NodeId) -> u32 {
        DRAM_DISTANCE
    }

    // --- where am I ---------------------------------------------------------------------------------------

    /// The CPU that runs this.
    fn cpu(&self) -> CpuId;
    /// The node of this CPU.
    #[inline]
    fn node(&self) -> NodeId {
        self.node_of(self.cpu())
    }
    /// The current task, by a number that the machine assigns; 0 if unknown. Replacement policies may use it to
    /// distinguish tasks.
    #[inline]
    fn task(&self) -> u32 {
        0
    }
    /// The clock in nanoseconds; monotonic on each CPU.
    fn now(&self) -> Nanos;

    // --- memory -------------------------------------------------------------------------------------------

    /// The content of a page-table page. `pfn` must hold one; [`Machine::zero`] has cleared it before its first use.
    fn table(&self, pfn: Pfn) -> &TablePage;
    /// Fill `pages` frames from `pfn` with zeroes.
    fn zero(&self, pfn: Pfn, pages: u32);
    /// Copy `pages` frames.
    fn copy(&self, to: Pfn, from: Pfn, pages: u32);

    // --- translations -------------------------------------------------------------------------------------

    /// Whether hardware sets the young bit. If not, an access through an old entry faults. Correctness never depends
    /// on it.
    fn has_hw_pte_young(&self) -> bool;
    /// Whether hardware also sets the young bit of entries that point to tables.
    fn has_hw_nonleaf_young(&self) -> bool;
    /// Address-space numbers of each CPU (0: every load of a root flushes).
    fn asids(&self) -> usize;
    /// Load the tables under `root` as `asid` on this CPU. With `keep` the translations cached under `asid` stay
    /// valid, otherwise they are dropped. [`Pfn::NONE`] is the machine's own root, which maps no user memory.
    fn load_root(&self, root: Pfn, asid: Asid, keep: bool);
    /// Drop translations of this CPU.
    fn flush(&self, what: Flush);
    /// Run `remote` on every CPU of `targets` by interrupt and `local` on this CPU, and wait for all of them.
    ///
    /// This is one call and not three phases because the remote CPUs borrow `remote`: a caller that forgot the wait
    /// would leave them running a closure that no longer exists. An implementation issues the request, dispatches the
    /// interrupts, runs `local`, then waits. `targets` never contains this CPU. The caller does the counting.
    fn shootdown(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut());

    /// Whether [`Machine::flush_everywhere`] is available (INVLPGB with TLBSYNC, TLBI with DSB). Correctness never
    /// depends on it.
    fn has_broadcast_flush(&self) -> bool {
        false
    }
    /// Drop, on all CPUs including this one and without interrupts, translations that were cached before this call.
    /// Returns when all CPUs are done. Called only if [`Machine::has_broadcast_flush`].
    fn flush_everywhere(&self, _what: Broadcast) {
        unreachable!("flush_everywhere on a machine without broadcast flushes")
    }

    // --- block storage ------------------------------------------------------------------------------------

    /// Start a transfer. The machine reports its end through [`Mm::io_done`](crate::Mm::io_done) or
    /// [`Mm::io_failed`](crate::Mm::io_failed).
    fn submit(&self, io: Io);

    // --- compression --------------------------------------------------------------------------------------

    /// Whether these frames are all zeroes, if the machine knows.
    #[inline]
    fn is_zero_filled(&self, _first: Pfn, _pages: u32) -> bool {
        false
    }
    /// The word that a page repeats, if the machine knows of one: a value for [`Machine::fill`] alone.
    fn same_filled(&self, _page: Pfn) -> Option<u64> {
        None
    }
    /// Fill a page with such a word.
    fn fill(&self, page: Pfn, word: u64) {
        unreachable!("{page} is filled with the word {word:#x}, which this machine did not name")
    }
    /// How many bytes the compressor makes of a page, at least 1. What it makes stays in this CPU's buffer until it
    /// compresses the next page.
    fn compress(&self, _page: Pfn, _by: Compressor) -> u32 {
        PAGE_SIZE as u32
    }
    /// Store a page in an object: as it is if the object has [`PAGE_SIZE`] bytes, otherwise this CPU's buffer, which
    /// holds what became of it.
    #[expect(clippy::disallowed_methods, reason = "frames of compressed memory are mapped nowhere")]
    fn pack(&self, page: Pfn, object: ObjectPlace) {
        assert_eq!((object.offset, object.bytes), (0, PAGE_SIZE as u32), "this machine does not compress");
        self.copy(object.frame, page, 1);
    }
    /// Fill a page with what was stored in an object.
    #[expect(clippy::disallowed_methods, reason = "the caller fills a page that no task uses yet")]
    fn unpack(&self, object: ObjectPlace, page: Pfn, _by: Compressor) {
        self.copy(page, object.frame, 1);
    }
    /// Move an object that is smaller than a page. Its page may not have been stored in it yet.
    fn move_object(&self, from: ObjectPlace, to: ObjectPlace) {
        unreachable!("{from:?} is moved to {to:?} on a machine that does not compress")
    }

    // --- what is read ------------------------------------------------------------------------------------

    /// From now on, sample the address of one memory read in `every`. The machine wakes [`WaitKey::Kpromoted`] when
    /// enough samples have accumulated.
    fn sample(&self, _every: u64) {}
    /// Pass each frame sampled since the last call to `each`. Returns how many further samples were lost for lack of
    /// room.
    fn take_samples(&self, _each: &mut dyn FnMut(Pfn)) -> u64 {
        0
    }
    /// Reads of a node's memory so far; `None` if the machine does not model their latency under load.
    fn reads_of(&self, _node: NodeId) -> Option<Reads> {
        None
    }

    // --- waiting ------------------------------------------------------------------------------------------

    /// A ticket for the next wake-up of `key`.
    fn ticket(&self, key: WaitKey) -> Ticket;
    /// Sleep until a wake-up that came after the ticket, or until `deadline`. Returns `false` if the deadline came
    /// first.
    fn wait(&self, ticket: Ticket, deadline: Option<Nanos>) -> bool;
    /// Wake all tasks that wait on `key`.
    fn wake(&self, key: WaitKey);
    /// A point at which other tasks may run.
    fn resched(&self);
    /// Whether the machine is shutting down; daemons then return.
    fn stopping(&self) -> bool;

    // --- accounting ---------------------------------------------------------------------------------------

    /// Account `count` units of `work` that this CPU just did. Free on hardware; advances the clock in a simulator.
    fn charge(&self, work: Work, count: u64);
    /// This CPU writes to a line that CPUs share. Nothing on hardware, which moves the line by itself; a simulator lets
    /// the CPU fetch it.
    #[inline(always)]
    fn writes(&self, _line: SharedLine) {}
    /// Whether anything listens to events. If not, callers skip assembling arguments that are expensive to collect.
    #[inline]
    fn listens(&self) -> bool {
        true
    }
    /// The current task enters a scope: everything charged before the matching [`leave`](Machine::leave) belongs to
    /// it. For profiles; see [`scope`](crate::scope).
    #[inline]
    fn enter(&self, _scope: Scope) {}
    /// The current task leaves the innermost scope.
    #[inline]
    fn leave(&self, _scope: Scope) {}
    /// The current task begins to stall (`true`), or has ended to. For pressure stall information; stalls nest.
    #[inline]
    fn stall(&self, _kind: Stall, _begins: bool) {}
    /// Tasks of a space are in the first of these groups from now on; the others are those above it, without the root.
    fn space_enters(&self, _space: SpaceId, _groups: &[GroupId]) {}
    /// A trace event. `args` are those that the event's row in the table names.
    #[inline]
    fn event(&self, _event: Event, _args: [u64; 4]) {}
    /// Whether to call [`Machine::sees_zone`] before and after each compaction of a zone.
    #[inline]
    fn looks_at_zones(&self) -> bool {
        false
    }
    /// A zone is about to be compacted, or has been. No lock is held.
    fn sees_zone(&self, _sight: &ZoneSight<'_>) {}
}

/// A zone before or after its compaction.
pub struct ZoneSight<'a> {
    /// The zone.
    pub zone: ZoneId,
    /// Its first frame.
    pub start: Pfn,
    /// Number of its frames.
    pub frames: u32,
    /// The wanted block; `None`: compact the whole zone.
    pub order: Option<Order>,
    /// The result; `None` before the compaction.
    pub ended: Option<Compacted>,
    /// The use and order of the free block, folio or page that begins at a frame.
    pub look: &'a dyn Fn(Pfn) -> (FrameUse, Order),
}

/// The result of a compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compacted {
    /// Pages moved.
    pub moved: u64,
    /// Whether a block of the wanted size is now free.
    pub made: bool,
}

/// How compaction sees a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameUse {
    /// Free.
    Free,
    /// In use, and its content can move.
    Movable,
    /// A page table, kernel memory, a page that mlock pins while `vm.compact_unevictable_allowed` is 0, or a hole.
    Fixed,
}
