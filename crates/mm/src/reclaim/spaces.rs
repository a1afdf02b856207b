//! What reclaim may know of address spaces, which stand beside it.

use crate::units::*;

/// A space in a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The group.
    pub group: GroupId,
    /// Which arrival it was: see [`AddressSpaces::arrivals`].
    pub arrival: u64,
}

/// A mapped range whose entries tell what was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalkRange {
    /// First page.
    pub start: Vpn,
    /// First page behind it.
    pub end: Vpn,
    /// Can its pages go nowhere but to swap?
    pub swapbacked: bool,
}

/// All address spaces, as aging sees them, and what it asks of those who stand above it.
pub trait AddressSpaces {
    /// Numbers of spaces ever given out: 0 to this - 1.
    fn bound(&self) -> u32;

    /// The group of a space, if it is in use.
    fn member(&self, space: SpaceId) -> Option<Member>;

    /// Spaces that have come to a group so far.
    fn arrivals(&self) -> u64;

    /// Has the space run since this was last asked for the node?
    fn take_ran(&self, space: SpaceId, node: NodeId) -> bool;

    /// The next range of a space, from the one that holds `from` on, whose entries are worth a look.
    fn next_range(&self, space: SpaceId, from: Vpn) -> Option<WalkRange>;

    /// The same, without waiting: who asks holds the lock of the space's tables.
    fn try_next_range(&self, space: SpaceId, from: Vpn) -> Option<WalkRange>;

    /// All memory is in use that was used lately: choose a space that ends.
    fn thrashes(&self);
}

/// A machine whose address spaces nobody can see.
#[cfg(test)]
pub(super) struct NoSpaces;

#[cfg(test)]
impl AddressSpaces for NoSpaces {
    fn bound(&self) -> u32 {
        0
    }

    fn member(&self, _space: SpaceId) -> Option<Member> {
        None
    }

    fn arrivals(&self) -> u64 {
        0
    }

    fn take_ran(&self, _space: SpaceId, _node: NodeId) -> bool {
        false
    }

    fn next_range(&self, _space: SpaceId, _from: Vpn) -> Option<WalkRange> {
        None
    }

    fn try_next_range(&self, _space: SpaceId, _from: Vpn) -> Option<WalkRange> {
        None
    }

    fn thrashes(&self) {}
}
