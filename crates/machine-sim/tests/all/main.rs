//! Tests of the simulated machine as a whole. One binary, because each would compile the memory manager again.

/// The name that every other crate gives this one.
extern crate pagefold_sim as machine_sim;

/// The methods of [`Program`](program::Program) that no test uses.
macro_rules! unnamed {
    () => {
        fn name(&self) -> &str {
            std::any::type_name::<Self>()
        }

        fn footprint(&self) -> u64 {
            0
        }
    };
}

mod acts;
mod apps;
mod behaviour;
mod bound;
mod chaos;
mod churn;
mod clock;
mod collapse;
mod compaction;
mod compressed;
mod conformance;
mod damon;
mod flushes;
mod fragment;
mod groups;
mod huge_entries;
mod large_folios;
mod load;
mod mempolicy;
mod migration;
mod optimum;
mod policies;
mod pressure;
mod profile;
mod programs;
mod races;
mod regressions;
mod scenarios;
mod stale;
mod tasks;
mod tiers;
mod vary;
mod visits;
mod waiting;
