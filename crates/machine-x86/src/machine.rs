//! The trait [`Machine`] on this hardware.

use crate::arch::clock;
use crate::arch::cpu;
use crate::arch::instructions::{invlpg, read_cr3, read_cr4, without_interrupts, write_cr3, write_cr4};
use crate::arch::paging;
use crate::compression::Compression;
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

/// The machine, as detected.
pub struct X86 {
    memory: Vec<MemoryRange>,
    /// Distances of nodes, row by row.
    distances: Vec<u32>,
    nodes: usize,
    /// Abstract distances of the nodes' memory.
    memory_distances: Vec<u32>,
    /// Whether TLBs have address-space numbers (PCIDs).
    has_pcid: bool,
    /// If any swap space is compressed. Without it nobody looks at what pages hold.
    compression: Option<Compression>,
}

/// Address-space numbers in use, of the 4096 of each CPU: as many as in Linux.
const ASIDS: usize = 6;

static KERNEL: Once<Kernel<X86>> = Once::new();

/// The memory manager.
///
/// # Panics
/// If it has not been created.
pub fn mm() -> &'static Mm<X86> {
    kernel().mm()
}

/// The kernel for programs, on the memory manager.
///
/// # Panics
/// If it has not been created.
pub fn kernel() -> &'static Kernel<X86> {
    KERNEL.get().expect("the memory manager must be created before it is used")
}

/// Set the memory manager.
pub fn set_mm(mm: Mm<X86>, disk: Option<Disk>) {
    // As on the simulated machine, the memory manager's daemons come first, because seeds depend on a task's
    // number. Only some policies have a promotion daemon; it is not counted, so that programs' random choices
    // do not depend on it.
    let daemons = mm
        .daemons()
        .into_iter()
        .filter(|daemon| !matches!(daemon, Daemon::Kpromoted | Daemon::Kdamond))
        .count();
    KERNEL.call_once(|| Kernel::new(mm, disk, daemons as u32));
    sched::on_switch(|space| self::mm().switch(space));
}

/// Handle a tick, with no lock held.
pub fn tick() {
    if mm().wants_ticks() {
        mm().tick();
    }
}

const PCID_ENABLE: u64 = 1 << 17;
const GLOBAL_ENABLE: u64 = 1 << 7;
/// In CR3: keep the translations of this number.
const KEEP: u64 = 1 << 63;

fn cpu_has_pcid() -> bool {
    __cpuid(1).ecx & 1 << 17 != 0
}

/// Enable the features that this machine uses, on the calling CPU. The kernel's root must be loaded.
pub fn init_cpu() {
    if cpu_has_pcid() {
        // SAFETY: the CPU has it, and the current number is 0, as required.
        unsafe { write_cr4(read_cr4() | PCID_ENABLE) };
    }
}

impl X86 {
    /// A machine with this memory, these distances between nodes, and these abstract distances of the nodes'
    /// memory. `compresses`: some swap space is compressed.
    pub fn new(
        memory: Vec<MemoryRange>,
        distances: Vec<u32>,
        memory_distances: Vec<u32>,
        compresses: bool,
    ) -> X86 {
        let nodes = memory_distances.len();
        assert_eq!(distances.len(), nodes * nodes);
        let compression = compresses.then(|| Compression::new(cpu::all().len()));
        X86 { memory, distances, nodes, memory_distances, has_pcid: cpu_has_pcid(), compression }
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    fn compression(&self) -> &Compression {
        self.compression.as_ref().expect("swap space that is compressed is known when the machine starts")
    }

    /// Bytes of the memory manager's memory.
    pub fn bytes(&self) -> u64 {
        self.memory.iter().map(|range| range.frames as u64 * PAGE_SIZE).sum()
    }
}

/// The bytes of a frame.
fn frame(pfn: Pfn) -> *mut u8 {
    paging::direct((pfn.0 as u64) << PAGE_SHIFT)
}

const WORDS: u64 = PAGE_SIZE / 8;

/// The words of a page that programs do not write.
fn words(pfn: Pfn) -> &'static [u64; WORDS as usize] {
    // SAFETY: all frames are mapped there. A page that is swapped out is mapped for no program, or read-only, and the
    // caller keeps its frame.
    unsafe { &*frame(pfn).cast() }
}

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
        // SAFETY: the frame is a table, which is accessed only through atomic entries; all frames are mapped
        // there.
        unsafe { &*(frame(pfn) as *const TablePage) }
    }

    fn zero(&self, pfn: Pfn, pages: u32) {
        // SAFETY: the frames belong to the memory manager, which is their only user while it zeroes them; all
        // frames are mapped there.
        unsafe {
            asm!("rep stosq", inout("rcx") WORDS * pages as u64 => _, inout("rdi") frame(pfn) => _, in("rax") 0u64,
                options(nostack, preserves_flags));
        }
    }

    fn copy(&self, to: Pfn, from: Pfn, pages: u32) {
        // SAFETY: as for `zero`; programs may read the source during the copy, but not write it.
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
                paging::copy_kernel_half(table);
                // Number 0 is reserved for the kernel's own root.
                let number = if self.has_pcid { asid.0 as u64 + 1 } else { 0 };
                table | number | if self.has_pcid && keep { KEEP } else { 0 }
            }
        };
        // SAFETY: the upper half is the kernel's in both cases.
        unsafe { write_cr3(value) };
    }

    fn flush(&self, what: Flush) {
        if shootdown::is_omitted() {
            return;
        }
        match what {
            Flush::Pages { start, count, stride } => {
                let bytes = PAGE_SIZE << stride.0;
                (0..count as u64).for_each(|i| invlpg(start.addr() + i * bytes));
            }
            Flush::Current => reload(),
            // Toggling the bit for global translations drops the translations of all numbers.
            Flush::All if self.has_pcid => without_interrupts(|| {
                let features = read_cr4();
                // SAFETY: the kernel has no global translations, so toggling the bit has no other effect.
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

    fn is_zero_filled(&self, first: Pfn, pages: u32) -> bool {
        let zero = |page| words(first.add(page)).iter().all(|&word| word == 0);
        self.compression.is_some() && (0..pages).all(zero)
    }

    fn same_filled(&self, page: Pfn) -> Option<u64> {
        let words = words(page);
        words.iter().all(|&word| word == words[0]).then_some(words[0])
    }

    fn fill(&self, page: Pfn, word: u64) {
        // SAFETY: as for `zero`.
        unsafe {
            asm!("rep stosq", inout("rcx") WORDS => _, inout("rdi") frame(page) => _, in("rax") word,
                options(nostack, preserves_flags));
        }
    }

    fn compress(&self, page: Pfn, _: Compressor) -> u32 {
        let Some(compression) = &self.compression else { return PAGE_SIZE as u32 };
        // SAFETY: as for `words`.
        compression.compress(page, unsafe { &*frame(page).cast() })
    }

    fn pack(&self, page: Pfn, object: ObjectPlace) {
        if u64::from(object.bytes) == PAGE_SIZE {
            self.copy(object.frame, page, 1);
        } else {
            self.compression().store(page, object, frame);
        }
    }

    fn unpack(&self, object: ObjectPlace, page: Pfn, _: Compressor) {
        if u64::from(object.bytes) == PAGE_SIZE {
            self.copy(page, object.frame, 1);
        } else {
            // SAFETY: no task uses the page yet; all frames are mapped there.
            self.compression().load(object, unsafe { &mut *frame(page).cast() }, frame);
        }
    }

    fn move_object(&self, from: ObjectPlace, to: ObjectPlace) {
        self.compression().move_object(from, to, frame);
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

/// Drop the translations of the loaded number. An interrupt between the two instructions could load another
/// root, which would then be undone.
fn reload() {
    // SAFETY: the same root stays loaded.
    without_interrupts(|| unsafe { write_cr3(read_cr3()) });
}
