//! How the upper levels of the kernel handle entries from ring 3.

use crate::arch::frame::Frame;
use mm::api::AccessKind;
use spin::Once;

/// Called on the kernel stack of the entering task, with interrupts on; all hooks may sleep, and may end the
/// task.
pub trait Hooks: Sync {
    /// Handle a page fault of ring 3 at `address`. On return, ring 3 continues with the registers in `frame`.
    fn user_fault(&self, address: u64, access: AccessKind, frame: &mut Frame);
    /// Handle a system call. The result is returned in rax and rdx.
    fn syscall(&self, number: u64, args: [u64; 6]) -> [u64; 2];
    /// A tick has interrupted ring 3, or has occurred while the task was in the kernel: a good moment to
    /// check whether the task must end.
    fn user_tick(&self) {}
}

static HOOKS: Once<&'static dyn Hooks> = Once::new();

/// Set the hooks. Only the first call has an effect.
pub fn set(hooks: &'static dyn Hooks) {
    HOOKS.call_once(|| hooks);
}

/// The hooks.
///
/// # Panics
/// If ring 3 was entered before they were set.
pub fn get() -> &'static dyn Hooks {
    *HOOKS.get().expect("hooks must be set before ring 3 is entered")
}
