//! The words of system calls: what they take and what they answer, declared once for all who say or hear them.
//!
//! Programs say them (`program`), kernels hear them (the simulated machine, the booted one, Linux), the memory manager
//! gives them their meaning, traces and the recorder write them down. Advice, policies and errors have Linux's numbers,
//! calls have their own. What a trace or a register holds is a value's *code*, its place in its table, so rows are only
//! ever added at the end.
//!
//! Nothing here knows of memory management: no crate of the project stands below this one.
#![no_std]
#![forbid(unsafe_code)]

mod advice;
pub mod call;
mod error;
mod group;
mod map;
mod policy;

pub use advice::{Advice, FileAdvice, Forget};
pub use call::{Buffer, Call, Role, Signal, Text};
pub use error::Errno;
pub use group::{Group, GroupLimits};
pub use map::{AccessKind, Map, MapSource, Prot, Remap};
pub use policy::{MemPolicy, PolicyMode};

/// Declare an enum whose values have the numbers that Linux gives them.
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

            /// The number that Linux gives it.
            pub const fn number(self) -> u64 {
                self as u64
            }

            /// The value of a number of Linux's.
            pub fn from_number(number: u64) -> Option<$name> {
                Self::ALL.into_iter().find(|value| value.number() == number)
            }

            /// Its code: its place among all.
            pub fn code(self) -> u64 {
                Self::ALL.iter().position(|&value| value == self).expect("all values are there") as u64
            }

            /// The value of a code.
            pub fn from_code(code: u64) -> Option<$name> {
                usize::try_from(code).ok().and_then(|code| Self::ALL.get(code)).copied()
            }
        }
    };
}
pub(crate) use numbered;

#[cfg(test)]
mod tests;
