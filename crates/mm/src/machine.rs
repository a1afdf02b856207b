//! The seam: what the memory manager needs from hardware, and nothing else.
//!
//! The machine's owner (a kernel, or the simulator) drives the memory manager from above and promises:
//! - to call [`Mm::switch`](crate::Mm::switch) whenever a CPU goes over to another address space, with interrupts off
//!   on that CPU until it returns,
//! - to call [`Mm::fault`](crate::Mm::fault) when a translation is missing or forbids an access, to drop the faulting
//!   translation of that CPU first (as hardware does), and to retry after it,
//! - to call [`Mm::io_done`](crate::Mm::io_done) once for every request handed to [`Machine::submit`],
//! - to run [`Mm::daemon`](crate::Mm::daemon) for each of [`Mm::daemons`](crate::Mm::daemons) on a task of its own.
//!
//! Below it, this trait. Nothing here allocates memory that the memory manager manages.

use crate::event::Event;
use crate::primitive::{AtomicU64, Shared};
use crate::units::*;

pub use crate::scope::Scope;
pub use crate::work::Work;

/// The content of a page-table page.
pub type TablePage = [AtomicU64; TABLE_ENTRIES];

/// Most CPUs that a machine can have.
pub const MAX_CPUS: usize =
    if cfg!(any(feature = "loom", feature = "shuttle", feature = "few-cpus")) { 64 } else { 512 };

/// A set of CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CpuSet {
    words: [u64; MAX_CPUS / 64],
}

impl CpuSet {
    /// The empty set.
    pub const EMPTY: CpuSet = CpuSet { words: [0; MAX_CPUS / 64] };

    /// Add a CPU.
    #[inline]
    pub fn insert(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] |= 1 << (cpu.0 % 64);
    }

    /// Take a CPU out.
    #[inline]
    pub fn remove(&mut self, cpu: CpuId) {
        self.words[cpu.index() / 64] &= !(1 << (cpu.0 % 64));
    }

    /// Is the CPU in it?
    #[inline]
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.words[cpu.index() / 64] & (1 << (cpu.0 % 64)) != 0
    }

    /// Is it empty?
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|&word| word == 0)
    }

    /// Set 64 CPUs at once: those from `64 * index` on.
    #[inline]
    pub fn set_word(&mut self, index: usize, word: u64) {
        self.words[index] = word;
    }

    /// Number of CPUs in it.
    pub fn len(&self) -> u32 {
        self.words.iter().filter(|&&word| word != 0).map(|word| word.count_ones()).sum()
    }

    /// Are all of them in `other`?
    #[inline]
    #[must_use]
    pub fn is_within(&self, other: &CpuSet) -> bool {
        // Without a branch for each word: sets are mostly alike.
        self.words.iter().zip(other.words).fold(0, |beyond, (&word, other)| beyond | (word & !other)) == 0
    }

    /// The CPUs that are not in `other`.
    #[must_use]
    pub fn without(&self, other: &CpuSet) -> CpuSet {
        let mut rest = *self;
        for (word, gone) in rest.words.iter_mut().zip(other.words) {
            *word &= !gone;
        }
        rest
    }

    /// Add all CPUs of `other`.
    pub fn union(&mut self, other: &CpuSet) {
        for (word, more) in self.words.iter_mut().zip(other.words) {
            *word |= more;
        }
    }

    /// The CPUs, in order.
    pub fn iter(&self) -> impl Iterator<Item = CpuId> + use<> {
        let words = self.words;
        let (mut at, mut rest) = (0, words[0]);
        core::iter::from_fn(move || {
            while rest == 0 {
                at += 1;
                rest = *words.get(at)?;
            }
            let bit = rest.trailing_zeros();
            rest &= rest - 1;
            Some(CpuId((at * 64) as u16 + bit as u16))
        })
    }
}

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

/// Which translations a CPU drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// Everything, in every address-space number.
    All,
    /// Everything of the address-space number that is loaded now.
    Current,
    /// Some pages of the address-space number that is loaded now.
    Pages {
        /// First page.
        start: Vpn,
        /// Number of entries to drop.
        count: u32,
        /// Size of each entry.
        stride: Order,
    },
}

/// A hardware address-space number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Asid(pub u16);

/// One transfer between frames and a block device. Blocks are pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Io {
    /// The device.
    pub device: DeviceId,
    /// To the device, or from it.
    pub write: bool,
    /// First block.
    pub block: u64,
    /// Head of the folio that holds, or gets, the data.
    pub frame: Pfn,
    /// Pages to transfer.
    pub pages: u32,
}

/// Reads of some memory so far, the nanoseconds that they took together, and those that one takes while nobody else
/// reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Reads {
    /// How many.
    pub count: u64,
    /// What they took.
    pub nanos: u64,
    /// What one takes of memory at rest.
    pub idle: u64,
}

impl Reads {
    /// Of both.
    #[must_use]
    pub fn and(self, other: Reads) -> Reads {
        let idle = self.idle.max(other.idle);
        Reads { count: self.count + other.count, nanos: self.nanos + other.nanos, idle }
    }
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
    /// Somebody waits for reclaim on a node to make progress.
    Reclaim(NodeId),
    /// Somebody waits until a vector of the node has a new generation.
    Generation(NodeId),
    /// The flusher of dirty pages is wanted.
    Flusher,
    /// Somebody waits for writes to finish.
    Writeback,
    /// khugepaged's next round is due, or the machine stops.
    Khugepaged,
    /// The daemon of promotion is wanted.
    Kpromoted,
    /// The time only.
    Timer,
}

/// A claim on the next wake-up: taken before the condition is checked, so that a wake-up in between is not lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ticket {
    /// What is waited for.
    pub key: WaitKey,
    /// The machine's mark.
    pub mark: u64,
}

/// What the memory manager needs from hardware.
///
/// Contract on context: no method but [`wait`](Machine::wait) and [`resched`](Machine::resched) lets another task run
/// on this CPU; these two are called with no [`Lock`](crate::lock::Lock) held. [`shootdown`](Machine::shootdown) may be
/// called with locks held whose holders never wait for an IPI, and interrupts must be able to arrive meanwhile.
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
        crate::tier::DRAM_DISTANCE
    }

    // --- where am I ---------------------------------------------------------------------------------------

    /// The CPU that runs this.
    fn cpu(&self) -> CpuId;
    /// The node that it sits on.
    #[inline]
    fn node(&self) -> NodeId {
        self.node_of(self.cpu())
    }
    /// The task that runs, by a number of the machine's own; 0: not known. Replacement policies may tell tasks apart by
    /// it.
    #[inline]
    fn task(&self) -> u32 {
        0
    }
    /// The clock, in nanoseconds. Never goes back on one CPU.
    fn now(&self) -> Nanos;

    // --- memory -------------------------------------------------------------------------------------------

    /// Reach a page-table page. Only called for frames that hold one (zeroed with [`Machine::zero`] before first use).
    fn table(&self, pfn: Pfn) -> &TablePage;
    /// Fill `pages` frames from `pfn` with zeroes.
    fn zero(&self, pfn: Pfn, pages: u32);
    /// Copy `pages` frames.
    fn copy(&self, to: Pfn, from: Pfn, pages: u32);

    // --- translations -------------------------------------------------------------------------------------

    /// Does hardware set the young bit? If not, an access to an old entry faults. Never decides correctness.
    fn has_hw_pte_young(&self) -> bool;
    /// Does hardware set the young bit of entries that point to tables?
    fn has_hw_nonleaf_young(&self) -> bool;
    /// How many address-space numbers each CPU has (0: every load of a root flushes).
    fn asids(&self) -> usize;
    /// Load the tables under `root` as `asid` on this CPU; `keep`: translations that it still has under `asid` are
    /// good, else they are dropped. [`Pfn::NONE`] is the machine's own root, which maps no user memory.
    fn load_root(&self, root: Pfn, asid: Asid, keep: bool);
    /// Drop translations of this CPU.
    fn flush(&self, what: Flush);
    /// Run `remote` on every CPU of `targets` by interrupt, `local` on this one meanwhile, and wait for all.
    ///
    /// The three phases stand in one call because `remote` is borrowed: with separate ones, a caller that forgot to
    /// wait would leave other CPUs running a closure that is gone. An implementation issues the request, dispatches the
    /// interrupts, runs `local`, then waits. `targets` never holds this CPU. Counts nothing; the caller does.
    fn shootdown(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut());

    /// Can [`Machine::flush_everywhere`] be used (INVLPGB with TLBSYNC, TLBI with DSB)? Never decides correctness.
    fn has_broadcast_flush(&self) -> bool {
        false
    }
    /// Make all CPUs, this one too, drop every translation of a program that was made before this call, without
    /// interrupting them. Returns when they have. Only called if [`Machine::has_broadcast_flush`].
    fn flush_everywhere(&self) {
        unreachable!("a machine without broadcast")
    }

    // --- block storage ------------------------------------------------------------------------------------

    /// Start a transfer. Its end is told through [`Mm::io_done`](crate::Mm::io_done).
    fn submit(&self, io: Io);

    // --- what is read ------------------------------------------------------------------------------------

    /// Sample the address of one read of memory in `every`, from now on. When many have come together, wake
    /// [`WaitKey::Kpromoted`].
    fn sample(&self, _every: u64) {}
    /// Hand over the frames that were sampled since this was last called. Returns how many more were lost for want of
    /// room.
    fn take_samples(&self, _each: &mut dyn FnMut(Pfn)) -> u64 {
        0
    }
    /// Reads of a node's memory so far; `None`: the machine does not know what they take under load.
    fn reads_of(&self, _node: NodeId) -> Option<Reads> {
        None
    }

    // --- waiting ------------------------------------------------------------------------------------------

    /// A ticket for the next wake-up of `key`.
    fn ticket(&self, key: WaitKey) -> Ticket;
    /// Sleep until a wake-up that came after the ticket, or until `deadline`. `false` if the deadline came first.
    fn wait(&self, ticket: Ticket, deadline: Option<Nanos>) -> bool;
    /// Wake all tasks that wait on `key`.
    fn wake(&self, key: WaitKey);
    /// A good moment to let other tasks run.
    fn resched(&self);
    /// Is the machine going down? Daemons end when it is.
    fn stopping(&self) -> bool;

    // --- accounting ---------------------------------------------------------------------------------------

    /// `count` units of `work` were just done on this CPU. Free on hardware; moves the clock in a simulator.
    fn charge(&self, work: Work, count: u64);
    /// Does anybody hear of events? Where nobody does, what is dear to tell is not put together.
    #[inline]
    fn listens(&self) -> bool {
        true
    }
    /// The task that runs here enters a scope: what is charged until it leaves it is done inside. For profiles; see
    /// [`scope`](crate::scope).
    #[inline]
    fn enter(&self, _scope: Scope) {}
    /// It leaves the scope that it entered last.
    #[inline]
    fn leave(&self, _scope: Scope) {}
    /// A trace event happened. `args` are as the event's table entry names them.
    #[inline]
    fn event(&self, _event: Event, _args: [u64; 4]) {}
    /// Is a zone to be shown before and after it is compacted ([`Machine::sees_zone`])?
    #[inline]
    fn looks_at_zones(&self) -> bool {
        false
    }
    /// A zone is going to be compacted, or has been. No lock is held.
    fn sees_zone(&self, _sight: &ZoneSight<'_>) {}
}

/// A zone as compaction finds it, or leaves it.
pub struct ZoneSight<'a> {
    /// Which.
    pub zone: ZoneId,
    /// Its first frame.
    pub start: Pfn,
    /// Its frames.
    pub frames: u32,
    /// The block that is wanted; `None`: all that can be made.
    pub order: Option<Order>,
    /// What the compaction has come to; `None`: it is going to begin.
    pub ended: Option<Compacted>,
    /// What is at a frame, at which a free block, a folio or a page begins, and how large that is.
    pub look: &'a dyn Fn(Pfn) -> (FrameUse, Order),
}

/// What a compaction has come to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compacted {
    /// Pages that it moved.
    pub moved: u64,
    /// There is a block of the wanted size.
    pub made: bool,
}

/// What a frame is to compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameUse {
    /// Nobody uses it.
    Free,
    /// What it holds could be elsewhere.
    Movable,
    /// A page table, what a kernel keeps, a page that is locked in memory and may not be moved
    /// (`vm.compact_unevictable_allowed`), or no memory.
    Fixed,
}

/// Code that runs on another CPU.
#[cfg(not(feature = "one-thread"))]
pub type RemoteCall<'a> = dyn Fn(CpuId) + Sync + 'a;
/// Code that runs on another CPU.
#[cfg(feature = "one-thread")]
pub type RemoteCall<'a> = dyn Fn(CpuId) + 'a;

#[cfg(test)]
mod tests {
    use super::*;
    use std_alloc::vec::Vec;

    #[test]
    fn cpu_sets_hold_what_was_put_in() {
        let mut set = CpuSet::EMPTY;
        for cpu in [0, 63, 64, 511] {
            set.insert(CpuId(cpu));
        }
        set.remove(CpuId(63));
        assert_eq!(set.iter().map(|c| c.0).collect::<Vec<_>>(), [0, 64, 511]);
        assert!(set.contains(CpuId(64)) && !set.contains(CpuId(63)) && set.len() == 3);
    }

    #[test]
    fn a_set_is_within_one_that_has_all_of_its_cpus() {
        let set = |cpus: &[u16]| {
            let mut set = CpuSet::EMPTY;
            cpus.iter().for_each(|&cpu| set.insert(CpuId(cpu)));
            set
        };
        assert!(CpuSet::EMPTY.is_within(&CpuSet::EMPTY) && set(&[1, 70]).is_within(&set(&[1, 2, 70])));
        assert!(!set(&[1, 70]).is_within(&set(&[1, 2])) && !set(&[2]).is_within(&CpuSet::EMPTY));
    }
}
