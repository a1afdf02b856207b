//! What the suite asks of the kernel around the machine.

use crate::watch::IoWatch;
use core::fmt;
use mm::Mm;
use mm::machine::Machine;
use mm::primitive::Shared;
use mm::units::{CpuId, DeviceId, Nanos, SpaceId, TABLE_ENTRIES, Vpn};

/// A part of a block device that belongs to the suite: what it holds is overwritten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scratch {
    /// The device.
    pub device: DeviceId,
    /// First block (a block is a page).
    pub block: u64,
    /// Number of blocks; with 256 or more all checks of storage run.
    pub blocks: u64,
}

/// The kernel around the machine, as far as the suite must drive it.
///
/// When [`run`](crate::run) is called, the memory manager stands on the machine, its daemons run, and no address space
/// exists. The suite makes spaces of its own and ends all of them. It is called from a task that may sleep and that
/// belongs to no space.
///
/// Methods that have a default are for what a kernel may not be able to do; the checks that need them are then skipped,
/// and the report says so.
pub trait Harness: Shared + Sized {
    /// The machine.
    type Machine: Machine;

    /// The memory manager on the machine.
    fn mm(&self) -> &Mm<Self::Machine>;

    // --- tasks --------------------------------------------------------------------------------------------

    /// Start a task on `cpu` that runs `entry(argument)` and ends. It belongs to no space, may sleep, and never leaves
    /// the CPU. Several can be on one CPU.
    fn start(&self, cpu: CpuId, entry: fn(usize), argument: usize);

    /// One turn of a loop that waits for other tasks: they get to run, those of this CPU too, and time passes.
    fn pause(&self);

    /// One turn of a loop in the kernel that keeps the CPU: no other task of this CPU need run, interrupts arrive.
    fn spin(&self);

    /// The task that runs belongs to `space` from now on. As at every task switch, the kernel calls
    /// [`Mm::switch`] with interrupts off: now, and whenever it comes back to this task.
    fn enter(&self, space: Option<SpaceId>);

    /// Call `entry(argument)` on this CPU in the context from which the kernel calls [`Mm::io_done`], and return when
    /// it has. `false`: cannot be done on request.
    fn where_io_ends(&self, _entry: fn(usize), _argument: usize) -> bool {
        false
    }

    // --- accesses -----------------------------------------------------------------------------------------

    /// Words of 8 bytes in a page that hold what is stored to them: all, unless memory is a model.
    fn words(&self) -> usize {
        TABLE_ENTRIES
    }

    /// Load a word of a page as a program on this CPU would: through its translations and the tables that it has
    /// loaded. `None`: hardware raised a fault. The fault is *not* given to the memory manager, but, as at every fault,
    /// this CPU then holds no translation of the page any more.
    fn load(&self, page: Vpn, word: usize) -> Option<u64>;

    /// Store a word, as [`Harness::load`] loads one. `false`: hardware raised a fault.
    fn store(&self, page: Vpn, word: usize, value: u64) -> bool;

    /// Do accesses have a program's rights, so that an entry without the user bit refuses them? (`false`: the kernel's,
    /// which are enough for all other checks. Write protection must hold for them: on x86, CR0.WP.)
    fn has_program_rights(&self) -> bool {
        true
    }

    /// The word that makes a page executable code which only returns, for [`Harness::fetch`]; x86: 0xc3. `None`: the
    /// suite cannot make this machine fetch.
    fn code(&self) -> Option<u64> {
        None
    }

    /// Fetch and run the code at the start of a page, as [`Harness::load`] loads. `false`: hardware raised a fault.
    fn fetch(&self, _page: Vpn) -> bool {
        false
    }

    /// Run a program on this CPU, in the space that the task has entered, that loads the first word of `page` until it
    /// is not 0. `false`: there is no such mode, and nothing was done.
    fn spin_as_program(&self, _page: Vpn) -> bool {
        false
    }

    // --- storage ------------------------------------------------------------------------------------------

    /// Blocks for the suite. `None`: no device.
    fn scratch(&self) -> Option<Scratch> {
        None
    }

    /// Where the suite says which transfers are its own. The kernel asks it before it calls [`Mm::io_done`].
    fn watch(&self) -> &IoWatch;

    // --- the suite itself ---------------------------------------------------------------------------------

    /// How long anything may take before it counts as never, by the machine's clock, in nanoseconds.
    fn patience(&self) -> Nanos {
        20_000_000_000
    }

    /// How much of what is repeated to find races is done: 1 in an emulator or for a quick look, more on real CPUs.
    fn effort(&self) -> u32 {
        4
    }

    /// A line for who waits for the result: which check begins, or how it ended.
    fn progress(&self, _line: fmt::Arguments<'_>) {}

    /// A check has left tasks behind that do not end, and what they use must stay: nothing can go on. `why` names the
    /// check. Must not unwind.
    fn give_up(&self, why: &str) -> !;
}
