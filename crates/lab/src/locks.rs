//! What happened at locks: the table of `run --locks`.

use crate::grid::Grid;
use crate::human;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The locks of one class, summed over runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRecord {
    /// The class (`lock_wait:CLASS` in the profile tree), or a kind of cache line.
    pub lock: String,
    /// How often they were taken; of lines: how often one came from another CPU.
    pub taken: u64,
    /// How often somebody waited for that.
    pub contended: u64,
    /// Nanoseconds for which they were held, over all holders.
    pub held: u64,
    /// Nanoseconds of waiting, over all who waited.
    pub waited: u64,
    /// The longest wait.
    pub longest: u64,
    /// Nanoseconds of waiting by the function that had the lock.
    pub holders: BTreeMap<String, u64>,
}

/// The sum over runs, the most waiting first.
pub fn sum<'a>(runs: impl IntoIterator<Item = &'a [LockRecord]>) -> Vec<LockRecord> {
    let mut sum: BTreeMap<&str, LockRecord> = BTreeMap::new();
    for lock in runs.into_iter().flatten() {
        let of_class = sum.entry(&lock.lock).or_default();
        of_class.lock.clone_from(&lock.lock);
        of_class.taken += lock.taken;
        of_class.contended += lock.contended;
        of_class.held += lock.held;
        of_class.waited += lock.waited;
        of_class.longest = of_class.longest.max(lock.longest);
        for (holder, waited) in &lock.holders {
            *of_class.holders.entry(holder.clone()).or_default() += waited;
        }
    }
    let mut locks: Vec<LockRecord> = sum.into_values().collect();
    locks.sort_by(|a, b| b.waited.cmp(&a.waited).then_with(|| a.lock.cmp(&b.lock)));
    locks
}

/// The table, with means over `runs`.
pub fn to_text(locks: &[LockRecord], runs: u32, width: usize) -> String {
    let mut grid =
        Grid::new(["lock", "taken", "contended", "held", "waited", "longest", "held meanwhile by"]);
    let runs = f64::from(runs.max(1));
    for lock in locks {
        let mean = |value: u64, unit: &'static str| human::number(value as f64 / runs, unit);
        let mut holders: Vec<(&String, u64)> =
            lock.holders.iter().map(|(name, &waited)| (name, waited)).collect();
        holders.sort_by_key(|&(name, waited)| (std::cmp::Reverse(waited), name));
        let share = |waited: u64| waited as f64 * 100.0 / lock.waited.max(1) as f64;
        let holders: Vec<String> =
            holders.iter().take(2).map(|&(name, waited)| format!("{name} {:.0} %", share(waited))).collect();
        grid.row([
            lock.lock.clone(),
            mean(lock.taken, ""),
            mean(lock.contended, ""),
            mean(lock.held, "ns"),
            mean(lock.waited, "ns"),
            human::number(lock.longest as f64, "ns"),
            holders.join(", "),
        ]);
    }
    match locks {
        [] => "no CPU can wait for another: there is one, or time.contention is 0\n".to_owned(),
        _ => grid.render(|column| column == 0 || column == 6, width),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_runs_add_up_and_the_most_waiting_comes_first() {
        let record = |lock: &str, waited, holder: &str| LockRecord {
            lock: lock.to_owned(),
            taken: 10,
            contended: 2,
            held: 50,
            waited,
            longest: waited,
            holders: BTreeMap::from([(holder.to_owned(), waited)]),
        };
        let runs = [
            vec![record("mmap_lock", 5, "do_mmap"), record("zone_lock", 40, "free_pages")],
            vec![record("zone_lock", 60, "kswapd")],
        ];
        let sum = sum(runs.iter().map(Vec::as_slice));
        assert_eq!(sum.iter().map(|lock| &*lock.lock).collect::<Vec<_>>(), ["zone_lock", "mmap_lock"]);
        assert_eq!((sum[0].taken, sum[0].waited, sum[0].longest), (20, 100, 60));
        let text = to_text(&sum, 2, 120);
        assert!(text.contains("kswapd 60 %, free_pages 40 %"), "{text}");
        assert!(to_text(&[], 1, 80).contains("time.contention"));
    }
}
