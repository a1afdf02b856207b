//! The simulated machine keeps the contract of the trait `Machine`, and the suite that says so finds machines that do not.

mod harness;

use conformance::Report;
use harness::check;
use machine_sim::{MachineSpec, RunConfig};

fn config(machine: MachineSpec) -> RunConfig {
    RunConfig { verify: true, ..RunConfig::new(machine) }
}

fn passes(config: &RunConfig) -> Report {
    let name = config.machine.name().to_string();
    let report = check(config, |machine| machine, "").unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut table = String::new();
    report.print(&mut table).unwrap();
    println!("{name}\n{table}");
    assert!(report.passed(), "{name}");
    report
}

#[test]
fn the_small_machine_keeps_the_contract() {
    let mut config = config(MachineSpec::preset("small").unwrap());
    config.memory = Some(16 << 20);
    passes(&config);
}

#[test]
fn the_laptop_keeps_the_contract() {
    let mut config = config(MachineSpec::preset("laptop").unwrap());
    config.memory = Some(24 << 20);
    passes(&config);
}
