//! Mappings: rights, backing, and the right that an access needs.

use core::ops::{BitOr, BitOrAssign};

/// What a mapping allows: a set of rights, with the bits of PROT_READ, PROT_WRITE and PROT_EXEC.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Prot(u8);

impl Prot {
    /// No access at all.
    pub const NONE: Prot = Prot(0);
    /// Loads.
    pub const READ: Prot = Prot(1);
    /// Stores.
    pub const WRITE: Prot = Prot(2);
    /// Instruction fetches.
    pub const EXEC: Prot = Prot(4);
    /// Loads and stores.
    pub const RW: Prot = Prot(3);
    /// Loads and fetches.
    pub const RX: Prot = Prot(5);
    /// All rights.
    pub const ALL: Prot = Prot(7);

    /// The rights in these bits; other bits are ignored.
    pub const fn from_bits(bits: u64) -> Prot {
        Prot(bits as u8 & Prot::ALL.0)
    }

    /// Their bits.
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// Whether it contains no right.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether it contains all of `others`.
    pub const fn contains(self, others: Prot) -> bool {
        self.0 & others.0 == others.0
    }
}

impl BitOr for Prot {
    type Output = Prot;

    fn bitor(self, other: Prot) -> Prot {
        Prot(self.0 | other.0)
    }
}

impl BitOrAssign for Prot {
    fn bitor_assign(&mut self, other: Prot) {
        *self = *self | other;
    }
}

/// What an access does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum AccessKind {
    /// A data read.
    Load = 0,
    /// A data write, or a read-modify-write.
    Store = 1,
    /// An instruction fetch.
    Fetch = 2,
}

impl AccessKind {
    /// All kinds, by code.
    pub const ALL: [AccessKind; 3] = [AccessKind::Load, AccessKind::Store, AccessKind::Fetch];

    /// The right that it needs.
    pub const fn needs(self) -> Prot {
        match self {
            AccessKind::Load => Prot::READ,
            AccessKind::Store => Prot::WRITE,
            AccessKind::Fetch => Prot::EXEC,
        }
    }
}

/// The backing of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapSource {
    /// Zeroes, private to the process (copied on write after `fork`).
    Anonymous,
    /// Zeroes, shared with children.
    AnonymousShared,
    /// A file from `offset` (bytes, page aligned); writes go to the file if `shared`, else to private copies.
    File {
        /// The open file.
        fd: u32,
        /// Byte offset of the first page.
        offset: u64,
        /// Whether stores reach the file.
        shared: bool,
    },
}

/// A request to map memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Map {
    /// `Some`: exactly there, replacing existing mappings (MAP_FIXED). `None`: wherever there is room.
    pub addr: Option<u64>,
    /// Bytes, rounded up to pages.
    pub len: u64,
    /// Rights.
    pub prot: Prot,
    /// Backing.
    pub source: MapSource,
    /// Fault all pages in at once (MAP_POPULATE).
    pub populate: bool,
    /// Keep the pages in memory (MAP_LOCKED).
    pub locked: bool,
}

impl Map {
    /// Private anonymous read-write memory of `len` bytes anywhere.
    pub const fn anonymous(len: u64) -> Map {
        Map { addr: None, len, prot: Prot::RW, source: MapSource::Anonymous, populate: false, locked: false }
    }

    /// The descriptor of the file that it maps.
    pub const fn fd_mut(&mut self) -> Option<&mut u32> {
        match &mut self.source {
            MapSource::File { fd, .. } => Some(fd),
            _ => None,
        }
    }

    /// A shared mapping of the first `len` bytes of `fd`.
    pub const fn file_shared(fd: u32, len: u64, prot: Prot) -> Map {
        Map {
            addr: None,
            len,
            prot,
            source: MapSource::File { fd, offset: 0, shared: true },
            populate: false,
            locked: false,
        }
    }
}

/// A request to move or resize a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remap {
    /// Where it is.
    pub addr: u64,
    /// Its length in bytes.
    pub old_len: u64,
    /// Its new length in bytes.
    pub new_len: u64,
    /// Whether it may move if it cannot grow in place.
    pub may_move: bool,
    /// Move exactly there (MREMAP_FIXED).
    pub fixed: Option<u64>,
}
