//! The kernel's half of every address space.
//!
//! | root slot | address | content | rights of ring 3 |
//! | --- | --- | --- | --- |
//! | 256, 257 | [`DIRECT`] | all physical memory, devices uncached | none |
//! | 260 | [`ARENA`] | memory of programs that is not measured | read, write |
//! | 261 | [`STACKS`] | kernel stacks, each above a hole | none |
//! | 511 | the image | text and constants; data | execute and read; none |
//!
//! Ring 3 runs the image's own text, so programs and their run-time are ordinary code of this crate; the
//! tables enforce their rights. Tables below these slots are shared by all roots and may grow. The slots
//! never change after [`init`], so each root copies them once, when it is first loaded. Slots 0 to 255 belong
//! to the memory manager.

use super::instructions::write_cr3;
use alloc::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use core::sync::atomic::{AtomicU64, Ordering::*};
use machine_x86::memory_map::Span;

/// Where physical address 0 is mapped.
pub const DIRECT: u64 = 0xffff_8000_0000_0000;
/// Where the user arena is mapped.
pub const ARENA: u64 = 0xffff_8200_0000_0000;
/// Where kernel stacks are mapped.
pub const STACKS: u64 = 0xffff_8280_0000_0000;
/// Physical addresses below this can be mapped at [`DIRECT`].
const DIRECT_BYTES: u64 = 1 << 40;
/// Bytes that the first tables map.
const FIRST_BYTES: u64 = 1 << 32;
/// The virtual address that corresponds to the image's physical address 0.
const IMAGE: u64 = 0xffff_ffff_8000_0000;

const PAGE: u64 = 4096;
const LARGE: u64 = 2 << 20;
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

const PRESENT: u64 = 1;
const WRITE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const UNCACHED: u64 = 3 << 3;
const LARGE_PAGE: u64 = 1 << 7;
const NO_EXECUTE: u64 = 1 << 63;

/// The rights of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// The kernel may read and write.
    Kernel,
    /// As [`Access::Kernel`], uncached.
    Device,
    /// Both rings may read and write.
    User,
    /// Both rings may read.
    UserConstant,
    /// Both rings may read and execute.
    UserCode,
}

impl Access {
    fn bits(self) -> u64 {
        PRESENT
            | match self {
                Access::Kernel => WRITE | NO_EXECUTE,
                Access::Device => WRITE | NO_EXECUTE | UNCACHED,
                Access::User => WRITE | USER | NO_EXECUTE,
                Access::UserConstant => USER | NO_EXECUTE,
                Access::UserCode => USER,
            }
    }
}

/// The physical address of the kernel's own root.
static ROOT: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    static image_text_start: u8;
    static image_rodata_start: u8;
    static image_data_start: u8;
    static image_end: u8;
}

/// The image's end in physical memory.
pub fn image_end_physical() -> u64 {
    (&raw const image_end) as u64 - IMAGE
}

/// The address at which a physical address is mapped.
#[inline]
pub fn direct(physical: u64) -> *mut u8 {
    (DIRECT + physical) as *mut u8
}

/// The physical address of an object in the kernel's heap, in the DMA area, or in the image's data.
///
/// # Panics
/// For any other address, like that of a stack.
#[inline]
pub fn physical<T>(pointer: *const T) -> u64 {
    let address = pointer as u64;
    if address >= IMAGE {
        return address - IMAGE;
    }
    assert!(
        (DIRECT..DIRECT + DIRECT_BYTES).contains(&address),
        "{address:#x} must be in the direct map or the image"
    );
    address - DIRECT
}

/// The physical address of the kernel's own root.
pub fn root() -> u64 {
    ROOT.load(Relaxed)
}

type Table = [AtomicU64; 512];

fn table_at(physical: u64) -> &'static Table {
    // SAFETY: only called with addresses of tables, which are mapped there and accessed only through atomic
    // entries.
    unsafe { &*(direct(physical) as *const Table) }
}

fn new_table() -> u64 {
    let layout = Layout::new::<[u64; 512]>().align_to(PAGE as usize).expect("a page is a valid layout");
    // SAFETY: the layout is not empty.
    let table = unsafe { alloc_zeroed(layout) };
    if table.is_null() {
        handle_alloc_error(layout);
    }
    physical(table)
}

/// The table that an entry points to, created if it is missing. It grants all rights: the last level decides.
fn descend(entry: &AtomicU64) -> u64 {
    let value = entry.load(Acquire);
    if value & PRESENT != 0 {
        assert!(value & LARGE_PAGE == 0, "a large page must not be split");
        return value & ADDRESS;
    }
    let table = new_table();
    entry.store(table | PRESENT | WRITE | USER, Release);
    table
}

/// Map `len` bytes from `physical` at `address`, in large pages where both are aligned. Existing mappings
/// stay.
fn map(address: u64, physical: u64, len: u64, access: Access) {
    let bits = access.bits();
    let mut done = 0;
    while done < len {
        let (at, from) = (address + done, physical + done);
        let index = |level: u32| (at >> (12 + 9 * level)) as usize & 511;
        let upper = descend(&table_at(root())[index(3)]);
        let middle = &table_at(descend(&table_at(upper)[index(2)]))[index(1)];
        let whole = (at | from).is_multiple_of(LARGE) && len - done >= LARGE;
        let old = middle.load(Acquire);
        if old & LARGE_PAGE != 0 || (whole && old & PRESENT == 0) {
            if old & LARGE_PAGE == 0 {
                middle.store(from | bits | LARGE_PAGE, Release);
            }
            done = (at | (LARGE - 1)) + 1 - address;
            continue;
        }
        let entry = &table_at(descend(middle))[index(0)];
        if entry.load(Acquire) & PRESENT == 0 {
            entry.store(from | bits, Release);
        }
        done += PAGE;
    }
}

/// Create the kernel's root and load it. `memory` is all memory; other addresses belong to devices. Called
/// once, on the first CPU.
pub fn init(memory: &[Span]) {
    ROOT.store(new_table(), Relaxed);
    let top = memory.iter().map(|span| span.end).max().unwrap_or(0).max(FIRST_BYTES).next_multiple_of(LARGE);
    let is_memory = |at: u64| {
        at < (1 << 20) || memory.iter().any(|span| !span.intersection(Span::new(at, at + LARGE)).is_empty())
    };
    for at in (0..top).step_by(LARGE as usize) {
        map(DIRECT + at, at, LARGE, if is_memory(at) { Access::Kernel } else { Access::Device });
    }
    for slot in [DIRECT, DIRECT + (1 << 39), ARENA, STACKS] {
        descend(&table_at(root())[(slot >> 39) as usize & 511]);
    }
    let [text, rodata, data, end] = [
        (&raw const image_text_start) as u64,
        (&raw const image_rodata_start) as u64,
        (&raw const image_data_start) as u64,
        (&raw const image_end) as u64,
    ];
    map(text, text - IMAGE, rodata - text, Access::UserCode);
    map(rodata, rodata - IMAGE, data - rodata, Access::UserConstant);
    map(data, data - IMAGE, end - data, Access::Kernel);
    load();
}

/// Load the kernel's own root on this CPU.
pub fn load() {
    // SAFETY: it maps everything that the kernel uses, at its current addresses.
    unsafe { write_cr3(root()) };
}

/// Map `len` bytes of device registers at `physical` for [`direct`]. Called by one task at a time.
pub fn map_device(physical: u64, len: u64) {
    let (start, end) = (physical & !(LARGE - 1), (physical + len).next_multiple_of(LARGE));
    assert!(end <= DIRECT_BYTES, "the device at {physical:#x} must be in the direct map");
    map(DIRECT + start, start, end - start, Access::Device);
}

/// Map physical memory at `address`, in the area of the arena or of the stacks. Called by one task at a time.
pub fn map_pages(address: u64, memory: Span, access: Access) {
    assert!((ARENA..STACKS + (1 << 39)).contains(&address));
    map(address, memory.start, memory.len(), access);
}

/// Remap one page in the area of stacks to another frame without a flush, for a test of stale translations.
pub fn replace(address: u64, physical: u64) {
    assert!((STACKS..STACKS + (1 << 39)).contains(&address));
    let index = |level: u32| (address >> (12 + 9 * level)) as usize & 511;
    let table = (1..4).rev().fold(root(), |table, level| descend(&table_at(table)[index(level)]));
    table_at(table)[index(0)].store(physical | Access::Kernel.bits(), Release);
}

/// Copy the kernel's half to a program's root, unless it has it.
pub fn copy_kernel_half(root_of_program: u64) {
    let (from, to) = (table_at(root()), table_at(root_of_program));
    if to[511].load(Acquire) == 0 {
        for slot in 256..512 {
            to[slot].store(from[slot].load(Relaxed), Release);
        }
    }
}
