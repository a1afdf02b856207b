//! The aim of a reclaim, and what it may do.

use crate::lru::ROOT;
use crate::machine::ZoneKind;
use crate::units::*;

/// The first priority of a reclaim: it scans size >> priority of each list. 0 is the most urgent.
pub(crate) const DEF_PRIORITY: u32 = 12;
/// Number of pages that are scanned at a time, and that a direct reclaim wants.
pub(crate) const SWAP_CLUSTER_MAX: u64 = 32;
/// Rounds without progress after which kswapd gives a node up, and an allocation gives up.
pub(crate) const MAX_RECLAIM_RETRIES: u32 = 16;

/// What the batches of one pass over a node found, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct DirtyCounts {
    /// Dirty or under write-back.
    pub dirty: u64,
    /// Dirty and not under write-back.
    pub unqueued_dirty: u64,
    /// Under write-back, and marked for reclaim before.
    pub congested: u64,
    /// Under write-back.
    pub writeback: u64,
    /// Marked before and still under write-back, on a node that cannot keep up.
    pub immediate: u64,
    /// Isolated.
    pub taken: u64,
    /// Isolated from file lists.
    pub file_taken: u64,
}

impl DirtyCounts {
    /// Whether most of the isolated pages are under write-back. Then a higher priority is useless; time helps.
    pub(crate) fn waits_for_devices(&self) -> bool {
        self.taken > 0 && 2 * (self.writeback + self.immediate) >= self.taken
    }
}

/// One reclaim: its aim, its rights and its progress. The fields are those of Linux's `scan_control`.
#[derive(Clone, Debug)]
pub(crate) struct ScanControl {
    /// Pages wanted.
    pub nr_to_reclaim: u64,
    /// `Some`: reclaim from this group and the groups below, because of its limit; `None`: from the node.
    pub target: Option<GroupId>,
    /// Whether this is kswapd.
    pub kswapd: bool,
    /// Whether this task walks page tables in this pass (MGLRU): kswapd may at any time, another one has begun to.
    pub mm_walk: bool,
    /// Order of the allocation that needs it.
    pub order: Order,
    /// How hard to try: [`DEF_PRIORITY`] at first, 0 at last.
    pub priority: u32,
    /// Highest kind of zone that is wanted.
    pub reclaim_idx: ZoneKind,
    /// Whether folios may be written.
    pub may_writepage: bool,
    /// Whether mapped folios may be unmapped.
    pub may_unmap: bool,
    /// Whether anonymous memory may be swapped out.
    pub may_swap: bool,
    /// Overrides the knob `vm.swappiness`.
    pub swappiness: Option<u64>,
    /// Deactivate even if the inactive lists are not low.
    pub force_deactivate: bool,
    /// Some deactivation was skipped.
    pub skipped_deactivate: bool,
    /// Reclaim from groups below memory.low, too.
    pub memcg_low_reclaim: bool,
    /// A group was spared because of its memory.low.
    pub memcg_low_skipped: bool,
    /// Visit all groups instead of continuing where the last reclaimer stopped.
    pub memcg_full_walk: bool,
    /// Which types may be deactivated in this pass: anonymous, file.
    pub may_deactivate: [bool; 2],
    /// There are many inactive file pages that do not thrash: reclaim only these.
    pub cache_trim_mode: bool,
    /// Do not use `cache_trim_mode`.
    pub no_cache_trim_mode: bool,
    /// `cache_trim_mode` was used and reclaimed nothing.
    pub cache_trim_mode_failed: bool,
    /// There are so few file pages that only anonymous memory is worth scanning.
    pub file_is_tiny: bool,
    /// A block of a costly order is free already.
    pub compaction_ready: bool,
    /// Costs of the two types at the start of the pass.
    pub cost: crate::lru::Cost,
    pub nr_scanned: u64,
    pub nr_reclaimed: u64,
    /// What the pass over the current node found.
    pub dirty_counts: DirtyCounts,
}

impl ScanControl {
    /// A reclaim of `nr_to_reclaim` pages for a direct reclaimer, with all rights.
    pub fn new(nr_to_reclaim: u64, order: Order, reclaim_idx: ZoneKind) -> ScanControl {
        ScanControl {
            nr_to_reclaim,
            target: None,
            kswapd: false,
            mm_walk: false,
            order,
            priority: DEF_PRIORITY,
            reclaim_idx,
            may_writepage: true,
            may_unmap: true,
            may_swap: true,
            swappiness: None,
            force_deactivate: false,
            skipped_deactivate: false,
            memcg_low_reclaim: false,
            memcg_low_skipped: false,
            memcg_full_walk: false,
            may_deactivate: [false; 2],
            cache_trim_mode: false,
            no_cache_trim_mode: false,
            cache_trim_mode_failed: false,
            file_is_tiny: false,
            compaction_ready: false,
            cost: crate::lru::Cost::default(),
            nr_scanned: 0,
            nr_reclaimed: 0,
            dirty_counts: DirtyCounts::default(),
        }
    }

    pub fn top(&self) -> GroupId {
        self.target.unwrap_or(ROOT)
    }

    /// Whether a group's limit is the reason.
    pub(crate) fn is_group(&self) -> bool {
        self.target.is_some()
    }
}
