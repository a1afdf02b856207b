//! One run: a fresh machine, a program, a seed.

use super::{Machine, Program};
use crate::error::{Error, Result};
use crate::human;
use crate::record::{
    Better, BoundRecord, CauseRecord, CostRecord, FragmentedRecord, GroupRecord, LevelRecord, LruGenRecord,
    Measured, OptimumRecord, OracleRecord, RunRecord, StateRecord, WorkDone, ZoneRecord,
};
use crate::replay;
use crate::tree::{Share, Tree};
use machine_sim::{
    BoundLevel, BoundReport, CauseCount, Fragmentation, Fragmented, GroupOutcome, GroupSpec, MemoryState,
    OptimumReport, Outcome, ProfileNode, RunConfig, RunError, Visit, Visited, ZoneState,
};
use mm::knobs::Knob;
use mm::reclaim::CommandError;
use mm::stat::Stat;
use mm::units::PAGE_SIZE;
use std::collections::BTreeMap;

/// What a run checks and observes besides its counters, and how it is disturbed.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Check every load against the last store.
    pub verify: bool,
    /// Count the flushes that any safe policy needs.
    pub bound: bool,
    /// Count the fewest refaults that are possible.
    pub optimum: bool,
    /// Count the fewest pages that compactions must move.
    pub moves: bool,
    /// Compare placement in tiers with the best possible.
    pub placement: bool,
    /// Stop CPUs in the middle of their work, at one in this many steps.
    pub preempt: Option<u32>,
    /// Keep a tree of where CPU time went.
    pub profile_tree: bool,
    /// Looks at the generations of MGLRU.
    pub visits: Vec<Visit>,
}

/// One run.
pub struct Run<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// The program.
    pub program: &'a Program,
    /// Bytes of memory; `None`: all that the machine has.
    pub memory: Option<u64>,
    /// The state of memory at the start; `None`: the machine's own.
    pub fragment: Option<&'a Fragmentation>,
    /// Control groups besides the machine's own.
    pub groups: &'a [GroupSpec],
    /// Knobs that differ from their defaults; later ones win.
    pub knobs: &'a [(Knob, u64)],
    /// The seed.
    pub seed: u64,
    /// What else it does.
    pub options: Options,
}

impl<'a> Run<'a> {
    /// A run on all of the machine's memory, with default knobs, seed 1 and no options.
    pub fn new(machine: &'a Machine, program: &'a Program) -> Run<'a> {
        Run {
            machine,
            program,
            memory: None,
            fragment: None,
            groups: &[],
            knobs: &[],
            seed: 1,
            options: Options::default(),
        }
    }

    /// Runs it for the column `profile`. A failure names `command`, which replays it.
    pub fn replayable(&self, profile: &str, command: String) -> Result<RunRecord> {
        let record = replay::guarded(command.clone(), || self.carry_out(profile));
        record.map_err(|error| match error {
            Error::Failed(why) => Error::Failed(format!("{why}\nreplay: {command}")),
            other => other,
        })
    }

    /// Runs it for the column `profile`.
    pub fn carry_out(&self, profile: &str) -> Result<RunRecord> {
        let mut config = RunConfig::new(self.machine.spec.clone());
        config.memory = self.memory;
        config.fragment = self.fragment.cloned();
        config.groups = self.groups.to_vec();
        config.knobs = self.knobs.to_vec();
        config.seed = self.seed;
        let Options { verify, bound, optimum, moves, placement, preempt, profile_tree, visits } =
            &self.options;
        config.verify = *verify;
        config.bound = *bound;
        config.optimum = *optimum;
        config.moves = *moves;
        config.placement = *placement;
        config.preempt = *preempt;
        config.profile = *profile_tree;
        config.visits = visits.clone();
        let (outcome, mut warnings) = self.program.run(&config)?;
        if !self.program.may_be_oom_killed() {
            self.finished(&outcome)?;
        }
        warnings.extend(self.memory.filter(|_| reclaimed(&outcome) == 0).map(|memory| {
            format!("nothing was reclaimed: what the program uses fits in {}", human::bytes(memory as f64))
        }));
        let covered = self.program.covered(&outcome);
        Ok(RunRecord { covered, ..record(profile, self.seed, &outcome, warnings) })
    }

    /// Refuses a run whose program was killed: it measured something else.
    fn finished(&self, outcome: &Outcome) -> Result<()> {
        let memory = human::bytes(self.memory.unwrap_or_else(|| self.machine.memory()) as f64);
        if let Some(oom) = outcome.oom.first() {
            if let Some(error) = out_of_group(outcome, oom.rss * PAGE_SIZE) {
                return Err(error);
            }
            let swap = if self.machine.spec.swap().is_some() { "" } else { " (this machine has no swap)" };
            return Err(Error::Input(format!(
                "{memory} of memory are too small to run this program: it ran out of memory with {} resident{swap}; give \
                 more with --memory",
                human::bytes((oom.rss * PAGE_SIZE) as f64)
            )));
        }
        match outcome.signals.first() {
            Some(signal) => Err(Error::Failed(format!("the program was ended by a signal: {signal}"))),
            None => Ok(()),
        }
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
    Some(Error::Input(format!(
        "the control group '{}' is too small to run this program: it ran out of memory with {} resident; its {max}",
        group.name,
        human::bytes(rss as f64)
    )))
}

/// Turns an error of the simulator into one of the command.
pub(super) fn explain(error: RunError) -> Error {
    match error {
        RunError::Input(why) => Error::Input(why),
        failed => Error::Failed(failed.to_string()),
    }
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
        lru_gen: outcome.visited.iter().map(lru_gen).collect(),
        fragmented: outcome.fragmented.as_ref().map(fragmented),
        groups: outcome.groups.iter().map(group).collect(),
        warnings,
    }
}

fn group(group: &GroupOutcome) -> GroupRecord {
    let named =
        |values: &[(&str, u64)]| values.iter().map(|&(name, value)| (name.to_owned(), value)).collect();
    let limit = |&(name, value): &(&str, u64)| (name.to_owned(), (value != u64::MAX).then_some(value));
    GroupRecord {
        group: group.name.clone(),
        limits: group.limits.as_ref().map(|limits| limits.iter().map(limit).collect()),
        usage: named(&group.usage),
        stat: named(&group.stat),
        events: named(&group.events),
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

fn tree(node: &ProfileNode) -> Tree {
    let share = |work: &machine_sim::ProfileWork| Share {
        name: work.name.to_owned(),
        count: work.count,
        picos: work.picos,
    };
    Tree {
        name: node.name.to_owned(),
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
