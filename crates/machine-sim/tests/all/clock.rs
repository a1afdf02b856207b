//! The end of the machine's clock.

use machine_sim::{MachineSpec, RunConfig, RunError, run};
use program::{Map, Os, Program, Role, Signal};

/// Spends time in one way, repeatedly.
#[derive(Debug)]
enum Spend {
    Compute,
    Sleep,
    Access,
}

impl Program for Spend {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, _: Role) -> Result<(), Signal> {
        let addr = os.mmap(Map::anonymous(4096)).unwrap();
        loop {
            match self {
                Spend::Compute => os.compute(u64::MAX),
                Spend::Sleep => os.sleep(u64::MAX),
                Spend::Access => {
                    os.access(program::Access { addr, count: u32::MAX, mode: program::AccessKind::Store })?
                }
            }
        }
    }
}

#[test]
fn runs_end_at_the_end_of_the_clock() {
    // The most expensive access that a description may have.
    let text = include_str!("../../machines/small.toml").to_owned();
    let expensive = text + "[costs.hardware.access]\nns = 1e6\nsource = 'for the test'\n";
    let machine = MachineSpec::from_toml("expensive.toml", &expensive).unwrap();
    for spend in [Spend::Compute, Spend::Sleep, Spend::Access] {
        let error = run(&RunConfig::new(machine.clone()), &spend).unwrap_err();
        assert!(
            matches!(&error, RunError::Input(why) if why.contains("more than 53 days")),
            "{spend:?}: {error}"
        );
    }
}

#[test]
fn a_run_is_given_up_at_its_time_limit() {
    let machine = MachineSpec::preset("small").unwrap();
    let limit = 1_000_000_000;
    let config = RunConfig { time_limit: Some(limit), ..RunConfig::new(machine) };
    assert_eq!(run(&config, &Spend::Compute).unwrap_err(), RunError::TimeLimit(limit));
}
