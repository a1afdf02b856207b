//! What a reader of a format passes on.

use abi::AccessKind;

use super::error::ImportError;

/// Programs have the addresses below this one; those above are the kernel's.
pub(super) const USER_HALF: u64 = 1 << 47;

/// One thing that a recording tells.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Step {
    /// A task touched memory. Tasks are what the recording calls them; each becomes a thread.
    Access {
        task: u64,
        addr: u64,
        /// At least 1. An access to several pages is one to each of them.
        bytes: u64,
        mode: AccessKind,
        /// How often in a row, at least once.
        times: u32,
    },
    /// A task executed this many instructions.
    Instructions { task: u64, count: u64 },
    /// What the task does next was at this time, in nanoseconds from any beginning.
    At { task: u64, nanos: u64 },
    /// Something that has no place in a trace, in words that follow a number: "samples without an address".
    LeftOut(&'static str),
}

/// Takes the steps of a recording, in their order.
pub(super) type Sink<'a> = dyn FnMut(Step) -> Result<(), ImportError> + 'a;
