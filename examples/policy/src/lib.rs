//! Two page-replacement policies. `pagefold --policy-crate examples/policy` runs the first.

mod cheapest;
mod twice;

pub use cheapest::Cheapest;
use mm::policy::Replace;
pub use twice::Twice;

/// An instance of the policy, for each list vector.
pub fn policy() -> Box<dyn Replace> {
    Box::new(Twice)
}
