//! Free blocks after churn and after compaction, by the placement of allocations.

use super::acts::{MIB, outcome};
use machine_sim::{MachineSpec, Outcome, RunConfig};
use mm::knobs::Knob;
use program::Named;
use program::named::NameParts;

fn play(program: &str, placement: u64) -> Outcome {
    let parts = NameParts::parse(program, |bytes| bytes.parse().map_err(|_| bytes.into())).unwrap();
    let machine = MachineSpec::preset("small").unwrap();
    let knobs = vec![(Knob::AllocPlacement, placement)];
    // The oracle is slow for a process with thousands of ranges.
    let verify = !program.starts_with("churn-mixed");
    let config = RunConfig { memory: Some(64 * MIB), knobs, moves: true, verify, ..RunConfig::new(machine) };
    outcome(&config, &Named::new(parts).unwrap())
}

/// Free 2 MiB blocks before and after compaction, the most possible, pages that were moved, and the fewest possible.
fn whole(outcome: &Outcome) -> [f64; 5] {
    ["before", "after", "possible", "moved", "least"]
        .map(|name| outcome.metric(&format!("compaction_whole_{name}")).unwrap())
}

#[test]
fn allocation_from_the_fullest_blocks_empties_others_and_saves_moves() {
    // 52 of 64 MiB are filled, and half of that is freed.
    for program in ["churn:54525952:60", "churn-mixed:54525952:60"] {
        let [scattered, ..] = whole(&play(program, 0));
        let [before, after, possible, moved, least] = whole(&play(program, 1));
        assert!(scattered <= possible / 2.0, "{program}: {scattered} of {possible}");
        assert!(before >= possible / 2.0, "{program}: {before} of {possible}");
        assert!(after >= possible - 1.0, "{program}: {after} of {possible}");
        assert!(moved <= least * 1.2, "{program}: {moved} pages for {least}");
    }
}

#[test]
fn memory_freed_at_once_is_compacted_from_the_emptiest_blocks() {
    // No block has become free: compaction makes all of them, in either direction.
    let [_, after, possible, moved, least] = whole(&play("churn:54525952:1", 1));
    assert!(
        after >= possible - 1.0 && moved <= least * 1.2,
        "{after} of {possible}, {moved} pages for {least}"
    );
    assert!(moved > 500.0);
}
