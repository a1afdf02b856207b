//! What a churn of memory leaves whole, and what compaction makes of the rest, by how memory is placed.

use super::acts::outcome;
use machine_sim::{MachineSpec, Outcome, RunConfig};
use mm::knobs::Knob;
use program::Named;
use program::named::NameParts;

const MIB: u64 = 1 << 20;

fn play(program: &str, placement: u64) -> Outcome {
    let parts = NameParts::parse(program, |bytes| bytes.parse().map_err(|_| bytes.into())).unwrap();
    let machine = MachineSpec::preset("small").unwrap();
    let knobs = vec![(Knob::AllocPlacement, placement)];
    // The oracle is slow where a process has thousands of ranges.
    let verify = !program.starts_with("churn-mixed");
    let config = RunConfig { memory: Some(64 * MIB), knobs, moves: true, verify, ..RunConfig::new(machine) };
    outcome(&config, &Named::new(parts).unwrap())
}

/// Free 2 MiB blocks before and after compaction, the most that there could be, pages that were moved, and the fewest.
fn whole(outcome: &Outcome) -> [f64; 5] {
    ["before", "after", "possible", "moved", "least"]
        .map(|name| outcome.metric(&format!("compaction_whole_{name}")).unwrap())
}

#[test]
fn from_the_fullest_first_blocks_run_empty_and_few_pages_are_moved() {
    // Of 64 MiB 52 are filled and half of that given back.
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
fn what_is_given_back_at_once_is_compacted_from_the_emptiest_on() {
    // Nothing has run empty: compaction does all of it, by either way.
    let [_, after, possible, moved, least] = whole(&play("churn:54525952:1", 1));
    assert!(
        after >= possible - 1.0 && moved <= least * 1.2,
        "{after} of {possible}, {moved} pages for {least}"
    );
    assert!(moved > 500.0);
}
