//! The directory of a sweep: its file `sweep.toml`, its runs ([`crate::kept`]), and in the end or after an interrupt
//! `result.*`, which is made of them.

use super::What;
use crate::kept::Plan;
use crate::record::RunRecord;
use serde::{Deserialize, Serialize};

/// Which run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// What it was told.
    #[serde(flatten)]
    pub what: What,
    /// Its seed.
    pub seed: u64,
}

/// What became of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Done {
    /// Its numbers.
    Record(Box<RunRecord>),
    /// Why it has none.
    Missing(String),
}

/// A directory is for the sweep of this text.
pub fn plan(text: &str) -> Plan<'_> {
    Plan { noun: "sweep", name: "sweep.toml", text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept::Kept;
    use crate::metrics::tests::run;
    use std::collections::BTreeMap;

    #[test]
    fn runs_are_read_as_they_were_kept() {
        let scratch = tempfile::tempdir().unwrap();
        let what = What {
            program: "zipf:1M".into(),
            machine: "small".into(),
            memory: Some("50%".into()),
            profile: "lazy".into(),
            set: vec!["vm.swappiness=1".into()],
            fragment: None,
            verify: false,
        };
        let key = |seed| Key { what: what.clone(), seed };
        let all = BTreeMap::from([
            (key(1), Done::Record(Box::new(run("lazy", 1, 5_000, &[])))),
            (key(2), Done::Missing("out of memory".into())),
        ]);
        let (mut store, _) = Kept::<Key, Done>::open(scratch.path(), plan("text")).unwrap();
        all.iter().for_each(|(key, done)| store.append(key, done).unwrap());
        drop(store);
        assert_eq!(Kept::<Key, Done>::open(scratch.path(), plan("text")).unwrap().1, all);
    }
}
