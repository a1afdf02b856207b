//! Atomics and cells. The rest of the crate takes them from here and never names `core::sync::atomic`.
//!
//! Two builds:
//! - default: the real atomics, for machines whose CPUs run at the same time;
//! - feature `one-thread`: plain cells with the same methods, for a simulator that runs all CPUs of the machine on
//!   one thread. A locked read-modify-write costs about 20 cycles, and an access path has a dozen of them. The types
//!   are then not `Sync`, so using them from two threads does not compile.
//!
//! With the feature `counted`, for unit tests, those of the first count how often they are changed.
//!
//! Under a model checker (features `loom` and `shuttle`) the atomics of [`modelled`] are the checker's; all others stay
//! real.

#[cfg(not(feature = "one-thread"))]
pub use core::sync::atomic::{AtomicBool, Ordering};
#[cfg(not(any(
    feature = "one-thread",
    all(feature = "counted", not(any(feature = "loom", feature = "shuttle")))
)))]
pub use core::sync::atomic::{AtomicI64, AtomicU16, AtomicU32, AtomicU64};
#[cfg(all(
    feature = "counted",
    not(any(feature = "one-thread", feature = "loom", feature = "shuttle"))
))]
pub use counted::{AtomicI64, AtomicU16, AtomicU32, AtomicU64};

#[cfg(feature = "one-thread")]
pub use cells::{AtomicBool, AtomicI64, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// What a value must be to be seen by several CPUs: `Sync`, unless all CPUs share one thread.
#[cfg(not(feature = "one-thread"))]
pub trait Shared: Sync {}
#[cfg(not(feature = "one-thread"))]
impl<T: Sync + ?Sized> Shared for T {}

/// What a value must be to be seen by several CPUs: `Sync`, unless all CPUs share one thread.
#[cfg(feature = "one-thread")]
pub trait Shared {}
#[cfg(feature = "one-thread")]
impl<T: ?Sized> Shared for T {}

/// The atomics of a protocol that a model checker explores: those of rooms `lock` and `tlb`. In ordinary builds they
/// are the same as all others.
pub mod modelled {
    #[cfg(feature = "loom")]
    pub use super::explored::{AtomicBool, AtomicU32, AtomicU64};
    #[cfg(not(any(feature = "loom", feature = "shuttle")))]
    pub use super::{AtomicBool, AtomicU32, AtomicU64};
    #[cfg(feature = "shuttle")]
    pub use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
}

#[cfg(all(feature = "counted", not(any(feature = "one-thread", feature = "loom", feature = "shuttle"))))]
pub mod counted;

#[cfg(feature = "loom")]
mod explored;

#[cfg(feature = "one-thread")]
mod cells {
    use core::cell::Cell;
    pub use core::sync::atomic::Ordering;

    macro_rules! cell {
        ($name:ident, $value:ty) => {
            /// A cell with an atomic's methods; orderings mean nothing on one thread.
            #[derive(Default)]
            #[repr(transparent)]
            pub struct $name(Cell<$value>);

            impl $name {
                /// A new cell.
                pub const fn new(value: $value) -> Self {
                    Self(Cell::new(value))
                }
                /// Read.
                #[inline(always)]
                pub fn load(&self, _: Ordering) -> $value {
                    self.0.get()
                }
                /// Write.
                #[inline(always)]
                pub fn store(&self, value: $value, _: Ordering) {
                    self.0.set(value)
                }
                /// Write, returning what was there.
                #[inline(always)]
                pub fn swap(&self, value: $value, _: Ordering) -> $value {
                    self.0.replace(value)
                }
            }
        };
    }

    macro_rules! integer {
        ($name:ident, $int:ty) => {
            cell!($name, $int);

            // SAFETY: a transparent wrapper of a Cell of an integer; all bytes zero is the integer 0.
            #[allow(unsafe_code)]
            unsafe impl bytemuck::Zeroable for $name {}

            impl $name {
                /// Add (wrapping), returning what was there.
                #[inline(always)]
                pub fn fetch_add(&self, value: $int, _: Ordering) -> $int {
                    self.0.replace(self.0.get().wrapping_add(value))
                }
                /// Subtract (wrapping), returning what was there.
                #[inline(always)]
                pub fn fetch_sub(&self, value: $int, _: Ordering) -> $int {
                    self.0.replace(self.0.get().wrapping_sub(value))
                }
                /// Or, returning what was there.
                #[inline(always)]
                pub fn fetch_or(&self, value: $int, _: Ordering) -> $int {
                    self.0.replace(self.0.get() | value)
                }
                /// And, returning what was there.
                #[inline(always)]
                pub fn fetch_and(&self, value: $int, _: Ordering) -> $int {
                    self.0.replace(self.0.get() & value)
                }
                /// Maximum, returning what was there.
                #[inline(always)]
                pub fn fetch_max(&self, value: $int, _: Ordering) -> $int {
                    self.0.replace(self.0.get().max(value))
                }
                /// Write `new` if the cell holds `current`; returns what was there either way.
                #[inline(always)]
                pub fn compare_exchange(
                    &self,
                    current: $int,
                    new: $int,
                    _: Ordering,
                    _: Ordering,
                ) -> Result<$int, $int> {
                    let old = self.0.get();
                    if old == current {
                        self.0.set(new);
                        Ok(old)
                    } else {
                        Err(old)
                    }
                }
            }
        };
    }

    integer!(AtomicU16, u16);
    integer!(AtomicU32, u32);
    integer!(AtomicU64, u64);
    integer!(AtomicI64, i64);
    cell!(AtomicBool, bool);
}
