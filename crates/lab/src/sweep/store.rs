//! The directory of a sweep: its file `sweep.toml`, its runs (see [`Kept`]), and in the end or after an interrupt
//! `result.*`, which is made of them.

use super::What;
use crate::error::Result;
use crate::kept::{Kept, Plan};
use crate::record::RunRecord;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

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

/// The runs of a sweep.
pub type Store = Kept<Key, Done>;

/// Take a directory for the sweep of this text. Returns what is done already.
pub fn open(path: &Path, text: &str) -> Result<(Store, BTreeMap<Key, Done>)> {
    Kept::open(path, Plan { noun: "sweep", name: "sweep.toml", text })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::run;

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
        let (mut store, _) = open(scratch.path(), "text").unwrap();
        all.iter().for_each(|(key, done)| store.append(key, done).unwrap());
        drop(store);
        assert_eq!(open(scratch.path(), "text").unwrap().1, all);
    }
}
