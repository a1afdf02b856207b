//! Loaded latency on whole machines: near memory is the slower tier when all CPUs read it.

use super::acts::PAGE;
use machine_sim::{MachineSpec, Outcome, RunConfig, run};
use mm::knobs::{Knob, TierPolicy};
use mm::stat::Stat;
use program::named::{NameParts, Named};
use program::{Access, AccessKind, Map, MemPolicy, Os, PolicyMode, Program, Role, Signal};

/// Pages that each task reads: far more than its CPU's TLBs hold.
const PAGES: u64 = 3000;

/// The machine `tiers` with so little bandwidth of near memory that four CPUs exceed it, as many CPUs do on a server.
fn machine() -> MachineSpec {
    let near = "[node.loaded]\nbandwidth_gbs = 8\ncurve = [[0.0, 1.0], [0.8, 1.1], [1.0, 1.6]]\nsource = 'made up'\n";
    let text = include_str!("../../machines/tiers.toml");
    let far = text.rfind("[[node]]").unwrap();
    MachineSpec::from_toml("loaded", &format!("{}{near}{}", &text[..far], &text[far..])).unwrap()
}

/// Tasks that read memory of one node.
struct Readers {
    tasks: u32,
    nodes: u64,
}

impl Program for Readers {
    unnamed!();

    fn run<O: Os>(&self, os: &mut O, role: Role) -> Result<(), Signal> {
        let others = if role == 0 { 1..self.tasks } else { 0..0 };
        let others: Vec<_> = others.map(|role| os.spawn(role).unwrap()).collect();
        let at = os.mmap(Map::anonymous(PAGES * PAGE)).unwrap();
        let policy = MemPolicy { mode: PolicyMode::Bind, nodes: self.nodes };
        os.mbind(at, PAGES * PAGE, policy, false).unwrap();
        (0..PAGES).try_for_each(|page| os.store(at + page * PAGE))?;
        // In steps so large that no page is read again while TLBs hold it.
        for step in 0..20 * PAGES {
            os.access(Access { addr: at + step * 1237 % PAGES * PAGE, count: 64, mode: AccessKind::Load })?;
        }
        others.into_iter().for_each(|task| os.join(task));
        Ok(())
    }
}

/// The run, and how long reads of near memory took.
fn read(tasks: u32, nodes: u64) -> (Outcome, f64) {
    let config = RunConfig::new(machine());
    let outcome = run(&config, &Readers { tasks, nodes }).unwrap();
    assert_eq!(outcome.oom, []);
    let latency = outcome.metric("node0_read_latency").unwrap();
    (outcome, latency)
}

#[test]
fn near_memory_is_slower_under_load() {
    let ((near, alone), (far, _)) = (read(1, 0b01), read(1, 0b10));
    assert!(near.nanos < far.nanos && alone < 150.0, "{alone} ns");
    let ((near, together), (far, _)) = (read(4, 0b01), read(4, 0b10));
    assert!(near.nanos > far.nanos * 5 / 4, "{} {}", near.nanos, far.nanos);
    // Far memory takes 255 ns.
    assert!(together > 255.0, "{together} ns");
}

/// On the machine of Colloid, whose curves have sources, reads of near memory by all CPUs take longer than reads of far
/// memory at rest, and tier balancing sees that.
#[test]
fn balancing_sees_that_near_memory_is_loaded() {
    let run = |balance: u64| {
        let machine = MachineSpec::preset("colloid").unwrap();
        let knobs = [
            (Knob::DemotionEnabled, 1),
            (Knob::TierPolicy, TierPolicy::Sampled.value()),
            (Knob::TierBalance, balance),
            (Knob::TierPeriodMs, 1),
            (Knob::TierAdaptSamples, 50),
            (Knob::TierCoolSamples, 1000),
        ];
        let program =
            Named::new(NameParts::parse("gups-4k:6291456:60", |text| Ok(text.parse().unwrap())).unwrap())
                .unwrap();
        let config = RunConfig { memory: Some(32 << 20), knobs: knobs.into(), ..RunConfig::new(machine) };
        machine_sim::run(&config, &program).unwrap()
    };
    let (not, balanced) = (run(0), run(1));
    let near = |outcome: &Outcome| outcome.metric("node0_read_latency").unwrap();
    // Far memory takes 135 ns at rest.
    assert!(near(&not) > 150.0 && near(&balanced) < near(&not) * 0.9, "{} {}", near(&not), near(&balanced));
    assert_eq!((not.stat(Stat::TierBalanced), not.metric("slow_memory_share")), (0, Some(0.0)));
    assert!(balanced.stat(Stat::TierBalanced) > 100);
}
