//! The trait that the suite needs from the kernel around the machine.

use crate::watch::IoWatch;
use core::fmt;
use mm::Mm;
use mm::machine::Machine;
use mm::primitive::Shared;
use mm::units::{CpuId, DeviceId, Nanos, SpaceId, TABLE_ENTRIES, Vpn};

/// A part of a block device that the suite may overwrite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scratch {
    /// The device.
    pub device: DeviceId,
    /// First block (a block is a page).
    pub block: u64,
    /// Number of blocks; all storage checks run with 256 or more.
    pub blocks: u64,
}

/// The kernel around the machine, as the suite drives it.
///
/// When [`run`](crate::run) is called, the memory manager runs on the machine with its daemons, and no
/// address space exists. The suite creates spaces of its own and ends all of them. It is called from a task
/// that may sleep and belongs to no space.
///
/// Methods with a default are for what some kernels cannot do; the checks that need them are then skipped,
/// and the report says so.
pub trait Harness: Shared + Sized {
    /// The machine.
    type Machine: Machine;

    /// The memory manager on the machine.
    fn mm(&self) -> &Mm<Self::Machine>;

    // --- tasks --------------------------------------------------------------------------------------------

    /// Start a task on `cpu` that runs `entry(argument)` and ends. It belongs to no space, may sleep, and
    /// never leaves the CPU. A CPU can have several.
    fn start(&self, cpu: CpuId, entry: fn(usize), argument: usize);

    /// One iteration of a loop that waits for other tasks: they run, also those of this CPU, and time passes.
    fn pause(&self);

    /// One iteration of a kernel loop that keeps the CPU: interrupts arrive, but other tasks of this CPU need
    /// not run.
    fn spin(&self);

    /// Let the current task belong to `space`. As at every task switch, the kernel calls [`Mm::switch`] with
    /// interrupts off: now, and whenever it switches back to this task.
    fn enter(&self, space: Option<SpaceId>);

    /// Call `entry(argument)` on this CPU in the context from which the kernel calls [`Mm::io_done`], and
    /// return after the call. Returns `false` if that cannot be done on request.
    fn in_io_context(&self, _entry: fn(usize), _argument: usize) -> bool {
        false
    }

    // --- accesses -----------------------------------------------------------------------------------------

    /// Words of 8 bytes in a page that keep what is stored in them: all, unless memory is a model.
    fn words(&self) -> usize {
        TABLE_ENTRIES
    }

    /// Load a word of a page as a program on this CPU would: through its translations and the loaded tables.
    /// Returns `None` if hardware raised a fault. The fault is *not* given to the memory manager, but, as
    /// after every fault, this CPU then holds no translation of the page.
    fn load(&self, page: Vpn, word: usize) -> Option<u64>;

    /// Store a word, as [`Harness::load`] loads one. Returns `false` if hardware raised a fault.
    fn store(&self, page: Vpn, word: usize, value: u64) -> bool;

    /// Whether accesses have a program's rights, so that an entry without the user bit refuses them. (With
    /// `false` they have the kernel's rights, which are enough for all other checks. Write protection must
    /// apply to them: on x86, CR0.WP.)
    fn has_program_rights(&self) -> bool {
        true
    }

    /// The word that makes a page executable code that only returns, for [`Harness::fetch`]; on x86 0xc3.
    /// `None`: the suite cannot make this machine fetch.
    fn code(&self) -> Option<u64> {
        None
    }

    /// Fetch and run the code at the start of a page, as [`Harness::load`] loads. Returns `false` if hardware
    /// raised a fault.
    fn fetch(&self, _page: Vpn) -> bool {
        false
    }

    /// Run a program on this CPU, in the space that the task has entered, that loads the first word of `page`
    /// until it is not 0. Returns `false`, with nothing done, if the kernel cannot.
    fn spin_as_program(&self, _page: Vpn) -> bool {
        false
    }

    // --- storage ------------------------------------------------------------------------------------------

    /// Blocks for the suite; `None` without a device.
    fn scratch(&self) -> Option<Scratch> {
        None
    }

    /// The list of the suite's own transfers. The kernel asks it before it calls [`Mm::io_done`].
    fn watch(&self) -> &IoWatch;

    // --- the suite itself ---------------------------------------------------------------------------------

    /// How long anything may take before the suite regards it as hung, by the machine's clock, in
    /// nanoseconds.
    fn patience(&self) -> Nanos {
        20_000_000_000
    }

    /// How often checks that look for races repeat their work: 1 in an emulator or for a quick look, more on
    /// real CPUs.
    fn effort(&self) -> u32 {
        4
    }

    /// Report a line of progress: which check begins, or how it ended.
    fn progress(&self, _line: fmt::Arguments<'_>) {}

    /// A check has left tasks behind that do not end, and what they use must stay: nothing can go on. `why`
    /// names the check. Must not unwind.
    fn give_up(&self, why: &str) -> !;
}
