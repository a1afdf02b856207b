//! Effective protection: how much of its memory.min or memory.low a group really gets.
//!
//! A group can only give its children the protection that it gets itself. If they claim (and use) more, each gets its
//! share; if they claim less, the rest protects the children's unclaimed memory in proportion to its size.

/// The claims and uses at one level of the tree of groups, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Claim {
    /// Pages charged to the group.
    pub usage: u64,
    /// Pages charged to its parent.
    pub parent_usage: u64,
    /// memory.min or memory.low of the group.
    pub setting: u64,
    /// The parent's effective protection.
    pub parent_effective: u64,
    /// The protection that all children of the parent use together: the sum of min(usage, setting).
    pub siblings_protected: u64,
}

impl Claim {
    /// Pages of the group that are protected.
    pub(crate) fn effective(self) -> u64 {
        let protected = self.usage.min(self.setting);
        if self.siblings_protected > self.parent_effective {
            return scale(protected, self.parent_effective, self.siblings_protected);
        }
        let spare = self.parent_effective - self.siblings_protected;
        if spare > 0 && self.parent_usage > self.siblings_protected && self.usage > protected {
            let unclaimed = self.usage - protected;
            return protected + scale(spare, unclaimed, self.parent_usage - self.siblings_protected);
        }
        protected
    }
}

/// `value` * `part` / `whole` without overflow (settings may be as large as "max").
fn scale(value: u64, part: u64, whole: u64) -> u64 {
    u64::try_from(value as u128 * part as u128 / whole as u128).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAIM: Claim =
        Claim { usage: 100, parent_usage: 400, setting: 60, parent_effective: 200, siblings_protected: 60 };

    #[test]
    fn claims_share_the_parents_protection() {
        let within = Claim { parent_effective: 60, ..CLAIM };
        assert_eq!(within.effective(), 60, "a claim within it holds in full");
        let used = Claim { usage: 40, siblings_protected: 40, parent_effective: 40, ..CLAIM };
        assert_eq!(used.effective(), 40, "so does one that is used in part");
        let beyond = Claim { parent_effective: 100, siblings_protected: 240, ..CLAIM };
        assert_eq!(beyond.effective(), 25, "claims beyond it get their share");
        // 140 spare pages over 340 unclaimed ones, of which this group has 40.
        assert_eq!(CLAIM.effective(), 60 + 140 * 40 / 340, "the rest goes to unclaimed memory");
    }

    /// A charge counts in the group first: until it counts in the parent, the parent seems to use less.
    #[test]
    fn charge_on_its_way_to_the_parent_breaks_no_claim() {
        for (parent_effective, parent_usage) in [(200, 60), (200, 50), (60, 60)] {
            let claim = Claim { parent_effective, parent_usage, ..CLAIM };
            assert_eq!(claim.effective(), 60, "{claim:?}");
        }
    }
}
