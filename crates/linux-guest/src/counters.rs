//! The kernel's counters.
//!
//! Those of flushes on other CPUs are in `/proc/vmstat` of a kernel for debugging only. Others tell them, too:
//! receptions are a row of `/proc/interrupts`, and each round passes a tracepoint, whose events are counted by the
//! buffer that they are written to. Those of DAMON_RECLAIM are files of its module.

use crate::report::print;
use crate::sys;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Rounds of flushes on other CPUs.
const SENT: &str = "nr_tlb_remote_flush";
/// A CPU's flushes on request of another CPU.
const RECEIVED: &str = "nr_tlb_remote_flush_received";
/// Where the kernel's tracepoints are.
pub const TRACING: &str = "/sys/kernel/tracing";

/// Let the kernel count rounds of flushes: one event each, in buffers that are as small as they can be.
pub fn trace_flushes() {
    // The reason that requests to other CPUs have; the same since Linux 4.1.
    const REMOTE_SEND: &str = "reason == 4";
    let event = format!("{TRACING}/events/tlb/tlb_flush");
    let files = [
        (format!("{TRACING}/buffer_size_kb"), "8"),
        (format!("{event}/filter"), REMOTE_SEND),
        (format!("{event}/enable"), "1"),
    ];
    if let Some(why) = files.iter().find_map(|(file, value)| sys::write_file(file, value).err()) {
        print(format_args!("@note this kernel does not tell rounds of TLB flushes: error {}", why.0));
    }
}

/// Events of all CPUs' buffers, with those that newer ones have replaced.
fn traced(cpus: u32) -> Option<u64> {
    let mut sum = 0;
    for cpu in 0..cpus {
        let text = sys::read_text(&format!("{TRACING}/per_cpu/cpu{cpu}/stats")).ok()?;
        let value =
            |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
        sum += value("entries:")? + value("overrun:")?;
    }
    Some(sum)
}

/// The values of those of `names` that this kernel has, on a machine with this many CPUs.
pub fn read(names: &[String], cpus: u32) -> Vec<(String, u64)> {
    // Folds the CPUs' pending differences into the counters.
    let _ = sys::write_file("/proc/sys/vm/stat_refresh", "1");
    let text = sys::read_text("/proc/vmstat").unwrap_or_default();
    let mut found = Vec::new();
    for name in names {
        let value = value(&text, name).or_else(|| match name.as_str() {
            SENT => traced(cpus),
            RECEIVED => interrupts("TLB:"),
            name => damon(name),
        });
        found.extend(value.map(|value| (name.clone(), value)));
    }
    found
}

fn value(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.find(|(known, _)| *known == name)?.1.parse().ok()
}

/// A counter of DAMON_RECLAIM, which is a file beside its settings.
fn damon(name: &str) -> Option<u64> {
    let counts = ["_regions", "nr_quota_exceeds"].iter().any(|end| name.ends_with(end));
    let file = || sys::read_text(&format!("/sys/module/damon_reclaim/parameters/{name}")).ok();
    counts.then(file)??.trim().parse().ok()
}

/// Interrupts of a kind, summed over all CPUs.
fn interrupts(kind: &str) -> Option<u64> {
    let text = sys::read_text("/proc/interrupts").ok()?;
    let line = text.lines().find(|line| line.trim_start().starts_with(kind))?;
    Some(line.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok()).sum())
}

/// Nanoseconds that kswapd of all nodes have had a CPU since the start of the machine.
pub fn kswapd_nanos() -> Option<u64> {
    // Kernel threads start before all programs.
    const EARLY: u32 = 500;
    let is_kswapd =
        |id: &u32| sys::read_text(&format!("/proc/{id}/comm")).is_ok_and(|name| name.starts_with("kswapd"));
    let time = |id: u32| {
        let text = sys::read_text(&format!("/proc/{id}/schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<u64>().ok()
    };
    let times: Vec<u64> = (1..EARLY).filter(is_kswapd).filter_map(time).collect();
    (!times.is_empty()).then(|| times.iter().sum())
}

/// Reads of disks.
pub struct Reads {
    requests: u64,
    millis: u64,
}

impl Reads {
    /// Those since the start of the machine, without those of the trace's disk: they are none of the program's.
    pub fn of_all_but(trace: Option<&str>) -> Reads {
        let trace = trace.map(|device| device.trim_start_matches("/dev/"));
        let text = sys::read_text("/proc/diskstats").unwrap_or_default();
        let mut reads = Reads { requests: 0, millis: 0 };
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let value = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
            if words.get(2).is_some_and(|name| name.starts_with("vd") && Some(*name) != trace) {
                reads.requests += value(3);
                reads.millis += value(6);
            }
        }
        reads
    }

    /// Report the mean time of a read since `before`.
    pub fn tell_since(&self, before: &Reads) {
        let requests = self.requests - before.requests;
        print(format_args!("@metric read_micros {}", (self.millis - before.millis) * 1000 / requests.max(1)));
    }
}
