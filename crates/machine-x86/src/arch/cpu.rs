//! Each CPU's own data: segments, IST stacks, and a record that `gs` points to in ring 0.

use super::instructions::{out8, write_msr};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use mm::units::{CpuId, NodeId};
use spin::Once;

/// The most CPUs; others are not started.
pub use mm::machine::MAX_CPUS;
// Local APIC ids of this kind have 8 bits, and one value means "all".
const _: () = assert!(MAX_CPUS < 256);

/// Selectors, in the order that `syscall` and `sysret` require.
pub const KERNEL_CODE: u64 = 0x08;
/// Ring 3: stack and data.
pub const USER_DATA: u64 = 0x1b;
/// Ring 3: code.
pub const USER_CODE: u64 = 0x23;
const TASK_STATE: u16 = 0x28;

/// A CPU's record. `trap.s` uses the first three fields.
#[repr(C)]
pub struct Cpu {
    this: *const Cpu,
    /// Top of the current task's kernel stack, where ring 3 enters the kernel.
    kernel_stack: AtomicU64,
    user_rsp: u64,
    /// The field from which hardware reads the same address for page faults; null before the tables are
    /// loaded.
    ring_stack: AtomicPtr<u64>,
    id: CpuId,
    apic: u32,
    node: NodeId,
    /// A tick occurred: it must be handled before the return to ring 3.
    pub ticked: AtomicBool,
    /// Another task should run on this CPU.
    pub resched: AtomicBool,
    /// Initiators of shootdowns that wait for this CPU.
    pub inbox: [AtomicU64; MAX_CPUS.div_ceil(64)],
    /// This CPU's counts.
    pub counts: Counts,
    /// Whether the CPU is running a request of another CPU.
    pub in_remote_call: AtomicBool,
}

const _: () = assert!(offset_of!(Cpu, kernel_stack) == 8 && offset_of!(Cpu, user_rsp) == 16);

// SAFETY: the raw pointer is the record's own address, and mutable fields are atomic or (`user_rsp`) used by
// one CPU only.
unsafe impl Sync for Cpu {}
// SAFETY: as above.
unsafe impl Send for Cpu {}

/// The machine's counters.
#[derive(Default)]
pub struct Counts {
    /// Shootdowns initiated on this CPU.
    pub rounds: AtomicU64,
    /// CPUs asked in them.
    pub ipis_sent: AtomicU64,
    /// Shootdown requests handled on this CPU.
    pub ipis_received: AtomicU64,
    /// Context switches.
    pub switches: AtomicU64,
    /// Timer ticks.
    pub ticks: AtomicU64,
}

impl Cpu {
    /// Its number.
    pub fn id(&self) -> CpuId {
        self.id
    }

    /// Its local APIC id.
    pub fn apic(&self) -> u32 {
        self.apic
    }

    /// Its node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Set the stack on which ring 3 enters the kernel. Called on this CPU, whose tables are loaded.
    pub fn set_kernel_stack(&self, top: u64) {
        self.kernel_stack.store(top, Relaxed);
        // SAFETY: a word of the task state of the calling CPU, whose record this is; hardware reads it only
        // on entry from ring 3.
        unsafe { self.ring_stack.load(Relaxed).write_unaligned(top) };
    }
}

#[repr(C, packed)]
struct TaskState {
    _reserved: u32,
    ring_stacks: [u64; 3],
    _reserved2: u64,
    ist: [u64; 7],
    _reserved3: u64,
    _reserved4: u16,
    io_map: u16,
}

const IST_STACKS: usize = 4;

/// A stack on which traps arrive. It is large enough to report a fatal fault; every other trap leaves it at
/// once. Page faults have none.
#[repr(C, align(64))]
struct IstStack([u8; 16384]);

/// Everything that hardware reads of one CPU. Its address never changes.
#[repr(C, align(64))]
struct Tables {
    cpu: Cpu,
    segments: [u64; 7],
    state: TaskState,
    ist_stacks: [IstStack; IST_STACKS],
}

/// The address of a CPU's tables.
struct TablesPointer(*mut Tables);

// SAFETY: only an address; the code that writes there says why it may.
unsafe impl Send for TablesPointer {}
// SAFETY: as above.
unsafe impl Sync for TablesPointer {}

struct First(UnsafeCell<Tables>);

// SAFETY: written once, by the only CPU that runs then.
unsafe impl Sync for First {}

/// The first CPU's tables, needed before there is a heap.
// SAFETY: all fields are integers, atomics of integers and a raw pointer, for which zero is valid.
static FIRST: First = First(UnsafeCell::new(unsafe { core::mem::zeroed() }));

static TABLES: Once<Vec<TablesPointer>> = Once::new();
static CPUS: Once<Vec<&'static Cpu>> = Once::new();

/// All CPUs, by number.
pub fn all() -> &'static [&'static Cpu] {
    CPUS.get().map_or(&[], |cpus| cpus)
}

/// This CPU.
#[inline]
pub fn current() -> &'static Cpu {
    let this: *const Cpu;
    // SAFETY: in ring 0 gs points to the record of the CPU, whose first field is its own address; records are
    // never freed.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) this, options(nostack, readonly, preserves_flags));
        &*this
    }
}

/// Load the first CPU's segments and IST stacks, so that faults are reported.
pub fn init_first() {
    // SAFETY: the 8259s' mask registers; unmasked, their interrupts would use vectors of exceptions.
    unsafe {
        out8(0x21, 0xff);
        out8(0xa1, 0xff);
    }
    // SAFETY: no other code runs, and nothing refers to the tables yet.
    unsafe { load(FIRST.0.get()) };
}

/// Create the records of all CPUs, from the APIC id and node of each, the first CPU first. Called once.
pub fn init_all(cpus: &[(u32, NodeId)]) {
    let tables_of = |i| match i {
        0 => TablesPointer(FIRST.0.get()),
        _ => {
            let tables = Box::into_raw(Box::<Tables>::new_uninit()).cast();
            // SAFETY: the memory was just allocated for them; zero is valid, as for FIRST.
            unsafe { core::ptr::write_bytes::<Tables>(tables, 0, 1) };
            TablesPointer(tables)
        }
    };
    let tables = TABLES.call_once(|| (0..cpus.len()).map(tables_of).collect());
    let record = |(i, (&TablesPointer(tables), &(apic, node))): (usize, (&TablesPointer, &(u32, NodeId)))| {
        // SAFETY: no other CPU runs, and of the first CPU's record only `this` is in use; the three fields
        // are written through the raw pointer. The record is never freed.
        unsafe {
            (&raw mut (*tables).cpu.id).write(CpuId(i as u16));
            (&raw mut (*tables).cpu.apic).write(apic);
            (&raw mut (*tables).cpu.node).write(node);
            &(*tables).cpu
        }
    };
    CPUS.call_once(|| tables.iter().zip(cpus).enumerate().map(record).collect());
}

/// Initialize a CPU that has just started, given its number.
pub fn init_other(cpu: usize) {
    let TablesPointer(tables) = TABLES.get().expect("the tables must exist before CPUs start")[cpu];
    // SAFETY: the tables belong to this CPU; others use only the atomic fields of its record.
    unsafe { load(tables) };
}

/// Load the tables on the calling CPU.
///
/// # Safety
/// They never move, and belong to this CPU.
unsafe fn load(tables: *mut Tables) {
    const GS_BASE: u32 = 0xc000_0101;
    const KERNEL_GS_BASE: u32 = 0xc000_0102;
    let mut ist = [0; 7];
    // SAFETY: as the caller promises; nothing is read.
    let [state, segments, record, ist_stacks] = unsafe {
        [
            (&raw mut (*tables).state) as u64,
            (&raw mut (*tables).segments) as u64,
            (&raw mut (*tables).cpu) as u64,
            (&raw mut (*tables).ist_stacks) as u64,
        ]
    };
    for (i, end) in ist.iter_mut().enumerate().take(IST_STACKS) {
        *end = ist_stacks + (i as u64 + 1) * size_of::<IstStack>() as u64;
    }
    let limit = size_of::<TaskState>() as u64 - 1;
    let low = limit | (state & 0xff_ffff) << 16 | 0x89 << 40 | (state >> 24 & 0xff) << 56;
    let descriptors = [
        0,
        0x00af_9b00_0000_ffff,
        0x00cf_9300_0000_ffff,
        0x00cf_f300_0000_ffff,
        0x00af_fb00_0000_ffff,
        low,
        state >> 32,
    ];
    let pointer = pointer(segments, size_of_val(&descriptors));
    // SAFETY: the tables belong to this CPU. They have the format of the manual and never move; the current
    // code segment keeps its meaning. The registers exist on every x86-64.
    unsafe {
        (&raw mut (*tables).state.ist).write_unaligned(ist);
        (&raw mut (*tables).state.io_map).write_unaligned(size_of::<TaskState>() as u16);
        (&raw mut (*tables).segments).write(descriptors);
        (&raw mut (*tables).cpu.this).write(record as *const Cpu);
        (*tables).cpu.ring_stack.store((&raw mut (*tables).state.ring_stacks).cast(), Relaxed);
        asm!("lgdt [{}]", in(reg) &pointer, options(readonly, nostack, preserves_flags));
        asm!("mov ss, {0:x}", in(reg) 0x10, options(nostack, preserves_flags));
        asm!("ltr {0:x}", in(reg) TASK_STATE, options(nostack, preserves_flags));
        write_msr(GS_BASE, record);
        write_msr(KERNEL_GS_BASE, 0);
    }
}

/// The operand of `lgdt` and `lidt`: size - 1 and address.
pub(super) fn pointer(address: u64, size: usize) -> [u16; 5] {
    [size as u16 - 1, address as u16, (address >> 16) as u16, (address >> 32) as u16, (address >> 48) as u16]
}
