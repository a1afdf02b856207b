//! How true our counts are: many programs and settings, each on several kernels and under both of Linux's policies, and
//! one document of it.
//!
//! Every comparison is kept as a file in a folder, so that a run that was interrupted goes on where it stopped, and
//! the document can be written from what is there. A comparison that failed is kept with its reason.

pub mod cases;
pub mod causes;
pub mod document;
pub mod picture;
pub mod ranking;
pub mod summary;
pub mod table;

pub use cases::{CASES, Case};

use super::find;
use super::judge::{Beside, Work};
use crate::document::{Origin, SCHEMA, to_json};
use crate::error::Result;
use serde::{Deserialize, Serialize};

/// Policies that Linux has.
pub const POLICIES: [&str; 2] = ["classic", "mglru"];

/// Which profile simulates a policy of a kernel: what counts and what a load maps changed after 6.1, generations were
/// reworked in 6.14 and 7.2, reading around faults and what they map in 7.2, swapping in for stores in 7.3.
pub fn profile(policy: &str, version: &str) -> String {
    let version = find::numbers(version);
    match policy {
        _ if version.starts_with(&[6, 1]) => format!("{policy}-6.1"),
        _ if version >= vec![7, 3] => format!("{policy}-7.3"),
        _ if version >= vec![7, 2] => format!("{policy}-7.2"),
        "mglru" if version >= vec![6, 14] => "mglru-6.14".to_owned(),
        _ => policy.to_owned(),
    }
}

/// What became of a comparison.
#[derive(Clone, Debug)]
pub enum Kept {
    /// Its result.
    Compared(Box<Beside>),
    /// Why there is none.
    Failed(Failed),
}

/// A comparison without a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failed {
    /// The build that tried.
    #[serde(flatten)]
    pub origin: Origin,
    /// The reason.
    pub comparison_failed: String,
}

impl Failed {
    /// Of this build.
    pub fn new(reason: String) -> Failed {
        Failed { origin: Origin::here(SCHEMA), comparison_failed: reason }
    }
}

impl Kept {
    /// Of a result. Counts of different work cannot be compared.
    pub fn of(beside: Beside) -> Kept {
        if beside.same_work != Some(false) {
            return Kept::Compared(Box::new(beside));
        }
        let Work { simulated, linux } = beside.work;
        let reason =
            format!("did not do the same work: simulated {}; Linux {}", simulated.to_text(), linux.to_text());
        Kept::Failed(Failed { origin: beside.setup.origin, comparison_failed: reason })
    }

    /// Read what [`Kept::to_json`] has written.
    ///
    /// # Errors
    /// The text is neither.
    pub fn from_json(text: &[u8]) -> serde_json::Result<Kept> {
        let value: serde_json::Value = serde_json::from_slice(text)?;
        match value.get("comparison_failed") {
            Some(_) => serde_json::from_value(value).map(Kept::Failed),
            None => serde_json::from_value(value).map(Kept::of),
        }
    }

    /// As a file.
    ///
    /// # Errors
    /// It cannot be written as JSON.
    pub fn to_json(&self) -> Result<String> {
        match self {
            Kept::Compared(beside) => to_json(beside),
            Kept::Failed(failed) => to_json(failed),
        }
    }

    /// The result, if there is one.
    pub fn beside(&self) -> Option<&Beside> {
        match self {
            Kept::Compared(beside) => Some(beside),
            Kept::Failed(_) => None,
        }
    }

    /// The commit that made it.
    pub fn commit(&self) -> &str {
        match self {
            Kept::Compared(beside) => &beside.setup.origin.commit,
            Kept::Failed(failed) => &failed.origin.commit,
        }
    }
}

/// What there is of a case on a kernel.
pub struct Done {
    /// The kernel, as the user named it.
    pub kernel: String,
    /// Of what.
    pub case: &'static Case,
    /// By policy, in the order of [`POLICIES`].
    pub by_policy: [Option<Kept>; 2],
}

impl Done {
    /// What was tried, with its policy.
    pub fn kept(&self) -> impl Iterator<Item = (&'static str, &Kept)> {
        POLICIES.into_iter().zip(&self.by_policy).filter_map(|(policy, kept)| Some((policy, kept.as_ref()?)))
    }

    /// The results under both policies.
    pub fn both(&self) -> Option<[&Beside; 2]> {
        let [classic, mglru] = &self.by_policy;
        Some([classic.as_ref()?.beside()?, mglru.as_ref()?.beside()?])
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::linux::judge::tests::beside;
    use mm::stat::Stat;

    /// What two policies count of pages scanned, on Linux and here.
    pub fn done(case: &'static Case, classic: [i64; 2], mglru: [i64; 2]) -> Done {
        let of = |[linux, here]: [i64; 2]| {
            let scan = |pages| [(Stat::PgscanKswapd, pages), (Stat::Pgmajfault, 1000)];
            Some(Kept::Compared(Box::new(beside(&[&scan(linux)], &scan(here)))))
        };
        Done { kernel: "6.12".into(), case, by_policy: [of(classic), of(mglru)] }
    }

    #[test]
    fn results_and_failures_are_read_as_they_were_kept() {
        let Done { by_policy: [Some(result), _], .. } = done(&CASES[2], [1000, 900], [1, 2]) else {
            panic!()
        };
        let again = Kept::from_json(result.to_json().unwrap().as_bytes()).unwrap();
        assert_eq!(again.beside(), result.beside());
        let failed = Failed::new("the guest's kernel panicked: no memory".into());
        let text = Kept::Failed(failed.clone()).to_json().unwrap();
        match Kept::from_json(text.as_bytes()).unwrap() {
            Kept::Failed(again) => assert_eq!(again, failed),
            Kept::Compared(_) => panic!("{text}"),
        }
    }

    #[test]
    fn a_result_of_different_work_is_a_failure() {
        let Done { by_policy: [Some(Kept::Compared(mut beside)), _], .. } =
            done(&CASES[2], [1000, 900], [1, 2])
        else {
            panic!()
        };
        beside.same_work = Some(false);
        let text = to_json(&beside).unwrap();
        for kept in [Kept::from_json(text.as_bytes()).unwrap(), Kept::of(*beside)] {
            let Kept::Failed(failed) = kept else { panic!("{kept:?}") };
            assert!(failed.comparison_failed.starts_with("did not do the same work: "), "{failed:?}");
        }
    }

    #[test]
    fn generations_are_simulated_as_the_kernel_has_them() {
        let of = |version| profile("mglru", version);
        assert_eq!(of("6.1.0-50-cloud-amd64"), "mglru-6.1");
        assert_eq!(profile("classic", "6.1.0-50-cloud-amd64"), "classic-6.1");
        assert_eq!(of("6.12.117+deb13-cloud-amd64"), "mglru");
        assert_eq!((of("6.19.14"), of("7.2.13+deb14")), ("mglru-6.14".into(), "mglru-7.2".into()));
        assert_eq!(
            (profile("classic", "6.19.14"), profile("classic", "7.3.4")),
            ("classic".into(), "classic-7.3".into())
        );
    }
}
