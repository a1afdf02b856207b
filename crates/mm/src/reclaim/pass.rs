//! A pass over a list of isolated folios: its state, and the fates of the folios.

use super::{DirtyCounts, ScanControl};
use crate::frame::List;
use crate::lru::mglru::LookAround;
use crate::tlb::UnmapBatch;
use crate::units::*;

/// What the loop did, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Shrunk {
    /// Freed.
    pub reclaimed: u64,
    /// Submitted to a device.
    pub pageout: u64,
    pub activated: u64,
    /// Dirty pages and pages under write-back; the caller fills in `taken`.
    pub dirty_counts: DirtyCounts,
}

/// What becomes of a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReclaimFate {
    /// It becomes active.
    Activate,
    /// It goes back to its list.
    Keep,
    /// The same, and it is unlocked already.
    KeepUnlocked,
    /// It is written once the batch has been settled, and stays locked until then.
    Write,
    /// It is freed: no reference is left.
    Free,
    /// It moves to a slower tier of memory.
    Demote,
}

/// How the accesses to a folio are judged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReferenceRule {
    /// Not at all: it is reclaimed, used or not.
    Nothing,
    Chances,
    /// For a policy that proposes: any use since the last look spares the folio.
    AnyUse,
}

/// The state of one pass over a list.
pub(super) struct Pass<'a> {
    pub sc: &'a mut ScanControl,
    pub node: NodeId,
    /// Cold folios go to a slower tier.
    pub demotes: bool,
    /// What the use of a folio means.
    pub rule: ReferenceRule,
    pub batch: UnmapBatch,
    /// For a policy that looks around used entries: what was found there.
    pub look: Option<LookAround>,
    pub out: Shrunk,
    /// Parts of folios that were split in this pass: they are reclaimed, too.
    pub parts: List,
}
