//! What the emulator passes to the kernel (PVH's start info): the memory map, the command line, a file that
//! comes with the image, and the address of ACPI's tables.
//!
//! The memory with this data will be reused, so everything except the file is copied first.

use super::paging;
use alloc::string::String;
use alloc::vec::Vec;
use machine_x86::acpi::PhysicalMemory;
use machine_x86::memory_map::Span;

/// The start info.
pub struct StartInfo {
    /// Ordinary memory.
    pub memory: Vec<Span>,
    /// The command line.
    pub command_line: String,
    /// Address of ACPI's root pointer.
    pub rsdp: u64,
    /// The file that was given as the initial RAM disk.
    pub file: Option<Span>,
}

const MAGIC: u32 = 0x336e_c578;
const ORDINARY: u32 = 1;
const MAX_LINE: usize = 4096;

/// Physical memory below 4 GiB, as the first tables map it.
pub struct LowMemory;

impl PhysicalMemory for LowMemory {
    fn bytes(&self, address: u64, len: usize) -> Option<&[u8]> {
        let end = address.checked_add(len as u64)?;
        // SAFETY: the lowest 4 GiB are mapped; firmware's tables do not change while they are read.
        (address != 0 && end <= device_start())
            .then(|| unsafe { core::slice::from_raw_parts(paging::direct(address) as *const u8, len) })
    }
}

/// Above this address are device registers, which may change when they are read.
fn device_start() -> u64 {
    0xfec0_0000
}

impl StartInfo {
    /// Read the start info at `info`. `None` if there is none.
    pub fn read(info: u64) -> Option<StartInfo> {
        let memory = LowMemory;
        let bytes = memory.bytes(info, 56)?;
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        let long = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        if word(0) != MAGIC || word(4) < 1 {
            return None;
        }
        let map = memory.bytes(long(40), word(48) as usize * 24)?;
        let entry = |entry: &[u8]| {
            let long = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
            let kind = u32::from_le_bytes(entry[16..20].try_into().expect("4 bytes"));
            (kind == ORDINARY).then(|| Span::new(long(0), long(0).saturating_add(long(8))))
        };
        Some(StartInfo {
            memory: map.chunks_exact(24).filter_map(entry).collect(),
            command_line: text(&memory, long(24)),
            rsdp: long(32),
            file: file(&memory, word(12), long(16)),
        })
    }
}

/// The first of `count` files in the list at `list`.
fn file(memory: &LowMemory, count: u32, list: u64) -> Option<Span> {
    let entry = memory.bytes(list, 32).filter(|_| count > 0)?;
    let long = |at: usize| u64::from_le_bytes(entry[at..at + 8].try_into().expect("8 bytes"));
    let file = Span::new(long(0), long(0).saturating_add(long(8)));
    (!file.is_empty()).then_some(file)
}

/// The zero-terminated text at an address.
fn text(memory: &LowMemory, address: u64) -> String {
    let byte = |i| memory.bytes(address + i as u64, 1).map(|bytes| bytes[0]).filter(|&byte| byte != 0);
    let bytes: Vec<u8> = (0..MAX_LINE).map_while(byte).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
