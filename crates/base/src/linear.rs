//! Values that must be consumed.
//!
//! Rust drops a value wherever it goes out of scope. For a value that stands for a pending flush or a reference that
//! is a bug: a stale translation or a leaked page. `#[must_use]` catches a value that is never bound; this module
//! catches one that is bound and dropped.
//!
//! A linear type has no public fields, is not [`Copy`], and ends in a method that takes it by value and calls `spend`.
//! Dropping one anywhere else panics, in every build. The crate's lints (`clippy.toml` and the head of `lib.rs`) close
//! the remaining ways out: an ignored result, `let _`, and [`core::mem::forget`].

/// Make dropping a type panic, and give it `spend`, which its consuming method calls last. With an expression,
/// dropping panics only where the expression says that the value is unfinished. During unwinding nothing panics again.
#[macro_export]
macro_rules! linear {
    ($type:ty, $this:ident => $unfinished:expr, $remedy:literal) => {
        impl Drop for $type {
            #[inline]
            fn drop(&mut self) {
                let $this = self;
                if $unfinished {
                    $crate::linear::dropped($remedy);
                }
            }
        }
    };
    ($type:ty, $remedy:literal) => {
        impl Drop for $type {
            #[inline]
            fn drop(&mut self) {
                $crate::linear::dropped($remedy);
            }
        }

        impl $type {
            #[inline(always)]
            #[expect(clippy::mem_forget, reason = "the value has been consumed")]
            fn spend(self) {
                core::mem::forget(self);
            }
        }
    };
}
/// A linear value goes out of scope unconsumed.
#[cold]
#[inline(never)]
pub fn dropped(remedy: &str) {
    if !unwinding() {
        panic!("{remedy}");
    }
}

/// Whether a panic is unwinding and drops values. Without `std` a panic ends the program.
fn unwinding() -> bool {
    #[cfg(any(test, feature = "std"))]
    return std::thread::panicking();
    #[cfg(not(any(test, feature = "std")))]
    false
}
