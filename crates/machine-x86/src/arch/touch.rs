//! Loads, stores and fetches that may fault for good, without ending whoever does them.
//!
//! In ring 3 they are how a program touches the memory that is measured: if the kernel cannot serve the fault, the
//! access returns why. In ring 0 the kernel's own tests touch programs' memory with them; there no fault is served.
//! Either way the trap handler knows the few instructions by their addresses, and lets them go on at their ends.

use super::frame::Frame;

/// What the assembly functions return: 0 or what [`fail`] was given, and the word that was read.
#[repr(C)]
struct Answer {
    why: u64,
    word: u64,
}

unsafe extern "C" {
    fn touch_load(address: u64) -> Answer;
    fn touch_store(address: u64, word: u64) -> Answer;
    fn touch_fetch(address: u64) -> Answer;
    fn touch_fetched();
    fn touch_failed();
    fn touch_failed_fetch();
}

/// Why an access failed: a number, not 0, that the fault handler gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Why(pub u64);

/// What an access in ring 0 fails with.
pub const FAULT: Why = Why(1);

impl Answer {
    fn result(self) -> Result<u64, Why> {
        if self.why == 0 { Ok(self.word) } else { Err(Why(self.why)) }
    }
}

/// Load a word.
///
/// # Safety
/// A device must not stand there.
#[inline]
pub unsafe fn load(address: u64) -> Result<u64, Why> {
    // SAFETY: as the caller promises; a fault is met.
    unsafe { touch_load(address) }.result()
}

/// Store a word.
///
/// # Safety
/// Whatever may be stored to there is the caller's to change.
#[inline]
pub unsafe fn store(address: u64, word: u64) -> Result<(), Why> {
    // SAFETY: as the caller promises; a fault is met.
    unsafe { touch_store(address, word) }.result().map(drop)
}

/// Run what stands there.
///
/// # Safety
/// If anything stands there that can be run, it only returns.
#[inline]
pub unsafe fn fetch(address: u64) -> Result<(), Why> {
    // SAFETY: as the caller promises; a fault is met.
    unsafe { touch_fetch(address) }.result().map(drop)
}

/// If what faulted is one of these accesses, let it return `why`, which is not 0. `top`: the word on top of the stack
/// that faulted, which tells a fetch from a jump to nowhere.
pub fn fail(frame: &mut Frame, top: impl FnOnce(u64) -> Option<u64>, why: Why) -> bool {
    let is_at = |function: *const ()| frame.rip == function as u64;
    if is_at(touch_load as *const ()) || is_at(touch_store as *const ()) {
        frame.rip = touch_failed as *const () as u64;
    } else if top(frame.rsp) == Some(touch_fetched as *const () as u64) {
        frame.rip = touch_failed_fetch as *const () as u64;
    } else {
        return false;
    }
    frame.rax = why.0;
    true
}
