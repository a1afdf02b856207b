//! What the emulator passes to the kernel (PVH's start info): the memory map, the command line, a file that
//! comes with the image, and the address of ACPI's tables.
//!
//! The memory with this data will be reused, so everything except the file is copied first.

use super::paging;
use alloc::string::String;
use alloc::vec::Vec;
use machine_x86::acpi::{PhysicalMemory, u32_at, u64_at};
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
        (address != 0 && end <= DEVICE_START)
            .then(|| unsafe { core::slice::from_raw_parts(paging::direct(address) as *const u8, len) })
    }
}

/// Above this address are device registers, which may change when they are read.
const DEVICE_START: u64 = 0xfec0_0000;

impl StartInfo {
    /// Read the start info at `info`. `None` if there is none.
    pub fn read(info: u64) -> Option<StartInfo> {
        let memory = LowMemory;
        let bytes = memory.bytes(info, 56)?;
        if u32_at(bytes, 0)? != MAGIC || u32_at(bytes, 4)? < 1 {
            return None;
        }
        let map = memory.bytes(u64_at(bytes, 40)?, u32_at(bytes, 48)? as usize * 24)?;
        let ordinary = |entry: &&[u8]| u32_at(entry, 16) == Some(ORDINARY);
        Some(StartInfo {
            memory: map.chunks_exact(24).filter(ordinary).filter_map(span).collect(),
            command_line: text(&memory, u64_at(bytes, 24)?),
            rsdp: u64_at(bytes, 32)?,
            file: file(&memory, u32_at(bytes, 12)?, u64_at(bytes, 16)?),
        })
    }
}

/// The memory that an entry of a list describes, by address and length.
fn span(entry: &[u8]) -> Option<Span> {
    let start = u64_at(entry, 0)?;
    Some(Span::new(start, start.saturating_add(u64_at(entry, 8)?)))
}

/// The first of `count` files in the list at `list`.
fn file(memory: &LowMemory, count: u32, list: u64) -> Option<Span> {
    let entry = memory.bytes(list, 32).filter(|_| count > 0)?;
    span(entry).filter(|file| !file.is_empty())
}

/// The zero-terminated text at an address.
fn text(memory: &LowMemory, address: u64) -> String {
    let byte = |i| memory.bytes(address + i as u64, 1).map(|bytes| bytes[0]).filter(|&byte| byte != 0);
    let bytes: Vec<u8> = (0..MAX_LINE).map_while(byte).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
