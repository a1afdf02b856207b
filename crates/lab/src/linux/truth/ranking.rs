//! Which of two policies wins, on Linux and here.

use super::Done;
use crate::linux::judge::{Beside, Row};

/// A policy wins if it is better by more than this many per cent.
pub const WINS_BY: f64 = 2.0;
/// Counts below this have no winner: they vary by chance.
const FEW: f64 = 200.0;
/// Counts of which less is better.
pub const METRICS: [&str; 3] = ["pgmajfault", "pgpgin", "pgscan"];

/// Whether both sides have the same winner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranks {
    /// The same, or none on either.
    Agree,
    /// The opposite.
    Inverted,
    /// One side has a winner, the other none.
    OneSided,
}

impl Ranks {
    /// In the document's table.
    pub fn word(self) -> &'static str {
        match self {
            Ranks::Agree => "agrees",
            Ranks::Inverted => "**inverted**",
            Ranks::OneSided => "one side only",
        }
    }
}

/// A count under both policies.
pub struct Ranking<'a> {
    /// The rows, in the order of policies.
    pub rows: [&'a Row; 2],
    /// From the first policy to the second in per cent, on Linux.
    pub linux: f64,
    /// The same, here.
    pub here: f64,
    /// Whether they agree.
    pub ranks: Ranks,
}

/// The rankings of a case: a count that repeats another under both policies, or that no side has enough of, has none.
pub fn rankings(done: &Done) -> Vec<Ranking<'_>> {
    let Some([classic, mglru]) = done.both() else { return Vec::new() };
    METRICS.iter().filter_map(|metric| ranking(metric, classic, mglru)).collect()
}

fn ranking<'a>(metric: &str, classic: &'a Beside, mglru: &'a Beside) -> Option<Ranking<'a>> {
    let rows = [classic.row(metric)?, mglru.row(metric)?];
    let [one, other] = rows;
    // A total that repeats its parts is ranked, because they are not.
    let repeats = |row: &Row| row.copy_of.as_ref().is_some_and(|of| !of.starts_with(metric));
    let most = [one.linux, other.linux, one.simulated, other.simulated].into_iter().fold(0.0, f64::max);
    if repeats(one) && repeats(other) || most < FEW {
        return None;
    }
    let (linux, here) = (change(one.linux, other.linux), change(one.simulated, other.simulated));
    let ranks = match (winner(linux), winner(here)) {
        (one, other) if one == other => Ranks::Agree,
        (0, _) | (_, 0) => Ranks::OneSided,
        _ => Ranks::Inverted,
    };
    Some(Ranking { rows, linux, here, ranks })
}

fn change(from: f64, to: f64) -> f64 {
    match (from, to) {
        (0.0, 0.0) => 0.0,
        (0.0, _) => f64::INFINITY,
        _ => (to / from - 1.0) * 100.0,
    }
}

/// -1: the second is better, 1: the first, 0: neither.
fn winner(change: f64) -> i8 {
    match change {
        change if change > WINS_BY => 1,
        change if change < -WINS_BY => -1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::done;
    use super::super::{CASES, Done, Kept};
    use super::*;

    #[test]
    fn a_ranking_agrees_is_inverted_or_one_sided() {
        let of = |classic, mglru| {
            let done: Done = done(&CASES[2], classic, mglru);
            rankings(&done).into_iter().find(|ranking| ranking.rows[0].metric == "pgscan").unwrap().ranks
        };
        assert_eq!(of([10_000, 10_000], [8_000, 9_000]), Ranks::Agree);
        assert_eq!(of([10_000, 8_500], [8_000, 9_000]), Ranks::Inverted);
        assert_eq!(of([10_000, 9_000], [8_000, 9_100]), Ranks::OneSided);
        assert_eq!(of([10_000, 9_000], [10_100, 9_100]), Ranks::Agree, "nobody wins");
        assert_eq!(of([10, 9_000], [10, 8_000]), Ranks::OneSided, "Linux has few, we have many");
    }

    #[test]
    fn a_total_that_repeats_its_parts_is_ranked() {
        let mut done: Done = done(&CASES[2], [10_000, 10_000], [8_000, 9_000]);
        let mut copy = |of: &str| {
            for kept in done.by_policy.iter_mut().flatten() {
                let Kept::Compared(beside) = kept else { panic!() };
                beside
                    .rows
                    .iter_mut()
                    .filter(|row| row.metric == "pgscan")
                    .for_each(|row| row.copy(of.into()));
            }
            rankings(&done).iter().any(|ranking| ranking.rows[0].metric == "pgscan")
        };
        assert!(copy("pgscan_anon") && copy("pgscan_anon + pgscan_file"));
        assert!(!copy("pgmajfault"), "another ranking");
    }
}
