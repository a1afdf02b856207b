//! Which probe measures which quantities, and how.

use super::base::Base;
use super::quantity::{Estimate, OnBase, Quantity, Row};
use super::rounds::{Round, Start};
use crate::statistics::median::median;
use probe::system::System;
use probe::{Clock, Compression, Disk, Kernel, Line, Memory, Shootdown, Switching, Translation};
use std::io;
use std::path::Path;

/// The quantity that [`deliver`] is computed from.
pub const FLUSH: &str = "flush on another CPU";

/// Quantities that are measured together.
pub struct Group {
    /// The quantities, in the order of a round's values.
    pub quantities: Vec<Quantity>,
    /// How much time it gets, compared with others.
    pub share: u32,
    /// Sets its probe up.
    pub start: Start,
}

impl Group {
    fn new(
        share: u32,
        quantities: impl Into<Vec<Quantity>>,
        start: impl FnOnce() -> io::Result<Round> + 'static,
    ) -> Group {
        Group { quantities: quantities.into(), share, start: Box::new(start) }
    }

    /// Quantities that this machine has not, for this reason.
    fn impossible(quantities: impl Into<Vec<Quantity>>, why: &'static str) -> Group {
        Group::new(1, quantities, move || Err(io::Error::other(why)))
    }
}

/// Paths through the kernel: what they are, Linux 6.12's instructions (`costs.toml` says how they were counted), and
/// how they are timed.
const PATHS: [(&str, f64, &str); 6] = [
    ("system call", 300.0, "getpid, 1000 calls"),
    (
        "fault on zeroes",
        1449.0,
        "first loads of 128 anonymous pages without THP, which map the page of zeroes",
    ),
    (
        "anonymous fault",
        3061.0,
        "first stores to 128 anonymous pages without THP, less clearing the same pages",
    ),
    ("file fault, a page", 538.0, "first loads of 128 pages of a memfd, with what each fault maps around"),
    ("mprotect, a page", 145.0, "mprotect of 128 written pages, less that of one"),
    ("munmap, a page", 1042.0, "munmap of 128 written pages, less that of one"),
];

/// What the system says.
pub fn read(system: &System, base: &Base) -> Vec<Row> {
    let [cpus, memory, lines] = [
        Quantity::new("CPUs", "", "node.0.cpus", "CPUs that are online"),
        Quantity::new("memory", "bytes", "node.0.memory", "memory that the kernel manages (/proc/zoneinfo)"),
        Quantity::new("lines of page tables", "", "tlb.lines", "a quarter of the second-level cache (/sys)"),
    ];
    let told = |value: f64, why: &str| match value > 0.0 {
        true => Ok(Estimate { median: value, interval: None, rounds: 0 }),
        false => Err(why.to_owned()),
    };
    let one_node = system.nodes.len() == 1 && base.nodes() == 1;
    let of_node = |value: f64| match one_node {
        true => told(value, "the system does not say it"),
        false => Err("it or the base has several nodes".to_owned()),
    };
    let count: usize = system.nodes.iter().map(Vec::len).sum();
    let kept = system.second_cache.unwrap_or(0) / 4 / 64;
    vec![
        Row::new(cpus, of_node(count as f64)),
        Row::new(memory, of_node(system.memory.iter().sum::<u64>() as f64)),
        Row::new(lines, told(kept as f64, "the system does not say how large the cache is")),
    ]
}

/// All groups. `cpus`: the CPU of this thread, and the others.
pub fn all(system: &System, cpus: (usize, &[usize]), base: &Base, disk: Option<&Path>) -> Vec<Group> {
    let (own, others) = cpus;
    let mut groups = vec![kernel(), memory(), translation(system), shootdown(others)];
    groups.extend(lines(system, own, others));
    groups.extend([switching(own), compression()]);
    groups.extend(disk.map(|folder| storage(folder, base.file_device())));
    groups
}

/// How long an interrupt takes to arrive.
pub fn deliver() -> Quantity {
    let method = "a flush on another CPU, less ipi_send, ipi_target, ipi_receive and ipi_ack of this machine";
    Quantity::new("interrupt delivery", "ns", "costs.hardware.ipi_deliver", method)
}

/// The cost of hardware with this name.
fn hardware(what: &'static str, name: &str, method: &'static str) -> Quantity {
    Quantity::new(what, "ns", format!("costs.hardware.{name}"), method)
}

/// The cost of work with this name.
fn work(what: &'static str, name: &str, method: &'static str) -> Quantity {
    Quantity::new(what, "ns", format!("costs.work.{name}"), method)
}

fn kernel() -> Group {
    let ghz = Quantity::new(
        "clock under load",
        "GHz",
        "cpu.ghz",
        "300,000 additions, each of which needs the last",
    );
    let path = |(what, insns, method)| {
        Quantity::new(what, "ns", "costs.kernel_ipc", method).part(OnBase::Instructions(insns))
    };
    let [_, rest @ ..] = PATHS;
    let call = work(PATHS[0].0, "syscall", PATHS[0].2);
    let ipc = Quantity::new(
        "instructions a cycle",
        "",
        "costs.kernel_ipc",
        "median over system call, three faults, mprotect and munmap: instructions counted of Linux 6.12, by the time here",
    );
    let quantities = [ghz, call].into_iter().chain(rest.map(path)).chain([ipc]);
    Group::new(3, quantities.collect::<Vec<_>>(), || {
        let (mut clock, mut kernel) = (Clock::new().ok(), Kernel::new()?);
        Ok(Box::new(move || {
            let ghz = clock.as_mut().map_or(f64::NAN, Clock::round);
            let times = kernel.round()?;
            let times =
                [times.call, times.zero_fault, times.fault, times.file_fault, times.protect, times.unmap];
            let rates: Vec<f64> = PATHS.iter().zip(times).map(|(path, time)| path.1 / (time * ghz)).collect();
            Ok([ghz].into_iter().chain(times).chain([median(&rates)]).collect())
        }))
    })
}

fn memory() -> Group {
    let copy = "copying a large page to another page by page, both in no cache";
    let quantities = [
        Quantity::new(
            "dependent read",
            "ns",
            "node.0.latency_ns",
            "1024 loads, each of which needs the last, of evicted lines in large pages",
        ),
        Quantity::new(
            "reading in a row",
            "GB/s",
            "node.0.bandwidth_gbs",
            "2 MiB of evicted lines in a large page",
        ),
        work("copy of a page", "copy_page", copy),
        work("copy for a program", "copy_user", copy),
        work("clearing a page", "zero_page", "clearing a large page by pages that are in no cache"),
    ];
    Group::new(2, quantities, || {
        let mut memory = Memory::new()?;
        Ok(Box::new(move || {
            let times = memory.round();
            Ok(vec![times.latency, times.stream, times.copy, times.copy, times.clear])
        }))
    })
}

fn translation(system: &System) -> Group {
    let level = |what, key| {
        let method = "chain through a line of each of 16 to 12,288 pages, less one through as many lines of a large page: \
                      the last number of pages before the curve rises. Ways: the nearest to the base's that fit";
        Quantity::new(what, "entries", key, method)
    };
    let quantities = [
        level("TLB, first level", "tlb.l1d_4k.entries"),
        level("TLB, second level", "tlb.l2.entries"),
        hardware(
            "second-level hit",
            "l2_tlb_hit",
            "the same chains, at 2 to 4 times the first level's pages",
        ),
        hardware(
            "walk step, cached",
            "walk_step_hit",
            "the same chains, at 2 to 4 times the second level's pages",
        ),
        hardware(
            "walk step, not cached",
            "walk_step_memory",
            "loads of a range whose page tables are twice the second-level cache, less loads of few pages, less \
             walk_step_hit",
        ),
    ];
    let cache = system.second_cache.unwrap_or(0) as usize;
    Group::new(6, quantities, move || {
        let ghz = Clock::new()?.round();
        let mut translation = Translation::new(ghz, cache)?;
        Ok(Box::new(move || {
            let times = translation.round();
            Ok(vec![times.first, times.second, times.second_hit, times.walk, times.far_step])
        }))
    })
}

fn shootdown(others: &[usize]) -> Group {
    let flush = hardware(
        FLUSH,
        "ipi_deliver",
        "mprotect of a page that a thread on another CPU reads all the time, less the same without the thread",
    );
    let further = hardware(
        "flush, each further CPU",
        "ipi_target",
        "the same with 1, 2, 4 ... threads: the slope of the line through the times",
    );
    const PARTS: &[&str] = &["ipi_send", "ipi_target", "ipi_deliver", "ipi_receive", "ipi_ack"];
    let flush = flush.part(OnBase::Costs(PARTS));
    if others.is_empty() {
        return Group::impossible([flush, further], "one CPU");
    }
    let two = others.len() == 1;
    let others = others.to_vec();
    let quantities = if two { vec![flush] } else { vec![flush, further] };
    Group::new(2, quantities, move || {
        let mut shootdown = Shootdown::new(&others)?;
        Ok(Box::new(move || Ok(shootdown.round()?.to_vec())))
    })
}

/// Cache lines within a node and between nodes.
fn lines(system: &System, own: usize, others: &[usize]) -> [Group; 2] {
    let method =
        "a word that two CPUs change by turns, by compare-and-exchange: half of the way there and back";
    let places =
        [("cache line, same node", "line_socket", true), ("cache line, other node", "line_remote", false)];
    places.map(|(what, name, same)| {
        let quantity = [hardware(what, name, method)];
        // The highest number is seldom the other thread of the same core.
        let far = others.iter().copied().filter(|&other| system.share_node(own, other) == same);
        match far.min_by_key(|&other| (system.share_core(own, other), other)) {
            None if same => Group::impossible(quantity, "one CPU on this node"),
            None => Group::impossible(quantity, "one node"),
            Some(other) => Group::new(1, quantity, move || {
                let mut line = Line::new(other)?;
                Ok(Box::new(move || Ok(vec![line.round()?])))
            }),
        }
    })
}

fn switching(own: usize) -> Group {
    let method = "two threads of one CPU pass a byte through pipes: half of the way there and back, less the same calls by \
                  one thread";
    Group::new(1, [hardware("context switch", "context_switch", method)], move || {
        let mut switching = Switching::new(own)?;
        Ok(Box::new(move || Ok(vec![switching.round()?])))
    })
}

fn compression() -> Group {
    let lz4 = "lz4_flex, safe Rust (not the kernel's C); 16 pages of which 31 % do not get smaller";
    let unlz4 = "lz4_flex, safe Rust (not the kernel's C); pages that get smaller, to 26 to 43 %";
    let zstd = "zstd 1.5, level 3; 16 pages of which 31 % do not get smaller";
    let unzstd = "zstd 1.5; pages that get smaller, to 20 to 34 %";
    let quantities = [
        work("lz4, a page", "compress_lz4", lz4),
        work("lz4 back, a page", "decompress_lz4", unlz4),
        work("zstd, a page", "compress_zstd", zstd),
        work("zstd back, a page", "decompress_zstd", unzstd),
    ];
    Group::new(2, quantities, || {
        let mut compression = Compression::new()?;
        Ok(Box::new(move || {
            let times = compression.round()?;
            Ok(vec![times.lz4, times.unlz4, times.zstd, times.unzstd])
        }))
    })
}

fn storage(folder: &Path, device: usize) -> Group {
    let of =
        |what, unit, name: &str, method| Quantity::new(what, unit, format!("device.{device}.{name}"), method);
    let quantities = [
        of(
            "disk: read of 4 KiB",
            "us",
            "read_us",
            "direct reads at random places of a scratch file of 64 MiB",
        ),
        of(
            "disk: write of 4 KiB",
            "us",
            "write_us",
            "direct writes at random places of a scratch file of 64 MiB",
        ),
        of("disk: reading", "MB/s", "read_mbs", "direct reads of 1 MiB, one at a time"),
        of("disk: writing", "MB/s", "write_mbs", "direct writes of 1 MiB, one at a time"),
    ];
    let folder = folder.to_owned();
    Group::new(3, quantities, move || {
        let mut disk = Disk::new(&folder)?;
        Ok(Box::new(move || {
            let times = disk.round()?;
            Ok(vec![times.read, times.write, times.read_rate, times.write_rate])
        }))
    })
}
