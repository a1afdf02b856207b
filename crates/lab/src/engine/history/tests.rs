//! A watched run against what it counted.

use super::{Historian, MOST_SAMPLES};
use crate::engine::{Machine, Program, RunConfig, SharedTimeline};
use crate::history::History;
use crate::record::RunRecord;
use mm::knobs::Knob;
use mm::policy::PolicyKind;
use std::sync::{Arc, Mutex};

/// A run that swaps and flushes on other CPUs: its history and its record, which is that of a run without a history.
fn watched(knobs: &[(Knob, u64)]) -> (History, RunRecord) {
    let (machine, program) = (Machine::find("laptop").unwrap(), Program::find("zipf:12M:3").unwrap());
    let historian = Arc::new(Mutex::new(Historian::default()));
    let unwatched = RunConfig { memory: Some(8 << 20), knobs: knobs.to_vec(), ..machine.config() };
    let timeline = Some(SharedTimeline(historian.clone()));
    let record = program.measure(&RunConfig { timeline, ..unwatched.clone() }, "classic").unwrap();
    assert_eq!(program.measure(&unwatched, "classic").unwrap(), record, "a history must change nothing");
    let history = historian.lock().unwrap().history();
    (history, record)
}

#[test]
fn a_history_ends_with_what_the_run_counted() {
    let (history, record) = watched(&[]);
    let last = history.samples.last().unwrap();
    let counter = |name: &str| record.counters[name] as u64;
    assert_eq!(last.nanos, record.nanos);
    assert_eq!((last.faults, last.major), (counter("pgfault"), counter("pgmajfault")));
    let flushes = (counter("nr_tlb_remote_flush"), counter("nr_tlb_remote_flush_received"));
    assert_eq!((last.rounds, last.receptions), flushes);
    assert_eq!(last.kswapd as f64, record.metric("cpu_kswapd"));
    assert!(last.kswapd > 0 && last.pressure > 0 && last.pressure < last.nanos, "{last:?}");
    assert_eq!(last.generations, [0; 4], "this policy has no generations");
    let used = history.uses.rows.iter().flat_map(|row| &row.counts).sum::<u64>();
    assert_eq!(used, record.work.accesses);
}

#[test]
fn samples_are_few_and_in_the_order_of_time() {
    let (history, _) = watched(&[(Knob::ReclaimPolicy, PolicyKind::MgLru.value())]);
    let samples = &history.samples;
    assert!((MOST_SAMPLES / 4..=MOST_SAMPLES).contains(&samples.len()), "{} samples", samples.len());
    assert!(samples[0].nanos < 100_000, "the first must be at the beginning: {}", samples[0].nanos);
    assert!(samples.is_sorted_by_key(|sample| sample.nanos));
    let grows = |count: fn(&crate::history::Sample) -> u64| samples.is_sorted_by_key(count);
    assert!(grows(|sample| sample.faults) && grows(|sample| sample.major));
    assert!(grows(|sample| sample.rounds) && grows(|sample| sample.receptions));
    assert!(grows(|sample| sample.pressure) && grows(|sample| sample.kswapd));
    let half = &samples[samples.len() / 2];
    assert!(half.free < 8 << 20 && half.generations.iter().sum::<u64>() > 1 << 20, "{half:?}");
}
