//! The guest's account as the record of a run, so that tables and JSON need not know where a run took place.

use super::guest::Guest;
use super::protocol::{Found, Report};
use crate::error::{Error, Result};
use crate::human;
use crate::record::{Better, Measured, RunRecord, WorkDone};
use mm::stat::Stat;

/// What a reader of the run time must know.
const REAL_TIME: &str = "run_time is by the guest's clock: QEMU's emulation, not a computer's speed";
/// The same, where time is the count of instructions.
const COUNTED_TIME: &str =
    "run_time is by the guest's clock, which counts a nanosecond for each instruction (--icount)";

/// The record of a program's run.
///
/// # Errors
/// The guest has left out something that belongs to a run, or ran on another machine than it was given.
pub fn record(report: &Report, guest: &Guest, profile: &str) -> Result<RunRecord> {
    let left_out = |what: &str| Error::Failed(format!("the guest ended without saying '{what}'"));
    let found = report.machine.ok_or_else(|| left_out("@machine"))?;
    let done = report.done.ok_or_else(|| left_out("@done"))?;
    let oracle = report.check.ok_or_else(|| left_out("@check"))?;
    if let Some(stat) = Stat::ALL.iter().find(|stat| !report.counters.contains_key(stat.name())) {
        return Err(left_out(&format!("@counter {}", stat.name())));
    }
    as_ordered(found, guest)?;
    let measured = |(name, value): &(String, u64)| Measured {
        name: name.clone(),
        value: *value as f64,
        unit: if name.ends_with("_pages") { "pages" } else { "" }.to_owned(),
        better: Better::Lower,
    };
    Ok(RunRecord {
        covered: Default::default(),
        profile: profile.to_owned(),
        seed: guest.seed,
        nanos: done.nanos,
        work: WorkDone { accesses: done.accesses, progress: done.progress, tasks: done.tasks },
        counters: report.counters.clone(),
        metrics: report.metrics.iter().map(measured).collect(),
        costs: Default::default(),
        oracle,
        bound: None,
        optimum: None,
        profile_tree: None,
        task_time: None,
        locks: Vec::new(),
        lines: Vec::new(),
        lru_gen: Vec::new(),
        fragmented: None,
        groups: report.groups.clone(),
        proc_files: Default::default(),
        warnings: [if guest.icount { COUNTED_TIME } else { REAL_TIME }.to_owned()]
            .into_iter()
            .chain(report.notes.iter().cloned())
            .collect(),
    })
}

/// Whether the guest found the machine that it was given.
pub fn as_ordered(found: Found, guest: &Guest) -> Result<()> {
    let shape = guest.shape;
    for (what, found, given) in [
        ("CPUs", found.cpus, u64::from(shape.cpus)),
        ("nodes", found.nodes, u64::from(shape.count())),
        ("bytes of memory", found.memory, shape.memory()),
    ] {
        if found != given {
            return Err(Error::Failed(format!(
                "the guest runs with {} {what} and was given {}",
                human::grouped(found),
                human::grouped(given)
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::protocol::Done;
    use super::super::shape::Second;
    use super::*;
    use crate::record::OracleRecord;

    pub(in super::super) fn guest() -> Guest {
        super::super::guest::tests::guest(4, Second::Missing)
    }

    fn report() -> Report {
        Report {
            machine: Some(Found { cpus: 4, nodes: 1, memory: 32 << 20 }),
            counters: Stat::ALL.iter().map(|stat| (stat.name().to_owned(), 3)).collect(),
            metrics: vec![("disk_read_pages".into(), 9)],
            notes: vec!["3 calls failed".into()],
            done: Some(Done { nanos: 5, accesses: 6, progress: 7, tasks: 8 }),
            check: Some(OracleRecord { checked: 9, violations: 0 }),
            ..Report::default()
        }
    }

    #[test]
    fn everything_that_was_said_is_in_the_record() {
        let record = record(&report(), &guest(), "lazy").unwrap();
        assert_eq!((record.profile.as_str(), record.seed, record.nanos), ("lazy", 7, 5));
        assert_eq!(record.work, WorkDone { accesses: 6, progress: 7, tasks: 8 });
        assert_eq!((record.counters["pgfault"], record.oracle.checked), (3, 9));
        assert_eq!((record.metrics[0].unit.as_str(), record.metrics[0].value), ("pages", 9.0));
        assert!(record.warnings[0].contains("guest's clock"));
        assert_eq!(record.warnings[1..], ["3 calls failed"]);
    }

    #[test]
    fn what_is_left_out_or_other_than_ordered_is_a_failure() {
        type Spoil = fn(&mut Report);
        let cases: [(Spoil, &str); 6] = [
            (|report| report.machine = None, "'@machine'"),
            (|report| report.done = None, "'@done'"),
            (|report| report.check = None, "'@check'"),
            (|report| _ = report.counters.remove("pgfault"), "'@counter pgfault'"),
            (|report| report.machine.as_mut().unwrap().cpus = 1, "1 CPUs and was given 4"),
            (
                |report| report.machine.as_mut().unwrap().memory -= 4096,
                "bytes of memory and was given 33,554,432",
            ),
        ];
        for (spoil, expected) in cases {
            let mut spoilt = report();
            spoil(&mut spoilt);
            let error = record(&spoilt, &guest(), "classic").unwrap_err();
            assert!(error.to_string().contains(expected) && error.exit_code() == 1, "{error}");
        }
    }
}
