//! The values of the knob `reclaim.policy`.

use super::RIVALS;

/// A replacement policy, as in the knob `reclaim.policy` and in list vectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyKind {
    /// Active and inactive lists.
    Classic,
    /// Generations.
    MgLru,
    /// A policy that proposes: its position in [`RIVALS`]. The next number is the policy that was registered at
    /// start.
    Proposed(u8),
}

/// The first value of a policy that proposes.
const PROPOSED: usize = 2;
/// Number of values: those before, [`RIVALS`], and the registered policy.
const COUNT: usize = PROPOSED + RIVALS.len() + 1;

const WORDS: [&str; COUNT] = {
    let mut words = ["classic"; COUNT];
    words[1] = "mglru";
    words[COUNT - 1] = "custom";
    let mut i = 0;
    while i < RIVALS.len() {
        words[PROPOSED + i] = RIVALS[i].name;
        i += 1;
    }
    words
};

impl PolicyKind {
    /// The words that users write, by value.
    pub const WORDS: &'static [&'static str] = &WORDS;
    /// The policy that was registered at start.
    #[cfg(test)]
    pub(crate) const CUSTOM: PolicyKind = PolicyKind::of(COUNT as u64 - 1);

    /// The policy that a value of the knob selects.
    #[inline]
    pub const fn of(value: u64) -> PolicyKind {
        match value {
            0 => PolicyKind::Classic,
            1 => PolicyKind::MgLru,
            value => PolicyKind::Proposed((value - PROPOSED as u64) as u8),
        }
    }

    /// The knob's value that selects it.
    #[inline]
    pub const fn value(self) -> u64 {
        match self {
            PolicyKind::Classic => 0,
            PolicyKind::MgLru => 1,
            PolicyKind::Proposed(number) => number as u64 + PROPOSED as u64,
        }
    }
}
