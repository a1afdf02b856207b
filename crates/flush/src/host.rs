//! What the ledger asks of the kernel that it is in.

use crate::cleared::Cleared;
use crate::range::Range;
use base::cpus::CpuSet;
use base::primitive::Shared;
use base::units::*;

/// The kernel, as the ledger sees it. Eight methods must be written; the others have an answer that is right for a
/// kernel that does without.
///
/// Methods of this trait take no lock that the caller of the ledger holds, and allocate nothing.
///
/// ```
/// # use pagefold_flush::*;
/// /// One CPU, which loads tables and has no TLB.
/// struct Uniprocessor;
///
/// impl Host for Uniprocessor {
///     fn cpu(&self) -> CpuId {
///         CpuId(0)
///     }
///     fn now(&self) -> Nanos {
///         0
///     }
///     fn flush(&self, _what: Flush) {}
///     fn send(&self, _targets: &CpuSet, _remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
///         local();
///     }
///     fn load_root(&self, _root: Pfn, _asid: Asid, _keep: bool) {}
///     fn folio(&self, _head: Pfn) -> Folio {
///         Folio { file: None, order: Order::ZERO }
///     }
///     fn tag(&self, _frame: Pfn) -> u32 {
///         0
///     }
///     fn set_tag(&self, _frame: Pfn, _tag: u32) {}
/// }
///
/// let ledger = Tlb::new(1, 0, 1);
/// let space = ledger.create();
/// ledger.switch(&Uniprocessor, space, Pfn(1));
/// ledger.flush(&Uniprocessor, space, Range::ALL);
/// ```
pub trait Host: Shared {
    /// The CPU that runs the caller. The caller stays on it during a call of the ledger.
    fn cpu(&self) -> CpuId;

    /// The time of this CPU's clock, in nanoseconds. It decides nothing but how old a debt is.
    fn now(&self) -> Nanos;

    /// Drop translations of this CPU. On return no access of this CPU uses them.
    fn flush(&self, what: Flush);

    /// Run `remote` once on each of the CPUs `targets`, which never include this one, and `local` here, in any order or
    /// at the same time. On return all have returned. A target may be interrupted anywhere but between
    /// [`Tlb::switch`](crate::Tlb::switch)'s call and its return, and while it waits for another CPU.
    fn send(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut());

    /// Load the tables under `root` ([`Pfn::NONE`]: none of a space) with the number `asid`. `keep`: what this CPU
    /// has cached under the number stays; otherwise it is dropped.
    fn load_root(&self, root: Pfn, asid: Asid, keep: bool);

    /// The file and the size of the folio whose first frame is `head`.
    fn folio(&self, head: Pfn) -> Folio;

    /// The tag in a frame's record: 32 bits that the kernel keeps for the ledger, 0 at first. They stay with the frame
    /// while it is free, and parts of a split block inherit them. In a page table's record it is about its entries.
    fn tag(&self, frame: Pfn) -> u32;

    /// Write the tag of a frame.
    fn set_tag(&self, frame: Pfn, tag: u32);

    /// The zone of a frame: frames of one zone are paid for together. One for all: `ZoneId(0)`.
    fn zone(&self, _frame: Pfn) -> ZoneId {
        ZoneId(0)
    }

    /// Whether hardware can flush all CPUs without asking them (INVLPGB, TLBI IS).
    fn broadcasts(&self) -> bool {
        false
    }

    /// Drop translations on all CPUs. Called only if [`Host::broadcasts`]. On return no access uses them.
    fn broadcast(&self, _what: Broadcast) {}

    /// When batches flush.
    fn shape(&self) -> Shape {
        Shape::Collect { listed: false }
    }

    /// A number that tunes policies.
    fn tunable(&self, which: Tunable) -> u64 {
        which.usual()
    }

    /// The CPUs that may hold translations of a space change: this CPU writes to a line that others read.
    fn changes_cpus_of(&self, _space: SpaceId) {}

    /// Something happened on `cpu`, `by` times.
    fn count(&self, _cpu: CpuId, _what: Counter, _by: u32) {}

    /// Whether somebody listens to [`Notice::Stale`] and [`Notice::Owed`], which are about single pages.
    fn listens(&self) -> bool {
        false
    }

    /// For observers: an oracle, a tracer.
    fn tell(&self, _notice: Notice<'_>) {}

    /// This CPU begins a step, for profiles.
    fn enter(&self, _step: Step) {}

    /// It ends a step.
    fn leave(&self, _step: Step) {}
}

/// What runs on another CPU, with that CPU's number.
///
/// ```
/// # use pagefold_flush::{CpuId, CpuSet, RemoteCall};
/// /// The middle of [`Host::send`](pagefold_flush::Host::send), on a machine that asks one CPU after the other.
/// fn ask(targets: &CpuSet, remote: &RemoteCall<'_>) {
///     targets.iter().for_each(remote);
/// }
/// let nobody = CpuSet::EMPTY;
/// ask(&nobody, &|cpu: CpuId| panic!("{cpu:?} is asked"));
/// ```
#[cfg(not(feature = "one-thread"))]
pub type RemoteCall<'a> = dyn Fn(CpuId) + Sync + 'a;
/// What runs on another CPU, with that CPU's number.
#[cfg(feature = "one-thread")]
pub type RemoteCall<'a> = dyn Fn(CpuId) + 'a;

/// What the ledger must know of a folio.
///
/// ```
/// # use pagefold_flush::{FileId, Folio, Order};
/// let anonymous = Folio { file: None, order: Order::ZERO };
/// let of_a_file = Folio { file: Some(FileId(3)), order: Order(4) };
/// assert_ne!(anonymous, of_a_file);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Folio {
    /// The file that it shows a part of.
    pub file: Option<FileId>,
    /// log2 of its number of frames.
    pub order: Order,
}

/// Which translations a CPU drops.
///
/// ```
/// # use pagefold_flush::{Flush, Order, Vpn};
/// /// How many invalidations a CPU needs; `None`: it drops everything.
/// fn invalidations(what: Flush) -> Option<u32> {
///     match what {
///         Flush::All | Flush::Current => None,
///         Flush::Pages { count, .. } => Some(count),
///     }
/// }
/// assert_eq!(invalidations(Flush::Pages { start: Vpn(512), count: 2, stride: Order(9) }), Some(2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// Everything, in every address-space number.
    All,
    /// Everything in the current address-space number.
    Current,
    /// Some pages of the current address-space number.
    Pages {
        /// First page.
        start: Vpn,
        /// Number of entries to drop.
        count: u32,
        /// Size of each entry.
        stride: Order,
    },
}

/// Which translations all CPUs drop, whatever number they are cached under.
///
/// ```
/// # use pagefold_flush::{Broadcast, Flush, Pfn, spec::Cache};
/// /// What [`Host::broadcast`](pagefold_flush::Host::broadcast) has the hardware do.
/// fn everywhere(cpus: &mut [Cache], what: Broadcast) {
///     cpus.iter_mut().for_each(|cpu| cpu.broadcast(what));
/// }
/// everywhere(&mut [Cache::default(), Cache::default()], Broadcast::Of(Pfn(9), Flush::Current));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Broadcast {
    /// All of programs.
    All,
    /// Of the tables under a root: those that a CPU with this root loaded would drop.
    Of(Pfn, Flush),
}

/// A hardware address-space number.
///
/// ```
/// # use pagefold_flush::{Asid, Pfn, spec::Cache};
/// let mut cpu = Cache::default();
/// // What is cached under a number is used again when the number is loaded again, if it is kept.
/// cpu.load(Pfn(100), Asid(1), true);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub struct Asid(pub u16);

/// When the batches of reclaim flush.
///
/// ```
/// # #[allow(dead_code)] mod kernel { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/mod.rs")); }
/// # use kernel::*; use pagefold_flush::*;
/// // Under this policy a read-only page costs no request when reclaim unmaps it ...
/// let (kernel, ledger) = Kernel::that_was_read(Shape::Defer { at_ticks: false });
/// let mut batch = UnmapBatch::new(&kernel);
/// assert!(batch.defers());
/// let refs = batch.take(&kernel, &ledger, kernel.clear(A, P));
/// batch.settle(&kernel, &ledger);
/// kernel.free(&ledger, refs);
/// # kernel.on(1);
/// assert_eq!(kernel.read(P), Some(100), "... and is flushed when its frame is used again");
/// # kernel.on(0);
/// kernel.allocate(&ledger);
/// # kernel.on(1);
/// assert_eq!(kernel.read(P), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Each page when it is unmapped.
    Now {
        /// Skip entries that no CPU has used.
        spares_unused: bool,
    },
    /// Pages are collected and flushed together.
    Collect {
        /// One by one, once there are enough; otherwise everything at the end.
        listed: bool,
    },
    /// Frames are freed with their debts, which are paid later.
    Defer {
        /// By each CPU at its next tick; otherwise before the frame is reused, or the address or the file changes.
        at_ticks: bool,
    },
}

/// A number that tunes policies.
///
/// ```
/// # use pagefold_flush::Tunable;
/// /// A host that lets CPUs drop at most 8 entries one by one, and changes nothing else.
/// fn tunable(which: Tunable) -> u64 {
///     match which {
///         Tunable::SinglePages => 8,
///         _ => which.usual(),
///     }
/// }
/// assert_eq!(tunable(Tunable::ListedPages), 32);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tunable {
    /// Most entries that are dropped one by one; more are dropped with everything (33).
    SinglePages,
    /// Entries after which a list is flushed (32).
    ListedPages,
    /// Order of the largest folio whose flush is deferred (10).
    MaxDeferredOrder,
    /// Age in nanoseconds at which a CPU pays its debts at a tick; 0: at none (100 ms).
    AgeLimit,
    /// 1: a round that is sent anyway goes to every CPU that owes for a frame; 0: only to those that it is for (1).
    PayAll,
}

impl Tunable {
    /// The value that serves most.
    #[inline]
    pub const fn usual(self) -> u64 {
        match self {
            Tunable::SinglePages => 33,
            Tunable::ListedPages => 32,
            Tunable::MaxDeferredOrder => 10,
            Tunable::AgeLimit => 100_000_000,
            Tunable::PayAll => 1,
        }
    }
}

/// What is counted.
///
/// ```
/// # use pagefold_flush::Counter;
/// /// The name in /proc/vmstat, for counters that Linux has, too.
/// fn name(what: Counter) -> Option<&'static str> {
///     match what {
///         Counter::Rounds => Some("nr_tlb_remote_flush"),
///         Counter::Received => Some("nr_tlb_remote_flush_received"),
///         Counter::LocalAll => Some("nr_tlb_local_flush_all"),
///         Counter::LocalEntries => Some("nr_tlb_local_flush_one"),
///         _ => None,
///     }
/// }
/// assert_eq!(name(Counter::Spared), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counter {
    /// Rounds for other CPUs.
    Rounds,
    /// Requests that a CPU has got.
    Received,
    /// Flushes of everything that a CPU did for itself.
    LocalAll,
    /// Entries that a CPU dropped for itself, one by one.
    LocalEntries,
    /// Pages whose flush was deferred.
    Deferred,
    /// Pages that were not flushed, because no CPU had used them.
    Spared,
    /// Payments before a frame's next use that asked another CPU.
    PaidForFrames,
    /// Payments for a space or a table that asked another CPU.
    PaidForSpaces,
    /// Payments for a file that asked another CPU.
    PaidForFiles,
    /// Payments that asked no other CPU.
    PaidForFree,
    /// CPUs that paid at a tick.
    PaidAtTicks,
}

/// A step of the ledger's work, for profiles.
///
/// ```
/// # use pagefold_flush::Step;
/// /// The name of a step in a profile.
/// fn name(step: Step) -> &'static str {
///     match step {
///         Step::Flush => "flush",
///         Step::CatchUp => "catch up",
///         Step::Finish | Step::Batch | Step::Pay => "settle",
///     }
/// }
/// assert_eq!(name(Step::Batch), "settle");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Flushing a range of a space.
    Flush,
    /// A CPU's own part of a flush.
    CatchUp,
    /// Ending a gather.
    Finish,
    /// Settling a batch.
    Batch,
    /// Paying debts.
    Pay,
}

/// What a payment is for.
///
/// ```
/// # use pagefold_flush::{Cause, FileId, SpaceId};
/// /// The name of a cause in a trace.
/// fn name(cause: Cause) -> &'static str {
///     match cause {
///         Cause::Space(_) | Cause::Table(..) => "an address changes",
///         Cause::File(_) => "a file changes",
///         Cause::Frames(..) => "a frame is used again",
///     }
/// }
/// assert_eq!(name(Cause::File(FileId(1))), "a file changes");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// A space.
    Space(SpaceId),
    /// A file.
    File(FileId),
    /// A block of frames, by its head.
    Frames(Pfn, Order),
    /// The pages of a space that one table maps, by the first.
    Table(SpaceId, Vpn),
}

/// What observers can learn.
///
/// ```
/// # use pagefold_flush::{Nanos, Notice};
/// /// The longest payment: what [`Host::tell`](pagefold_flush::Host::tell) of a kernel may keep.
/// fn slowest(so_far: Nanos, notice: Notice<'_>) -> Nanos {
///     match notice {
///         Notice::Paid { took, asked: true, .. } => so_far.max(took),
///         _ => so_far,
///     }
/// }
/// assert_eq!(slowest(5, Notice::Round(1)), 5);
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Notice<'a> {
    /// A round begins for this many pages; `u64::MAX`: for everything.
    Round(u64),
    /// CPUs may hold translations that are no longer in the table. `at_once`: the task that cleared them flushes.
    Stale {
        /// The entries.
        cleared: &'a Cleared,
        /// Whether the task that cleared them flushes them itself.
        at_once: bool,
    },
    /// A batch owes for pages that CPUs may store to. Its folios stay locked until it has paid.
    Owed {
        /// The batch, by the generation of its first debt.
        batch: u64,
        /// The space that mapped them.
        space: SpaceId,
        /// The first frame.
        first: Pfn,
        /// Number of frames.
        pages: u32,
    },
    /// That batch has flushed.
    BatchPaid(u64),
    /// A debt was paid.
    Paid {
        /// What for.
        cause: Cause,
        /// Nanoseconds that it took.
        took: Nanos,
        /// Age in nanoseconds of the oldest part.
        age: Nanos,
        /// Whether another CPU was asked.
        asked: bool,
    },
    /// No CPU holds what a task flushed by itself.
    Flushed(SpaceId, Range),
    /// Pages of a space have changed: the first, and their number.
    Changed(SpaceId, Vpn, u64),
}
