//! Everything that was compared as CSV, one line for each count; a failed comparison is one line, too.

use super::{Done, Kept};
use crate::linux::judge::row::Agreement;
use crate::linux::judge::{Row, Unjudged};

const HEADINGS: [&str; 21] = [
    "kernel",
    "version",
    "name",
    "program",
    "memory",
    "cpus",
    "settings",
    "held_out",
    "policy",
    "count",
    "unit",
    "agreement",
    "linux",
    "linux_spread_pct",
    "linux_seeds_pct",
    "simulated",
    "simulated_spread_pct",
    "simulated_seeds_pct",
    "error_pct",
    "verdict",
    "detail",
];

/// The table.
pub fn csv(results: &[Done]) -> String {
    let written = "memory takes all that is written";
    let mut csv = csv::Writer::from_writer(Vec::new());
    csv.write_record(HEADINGS).expect(written);
    for (done, policy, kept) in
        results.iter().flat_map(|done| done.kept().map(move |(policy, kept)| (done, policy, kept)))
    {
        let case = done.case;
        let version = kept.beside().map_or("", |beside| &beside.conditions.kernel);
        let head = [
            done.kernel.clone(),
            version.to_owned(),
            case.name.to_owned(),
            case.program.to_owned(),
            case.memory.to_owned(),
            case.cpus.to_string(),
            case.set.join(" "),
            case.held_out.to_string(),
            policy.to_owned(),
        ];
        let rows = match kept {
            Kept::Compared(beside) => beside.rows.iter().map(cells).collect(),
            Kept::Failed(failed) => {
                let mut cells: [String; 12] = Default::default();
                [cells[10], cells[11]] = ["failed".to_owned(), failed.comparison_failed.clone()];
                vec![cells]
            }
        };
        for cells in rows {
            csv.write_record(head.iter().chain(&cells)).expect(written);
        }
    }
    String::from_utf8(csv.into_inner().expect(written)).expect("it was made of text")
}

fn cells(row: &Row) -> [String; 12] {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
    let agreement = match row.agreement {
        Agreement::Exact => "exact",
        Agreement::Total => "total",
        Agreement::Timing => "timing",
    };
    let verdict = match (row.unjudged, row.missed) {
        (Some(Unjudged::Zero), _) => "zero",
        (Some(Unjudged::Few), _) => "few",
        (Some(Unjudged::Copy), _) => "copy",
        (Some(Unjudged::Timing), _) => "timing",
        (Some(Unjudged::Noisy), _) => "noisy",
        (None, Some(true)) => "missed",
        (None, _) => "good",
    };
    [
        row.metric.clone(),
        row.unit.clone(),
        agreement.to_owned(),
        row.linux.to_string(),
        number(row.linux_spread_pct),
        number(row.linux_seeds_pct),
        row.simulated.to_string(),
        number(row.simulated_spread_pct),
        number(row.simulated_seeds_pct),
        number(row.error_pct),
        verdict.to_owned(),
        row.copy_of.clone().or(row.reason.clone()).unwrap_or_default(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::tests::done;
    use super::super::{CASES, Failed};
    use super::*;

    #[test]
    fn each_count_is_a_line_and_so_is_a_failure() {
        let mut results = [done(&CASES[2], [10_000, 8_500], [8_000, 8_000])];
        results[0].by_policy[1] = Some(Kept::Failed(Failed::new("no memory, alas".into())));
        let text = csv(&results);
        let line = |words: &str| text.lines().find(|line| line.contains(words)).unwrap().to_owned();
        assert!(line(",pgscan,").ends_with(",10000,,,8500,,,-15,missed,"), "{text}");
        assert!(line(",mglru,").ends_with(",failed,\"no memory, alas\""), "{text}");
        assert!(text.lines().all(|line| line.split(',').count() >= HEADINGS.len()), "{text}");
    }
}
