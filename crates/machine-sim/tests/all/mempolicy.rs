//! Memory policies on whole machines, under the oracle: memory comes from the nodes that a program selects.

use super::acts::{MIB, PAGE, outcome, play, store_all};
use machine_sim::{MachineSpec, Outcome, RunConfig, run};
use mm::knobs::Knob;
use mm::stat::Stat;
use program::{Access, AccessKind, Errno, Map, MemPolicy, Os, PolicyMode, Program, Role, Signal};

/// Pages of the range.
const PAGES: u64 = 1000;
const NEAR: u64 = 0b01;
const FAR: u64 = 0b10;
const BOTH: u64 = 0b11;

/// How, and when, a program sets the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Says {
    /// mbind, before the memory is used.
    Range,
    /// mbind after it has been used, with a move.
    RangeLate,
    /// set_mempolicy.
    Process,
    /// set_mempolicy by the parent.
    Parent,
}

/// Uses memory with a policy.
struct Placed(Says, PolicyMode, u64, u64);

impl Program for Placed {
    unnamed!();
    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        let policy = MemPolicy { mode: self.1, nodes: self.2 };
        let at = os.mmap(Map::anonymous(self.3 * PAGE)).unwrap();
        match self.0 {
            Says::Parent if role == 0 => {
                os.set_mempolicy(policy).unwrap();
                let child = os.fork(1).unwrap();
                os.join(child);
                return Ok(());
            }
            Says::Parent => {}
            Says::Process => os.set_mempolicy(policy).unwrap(),
            Says::Range => assert_eq!(os.mbind(at, self.3 * PAGE, policy, false), Ok(0)),
            Says::RangeLate => {
                store_all(os, at, self.3 * PAGE)?;
                assert_eq!(os.mbind(at, self.3 * PAGE, policy, true), Ok(0));
            }
        }
        store_all(os, at, self.3 * PAGE)
    }
}

/// 32 MiB of near memory, and 64 MiB of far memory.
fn config() -> RunConfig {
    let machine = MachineSpec::preset("tiers").unwrap();
    RunConfig { memory: Some(96 * MIB), verify: true, ..RunConfig::new(machine) }
}

fn placed(says: Says, mode: PolicyMode, nodes: u64) -> Outcome {
    outcome(&config(), &Placed(says, mode, nodes, PAGES))
}

#[test]
fn memory_comes_from_the_nodes_of_the_policy() {
    for says in [Says::Range, Says::Process, Says::Parent] {
        let far = |mode, nodes| placed(says, mode, nodes).stat(Stat::NumaOther);
        assert_eq!(far(PolicyMode::Bind, NEAR), 0);
        assert_eq!(far(PolicyMode::Bind, FAR), PAGES as i64);
        assert_eq!(far(PolicyMode::Preferred, FAR), PAGES as i64);
        assert_eq!(far(PolicyMode::Preferred, BOTH), 0, "the nearest is preferred");
        let turns = placed(says, PolicyMode::Interleave, BOTH);
        assert_eq!(turns.stat(Stat::NumaOther), PAGES as i64 / 2);
        assert_eq!(turns.stat(Stat::NumaInterleave), PAGES as i64);
        assert_eq!(turns.stat(Stat::NumaMiss), 0);
    }
}

#[test]
fn mbind_moves_pages_from_other_nodes() {
    let moved = |mode, nodes| placed(Says::RangeLate, mode, nodes).stat(Stat::PgmigrateSuccess);
    assert_eq!(moved(PolicyMode::Bind, NEAR), 0);
    assert_eq!(moved(PolicyMode::Bind, FAR), PAGES as i64);
    assert_eq!(moved(PolicyMode::Bind, BOTH), 0);
    assert_eq!(moved(PolicyMode::Interleave, BOTH), PAGES as i64 / 2);
}

/// 48 MiB with a policy for the near node of 32 MiB: a bound allocation fails there, a preferred one falls back.
#[test]
fn bound_memory_runs_out_where_preferred_memory_falls_back() {
    let run = |mode| run(&config(), &Placed(Says::Range, mode, NEAR, 48 * MIB / PAGE)).unwrap();
    let (bound, preferred) = (run(PolicyMode::Bind), run(PolicyMode::Preferred));
    assert_eq!((bound.oom.len(), preferred.oom.len()), (1, 0));
    // Page tables are not subject to the policy.
    let tables = 48 * MIB / (512 * PAGE) + 4;
    assert!(bound.stat(Stat::NumaMiss) <= tables as i64 && preferred.stat(Stat::NumaMiss) > 4000);
}

/// Make invalid requests.
fn ask_for_nonsense(os: &mut dyn Os, _: Role) -> Result<(), Signal> {
    let at = os.mmap(Map::anonymous(4 * PAGE)).unwrap();
    let policy = |mode, nodes| MemPolicy { mode, nodes };
    for wrong in [
        policy(PolicyMode::Default, NEAR),
        policy(PolicyMode::Bind, 0),
        policy(PolicyMode::Interleave, 0b100),
        policy(PolicyMode::Bind, 1 << 63),
    ] {
        assert_eq!(os.set_mempolicy(wrong), Err(Errno::Inval));
        assert_eq!(os.mbind(at, 4 * PAGE, wrong, false), Err(Errno::Inval));
    }
    let right = policy(PolicyMode::Bind, NEAR);
    os.munmap(at + PAGE, PAGE).unwrap();
    assert_eq!(os.mbind(at, 4 * PAGE, right, false), Err(Errno::Fault));
    assert_eq!(os.mbind(at + 1, PAGE, right, false), Err(Errno::Inval));
    Ok(())
}

#[test]
fn invalid_requests_are_refused() {
    outcome(&config(), &play(ask_for_nonsense));
}

/// Pages that a program has placed get no NUMA hinting faults.
#[test]
fn placed_pages_stay() {
    let marked = |mode, nodes| {
        let mut config = config();
        config.knobs = vec![
            (Knob::NumaBalancing, 1),
            (Knob::NumaScanDelayMs, 1),
            (Knob::NumaScanPeriodMinMs, 1),
            (Knob::NumaScanSizeMb, 4),
        ];
        // Some hundredths of a second.
        let uses = |os: &mut dyn Os, _| {
            let at = os.mmap(Map::anonymous(PAGES * PAGE)).unwrap();
            os.mbind(at, PAGES * PAGE, MemPolicy { mode, nodes }, false).unwrap();
            (0..20 * PAGES)
                .map(|step| at + step % PAGES * PAGE)
                .try_for_each(|addr| os.access(Access { addr, count: 10_000, mode: AccessKind::Store }))
        };
        outcome(&config, &play(uses)).stat(Stat::NumaPteUpdates)
    };
    assert!(marked(PolicyMode::Default, 0) > 0);
    assert_eq!(marked(PolicyMode::Bind, FAR), 0);
}
