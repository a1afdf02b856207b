//! Descriptions of simulated machines, read from TOML.

mod booted;
mod bytes;
mod changed;
mod check;
mod cost;
mod fail;
mod failures;
mod groups;
mod random;
mod ratio;
mod senpai;
mod size;
mod swap;
mod upkeep;

pub use crate::device::DeviceSpec;
pub use crate::tlb::{Geometry, TlbSpec};
pub use bytes::Bytes;
pub use cost::{CostRow, Costs, Hardware};
pub use fail::FailSpec;
pub use failures::Failures;
pub(crate) use failures::MILLION;
use failures::parse_share;
pub(crate) use failures::parse_time;
pub use senpai::Senpai;
pub use swap::SwapSpec;

use crate::fragment::target::Fragmentation;
use cost::CostFile;
use kernel::GroupSpec;
use mm::frame::Mobility;
use mm::machine::{MemoryRange, ZoneKind};
use mm::units::{MAX_ORDER, NodeId, PAGE_SIZE, PAGEBLOCK_ORDER, Pfn};
use serde::{Deserialize, Deserializer};

/// The presets: name and text.
const PRESETS: &[(&str, &str)] = &[
    ("laptop", include_str!("../../machines/laptop.toml")),
    ("small", include_str!("../../machines/small.toml")),
    ("luf-cxl", include_str!("../../machines/luf-cxl.toml")),
    ("tiers", include_str!("../../machines/tiers.toml")),
    ("colloid", include_str!("../../machines/colloid.toml")),
    ("icelake-96", include_str!("../../machines/icelake-96.toml")),
    ("compact-8", include_str!("../../machines/compact-8.toml")),
    ("numa-4s-2015", include_str!("../../machines/numa-4s-2015.toml")),
    ("uma-1s-2015", include_str!("../../machines/uma-1s-2015.toml")),
];

/// A machine description that cannot be used. Its text is one line that names the key and, if known, the line.
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

/// The zone of a range of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Zone {
    Dma32,
    Normal,
    Movable,
}

/// A range of memory of one node.
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
    /// Its number of CPUs; CPUs are numbered node by node.
    pub cpus: u32,
    memory: Vec<Range>,
    /// Nanoseconds of one dependent read from its own CPUs (or, of a node without CPUs, from the nearest).
    pub latency_ns: f64,
    /// GB (10^9 bytes) per second that one CPU can stream from it.
    pub bandwidth_gbs: f64,
    /// Where these numbers come from.
    pub source: String,
    /// How reads slow down when many CPUs read at once; `None`: they do not.
    pub loaded: Option<Loaded>,
    /// Bytes that the kernel has from boot on, besides `memory`: the allocator manages them, and they never get free.
    #[serde(default)]
    kernels: Bytes,
    /// The page blocks that these are in; `None`: as few unmovable ones as possible, and the rest of the last is free.
    unmovable: Option<KernelsBlocks>,
    /// More of them, whose mobility type is reclaimable.
    reclaimable: Option<KernelsBlocks>,
}

/// Page blocks that the kernel has in part from boot on.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KernelsBlocks {
    /// How many, of 2 MiB.
    pub blocks: u32,
    /// How many free blocks there are in them, by order, below 2 MiB.
    pub free: Vec<u64>,
}

impl KernelsBlocks {
    /// Pages in them that are the kernel's. Below 0 if more are free than there are.
    pub fn kernels(&self) -> i128 {
        let pages = i128::from(self.blocks) * i128::from(PAGEBLOCK_ORDER.frames());
        self.free.iter().enumerate().fold(pages, |left, (order, &free)| left - (i128::from(free) << order))
    }
}

/// How a node's memory slows down when many CPUs read at once.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loaded {
    /// GB (10^9 bytes) per second for all CPUs together.
    pub bandwidth_gbs: f64,
    /// Points of a curve: a share of that bandwidth, from 0 to 1, and the factor by which reads take longer there.
    pub curve: Vec<[f64; 2]>,
    /// Where these numbers come from.
    pub source: String,
}

impl NodeSpec {
    /// Bytes of its memory.
    pub fn memory(&self) -> u64 {
        self.memory.iter().map(|range| range.size.0).sum()
    }

    /// Pages that the kernel has from boot on.
    pub(crate) fn kernels_pages(&self) -> u64 {
        self.kernels.0.div_ceil(PAGE_SIZE)
    }

    /// The page blocks that are told for these, with their mobility type.
    pub(crate) fn kernels_blocks(&self) -> impl Iterator<Item = (Mobility, &KernelsBlocks)> {
        let unmovable = self.unmovable.iter().map(|blocks| (Mobility::Unmovable, blocks));
        unmovable.chain(self.reclaimable.iter().map(|blocks| (Mobility::Reclaimable, blocks)))
    }
}

/// The CPUs.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuSpec {
    /// Clock frequency under load.
    pub ghz: f64,
    /// Address-space numbers (ASIDs) that the kernel uses on each CPU; 0: every switch flushes.
    pub asids: u32,
    /// Whether hardware sets the young bit.
    pub hw_young: bool,
    /// Whether it does so in entries that point to tables, too.
    pub hw_nonleaf_young: bool,
    /// Whether a CPU can make all others drop their translations without an interrupt.
    #[serde(default)]
    pub broadcast_flush: bool,
    /// Where these numbers come from.
    pub source: String,
}

/// Which device holds files, and which holds swap space.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Storage {
    files: String,
    swap: Option<String>,
    #[serde(default)]
    swap_size: Bytes,
    /// Further areas.
    #[serde(default)]
    areas: Vec<SwapSpec>,
    /// How many times as large compressed pages are as what is recorded or drawn.
    #[serde(default = "usual")]
    packed: f64,
}

fn usual() -> f64 {
    1.0
}

#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Distances {
    rows: Vec<Vec<u32>>,
    /// Nanoseconds that a read from another node with CPUs takes longer.
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
    #[serde(default, deserialize_with = "fragment")]
    fragment: Option<Fragmentation>,
    #[serde(default, deserialize_with = "groups::read")]
    group: Vec<GroupSpec>,
}

fn fragment<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Fragmentation>, D::Error> {
    String::deserialize(deserializer)?.parse().map(Some).map_err(serde::de::Error::custom)
}

/// The description of a simulated machine.
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

    /// The description of a preset, as a machine file.
    pub fn preset_text(name: &str) -> Option<&'static str> {
        PRESETS.iter().find(|(preset, _)| *preset == name).map(|(_, text)| *text)
    }

    /// A preset. The error for an unknown name suggests the nearest one.
    pub fn preset(name: &str) -> Result<MachineSpec, SpecError> {
        if let Some(text) = MachineSpec::preset_text(name) {
            return MachineSpec::from_toml(name, text);
        }
        let nearest = Self::presets()
            .max_by(|a, b| strsim::jaro_winkler(a, name).total_cmp(&strsim::jaro_winkler(b, name)));
        let hint = nearest.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
        Err(SpecError::new("machine", format!("there is no preset \"{name}\"{hint}")))
    }

    /// Read a machine file. `name` appears in tables and errors.
    pub fn from_toml(name: &str, text: &str) -> Result<MachineSpec, SpecError> {
        let file: MachineFile = toml::from_str(text).map_err(|error| SpecError::parse(name, error))?;
        let at = |error: SpecError| SpecError::new(name, error.to_string());
        check::check(&file).map_err(at)?;
        let costs = Costs::new(&file.costs, file.cpu.ghz).map_err(at)?;
        let total = file.node.iter().map(NodeSpec::memory).sum();
        let ranges = lay_out(&file.node, total).map_err(at)?;
        let spec = MachineSpec { name: name.into(), file, costs, ranges };
        spec.swap_areas().map_err(at)?;
        Ok(spec)
    }

    /// The same machine with `bytes` of memory, split among the nodes in the same proportion. A node fills its lower
    /// zones first, as a small machine of that kind would.
    pub fn with_memory(mut self, bytes: u64) -> Result<MachineSpec, SpecError> {
        self.ranges = lay_out(&self.file.node, bytes)?;
        Ok(self)
    }

    /// The same machine without swap space.
    pub fn without_swap(mut self) -> MachineSpec {
        self.file.storage.swap = None;
        self.file.storage.areas.clear();
        self
    }

    /// The state of its memory when a program begins; `None`: that of a machine that has just started.
    pub fn fragment(&self) -> Option<&Fragmentation> {
        self.file.fragment.as_ref()
    }

    /// The control groups that a run on it begins with.
    pub fn groups(&self) -> &[GroupSpec] {
        &self.file.group
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

    /// Its CPUs.
    pub fn cpu(&self) -> &CpuSpec {
        &self.file.cpu
    }

    /// Change where hardware sets young bits.
    pub fn set_hw_young(&mut self, leaf: bool, nonleaf: bool) {
        self.file.cpu.hw_young = leaf;
        self.file.cpu.hw_nonleaf_young = nonleaf;
    }

    /// The translation caches.
    pub fn tlb(&self) -> &TlbSpec {
        &self.file.tlb
    }

    /// Its memory, one entry for each zone.
    pub fn ranges(&self) -> &[MemoryRange] {
        &self.ranges
    }

    /// One more than the number of the last frame.
    pub(crate) fn end_pfn(&self) -> usize {
        self.ranges().last().map_or(0, |range| range.start.0 + range.frames) as usize
    }

    /// Bytes of memory, without what the kernel has from boot on.
    pub fn memory(&self) -> u64 {
        let kernels: u64 = self.nodes().iter().map(NodeSpec::kernels_pages).sum();
        (self.ranges.iter().map(|range| u64::from(range.frames)).sum::<u64>() - kernels) * PAGE_SIZE
    }

    /// Its costs.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// The block devices.
    pub fn devices(&self) -> &[DeviceSpec] {
        &self.file.device
    }

    /// Index of the device that holds files.
    pub fn file_device(&self) -> usize {
        self.device(&self.file.storage.files).expect("a checked description names known devices")
    }

    /// Index of the device that holds swap space, and its pages. Swap space is in the device's first blocks. Further
    /// areas are not told of.
    fn swap(&self) -> Option<(usize, u32)> {
        let pages = (self.file.storage.swap_size.0 / PAGE_SIZE) as u32;
        let device = self.file.storage.swap.as_deref()?;
        (pages > 0).then(|| (self.device(device).expect("a checked description names known devices"), pages))
    }

    fn device(&self, name: &str) -> Option<usize> {
        self.file.device.iter().position(|device| device.name == name)
    }

    /// The distance of two nodes (10 = local).
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

    /// A node's abstract distance: that of DRAM if the node has CPUs; else computed from its performance relative to
    /// the first node with CPUs.
    pub(crate) fn memory_distance(&self, node: usize) -> u32 {
        let (nodes, far) = (&self.file.node, &self.file.node[node]);
        let Some(dram) = nodes.iter().find(|near| near.cpus > 0).filter(|_| far.cpus == 0) else {
            return mm::machine::DRAM_DISTANCE;
        };
        // Tenths of a nanosecond, and MB/s.
        let figures =
            |node: &NodeSpec| ((node.latency_ns * 10.0) as u64, (node.bandwidth_gbs * 1000.0) as u64);
        let ((latency, bandwidth), (dram_latency, dram_bandwidth)) = (figures(far), figures(dram));
        mm::tier::distance_of(latency, bandwidth.max(1), dram_latency.max(1), dram_bandwidth)
    }

    /// Picoseconds to stream one cache line from memory of node `to`.
    pub(crate) fn line(&self, to: usize) -> u64 {
        (64_000.0 / self.file.node[to].bandwidth_gbs).round() as u64
    }
}

/// The least memory of a node that has any: less has no room for the pages that one system call holds at once.
const LEAST: u64 = 1 << 20;
/// The most memory of a machine: frame numbers have 32 bits, and shares of nodes are rounded up.
const MOST: u64 = 8 << 40;

fn lay_out(nodes: &[NodeSpec], bytes: u64) -> Result<Vec<MemoryRange>, SpecError> {
    let total: u64 = nodes.iter().map(NodeSpec::memory).sum();
    let smallest = nodes.iter().map(NodeSpec::memory).filter(|&size| size > 0).min().unwrap_or(0);
    if smallest < LEAST {
        return Err(SpecError::new("node.memory", "a node has less than 1M".into()));
    }
    let least = (LEAST as u128 * total as u128).div_ceil(smallest as u128).next_multiple_of(1 << 20) as u64;
    if bytes < least {
        let message =
            format!("{bytes} bytes are too small to run: this machine needs at least {}M", least >> 20);
        return Err(SpecError::new("memory", message));
    }
    if bytes > MOST {
        return Err(SpecError::new("memory", format!("{bytes} bytes are more than 8T")));
    }
    let mut ranges: Vec<MemoryRange> = Vec::new();
    let (mut next, mut before) = (Pfn(0), 0);
    // Frames of all nodes up to the one whose memory ends at `end` in the description.
    let frames_to = |end: u64| (end as u128 * bytes.div_ceil(PAGE_SIZE) as u128 / total as u128) as u32;
    for (id, node) in nodes.iter().enumerate() {
        let mut rest = frames_to(before + node.memory()) - frames_to(before);
        before += node.memory();
        for (i, range) in node.memory.iter().enumerate() {
            let last = i + 1 == node.memory.len();
            let frames = if last { rest } else { rest.min(range.size.0.div_ceil(PAGE_SIZE) as u32) };
            rest -= frames;
            let frames = if i == 0 { frames + node.kernels_pages() as u32 } else { frames };
            let kind = match range.zone {
                Zone::Dma32 => ZoneKind::Dma32,
                Zone::Normal => ZoneKind::Normal,
                Zone::Movable => ZoneKind::Movable,
            };
            if frames > 0 {
                ranges.push(MemoryRange { node: NodeId(id as u8), kind, start: next, frames });
                next = Pfn(next.0 + frames.next_multiple_of(MAX_ORDER.frames()));
            }
        }
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests;
