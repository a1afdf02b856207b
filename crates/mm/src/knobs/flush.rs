//! The shapes of flush policies.

use super::FlushPolicy;
use pagefold_flush::Shape;

impl FlushPolicy {
    /// Its shape, which is all that the ledger knows of it. A new policy is declared here.
    #[inline]
    pub(crate) const fn shape(self) -> Shape {
        match self {
            FlushPolicy::Eager => Shape::Now { spares_unused: false },
            FlushPolicy::Abis => Shape::Now { spares_unused: true },
            FlushPolicy::Batch => Shape::Collect { listed: false },
            FlushPolicy::List => Shape::Collect { listed: true },
            FlushPolicy::Lazy => Shape::Defer { at_ticks: false },
            FlushPolicy::Latr => Shape::Defer { at_ticks: true },
        }
    }

    /// Whether it defers flushes as long as possible.
    pub(crate) const fn defers(self) -> bool {
        matches!(self.shape(), Shape::Defer { .. })
    }
}
