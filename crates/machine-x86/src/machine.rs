//! The trait [`Machine`] on this hardware.

use crate::arch::clock;
use crate::arch::cpu;
use crate::arch::instructions::{invlpg, read_cr3, read_cr4, without_interrupts, write_cr3, write_cr4};
use crate::arch::paging;
use crate::{devices, sched, shootdown};
use alloc::vec::Vec;
use core::arch::asm;
use core::arch::x86_64::__cpuid;
use kernel::{Disk, Kernel};
use mm::Mm;
use mm::api::Daemon;
use mm::machine::*;
use mm::units::*;
use spin::Once;

/// The machine, as found.
pub struct X86 {
    memory: Vec<MemoryRange>,
    /// Distances of nodes, row by row.
    distances: Vec<u32>,
    nodes: usize,
    /// Abstract distances of their memory.
    memory_distances: Vec<u32>,
    /// Do CPUs tell address spaces apart?
    has_pcid: bool,
}

/// Address-space numbers that are used of each CPU's 4096: as many as Linux uses.
const ASIDS: usize = 6;

static KERNEL: Once<Kernel<X86>> = Once::new();

/// The memory manager.
///
/// # Panics
/// Before it was made.
pub fn mm() -> &'static Mm<X86> {
    kernel().mm()
}

/// The kernel of programs, on the memory manager.
///
/// # Panics
/// Before it was made.
pub fn kernel() -> &'static Kernel<X86> {
    KERNEL.get().expect("the memory manager is made before it is used")
}

/// Put the memory manager in its place.
pub fn set_mm(mm: Mm<X86>, disk: Option<Disk>) {
    // As on the simulated machine, where the memory manager's own tasks come first: seeds depend on the number. That of
    // promotion is there under some ways to promote only, and what programs draw must not depend on that.
    let daemons = mm.daemons().into_iter().filter(|daemon| !matches!(daemon, Daemon::Kpromoted)).count();
    KERNEL.call_once(|| Kernel::new(mm, disk, daemons as u32));
    sched::on_switch(|space| self::mm().switch(space));
}

/// A tick came, and no lock is held.
pub fn tick() {
    if mm().wants_ticks() {
        mm().tick();
    }
}

const PCID_ENABLE: u64 = 1 << 17;
const GLOBAL_ENABLE: u64 = 1 << 7;
/// In CR3: translations that are held under the number stay.
const KEEP: u64 = 1 << 63;

fn cpu_has_pcid() -> bool {
    __cpuid(1).ecx & 1 << 17 != 0
}

/// Switch on what this machine uses of the CPU that calls. The kernel's root is loaded.
pub fn init_cpu() {
    if cpu_has_pcid() {
        // SAFETY: the CPU has it, and the number that is loaded is 0, as it must be.
        unsafe { write_cr4(read_cr4() | PCID_ENABLE) };
    }
}

impl X86 {
    /// A machine with this memory, nodes so far apart, and memory at these abstract distances, node by node.
    pub fn new(memory: Vec<MemoryRange>, distances: Vec<u32>, memory_distances: Vec<u32>) -> X86 {
        let nodes = memory_distances.len();
        assert_eq!(distances.len(), nodes * nodes);
        X86 { memory, distances, nodes, memory_distances, has_pcid: cpu_has_pcid() }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Bytes that the memory manager has.
    pub fn bytes(&self) -> u64 {
        self.memory.iter().map(|range| range.frames as u64 * PAGE_SIZE).sum()
    }
}

/// The bytes of a frame.
fn frame(pfn: Pfn) -> *mut u8 {
    paging::direct((pfn.0 as u64) << PAGE_SHIFT)
}

const WORDS: u64 = PAGE_SIZE / 8;

impl Machine for X86 {
    fn cpus(&self) -> usize {
        cpu::all().len()
    }

    fn node_of(&self, cpu: CpuId) -> NodeId {
        cpu::all()[cpu.index()].node()
    }

    fn memory(&self) -> &[MemoryRange] {
        &self.memory
    }

    fn distance(&self, from: NodeId, to: NodeId) -> u32 {
        self.distances[from.index() * self.nodes + to.index()]
    }

    fn memory_distance(&self, node: NodeId) -> u32 {
        self.memory_distances[node.index()]
    }

    #[inline]
    fn cpu(&self) -> CpuId {
        cpu::current().id()
    }

    #[inline]
    fn node(&self) -> NodeId {
        cpu::current().node()
    }

    fn now(&self) -> Nanos {
        clock::now()
    }

    #[inline]
    fn table(&self, pfn: Pfn) -> &TablePage {
        // SAFETY: the frame is a table, so its bytes are reached by atomic entries only; all frames are mapped there.
        unsafe { &*(frame(pfn) as *const TablePage) }
    }

    fn zero(&self, pfn: Pfn, pages: u32) {
        // SAFETY: the frames are the memory manager's, which owns them alone while it zeroes them; all are mapped
        // there.
        unsafe {
            asm!("rep stosq", inout("rcx") WORDS * pages as u64 => _, inout("rdi") frame(pfn) => _, in("rax") 0u64,
                options(nostack, preserves_flags));
        }
    }

    fn copy(&self, to: Pfn, from: Pfn, pages: u32) {
        // SAFETY: as for `zero`; what is copied may be read by programs meanwhile, and is not written.
        unsafe {
            asm!("rep movsq", inout("rcx") WORDS * pages as u64 => _, inout("rdi") frame(to) => _,
                inout("rsi") frame(from) => _, options(nostack, preserves_flags));
        }
    }

    fn has_hw_pte_young(&self) -> bool {
        true
    }

    fn has_hw_nonleaf_young(&self) -> bool {
        true
    }

    fn asids(&self) -> usize {
        if self.has_pcid { ASIDS } else { 0 }
    }

    fn load_root(&self, root: Pfn, asid: Asid, keep: bool) {
        let value = match root.is_some() {
            false => paging::root(),
            true => {
                let table = (root.0 as u64) << PAGE_SHIFT;
                paging::complete(table);
                // Number 0 stays the kernel's own root's.
                let number = if self.has_pcid { asid.0 as u64 + 1 } else { 0 };
                table | number | if self.has_pcid && keep { KEEP } else { 0 }
            }
        };
        // SAFETY: the upper half is the kernel's own in both cases.
        unsafe { write_cr3(value) };
    }

    fn flush(&self, what: Flush) {
        if shootdown::is_dropped() {
            return;
        }
        match what {
            Flush::Pages { start, count, stride } => {
                let bytes = PAGE_SIZE << stride.0;
                (0..count as u64).for_each(|i| invlpg(start.addr() + i * bytes));
            }
            Flush::Current => reload(),
            // A change of the mark for global translations drops those of all numbers.
            Flush::All if self.has_pcid => without_interrupts(|| {
                let features = read_cr4();
                // SAFETY: the kernel has no global translations, so the switch changes nothing else.
                unsafe {
                    write_cr4(features ^ GLOBAL_ENABLE);
                    write_cr4(features);
                }
            }),
            Flush::All => reload(),
        }
    }

    fn shootdown(&self, targets: &CpuSet, remote: &RemoteCall<'_>, local: &mut dyn FnMut()) {
        shootdown::run(targets, remote, local);
    }

    fn submit(&self, io: Io) {
        devices::submit(io);
    }

    fn ticket(&self, key: WaitKey) -> Ticket {
        Ticket { key, mark: sched::mark(sched::Key::Mm(key)) }
    }

    fn wait(&self, ticket: Ticket, deadline: Option<Nanos>) -> bool {
        sched::wait(sched::Key::Mm(ticket.key), ticket.mark, deadline)
    }

    fn wake(&self, key: WaitKey) {
        sched::wake(sched::Key::Mm(key));
    }

    #[inline]
    fn resched(&self) {
        sched::yield_if_due();
    }

    fn stopping(&self) -> bool {
        sched::stopping()
    }

    #[inline]
    fn charge(&self, _: Work, _: u64) {}

    fn listens(&self) -> bool {
        false
    }
}

/// Drop the translations of the number that is loaded. An interrupt in the middle could load another root, which would
/// then be undone.
fn reload() {
    // SAFETY: what is loaded stays loaded.
    without_interrupts(|| unsafe { write_cr3(read_cr3()) });
}
