//! ACPI's tables describe the machine: CPUs, interrupt controllers, the nodes of CPUs and memory, and the
//! distances between nodes.
//!
//! Firmware is not trusted: a table with a wrong checksum, length or structure is ignored, and nothing here
//! panics on any input. Physical memory is read through [`PhysicalMemory`], so that tests can build it.
//!
//! Source: ACPI 6.5, chapters 5.2.5 (RSDP), 5.2.12 (MADT), 5.2.16 (SRAT), 5.2.17 (SLIT), 5.2.29 (HMAT); PCI
//! Firmware 3.2, 4.1.2 (MCFG).

use crate::memory_map::Span;
use alloc::vec::Vec;

#[cfg(test)]
mod tests;

/// Readable physical memory.
pub trait PhysicalMemory {
    /// `len` bytes at `address`, if they are memory.
    fn bytes(&self, address: u64, len: usize) -> Option<&[u8]>;
}

/// An interrupt controller for devices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoApic {
    /// Address of its registers.
    pub address: u64,
    /// The first global interrupt that it handles.
    pub first: u32,
}

/// The configuration spaces of a range of PCI buses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PciWindow {
    /// Address of bus 0, whether it is in the range or not.
    pub address: u64,
    /// First bus.
    pub first_bus: u8,
    /// Last bus.
    pub last_bus: u8,
}

/// A latency or bandwidth of `target`'s memory for `initiator`'s CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figure {
    /// Domain of the CPUs.
    pub initiator: u32,
    /// Domain of the memory.
    pub target: u32,
    /// Picoseconds of an access, or MB/s.
    pub value: u64,
}

/// Everything that was found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Platform {
    /// Local APIC ids of the usable CPUs.
    pub cpus: Vec<u32>,
    /// Interrupt controllers for devices.
    pub io_apics: Vec<IoApic>,
    /// PCI's configuration space.
    pub pci: Vec<PciWindow>,
    /// Local APIC ids and proximity domains.
    pub cpu_domains: Vec<(u32, u32)>,
    /// Memory and its proximity domain.
    pub memory_domains: Vec<(Span, u32)>,
    /// Relative distances, row by row; the row's length is the square root. Empty without a SLIT.
    pub distances: Vec<u8>,
    /// Latencies of accesses, or else of reads.
    pub latencies: Vec<Figure>,
    /// Bandwidths of accesses, or else of reads.
    pub bandwidths: Vec<Figure>,
}

const HEADER: usize = 36;
/// The longest table that is read: a broken length must not make the kernel read all memory.
const MAX_TABLE: u32 = 1 << 20;
/// The most tables that are read.
const MAX_TABLES: usize = 256;

impl Platform {
    /// Follow the tables from the root pointer at `rsdp`.
    pub fn read(memory: &impl PhysicalMemory, rsdp: u64) -> Platform {
        let mut platform = Platform::default();
        for address in addresses(memory, rsdp) {
            let Some(table) = table(memory, address) else { continue };
            match &table[..4] {
                b"APIC" => platform.madt(table),
                b"SRAT" => platform.srat(table),
                b"SLIT" => platform.slit(table),
                b"HMAT" => platform.hmat(table),
                b"MCFG" => platform.mcfg(table),
                _ => {}
            }
        }
        platform
    }

    fn madt(&mut self, table: &[u8]) {
        const ENABLED: u32 = 1;
        for (kind, entry) in records(table.get(44..).unwrap_or_default()) {
            match kind {
                0 if u32_at(entry, 4).is_some_and(|flags| flags & ENABLED != 0) => {
                    self.cpus.extend(entry.get(3).map(|&id| id as u32));
                }
                9 if u32_at(entry, 8).is_some_and(|flags| flags & ENABLED != 0) => {
                    self.cpus.extend(u32_at(entry, 4));
                }
                1 => {
                    if let (Some(address), Some(first)) = (u32_at(entry, 4), u32_at(entry, 8)) {
                        self.io_apics.push(IoApic { address: address as u64, first });
                    }
                }
                _ => {}
            }
        }
        let mut seen = Vec::new();
        self.cpus.retain(|id| {
            let new = !seen.contains(id);
            seen.push(*id);
            new
        });
    }

    fn srat(&mut self, table: &[u8]) {
        for (kind, entry) in records(table.get(48..).unwrap_or_default()) {
            match kind {
                0 => self.cpu_domains.extend(local_apic_affinity(entry)),
                1 => self.memory_domains.extend(memory_affinity(entry)),
                2 => self.cpu_domains.extend(x2apic_affinity(entry)),
                _ => {}
            }
        }
    }

    fn slit(&mut self, table: &[u8]) {
        let size =
            u64_at(table, HEADER).and_then(|size| usize::try_from(size).ok()).filter(|&size| size <= 256);
        let matrix = size.and_then(|size| table.get(HEADER + 8..HEADER + 8 + size * size));
        self.distances = matrix.unwrap_or_default().to_vec();
    }

    fn hmat(&mut self, table: &[u8]) {
        let mut rest = table.get(40..).unwrap_or_default();
        while let Some(len) = u32_at(rest, 4) {
            let Some(record) = rest.get(..len as usize).filter(|_| len >= 8) else { return };
            if u16_at(record, 0) == Some(1) {
                self.figures(record);
            }
            rest = &rest[len as usize..];
        }
    }

    /// One record of figures, if it is about memory and not about a memory-side cache.
    fn figures(&mut self, record: &[u8]) {
        const ACCESS_LATENCY: u8 = 0;
        const READ_LATENCY: u8 = 1;
        const ACCESS_BANDWIDTH: u8 = 3;
        const READ_BANDWIDTH: u8 = 4;
        let list = match record.get(8..10) {
            Some(&[hierarchy, _]) if hierarchy & 0xf != 0 => return,
            Some(&[_, ACCESS_LATENCY | READ_LATENCY]) => &mut self.latencies,
            Some(&[_, ACCESS_BANDWIDTH | READ_BANDWIDTH]) => &mut self.bandwidths,
            _ => return,
        };
        list.extend(figures(record).into_iter().flatten());
    }

    /// The abstract distance of a domain's memory. If the domain has CPUs, it is DRAM's; otherwise it follows
    /// from latency and bandwidth in relation to those of the first domain with CPUs and memory. Without
    /// figures it is DRAM's, as in Linux.
    pub fn memory_distance(&self, domain: u32) -> u32 {
        let has_cpus = |domain| self.cpu_domains.iter().any(|&(_, of)| of == domain);
        let own = |list: &[Figure], domain| {
            list.iter().find(|one| one.initiator == domain && one.target == domain).map(|one| one.value)
        };
        let dram = self
            .domains()
            .into_iter()
            .filter(|&domain| has_cpus(domain))
            .find_map(|domain| Some((own(&self.latencies, domain)?, own(&self.bandwidths, domain)?)));
        // For the nearest CPUs.
        let seen =
            |list: &[Figure]| list.iter().filter(|one| one.target == domain).map(|one| one.value).collect();
        let (latencies, bandwidths): (Vec<u64>, Vec<u64>) = (seen(&self.latencies), seen(&self.bandwidths));
        match (dram, latencies.iter().min(), bandwidths.iter().max()) {
            (Some((dram_latency, dram_bandwidth)), Some(&latency), Some(&bandwidth)) if !has_cpus(domain) => {
                mm::tier::distance_of(latency, bandwidth, dram_latency, dram_bandwidth)
            }
            _ => mm::machine::DRAM_DISTANCE,
        }
    }

    fn mcfg(&mut self, table: &[u8]) {
        for entry in table.get(44..).unwrap_or_default().chunks_exact(16) {
            let (Some(address), Some(segment)) = (u64_at(entry, 0), u16_at(entry, 8)) else { continue };
            if segment == 0 {
                self.pci.push(PciWindow { address, first_bus: entry[10], last_bus: entry[11] });
            }
        }
    }

    /// All proximity domains, in order. A node's number is its domain's index.
    pub fn domains(&self) -> Vec<u32> {
        let cpus = self.cpu_domains.iter().map(|&(_, domain)| domain);
        let mut domains: Vec<u32> =
            cpus.chain(self.memory_domains.iter().map(|&(_, domain)| domain)).collect();
        domains.sort_unstable();
        domains.dedup();
        domains
    }

    /// Distance of two domains in SLIT, if there is one.
    pub fn distance(&self, from: u32, to: u32) -> Option<u8> {
        let size = self.distances.len().isqrt();
        let (from, to) = (from as usize, to as usize);
        (from < size && to < size).then(|| self.distances[from * size + to])
    }
}

/// Addresses of all tables: from the extended root table if there is one, else from the old one.
fn addresses(memory: &impl PhysicalMemory, rsdp: u64) -> Vec<u64> {
    let Some(root) = memory.bytes(rsdp, 20).filter(|root| &root[..8] == b"RSD PTR " && sums_to_zero(root))
    else {
        return Vec::new();
    };
    let extended = memory.bytes(rsdp, 36).filter(|root| root[15] >= 2 && sums_to_zero(root));
    let extended = extended.and_then(|root| u64_at(root, 24)).and_then(|address| table(memory, address));
    if let Some(xsdt) = extended.filter(|table| &table[..4] == b"XSDT") {
        return xsdt[HEADER..]
            .chunks_exact(8)
            .filter_map(|entry| u64_at(entry, 0))
            .take(MAX_TABLES)
            .collect();
    }
    let rsdt = u32_at(root, 16).and_then(|address| table(memory, address as u64));
    let entries = rsdt.filter(|table| &table[..4] == b"RSDT").map_or(&[][..], |table| &table[HEADER..]);
    entries.chunks_exact(4).filter_map(|entry| u32_at(entry, 0)).map(u64::from).take(MAX_TABLES).collect()
}

/// The table at an address, if its length and checksum are right.
fn table(memory: &impl PhysicalMemory, address: u64) -> Option<&[u8]> {
    let len =
        u32_at(memory.bytes(address, HEADER)?, 4).filter(|len| (HEADER as u32..=MAX_TABLE).contains(len))?;
    memory.bytes(address, len as usize).filter(|table| sums_to_zero(table))
}

fn sums_to_zero(bytes: &[u8]) -> bool {
    bytes.iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte)) == 0
}

/// Records of kind (1 byte), length (1 byte), and the rest. Ends at the first record that does not fit.
fn records(mut rest: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    core::iter::from_fn(move || {
        let (&kind, &len) = (rest.first()?, rest.get(1)?);
        let record = rest.get(..len as usize).filter(|_| len >= 2)?;
        rest = &rest[len as usize..];
        Some((kind, record))
    })
}

fn local_apic_affinity(entry: &[u8]) -> Option<(u32, u32)> {
    let enabled = u32_at(entry, 4)? & 1 != 0;
    let high = entry.get(9..12)?;
    let domain = u32::from_le_bytes([entry[2], high[0], high[1], high[2]]);
    enabled.then_some((entry[3] as u32, domain))
}

fn x2apic_affinity(entry: &[u8]) -> Option<(u32, u32)> {
    let enabled = u32_at(entry, 12)? & 1 != 0;
    enabled.then_some((u32_at(entry, 8)?, u32_at(entry, 4)?))
}

fn memory_affinity(entry: &[u8]) -> Option<(Span, u32)> {
    let enabled = u32_at(entry, 28)? & 1 != 0;
    let (start, len) = (u64_at(entry, 8)?, u64_at(entry, 16)?);
    let span = Span::new(start, start.checked_add(len)?);
    (enabled && !span.is_empty()).then_some((span, u32_at(entry, 2)?))
}

/// The figures of one HMAT record.
fn figures(record: &[u8]) -> Option<Vec<Figure>> {
    const UNREACHABLE: u16 = 0xffff;
    let initiators = u32_at(record, 12)? as usize;
    let targets = u32_at(record, 16)? as usize;
    let unit = u64_at(record, 24)?;
    let lists = record.get(32..)?;
    let cells = initiators.checked_mul(targets)?;
    let names = initiators.checked_add(targets)?.checked_mul(4)?;
    let values = lists.get(names..names.checked_add(cells.checked_mul(2)?)?)?;
    let name = |i: usize| u32_at(lists, i * 4);
    let value = |(cell, raw): (usize, &[u8])| {
        let raw = u16_at(raw, 0).filter(|&raw| raw != 0 && raw != UNREACHABLE)?;
        Some(Figure {
            initiator: name(cell / targets)?,
            target: name(initiators + cell % targets)?,
            value: unit.checked_mul(raw as u64)?,
        })
    };
    Some(values.chunks_exact(2).enumerate().filter_map(value).collect())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

/// The little-endian number at `at`, if `bytes` has it.
pub fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// As [`u32_at`].
pub fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
