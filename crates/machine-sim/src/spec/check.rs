//! Checks of a machine's file.
//!
//! Each number has a range: wide enough for every machine that can be bought and for experiments far beyond, and narrow
//! enough that no value computed from several numbers overflows 64 bits, and that the machine's tables fit into this
//! computer's memory. Checks use `contains`, which is false for NaN.

use super::changed::FACTORS;
use super::{DeviceSpec, Geometry, MOST, MachineFile, NodeSpec, SpecError, Zone};
use crate::tlb::{MAX_ASIDS, MAX_L2_WAYS};
use kernel::GroupSpec;
use mm::machine::MAX_CPUS;
use mm::units::{PAGE_SIZE, PAGEBLOCK_ORDER};
use std::ops::RangeInclusive;

/// The most nodes, and the most ranges of memory of one.
const MAX_NODES: usize = 64;
const MAX_RANGES: usize = 8;
/// The most block devices.
const MAX_DEVICES: usize = 64;
/// The most bytes of a device: a file may be as large, and page numbers in files have 36 bits.
const MAX_DEVICE: u64 = 128 << 40;
/// The most entries of a TLB or walk cache of each CPU.
const MAX_ENTRIES: u32 = 1 << 14;
/// The most cache lines of page tables.
const MAX_LINES: u32 = 1 << 18;

fn fail<T>(key: &str, message: String) -> Result<T, SpecError> {
    Err(SpecError::new(key, message))
}

fn within(key: &str, value: f64, range: RangeInclusive<f64>) -> Result<(), SpecError> {
    match range.contains(&value) {
        true => Ok(()),
        false => fail(key, format!("is {value:?}, not between {:?} and {:?}", range.start(), range.end())),
    }
}

/// Check that the machine can be built. The error names what cannot be.
pub(super) fn check(file: &MachineFile) -> Result<(), SpecError> {
    within("cpu.ghz", file.cpu.ghz, 0.1..=10.0)?;
    if file.cpu.asids as usize > MAX_ASIDS {
        return fail("cpu.asids", format!("is {}, the most is {MAX_ASIDS}", file.cpu.asids));
    }
    translation(file)?;
    nodes(file)?;
    distances(file)?;
    devices(file)?;
    GroupSpec::of_run(&[], &file.group).map(drop).or_else(|why| fail("group", why))
}

fn translation(file: &MachineFile) -> Result<(), SpecError> {
    let tlb = &file.tlb;
    let caches = [
        ("l1d_4k", tlb.l1d_4k),
        ("l1d_2m", tlb.l1d_2m),
        ("l1i_4k", tlb.l1i_4k),
        ("l1i_2m", tlb.l1i_2m),
        ("l2", tlb.l2),
        ("pde", tlb.pde),
        ("pdpte", tlb.pdpte),
        ("pml4e", tlb.pml4e),
    ];
    for (name, Geometry { entries, ways }) in caches {
        if ways == 0 || !entries.is_multiple_of(ways) || !(entries / ways).is_power_of_two() {
            let message =
                format!("{entries} entries in {ways} ways: the number of sets must be a power of two");
            return fail(&format!("tlb.{name}"), message);
        }
        if entries > MAX_ENTRIES {
            return fail(&format!("tlb.{name}"), format!("{entries} entries, the most is {MAX_ENTRIES}"));
        }
    }
    if tlb.l2.ways > MAX_L2_WAYS {
        let message = format!("{} ways, more than {MAX_L2_WAYS}: use fewer ways", tlb.l2.ways);
        return fail("tlb.l2", message);
    }
    match tlb.lines {
        1..=MAX_LINES => Ok(()),
        lines => fail("tlb.lines", format!("is {lines}, not between 1 and {MAX_LINES}")),
    }
}

fn nodes(file: &MachineFile) -> Result<(), SpecError> {
    let nodes = file.node.len();
    if nodes > MAX_NODES {
        return fail("node", format!("there are {nodes}, the most is {MAX_NODES}"));
    }
    let cpus: u64 = file.node.iter().map(|node| u64::from(node.cpus)).sum();
    if cpus == 0 || cpus > MAX_CPUS as u64 {
        return fail("node.cpus", format!("the machine has {cpus} CPUs, not 1 to {MAX_CPUS}"));
    }
    let mut bytes = 0u128;
    for node in &file.node {
        within("node.latency_ns", node.latency_ns, 1.0..=1e6)?;
        within("node.bandwidth_gbs", node.bandwidth_gbs, 0.01..=1e5)?;
        if let Some(loaded) = &node.loaded {
            within("node.loaded.bandwidth_gbs", loaded.bandwidth_gbs, 0.01..=1e6)?;
            curve(&loaded.curve)?;
            if loaded.source.is_empty() {
                return fail("node.loaded.source", "is empty".into());
            }
        }
        if node.memory.len() > MAX_RANGES {
            return fail(
                "node.memory",
                format!("has {} ranges, the most is {MAX_RANGES}", node.memory.len()),
            );
        }
        // The kernel's pages are in the first range; kernels use no movable memory.
        let first = node.memory.first().filter(|range| !matches!(range.zone, Zone::Movable));
        if node.kernels.0 > 0 && first.is_none() {
            return fail("node.kernels", "needs memory whose first range is not \"movable\"".into());
        }
        kernels_blocks(node)?;
        bytes += u128::from(node.kernels.0);
        bytes += node.memory.iter().map(|range| u128::from(range.size.0)).sum::<u128>();
    }
    match bytes > u128::from(MOST) {
        true => fail("node.memory", format!("{bytes} bytes in all are more than 8T")),
        false => Ok(()),
    }
}

/// The kernel's pages must fill what is not free in its page blocks.
fn kernels_blocks(node: &NodeSpec) -> Result<(), SpecError> {
    let mut pages = 0;
    for (mobility, told) in node.kernels_blocks() {
        let key = format!("node.{}", format!("{mobility:?}").to_lowercase());
        if told.free.len() > PAGEBLOCK_ORDER.0 as usize {
            return fail(
                &key,
                format!("free: has {} orders, the most is {}", told.free.len(), PAGEBLOCK_ORDER.0),
            );
        }
        if told.kernels() < 0 {
            return fail(&key, format!("free: is more than {} blocks of 2M have", told.blocks));
        }
        pages += told.kernels();
    }
    match pages > i128::from(node.kernels_pages()) {
        true => fail("node.kernels", format!("is less than its page blocks have: {pages} pages")),
        false => Ok(()),
    }
}

/// A curve must go from a share of 0 to one of 1 and never fall, and factors must be at least 1.
fn curve(points: &[[f64; 2]]) -> Result<(), SpecError> {
    const KEY: &str = "node.loaded.curve";
    if !(2..=64).contains(&points.len()) {
        return fail(KEY, format!("has {} points, not 2 to 64", points.len()));
    }
    points.iter().try_for_each(|point| within(KEY, point[1], 1.0..=100.0))?;
    let rises = points.windows(2).all(|two| two[0][0] < two[1][0] && two[0][1] <= two[1][1]);
    if points[0][0] != 0.0 || points[points.len() - 1][0] != 1.0 || !rises {
        return fail(KEY, "must rise from a share of 0.0 to one of 1.0".into());
    }
    Ok(())
}

fn distances(file: &MachineFile) -> Result<(), SpecError> {
    let nodes = file.node.len();
    let Some(distance) = &file.distance else {
        return match nodes > 1 {
            true => fail("distance", format!("is missing, and there are {nodes} nodes")),
            false => Ok(()),
        };
    };
    if distance.rows.len() != nodes || distance.rows.iter().any(|row| row.len() != nodes) {
        return fail("distance.rows", format!("must be {nodes} rows of {nodes} numbers"));
    }
    if let Some(far) = distance.rows.iter().flatten().find(|far| !(10..=255).contains(*far)) {
        return fail("distance.rows", format!("{far} is not between 10 and 255"));
    }
    within("distance.hop_ns", distance.hop_ns, 0.0..=1e6)?;
    match distance.source.is_empty() {
        true => fail("distance.source", "is empty".into()),
        false => Ok(()),
    }
}

fn devices(file: &MachineFile) -> Result<(), SpecError> {
    if file.device.len() > MAX_DEVICES {
        return fail("device", format!("there are {}, the most is {MAX_DEVICES}", file.device.len()));
    }
    file.device.iter().try_for_each(device)?;
    let storage = &file.storage;
    for name in [Some(&storage.files), storage.swap.as_ref()].into_iter().flatten() {
        if !file.device.iter().any(|device| device.name == *name) {
            return fail("storage", format!("there is no device \"{name}\""));
        }
    }
    within("storage.packed", storage.packed, FACTORS)?;
    let swap = storage.swap_size.0;
    if swap / PAGE_SIZE > u64::from(u32::MAX) {
        return fail("storage.swap_size", "is more than 16 TiB".into());
    }
    let room = file.device.iter().find(|device| Some(&device.name) == storage.swap.as_ref());
    match room {
        Some(device) if device.size.0 < swap => fail(
            "storage.swap_size",
            format!("is {swap} bytes, and \"{}\" has {}", device.name, device.size.0),
        ),
        _ => Ok(()),
    }
}

fn device(device: &DeviceSpec) -> Result<(), SpecError> {
    let key = |field: &str| format!("device \"{}\": {field}", device.name);
    if device.size.0 > MAX_DEVICE {
        return fail(&key("size"), "is more than 128T".into());
    }
    let times = [("read_us", device.read_us), ("write_us", device.write_us)];
    let also = device.sequential_us.map(|us| ("sequential_us", us));
    for (field, us) in times.into_iter().chain(also) {
        within(&key(field), us, 1e-3..=1e7)?;
    }
    within(&key("read_mbs"), device.read_mbs, 0.1..=1e6)?;
    within(&key("write_mbs"), device.write_mbs, 0.1..=1e6)?;
    within(&key("jitter_pct"), device.jitter_pct, 0.0..=99.0)?;
    within(&key("late.share_pct"), device.late.share_pct, 0.0..=100.0)?;
    within(&key("late.us"), device.late.us, 0.0..=1e9)?;
    match device.queue_depth {
        1..=65536 => Ok(()),
        depth => fail(&key("queue_depth"), format!("is {depth}, not between 1 and 65536")),
    }
}
