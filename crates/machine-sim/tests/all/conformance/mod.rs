//! The simulated machine keeps the contract of the trait `Machine`; the suite finds machines that do not.

mod broken;
mod harness;

use broken::{Broken, Broken::*, BrokenMachine};
use conformance::{NotPassed, Report};
use harness::check;
use machine_sim::{MachineSpec, RunConfig};
use mm::knobs::Knob;

fn preset(name: &str, megabytes: u64) -> RunConfig {
    let machine = MachineSpec::preset(name).unwrap();
    RunConfig { verify: true, contents: true, memory: Some(megabytes << 20), ..RunConfig::new(machine) }
}

fn passes(config: &RunConfig) -> Report {
    let name = format!("{} with {:?}", config.machine.name(), config.knobs);
    let report = check(config, |machine| machine, "").unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut table = String::new();
    report.print(&mut table).unwrap();
    println!("{name}\n{table}");
    assert!(report.passed(), "{name}: a check failed");
    report
}

#[test]
fn one_cpu_keeps_the_contract() {
    passes(&preset("small", 16));
}

#[test]
fn several_cpus_keep_the_contract_under_every_flush_policy() {
    for policy in 0..=5 {
        let mut config = preset("laptop", 24);
        config.knobs.push((Knob::TlbUnmap, policy));
        let (passed, _, skipped) = passes(&config).counts();
        // It has ASIDs, and no broadcast flush.
        assert_eq!((passed, skipped), (57, 2));
    }
}

#[test]
fn machines_of_all_shapes_keep_the_contract() {
    for seed in 1..=8 {
        passes(&RunConfig { verify: true, contents: true, ..RunConfig::new(MachineSpec::random(seed)) });
    }
}

/// Each fault, and the check that must find it.
const FAULTS: &[(Broken, &str)] = &[
    (CpuAlwaysFirst, "topology.cpus"),
    (NodeOfNowhere, "topology.nodes"),
    (DistanceOneWay, "topology.distances"),
    (MemoryOutOfOrder, "topology.memory"),
    (ClockGoesBack, "topology.clock"),
    (AlwaysStopping, "topology.running"),
    (ZeroesOnePage, "memory.zero"),
    (ZeroesOneTooMany, "memory.zero"),
    (CopiesOnePage, "memory.copy"),
    (CopiesTheOtherWay, "memory.copy"),
    (ZeroKeepsContent, "memory.table"),
    (ClaimsNoYoung, "translation.young"),
    (ClaimsYoung, "translation.young"),
    (ClaimsYoungTables, "translation.young-tables"),
    (PagesNotFlushed, "translation.flush-pages"),
    (LastPageNotFlushed, "translation.flush-pages"),
    (PagesNotFlushed, "translation.flush-tables"),
    (CurrentNotFlushed, "translation.flush-current"),
    (AllNotFlushed, "translation.flush-all"),
    (AllIsCurrent, "translation.asids-flush"),
    (KeepsAlways, "translation.load-root"),
    (KeepsAlways, "translation.asids-flush"),
    (OneNumberForAll, "translation.asids"),
    (OwnRootNotLoaded, "translation.own-root"),
    (RemoteSkipped, "shootdown.idle"),
    (RemoteTwice, "shootdown.idle"),
    (RemoteOnCaller, "shootdown.idle"),
    (LocalSkipped, "shootdown.idle"),
    (LocalTwice, "shootdown.idle"),
    (BusyCpusSkipped, "shootdown.kernel"),
    (BusyCpusSkipped, "shootdown.program"),
    (BusyCpusSkipped, "shootdown.crossing"),
    (BusyCpusSkipped, "shootdown.lock"),
    (RemoteFlushesNothing, "shootdown.flush"),
    (BroadcastHereOnly, "shootdown.broadcast"),
    (TicketAtWait, "waiting.not-lost"),
    (DeadlineTooEarly, "waiting.deadline"),
    (DeadlineSaysWoken, "waiting.deadline"),
    (TicketTooOld, "waiting.old-wakes"),
    (WakesOne, "waiting.wakes-all"),
    (WakesNeighbours, "waiting.keys"),
    (WakeForgotten, "waiting.in-turn"),
    (ReschedDoesNothing, "waiting.resched"),
    (WritesElsewhere, "storage.read-back"),
    (OnePageOnly, "storage.neighbours"),
    (OnePageTooMany, "storage.neighbours"),
    (EndsToldTwice, "storage.many"),
    (UnpacksNothing, "compression.whole"),
    (UnpacksNothing, "compression.round-trip"),
    (MovesZeroes, "compression.moved"),
    (OneBufferForAll, "compression.buffers"),
    (FillsZeroes, "compression.same"),
    (NothingFlushed, "whole.pages"),
    (RemoteFlushesNothing, "whole.one-space"),
    (RemoteFlushesNothing, "whole.under-fire"),
    (CopiesTheOtherWay, "whole.fork"),
    (KeepsAlways, "whole.spaces"),
    (WritesElsewhere, "whole.file"),
    (WritesElsewhere, "whole.swap"),
];

/// One node or two, with the hardware that the fault needs.
fn machine_for(fault: Broken) -> RunConfig {
    let mut config = match fault {
        DistanceOneWay | MemoryOutOfOrder => preset("numa-4s-2015", 256),
        _ => preset("laptop", 24),
    };
    if matches!(fault, ClaimsYoung | ClaimsYoungTables) {
        config.machine.set_hw_young(fault != ClaimsYoung, false);
    }
    config
}

#[test]
fn every_fault_is_found_by_its_check() {
    let mut missed = Vec::new();
    for &(fault, name) in FAULTS {
        let config = machine_for(fault);
        let sound = check(&config, |machine| machine, name).unwrap();
        let right = sound.rows.iter().all(|row| !matches!(row.verdict, Err(NotPassed::Failed(_))));
        assert!(right, "{name} fails on a sound machine: {sound:?}");
        let report = check(&config, |machine| BrokenMachine::new(machine, fault), name).unwrap();
        println!("{fault:?}: {:?}", report.rows);
        // A name may be a prefix of others.
        let failed = report.failures().any(|row| format!("{}.{}", row.group, row.name) == name);
        if !failed {
            missed.push((fault, name));
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
