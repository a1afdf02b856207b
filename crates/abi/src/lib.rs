//! The vocabulary of system calls: their arguments and results, declared once for programs, kernels and traces.
//!
//! Programs make the calls (`program`), kernels carry them out (on the simulated machine, on the booted one, Linux),
//! the memory manager gives them their meaning, and traces record them. Advice, policies and errors have Linux's
//! numbers, as have the calls that Linux has in the same form. A value also has a *code*, its position in its table.
//! Older traces hold codes, so rows are only added at the end.
//!
//! This crate knows nothing of memory management and depends on no other crate of the project.
#![no_std]
#![forbid(unsafe_code)]

mod advice;
pub mod call;
mod error;
mod group;
mod map;
mod packed;
mod policy;

pub use advice::{Advice, FileAdvice, Forget};
pub use call::{Buffer, Call, Role, Signal, Text};
pub use error::Errno;
pub use group::{Group, GroupLimits};
pub use map::{AccessKind, Map, MapSource, Prot, Remap};
pub use packed::{PACKED_UNIT, Packed};
pub use policy::{MemPolicy, PolicyMode};

/// Declare an enum whose values have Linux's numbers.
macro_rules! numbered {
    ($(#[$doc:meta])* $name:ident { $($(#[$help:meta])* $value:ident = $number:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$help])* $value = $number,)*
        }

        impl $name {
            /// All values, by code.
            pub const ALL: [$name; [$($number,)*].len()] = [$($name::$value,)*];

            /// Linux's number.
            pub const fn number(self) -> u64 {
                self as u64
            }

            /// The value that has this number on Linux.
            pub fn from_number(number: u64) -> Option<$name> {
                Self::ALL.into_iter().find(|value| value.number() == number)
            }

            /// Its code: its position in [`Self::ALL`].
            pub fn code(self) -> u64 {
                Self::ALL.iter().position(|&value| value == self).expect("every value is in ALL") as u64
            }

            /// The value that has this code.
            pub fn from_code(code: u64) -> Option<$name> {
                usize::try_from(code).ok().and_then(|code| Self::ALL.get(code)).copied()
            }
        }
    };
}
pub(crate) use numbered;

#[cfg(test)]
mod tests;
