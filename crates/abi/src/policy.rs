//! Memory policies, as programs name them.

use crate::numbered;

numbered! {
    /// How a policy chooses nodes to allocate from.
    PolicyMode {
        /// MPOL_DEFAULT: the policy of the process; without one, the CPU's node first.
        Default = 0,
        /// MPOL_PREFERRED, MPOL_PREFERRED_MANY: the nearest of these nodes first, then all others.
        Preferred = 1,
        /// MPOL_BIND: these nodes and no others, the nearest first.
        Bind = 2,
        /// MPOL_INTERLEAVE: round robin over these nodes; any node if the chosen one has no room.
        Interleave = 3,
    }
}

/// Where memory comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct MemPolicy {
    /// How nodes are chosen.
    pub mode: PolicyMode,
    /// The nodes (bit n: node n); none for the default.
    pub nodes: u64,
}
