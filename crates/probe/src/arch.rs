//! The few instructions that Rust has no word for.

use std::sync::atomic::AtomicU8;

/// Whether there is code here for this kind of CPU.
pub(crate) const KNOWN: bool = cfg!(target_arch = "x86_64");

/// Execute `count` additions of which each needs the result of the one before; `count` is rounded up to hundreds.
///
/// Both operands are registers: some CPUs fold additions of constants, which then take no time.
#[cfg(target_arch = "x86_64")]
pub(crate) fn additions(count: u64) -> u64 {
    let mut sum = 0u64;
    for _ in 0..count.div_ceil(100) {
        // SAFETY: the code changes its register and the flags alone.
        unsafe {
            std::arch::asm!(
                ".rept 100", "add {sum}, {one}", ".endr",
                sum = inout(reg) sum, one = in(reg) 1u64,
                options(pure, nomem, nostack)
            );
        }
    }
    sum
}

/// Without code of its own: the caller has looked at [`KNOWN`].
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn additions(count: u64) -> u64 {
    count
}

/// Remove the lines of `bytes` from all caches, and wait until they are gone. Does nothing where [`KNOWN`] is false.
pub(crate) fn evict(bytes: &[u8]) {
    evict_all(bytes.chunks(crate::LINE).map(<[u8]>::as_ptr));
}

/// The same of lines by a byte in each.
pub(crate) fn evict_lines<'a>(lines: impl Iterator<Item = &'a AtomicU8>) {
    evict_all(lines.map(|byte| byte.as_ptr().cast_const()));
}

/// The same by addresses, which are those of memory that may be read.
fn evict_all(lines: impl Iterator<Item = *const u8>) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_mm_clflush, _mm_mfence};
        for line in lines {
            // SAFETY: both callers have references to these lines; evicting one changes no content.
            unsafe { _mm_clflush(line) };
        }
        // SAFETY: the fence changes nothing.
        unsafe { _mm_mfence() };
    }
    #[cfg(not(target_arch = "x86_64"))]
    drop(lines);
}
