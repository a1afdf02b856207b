//! Where the choice of a kind of swap turns: how slow disks must be, or how well pages must compress, for a kind in
//! memory to take less time than the disk alone.

use super::super::plan::{Sweep, What};
use super::super::store::{Done, Finished, Key};
use super::kinds::DISK;
use super::{Row, Swapping};
use crate::statistics::Change;
use serde::Serialize;
use std::collections::BTreeMap;

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Varied {
    /// How many times as long requests to disks take.
    Disk,
    /// How many times as large compressed pages are.
    Pages,
}

impl Varied {
    /// The change of a machine ([`crate::engine::Machine::find`]).
    fn change(self, factor: f64) -> String {
        match self {
            Varied::Disk => format!("slow={factor}"),
            Varied::Pages => format!("packed={factor}"),
        }
    }

    fn said(self, factor: f64) -> String {
        match (self, factor == 1.0) {
            (Varied::Disk, true) => "disks as fast as this machine's".to_owned(),
            (Varied::Disk, false) => format!("disks {factor:.2} times as slow"),
            (Varied::Pages, true) => "pages that compress as these do".to_owned(),
            (Varied::Pages, false) => format!("compressed pages {factor:.2} times as large"),
        }
    }

    /// The least and the largest factor that are tried. Most pages cannot get larger than four thirds of themselves.
    fn limits(self) -> [f64; 2] {
        match self {
            Varied::Disk => [1.0 / 64.0, 64.0],
            Varied::Pages => [1.0 / 8.0, 4.0],
        }
    }

    /// Whether memory gains on the disk while the factor grows.
    fn favours_memory(self) -> bool {
        self == Varied::Disk
    }
}

/// A difference of less than this is none.
const LEAST: f64 = 0.01;
/// How often what is between two factors, of which one is twice the other, is halved.
const HALVINGS: u32 = 2;

/// Where a choice turns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Turn {
    /// What is varied.
    pub varied: Varied,
    /// The kind in memory, or partly there, with its swappiness, that takes less time than the disk on its side of the
    /// turn; `null` if none does.
    pub memory: Option<String>,
    /// The kind that uses the disk alone, with its swappiness.
    pub disk: String,
    /// Whether one takes less time as things are.
    pub memory_wins: bool,
    /// The factor nearest to 1 with which it turned; `null` if it did not within the limits.
    pub turned: Option<f64>,
    /// The factor nearest to that with which it did not.
    pub held: f64,
    /// This in a sentence.
    pub text: String,
}

/// The search for one turn.
pub struct Search {
    /// The index of its case.
    pub case: usize,
    /// The disk alone and each kind in memory, with its swappiness, and what it runs.
    kinds: Vec<(String, What)>,
    turn: Turn,
    halved: u32,
    /// The factor that is tried next.
    next: Option<f64>,
}

impl Search {
    /// Searches for a case. Each kind has the swappiness that is best for it as things are. None if the disk alone, or
    /// every kind in memory, does not come to its end. `what` gives what a row runs.
    pub fn of(case: usize, swapping: &Swapping, what: impl Fn(&Row) -> What) -> Vec<Search> {
        let mut names: Vec<&str> = swapping.rows.iter().map(|row| &row.swap[..]).collect();
        names.dedup();
        let best = names.into_iter().filter_map(|name| swapping.best_of(name));
        let (disk, memory): (Vec<&Row>, Vec<&Row>) =
            best.filter(|row| row.swappiness.is_some()).partition(|row| row.swap == DISK);
        if disk.is_empty() || memory.is_empty() {
            return Vec::new();
        }
        let rows: Vec<Row> = disk.into_iter().chain(memory).cloned().collect();
        let winner = winner(&rows).flatten();
        let of = |varied| {
            let turn = Turn {
                varied,
                memory: winner.map(|at| rows[at].name()),
                disk: rows[0].name(),
                memory_wins: winner.is_some(),
                turned: None,
                held: 1.0,
                text: String::new(),
            };
            let kinds = rows.iter().map(|row| (row.name(), what(row))).collect();
            let mut search = Search { case, kinds, turn, halved: 0, next: None };
            search.next = search.outward();
            search
        };
        [Varied::Disk, Varied::Pages].map(of).into()
    }

    /// The next factor farther from 1, if there is one within the limits.
    fn outward(&self) -> Option<f64> {
        let grows = self.turn.varied.favours_memory() != self.turn.memory_wins;
        let next = if grows { self.turn.held * 2.0 } else { self.turn.held / 2.0 };
        let [least, most] = self.turn.varied.limits();
        (least..=most).contains(&next).then_some(next)
    }

    /// What is run next.
    fn runs(&self) -> Option<impl Iterator<Item = What>> {
        let change = self.turn.varied.change(self.next?);
        let on = move |what: &What| What { machine: format!("{}+{change}", what.machine), ..what.clone() };
        Some(self.kinds.iter().map(move |(_, what)| on(what)))
    }

    /// Take what has become of it: the number of the kind in memory that takes less time, if one does. `None`: no kind
    /// came to its end, and nor would one farther from 1.
    fn learn(&mut self, winner: Option<Option<usize>>) {
        let (Some(factor), Some(winner)) = (self.next, winner) else {
            self.next = None;
            return;
        };
        if winner.is_some() == self.turn.memory_wins {
            self.turn.held = factor;
        } else {
            self.turn.turned = Some(factor);
        }
        self.turn.memory = winner.map(|at| self.kinds[at].0.clone()).or(self.turn.memory.take());
        self.next = match self.turn.turned {
            None => self.outward(),
            Some(_) if self.halved == HALVINGS => None,
            Some(turned) => {
                self.halved += 1;
                Some((turned * self.turn.held).sqrt())
            }
        };
    }

    /// What it has found.
    pub fn into_turn(self) -> Turn {
        Turn { text: self.turn.said(), ..self.turn }
    }
}

/// Which row takes less time than the first, beyond doubt: the number of the fastest, if it does. `None`: no program
/// came to its end.
fn winner(rows: &[Row]) -> Option<Option<usize>> {
    let (disk, memory) = rows.split_first()?;
    let ended = memory.iter().enumerate().filter_map(|(at, row)| Some((at, row.mean_time()?)));
    let Some((at, _)) = ended.min_by(|a, b| a.1.total_cmp(&b.1)) else { return disk.ended().then_some(None) };
    let takes_less = || {
        let change = Change::of(&disk.run_time, &memory[at].run_time);
        change.is_significant() && change.ratio.is_some_and(|ratio| ratio < 1.0 - LEAST)
    };
    Some(Some(at + 1).filter(|_| !disk.ended() || takes_less()))
}

/// The next runs of all searches; `None` if all have ended.
pub fn step(searches: &[Search], seeds: (u64, u32)) -> Option<Sweep> {
    let whats: Vec<What> = searches.iter().filter_map(Search::runs).flatten().collect();
    if whats.is_empty() {
        return None;
    }
    let names = (0..whats.len()).map(|at| at.to_string()).collect();
    Some(Sweep::product([("run", names)], seeds, &["run_time"], |[at]| whats[at].clone()))
}

/// Take what has become of the runs of `sweep`, which [`step`] made.
pub fn learn(searches: &mut [Search], sweep: &Sweep, done: &BTreeMap<Key, Done>) {
    let finished = Finished::of(sweep, done);
    let rows = sweep.points.iter().map(|point| Row::new("", None, finished.runs(point.what)));
    let rows: Vec<Row> = rows.collect();
    let mut rest = &rows[..];
    for search in searches.iter_mut().filter(|search| search.next.is_some()) {
        let (own, others) = rest.split_at(search.kinds.len());
        search.learn(winner(own));
        rest = others;
    }
}

impl Turn {
    /// A sentence.
    fn said(&self) -> String {
        let Turn { varied, memory, disk, memory_wins, turned, held, .. } = self;
        let [at, held] = [turned.unwrap_or(*held), *held].map(|factor| varied.said(factor));
        let memory = memory.as_deref().unwrap_or("a kind in memory");
        match (memory_wins, turned) {
            (true, None) => format!("{memory} takes less time than {disk} even with {at}."),
            (false, None) => format!("No kind in memory takes less time than {disk}, even with {at}."),
            (true, Some(_)) => {
                format!("{memory} takes less time than {disk} with {held}, and no kind in memory with {at}.")
            }
            (false, Some(_)) => {
                format!("{memory} takes less time than {disk} with {at}, and no kind in memory with {held}.")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use super::*;

    /// A case in which the disk takes `disk` and zram 100 ns, and its searches.
    fn searches(disk: u64) -> Vec<Search> {
        let rows = vec![
            row("none", None, &[Some(1), Some(1)]),
            row("disk", Some(60), &[Some(disk), Some(disk + 1)]),
            row("zram 50%", Some(60), &[Some(100), Some(101)]),
            row("zram 25%", Some(60), &[Some(200), Some(201)]),
        ];
        let case = Swapping {
            program: "zipf:1M".into(),
            memory: 1 << 20,
            size: "50%".into(),
            rows,
            best: None,
            advice: String::new(),
            apply: Vec::new(),
            turns: Vec::new(),
        };
        let what = |row: &Row| What { program: row.name(), machine: "laptop".into(), ..What::default() };
        Search::of(0, &case, what)
    }

    /// The turn if the kind in memory wins where `wins` says so, and the factors that were tried.
    fn found(mut search: Search, wins: impl Fn(f64) -> bool) -> (Turn, Vec<f64>) {
        let mut tried = Vec::new();
        while let Some(factor) = search.next {
            tried.push(factor);
            search.learn(Some(wins(factor).then_some(1)));
        }
        (search.into_turn(), tried)
    }

    #[test]
    fn slower_disks_are_tried_until_memory_wins_and_then_between() {
        let [disk, _] = searches(50).try_into().ok().unwrap();
        let (turn, tried) = found(disk, |slow| slow >= 5.0);
        assert_eq!(tried[..3], [2.0, 4.0, 8.0]);
        assert_eq!(tried.len(), 3 + HALVINGS as usize);
        assert!(
            turn.held < 5.0 && turn.turned.is_some_and(|turned| (5.0..6.0).contains(&turned)),
            "{turn:?}"
        );
        let expected = "zram 50% at swappiness 60 takes less time than disk at swappiness 60 with disks 5.66 times as slow, \
                        and no kind in memory with disks 4.76 times as slow.";
        assert_eq!(turn.text, expected);
    }

    #[test]
    fn smaller_pages_are_tried_where_the_disk_wins_and_larger_ones_where_memory_does() {
        let [_, pages] = searches(50).try_into().ok().unwrap();
        let (turn, tried) = found(pages, |_| false);
        assert_eq!((tried, turn.turned), (vec![0.5, 0.25, 0.125], None));
        assert!(
            turn.text.starts_with("No kind in memory") && turn.text.ends_with("0.12 times as large."),
            "{turn:?}"
        );
        let [disk, pages] = searches(150).try_into().ok().unwrap();
        let (turn, tried) = found(pages, |packed| packed < 3.0);
        assert_eq!((tried[0], turn.memory_wins), (2.0, true));
        assert!(turn.turned.is_some_and(|turned| (3.0..=4.0).contains(&turned)), "{turn:?}");
        assert_eq!(found(disk, |_| true).1, [0.5, 0.25, 0.125, 0.0625, 0.03125, 0.015625]);
    }

    #[test]
    fn a_search_ends_where_no_kind_comes_to_its_end() {
        let [mut disk, _] = searches(50).try_into().ok().unwrap();
        disk.learn(Some(None));
        disk.learn(None);
        let turn = disk.into_turn();
        assert_eq!((turn.held, turn.turned), (2.0, None));
        let late = row("disk", Some(60), &[None]);
        let early = row("zram", None, &[Some(9)]);
        assert_eq!(
            (winner(&[late.clone(), late.clone()]), winner(&[late, early.clone()])),
            (None, Some(Some(1)))
        );
        assert_eq!(winner(&[early.clone(), early]), Some(None));
    }

    #[test]
    fn all_kinds_run_on_the_changed_machine() {
        let searches = searches(50);
        let sweep = step(&searches, (1, 2)).unwrap();
        let machines: Vec<&str> = sweep.whats.iter().map(|what| &what.machine[..]).collect();
        assert_eq!(machines, [["laptop+slow=2"; 3], ["laptop+packed=0.5"; 3]].concat());
        let programs: Vec<&str> = sweep.whats.iter().map(|what| &what.program[..3]).collect();
        assert_eq!(programs[..3], ["dis", "zra", "zra"]);
        assert!(step(&[], (1, 2)).is_none());
    }
}
