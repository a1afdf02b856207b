//! Atomics whose every order a model checker explores.
//!
//! loom takes a sequentially consistent access for an acquiring or releasing one, and so finds faults that no machine
//! has. Here each such access is a read-modify-write, which reads the newest value of all. As loom runs one operation
//! after the other, these accesses then have one order that all threads agree on, which is what the memory model
//! promises of them, and, unlike with fences, nothing is promised of any others.

use loom::sync::atomic::Ordering::{self, *};

macro_rules! explored {
    ($name:ident, $value:ty, $same:ident($nothing:expr) $(, $operation:ident)*) => {
        /// An atomic under a model checker.
        #[derive(Default)]
        pub struct $name(loom::sync::atomic::$name);

        impl $name {
            /// A new atomic.
            pub fn new(value: $value) -> Self {
                Self(loom::sync::atomic::$name::new(value))
            }
            /// Read.
            pub fn load(&self, ordering: Ordering) -> $value {
                if ordering == SeqCst { self.0.$same($nothing, Acquire) } else { self.0.load(ordering) }
            }
            /// Write.
            pub fn store(&self, value: $value, ordering: Ordering) {
                if ordering == SeqCst {
                    self.0.swap(value, Release);
                } else {
                    self.0.store(value, ordering);
                }
            }
            /// Write, returning what was there.
            pub fn swap(&self, value: $value, ordering: Ordering) -> $value {
                self.0.swap(value, ordering)
            }
            $(
                /// Change, returning what was there.
                pub fn $operation(&self, value: $value, ordering: Ordering) -> $value {
                    self.0.$operation(value, ordering)
                }
            )*
        }
    };
}

explored!(AtomicBool, bool, fetch_or(false));
explored!(AtomicU32, u32, fetch_add(0), fetch_add, fetch_sub, fetch_or, fetch_and);
explored!(AtomicU64, u64, fetch_add(0), fetch_add, fetch_or, fetch_and, fetch_max);

impl AtomicU32 {
    /// Write `new` if it holds `current`; returns what was there either way.
    pub fn compare_exchange(
        &self,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        self.0.compare_exchange(current, new, success, failure)
    }
}
