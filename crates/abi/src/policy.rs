//! Memory policies, as programs name them.

use crate::numbered;

numbered! {
    /// How the nodes are chosen that memory comes from.
    PolicyMode {
        /// MPOL_DEFAULT: as the process says; if it says nothing, the CPU's node first.
        Default = 0,
        /// MPOL_PREFERRED, MPOL_PREFERRED_MANY: the nearest of these nodes first, then all others.
        Preferred = 1,
        /// MPOL_BIND: these nodes and no others, the nearest first.
        Bind = 2,
        /// MPOL_INTERLEAVE: these nodes in turn; where one has no room, any.
        Interleave = 3,
    }
}

/// Where memory comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct MemPolicy {
    /// How nodes are chosen.
    pub mode: PolicyMode,
    /// Of which (bit n: node n); none for the default.
    pub nodes: u64,
}
