//! Where CPU time went, function by function: the tree of `--profile-tree`, as a table and as folded stacks.
//!
//! The tree has all time in which a CPU was busy, and no other: its sum is the CPU time of the run. How long tasks
//! slept (`asleep`) is shown separately, and is in no sum.

use crate::grid::Grid;
use crate::human;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// One node of the tree: a function inside of functions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// The function, by Linux's name; `cpu` at the root, and below it for whom the CPUs worked.
    pub name: String,
    /// How often it was entered.
    pub entered: u64,
    /// CPU time spent here and below, in picoseconds.
    pub total_picos: u64,
    /// CPU time spent right here.
    pub self_picos: u64,
    /// Time that tasks slept right here, or waited for a CPU after that; in no other number.
    pub asleep_picos: u64,
    /// What the CPU time right here was, by kind of work.
    pub work: Vec<Share>,
    /// Functions that were entered from here.
    pub children: Vec<Tree>,
}

/// What the time of a program's tasks was in a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskTime {
    /// Functions, below mappings and files where they are about one, and what the time in them was.
    pub tree: Tree,
    /// Picoseconds of tasks' lives that it does not have; negative: that it has too much.
    pub missed_picos: i64,
}

/// Work of one kind in one place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The kind (`pagefold list costs`); `user` for programs themselves, `ipi_wait` for waiting for other CPUs.
    pub name: String,
    /// Units.
    pub count: u64,
    /// Picoseconds.
    pub picos: u64,
}

impl Tree {
    /// The sum of the trees of several runs; `None` if there is none.
    pub fn sum<'a>(trees: impl IntoIterator<Item = &'a Tree>) -> Option<Tree> {
        let mut trees = trees.into_iter();
        let mut sum = trees.next()?.clone();
        trees.for_each(|tree| sum.add(tree));
        sum.sort();
        Some(sum)
    }

    fn add(&mut self, other: &Tree) {
        self.entered += other.entered;
        self.total_picos += other.total_picos;
        self.self_picos += other.self_picos;
        self.asleep_picos += other.asleep_picos;
        for share in &other.work {
            match self.work.iter_mut().find(|own| own.name == share.name) {
                Some(own) => (own.count, own.picos) = (own.count + share.count, own.picos + share.picos),
                None => self.work.push(share.clone()),
            }
        }
        for child in &other.children {
            match self.children.iter_mut().find(|own| own.name == child.name) {
                Some(own) => own.add(child),
                None => self.children.push(child.clone()),
            }
        }
    }

    /// Sort by time, the most expensive first.
    fn sort(&mut self) {
        self.work.sort_by(|a, b| b.picos.cmp(&a.picos).then_with(|| a.name.cmp(&b.name)));
        self.children.sort_by(|a, b| b.total_picos.cmp(&a.total_picos).then_with(|| a.name.cmp(&b.name)));
        self.children.iter_mut().for_each(Tree::sort);
    }

    /// Time asleep here and below.
    fn asleep(&self) -> u64 {
        self.asleep_picos + self.children.iter().map(Tree::asleep).sum::<u64>()
    }

    /// Share of `self`'s CPU time that functions and kinds of work of the name `of` took inside of functions of the
    /// name `within`, with what they called. If both are one name, all of these functions.
    pub fn share_within(&self, within: &str, of: &str) -> f64 {
        self.time_within(within, of) as f64 / self.total_picos.max(1) as f64
    }

    fn time_within(&self, within: &str, of: &str) -> u64 {
        match self.name == within {
            true => self.time_of(of),
            false => self.children.iter().map(|child| child.time_within(within, of)).sum(),
        }
    }

    /// Time of all functions and kinds of work of a name; a function below another of the same name counts once.
    fn time_of(&self, name: &str) -> u64 {
        if self.name == name {
            return self.total_picos;
        }
        let own: u64 = self.work.iter().filter(|share| share.name == name).map(|share| share.picos).sum();
        own + self.children.iter().map(|child| child.time_of(name)).sum::<u64>()
    }

    /// One line for each node with CPU time: `outer;inner;kind NANOSECONDS`, the format of flame-graph tools.
    pub fn folded(&self) -> String {
        let mut text = String::new();
        self.children.iter().for_each(|child| child.fold(&child.name, &mut text));
        text
    }

    fn fold(&self, path: &str, text: &mut String) {
        for share in &self.work {
            let nanos = (share.picos + 500) / 1000;
            if nanos > 0 {
                let _ = writeln!(text, "{path};{} {nanos}", share.name);
            }
        }
        self.children.iter().for_each(|child| child.fold(&format!("{path};{}", child.name), text));
    }

    /// The table, with means over `runs`.
    pub fn to_text(&self, runs: u32) -> String {
        self.to_grid(runs).render(|column| column == TREE_NAMES, usize::MAX)
    }

    /// The same with its names, which are indented, in column [`TREE_NAMES`].
    pub fn to_grid(&self, runs: u32) -> Grid {
        let mut page = Page {
            grid: Grid::new(["share", "total", "self", "asleep", "count", "function, [work]"]),
            all: self.total_picos.max(1),
            runs: f64::from(runs.max(1)),
        };
        page.place(self, 0);
        page.grid
    }
}

/// The column of a tree's table that has the names.
pub const TREE_NAMES: usize = 5;

/// What takes less of the whole is not shown by itself.
pub const SMALL: f64 = 0.001;

/// A table being written.
struct Page {
    grid: Grid,
    all: u64,
    runs: f64,
}

/// One line below a place.
enum Line<'a> {
    Work(&'a Share),
    Child(&'a Tree),
}

impl Line<'_> {
    fn picos(&self) -> u64 {
        match self {
            Line::Work(share) => share.picos,
            Line::Child(tree) => tree.total_picos,
        }
    }

    fn asleep(&self) -> u64 {
        match self {
            Line::Work(_) => 0,
            Line::Child(tree) => tree.asleep(),
        }
    }
}

impl Page {
    fn time(&self, picos: u64) -> String {
        match picos {
            0 => String::new(),
            _ => human::number(picos as f64 / 1000.0 / self.runs, "ns"),
        }
    }

    fn row(&mut self, depth: usize, name: &str, total: u64, own: u64, asleep: u64, count: u64) {
        let share = format!("{:.2} %", total as f64 * 100.0 / self.all as f64);
        let count = if count > 0 { human::number(count as f64 / self.runs, "") } else { String::new() };
        let name = format!("{}{name}", "  ".repeat(depth));
        self.grid.row([share, self.time(total), self.time(own), self.time(asleep), count, name]);
    }

    fn place(&mut self, tree: &Tree, depth: usize) {
        self.row(depth, &tree.name, tree.total_picos, tree.self_picos, tree.asleep(), tree.entered);
        let mut lines: Vec<Line> =
            tree.children.iter().map(Line::Child).chain(tree.work.iter().map(Line::Work)).collect();
        lines.sort_by_key(|line| std::cmp::Reverse(line.picos()));
        let least = self.all as f64 * SMALL;
        let (shown, small): (Vec<_>, Vec<_>) =
            lines.into_iter().partition(|line| line.picos().max(line.asleep()) as f64 >= least);
        for line in shown {
            match line {
                Line::Work(share) => {
                    self.row(depth + 1, &format!("[{}]", share.name), share.picos, 0, 0, share.count);
                }
                Line::Child(child) => self.place(child, depth + 1),
            }
        }
        let total: u64 = small.iter().map(Line::picos).sum();
        let asleep = small.iter().map(Line::asleep).sum();
        if total + asleep > 0 {
            self.row(depth + 1, &format!("({} more)", small.len()), total, 0, asleep, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(name: &str, kinds: &[(&str, u64)]) -> Tree {
        let work: Vec<Share> =
            kinds.iter().map(|&(name, picos)| Share { name: name.into(), count: 1, picos }).collect();
        let own = kinds.iter().map(|(_, picos)| picos).sum();
        Tree { name: name.into(), entered: 1, total_picos: own, self_picos: own, work, ..Tree::default() }
    }

    fn node(name: &str, children: Vec<Tree>) -> Tree {
        let total_picos = children.iter().map(|child| child.total_picos).sum();
        Tree { name: name.into(), entered: 1, total_picos, children, ..Tree::default() }
    }

    fn example() -> Tree {
        let removal = leaf("folio_remove_rmap", &[("rmap_remove", 30_000_000)]);
        let mut unmap = leaf("try_to_unmap_one", &[("entry_clear", 10_000_000), ("event", 1)]);
        unmap.total_picos += removal.total_picos;
        unmap.children.push(removal);
        let mut wait = leaf("folio_wait_bit", &[]);
        wait.asleep_picos = 5_000_000;
        node("cpu", vec![node("program", vec![wait, unmap])])
    }

    #[test]
    fn trees_of_runs_add_up_and_the_most_expensive_comes_first() {
        let sum = Tree::sum([&example(), &example()]).unwrap();
        assert_eq!((sum.total_picos, sum.children[0].entered), (80_000_002, 2));
        assert_eq!(sum.children[0].children[0].name, "try_to_unmap_one");
        assert_eq!(Tree::sum([]), None);
        let share = |within, of| sum.share_within(within, of);
        assert!((share("try_to_unmap_one", "try_to_unmap_one") - 1.0).abs() < 1e-6);
        assert!((share("try_to_unmap_one", "rmap_remove") - 0.75).abs() < 1e-6);
        assert!(
            (share("folio_remove_rmap", "entry_clear")).abs() < 1e-6 && share("absent", "rmap_remove") == 0.0
        );
    }

    #[test]
    fn the_table_is_indented_and_folds_what_is_small() {
        let sum = Tree::sum([&example(), &example()]).unwrap();
        let text = sum.to_text(2);
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[2], ["100.00", "%", "40.0", "us", "5.00", "us", "1", "cpu"]);
        assert!(text.contains("    try_to_unmap_one") && text.contains("        [rmap_remove]"), "{text}");
        assert_eq!(lines[5], ["75.00", "%", "30.0", "us", "30.0", "us", "1", "folio_remove_rmap"]);
        assert!(text.contains("(1 more)") && text.contains("folio_wait_bit"), "{text}");
    }

    #[test]
    fn folded_stacks_have_a_line_for_each_place_with_time() {
        assert_eq!(
            example().folded(),
            "program;try_to_unmap_one;entry_clear 10000\nprogram;try_to_unmap_one;folio_remove_rmap;rmap_remove 30000\n"
        );
    }
}
