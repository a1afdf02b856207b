//! Loads and stores that may fault without ending the task: the handler of SIGSEGV and SIGBUS recognizes the
//! instructions by their addresses, and makes them return the signal.

use crate::sys::{self, nr};
use core::arch::global_asm;
use program::Signal;

/// The result of the assembly functions: the word that was read, and 0 or the number of a signal.
#[repr(C)]
struct TouchResult {
    word: u64,
    signal: u64,
}

const SIGBUS: u64 = 7;
const SIGSEGV: u64 = 11;

global_asm!(
    ".globl touch_load, touch_store, touch_fill_page, touch_failed, signal_return",
    "touch_load: mov rax, [rdi]",
    "xor edx, edx",
    "ret",
    "touch_store: mov [rdi], rsi",
    "xor edx, edx",
    "ret",
    "touch_fill_page: mov ecx, 512",
    ".globl touch_fill",
    "touch_fill: rep movsq",
    "xor edx, edx",
    "ret",
    // The handler has set rdx.
    "touch_failed: ret",
    "signal_return: mov eax, 15",
    "syscall",
);

unsafe extern "C" {
    fn touch_load(addr: u64) -> TouchResult;
    fn touch_store(addr: u64, word: u64) -> TouchResult;
    fn touch_fill_page(addr: u64, words: *const [u64; 512]) -> TouchResult;
    /// The instruction that may fault.
    fn touch_fill();
    fn touch_failed();
    fn signal_return();
}

/// Load the 8-byte word at `addr`.
#[inline]
pub fn load(addr: u64) -> Result<u64, Signal> {
    // SAFETY: this only reads a word, and the handler catches a fault.
    let TouchResult { word, signal } = unsafe { touch_load(addr) };
    check(addr, signal).map(|()| word)
}

/// Store a word at `addr`.
#[inline]
pub fn store(addr: u64, word: u64) -> Result<(), Signal> {
    // SAFETY: a program's addresses are not the guest's own (see `Os::access`), and the handler catches a
    // fault.
    let TouchResult { signal, .. } = unsafe { touch_store(addr, word) };
    check(addr, signal)
}

/// Store all words of the page at `addr`.
pub fn fill(addr: u64, words: &[u64; 512]) -> Result<(), Signal> {
    // SAFETY: as in `store`.
    let TouchResult { signal, .. } = unsafe { touch_fill_page(addr, words) };
    check(addr, signal)
}

#[inline]
fn check(addr: u64, signal: u64) -> Result<(), Signal> {
    match signal {
        0 => Ok(()),
        SIGBUS => Err(Signal::Bus { addr }),
        _ => Err(Signal::Segv { addr }),
    }
}

/// Words of the kernel's `ucontext` before the registers, and the index of the registers used here.
const REGISTERS: usize = 5;
const RDX: usize = REGISTERS + 12;
const RIP: usize = REGISTERS + 16;

extern "C" fn handle(signal: u64, _info: u64, context: *mut u64) {
    // SAFETY: the kernel passes the context of the interrupted code.
    let word = |at: usize| unsafe { &mut *context.add(at) };
    let at = *word(RIP);
    let mut known = [touch_load as *const (), touch_store as *const (), touch_fill as *const ()].into_iter();
    if !known.any(|place| place as u64 == at) {
        crate::report::failed(format_args!("signal {signal} at {at:#x}: a bug in the guest"));
    }
    *word(RDX) = signal;
    *word(RIP) = touch_failed as *const () as u64;
}

/// Install the handlers, also for children.
pub fn install() {
    const INFO: u64 = 4;
    const RESTORER: u64 = 0x0400_0000;
    const NO_DEFER: u64 = 0x4000_0000;
    let action =
        [handle as *const () as u64, INFO | RESTORER | NO_DEFER, signal_return as *const () as u64, 0];
    for signal in [SIGBUS, SIGSEGV] {
        // SAFETY: the handler and its return code exist, and change only what `touch_*` expects.
        unsafe { sys::call(nr::SIGACTION, [signal, action.as_ptr() as u64, 0, 8]) }
            .expect("sigaction must succeed");
    }
}
