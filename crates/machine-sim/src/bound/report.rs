//! The result of the bound.

use mm::event::Concern;
use std::collections::BTreeMap;

/// Why a stale translation had to be flushed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// Its frame was allocated again.
    Reuse,
    /// Its address got another meaning or another protection.
    Address,
    /// The content of its file changed.
    Content,
    /// A CPU may have stored through it, and its frame was written back, copied or freed.
    Writable,
    /// The operation that removed it returned.
    Return,
    /// The memory manager settled a space.
    SettleSpace,
    /// The memory manager settled a file.
    SettleFile,
    /// The memory manager settled frames.
    SettleFrames,
}

impl Cause {
    /// The cause of a hazard.
    pub(super) const fn of_hazard(concern: &Concern) -> Cause {
        match concern {
            Concern::Pages { .. } => Cause::Address,
            Concern::FlushedAtOnce { .. } | Concern::Emptied { .. } => Cause::Return,
            Concern::File { .. } => Cause::Content,
            Concern::Frames { .. } => Cause::Writable,
        }
    }

    /// The cause of a settlement.
    pub(super) const fn of_settling(concern: &Concern) -> Cause {
        match concern {
            Concern::Pages { .. } | Concern::FlushedAtOnce { .. } | Concern::Emptied { .. } => {
                Cause::SettleSpace
            }
            Concern::File { .. } => Cause::SettleFile,
            Concern::Frames { .. } => Cause::SettleFrames,
        }
    }

    /// Its name, for tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Cause::Reuse => "reuse",
            Cause::Address => "address",
            Cause::Content => "content",
            Cause::Writable => "writable",
            Cause::Return => "return",
            Cause::SettleSpace => "settle_space",
            Cause::SettleFile => "settle_file",
            Cause::SettleFrames => "settle_frames",
        }
    }

    /// The cause as a clause.
    pub(super) const fn clause(self) -> &'static str {
        match self {
            Cause::Reuse => "the frame was allocated again",
            Cause::Address => "the address got another meaning or another protection",
            Cause::Content => "the file's content changed",
            Cause::Writable => "the frame, to which CPUs could store, was written back, copied or freed",
            Cause::Return => "the operation that removed it returned",
            Cause::SettleSpace | Cause::SettleFile | Cause::SettleFrames => "the memory manager settled",
        }
    }
}

/// How often a cause mattered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CauseCount {
    /// Stale translations that had to be gone from another CPU, which had not dropped them by itself.
    pub deadlines: u64,
    /// Those of them that no round chosen before could serve: rounds of the bound.
    pub rounds: u64,
}

/// The fewest flushes at one level.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BoundLevel {
    /// Rounds: flush requests to other CPUs.
    pub rounds: u64,
    /// Receptions: CPUs that flush for another's request.
    pub receptions: u64,
    /// By cause.
    pub causes: BTreeMap<Cause, CauseCount>,
}

/// What a run did, and what any safe policy must do on the same trace.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BoundReport {
    /// Rounds of the run itself.
    pub rounds: u64,
    /// Receptions of the run itself.
    pub receptions: u64,
    /// With the latest safe moments as deadlines.
    pub l1: BoundLevel,
    /// With the moments at which the memory manager settles as deadlines, if they are earlier.
    pub l2: BoundLevel,
    /// Translations that were removed while some CPU could hold them.
    pub stale: u64,
    /// The most of them that were open at once.
    pub open_max: u64,
}
