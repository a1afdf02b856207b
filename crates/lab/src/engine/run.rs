//! One run: a fresh machine, a program, a seed.

use super::program::Ran;
use super::{Machine, Program, custom_policy, proc};
use crate::error::{Error, Result};
use crate::human;
use crate::locks::{LineRecord, LockRecord};
use crate::record::{
    Better, BoundRecord, CauseRecord, CostRecord, FragmentedRecord, GroupRecord, LevelRecord, LruGenRecord,
    Measured, OptimumRecord, OracleRecord, RunRecord, StateRecord, WorkDone, ZoneRecord,
};
use crate::replay;
use crate::tree::{Share, TaskTime, Tree};
use machine_sim::{
    BoundLevel, BoundReport, CauseCount, Fragmented, GroupOutcome, LineOutcome, LockOutcome, LockTally,
    MemoryState, OptimumReport, Outcome, Pressure, ProfileNode, RunConfig, Visited, ZoneState,
};
use mm::reclaim::CommandError;
use mm::stat::Stat;
use mm::units::PAGE_SIZE;
use std::collections::BTreeMap;

impl Machine {
    /// A run on this machine with every option at its default.
    pub fn config(&self) -> RunConfig {
        RunConfig { custom: custom_policy(), ..RunConfig::new(self.spec.clone()) }
    }
}

impl Program {
    /// Run the program for the column `profile`. A failure names `command`, which replays it.
    pub fn replayable(&self, config: &RunConfig, profile: &str, command: String) -> Result<RunRecord> {
        let record = replay::guarded(command.clone(), || self.measure(config, profile));
        record.map_err(|error| error.with_replay(|| command))
    }

    /// Run the program for the column `profile`.
    pub fn measure(&self, config: &RunConfig, profile: &str) -> Result<RunRecord> {
        let Ran { outcome, mut warnings, covered } = self.run(config)?;
        if !self.may_be_oom_killed() {
            finished(config, &outcome)?;
        }
        warnings.extend(config.memory.filter(|_| reclaimed(&outcome) == 0).map(|memory| {
            format!("nothing was reclaimed: what the program uses fits in {}", human::bytes(memory as f64))
        }));
        Ok(RunRecord { covered, ..record(profile, config.seed, &outcome, warnings) })
    }
}

/// Refuse a run whose program was killed: it measured something else.
fn finished(config: &RunConfig, outcome: &Outcome) -> Result<()> {
    if let Some(oom) = outcome.oom.first() {
        if let Some(error) = out_of_group(outcome, oom.rss * PAGE_SIZE) {
            return Err(error);
        }
        let memory = human::bytes(config.memory.unwrap_or_else(|| config.machine.memory()) as f64);
        let swap = if config.has_swap() { "" } else { " (this machine has no swap)" };
        return Err(Error::OutOfMemory(format!(
            "{memory} of memory are too small to run this program: it ran out of memory with {} resident{swap}; give \
             more with --memory ({})",
            human::bytes((oom.rss * PAGE_SIZE) as f64),
            oom.reason
        )));
    }
    match outcome.signals.first() {
        Some(signal) => Err(Error::Failed(format!("the program was ended by a signal: {signal}"))),
        None => Ok(()),
    }
}

/// Pages that were reclaimed, including reclaim for the limits of groups.
fn reclaimed(outcome: &Outcome) -> u64 {
    let of_node = [Stat::PgstealKswapd, Stat::PgstealDirect].map(|stat| outcome.stat(stat).max(0) as u64);
    let of_groups = outcome.groups.iter().filter_map(|group| group.value("pgsteal"));
    of_node.into_iter().chain(of_groups).sum()
}

/// The error for a program that the limit of a control group killed.
fn out_of_group(outcome: &Outcome, rss: u64) -> Option<Error> {
    let of =
        |name: &'static str| move |group: &&GroupOutcome| group.value(name).is_some_and(|value| value > 0);
    let group = outcome.groups.iter().filter(of("oom_kill")).find(of("oom"))?;
    let max = match group.value("memory.max") {
        Some(max) if max != u64::MAX => format!("memory.max is {}", human::bytes(max as f64)),
        _ => "a limit is too low".to_owned(),
    };
    Some(Error::OutOfMemory(format!(
        "the control group '{}' is too small to run this program: it ran out of memory with {} resident; its {max}",
        group.name,
        human::bytes(rss as f64)
    )))
}

fn record(profile: &str, seed: u64, outcome: &Outcome, warnings: Vec<String>) -> RunRecord {
    let metric = |metric: &machine_sim::Metric| Measured {
        name: metric.name.clone(),
        value: metric.value,
        unit: metric.unit.to_owned(),
        better: match metric.better {
            machine_sim::Better::Lower => Better::Lower,
            machine_sim::Better::Higher => Better::Higher,
        },
    };
    RunRecord {
        profile: profile.to_owned(),
        seed,
        nanos: outcome.nanos,
        work: WorkDone {
            accesses: outcome.accesses,
            progress: outcome.progress,
            tasks: u64::from(outcome.tasks),
        },
        counters: outcome.stats.iter().map(|(stat, value)| (stat.name().to_owned(), *value)).collect(),
        metrics: outcome.metrics.iter().map(metric).collect(),
        costs: outcome
            .work
            .iter()
            .map(|done| (done.work.name().to_owned(), CostRecord { count: done.count, nanos: done.nanos }))
            .collect(),
        oracle: OracleRecord { checked: outcome.oracle.checked, violations: outcome.oracle.violations },
        covered: BTreeMap::new(),
        bound: outcome.bound.as_ref().map(bound),
        optimum: outcome.optimum.map(optimum),
        profile_tree: outcome.profile.as_ref().map(tree),
        task_time: outcome
            .task_time
            .as_ref()
            .map(|time| TaskTime { tree: tree(&time.tree), missed_picos: time.missed }),
        locks: outcome.locks.iter().map(lock).collect(),
        lines: outcome.lines.iter().map(line).collect(),
        lru_gen: outcome.visited.iter().map(lru_gen).collect(),
        fragmented: outcome.fragmented.as_ref().map(fragmented),
        groups: outcome.groups.iter().zip(&outcome.group_pressure).map(group).collect(),
        proc_files: proc::files(outcome),
        warnings,
    }
}

fn group((group, pressure): (&GroupOutcome, &Pressure)) -> GroupRecord {
    let named =
        |values: &[(&str, u64)]| values.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let limit = |&(name, value): &(&str, u64)| (name.to_owned(), (value != u64::MAX).then_some(value));
    GroupRecord {
        group: group.name.clone(),
        limits: group.limits.as_ref().map(|limits| limits.iter().map(limit).collect()),
        usage: named(&group.usage),
        stat: named(&group.stat),
        events: named(&group.events),
        pressure: proc::pressure_files(pressure),
    }
}

fn fragmented(made: &Fragmented) -> FragmentedRecord {
    let zone = |zone: &ZoneState| ZoneRecord {
        node: zone.node,
        zone: zone.name.to_owned(),
        free: MOBILITIES.into_iter().map(str::to_owned).zip(zone.blocks.map(Vec::from)).collect(),
        pageblocks: MOBILITIES.into_iter().map(str::to_owned).zip(zone.pageblocks).collect(),
    };
    let state = |state: &MemoryState| StateRecord {
        free_pages: state.free(),
        unusable_pct: state.unusable(),
        zones: state.zones.iter().map(zone).collect(),
        buddyinfo: state.buddyinfo(),
        pagetypeinfo: state.pagetypeinfo(),
    };
    FragmentedRecord {
        asked: made.asked.clone(),
        held_movable: made.held[0],
        held_by_kernel: made.held[1],
        before: state(&made.before),
        after: state(&made.after),
    }
}

/// Names of the mobility groups, in order.
const MOBILITIES: [&str; 3] = ["unmovable", "movable", "reclaimable"];

fn lru_gen(visited: &Visited) -> LruGenRecord {
    let error = visited.answer.err().map(|error| match error {
        CommandError::Invalid => "EINVAL".to_owned(),
        CommandError::Range => "ERANGE".to_owned(),
    });
    LruGenRecord {
        nanos: visited.nanos,
        commands: visited.commands.clone(),
        error,
        text: visited.text.clone(),
    }
}

fn lock(lock: &LockOutcome) -> LockRecord {
    let LockTally { taken, contended, held, waited, longest } = lock.tally;
    LockRecord {
        lock: lock.class.name().to_owned(),
        taken,
        contended,
        held: held / 1000,
        waited: waited / 1000,
        longest: longest / 1000,
        holders: lock.holders.iter().map(|&(name, picos)| (name.to_owned(), picos / 1000)).collect(),
    }
}

fn line(line: &LineOutcome) -> LineRecord {
    let LineOutcome { kind, fetched, took, longest } = *line;
    LineRecord { line: kind.to_owned(), fetched, took: took / 1000, longest: longest / 1000 }
}

fn tree(node: &ProfileNode) -> Tree {
    let share = |work: &machine_sim::ProfileWork| Share {
        name: work.name.clone(),
        count: work.count,
        picos: work.picos,
    };
    Tree {
        name: node.name.clone().into_owned(),
        entered: node.entered,
        total_picos: node.total(),
        self_picos: node.own(),
        asleep_picos: node.away,
        work: node.work.iter().map(share).collect(),
        children: node.children.iter().map(tree).collect(),
    }
}

fn optimum(report: OptimumReport) -> OptimumRecord {
    let OptimumReport { uses, pages, frames, refaults, optimum, young } = report;
    OptimumRecord { uses, pages, frames, refaults, optimum, young }
}

fn bound(report: &BoundReport) -> BoundRecord {
    let level = |level: &BoundLevel| LevelRecord {
        rounds: level.rounds,
        receptions: level.receptions,
        causes: level
            .causes
            .iter()
            .map(|(cause, &CauseCount { deadlines, rounds })| {
                (cause.name().to_owned(), CauseRecord { deadlines, rounds })
            })
            .collect(),
    };
    BoundRecord {
        rounds: report.rounds,
        receptions: report.receptions,
        l1: level(&report.l1),
        l2: level(&report.l2),
        stale: report.stale,
        open_max: report.open_max,
    }
}
