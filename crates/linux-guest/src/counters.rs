//! The kernel's counters.

use crate::report::print;
use crate::sys;
use alloc::string::String;
use alloc::vec::Vec;

/// A CPU's flushes on request of another CPU: a row of `/proc/interrupts`.
const RECEIVED: &str = "nr_tlb_remote_flush_received";

/// The values of those of `names` that this kernel has.
pub fn read(names: &[String]) -> Vec<(String, u64)> {
    // Folds the CPUs' pending differences into the counters.
    let _ = sys::write_file("/proc/sys/vm/stat_refresh", "1");
    let text = sys::read_text("/proc/vmstat").unwrap_or_default();
    let mut found = Vec::new();
    for name in names {
        let value = if name == RECEIVED { interrupts("TLB:") } else { value(&text, name) };
        found.extend(value.map(|value| (name.clone(), value)));
    }
    found
}

fn value(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(known, _)| *known == name)?.1.parse().ok()
}

/// Interrupts of a kind, summed over all CPUs.
fn interrupts(kind: &str) -> Option<u64> {
    let text = sys::read_text("/proc/interrupts").ok()?;
    let line = text.lines().find(|line| line.trim_start().starts_with(kind))?;
    Some(line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()).sum())
}

/// Report the disks' requests since the start of the machine, and their mean latency.
pub fn devices() {
    let text = sys::read_text("/proc/diskstats").unwrap_or_default();
    let (mut requests, mut millis) = (0u64, 0u64);
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let value = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        if words.get(2).is_some_and(|name| name.starts_with("vd")) {
            requests += value(3);
            millis += value(6);
        }
    }
    print(format_args!("@metric read_micros {}", millis * 1000 / requests.max(1)));
}
