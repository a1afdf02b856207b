//! What a run has shown.

use crate::bound::BoundReport;
use crate::fragment::Fragmented;
use crate::histogram::Histogram;
use crate::machine::{Class, Cpu, SimMachine};
use crate::moves::MovesReport;
use crate::optimum::OptimumReport;
use crate::oracle::OracleReport;
use crate::placement::PlacementReport;
use crate::profile::ProfileNode;
use crate::run::verdict;
use crate::visits::Visited;
use crate::world::World;
use kernel::GroupOutcome;
use mm::OomReport;
use mm::machine::Work;
use mm::stat::Stat;
use std::cell::Cell;

/// Which direction of a metric is good.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Better {
    /// Less of it.
    Lower,
    /// More of it.
    Higher,
}

/// One measured number.
#[derive(Clone, PartialEq, Debug)]
pub struct Metric {
    /// Name, for tables and JSON.
    pub name: String,
    /// The number.
    pub value: f64,
    /// Its unit; empty for a count.
    pub unit: &'static str,
    /// Which direction is good.
    pub better: Better,
    /// One line of help.
    pub help: &'static str,
}

/// Work of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkDone {
    /// The kind.
    pub work: Work,
    /// Units of it.
    pub count: u64,
    /// Nanoseconds that it took, over all CPUs.
    pub nanos: u64,
}

/// What a run has shown, up to the end of its last program task.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Simulated time until the last program task ended.
    pub nanos: u64,
    /// The memory manager's counters, all CPUs together, in table order.
    pub stats: Vec<(Stat, i64)>,
    /// What the machine has counted.
    pub metrics: Vec<Metric>,
    /// The memory manager's work, in table order.
    pub work: Vec<WorkDone>,
    /// Loads, stores and fetches.
    pub accesses: u64,
    /// What the program reported of its own work.
    pub progress: u64,
    /// Program tasks that ran.
    pub tasks: u32,
    /// What the oracle saw.
    pub oracle: OracleReport,
    /// What any safe policy would have needed; `None` if nobody asked ([`RunConfig::bound`](crate::RunConfig::bound)).
    pub bound: Option<BoundReport>,
    /// How few refaults there could have been; `None` if nobody asked
    /// ([`RunConfig::optimum`](crate::RunConfig::optimum)).
    pub optimum: Option<OptimumReport>,
    /// Where CPU time went; `None` if nobody asked ([`RunConfig::profile`](crate::RunConfig::profile)).
    pub profile: Option<ProfileNode>,
    /// What memory was made before the program began; `None` if it was left as at start.
    pub fragmented: Option<Fragmented>,
    /// What control groups have counted; the root is not among them.
    pub groups: Vec<GroupOutcome>,
    /// Out-of-memory decisions.
    pub oom: Vec<OomReport>,
    /// Signals that ended tasks, one line each.
    pub signals: Vec<String>,
    /// What visits have shown; those that were to come after the end are left out.
    pub visited: Vec<Visited>,
}

impl Outcome {
    /// A counter's value.
    pub fn stat(&self, stat: Stat) -> i64 {
        self.stats.iter().find(|(s, _)| *s == stat).map_or(0, |(_, value)| *value)
    }

    /// A metric's value.
    pub fn metric(&self, name: &str) -> Option<f64> {
        self.metrics.iter().find(|metric| metric.name == name).map(|metric| metric.value)
    }

    pub(crate) fn take<P>(world: &World<'_, P>) -> Outcome {
        let machine = world.machine();
        let ended_at = world.tables.borrow().ended_at;
        world.pay_last_visits(ended_at);
        let totals = world.kernel.totals();
        let stats = &world.mm().mmu().stats;
        let work = |&work: &Work| {
            let count = machine.work[work as usize].get();
            WorkDone { work, count, nanos: count * machine.spec().costs().work(work) / 1000 }
        };
        Outcome {
            nanos: ended_at / 1000,
            stats: Stat::ALL.iter().map(|&stat| (stat, stats.read(stat))).collect(),
            metrics: metrics(world),
            work: Work::ALL.iter().map(work).collect(),
            accesses: totals.accesses,
            progress: totals.progress,
            tasks: totals.tasks as u32,
            oracle: verdict(world),
            bound: machine.bound.as_ref().map(|bound| bound.borrow().report()),
            optimum: machine.optimum.as_ref().map(|optimum| optimum.borrow().report()),
            profile: machine.profiled(|profile| profile.tree(CpuTime::of(machine).user)),
            fragmented: world.fragmented.clone(),
            groups: world.kernel.group_outcomes(),
            oom: world.mm().oom_reports(),
            signals: world.kernel.signals(),
            visited: world.tables.borrow().visited.clone(),
        }
    }
}

/// What CPUs did with their time until now, all together, in picoseconds.
struct CpuTime {
    user: u64,
    system: u64,
    kswapd: u64,
    flusher: u64,
    interrupt: u64,
    idle: u64,
}

impl CpuTime {
    fn of(machine: &SimMachine) -> CpuTime {
        let end = machine.cpus.iter().map(|cpu| cpu.clock.get()).max().unwrap_or(0);
        let clocks: u64 = machine.cpus.iter().map(|cpu| cpu.clock.get()).sum();
        let slept: u64 = machine.sched.borrow().idle.iter().sum();
        let kernel =
            |class: Class| machine.cpus.iter().map(|cpu| cpu.kernel[class as usize].get()).sum::<u64>();
        let [system, interrupt] = [Class::System, Class::Interrupt].map(kernel);
        let [kswapd, flusher] = [Class::Kswapd, Class::Flusher].map(kernel);
        CpuTime {
            user: clocks - slept - system - kswapd - flusher - interrupt,
            idle: slept + end * machine.cpus.len() as u64 - clocks,
            system,
            kswapd,
            flusher,
            interrupt,
        }
    }
}

fn metrics<P>(world: &World<'_, P>) -> Vec<Metric> {
    let machine = world.machine();
    let mut metrics = Vec::new();
    let mut count = |name: &str, value: u64, unit, help| {
        metrics.push(Metric { name: name.into(), value: value as f64, unit, better: Better::Lower, help });
    };
    let sum = |of: fn(&Cpu) -> &Cell<u64>| machine.cpus.iter().map(|cpu| of(cpu).get()).sum::<u64>();
    let steps = sum(|cpu| &cpu.counts.walk_steps);
    count("dtlb_misses", sum(|cpu| &cpu.counts.dtlb_misses), "", "misses of the first-level data TLBs");
    count(
        "itlb_misses",
        sum(|cpu| &cpu.counts.itlb_misses),
        "",
        "misses of the first-level instruction TLBs",
    );
    count("stlb_misses", sum(|cpu| &cpu.counts.walks), "", "misses of the second-level TLBs: page walks");
    count("walk_steps", steps, "", "page-table entries read by page walks");
    let tiers = &world.mm().mmu().tiers;
    if tiers.many() {
        let lines = |top: Option<bool>| -> u64 {
            let ranges = machine.spec().ranges().iter().zip(&machine.read_lines);
            ranges
                .filter(|(range, _)| top.is_none_or(|top| tiers.is_top(range.node) == top))
                .map(|(_, lines)| lines.get())
                .sum()
        };
        let slow = lines(Some(false)) as f64 * 100.0 / lines(None).max(1) as f64;
        let help = "share of what programs read, after misses of TLBs, that memory of slower tiers served";
        let (name, value) = ("slow_memory_share".into(), slow);
        metrics.push(Metric { name, value, unit: "%", better: Better::Lower, help });
    }
    let mut count = |name: &str, value: u64, unit, help| {
        metrics.push(Metric { name: name.into(), value: value as f64, unit, better: Better::Lower, help });
    };
    for (node, nanos) in machine.loaded_latencies() {
        let help = "mean time of a read of the node's memory, after a miss of TLBs, with what others read at the same time";
        count(&format!("node{node}_read_latency"), nanos, "ns", help);
    }
    count("tlb_rounds", sum(|cpu| &cpu.counts.rounds), "", "flush requests sent to other CPUs");
    count("ipis_sent", sum(|cpu| &cpu.counts.ipis_sent), "", "interrupts sent for flushes");
    count("ipis_received", sum(|cpu| &cpu.counts.ipis_received), "", "interrupts received for flushes");
    // Most programs tell nothing of their operations.
    let told = (machine.operations.borrow().total() > 0).then_some((
        "operation_time",
        &machine.operations,
        "time that the program's own operations took",
    ));
    for (name, histogram, help) in [
        ("takeoff", &machine.takeoff, "time that a take of a frame waited for the flush that it owed"),
        (
            "stale_age",
            &machine.age,
            "age of the oldest part of a debt that a CPU still owed when it was paid",
        ),
    ]
    .into_iter()
    .chain(told)
    {
        let histogram = histogram.borrow();
        for (quantile, value) in
            [("p50", histogram.quantile(50)), ("p99", histogram.quantile(99)), ("max", histogram.max())]
        {
            count(&format!("{name}_{quantile}"), value, "ns", help);
        }
        count(&format!("{name}_count"), histogram.total(), "", help);
    }
    count("context_switches", sum(|cpu| &cpu.counts.switches), "", "changes of the task that a CPU runs");
    let CpuTime { user, system, kswapd, flusher, interrupt, idle } = CpuTime::of(machine);
    count("cpu_user", user / 1000, "ns", "CPU time of programs, page walks included");
    count("cpu_system", system / 1000, "ns", "CPU time of system calls, faults and task switches");
    count("cpu_kswapd", kswapd / 1000, "ns", "CPU time of the kswapd daemons");
    count("cpu_flusher", flusher / 1000, "ns", "CPU time of the flusher");
    count("cpu_interrupt", interrupt / 1000, "ns", "CPU time of flush requests from others and of devices");
    count("cpu_idle", idle / 1000, "ns", "CPU time with nothing to run");
    for (spec, device) in machine.spec().devices().iter().zip(machine.devices.borrow().iter()) {
        let (counts, name) = (&device.counts, &spec.name);
        count(&format!("{name}_reads"), counts.reads, "", "read requests");
        count(&format!("{name}_read_pages"), counts.read_pages, "pages", "pages read");
        count(&format!("{name}_read_merges"), counts.read_merges, "", "reads that joined another's request");
        count(&format!("{name}_writes"), counts.writes, "", "write requests");
        count(&format!("{name}_written_pages"), counts.written_pages, "pages", "pages written");
        count(
            &format!("{name}_write_merges"),
            counts.write_merges,
            "",
            "writes that joined another's request",
        );
        count(&format!("{name}_busy"), counts.busy / 1000, "ns", "time with requests to serve");
    }
    for (size, stat, value) in world.mm().mmu().sizes.moved() {
        count(&format!("{size}/{}", stat.name()), value, "", stat.help());
    }
    if let throughput @ 1.. = machine.throughput.get() {
        metrics.push(Metric {
            name: "throughput".into(),
            value: throughput as f64,
            unit: "KiB/s",
            better: Better::Higher,
            help: "what all tasks touched in their time, as the program measures it",
        });
    }
    if let Some(placement) = &machine.placement {
        metrics.extend(placements(placement.borrow().report()));
    }
    if let Some(moves) = &machine.moves {
        metrics.extend(compactions(moves.borrow().report()));
        metrics.extend(moves.borrow().latency.by_order().flat_map(|(order, took)| latencies(order, took)));
    }
    metrics
}

/// What placement in tiers came to.
fn placements(report: PlacementReport) -> Vec<Metric> {
    let PlacementReport { own, least, least_share, moves, back } = report;
    let metric = |name: &str, value, unit, better, help| Metric {
        name: format!("placement_{name}"),
        value,
        unit,
        better,
        help,
    };
    let lower = Better::Lower;
    vec![
        metric("cost", own, "ns", lower, "what reads of slow memory took longer, and copies between tiers"),
        metric(
            "cost_least",
            least,
            "ns",
            lower,
            "the least that this can be for the same reads, whatever is moved when",
        ),
        metric(
            "share_least",
            least_share * 100.0,
            "%",
            Better::Higher,
            "share of lines from fast memory in the plan which that comes from",
        ),
        metric("moves", moves as f64, "pages", lower, "pages copied between tiers"),
        metric(
            "back",
            back as f64,
            "pages",
            lower,
            "of these, pages that went up after they had gone down: ping-pong",
        ),
    ]
}

/// What compactions came to.
/// How long allocations of one order took.
fn latencies(order: u64, took: &Histogram) -> [Metric; 4] {
    let help = "from the fault, read or write that it was for until a folio of that order was there";
    let values = [
        ("p50", took.quantile(50), "ns"),
        ("p99", took.quantile(99), "ns"),
        ("max", took.max(), "ns"),
        ("count", took.total(), ""),
    ];
    values.map(|(name, value, unit)| Metric {
        name: format!("alloc_order{order}_{name}"),
        value: value as f64,
        unit,
        better: Better::Lower,
        help,
    })
}

fn compactions(report: MovesReport) -> Vec<Metric> {
    let MovesReport { compactions, made, moved, least, exact, in_vain, useless, whole } = report;
    let metric = |name: &str, value, unit, help| Metric {
        name: format!("compaction_{name}"),
        value,
        unit,
        better: Better::Lower,
        help,
    };
    let pieces = useless.map(|sum| if compactions == 0 { 0.0 } else { sum / compactions as f64 });
    let mut metrics = vec![
        metric("zones", compactions as f64, "", "times that a zone was compacted"),
        metric("made", made as f64, "", "of these, those for a block that was there then"),
        metric("moved", moved as f64, "pages", "pages that were moved by those that made their block"),
        metric(
            "moved_least",
            least as f64,
            "pages",
            "the fewest that must be moved for these blocks, added up",
        ),
        metric(
            "least_exact",
            exact as f64,
            "",
            "of these blocks, those that so few do for with all folios whole",
        ),
        metric("moved_in_vain", in_vain as f64, "pages", "pages moved by other compactions"),
        metric("pieces_before", pieces[0], "%", "free memory of no use for the block, on average, before"),
        metric("pieces_after", pieces[1], "%", "free memory of no use for the block, on average, after"),
    ];
    if let Some(whole) = whole {
        let higher = |name, value: u64, help| Metric {
            better: Better::Higher,
            ..metric(name, value as f64, "", help)
        };
        metrics.extend([
            higher("whole_before", whole.before, "free blocks of 2 MiB before all of a zone was compacted"),
            higher("whole_after", whole.after, "the same after it"),
            higher("whole_possible", whole.possible, "the most that there could be"),
            metric("whole_moved", whole.moved as f64, "pages", "pages that were moved for that"),
            metric("whole_least", whole.least as f64, "pages", "the fewest for as many as there could be"),
        ]);
    }
    metrics
}
