//! The replacement policy from outside that this process was built with, if it was.

use mm::policy::MakePolicy;
use std::sync::OnceLock;

static CUSTOM: OnceLock<MakePolicy> = OnceLock::new();

/// From now on, `reclaim.policy=custom` is this policy.
pub fn set_custom_policy(make: MakePolicy) {
    CUSTOM.get_or_init(|| make);
}

/// The policy, if there is one.
pub fn custom_policy() -> Option<MakePolicy> {
    CUSTOM.get().copied()
}
