use super::*;
use alloc::vec;
use proptest::prelude::*;

/// Memory that begins at `BASE`.
struct Bytes(Vec<u8>);

const BASE: u64 = 0xe0000;

impl PhysicalMemory for Bytes {
    fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
        self.0.get(start..start.checked_add(len)?)
    }
}

fn seal(bytes: &mut [u8], at: usize) {
    bytes[at] = 0;
    bytes[at] = bytes.iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte)).wrapping_neg();
}

/// A table with header and checksum around `body`.
fn sealed(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut table = vec![0; HEADER];
    table[..4].copy_from_slice(signature);
    table[4..8].copy_from_slice(&((HEADER + body.len()) as u32).to_le_bytes());
    table.extend(body);
    seal(&mut table, 9);
    table
}

/// Memory with a root pointer at `BASE`, a root table and these tables.
fn firmware(tables: &[Vec<u8>], extended: bool) -> Bytes {
    let entry = if extended { 8 } else { 4 };
    let mut next = BASE + 36 + (HEADER + tables.len() * entry) as u64;
    let mut list = Vec::new();
    for table in tables {
        list.extend(&next.to_le_bytes()[..entry]);
        next += table.len() as u64;
    }
    let mut root = vec![0; 36];
    root[..8].copy_from_slice(b"RSD PTR ");
    root[15] = if extended { 2 } else { 0 };
    root[16..20].copy_from_slice(&(BASE as u32 + 36).to_le_bytes());
    root[24..32].copy_from_slice(&(BASE + 36).to_le_bytes());
    seal(&mut root[..20], 8);
    seal(&mut root, 32);
    root.extend(sealed(if extended { b"XSDT" } else { b"RSDT" }, &list));
    tables.iter().for_each(|table| root.extend(table));
    Bytes(root)
}

fn madt() -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend([0, 8, 0, 0, 1, 0, 0, 0]);
    body.extend([0, 8, 1, 3, 1, 0, 0, 0]);
    body.extend([0, 8, 2, 4, 0, 0, 0, 0]);
    body.extend([1, 12, 0, 0, 0, 0, 0xc0, 0xfe, 0, 0, 0, 0]);
    body.extend([9, 16, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    sealed(b"APIC", &body)
}

fn srat() -> Vec<u8> {
    let mut body = vec![0; 12];
    body.extend([0, 16, 1, 3, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let mut memory = [0; 40];
    memory[..2].copy_from_slice(&[1, 40]);
    memory[2] = 1;
    memory[8..16].copy_from_slice(&0x10_0000u64.to_le_bytes());
    memory[16..24].copy_from_slice(&0x40_0000u64.to_le_bytes());
    memory[28] = 1;
    body.extend(memory);
    memory[28] = 0;
    body.extend(memory);
    sealed(b"SRAT", &body)
}

fn slit() -> Vec<u8> {
    let mut body = 2u64.to_le_bytes().to_vec();
    body.extend([10, 20, 21, 10]);
    sealed(b"SLIT", &body)
}

fn hmat() -> Vec<u8> {
    let mut record = vec![1, 0, 0, 0];
    record.extend(48u32.to_le_bytes());
    record.extend([0, 0, 0, 0]);
    record.extend(1u32.to_le_bytes());
    record.extend(2u32.to_le_bytes());
    record.extend([0; 4]);
    record.extend(1000u64.to_le_bytes());
    [0u32, 0, 1].iter().for_each(|domain| record.extend(domain.to_le_bytes()));
    [10u16, 30].iter().for_each(|value| record.extend(value.to_le_bytes()));
    let mut body = vec![0; 4];
    body.extend(&record);
    // A cache's latency, and a bandwidth.
    record[8] = 1;
    body.extend(&record);
    (record[8], record[9]) = (0, 3);
    body.extend(&record);
    sealed(b"HMAT", &body)
}

fn mcfg() -> Vec<u8> {
    let mut body = vec![0; 8];
    body.extend(0xb000_0000u64.to_le_bytes());
    body.extend([0, 0, 0, 255, 0, 0, 0, 0]);
    sealed(b"MCFG", &body)
}

#[test]
fn all_tables_are_read() {
    for extended in [false, true] {
        let memory = firmware(&[madt(), srat(), slit(), hmat(), mcfg()], extended);
        let found = Platform::read(&memory, BASE);
        assert_eq!(found.cpus, [0, 3, 256]);
        assert_eq!(found.io_apics, [IoApic { address: 0xfec0_0000, first: 0 }]);
        assert_eq!(found.cpu_domains, [(3, 1)]);
        assert_eq!(found.memory_domains, [(Span::new(0x10_0000, 0x50_0000), 1)]);
        assert_eq!((found.distance(1, 0), found.distance(0, 2)), (Some(21), None));
        let figure = |target, value| Figure { initiator: 0, target, value };
        assert_eq!(found.latencies, [figure(0, 10_000), figure(1, 30_000)]);
        assert_eq!(found.bandwidths, [figure(0, 10_000), figure(1, 30_000)]);
        assert_eq!(found.pci, [PciWindow { address: 0xb000_0000, first_bus: 0, last_bus: 255 }]);
        assert_eq!(found.domains(), [1]);
    }
}

#[test]
fn distance_of_memory_without_cpus_follows_from_its_figures() {
    let figure = |target, value| Figure { initiator: 0, target, value };
    let complete = Platform {
        cpu_domains: vec![(0, 0)],
        memory_domains: vec![(Span::new(0, 4096), 0), (Span::new(4096, 8192), 1)],
        latencies: vec![figure(0, 115_000), figure(1, 255_000)],
        bandwidths: vec![figure(0, 12_000), figure(1, 9_000)],
        ..Platform::default()
    };
    let slow = mm::tier::distance_of(255, 9, 115, 12);
    assert_eq!([0, 1].map(|domain| complete.memory_distance(domain)), [mm::machine::DRAM_DISTANCE, slow]);
    let with_cpus = Platform { cpu_domains: vec![(0, 0), (1, 1)], ..complete.clone() };
    assert_eq!(with_cpus.memory_distance(1), mm::machine::DRAM_DISTANCE);
    let incomplete = Platform { bandwidths: vec![], ..complete };
    assert_eq!(incomplete.memory_distance(1), mm::machine::DRAM_DISTANCE);
}

#[test]
fn a_table_with_a_wrong_checksum_is_ignored() {
    let mut bad = madt();
    bad[40] ^= 1;
    let found = Platform::read(&firmware(&[bad, slit()], true), BASE);
    assert_eq!((found.cpus.len(), found.distances.len()), (0, 4));
    assert_eq!(Platform::read(&firmware(&[madt()], true), BASE + 1), Platform::default());
}

proptest! {
    /// No change of bytes, with the checksums corrected, causes a panic.
    #[test]
    fn broken_tables_do_not_panic(
        which in 0usize..5,
        changes in prop::collection::vec((4usize..200, any::<u8>()), 1..8),
        length in 0usize..300,
    ) {
        let mut table = [madt(), srat(), slit(), hmat(), mcfg()][which].clone();
        for (at, value) in changes {
            let at = at % table.len();
            table[at] = value;
        }
        seal(&mut table, 9);
        let mut memory = firmware(&[table], true);
        let _ = Platform::read(&memory, BASE);
        memory.0.truncate(length);
        let _ = Platform::read(&memory, BASE);
    }
}
