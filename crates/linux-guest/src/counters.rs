//! What the kernel counts.

use crate::report::say;
use crate::sys;
use alloc::string::String;
use alloc::vec::Vec;

/// CPUs that flushed because another asked: a row of `/proc/interrupts`.
const RECEIVED: &str = "nr_tlb_remote_flush_received";

/// Those of `names` that this kernel has, with their values.
pub fn read(names: &[String]) -> Vec<(String, u64)> {
    // Adds up what CPUs have not handed in yet.
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

/// Interrupts of a kind, summed over the CPUs.
fn interrupts(kind: &str) -> Option<u64> {
    let text = sys::read_text("/proc/interrupts").ok()?;
    let line = text.lines().find(|line| line.trim_start().starts_with(kind))?;
    Some(line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()).sum())
}

/// What the disks have done since the machine started, and how long a request took.
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
    say(format_args!("@metric read_micros {}", millis * 1000 / requests.max(1)));
}
