//! Control groups, as programs name and limit them.

/// A memory control group of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub struct Group(pub u32);

impl Group {
    /// The group at the root of the tree, which has no limits. Every process is in it until it enters another.
    pub const ROOT: Group = Group(0);
}

/// Limits of a control group, in bytes, as the files of cgroup v2 have them; [`u64::MAX`] is their `max`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupLimits {
    /// memory.max
    pub max: u64,
    /// memory.high
    pub high: u64,
    /// memory.low
    pub low: u64,
    /// memory.min
    pub min: u64,
    /// memory.swap.max
    pub swap_max: u64,
}

impl GroupLimits {
    /// Names of their files, in the order of the fields.
    pub const FILES: [&str; 5] = ["memory.max", "memory.high", "memory.low", "memory.min", "memory.swap.max"];
}

impl Default for GroupLimits {
    fn default() -> Self {
        GroupLimits { max: u64::MAX, high: u64::MAX, low: 0, min: 0, swap_max: u64::MAX }
    }
}
