//! Visits to the generations.

use machine_sim::{MachineSpec, RunConfig, Visit, run};
use mm::knobs::Knob;
use mm::reclaim::CommandError;
use program::builtin;

/// Visits happen when they are due, the last at the end; one whose time comes later does not.
#[test]
fn visits_show_generations_and_run_commands() {
    let visit = |at: Option<u64>, commands: &str| Visit { at, commands: commands.to_owned(), full: false };
    let config = RunConfig {
        knobs: vec![(Knob::ReclaimPolicy, 1)],
        visits: vec![
            visit(None, ""),
            visit(Some(2_000_000), "- 0 0 9"),
            visit(Some(1_000_000), "+ 0 0 3"),
            visit(Some(u64::MAX), "+ 0 0 4"),
        ],
        ..RunConfig::new(MachineSpec::preset("small").unwrap())
    };
    let outcome = run(&config, &builtin::from_name("zipf", 4 << 20).unwrap()).unwrap();
    let seen = outcome.visited;
    let what: Vec<(&str, Result<(), CommandError>)> =
        seen.iter().map(|seen| (&*seen.commands, seen.answer)).collect();
    assert_eq!(what, [("+ 0 0 3", Ok(())), ("- 0 0 9", Err(CommandError::Invalid)), ("", Ok(()))]);
    assert!(seen[0].nanos >= 1_000_000 && seen[1].nanos >= 2_000_000 && seen[2].nanos == outcome.nanos);
    // The generations of the only group, from the oldest to the youngest: number, age, anonymous pages.
    let second: Vec<Vec<u64>> = seen[1]
        .text
        .lines()
        .skip(2)
        .map(|line| line.split_whitespace().map(|word| word.parse().unwrap()).collect())
        .collect();
    assert_eq!(second.iter().map(|line| line[0]).collect::<Vec<u64>>(), [1, 2, 3, 4]);
    assert!(
        second[2][2] > 0 && second[3][2] > 0,
        "the command must separate older pages from younger ones: {second:?}"
    );
}
