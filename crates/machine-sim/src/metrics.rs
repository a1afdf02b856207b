//! Collects the outcome of a run.

use crate::cpu::{Class, Cpu};
use crate::fragment::MemoryState;
use crate::histogram::Histogram;
use crate::machine::SimMachine;
use crate::moves::MovesReport;
use crate::observers::Observers;
use crate::outcome::{Better, FreeMemory, Metric, Outcome, Pressure, SenpaiOutcome, StallTime, WorkDone};
use crate::placement::PlacementReport;
use crate::sched::Stalls;
use crate::simulation::Simulation;
use crate::spec::Hardware;
use crate::zoneinfo::zoneinfo;
use mm::Mm;
use mm::alloc::Watermark;
use mm::machine::Work;
use mm::stat::Stat;
use mm::units::GroupId;
use std::cell::Cell;

/// What the run has shown until now.
pub(crate) fn collect<P>(sim: &Simulation<'_, P>) -> Outcome {
    let machine = sim.machine();
    let observers = &machine.observers;
    let totals = sim.kernel.totals();
    let stats = &sim.mm().mmu().stats;
    let groups = sim.kernel.group_outcomes();
    let work = |&work: &Work| {
        let count = machine.work[work as usize].get();
        WorkDone { work, count, nanos: count * machine.spec().costs().work(work) / 1000 }
    };
    Outcome {
        nanos: sim.state.borrow().ended_at / 1000,
        stats: Stat::ALL.iter().map(|&stat| (stat, stats.read(stat))).collect(),
        metrics: metrics(sim),
        work: Work::ALL.iter().map(work).collect(),
        accesses: totals.accesses,
        progress: totals.progress,
        tasks: totals.tasks as u32,
        oracle: sim.oracle_report(),
        bound: observers.bound.as_ref().map(|bound| bound.borrow().report()),
        optimum: observers.optimum.as_ref().map(|optimum| optimum.borrow().report()),
        profile: machine.profiled(|profile| profile.tree(CpuTime::of(machine).user)),
        task_time: machine
            .profiled(|profile| {
                let cost = machine.spec().costs().hardware(Hardware::Access);
                profile.task_time(cost)
            })
            .flatten(),
        locks: machine.waiting.iter().flat_map(|waiting| waiting.outcomes()).collect(),
        lines: machine.waiting.iter().flat_map(|waiting| waiting.lines()).collect(),
        fragmented: sim.fragmented.clone(),
        group_pressure: (1..=groups.len()).map(|group| pressure_of(sim, GroupId(group as u16))).collect(),
        groups,
        pressure: pressure_of(sim, GroupId(0)),
        oom: sim.mm().oom_reports(),
        signals: sim.kernel.signals(),
        visited: sim.state.borrow().visited.clone(),
        free_memory: sim.config.free_memory.then(|| free_memory(sim.mm())),
    }
}

fn free_memory(mm: &Mm<SimMachine>) -> FreeMemory {
    FreeMemory { zoneinfo: zoneinfo(mm), state: MemoryState::of(mm) }
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
        let [system, kswapd, flusher, interrupt] = Class::ALL.map(kernel);
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

/// Metrics of which less is better, unless they say otherwise.
#[derive(Default)]
struct Metrics(Vec<Metric>);

impl Metrics {
    fn count(&mut self, name: &str, value: u64, unit: &'static str, help: &'static str) {
        self.add(name, value as f64, unit, help);
    }

    /// Counts of one thing: the ends of their names, values, units, and help.
    fn counts_of<const N: usize>(&mut self, thing: &str, all: [(&str, u64, &'static str, &'static str); N]) {
        for (what, value, unit, help) in all {
            self.count(&format!("{thing}_{what}"), value, unit, help);
        }
    }

    fn add(&mut self, name: &str, value: f64, unit: &'static str, help: &'static str) {
        self.0.push(Metric { name: name.into(), value, unit, better: Better::Lower, help });
    }

    fn more_is_better(&mut self, name: &str, value: f64, unit: &'static str, help: &'static str) {
        self.add(name, value, unit, help);
        self.0.last_mut().expect("a metric was added").better = Better::Higher;
    }
}

fn metrics<P>(sim: &Simulation<'_, P>) -> Vec<Metric> {
    let machine = sim.machine();
    let mut metrics = Metrics::default();
    translation(&mut metrics, &machine.cpus);
    slow_memory(&mut metrics, sim);
    for (node, nanos) in machine.memory.loaded_latencies() {
        let help = "mean time of a read of the node's memory, after a miss of TLBs, with what others read at the same time";
        metrics.count(&format!("node{node}_read_latency"), nanos, "ns", help);
    }
    let kept = sim.mm().core().alloc.zones().iter().map(|zone| zone.bare_mark(Watermark::High));
    metrics.count("watermark_high", kept.sum(), "pages", "free memory that kswapd reclaims up to");
    flushes(&mut metrics, machine);
    cpu_time(&mut metrics, machine);
    pressure(&mut metrics, &pressure_of(sim, GroupId(0)));
    if sim.config.senpai.is_some() {
        controller(&mut metrics, &sim.state.borrow().senpai);
    }
    devices(&mut metrics, machine);
    compressed(&mut metrics, sim);
    for (size, stat, value) in sim.mm().mmu().sizes.moved() {
        metrics.count(&format!("{size}/{}", stat.name()), value, "", stat.help());
    }
    let Observers { placement, moves, throughput, .. } = &machine.observers;
    if let throughput @ 1.. = throughput.get() {
        let help = "what all tasks touched in their time, as the program measures it";
        metrics.more_is_better("throughput", throughput as f64, "KiB/s", help);
    }
    if let Some(placement) = placement {
        placed(&mut metrics, placement.borrow().report());
    }
    if let Some(moves) = moves {
        compactions(&mut metrics, moves.borrow().report);
        for (order, took) in moves.borrow().latency.by_order() {
            let help = "from the fault, read or write that it was for until a folio of that order was there";
            quantiles(&mut metrics, &format!("alloc_order{order}"), took, help);
        }
    }
    metrics.0
}

fn sum(cpus: &[Cpu], of: fn(&Cpu) -> &Cell<u64>) -> u64 {
    cpus.iter().map(|cpu| of(cpu).get()).sum()
}

fn translation(metrics: &mut Metrics, cpus: &[Cpu]) {
    let sum = |of| sum(cpus, of);
    let dtlb = sum(|cpu| &cpu.counts.dtlb_misses);
    metrics.count("dtlb_misses", dtlb, "", "misses of the first-level data TLBs");
    let itlb = sum(|cpu| &cpu.counts.itlb_misses);
    metrics.count("itlb_misses", itlb, "", "misses of the first-level instruction TLBs");
    let walks = sum(|cpu| &cpu.counts.walks);
    metrics.count("stlb_misses", walks, "", "misses of the second-level TLBs: page walks");
    let steps = sum(|cpu| &cpu.counts.walk_steps);
    metrics.count("walk_steps", steps, "", "page-table entries read by page walks");
}

fn slow_memory<P>(metrics: &mut Metrics, sim: &Simulation<'_, P>) {
    let tiers = &sim.mm().mmu().tiers;
    if !tiers.many() {
        return;
    }
    let (mut all, mut slow) = (0, 0);
    for (node, lines) in sim.machine().memory.lines() {
        all += lines;
        slow += if tiers.is_top(node) { 0 } else { lines };
    }
    let help = "share of what programs read, after misses of TLBs, that memory of slower tiers served";
    metrics.add("slow_memory_share", slow as f64 * 100.0 / all.max(1) as f64, "%", help);
}

fn flushes(metrics: &mut Metrics, machine: &SimMachine) {
    let sum = |of| sum(&machine.cpus, of);
    let rounds = sum(|cpu| &cpu.counts.rounds);
    metrics.count("tlb_rounds", rounds, "", "flush requests sent to other CPUs");
    metrics.count("ipis_sent", sum(|cpu| &cpu.counts.ipis_sent), "", "interrupts sent for flushes");
    let received = sum(|cpu| &cpu.counts.ipis_received);
    metrics.count("ipis_received", received, "", "interrupts received for flushes");
    let Observers { takeoff, stale_age, operations, .. } = &machine.observers;
    let help = "time that a take of a frame waited for the flush that it owed";
    quantiles(metrics, "takeoff", &takeoff.borrow(), help);
    let help = "age of the oldest part of a debt that a CPU still owed when it was paid";
    quantiles(metrics, "stale_age", &stale_age.borrow(), help);
    // Most programs report no operations.
    let operations = operations.borrow();
    if operations.total > 0 {
        let help = "time that the program's own operations took";
        quantiles(metrics, "operation_time", &operations, help);
    }
}

fn quantiles(metrics: &mut Metrics, name: &str, histogram: &Histogram, help: &'static str) {
    metrics.count(&format!("{name}_p50"), histogram.quantile(50), "ns", help);
    metrics.count(&format!("{name}_p99"), histogram.quantile(99), "ns", help);
    metrics.count(&format!("{name}_max"), histogram.max, "ns", help);
    metrics.count(&format!("{name}_count"), histogram.total, "", help);
}

fn cpu_time(metrics: &mut Metrics, machine: &SimMachine) {
    let switches = sum(&machine.cpus, |cpu| &cpu.counts.switches);
    metrics.count("context_switches", switches, "", "changes of the task that a CPU runs");
    let CpuTime { user, system, kswapd, flusher, interrupt, idle } = CpuTime::of(machine);
    for (name, picos, help) in [
        ("cpu_user", user, "CPU time of programs, page walks included"),
        ("cpu_system", system, "CPU time of system calls, faults and task switches"),
        ("cpu_kswapd", kswapd, "CPU time of the kswapd daemons"),
        ("cpu_flusher", flusher, "CPU time of the flusher"),
        ("cpu_interrupt", interrupt, "CPU time of flush requests from others and of devices"),
        ("cpu_idle", idle, "CPU time with nothing to run"),
    ] {
        metrics.count(name, picos / 1000, "ns", help);
    }
}

/// Pressure stall information of a group, or of the machine (the root), until the program's end.
fn pressure_of<P>(sim: &Simulation<'_, P>, group: GroupId) -> Pressure {
    let stalls = sim.machine().sched.borrow().stalls(sim.state.borrow().ended_at, group);
    let line = |Stalls { total, averages }| StallTime { total: total / 1_000_000, averages };
    let [some, full, io_some, io_full] = stalls.map(line);
    Pressure { memory: [some, full], io: [io_some, io_full] }
}

fn pressure(metrics: &mut Metrics, of: &Pressure) {
    for (name, line, help) in [
        ("memory_some", of.memory[0], "time in which a task waited for memory"),
        ("memory_full", of.memory[1], "time in which tasks waited for memory and none worked"),
        ("io_some", of.io[0], "time in which a task waited for a device"),
        ("io_full", of.io[1], "time in which tasks waited for devices and none ran"),
    ] {
        metrics.count(&format!("pressure_{name}"), line.total, "us", help);
        for (seconds, average) in [10, 60, 300].into_iter().zip(line.averages) {
            let help = "share of such time, as Linux averages it over this many seconds, at the end";
            metrics.add(&format!("pressure_{name}_avg{seconds}"), average as f64 / 100.0, "%", help);
        }
    }
}

fn controller(metrics: &mut Metrics, of: &SenpaiOutcome) {
    metrics.counts_of(
        "senpai",
        [
            ("looks", of.looks, "", "looks of the controller at its group"),
            (
                "above_target",
                of.above_target,
                "",
                "those after more waiting for memory or devices than its target",
            ),
            ("asked", of.asked, "bytes", "what it wrote to memory.reclaim"),
            ("reclaimed", of.reclaimed, "bytes", "what was reclaimed for it"),
            ("current", of.settled(), "bytes", "the group's memory at the looks of the second half, mean"),
        ],
    );
}

fn devices(metrics: &mut Metrics, machine: &SimMachine) {
    for (spec, device) in machine.spec().devices().iter().zip(machine.devices.borrow().iter()) {
        let counts = &device.counts;
        let all = [
            ("reads", counts.reads, "", "read requests"),
            ("read_pages", counts.read_pages, "pages", "pages read"),
            ("read_merges", counts.read_merges, "", "reads that joined another's request"),
            ("writes", counts.writes, "", "write requests"),
            ("written_pages", counts.written_pages, "pages", "pages written"),
            ("write_merges", counts.write_merges, "", "writes that joined another's request"),
            ("busy", counts.busy / 1000, "ns", "time with requests to serve"),
            ("read_time", counts.read_time / 1000, "ns", "time from a read's arrival to its end, added up"),
        ];
        metrics.counts_of(&spec.name, all);
        if spec.fails.any() {
            let failed = [
                ("failed_reads", counts.failed_reads, "pages", "pages of reads that failed"),
                ("failed_writes", counts.failed_writes, "pages", "pages of writes that failed"),
            ];
            metrics.counts_of(&spec.name, failed);
        }
    }
}

/// What compressed swap held when the program's first task had ended, and what it has done; nothing if there is none.
fn compressed<P>(metrics: &mut Metrics, sim: &Simulation<'_, P>) {
    let (zrams, zswap) = sim.state.borrow().packed.clone().unwrap_or_default();
    for (number, (stat, held)) in sim.mm().zram_stats().into_iter().zip(zrams).enumerate() {
        let all = [
            ("orig_data_size", held.orig_data_size, "bytes", "pages that it holds"),
            ("compr_data_size", held.compr_data_size, "bytes", "what became of them"),
            ("mem_used_total", held.mem_used_total, "bytes", "memory that it takes"),
            ("mem_used_max", stat.mem_used_max, "bytes", "the most that this was"),
            ("same_pages", held.same_pages, "pages", "pages that repeat one word and take no memory"),
            ("pages_compacted", stat.pages_compacted, "pages", "frames that its compaction has freed"),
            ("huge_pages", held.huge_pages, "pages", "pages that are kept whole"),
            ("huge_pages_since", stat.huge_pages_since, "pages", "such pages written so far"),
            ("failed_writes", stat.failed_writes, "", "writes that failed"),
            ("notify_free", stat.notify_free, "pages", "pages that swap did not need any more"),
            ("writestall", stat.writestall, "", "writes that found no memory at once"),
        ];
        metrics.counts_of(&format!("zram{number}"), all);
        if let Some([count, reads, writes]) = stat.backing {
            let backing = [
                ("bd_count", count, "pages", "pages on its backing device"),
                ("bd_reads", reads, "pages", "pages read from there"),
                ("bd_writes", writes, "pages", "pages written there"),
            ];
            metrics.counts_of(&format!("zram{number}"), backing);
        }
    }
    let (Some(stat), Some(held)) = (sim.mm().zswap_stat(), zswap) else { return };
    let all = [
        ("pool_total_size", held.pool_total_size, "bytes", "memory that it takes"),
        ("pool_max_size", stat.pool_max_size, "bytes", "the most that this was"),
        ("stored_pages", held.stored_pages, "pages", "pages that it holds"),
        ("pool_limit_hit", stat.pool_limit_hit, "", "times that a page found it full"),
        ("written_back_pages", stat.written_back_pages, "pages", "pages that it has written to swap"),
        ("reject_reclaim_fail", stat.reject_reclaim_fail, "", "pages that it could not write there"),
        ("reject_compress_poor", stat.reject_compress_poor, "", "pages that did not get smaller"),
        ("reject_alloc_fail", stat.reject_alloc_fail, "", "pages for which there was no memory"),
    ];
    metrics.counts_of("zswap", all);
}

/// What placement in tiers came to.
fn placed(metrics: &mut Metrics, report: PlacementReport) {
    let PlacementReport { own, least, least_share, moves, back } = report;
    let help = "what reads of slow memory took longer, and copies between tiers";
    metrics.add("placement_cost", own, "ns", help);
    let help = "the least that this can be for the same reads, whatever is moved when";
    metrics.add("placement_cost_least", least, "ns", help);
    let help = "share of lines from fast memory in the plan which that comes from";
    metrics.more_is_better("placement_share_least", least_share * 100.0, "%", help);
    metrics.count("placement_moves", moves, "pages", "pages copied between tiers");
    let help = "of these, pages that went up after they had gone down: ping-pong";
    metrics.count("placement_back", back, "pages", help);
}

/// What compactions came to.
fn compactions(metrics: &mut Metrics, report: MovesReport) {
    let MovesReport { compactions, made, moved, least, exact, in_vain, unusable, whole } = report;
    metrics.count("compaction_zones", compactions, "", "times that a zone was compacted");
    metrics.count("compaction_made", made, "", "of these, those for a block that was there then");
    let help = "pages that were moved by those that made their block";
    metrics.count("compaction_moved", moved, "pages", help);
    let help = "the fewest that must be moved for these blocks, added up";
    metrics.count("compaction_moved_least", least, "pages", help);
    let help = "of these blocks, those that so few do for with all folios whole";
    metrics.count("compaction_least_exact", exact, "", help);
    metrics.count("compaction_moved_in_vain", in_vain, "pages", "pages moved by other compactions");
    let [before, after] = unusable.map(|sum| if compactions == 0 { 0.0 } else { sum / compactions as f64 });
    let help = "free memory of no use for the block, on average, before";
    metrics.add("compaction_pieces_before", before, "%", help);
    let help = "free memory of no use for the block, on average, after";
    metrics.add("compaction_pieces_after", after, "%", help);
    let Some(whole) = whole else { return };
    for (name, value, help) in [
        ("compaction_whole_before", whole.before, "free blocks of 2 MiB before all of a zone was compacted"),
        ("compaction_whole_after", whole.after, "the same after it"),
        ("compaction_whole_possible", whole.possible, "the most that there could be"),
    ] {
        metrics.more_is_better(name, value as f64, "", help);
    }
    metrics.count("compaction_whole_moved", whole.moved, "pages", "pages that were moved for that");
    let help = "the fewest for as many as there could be";
    metrics.count("compaction_whole_least", whole.least, "pages", help);
}
