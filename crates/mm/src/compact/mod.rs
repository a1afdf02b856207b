//! Compaction: turns scattered free pages into large blocks by moving the folios between them.
//!
//! Two scanners go through a zone towards each other. The *migrate scanner* (`source`) comes from the start and
//! isolates folios that can be moved. The *free scanner* (`free`) comes from the end and isolates free pages.
//! `migrate` moves the folios to these pages, so free memory collects at the start. A pass ends where the scanners
//! meet (`zone`).
//!
//! Compaction is run by an allocation that found no block of its size ([`direct`]); by each node's [`daemon`], when
//! kswapd or an allocation wakes it, or when free memory is too fragmented; and by the user ([`everything`]).
//!
//! The knob `compaction.folios` ([`Folios`]) decides how folios of several pages are treated. Its values are the steps
//! of the patch series that taught Linux to move them whole, and one that the series left undone.

mod daemon;
mod direct;
mod emptiest;
mod free;
mod source;
#[cfg(test)]
mod tests;
mod zone;

pub use daemon::daemon;
pub(crate) use daemon::everything;
#[cfg(test)]
pub(crate) use daemon::everything_by;
pub(crate) use direct::{Attempts, has_block};
pub use direct::{Made, Priority, direct};

use crate::alloc::{HeldBlocks, Watermark, Zone};
use crate::frame::{List, Mobility};
pub use crate::knobs::CompactionFolios as Folios;
use crate::machine::{Machine, ZoneKind};
use crate::migrate::Mode;
use crate::mm_core::MmCore;
use crate::units::*;

impl Folios {
    /// Whether folios of several pages may be isolated.
    fn moves_large(self) -> bool {
        self != Folios::Single
    }

    /// Whether a folio of this size can be moved as it is.
    fn keeps(self, order: Order) -> bool {
        order == Order::ZERO || self >= Folios::Whole
    }

    /// Whether a larger free block may be split for a folio. Steps that know no sizes take pages from any block.
    fn splits_free(self) -> bool {
        self != Folios::Whole
    }
}

/// Result of a compaction. Greater is better; of several zones the greatest counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Outcome {
    /// Too little memory is free, or an allocation of the order would not fail because of fragmentation.
    Skipped,
    /// Compaction of the zone failed lately.
    Deferred,
    /// Compaction must continue.
    Continue,
    /// The whole zone has been scanned without success.
    Complete,
    /// The part of the zone not scanned before has been scanned without success.
    PartialSkipped,
    /// It was in another task's way, or had no place to move folios to.
    Contended,
    /// A block is available now, or memory is no longer too fragmented.
    Success,
}

/// What a compaction is for, and how it is done.
#[derive(Clone, Copy, Debug)]
struct Control {
    /// Size of the block that is wanted; `None`: compact all of the zone.
    order: Option<Order>,
    /// What the block is for.
    mobility: Mobility,
    /// Highest kind of zone that the request can use.
    highest: ZoneKind,
    /// The watermark that must still be met after the block is taken.
    mark: Watermark,
    mode: Mode,
    /// An allocation waits for the block.
    direct: bool,
    /// Stop once fragmentation is down to what `vm.compaction_proactiveness` allows.
    proactive: bool,
    /// Start from both ends of the zone, wherever the scanners were.
    whole_zone: bool,
    /// Scan page blocks with the skip bit, too.
    ignore_skip: bool,
    /// Move folios to page blocks of any mobility.
    ignore_suitable: bool,
    /// Continue until the zone's high watermark is met in whole page blocks, not only until there is one block.
    whole_blocks: bool,
}

impl Control {
    /// Compact all of a zone, for the user or (`proactive`) the daemon.
    fn everything(proactive: bool) -> Control {
        Control {
            order: None,
            mobility: Mobility::Movable,
            highest: ZoneKind::Movable,
            mark: Watermark::Min,
            mode: if proactive { Mode::SyncLight } else { Mode::Sync },
            direct: false,
            proactive,
            whole_zone: true,
            ignore_skip: true,
            ignore_suitable: false,
            whole_blocks: false,
        }
    }
}

/// A running compaction of one zone.
struct Compaction<'a, M> {
    core: &'a MmCore<M>,
    zone: &'a Zone,
    how: Control,
    folios: Folios,
    whole_zone: bool,
    /// Free blocks that folios move to.
    held: HeldBlocks,
    /// Position of the free scanner.
    free_at: Pfn,
    /// Position of the migrate scanner.
    migrate_at: Pfn,
    /// Isolated folios to be moved.
    sources: List,
    /// Pages of `sources`; during migration, those that still need a place.
    waiting: u64,
    /// The page block that is being emptied, if blocks are chosen by fullness ([`emptiest`]).
    emptying: Option<Pfn>,
    /// Page blocks with more free pages than this are emptied.
    emptied_from: u32,
    /// Order at which the next search of the free lists begins, and number of searches that failed in a row.
    search_order: u8,
    search_failed: u32,
    /// The lowest free page that searches for a source found; cleared after use.
    fast_start: FastStart,
    /// Isolate every movable folio of this page block.
    finish_block: bool,
    migrate_scanned: u64,
    free_scanned: u64,
    moved: u64,
}

/// Where a linear search begins after searches by list fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FastStart {
    Unknown,
    At(Pfn),
    Used,
}

/// End of the block of `order` that contains a frame.
fn end_of(pfn: Pfn, order: Order) -> Pfn {
    pfn.align_down(order).add(order.frames())
}

impl<M: Machine> Compaction<'_, M> {
    /// Whether the scanners have reached the same page block.
    fn scanners_met(&self) -> bool {
        self.free_at.align_down(PAGEBLOCK_ORDER) <= self.migrate_at.align_down(PAGEBLOCK_ORDER)
    }

    fn is_async(&self) -> bool {
        self.how.mode == Mode::Async
    }

    /// Whether a page block is to be skipped.
    fn skips(&self, block: Pfn) -> bool {
        !self.how.ignore_skip && self.zone.compaction.skips(block)
    }

    /// Number of free blocks that a search of the lists examines.
    fn search_limit(&self) -> u64 {
        (crate::alloc::CLUSTER as u64 >> self.search_failed.min(63)) + 1
    }
}
