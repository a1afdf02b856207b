//! The user arena: memory of ring 3 outside the memory manager.
//!
//! As in the simulator, the run-time of a program (its stacks, its own heap, the checker's tables) is not
//! part of the measured memory, so both machines count the same. The heap is one piece that begins at
//! [`paging::ARENA`], after the launch information of ring 0. Stacks follow at a large distance, each above a
//! hole.

use crate::arch::lock::IrqLock;
use crate::arch::paging::{self, ARENA, Access};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use machine_x86::memory_map::{self, Span};

/// Bytes of a program's stack.
pub const STACK_BYTES: u64 = 64 << 10;
/// The most threads of programs at a time.
pub const MAX_STACKS: u64 = 256;
/// Bytes of all stacks.
pub const STACKS_BYTES: u64 = MAX_STACKS * STACK_BYTES;

/// Bytes at the arena's start that are reserved for the launch information of a run's tasks.
pub const LAUNCH_INFO_BYTES: u64 = 4096;
/// Address of the programs' heap.
pub const HEAP: u64 = ARENA + LAUNCH_INFO_BYTES;

const STACKS: u64 = ARENA + (1 << 38);
/// Address at which ring 3 sees the file that came with the image.
const FILE: u64 = STACKS + (1 << 37);

static HEAP_BYTES: AtomicU64 = AtomicU64::new(0);
static FREE_STACKS: IrqLock<Vec<u64>> = IrqLock::new(Vec::new());

/// Map the arena. Called once.
pub fn init(memory: Span) {
    let heap = Span::new(memory.start, memory.end - STACKS_BYTES);
    paging::map_pages(ARENA, heap, Access::User);
    HEAP_BYTES.store(heap.len(), Relaxed);
    let mut free = FREE_STACKS.lock();
    for i in (0..MAX_STACKS).rev() {
        let bottom = STACKS + (2 * i + 1) * STACK_BYTES;
        let from = heap.end + i * STACK_BYTES;
        paging::map_pages(bottom, Span::new(from, from + STACK_BYTES), Access::User);
        free.push(bottom + STACK_BYTES);
    }
}

/// Map the file that came with the image. Called once.
pub fn map_file(file: Span) {
    paging::map_pages(FILE, memory_map::pages_of(file), Access::UserConstant);
}

/// The file that came with the image, which [`map_file`] has mapped.
pub fn file(file: Span) -> &'static [u8] {
    let at = FILE + (file.start - memory_map::pages_of(file).start);
    // SAFETY: mapped there forever, as constant memory that has no other user.
    unsafe { core::slice::from_raw_parts(at as *const u8, file.len() as usize) }
}

/// Bytes of the heap.
pub fn heap_bytes() -> u64 {
    HEAP_BYTES.load(Relaxed)
}

/// Take a free stack; returns its end, where its user begins.
pub fn take_stack() -> Option<u64> {
    FREE_STACKS.lock().pop()
}

/// Release a stack, given its end.
pub fn release_stack(end: u64) {
    FREE_STACKS.lock().push(end);
}

/// Whether all these bytes are in the heap, or all in one stack.
pub fn contains(address: u64, len: u64) -> bool {
    let Some(last) = address.checked_add(len.max(1) - 1) else { return false };
    let in_heap = |at: u64| (ARENA..ARENA + heap_bytes()).contains(&at);
    let stack = |at: u64| {
        let slot = at.checked_sub(STACKS)? / STACK_BYTES;
        (slot % 2 == 1 && slot < 2 * MAX_STACKS).then_some(slot)
    };
    (in_heap(address) && in_heap(last)) || stack(address).is_some_and(|slot| stack(last) == Some(slot))
}
