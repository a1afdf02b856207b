//! Atomics of unit tests: the real ones, which count the read-modify-writes of each thread.

extern crate std;

use core::cell::Cell;
use core::sync::atomic::{self, Ordering};

std::thread_local! {
    static CHANGES: Cell<u64> = const { Cell::new(0) };
}

/// Read-modify-writes of integers that this thread has done so far; those of locks and booleans are not counted.
pub fn changes() -> u64 {
    CHANGES.with(Cell::get)
}

fn count() {
    CHANGES.with(|changes| changes.set(changes.get() + 1));
}

macro_rules! integer {
    ($name:ident, $int:ty) => {
        /// An atomic integer that counts its changes.
        #[derive(Default)]
        #[repr(transparent)]
        pub struct $name(atomic::$name);

        // SAFETY: a transparent wrapper of an atomic integer; all bytes zero is the integer 0.
        #[allow(unsafe_code)]
        unsafe impl bytemuck::Zeroable for $name {}

        impl $name {
            /// A new one.
            pub const fn new(value: $int) -> Self {
                Self(atomic::$name::new(value))
            }
            /// Read.
            pub fn load(&self, order: Ordering) -> $int {
                self.0.load(order)
            }
            /// Write.
            pub fn store(&self, value: $int, order: Ordering) {
                self.0.store(value, order)
            }
            /// Write `new` if it holds `current`; returns what was there either way.
            pub fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                count();
                self.0.compare_exchange(current, new, success, failure)
            }
            integer!(@ $int: swap fetch_add fetch_sub fetch_or fetch_and fetch_max);
        }
    };
    (@ $int:ty: $($method:ident)*) => {
        $(
            /// As the real one's.
            pub fn $method(&self, value: $int, order: Ordering) -> $int {
                count();
                self.0.$method(value, order)
            }
        )*
    };
}

integer!(AtomicU16, u16);
integer!(AtomicU32, u32);
integer!(AtomicU64, u64);
integer!(AtomicI64, i64);
