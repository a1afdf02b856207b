//! The heaps: one of the kernel, one of programs. Both rings run the same code, so the global allocator
//! checks the ring.
//!
//! The programs' heap is in the user arena, and so is its lock. The kernel never takes that lock: its holder
//! may be an interrupted program, and kernel code is not preempted.

use crate::arch::call::{self, system_call};
use crate::arch::instructions::ring;
use crate::arch::lock::IrqLock;
use crate::arena::HEAP;
use crate::report;
use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, Ordering::*};
use talc::{ErrOnOom, Span, Talc};

/// A heap is full: the machine is too small for the run.
pub fn out_of_memory(which: &str, wanted: u64) -> ! {
    report::bad(format_args!("the {which} has no {wanted} bytes left; use more memory (-m)"))
}

struct Heaps;

#[global_allocator]
static HEAPS: Heaps = Heaps;

static KERNEL: IrqLock<Talc<ErrOnOom>> = IrqLock::new(Talc::new(ErrOnOom));

/// The programs' heap: its header, followed by the memory that it allocates.
struct UserHeap {
    locked: AtomicBool,
    talc: UnsafeCell<Talc<ErrOnOom>>,
}

/// The kernel's first heap, used before memory is known.
struct First(UnsafeCell<[u8; 256 << 10]>);

// SAFETY: passed to the allocator once, which is its only user.
unsafe impl Sync for First {}

static FIRST: First = First(UnsafeCell::new([0; 256 << 10]));

/// Initialize a small kernel heap. Called once.
pub fn init_first() {
    // SAFETY: nothing else refers to the bytes.
    unsafe { add(FIRST.0.get().cast(), size_of::<First>()) };
}

/// Add memory to the kernel's heap.
///
/// # Safety
/// It must be unused, and stay mapped.
pub unsafe fn add(start: *mut u8, len: usize) {
    // SAFETY: as the caller promises.
    unsafe { KERNEL.lock().claim(Span::from_base_size(start, len)) }
        .expect("memory for the heap must be larger than its metadata");
}

/// Initialize the programs' heap in `len` bytes of the arena. Called once, before there are programs.
pub fn init_user(len: usize) {
    let heap = HEAP as *mut UserHeap;
    // SAFETY: the arena is mapped and unused; the heap's header is first, followed by the memory that it
    // allocates.
    unsafe {
        let mut talc = Talc::new(ErrOnOom);
        let rest = Span::from_base_size(heap.add(1).cast(), len - size_of::<UserHeap>());
        talc.claim(rest).expect("the arena must be larger than the heap's metadata");
        heap.write(UserHeap { locked: AtomicBool::new(false), talc: UnsafeCell::new(talc) });
    }
}

impl UserHeap {
    fn with<T>(work: impl FnOnce(&mut Talc<ErrOnOom>) -> T) -> T {
        // SAFETY: `init_user` runs before any program.
        let heap = unsafe { &*(HEAP as *const UserHeap) };
        let mut tries = 0u32;
        while heap.locked.swap(true, Acquire) {
            tries += 1;
            if tries.is_multiple_of(256) {
                // SAFETY: lets the holder run, which may have lost its CPU.
                unsafe { system_call(call::YIELD, [0; 6]) };
            }
            core::hint::spin_loop();
        }
        // SAFETY: the lock is held.
        let result = work(unsafe { &mut *heap.talc.get() });
        heap.locked.store(false, Release);
        result
    }
}

// SAFETY: each heap is one allocator with a lock; memory is freed to the heap that it is from, because the
// ring that allocates it also frees it: rings share no owned values.
unsafe impl GlobalAlloc for Heaps {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller of `alloc` promises that the layout is not empty.
        let allocate = |talc: &mut Talc<ErrOnOom>| unsafe { talc.malloc(layout) };
        let memory = if ring() == 0 { allocate(&mut KERNEL.lock()) } else { UserHeap::with(allocate) };
        match memory {
            Ok(memory) => memory.as_ptr(),
            Err(()) if ring() == 0 => out_of_memory("kernel heap", layout.size() as u64),
            Err(()) => {
                // SAFETY: the call takes a number, and does not return.
                unsafe { system_call(call::NO_MEMORY, [layout.size() as u64, 0, 0, 0, 0, 0]) };
                null_mut()
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let Some(memory) = NonNull::new(memory) else { return };
        // SAFETY: the caller of `dealloc` promises that the memory was allocated with this layout.
        let free = |talc: &mut Talc<ErrOnOom>| unsafe { talc.free(memory, layout) };
        if ring() == 0 { free(&mut KERNEL.lock()) } else { UserHeap::with(free) }
    }
}
