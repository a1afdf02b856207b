//! What each CPU has of its own: segments, landing stacks, and a record that `gs` points to while it runs in ring 0.

use super::instructions::{out8, write_msr};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::arch::asm;
use core::cell::UnsafeCell;
use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::*};
use mm::units::{CpuId, NodeId};
use spin::Once;

/// Most CPUs; more are left asleep.
pub use mm::machine::MAX_CPUS;
// Local interrupt controllers of this kind have 8-bit numbers, one of which means "all".
const _: () = assert!(MAX_CPUS < 256);

/// Selectors, in the order that `syscall` and `sysret` want.
pub const KERNEL_CODE: u64 = 0x08;
/// Of ring 3: stack and data.
pub const USER_DATA: u64 = 0x1b;
/// Of ring 3: code.
pub const USER_CODE: u64 = 0x23;
const TASK_STATE: u16 = 0x28;

/// A CPU's record. `trap.s` knows the first three places.
#[repr(C)]
pub struct Cpu {
    this: *const Cpu,
    /// Top of the kernel stack of the task that runs; ring 3 enters the kernel there.
    kernel_stack: AtomicU64,
    user_rsp: u64,
    /// Where hardware reads the same place, for page faults; null before the tables are loaded.
    ring_stack: AtomicPtr<u64>,
    id: CpuId,
    apic: u32,
    node: NodeId,
    /// A tick came: to be acted on before ring 3 goes on.
    pub ticked: AtomicBool,
    /// Another task should run here.
    pub resched: AtomicBool,
    /// Initiators of shootdowns that wait for this CPU.
    pub inbox: [AtomicU64; MAX_CPUS.div_ceil(64)],
    /// What was counted here.
    pub counts: Counts,
    /// Does the CPU serve a request of another one now?
    pub serving: AtomicBool,
}

const _: () = assert!(offset_of!(Cpu, kernel_stack) == 8 && offset_of!(Cpu, user_rsp) == 16);

// SAFETY: the one raw pointer is the record's own address, and what changes is atomic or (`user_rsp`) touched by one
// CPU only.
unsafe impl Sync for Cpu {}
// SAFETY: as above.
unsafe impl Send for Cpu {}

/// Things that the machine counts.
#[derive(Default)]
pub struct Counts {
    /// Shootdowns begun here.
    pub rounds: AtomicU64,
    /// CPUs asked in them.
    pub ipis_sent: AtomicU64,
    /// Shootdowns served here.
    pub ipis_received: AtomicU64,
    /// Changes of task.
    pub switches: AtomicU64,
    /// Ticks of the timer.
    pub ticks: AtomicU64,
}

impl Cpu {
    /// Its number.
    pub fn id(&self) -> CpuId {
        self.id
    }

    /// Its interrupt controller's number.
    pub fn apic(&self) -> u32 {
        self.apic
    }

    /// The node that it sits on.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// From now on ring 3 enters the kernel on this stack. Called on this CPU, whose tables are loaded.
    pub fn set_kernel_stack(&self, top: u64) {
        self.kernel_stack.store(top, Relaxed);
        // SAFETY: a word of the task state of the CPU that calls, whose record this is; hardware reads it in ring 3
        // only.
        unsafe { self.ring_stack.load(Relaxed).write_unaligned(top) };
    }
}

#[repr(C, packed)]
struct TaskState {
    _reserved: u32,
    ring_stacks: [u64; 3],
    _reserved2: u64,
    landing: [u64; 7],
    _reserved3: u64,
    _reserved4: u16,
    io_map: u16,
}

const LANDINGS: usize = 4;

/// Room to report a fatal fault; every other trap leaves its landing stack at once. Page faults have none.
#[repr(C, align(64))]
struct Landing([u8; 16384]);

/// Everything that hardware reads of one CPU. Its address never changes.
#[repr(C, align(64))]
struct Tables {
    cpu: Cpu,
    segments: [u64; 7],
    state: TaskState,
    landings: [Landing; LANDINGS],
}

/// Where a CPU's tables are.
struct Place(*mut Tables);

// SAFETY: says where, no more; who writes there is said where it is done.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

struct First(UnsafeCell<Tables>);

// SAFETY: written once, by the only CPU that runs then.
unsafe impl Sync for First {}

/// The first CPU's, needed before there is a heap.
// SAFETY: all fields are integers, atomics of integers and a raw pointer, for which zero bytes are values.
static FIRST: First = First(UnsafeCell::new(unsafe { core::mem::zeroed() }));

static PLACES: Once<Vec<Place>> = Once::new();
static CPUS: Once<Vec<&'static Cpu>> = Once::new();

/// All CPUs, by number.
pub fn all() -> &'static [&'static Cpu] {
    CPUS.get().map_or(&[], |cpus| cpus)
}

/// This CPU.
#[inline]
pub fn current() -> &'static Cpu {
    let this: *const Cpu;
    // SAFETY: in ring 0 gs points to the record of the CPU, whose first field is its own address; records live for
    // ever.
    unsafe {
        asm!("mov {}, gs:[0]", out(reg) this, options(nostack, readonly, preserves_flags));
        &*this
    }
}

/// The first CPU gets its segments and landing stacks, so that faults are reported from now on.
pub fn init_first() {
    // SAFETY: the 8259s' mask registers; left unmasked, their interrupts would come in the place of exceptions.
    unsafe {
        out8(0x21, 0xff);
        out8(0xa1, 0xff);
    }
    // SAFETY: nobody else runs, and nothing refers to the tables yet.
    unsafe { load(FIRST.0.get()) };
}

/// Make records for all CPUs: controller and node of each, the first CPU at the head. Called once.
pub fn init_all(cpus: &[(u32, NodeId)]) {
    let place = |i| match i {
        0 => Place(FIRST.0.get()),
        _ => {
            let tables = Box::into_raw(Box::<Tables>::new_uninit()).cast();
            // SAFETY: the memory was just allocated for them; zero bytes are a value, as said at FIRST.
            unsafe { core::ptr::write_bytes::<Tables>(tables, 0, 1) };
            Place(tables)
        }
    };
    let places = PLACES.call_once(|| (0..cpus.len()).map(place).collect());
    let record = |(i, (&Place(tables), &(apic, node))): (usize, (&Place, &(u32, NodeId)))| {
        // SAFETY: no other CPU runs, and of the first one's record nothing but `this` is in use; the three fields are
        // written through the raw pointer. The record stays for ever.
        unsafe {
            (&raw mut (*tables).cpu.id).write(CpuId(i as u16));
            (&raw mut (*tables).cpu.apic).write(apic);
            (&raw mut (*tables).cpu.node).write(node);
            &(*tables).cpu
        }
    };
    CPUS.call_once(|| places.iter().zip(cpus).enumerate().map(record).collect());
}

/// Called by a CPU that has just started, with its number.
pub fn init_other(cpu: usize) {
    let Place(tables) = PLACES.get().expect("made before CPUs start")[cpu];
    // SAFETY: the tables are this CPU's; others use only the atomic fields of the record in it.
    unsafe { load(tables) };
}

/// Hand the tables to the CPU that calls.
///
/// # Safety
/// They stay where they are for ever, and belong to this CPU.
unsafe fn load(tables: *mut Tables) {
    const GS_BASE: u32 = 0xc000_0101;
    const KERNEL_GS_BASE: u32 = 0xc000_0102;
    let mut landing = [0; 7];
    // SAFETY: as the caller promises; nothing is read there.
    let [state, segments, record, landings] = unsafe {
        [
            (&raw mut (*tables).state) as u64,
            (&raw mut (*tables).segments) as u64,
            (&raw mut (*tables).cpu) as u64,
            (&raw mut (*tables).landings) as u64,
        ]
    };
    for (i, end) in landing.iter_mut().enumerate().take(LANDINGS) {
        *end = landings + (i as u64 + 1) * size_of::<Landing>() as u64;
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
    // SAFETY: the tables are this CPU's to write. They are as the manual wants them and stay; the code segment that is
    // in use keeps its meaning. The registers exist on every x86-64.
    unsafe {
        (&raw mut (*tables).state.landing).write_unaligned(landing);
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

/// What `lgdt` and `lidt` read: size - 1 and address.
pub(super) fn pointer(address: u64, size: usize) -> [u16; 5] {
    [size as u16 - 1, address as u16, (address >> 16) as u16, (address >> 32) as u16, (address >> 48) as u16]
}
