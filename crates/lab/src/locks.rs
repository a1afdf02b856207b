//! What CPUs waited for: the tables of `run --locks`, of locks and of cache lines.

use crate::grid::Grid;
use crate::human;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The locks of one class, summed over runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockRecord {
    /// The class (`lock_wait:CLASS` in the profile tree).
    pub lock: String,
    /// How often they were taken.
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

/// Cache lines of one kind that came from other CPUs, summed over runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineRecord {
    /// The kind (`line_socket:KIND` and `line_remote:KIND` in the profile tree).
    pub line: String,
    /// How often one came.
    pub fetched: u64,
    /// Nanoseconds that it took.
    pub took: u64,
    /// The longest.
    pub longest: u64,
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

/// The sum over runs, those that took the most time first.
pub fn sum_lines<'a>(runs: impl IntoIterator<Item = &'a [LineRecord]>) -> Vec<LineRecord> {
    let mut sum: BTreeMap<&str, LineRecord> = BTreeMap::new();
    for line in runs.into_iter().flatten() {
        let of_kind = sum.entry(&line.line).or_default();
        of_kind.line.clone_from(&line.line);
        of_kind.fetched += line.fetched;
        of_kind.took += line.took;
        of_kind.longest = of_kind.longest.max(line.longest);
    }
    let mut lines: Vec<LineRecord> = sum.into_values().collect();
    lines.sort_by(|a, b| b.took.cmp(&a.took).then_with(|| a.line.cmp(&b.line)));
    lines
}

/// [`lines_to_grid`] as text.
pub fn lines_to_text(lines: &[LineRecord], runs: u32, width: usize) -> Option<String> {
    lines_to_grid(lines, runs).map(|grid| grid.render(|column| column == 0, width))
}

/// The table of lines, with means over `runs`; nothing where CPUs fetch none from each other.
pub fn lines_to_grid(lines: &[LineRecord], runs: u32) -> Option<Grid> {
    let mut grid = Grid::new(["line", "fetched", "took", "longest"]);
    let runs = f64::from(runs.max(1));
    for line in lines {
        grid.row([
            line.line.clone(),
            human::number(line.fetched as f64 / runs, ""),
            human::number(line.took as f64 / runs, "ns"),
            human::number(line.longest as f64, "ns"),
        ]);
    }
    (!lines.is_empty()).then_some(grid)
}

/// [`to_grid`] as text.
pub fn to_text(locks: &[LockRecord], runs: u32, width: usize) -> String {
    match locks {
        [] => "no CPU can wait for another: there is one, or time.contention is 0\n".to_owned(),
        _ => to_grid(locks, runs).render(|column| column == 0 || column == 6, width),
    }
}

/// The table of locks, with means over `runs`.
pub fn to_grid(locks: &[LockRecord], runs: u32) -> Grid {
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
    grid
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

    #[test]
    fn lines_of_runs_add_up_and_the_most_time_comes_first() {
        let record =
            |line: &str, took| LineRecord { line: line.to_owned(), fetched: 4, took, longest: took / 2 };
        let runs = [vec![record("lock_line", 90), record("frame_line", 80)], vec![record("frame_line", 20)]];
        let sum = sum_lines(runs.iter().map(Vec::as_slice));
        let expected =
            |line: &str, fetched, took, longest| LineRecord { line: line.to_owned(), fetched, took, longest };
        assert_eq!(sum, [expected("frame_line", 8, 100, 40), expected("lock_line", 4, 90, 45)]);
        let text = lines_to_text(&sum, 2, 120).expect("there are lines");
        let first: Vec<&str> = text.lines().nth(2).expect("it has rows").split_whitespace().collect();
        assert_eq!(first, ["frame_line", "4", "50", "ns", "40", "ns"], "{text}");
        assert_eq!(lines_to_text(&[], 1, 80), None);
    }
}
