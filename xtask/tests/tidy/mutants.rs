//! The table of docs/mutants.md counts what docs/mutants-left.tsv lists.

use crate::project::files;
use crate::summary::{cells, section};
use std::collections::BTreeMap;

/// The table's columns that are counted: all that is left, and the words for what reading it gave.
const VERDICTS: [&str; 6] = ["same", "work", "tested", "seen", "unclear", "unread"];
/// The first of them in the table, after the room, what has run, and what three judges have caught.
const LEFT: usize = 5;

type Row = [usize; 1 + VERDICTS.len()];

/// What the list has of each room.
fn counted(list: &str) -> BTreeMap<&str, Row> {
    let mut rooms = BTreeMap::<&str, Row>::new();
    for line in list.lines() {
        let (file, verdict) = (line.split(['/', '.']).next(), line.split('\t').nth(3));
        let word = VERDICTS.iter().position(|&word| Some(word) == verdict);
        let row = rooms.entry(file.expect("a line has a file")).or_default();
        row[0] += 1;
        row[1 + word.unwrap_or_else(|| panic!("a line has one of {VERDICTS:?}: {line}"))] += 1;
    }
    rooms
}

/// The rows of the table that say otherwise.
fn offences(page: &str, list: &str) -> Vec<String> {
    let rooms = counted(list);
    let sum = |names: &[&str]| {
        let mut sum = Row::default();
        for row in
            rooms.iter().filter(|(room, _)| names.is_empty() || names.contains(room)).map(|(_, row)| row)
        {
            sum.iter_mut().zip(row).for_each(|(sum, count)| *sum += count);
        }
        sum
    };
    let mut offences = Vec::new();
    for row in section(page, "Results").filter_map(cells).filter(|row| row.len() == LEFT + 1 + VERDICTS.len())
    {
        if row[0] == "room" {
            continue;
        }
        let said: Vec<usize> = row[1..].iter().map(|cell| cell.parse().expect("a number")).collect();
        let names: Vec<&str> = row[0].split('`').skip(1).step_by(2).collect();
        let (run, judged, left) = (said[0], &said[1..LEFT], &said[LEFT - 1..]);
        if run != judged.iter().sum::<usize>() || left != sum(&names) {
            offences.push(format!("{}: {said:?}, and the list has {:?}", row[0], sum(&names)));
        }
    }
    offences
}

#[test]
fn table_of_mutants_counts_their_list() {
    let of = |ending| files("docs", ending).into_iter().next().expect("the file is there").text;
    assert_eq!(offences(&of("mutants.md"), &of("mutants-left.tsv")), Vec::<String>::new());
}

#[test]
fn rows_that_the_list_does_not_bear_out_are_found() {
    let list = "a.rs\t1\tx\tsame\nb/c.rs\t2\ty\tseen\tWhy.\n";
    let page =
        |row: &str| format!("## Results\n\n| room | . | . | . | . | . | . | . | . | . | . | . |\n{row}\n");
    let right = "| `a`, `b` | 9 | 4 | 2 | 1 | 2 | 1 | 0 | 0 | 1 | 0 | 0 |";
    assert_eq!(offences(&page(right), list), Vec::<String>::new());
    let all = right.replace("`a`, `b`", "all");
    assert_eq!(offences(&page(&all), list), Vec::<String>::new());
    for wrong in [
        right.replace("| 9 |", "| 8 |"),
        right.replace(", `b`", ""),
        right.replace("2 | 1 | 0 |", "2 | 0 | 1 |"),
    ] {
        assert_eq!(offences(&page(&wrong), list).len(), 1, "{wrong}");
    }
}
