//! What the kernel's upper floors do when ring 3 comes in.

use crate::arch::frame::Frame;
use mm::api::AccessKind;
use spin::Once;

/// Served on the kernel stack of the task that came, with interrupts on; all may sleep, and may end the task.
pub trait Hooks: Sync {
    /// A page fault of ring 3 at `address`. When this returns, ring 3 goes on with the registers in `frame`.
    fn user_fault(&self, address: u64, access: AccessKind, frame: &mut Frame);
    /// A system call. What is returned goes to rax and rdx.
    fn syscall(&self, number: u64, args: [u64; 6]) -> [u64; 2];
    /// A tick has interrupted ring 3, or came while the task was in the kernel: a good moment to look whether it is to
    /// end.
    fn user_tick(&self) {}
}

static HOOKS: Once<&'static dyn Hooks> = Once::new();

/// Say who serves ring 3. Only the first to call this does.
pub fn set(hooks: &'static dyn Hooks) {
    HOOKS.call_once(|| hooks);
}

/// Who serves ring 3.
///
/// # Panics
/// If ring 3 was entered before anybody was named.
pub fn get() -> &'static dyn Hooks {
    *HOOKS.get().expect("hooks are set before ring 3 is entered")
}
