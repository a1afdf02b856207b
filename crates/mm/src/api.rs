//! Types of the facade: what a system call asks for, and how it fails.

use crate::units::*;

use crate::knobs::Compressor;
use abi::Errno;

pub use abi::{AccessKind, Advice, FileAdvice, Prot};

/// What backs a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Private pages, zero at first.
    Anonymous,
    /// Pages shared with children, zero at first: a shmem file without a name.
    AnonymousShared,
    /// A file, from page `offset` on.
    File {
        /// The file.
        file: FileId,
        /// File page that the mapping begins with.
        offset: PageIndex,
        /// Whether stores go to the file instead of private copies.
        shared: bool,
        /// Whether the file was opened for writing. Otherwise a shared mapping may never become writable.
        writable: bool,
    },
}

/// A request to map memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapRequest {
    /// `Some`: exactly there, replacing existing mappings; `None`: wherever there is room.
    pub at: Option<Vpn>,
    /// Number of pages, at least 1.
    pub pages: u64,
    /// Rights.
    pub prot: Prot,
    /// What backs the mapping.
    pub backing: Backing,
    /// Keep the pages in memory.
    pub locked: bool,
    /// Fault the pages in at once.
    pub populate: bool,
}

/// Kind of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// Blocks of a device from `block` on, enough for all pages that the file may ever have.
    Disk {
        /// The device.
        device: DeviceId,
        /// First block.
        block: u64,
    },
    /// Memory and swap only.
    Shmem,
}

/// Why a system call was refused. The names are errno's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Error {
    /// No memory, even after reclaim.
    NoMemory,
    /// Bad argument.
    Invalid,
    /// The rights do not allow it.
    Access,
    /// No such space, file or group.
    NotFound,
    /// Part of the range is not mapped.
    NotMapped,
    /// No space on the device.
    NoSpace,
    /// Temporarily in use: try again.
    Again,
    /// No room for it in the group, or too little of it in memory.
    Busy,
    /// The space was chosen by the OOM killer.
    Killed,
    /// A device has failed.
    Io,
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        match error {
            Error::NoMemory | Error::Killed => Errno::NoMem,
            Error::Invalid => Errno::Inval,
            Error::Access => Errno::Access,
            Error::NotFound => Errno::NoEnt,
            Error::NotMapped => Errno::Fault,
            Error::NoSpace => Errno::NoSpc,
            Error::Again => Errno::Again,
            Error::Busy => Errno::Busy,
            Error::Io => Errno::Io,
        }
    }
}

/// What a fault that cannot be served means for the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FaultError {
    /// No mapping there, or the mapping does not allow the access: SIGSEGV.
    Segv,
    /// The access is beyond the end of the mapped file: SIGBUS.
    Bus,
    /// A device could not read the page: SIGBUS.
    Io,
    /// Out of memory, and the OOM killer chose this space: SIGKILL.
    Killed,
}

/// What it took to serve a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FaultDone {
    /// Memory only.
    Minor,
    /// A wait for a device.
    Major,
}

/// Swap space on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapArea {
    /// The device; not looked at if the area is in memory.
    pub device: DeviceId,
    /// Size in pages.
    pub pages: u32,
    /// The area with the highest priority is used first.
    pub priority: i16,
    /// The area is in memory, compressed.
    pub zram: Option<ZramConfig>,
}

/// The description of a zram device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZramConfig {
    /// comp_algorithm.
    pub compressor: Compressor,
    /// mem_limit in pages; 0: none.
    pub mem_limit: u64,
    /// backing_dev: where pages can be written to.
    pub backing: Option<ZramBacking>,
    /// What a program of user space does for it.
    pub upkeep: Option<ZramUpkeep>,
}

impl ZramConfig {
    /// A device without a limit and a backing device.
    pub const fn new(compressor: Compressor) -> ZramConfig {
        ZramConfig { compressor, mem_limit: 0, backing: None, upkeep: None }
    }
}

/// The blocks of a device that back a zram device. The first is not used, as in Linux.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZramBacking {
    /// The device.
    pub device: DeviceId,
    /// The first block.
    pub block: u64,
    /// Their number.
    pub pages: u32,
}

/// Which pages of a zram device: those that are idle, those that are kept whole, or those that are both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZramPages {
    /// Pages that are not idle are left out.
    pub idle: bool,
    /// Pages that are not kept whole are left out.
    pub huge: bool,
}

/// What a program of user space does for a zram device, again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZramUpkeep {
    /// Nanoseconds from one round to the next.
    pub every: Nanos,
    /// Nanoseconds after which a page that was not used counts as idle.
    pub idle_age: Nanos,
    /// Pages to compress again, if they have at least that many bytes, and how.
    pub recompress: Option<(ZramPages, u32, Compressor)>,
    /// Pages to write to the backing device.
    pub write_back: Option<ZramPages>,
    /// writeback_limit: the most pages to write in all.
    pub write_back_limit: Option<u64>,
}

/// Limits of a memory control group, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLimits {
    /// memory.max: above it the group reclaims from itself, and runs out of memory if that fails.
    pub max: u64,
    /// memory.high: above it the group reclaims from itself.
    pub high: u64,
    /// memory.low: below it the group is spared while other groups have reclaimable memory.
    pub low: u64,
    /// memory.min: below it nothing is reclaimed from the group.
    pub min: u64,
    /// memory.swap.max: above it nothing of the group is swapped out.
    pub swap_max: u64,
}

impl Default for GroupLimits {
    fn default() -> Self {
        abi::GroupLimits::default().into()
    }
}

impl From<abi::GroupLimits> for GroupLimits {
    /// Convert bytes to pages. A partial page does not count.
    fn from(limits: abi::GroupLimits) -> GroupLimits {
        let pages = |bytes: u64| if bytes == u64::MAX { u64::MAX } else { bytes / PAGE_SIZE };
        let abi::GroupLimits { max, high, low, min, swap_max } = limits;
        let [max, high, low, min, swap_max] = [max, high, low, min, swap_max].map(pages);
        GroupLimits { max, high, low, min, swap_max }
    }
}

/// Limits of what a memory control group has in zswap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZswapLimits {
    /// memory.zswap.max, in pages: from there on, pages of the group are not kept.
    pub max: u64,
    /// memory.zswap.writeback: whether pages that zswap does not take or keep may be written to devices.
    pub writeback: bool,
}

impl Default for ZswapLimits {
    fn default() -> Self {
        ZswapLimits { max: u64::MAX, writeback: true }
    }
}

/// A background task of the memory manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Daemon {
    /// Keeps the free memory of a node above its watermarks.
    Kswapd(NodeId),
    /// Makes large free blocks on a node.
    Kcompactd(NodeId),
    /// Writes dirty pages back.
    Flusher,
    /// Collapses pages that could be mapped by 2 MiB entries.
    Khugepaged,
    /// Writes what zswap has no room for.
    Zswap,
    /// Looks after zram devices, as a program of user space does.
    ZramUpkeep,
    /// Moves hot pages to faster tiers where faults do not.
    Kpromoted,
    /// Pages out what was not used for long.
    Kdamond,
}
