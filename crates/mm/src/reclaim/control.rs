//! What one pass of reclaim wants and what it may do.

use crate::lru::ROOT;
use crate::machine::ZoneKind;
use crate::units::*;

/// The priority that a reclaim starts with: it scans size >> priority of each list. 0 is the most urgent.
pub const DEF_PRIORITY: u32 = 12;
/// Pages scanned at a time, and wanted by a direct reclaim.
pub const SWAP_CLUSTER_MAX: u64 = 32;
/// Rounds without progress after which kswapd gives a node up, and an allocation memory as a whole.
pub const MAX_RECLAIM_RETRIES: u32 = 16;

/// What the batches of one pass over a node met, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DirtyCounts {
    /// Dirty or being written.
    pub dirty: u64,
    /// Dirty, and nobody writes them.
    pub unqueued_dirty: u64,
    /// Being written, and already marked for reclaim when met.
    pub congested: u64,
    /// Being written.
    pub writeback: u64,
    /// Marked, still being written, on a node that cannot keep up.
    pub immediate: u64,
    /// Isolated.
    pub taken: u64,
    /// Isolated from file lists.
    pub file_taken: u64,
}

impl DirtyCounts {
    /// Is most of what stands at the lists' ends being written? Then a harder look brings nothing, and time does.
    pub fn waits_for_devices(&self) -> bool {
        self.taken > 0 && 2 * (self.writeback + self.immediate) >= self.taken
    }
}

/// One reclaim: its aim, its rights, and how it goes. The fields mean what those of Linux's `scan_control` mean.
#[derive(Clone, Debug)]
pub struct ScanControl {
    /// Pages wanted.
    pub nr_to_reclaim: u64,
    /// `Some`: reclaim from this group and those below, because of its limit; `None`: from the node.
    pub target: Option<GroupId>,
    /// Is this kswapd?
    pub kswapd: bool,
    /// Order of the request behind it.
    pub order: Order,
    /// How hard to try: [`DEF_PRIORITY`] at first, 0 at last.
    pub priority: u32,
    /// Highest kind of zone that is wanted.
    pub reclaim_idx: ZoneKind,
    /// May folios be written?
    pub may_writepage: bool,
    /// May mapped folios be unmapped?
    pub may_unmap: bool,
    /// May anonymous memory be swapped out?
    pub may_swap: bool,
    /// Overrides the knob `vm.swappiness`.
    pub swappiness: Option<u64>,
    /// Deactivate whether or not the inactive lists are low.
    pub force_deactivate: bool,
    /// Some deactivation was left out.
    pub skipped_deactivate: bool,
    /// Reclaim from groups below memory.low, too.
    pub memcg_low_reclaim: bool,
    /// Some group was spared for its memory.low.
    pub memcg_low_skipped: bool,
    /// Visit all groups rather than go on where the last reclaimer stopped.
    pub memcg_full_walk: bool,
    /// Which types may be deactivated in this pass: anonymous, file.
    pub may_deactivate: [bool; 2],
    /// There are many inactive file pages that do not thrash: take only those.
    pub cache_trim_mode: bool,
    /// Do not do that.
    pub no_cache_trim_mode: bool,
    /// It was done, and brought nothing.
    pub cache_trim_mode_failed: bool,
    /// There are so few file pages that only anonymous memory is worth scanning.
    pub file_is_tiny: bool,
    /// A block of a costly order is already there.
    pub compaction_ready: bool,
    /// Costs of the two types, as of the start of the pass.
    pub cost: crate::lru::Cost,
    /// Pages scanned.
    pub nr_scanned: u64,
    /// Pages reclaimed.
    pub nr_reclaimed: u64,
    /// What the pass over the current node met.
    pub dirty_counts: DirtyCounts,
}

impl ScanControl {
    /// A reclaim of `nr_to_reclaim` pages for a direct reclaimer, with all rights.
    pub fn new(nr_to_reclaim: u64, order: Order, reclaim_idx: ZoneKind) -> ScanControl {
        ScanControl {
            nr_to_reclaim,
            target: None,
            kswapd: false,
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

    /// The group at the top of what is reclaimed from.
    pub fn top(&self) -> GroupId {
        self.target.unwrap_or(ROOT)
    }

    /// Is it because of a group's limit?
    pub fn is_group(&self) -> bool {
        self.target.is_some()
    }
}
