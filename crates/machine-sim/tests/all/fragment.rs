//! States of memory that runs begin with: created, recorded, and refused if impossible.

use super::acts::{LARGE, MIB, outcome};
use machine_sim::{Fragmented, MachineSpec, MemoryState, Outcome, RunConfig, RunError};
use mm::knobs::Knob;
use mm::stat::Stat;
use program::{Map, Os, Program, Role, Signal};

const AREA: u64 = 512 * LARGE;

/// Stores to this many areas of 2 MiB.
struct Stores(u64);

impl Program for Stores {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, _: Role) -> Result<(), Signal> {
        os.compute(1000);
        os.mmap(Map { addr: Some(AREA), ..Map::anonymous(self.0.max(1) * LARGE) }).unwrap();
        (0..self.0).try_for_each(|area| os.store(AREA + area * LARGE))
    }
}

fn config(machine: &str, memory: u64, state: &str) -> RunConfig {
    let machine = MachineSpec::preset(machine).unwrap();
    let fragment = Some(state.parse().unwrap());
    RunConfig { memory: Some(memory), fragment, verify: true, ..RunConfig::new(machine) }
}

fn made(machine: &str, memory: u64, state: &str) -> Fragmented {
    outcome(&config(machine, memory, state), &Stores(0)).fragmented.unwrap()
}

fn is_near(got: f64, wanted: f64, unit: f64, what: &str) {
    assert!((got - wanted).abs() <= (wanted * 0.05).max(unit), "{what}: {got}, and {wanted} were wanted");
}

/// Pages in free blocks of each order.
fn pages(state: &MemoryState) -> Vec<f64> {
    state.by_order().iter().enumerate().map(|(order, blocks)| (blocks << order) as f64).collect()
}

#[test]
fn shares_of_orders_and_mobility_types_are_reached() {
    let shares = [5.0, 5.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0, 10.0];
    let text = "free=45%,orders=5/5/10/10/10/10/10/10/10/10/10,unmovable=20%,reclaimable=10%";
    for (machine, memory) in [("small", 256 * MIB), ("tiers", 301 * MIB), ("compact-8", 4096 * MIB)] {
        let state = made(machine, memory, text).after;
        let all = (memory / 4096) as f64;
        is_near(state.free() as f64, 0.45 * all, 1024.0, "free");
        for (order, (got, share)) in pages(&state).into_iter().zip(shares).enumerate() {
            is_near(
                got,
                all * 0.45 * share / 100.0,
                (1u64 << order) as f64,
                &format!("{machine}, order {order}"),
            );
        }
        let blocks = state.pageblocks().map(|blocks| blocks as f64);
        let total: f64 = blocks.iter().sum();
        is_near(blocks[0], total * 0.2, 1.0, "unmovable");
        is_near(blocks[2], total * 0.1, 1.0, "reclaimable");
    }
}

#[test]
fn an_unusable_index_is_reached_at_random() {
    for seed in [1, 2, 3] {
        let config = RunConfig { seed, ..config("laptop", 512 * MIB, "free=60%,unusable=80%,unmovable=10%") };
        let made = outcome(&config, &Stores(0)).fragmented.unwrap();
        let whole: f64 = pages(&made.after)[9..].iter().sum();
        is_near(made.after.free() as f64, 0.6 * 131_072.0, 0.0, "free");
        is_near(whole / made.after.free() as f64, 0.2, 0.005, "whole");
        assert!(made.before.free() > 130_000 && made.held[1] * 9 > made.held[0] / 2, "{:?}", made.held);
        assert!((made.after.unusable() - 80.0).abs() < 1.0, "{}", made.after.unusable());
    }
}

#[test]
fn quicksilvers_states_are_reached() {
    // Half of 128 MiB stays in whole blocks; the last 64 KiB of each other free block are taken.
    let half = made("small", 256 * MIB, "frag-50:128M");
    let (before, after) = (pages(&half.before), pages(&half.after));
    is_near(after[9] + after[10], 32.0 * 512.0, 0.0, "whole blocks");
    let broken = ((before[9] + before[10]) / 512.0 - 32.0).round();
    (4..9).for_each(|order| {
        is_near(after[order], broken * (1u64 << order) as f64, 512.0, &format!("order {order}"))
    });
    is_near((half.held[0] + half.held[1]) as f64, broken * 16.0, 16.0, "held");
    let all = made("small", 256 * MIB, "frag-100");
    assert_eq!(pages(&all.after)[9..], [0.0, 0.0]);
    assert!(all.after.buddyinfo().starts_with("Node 0, zone    DMA32      "), "{}", all.after.buddyinfo());
    let types = all.after.pagetypeinfo();
    assert!(types.contains("Node    0, zone    DMA32, type      Movable "), "{types}");
    assert!(types.contains("Number of blocks type      Unmovable      Movable  Reclaimable"), "{types}");
}

/// The page blocks that the kernel has are more than 5 % of them.
#[test]
fn a_state_of_little_memory_leaves_the_kernel_its_page_blocks() {
    for memory in [12, 20, 26, 32, 40] {
        let half = made("laptop", memory * MIB, "frag-50");
        assert!(half.held[0] > 0 && half.held[0].is_multiple_of(16) && half.held[1] == 0, "{:?}", half.held);
    }
}

#[test]
fn impossible_states_are_bad_input() {
    for (state, expected) in [
        // The buddy of each free page must be in use.
        ("free=60%,orders=100/0/0/0/0/0/0/0/0/0/0", "free blocks of order 0 are wanted"),
        ("free=100%,unusable=0%", "and at start"),
        ("free=0.1%,unusable=100%", "below the high watermarks"),
        ("free=95%,unusable=10%,unmovable=60%", "there is something to be held in"),
        ("frag-50:1G", "blocks of 2 MiB are to be free"),
    ] {
        match machine_sim::run(&config("small", 256 * MIB, state), &Stores(0)) {
            Err(error @ RunError::Input(_)) => {
                let text = error.to_string();
                assert!(text.starts_with(&format!("fragment: {state} cannot be reached: ")), "{text}");
                assert!(text.contains(expected) && !text.contains('\n') && error.exit_code() == 2, "{text}");
            }
            other => panic!("{state}: {other:?}"),
        }
    }
}

#[test]
fn a_state_excludes_the_optimum() {
    let error =
        machine_sim::run(&RunConfig { optimum: true, ..config("small", 64 * MIB, "frag-50") }, &Stores(0));
    assert!(matches!(&error, Err(RunError::Input(why)) if why.contains("no optimum")), "{error:?}");
}

/// Large folios of a program that begins with fragmented memory, and pages moved for them.
fn large_folios(state: &str) -> (i64, i64, Outcome) {
    let mut config = config("small", 64 * MIB, state);
    config.knobs = vec![(Knob::HugepagesEnabled2048, 2), (Knob::ThpDefrag, 0)];
    let outcome = outcome(&config, &Stores(8));
    (outcome.stat(Stat::ThpFaultAlloc), outcome.stat(Stat::PgmigrateSuccess), outcome)
}

#[test]
fn compaction_moves_held_pages_but_no_kernel_frames() {
    let (folios, moved, outcome) = large_folios("frag-100");
    assert!(folios == 8 && moved >= 16, "{folios} folios, {moved} moved");
    assert_eq!(outcome.stat(Stat::Pgfault), 8, "held frames must not be counted");
    let (folios, moved, _) = large_folios("frag-100,unmovable=100%");
    assert_eq!((folios, moved), (0, 0), "kernel frames cannot be moved");
}

#[test]
fn a_state_takes_no_time_of_the_run() {
    let plain = RunConfig { fragment: None, ..config("small", 64 * MIB, "frag-100") };
    let times =
        [&config("small", 64 * MIB, "frag-50"), &plain].map(|config| outcome(config, &Stores(0)).nanos);
    // The first allocations may differ; creating the state would have taken hundreds of microseconds.
    assert!(times[0].abs_diff(times[1]) < 5_000, "{times:?}");
}

#[test]
fn a_machine_can_have_a_state() {
    let toml = include_str!("../../machines/small.toml");
    let read = |state: &str| MachineSpec::from_toml("mine", &format!("fragment = \"{state}\"\n{toml}"));
    let config = RunConfig::new(read("frag-100").unwrap());
    assert_eq!(outcome(&config, &Stores(0)).fragmented.unwrap().asked, "frag-100");
    let error = read("frag-99").unwrap_err().to_string();
    assert!(error.contains("none of the presets"), "{error}");
}
