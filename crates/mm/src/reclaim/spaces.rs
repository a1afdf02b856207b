//! What reclaim may know of address spaces, which are on the same floor.

use crate::units::*;

/// A space in a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Member {
    /// The group.
    pub group: GroupId,
    /// The number of its arrival: see [`AddressSpaces::arrivals`].
    pub arrival: u64,
}

/// A mapped range whose young bits are meaningful.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalkRange {
    /// First page.
    pub start: Vpn,
    /// First page after it.
    pub end: Vpn,
    /// Whether its pages can only be swapped.
    pub swapbacked: bool,
    /// Whether they may be executed.
    pub executable: bool,
}

/// The address spaces as aging sees them, and what it asks of the floor above.
pub trait AddressSpaces {
    /// The bound of space numbers: 0 to this - 1 were used.
    fn bound(&self) -> u32;

    /// The group of a space, if it is in use.
    fn member(&self, space: SpaceId) -> Option<Member>;

    /// Number of arrivals of spaces in groups so far.
    fn arrivals(&self) -> u64;

    /// Whether the space has run since the last call for this node.
    fn take_ran(&self, space: SpaceId, node: NodeId) -> bool;

    /// The next range of a space, from the one that holds `from` on, whose entries should be visited.
    fn next_range(&self, space: SpaceId, from: Vpn) -> Option<WalkRange>;

    /// The same, without waiting: the caller holds the lock of the space's tables.
    fn try_next_range(&self, space: SpaceId, from: Vpn) -> Option<WalkRange>;

    /// All memory was used recently: choose a space to kill.
    fn thrashes(&self);
}

/// A machine without visible address spaces, and what it does when memory thrashes.
#[cfg(test)]
pub(super) struct Unseen<F>(pub F);

#[cfg(test)]
pub(super) const NO_SPACES: Unseen<fn()> = Unseen(|| ());

#[cfg(test)]
impl<F: Fn()> AddressSpaces for Unseen<F> {
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

    fn thrashes(&self) {
        (self.0)();
    }
}
