//! Memory tiers, under the oracle and with deferred flushes: cold pages are demoted, hot pages promoted.

use super::acts::{MIB, PAGE, POLICIES, compute_for, outcome, play, store_all};
use super::migration::entered;
use machine_sim::{MachineSpec, Outcome, RunConfig};
use mm::knobs::{Knob, TierPolicy};
use mm::stat::Stat;
use program::chaos::Chaos;
use program::named::{NameParts, Named};
use program::{Map, Os, Program, Role, Signal, builtin};

/// Fast memory of the machine, which has twice as much slow memory.
const FAST: u64 = 32 * MIB;

fn config(demotion: u64, balancing: u64) -> RunConfig {
    // A run takes some hundredths of a second: periods of seconds on a server are milliseconds here.
    let knobs = vec![
        (Knob::DemotionEnabled, demotion),
        (Knob::NumaBalancing, balancing),
        (Knob::NumaScanDelayMs, 1),
        (Knob::NumaScanPeriodMinMs, 5),
        (Knob::NumaScanPeriodMaxMs, 60),
        (Knob::NumaScanSizeMb, 4),
        (Knob::NumaHotThresholdMs, 20),
        (Knob::MemcgFlushMs, 0),
    ];
    let machine = MachineSpec::preset("tiers").unwrap();
    RunConfig { memory: Some(3 * FAST), verify: true, knobs, ..RunConfig::new(machine) }
}

fn moved(outcome: &Outcome) -> [i64; 3] {
    let demoted = outcome.stat(Stat::PgdemoteKswapd) + outcome.stat(Stat::PgdemoteDirect);
    [demoted, outcome.stat(Stat::PgpromoteSuccess), outcome.stat(Stat::NumaHintFaults)]
}

const COLD: u64 = 40 * MIB;
const HOT: u64 = 20 * MIB;

/// Fill memory first with pages that are never used again, then with pages that are used all the time.
fn hot_after_cold(os: &mut dyn Os, _: Role) -> Result<(), Signal> {
    let cold = os.mmap(Map::anonymous(COLD)).unwrap();
    store_all(os, cold, COLD)?;
    let hot = os.mmap(Map::anonymous(HOT)).unwrap();
    for _ in 0..60 {
        store_all(os, hot, HOT)?;
        os.compute(1_000_000);
    }
    Ok(())
}

#[test]
fn cold_pages_are_demoted_and_hot_pages_promoted() {
    for policy in [0, 1] {
        let run = |demotion, balancing| {
            let mut config = config(demotion, balancing);
            config.knobs.push((Knob::ReclaimPolicy, policy));
            outcome(&config, &play(hot_after_cold))
        };
        let (neither, both) = (run(0, 0), run(1, 2));
        assert_eq!(moved(&neither), [0, 0, 0]);
        let [demoted, promoted, faults] = moved(&both);
        // Hot pages were allocated when fast memory was full.
        assert!(demoted > 1000 && promoted > 500 && faults >= promoted, "{:?}", moved(&both));
        let slow = |outcome: &Outcome| outcome.metric("slow_memory_share").unwrap();
        assert!(slow(&both) * 2.0 < slow(&neither), "{} {}", slow(&both), slow(&neither));
        assert_eq!(both.stat(Stat::OomKill), 0);
    }
}

/// While a page that a fault shows to be hot is moved, no CPU can use its entry, so none must be asked to drop it: only
/// the scans that mark entries send requests.
#[test]
fn promotion_by_faults_asks_no_cpu_to_flush() {
    let two = |os: &mut dyn Os, role: Role| {
        if role == 1 {
            compute_for(os, 100_000_000);
            return Ok(());
        }
        // The other task keeps the space loaded on its CPU.
        let other = os.spawn(1).unwrap();
        hot_after_cold(os, role)?;
        os.join(other);
        Ok(())
    };
    let outcome = outcome(&config(1, 2), &play(two));
    let [_, promoted, _] = moved(&outcome);
    let (rounds, scanned) = (outcome.stat(Stat::NrTlbRemoteFlush), outcome.stat(Stat::NumaPteUpdates));
    assert!(promoted > 500, "{promoted}");
    assert!(rounds < promoted / 2, "{rounds} requests for {promoted} promotions, {scanned} marks");
}

/// Ways of promotion other than Linux's: the replacement policy, the tier policy, and how pages move.
const WAYS: [(u64, u64, u64); 4] = [
    (1, TierPolicy::Generations.value(), 0),
    (0, TierPolicy::Sampled.value(), 0),
    (1, TierPolicy::Sampled.value(), 1),
    (0, TierPolicy::Hint.value(), 1),
];

/// The knobs of a way, with rounds of milliseconds.
fn way((reclaim, policy, migration): (u64, u64, u64)) -> Vec<(Knob, u64)> {
    vec![
        (Knob::ReclaimPolicy, reclaim),
        (Knob::TierPolicy, policy),
        (Knob::TierMigration, migration),
        (Knob::TierPeriodMs, 1),
        (Knob::TierSamplePeriod, 7),
        (Knob::TierAdaptSamples, 100),
        (Knob::TierCoolSamples, 20_000),
    ]
}

#[test]
fn other_ways_of_promotion_find_hot_pages() {
    let run = |knobs: Vec<(Knob, u64)>, balancing| {
        let mut config = config(1, balancing);
        config.knobs.extend(knobs);
        outcome(&config, &play(hot_after_cold))
    };
    let slow = |outcome: &Outcome| outcome.metric("slow_memory_share").unwrap();
    let without = run(Vec::new(), 0);
    for ways in WAYS {
        let with = run(way(ways), if ways.1 == TierPolicy::Hint.value() { 2 } else { 0 });
        let [_, promoted, _] = moved(&with);
        assert!(promoted > 200, "{ways:?}: {promoted}");
        assert!(slow(&with) * 1.1 < slow(&without), "{ways:?}: {} {}", slow(&with), slow(&without));
        assert_eq!(with.stat(Stat::TierSamples) > 0, ways.1 == TierPolicy::Sampled.value());
        assert!(ways.2 == 1 || with.stat(Stat::TierMoveAborted) == 0, "{ways:?}");
    }
}

/// Write a few pages repeatedly, and demote them now and then.
fn write_all_the_time(os: &mut dyn Os, _: Role) -> Result<(), Signal> {
    let hot = os.mmap(Map::anonymous(MIB)).unwrap();
    for _ in 0..10 {
        store_all(os, hot, MIB)?;
        os.move_pages(hot, MIB, Some(1)).unwrap();
        (0..4000 * MIB / PAGE).try_for_each(|page| os.store(hot + page % (MIB / PAGE) * PAGE))?;
    }
    Ok(())
}

#[test]
fn a_page_written_during_its_copy_is_not_moved() {
    let run = |migration| {
        let mut config = config(1, 2);
        config.knobs.extend(way((0, TierPolicy::Hint.value(), migration)));
        outcome(&config, &play(write_all_the_time))
    };
    let [exclusive, transactional] = [run(0), run(1)];
    assert_eq!(exclusive.stat(Stat::TierMoveAborted), 0);
    // The oracle has checked that no store was lost.
    let aborted = transactional.stat(Stat::TierMoveAborted);
    assert!(aborted > 10 && moved(&transactional)[1] > 10, "{aborted} {:?}", moved(&transactional));
}

/// The random numbers of programs do not depend on kpromoted, so all ways of promotion get the same work.
#[test]
fn kpromoted_does_not_change_random_numbers() {
    let accesses = |policy| {
        let mut config = config(1, 0);
        config.knobs.push((Knob::TierPolicy, policy));
        outcome(&config, &builtin_app("xsbench:4194304:2")).accesses
    };
    assert_eq!(accesses(TierPolicy::Hint.value()), accesses(TierPolicy::Sampled.value()));
}

fn builtin_app(name: &str) -> Named {
    Named::new(NameParts::parse(name, |bytes| Ok(bytes.parse().unwrap())).unwrap()).unwrap()
}

#[test]
fn pages_without_room_in_slow_memory_are_dropped() {
    let program = builtin::from_name("zipf-file", 5 * FAST).unwrap();
    let outcome = outcome(&config(1, 2), &program);
    assert!(moved(&outcome)[0] > 1000, "{:?}", moved(&outcome));
    assert!(outcome.stat(Stat::WorkingsetRefaultFile) > 1000);
}

const ROUNDS: u64 = 150;

/// Repeatedly use more memory than the fast tier has.
fn rounds(os: &mut dyn Os, _: Role) -> Result<(), Signal> {
    let memory = os.mmap(Map::anonymous(10 * MIB)).unwrap();
    for _ in 0..ROUNDS {
        store_all(os, memory, 10 * MIB)?;
        os.compute(5_000_000);
    }
    Ok(())
}

/// Each round that promotes pages doubles the time between two markings, as for Linux tasks without other hints.
#[test]
fn promotions_make_markings_rarer() {
    let marks = |most| {
        let mut config = RunConfig { memory: Some(12 * MIB), profile: true, ..config(1, 2) };
        config.knobs.extend([(Knob::NumaScanPeriodMinMs, 1), (Knob::NumaScanPeriodMaxMs, most)]);
        let outcome = outcome(&config, &play(rounds));
        assert!(outcome.stat(Stat::PgpromoteSuccess) > 100, "{:?}", moved(&outcome));
        entered(outcome.profile.as_ref().unwrap(), "task_numa_work")
    };
    // A part is 4 MiB and may be marked every millisecond; in one case it is.
    let (rarer, as_often) = (marks(60_000), marks(1));
    assert!(rarer > 5 && rarer * 2 < as_often, "{rarer} marks for {as_often}");
}

/// Reads slow memory that it shares with its child, which has written all of it before, or nothing.
struct SharedWithChild {
    child_writes: bool,
}

const SHARED: u64 = 1 << 32;

impl SharedWithChild {
    fn read<O: Os>(os: &mut O) -> Result<(), Signal> {
        (0..4000 * MIB / PAGE).try_for_each(|page| os.load(SHARED + page % (MIB / PAGE) * PAGE))
    }
}

impl Program for SharedWithChild {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        if role == 1 {
            if self.child_writes {
                store_all(os, SHARED, MIB)?;
            }
            return Self::read(os);
        }
        os.mmap(Map { addr: Some(SHARED), ..Map::anonymous(MIB) }).unwrap();
        store_all(os, SHARED, MIB)?;
        os.move_pages(SHARED, MIB, Some(1)).unwrap();
        let child = os.fork(1).unwrap();
        Self::read(os)?;
        os.join(child);
        Ok(())
    }
}

/// Pages shared until a write have no preferred node.
#[test]
fn pages_shared_until_a_write_are_not_marked() {
    let marks = |child_writes| {
        let mut config = config(0, 2);
        // Only after the fork.
        config.knobs.push((Knob::NumaScanDelayMs, 20));
        outcome(&config, &SharedWithChild { child_writes }).stat(Stat::NumaPteUpdates)
    };
    assert_eq!(marks(false), 0);
    assert!(marks(true) >= (MIB / PAGE) as i64);
}

#[test]
fn a_machine_of_one_tier_moves_nothing() {
    let program = builtin::from_name("zipf", 24 * MIB).unwrap();
    let run = |knobs: &[(Knob, u64)]| {
        let machine = MachineSpec::preset("laptop").unwrap();
        let knobs = knobs.to_vec();
        outcome(&RunConfig { memory: Some(16 * MIB), knobs, ..RunConfig::new(machine) }, &program)
    };
    assert_eq!(run(&[]), run(&[(Knob::DemotionEnabled, 1)]));
}

#[test]
fn random_programs_run_on_tiers() {
    for seed in 0..15 {
        let mut config = config(1, 1 + seed % 3);
        (config.seed, config.preempt) = (seed, [None, Some(16)][seed as usize % 2]);
        config.knobs.extend(way(WAYS[seed as usize % 4]));
        config.knobs.extend([(Knob::TlbUnmap, seed % POLICIES), (Knob::ReclaimPolicy, seed / 2 % 2)]);
        if seed < 3 {
            config.knobs.extend([(Knob::TierPolicy, TierPolicy::Hint.value()), (Knob::TierMigration, 0)]);
        }
        if seed % 4 > 1 {
            let sizes = ["hugepages-16kB.enabled", "hugepages-2048kB.enabled", "thp.file_pmd"];
            config.knobs.extend(sizes.map(|name| (Knob::from_name(name).unwrap(), 1)));
            config.knobs.push((Knob::FileMaxOrder, 5));
        }
        outcome(&config, &Chaos::new(400, 64 * MIB / PAGE));
    }
}

/// The machine with movable slow memory.
fn movable_below() -> MachineSpec {
    let text = include_str!("../../machines/tiers.toml");
    let (near, far) = text.split_at(text.find("cpus = 0").unwrap());
    let far = far.replace(r#"zone = "normal""#, r#"zone = "movable""#);
    MachineSpec::from_toml("movable", &format!("{near}{far}")).unwrap()
}

/// A page table from a movable page block boosts the watermarks of its zone; the next one must be allocated all the
/// same, though kswapd has not run to lower them.
#[test]
fn boosted_watermarks_do_not_fail_allocations() {
    let program = builtin::from_name("zipf", 60 * MIB).unwrap();
    let config = RunConfig { memory: Some(3 * FAST), ..RunConfig::new(movable_below()) };
    let outcome = outcome(&config, &program);
    assert_eq!(outcome.oom, []);
    assert!(outcome.stat(Stat::PgallocMovable) > 0);
}
