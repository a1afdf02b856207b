//! The simulated machine as a whole. One program, because each would be built from the memory manager's code anew.

mod acts;
mod apps;
mod bound;
mod chaos;
mod clock;
mod collapse;
mod compaction;
mod conformance;
mod flushes;
mod fragment;
mod huge_entries;
mod large_folios;
mod load;
mod mempolicy;
mod migration;
mod optimum;
mod policies;
mod profile;
mod programs;
mod races;
mod regressions;
mod scenarios;
mod stale;
mod tasks;
mod tiers;
mod visits;
