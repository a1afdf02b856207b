//! Types of the facade: what a system call asks for, and how it fails.

use crate::units::*;

use abi::Errno;

pub use abi::{AccessKind, Advice, FileAdvice, Prot};

/// What stands behind a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Private zeroes.
    Anonymous,
    /// Zeroes shared with children: a nameless shmem file.
    AnonymousShared,
    /// A file from page `offset`.
    File {
        /// The file.
        file: FileId,
        /// Page of the file that the first page of the mapping shows.
        offset: PageIndex,
        /// Do stores go to the file (or to private copies)?
        shared: bool,
        /// Was the file opened for writing? A shared mapping of one that was not may never become writable.
        writable: bool,
    },
}

/// A request to map memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapRequest {
    /// `Some`: exactly there, replacing what was mapped; `None`: wherever there is room.
    pub at: Option<Vpn>,
    /// Number of pages, at least 1.
    pub pages: u64,
    /// Rights.
    pub prot: Prot,
    /// What stands behind it.
    pub backing: Backing,
    /// Keep the pages in memory.
    pub locked: bool,
    /// Fault them in at once.
    pub populate: bool,
}

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileKind {
    /// Blocks of a device, from `block` on, as many pages as the file may ever have.
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
    /// No memory, even by reclaim.
    NoMemory,
    /// Bad argument.
    Invalid,
    /// Rights do not allow it.
    Access,
    /// No such space, file or group.
    NotFound,
    /// Part of the range is not mapped.
    NotMapped,
    /// No space on the device.
    NoSpace,
    /// Somebody uses it just now: to be tried again.
    Again,
    /// There is no room for it in its group, or too little of it in memory.
    Busy,
    /// The space was chosen to die.
    Killed,
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
        }
    }
}

/// What a fault that cannot be served means to the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FaultError {
    /// No mapping there, or it does not allow the access: SIGSEGV.
    Segv,
    /// The mapping reaches beyond the end of the file: SIGBUS.
    Bus,
    /// Out of memory, and this space was chosen to die: SIGKILL.
    Killed,
}

/// What it took to serve a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FaultDone {
    /// Memory only.
    Minor,
    /// It waited for a device.
    Major,
}

/// Swap space on a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapArea {
    /// The device.
    pub device: DeviceId,
    /// Its size in pages.
    pub pages: u32,
    /// Higher is used first.
    pub priority: i16,
}

/// Limits of a memory control group, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLimits {
    /// memory.max: beyond it the group reclaims from itself, then is out of memory.
    pub max: u64,
    /// memory.high: beyond it the group reclaims from itself.
    pub high: u64,
    /// memory.low: below it the group is spared as long as others have something.
    pub low: u64,
    /// memory.min: below it the group is never reclaimed from.
    pub min: u64,
    /// memory.swap.max: beyond it nothing of the group is swapped out.
    pub swap_max: u64,
}

impl Default for GroupLimits {
    fn default() -> Self {
        abi::GroupLimits::default().into()
    }
}

impl From<abi::GroupLimits> for GroupLimits {
    /// A page that is there only in part is not.
    fn from(limits: abi::GroupLimits) -> GroupLimits {
        let pages = |bytes: u64| if bytes == u64::MAX { u64::MAX } else { bytes / PAGE_SIZE };
        let abi::GroupLimits { max, high, low, min, swap_max } = limits;
        let [max, high, low, min, swap_max] = [max, high, low, min, swap_max].map(pages);
        GroupLimits { max, high, low, min, swap_max }
    }
}

/// A background task of the memory manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Daemon {
    /// Keeps a node's free memory above its watermarks.
    Kswapd(NodeId),
    /// Makes large blocks of a node's free memory.
    Kcompactd(NodeId),
    /// Writes dirty pages back.
    Flusher,
    /// Collapses pages that could be mapped by 2 MiB entries.
    Khugepaged,
    /// Moves hot pages to faster tiers, where that is not done at faults.
    Kpromoted,
}
