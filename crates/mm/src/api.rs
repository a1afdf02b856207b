//! Types of the facade: what a system call asks for, and how it fails.

use crate::units::*;

bitflags::bitflags! {
    /// What a mapping allows.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Prot: u8 {
        /// Loads.
        const READ = 1;
        /// Stores.
        const WRITE = 2;
        /// Instruction fetches.
        const EXEC = 4;
    }
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum AccessKind {
    /// Data read.
    Load,
    /// Data write.
    Store,
    /// Instruction fetch.
    Fetch,
}

impl AccessKind {
    /// The right that it needs.
    pub const fn needs(self) -> Prot {
        match self {
            AccessKind::Load => Prot::READ,
            AccessKind::Store => Prot::WRITE,
            AccessKind::Fetch => Prot::EXEC,
        }
    }
}

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

/// `madvise` values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Advice {
    /// Ordinary read-ahead and recency.
    Normal,
    /// Expect random use: no read-ahead, no recency.
    Random,
    /// Expect sequential use: more read-ahead, no recency.
    Sequential,
    /// Read it in now.
    WillNeed,
    /// Forget the content.
    DontNeed,
    /// The content may be forgotten until it is written again.
    Free,
    /// Make it the first to be reclaimed.
    Cold,
    /// Reclaim it now.
    PageOut,
    /// Anonymous memory may be made of the larger folios whose knob says `madvise`.
    HugePage,
    /// Anonymous memory is to be made of single pages.
    NoHugePage,
    /// Make one folio, mapped by one entry, of each 2 MiB in the range.
    Collapse,
}

/// `posix_fadvise` values.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FileAdvice {
    /// Ordinary read-ahead.
    Normal,
    /// No read-ahead.
    Random,
    /// Twice the read-ahead.
    Sequential,
    /// Read it in now.
    WillNeed,
    /// Drop it from the cache.
    DontNeed,
    /// Used once: no recency.
    NoReuse,
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
        GroupLimits { max: u64::MAX, high: u64::MAX, low: 0, min: 0, swap_max: u64::MAX }
    }
}

impl GroupLimits {
    /// The limits as the files of a control group have them, in bytes: a page that is there only in part is not.
    pub const fn of_bytes(max: u64, high: u64, low: u64, min: u64, swap_max: u64) -> GroupLimits {
        const fn pages(bytes: u64) -> u64 {
            if bytes == u64::MAX { u64::MAX } else { bytes / PAGE_SIZE }
        }
        GroupLimits {
            max: pages(max),
            high: pages(high),
            low: pages(low),
            min: pages(min),
            swap_max: pages(swap_max),
        }
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
