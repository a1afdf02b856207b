//! What a simulated machine is made of, read from TOML.

mod booted;
mod cost;
mod random;

pub use crate::device::DeviceSpec;
pub use crate::tlb::{Geometry, TlbSpec};
pub use cost::{CostRow, Costs, Hardware};

use crate::tlb::MAX_ASIDS;
use cost::CostFile;
use mm::machine::{MAX_CPUS, MemoryRange, ZoneKind};
use mm::units::{MAX_ORDER, NodeId, PAGE_SIZE, Pfn};
use serde::{Deserialize, Deserializer};

/// The presets: name and text.
const PRESETS: &[(&str, &str)] = &[
    ("laptop", include_str!("../../machines/laptop.toml")),
    ("small", include_str!("../../machines/small.toml")),
    ("luf-cxl", include_str!("../../machines/luf-cxl.toml")),
    ("icelake-96", include_str!("../../machines/icelake-96.toml")),
    ("compact-8", include_str!("../../machines/compact-8.toml")),
    ("numa-4s-2015", include_str!("../../machines/numa-4s-2015.toml")),
    ("uma-1s-2015", include_str!("../../machines/uma-1s-2015.toml")),
];

/// A machine description that cannot be used. Its text is one line that names the key, and the line where there is one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{place}: {message}")]
pub struct SpecError {
    place: String,
    message: String,
}

impl SpecError {
    fn new(place: &str, message: String) -> SpecError {
        SpecError { place: place.into(), message }
    }

    fn parse(file: &str, error: toml::de::Error) -> SpecError {
        SpecError::new(file, error.to_string().trim_end().replace('\n', " "))
    }
}

/// A number of bytes: an integer, or text with K, M, G or T (powers of 1024).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bytes(pub u64);

impl Bytes {
    /// Read `8G`, `256M`, `4096`.
    pub fn parse(text: &str) -> Option<Bytes> {
        let text = text.trim();
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let shift = match text[split..].trim() {
            "" | "B" => 0,
            "K" | "KiB" => 10,
            "M" | "MiB" => 20,
            "G" | "GiB" => 30,
            "T" | "TiB" => 40,
            _ => return None,
        };
        text[..split].parse::<u64>().ok()?.checked_mul(1 << shift).map(Bytes)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Either {
            Number(u64),
            Text(String),
        }
        match Either::deserialize(deserializer)? {
            Either::Number(bytes) => Ok(Bytes(bytes)),
            Either::Text(text) => Bytes::parse(&text).ok_or_else(|| {
                serde::de::Error::custom(format!("\"{text}\" is not a size like \"8G\" or 4096"))
            }),
        }
    }
}

/// Kind of a run of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Zone {
    Dma32,
    Normal,
    Movable,
}

/// A run of memory of one node.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Range {
    size: Bytes,
    zone: Zone,
}

/// A NUMA node.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {
    /// Number of CPUs on it; CPUs are numbered node by node.
    pub cpus: u32,
    memory: Vec<Range>,
    /// Nanoseconds of one dependent read from its own CPUs (or, of a node without CPUs, from the nearest).
    pub latency_ns: f64,
    /// GB (10^9 bytes) a second that one CPU can stream from it.
    pub bandwidth_gbs: f64,
    /// Where these come from.
    pub source: String,
}

/// The CPUs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuSpec {
    /// Clock under load.
    pub ghz: f64,
    /// Address-space numbers that the kernel uses on each CPU; 0: every switch flushes.
    pub asids: u32,
    /// Does hardware set the young bit?
    pub hw_young: bool,
    /// Also in entries that point to tables?
    pub hw_nonleaf_young: bool,
    /// Can a CPU make all others drop their translations without interrupting them?
    #[serde(default)]
    pub broadcast_flush: bool,
    /// Where these come from.
    pub source: String,
}

/// Which device serves what.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Storage {
    files: String,
    swap: Option<String>,
    #[serde(default)]
    swap_size: Bytes,
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Distances {
    rows: Vec<Vec<u32>>,
    /// Nanoseconds added to a read from another node that has CPUs.
    hop_ns: f64,
    source: String,
}

/// A machine file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    description: String,
    cpu: CpuSpec,
    tlb: TlbSpec,
    node: Vec<NodeSpec>,
    distance: Option<Distances>,
    device: Vec<DeviceSpec>,
    storage: Storage,
    #[serde(default)]
    costs: CostFile,
}

/// A simulated machine: all that is known of it before it starts.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    name: String,
    file: MachineFile,
    costs: Costs,
    ranges: Vec<MemoryRange>,
}

impl MachineSpec {
    /// Names of the presets.
    pub fn presets() -> impl Iterator<Item = &'static str> {
        PRESETS.iter().map(|(name, _)| *name)
    }

    /// A preset; an unknown name is answered with the nearest one.
    pub fn preset(name: &str) -> Result<MachineSpec, SpecError> {
        if let Some((name, text)) = PRESETS.iter().find(|(preset, _)| *preset == name) {
            return MachineSpec::from_toml(name, text);
        }
        let nearest = Self::presets()
            .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
        let hint = nearest.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
        Err(SpecError::new("machine", format!("there is no preset \"{name}\"{hint}")))
    }

    /// Read a machine file. `name` is used in tables and errors.
    pub fn from_toml(name: &str, text: &str) -> Result<MachineSpec, SpecError> {
        let file: MachineFile = toml::from_str(text).map_err(|error| SpecError::parse(name, error))?;
        let at = |error: SpecError| SpecError::new(name, error.to_string());
        check(&file).map_err(at)?;
        let costs = Costs::new(&file.costs, file.cpu.ghz).map_err(at)?;
        let total = file.node.iter().flat_map(|node| &node.memory).map(|range| range.size.0).sum();
        let ranges = lay_out(&file.node, total).map_err(at)?;
        Ok(MachineSpec { name: name.into(), file, costs, ranges })
    }

    /// The same machine with `bytes` of memory, shared among the nodes as it was. A node keeps its lower zones first,
    /// as a small machine of that kind would.
    pub fn with_memory(mut self, bytes: u64) -> Result<MachineSpec, SpecError> {
        self.ranges = lay_out(&self.file.node, bytes)?;
        Ok(self)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// One line about it.
    pub fn description(&self) -> &str {
        &self.file.description
    }

    /// Number of CPUs.
    pub fn cpus(&self) -> usize {
        self.file.node.iter().map(|node| node.cpus as usize).sum()
    }

    /// The nodes.
    pub fn nodes(&self) -> &[NodeSpec] {
        &self.file.node
    }

    /// The CPUs' kind.
    pub fn cpu(&self) -> &CpuSpec {
        &self.file.cpu
    }

    /// Change what hardware does about young bits.
    pub fn set_hw_young(&mut self, leaf: bool, nonleaf: bool) {
        self.file.cpu.hw_young = leaf;
        self.file.cpu.hw_nonleaf_young = nonleaf;
    }

    /// The translation caches.
    pub fn tlb(&self) -> &TlbSpec {
        &self.file.tlb
    }

    /// Memory, one entry a zone.
    pub fn ranges(&self) -> &[MemoryRange] {
        &self.ranges
    }

    /// Bytes of memory.
    pub fn memory(&self) -> u64 {
        self.ranges.iter().map(|range| range.frames as u64 * PAGE_SIZE).sum()
    }

    /// What everything costs.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The block devices.
    pub fn devices(&self) -> &[DeviceSpec] {
        &self.file.device
    }

    /// Index of the device that holds files.
    pub fn file_device(&self) -> usize {
        self.device(&self.file.storage.files).expect("checked")
    }

    /// Index of the device that holds swap space, and its pages. Swap stands in the device's first blocks.
    pub fn swap(&self) -> Option<(usize, u32)> {
        let pages = (self.file.storage.swap_size.0 / PAGE_SIZE) as u32;
        let device = self.file.storage.swap.as_deref()?;
        (pages > 0).then(|| (self.device(device).expect("checked"), pages))
    }

    fn device(&self, name: &str) -> Option<usize> {
        self.file.device.iter().position(|device| device.name == name)
    }

    /// Distance of two nodes (10 = local).
    pub fn distance(&self, from: usize, to: usize) -> u32 {
        match &self.file.distance {
            Some(distances) => distances.rows[from][to],
            None => 10,
        }
    }

    /// Picoseconds of one dependent read by a CPU of node `from` in memory of node `to`.
    pub(crate) fn latency(&self, from: usize, to: usize) -> u64 {
        let node = &self.file.node[to];
        let hop = match &self.file.distance {
            Some(distances) if from != to && node.cpus > 0 => distances.hop_ns,
            _ => 0.0,
        };
        ((node.latency_ns + hop) * 1000.0).round() as u64
    }

    /// Picoseconds to stream one cache line from memory of node `to`.
    pub(crate) fn line(&self, to: usize) -> u64 {
        (64_000.0 / self.file.node[to].bandwidth_gbs).round() as u64
    }
}

fn check(file: &MachineFile) -> Result<(), SpecError> {
    let fail = |key: &str, message: String| Err(SpecError::new(key, message));
    let cpus: u64 = file.node.iter().map(|node| node.cpus as u64).sum();
    if cpus == 0 || cpus > MAX_CPUS as u64 {
        return fail("node.cpus", format!("the machine has {cpus} CPUs, not 1 to {MAX_CPUS}"));
    }
    if !(0.1..=10.0).contains(&file.cpu.ghz) {
        return fail("cpu.ghz", format!("is {}, not between 0.1 and 10", file.cpu.ghz));
    }
    if file.cpu.asids as usize > MAX_ASIDS {
        return fail("cpu.asids", format!("is {}, the most is {MAX_ASIDS}", file.cpu.asids));
    }
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
        if ways == 0
            || !entries.is_multiple_of(ways)
            || !(entries / ways).is_power_of_two()
            || entries > 1 << 20
        {
            let message =
                format!("{entries} entries in {ways} ways: the number of sets must be a power of two");
            return fail(&format!("tlb.{name}"), message);
        }
    }
    if tlb.l2.ways > crate::tlb::MAX_L2_WAYS {
        let message = format!("{} ways, more than {}: use fewer ways", tlb.l2.ways, crate::tlb::MAX_L2_WAYS);
        return fail("tlb.l2", message);
    }
    if tlb.lines == 0 || tlb.lines > 1 << 24 {
        return fail("tlb.lines", format!("is {}, not between 1 and 2^24", tlb.lines));
    }
    for node in &file.node {
        if !(1.0..=1e6).contains(&node.latency_ns) || !(0.01..=1e5).contains(&node.bandwidth_gbs) {
            return fail("node", "latency_ns must be 1 to 10^6 and bandwidth_gbs 0.01 to 10^5".into());
        }
    }
    let nodes = file.node.len();
    match &file.distance {
        Some(d) if d.rows.len() != nodes || d.rows.iter().any(|row| row.len() != nodes) => {
            return fail("distance.rows", format!("must be {nodes} rows of {nodes} numbers"));
        }
        Some(d) if d.source.is_empty() => return fail("distance.source", "is empty".into()),
        None if nodes > 1 => return fail("distance", format!("is missing, and there are {nodes} nodes")),
        _ => {}
    }
    let wanted = [Some(&file.storage.files), file.storage.swap.as_ref()];
    for name in wanted.into_iter().flatten() {
        if !file.device.iter().any(|device| device.name == *name) {
            return fail("storage", format!("there is no device \"{name}\""));
        }
    }
    if file.storage.swap_size.0 / PAGE_SIZE > u32::MAX as u64 {
        return fail("storage.swap_size", "is more than 16 TiB".into());
    }
    file.device.iter().try_for_each(|device| device.check().map_err(|text| SpecError::new("device", text)))
}

/// Bytes of the largest block; memory comes in multiples of it.
const BLOCK: u64 = PAGE_SIZE << MAX_ORDER.0;
/// Least memory of a node that has any.
const LEAST: u64 = 2 * BLOCK;

fn lay_out(nodes: &[NodeSpec], bytes: u64) -> Result<Vec<MemoryRange>, SpecError> {
    let own = |node: &NodeSpec| node.memory.iter().map(|range| range.size.0).sum::<u64>();
    let total: u64 = nodes.iter().map(own).sum();
    let smallest = nodes.iter().map(own).filter(|&size| size > 0).min().unwrap_or(0);
    if smallest < LEAST {
        return Err(SpecError::new("node.memory", "a node has less than 8M".into()));
    }
    let least = (LEAST as u128 * total as u128).div_ceil(smallest as u128).next_multiple_of(1 << 20) as u64;
    if bytes < least {
        let message =
            format!("{bytes} bytes are too small to run: this machine needs at least {}M", least >> 20);
        return Err(SpecError::new("memory", message));
    }
    if bytes.div_ceil(PAGE_SIZE) >= (u32::MAX - 1024) as u64 {
        return Err(SpecError::new("memory", format!("{bytes} bytes are more than 16T")));
    }
    let mut ranges: Vec<MemoryRange> = Vec::new();
    let mut next = 0;
    for (id, node) in nodes.iter().enumerate() {
        // Rounded to the nearest block.
        let share = own(node) as u128 * bytes as u128 / total as u128;
        let mut rest = (share as u64 + BLOCK / 2) / BLOCK * BLOCK;
        for (i, range) in node.memory.iter().enumerate() {
            let last = i + 1 == node.memory.len();
            let size = if last { rest } else { rest.min(range.size.0.next_multiple_of(BLOCK)) };
            rest -= size;
            let frames = (size / PAGE_SIZE) as u32;
            let kind = match range.zone {
                Zone::Dma32 => ZoneKind::Dma32,
                Zone::Normal => ZoneKind::Normal,
                Zone::Movable => ZoneKind::Movable,
            };
            if frames > 0 {
                ranges.push(MemoryRange { node: NodeId(id as u8), kind, start: Pfn(next), frames });
                next += frames;
            }
        }
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests;
