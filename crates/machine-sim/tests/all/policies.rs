//! Replacement policies of other crates, good and hostile ones, under the oracle.

use machine_sim::{MachineSpec, RunConfig, check_policy, run};
use mm::knobs::Knob;
use mm::policy::{RIVALS, Rival, hostile::HOSTILE};
use program::builtin;

#[test]
fn example_policies_are_safe() {
    for Rival { name, make, .. } in RIVALS {
        check_policy(*make, 0..2).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn hostile_policies_break_nothing() {
    for (which, make) in HOSTILE.into_iter().enumerate() {
        check_policy(make, 0..2).unwrap_or_else(|error| panic!("hostile policy {which}: {error}"));
    }
}

#[test]
fn custom_needs_a_registered_policy() {
    let machine = MachineSpec::preset("small").unwrap();
    let knobs = vec![(Knob::ReclaimPolicy, Knob::ReclaimPolicy.info().max)];
    let config = RunConfig { knobs, ..RunConfig::new(machine) };
    let error = run(&config, &builtin::from_name("zipf", 1 << 20).unwrap()).unwrap_err();
    assert!(error.to_string().contains("no policy was registered"), "{error}");
}
