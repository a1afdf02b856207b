//! The guest's own memory: an arena that all processes share, in pages of 2 MiB that are reserved at boot.
//!
//! Reclaim does not scan such pages, `fork` does not copy them, and they are not among the free pages that
//! the program gets. They hold everything that a task needs besides its program: its stack, its part of the
//! program, the trace.

use crate::sys::{self, nr};
use alloc::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, Ordering};
use talc::{ErrOnOom, Span, Talc};

/// Its address: no recorded program uses it.
pub const START: u64 = 0x6200_0000_0000;

struct Arena {
    locked: AtomicBool,
    pages: u64,
    talc: UnsafeCell<Talc<ErrOnOom>>,
}

/// The allocator. None of its state is in memory that `fork` copies.
struct Shared;

#[global_allocator]
static HEAP: Shared = Shared;

/// Address of the guest's own program; see `static.toml`.
const IMAGE: u64 = 0x6100_0000_0000;
/// Bytes of a page of the arena; the program must fit in one.
const PAGE: u64 = 2 << 20;
const READ_WRITE_RUN: u64 = 7;
const SHARED_FIXED_ANONYMOUS_POPULATE_HUGE: u64 = 0x1 | 0x10 | 0x20 | 0x8000 | 0x4_0000;

unsafe extern "C" {
    /// The end of the program; defined by the linker.
    static _end: u8;
}

/// Move the guest's own program into such a page, too: otherwise a child would fault in its pages one by one
/// and not share its variables. Called once, before there are other tasks.
pub fn move_image() -> Result<(), sys::Code> {
    const MOVE_TO: u64 = 1 | 2;
    let scratch = START + (1 << 40);
    let len = &raw const _end as u64 - IMAGE;
    assert!(len <= PAGE, "the guest's program must fit in a page of the arena");
    let flags = SHARED_FIXED_ANONYMOUS_POPULATE_HUGE;
    // SAFETY: nothing is mapped at the scratch address; the program continues in its copy, at the same
    // addresses.
    unsafe {
        sys::call(nr::MMAP, [scratch, PAGE, READ_WRITE_RUN, flags, u64::MAX, 0])?;
        core::ptr::copy_nonoverlapping(IMAGE as *const u8, scratch as *mut u8, len as usize);
        sys::call(nr::MREMAP, [scratch, PAGE, PAGE, MOVE_TO, IMAGE]).map(drop)
    }
}

/// Populate all pages of the arena in a new process, so that the number of its faults is known. Returns that
/// number.
pub fn populate() -> u64 {
    const POPULATE_WRITE: u64 = 23;
    // SAFETY: this changes nothing.
    unsafe {
        let arena = &*(START as *const Arena);
        let _ = sys::call(nr::MADVISE, [START, arena.pages * PAGE, POPULATE_WRITE]);
        arena.pages + 1
    }
}

/// Map `pages` pages of 2 MiB and make them a heap. Called once, before any allocation.
pub fn init(pages: u64) -> Result<(), sys::Code> {
    let len = pages * PAGE;
    let flags = SHARED_FIXED_ANONYMOUS_POPULATE_HUGE;
    // SAFETY: nothing is mapped there yet.
    unsafe { sys::call(nr::MMAP, [START, len, READ_WRITE_RUN, flags, u64::MAX, 0]) }?;
    let arena = START as *mut Arena;
    // SAFETY: the arena is mapped and not used by anything else; its header is first, followed by the memory
    // that it allocates.
    unsafe {
        let mut talc = Talc::new(ErrOnOom);
        let rest = Span::from_base_size(arena.add(1).cast(), len as usize - size_of::<Arena>());
        talc.claim(rest).expect("the arena must be larger than its metadata");
        arena.write(Arena { locked: AtomicBool::new(false), pages, talc: UnsafeCell::new(talc) });
    }
    Ok(())
}

fn with<T>(work: impl FnOnce(&mut Talc<ErrOnOom>) -> T) -> T {
    // SAFETY: `init` runs before anything allocates.
    let arena = unsafe { &*(START as *const Arena) };
    while arena.locked.swap(true, Ordering::Acquire) {
        sys::yield_now();
    }
    // SAFETY: the lock is held.
    let result = work(unsafe { &mut *arena.talc.get() });
    arena.locked.store(false, Ordering::Release);
    result
}

// SAFETY: one allocator with a lock, in memory that all processes share.
unsafe impl GlobalAlloc for Shared {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller promises that the layout is not empty.
        let memory = with(|talc| unsafe { talc.malloc(layout) });
        memory.map_or(null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        let Some(memory) = NonNull::new(memory) else { return };
        // SAFETY: the caller promises that the memory was allocated with this layout.
        with(|talc| unsafe { talc.free(memory, layout) });
    }
}

/// Mount one of the kernel's own file systems, before there is a heap.
pub fn early_mount(at: &CStr, kind: &CStr) -> Result<(), sys::Code> {
    // SAFETY: all texts end with a zero.
    unsafe {
        let _ = sys::call(nr::MKDIR, [at.as_ptr() as u64, 0o755]);
        sys::call(nr::MOUNT, [kind.as_ptr() as u64, at.as_ptr() as u64, kind.as_ptr() as u64, 0, 0]).map(drop)
    }
}

/// Make the console the standard output.
pub fn early_console() {
    // SAFETY: the path ends with a zero.
    unsafe {
        if let Ok(fd) = sys::call(nr::OPEN, [c"/dev/console".as_ptr() as u64, sys::O_RDWR, 0]) {
            (0..3).filter(|other| *other != fd).for_each(|other| _ = sys::call(nr::DUP2, [fd, other]));
        }
    }
}

/// Number of pages of 2 MiB that are reserved at boot.
pub fn early_pages() -> u64 {
    let mut text = [0u8; 32];
    // SAFETY: the path ends with a zero; the kernel writes only to the buffer.
    let got = unsafe {
        let fd = sys::call(nr::OPEN, [c"/proc/sys/vm/nr_hugepages".as_ptr() as u64, sys::O_RDONLY, 0]);
        fd.and_then(|fd| sys::read(fd as u32, &mut text))
    };
    let digits = text[..got.unwrap_or(0)].iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'))
}
