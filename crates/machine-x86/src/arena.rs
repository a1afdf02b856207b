//! The user arena: memory that ring 3 has besides what the memory manager gives it.
//!
//! As in the simulator, the run-time of a program (its stacks, its own heap, the checker's tables) is no part of the
//! memory that is measured, so that both machines count the same. The heap's part is one piece from [`paging::ARENA`]
//! on, behind what ring 0 leaves there for a run's tasks; stacks follow far behind it, each above a hole.

use crate::arch::lock::IrqLock;
use crate::arch::paging::{self, ARENA, Access};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use machine_x86::memory_map::{self, Span};

/// Bytes of a program's stack.
pub const STACK_BYTES: u64 = 64 << 10;
/// Programs' threads that can live at the same time.
pub const MOST_STACKS: u64 = 256;
/// Bytes that all stacks take.
pub const STACKS_BYTES: u64 = MOST_STACKS * STACK_BYTES;

/// Bytes at the arena's start that are set aside for what ring 0 tells the tasks of a run.
pub const LAUNCH_INFO_BYTES: u64 = 4096;
/// Where the programs' heap begins.
pub const HEAP: u64 = ARENA + LAUNCH_INFO_BYTES;

const STACKS: u64 = ARENA + (1 << 38);
/// Where ring 3 finds the file that came with the image.
const FILE: u64 = STACKS + (1 << 37);

static HEAP_BYTES: AtomicU64 = AtomicU64::new(0);
static FREE_STACKS: IrqLock<Vec<u64>> = IrqLock::new(Vec::new());

/// Map the arena. Called once.
pub fn init(memory: Span) {
    let heap = Span::new(memory.start, memory.end - STACKS_BYTES);
    paging::map_more(ARENA, heap, Access::User);
    HEAP_BYTES.store(heap.len(), Relaxed);
    let mut free = FREE_STACKS.lock();
    for i in (0..MOST_STACKS).rev() {
        let bottom = STACKS + (2 * i + 1) * STACK_BYTES;
        let from = heap.end + i * STACK_BYTES;
        paging::map_more(bottom, Span::new(from, from + STACK_BYTES), Access::User);
        free.push(bottom + STACK_BYTES);
    }
}

/// Map the file that came with the image. Called once.
pub fn map_file(file: Span) {
    paging::map_more(FILE, memory_map::pages_of(file), Access::UserConstant);
}

/// The file that came with the image, which [`map_file`] has mapped.
pub fn file(file: Span) -> &'static [u8] {
    let at = FILE + (file.start - memory_map::pages_of(file).start);
    // SAFETY: mapped at that place for ever, as constant memory that nobody else has been given.
    unsafe { core::slice::from_raw_parts(at as *const u8, file.len() as usize) }
}

/// Bytes of the heap's part.
pub fn heap_bytes() -> u64 {
    HEAP_BYTES.load(Relaxed)
}

/// The end of a stack that nobody uses, where its user begins.
pub fn take_stack() -> Option<u64> {
    FREE_STACKS.lock().pop()
}

/// Give a stack back, by its end.
pub fn release_stack(end: u64) {
    FREE_STACKS.lock().push(end);
}

/// Do all these bytes lie in the heap's part, or all in one stack?
pub fn contains(address: u64, len: u64) -> bool {
    let Some(last) = address.checked_add(len.max(1) - 1) else { return false };
    let in_heap = |at: u64| (ARENA..ARENA + heap_bytes()).contains(&at);
    let stack = |at: u64| {
        let slot = at.checked_sub(STACKS)? / STACK_BYTES;
        (slot % 2 == 1 && slot < 2 * MOST_STACKS).then_some(slot)
    };
    (in_heap(address) && in_heap(last)) || stack(address).is_some_and(|slot| stack(last) == Some(slot))
}
