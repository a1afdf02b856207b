//! Indices and sizes. Each has its own type, so that a page number cannot be mistaken for a frame number.

use abi::{Errno, Group};
use base::index;

pub use base::units::*;

index!(
    /// A NUMA node.
    NodeId(u8), "N");
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

/// Remains of an evicted page, to recognize it on refault. Opaque except to `lru`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shadow(pub u64);

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

/// Bytes rounded up to whole pages.
#[inline]
pub const fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_SIZE)
}

/// A millisecond.
pub(crate) const MILLISECOND: Nanos = 1_000_000;

/// Integer square root, as in the kernel's formulas.
pub(crate) const fn int_sqrt(x: u64) -> u64 {
    x.isqrt()
}
