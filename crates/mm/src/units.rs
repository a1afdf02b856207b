//! Indices and sizes. Each has its own type, so that a page number cannot be mistaken for a frame number.

use abi::{Errno, Group};
use core::fmt;

/// log2 of the page size.
pub const PAGE_SHIFT: u32 = 12;
/// Bytes in a page.
pub const PAGE_SIZE: u64 = 1 << PAGE_SHIFT;
/// Entries in one page-table page.
pub const TABLE_ENTRIES: usize = 512;
/// Order of the largest block that the allocator keeps (4 MiB).
pub const MAX_ORDER: Order = Order(10);
/// Order of a page block, the unit of mobility grouping, and of a 2 MiB entry.
pub const PAGEBLOCK_ORDER: Order = Order(9);
/// Frames in a page block.
pub(crate) const PAGEBLOCK_FRAMES: u32 = PAGEBLOCK_ORDER.frames();

macro_rules! index {
    ($(#[$doc:meta])* $name:ident($inner:ty), $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl $name {
            /// As an index into an array.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!($prefix, "{:x}"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(self, f)
            }
        }
    };
}

index!(
    /// Number of a physical frame: physical address / 4096.
    Pfn(u32), "F");
index!(
    /// Number of a virtual page: virtual address / 4096.
    Vpn(u64), "V");
index!(
    /// Index of a page in a file, or in the numbering of an anonymous mapping.
    PageIndex(u64), "I");
index!(
    /// A CPU.
    CpuId(u16), "C");
index!(
    /// A NUMA node.
    NodeId(u8), "N");
index!(
    /// A zone, numbered across all nodes.
    ZoneId(u8), "Z");
index!(
    /// An address space.
    SpaceId(u32), "S");
index!(
    /// A file: something with a page cache.
    FileId(u32), "f");
index!(
    /// A set of anonymous pages that share their reverse map.
    AnonId(u32), "a");
index!(
    /// A memory control group.
    GroupId(u16), "G");

impl TryFrom<Group> for GroupId {
    type Error = Errno;

    /// Fails if the number is larger than that of any group.
    fn try_from(group: Group) -> Result<GroupId, Errno> {
        u16::try_from(group.0).map(GroupId).map_err(|_| Errno::NoEnt)
    }
}

impl From<GroupId> for Group {
    fn from(group: GroupId) -> Group {
        Group(group.0.into())
    }
}

impl TryFrom<u32> for NodeId {
    type Error = Errno;

    /// Fails if the number is larger than that of any node.
    fn try_from(node: u32) -> Result<NodeId, Errno> {
        u8::try_from(node).map(NodeId).map_err(|_| Errno::NoEnt)
    }
}

index!(
    /// A block device.
    DeviceId(u8), "D");
index!(
    /// A page-sized slot of swap space, numbered across all swap devices.
    SwapSlot(u32), "w");
index!(
    /// A mapped range of an address space; never reused within a run.
    VmaId(u32), "m");
index!(
    /// log2 of a number of frames.
    Order(u8), "o");

/// Remains of an evicted page, to recognize it on refault. Opaque except to `lru`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shadow(pub u64);

impl Pfn {
    /// "No frame": the end of a list, an empty slot.
    pub const NONE: Pfn = Pfn(u32::MAX);

    /// Whether this is a frame at all.
    #[inline]
    pub const fn is_some(self) -> bool {
        self.0 != u32::MAX
    }

    /// The frame `n` frames further on.
    #[inline]
    pub const fn add(self, n: u32) -> Pfn {
        Pfn(self.0 + n)
    }

    /// The buddy of the block of `order` that this frame heads.
    #[inline]
    pub const fn buddy(self, order: Order) -> Pfn {
        Pfn(self.0 ^ (1 << order.0))
    }

    /// The head of the block of `order` that contains this frame.
    #[inline]
    pub const fn align_down(self, order: Order) -> Pfn {
        Pfn(self.0 & !((1 << order.0) - 1))
    }
}

impl Order {
    /// One frame.
    pub const ZERO: Order = Order(0);

    /// Frames in a block of this order. Every hot path calls this, so it does not check that the order is less than
    /// 32.
    #[inline]
    pub const fn frames(self) -> u32 {
        1u32.wrapping_shl(self.0 as u32)
    }
}

/// Some of the first 64 nodes: bit n is node n. An empty set means all nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct Nodes(pub u64);

impl Nodes {
    /// All nodes.
    pub const ALL: Nodes = Nodes(0);

    /// Whether the set contains `node`.
    #[inline]
    pub const fn contains(self, node: NodeId) -> bool {
        self.0 == 0 || (node.0 < 64 && self.0 >> node.0 & 1 != 0)
    }

    /// The nodes that are named, in ascending order.
    pub fn named(self) -> impl Iterator<Item = NodeId> + Clone {
        (0..u64::BITS as u8).filter(move |&node| self.0 >> node & 1 != 0).map(NodeId)
    }
}

impl Vpn {
    /// The page that contains a byte address.
    #[inline]
    pub const fn of(addr: u64) -> Vpn {
        Vpn(addr >> PAGE_SHIFT)
    }

    /// The page's first byte.
    #[inline]
    pub const fn addr(self) -> u64 {
        self.0 << PAGE_SHIFT
    }
}

/// Bytes rounded up to whole pages.
#[inline]
pub const fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_SIZE)
}

/// A time or a duration of the machine's clock, in nanoseconds.
pub type Nanos = u64;

/// A millisecond.
pub(crate) const MILLISECOND: Nanos = 1_000_000;

/// Integer square root, as in the kernel's formulas.
pub(crate) const fn int_sqrt(x: u64) -> u64 {
    x.isqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buddies_are_mutual_and_share_a_parent() {
        for order in 0..10 {
            let a = Pfn(0x5400).align_down(Order(order));
            let b = a.buddy(Order(order));
            assert_eq!(b.buddy(Order(order)), a);
            assert_eq!(a.align_down(Order(order + 1)), b.align_down(Order(order + 1)));
        }
    }

    #[test]
    fn names_say_what_they_number() {
        assert_eq!(std_alloc::format!("{} {:?} {}", Pfn(31), Order(9), CpuId(2)), "F1f o9 C2");
    }
}
