//! What the bound has found.

use mm::event::Concern;
use std::collections::BTreeMap;

/// Why a stale translation had to be gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cause {
    /// Its frame was handed out again.
    Reuse,
    /// Its address got another meaning or other rights.
    Address,
    /// The content of its file changed.
    Content,
    /// It allowed stores, and its frame was saved or given away.
    Writable,
    /// Whoever took it away returned.
    Return,
    /// The memory manager settled a space.
    SettleSpace,
    /// The memory manager settled a file.
    SettleFile,
    /// The memory manager settled frames.
    SettleFrames,
}

impl Cause {
    /// Why these must be gone, if the memory manager says only that they must.
    pub(super) const fn of_hazard(concern: &Concern) -> Cause {
        match concern {
            Concern::Pages { .. } => Cause::Address,
            Concern::FlushedAtOnce { .. } | Concern::Emptied { .. } => Cause::Return,
            Concern::File { .. } => Cause::Content,
            Concern::Frames { .. } => Cause::Writable,
        }
    }

    /// Who is paid for when these are.
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

    /// What happened, as the end of a sentence.
    pub(super) const fn happening(self) -> &'static str {
        match self {
            Cause::Reuse => "the frame was handed out again",
            Cause::Address => "the address got another meaning or other rights",
            Cause::Content => "the file's content changed",
            Cause::Writable => "the frame, which it could store to, was saved or given away",
            Cause::Return => "whoever took it away returned",
            Cause::SettleSpace | Cause::SettleFile | Cause::SettleFrames => "the memory manager settled",
        }
    }
}

/// How often a cause mattered.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CauseCount {
    /// Stale translations that had to be gone from another CPU then, and that it had not dropped by itself.
    pub deadlines: u64,
    /// Of these, such as no round that was chosen before could serve: the rounds of the bound.
    pub rounds: u64,
}

/// The least that is needed at one level.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BoundLevel {
    /// Rounds: flush requests to other CPUs.
    pub rounds: u64,
    /// Receptions: CPUs that flush for another's request.
    pub receptions: u64,
    /// By cause.
    pub causes: BTreeMap<Cause, CauseCount>,
}

/// What a run did and what any safe policy has to do on the same trace.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BoundReport {
    /// Rounds of the run itself.
    pub rounds: u64,
    /// Receptions of the run itself.
    pub receptions: u64,
    /// With the latest safe moments as deadlines.
    pub l1: BoundLevel,
    /// With the moments as deadlines at which the memory manager looks.
    pub l2: BoundLevel,
    /// Translations that were taken away while another CPU, or this one, could hold them.
    pub stale: u64,
    /// The most of them that were open at once.
    pub open_max: u64,
}
