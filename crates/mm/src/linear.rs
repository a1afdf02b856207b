//! Values that must be used up.
//!
//! Rust lets a value be dropped wherever it goes out of scope. For what still has to be flushed, or is still to be
//! given back, that is a fault: a stale translation, a lost page. `#[must_use]` sees a value that is not even named;
//! what goes out of scope under a name is seen when it is dropped, by this.
//!
//! A linear type has no public fields, is not [`Copy`], and ends in a method that takes it by value and calls
//! `spend`. Dropping one anywhere else panics, in every build. The lints of the crate (`clippy.toml`, and the head of
//! `lib.rs`) close what is left: an ignored result, `let _`, and [`core::mem::forget`].

/// Have a type panic when it is dropped, and give it `spend`, with which its last method ends; or have it panic only
/// where the expression says that it is not finished. Where a panic passes already, nothing is added to it.
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
            #[expect(clippy::mem_forget, reason = "it has been used up")]
            fn spend(self) {
                core::mem::forget(self);
            }
        }
    };
}
pub(crate) use linear;

/// A linear value goes out of scope.
#[cold]
#[inline(never)]
pub(crate) fn dropped(remedy: &str) {
    if !unwinding() {
        panic!("{remedy}");
    }
}

/// Does a panic pass, so that values are dropped by it? Where no host unwinds, a panic ends everything.
fn unwinding() -> bool {
    #[cfg(any(test, feature = "std"))]
    return std::thread::panicking();
    #[cfg(not(any(test, feature = "std")))]
    false
}
