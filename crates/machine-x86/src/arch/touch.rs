//! Loads, stores and fetches that may fault without ending the task.
//!
//! In ring 3, programs use them to access the measured memory: if the kernel cannot handle the fault, the
//! access returns an error. In ring 0, the kernel's own tests use them to access programs' memory; no fault
//! is handled then. In both cases the trap handler recognizes the few instructions by their addresses, and
//! continues at their error exits.

use super::frame::Frame;

/// The result of the assembly functions: 0 or the error of [`fail`], and the word that was read.
#[repr(C)]
struct RawResult {
    error: u64,
    word: u64,
}

unsafe extern "C" {
    fn touch_load(address: u64) -> RawResult;
    fn touch_store(address: u64, word: u64) -> RawResult;
    fn touch_fetch(address: u64) -> RawResult;
    fn touch_fetched();
    fn touch_failed();
    fn touch_failed_fetch();
}

/// Why an access failed: a nonzero number from the fault handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessError(pub u64);

/// The error of an access in ring 0.
pub const FAULT: AccessError = AccessError(1);

impl RawResult {
    fn result(self) -> Result<u64, AccessError> {
        if self.error == 0 { Ok(self.word) } else { Err(AccessError(self.error)) }
    }
}

/// Load a word.
///
/// # Safety
/// The address must not belong to a device.
#[inline]
pub unsafe fn load(address: u64) -> Result<u64, AccessError> {
    // SAFETY: as the caller promises; the handler catches a fault.
    unsafe { touch_load(address) }.result()
}

/// Store a word.
///
/// # Safety
/// The caller must be allowed to change the word.
#[inline]
pub unsafe fn store(address: u64, word: u64) -> Result<(), AccessError> {
    // SAFETY: as the caller promises; the handler catches a fault.
    unsafe { touch_store(address, word) }.result().map(drop)
}

/// Execute the code at an address.
///
/// # Safety
/// Any executable code there must only return.
#[inline]
pub unsafe fn fetch(address: u64) -> Result<(), AccessError> {
    // SAFETY: as the caller promises; the handler catches a fault.
    unsafe { touch_fetch(address) }.result().map(drop)
}

/// If one of these accesses faulted, let it return `error`, which is not 0. `top` reads the word at the top
/// of the faulting stack, which distinguishes a fetch from a jump to a wrong address.
pub fn fail(frame: &mut Frame, top: impl FnOnce(u64) -> Option<u64>, error: AccessError) -> bool {
    let is_at = |function: *const ()| frame.rip == function as u64;
    if is_at(touch_load as *const ()) || is_at(touch_store as *const ()) {
        frame.rip = touch_failed as *const () as u64;
    } else if top(frame.rsp) == Some(touch_fetched as *const () as u64) {
        frame.rip = touch_failed_fetch as *const () as u64;
    } else {
        return false;
    }
    frame.rax = error.0;
    true
}
