//! Two custom page-replacement policies, compared with those that come with Pagefold and with the minimum number
//! of refaults.

use machine_sim::{MachineSpec, OptimumReport, RunConfig, RunError, run};
use mm::knobs::Knob;
use mm::policy::MakePolicy;
use policy::{Cheapest, policy};
use program::builtin;

/// Creates an instance for each list vector.
const TWICE: MakePolicy = policy;
/// Likewise.
const CHEAPEST: MakePolicy = || Box::new(Cheapest);

/// The policies to compare: the word of each in the knob `reclaim.policy`, and what "custom" means.
const POLICIES: [(&str, &str, MakePolicy); 5] = [
    ("fifo", "fifo", TWICE),
    ("classic", "classic", TWICE),
    ("mglru", "mglru", TWICE),
    ("twice", "custom", TWICE),
    ("cheapest", "custom", CHEAPEST),
];

/// Run a built-in program with half of its footprint as memory, under a policy of the knob `reclaim.policy`.
fn refaults(name: &str, policy: &str, custom: MakePolicy) -> Result<OptimumReport, RunError> {
    let input = |text: &str| RunError::Input(text.to_owned());
    let policy = Knob::ReclaimPolicy.info().value_of(policy).ok_or_else(|| input("no such policy"))?;
    let program = builtin::from_name(name, 32 << 20).ok_or_else(|| input("no such program"))?;
    let machine = MachineSpec::preset("small").map_err(|error| input(&error.to_string()))?;
    let config = RunConfig {
        memory: Some(16 << 20),
        knobs: vec![(Knob::ReclaimPolicy, policy)],
        custom: Some(custom),
        optimum: true,
        ..RunConfig::new(machine)
    };
    let outcome = run(&config, &program)?;
    outcome.optimum.ok_or_else(|| input("the run has no optimum"))
}

fn main() -> Result<(), RunError> {
    print!("{:<14}", "refaults of");
    POLICIES.iter().for_each(|(column, ..)| print!("{column:>10}"));
    println!("{:>10}", "optimum");
    for name in ["zipf-file", "uniform-file", "phases", "stream"] {
        print!("{name:<14}");
        let mut fewest = 0;
        for (_, policy, custom) in POLICIES {
            let report = refaults(name, policy, custom)?;
            print!("{:>10}", report.refaults);
            fewest = report.optimum;
        }
        println!("{fewest:>10}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_pass_the_safety_checks() {
        for policy in [TWICE, CHEAPEST] {
            machine_sim::check_policy(policy, 0..2).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn policy_differs_from_fifo_and_respects_the_optimum() {
        let [fifo, twice] = ["fifo", "custom"].map(|policy| refaults("zipf-file", policy, TWICE).unwrap());
        assert_ne!(fifo.refaults, twice.refaults);
        assert!(twice.refaults >= twice.optimum);
    }

    #[test]
    fn docs_show_the_policy() {
        let page = include_str!("../../../docs/policies.md");
        assert!(
            page.contains(include_str!("twice.rs")),
            "docs/policies.md does not show examples/policy/src/twice.rs"
        );
    }
}
