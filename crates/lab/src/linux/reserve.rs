//! Memory for the kernel itself: measured in the guest, because kernels differ, and so does what they need by CPUs,
//! nodes and swap space.
//!
//! A first boot gets more than any kernel takes, and says how much is free when the program would begin. Later boots
//! get what was missing of that, and a little more; what is too much is locked away. The less is locked away, the
//! nearer are the limits that Linux computes from all memory to ours.

use crate::boot::Report;
use crate::error::{Error, Result};
use mm::units::PAGE_SIZE;

const MIB: u64 = 1 << 20;
/// By how much boots may differ.
const MARGIN: u64 = 2 * MIB;

/// What the kernel has of the first node, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve {
    /// What it takes before the program begins.
    pub taken: u64,
    /// What of that is its image and its records, and counts to no zone.
    pub never_managed: u64,
}

impl Reserve {
    /// More than any kernel takes that has swap space of this many pages.
    pub fn plenty(swap: u64) -> Reserve {
        Reserve { taken: 160 * MIB + swap * 2, never_managed: 40 * MIB }
    }

    /// From what a guest reported whose first node had this many bytes, some of them its first process's own.
    ///
    /// # Errors
    /// It did not say what is free.
    pub fn measured(report: &Report, had: u64, own: u64) -> Result<Reserve> {
        let said = |what: &str| {
            let name = format!("node 0 {what}");
            let value = report.conditions.iter().find(|(known, _)| *known == name);
            let pages = value.and_then(|(_, pages)| pages.parse::<u64>().ok());
            pages.map(|pages| pages * PAGE_SIZE).ok_or_else(|| {
                Error::Failed(format!(
                    "the guest ended without saying how many pages of its first node are {what}"
                ))
            })
        };
        let taken = had.saturating_sub(said("free")? + own);
        Ok(Reserve { taken: taken + MARGIN, never_managed: had.saturating_sub(said("managed")?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_free_is_the_kernels_or_the_first_processs() {
        let said = |what: &str, bytes: u64| (format!("node 0 {what}"), (bytes / PAGE_SIZE).to_string());
        let conditions = vec![said("free", 120 * MIB), said("managed", 170 * MIB)];
        let report = Report { conditions, ..Report::default() };
        let measured = Reserve::measured(&report, 200 * MIB, 10 * MIB).unwrap();
        assert_eq!(measured, Reserve { taken: 70 * MIB + MARGIN, never_managed: 30 * MIB });
        let silent = Reserve::measured(&Report::default(), 200 * MIB, 0).unwrap_err().to_string();
        assert!(silent.contains("without saying"), "{silent}");
    }
}
