//! Compaction: free pages that lie in pieces become large blocks, by moving what lies between them.
//!
//! Two scanners go through a zone towards each other. The *migrate scanner* (`source`) comes from the start and
//! isolates folios that can be moved. The *free scanner* (`free`) comes from the end and isolates free pages. What
//! the first finds is moved (`migrate`) to what the second found, so free memory collects at the start. Where they
//! meet, a pass has ended (`zone`).
//!
//! Who compacts: an allocation that found no block of its size ([`direct`]); each node's [`daemon`], when kswapd or an
//! allocation wakes it, or when free memory is too much in pieces; and the user ([`everything`]).
//!
//! What is to be done with folios of several pages says the knob `compaction.folios` ([`Folios`]): its values are the
//! steps of the patch series that taught Linux to move them whole, one after the other, and one that the series left
//! undone.

mod daemon;
mod direct;
mod emptiest;
mod free;
mod source;
#[cfg(test)]
mod tests;
mod zone;

#[cfg(test)]
pub(crate) use daemon::everything_by;
pub use daemon::{daemon, everything};
pub use direct::{Attempts, Made, Priority, direct, has_block};

use crate::alloc::{HeldBlocks, Watermark, Zone};
use crate::frame::{List, Mobility};
pub use crate::knobs::CompactionFolios as Folios;
use crate::machine::{Machine, ZoneKind};
use crate::migrate::Mode;
use crate::mm_core::MmCore;
use crate::units::*;

impl Folios {
    /// May folios of several pages be isolated?
    fn moves_large(self) -> bool {
        self != Folios::Single
    }

    /// Is there a place for a folio of this size as it is?
    fn keeps(self, order: Order) -> bool {
        order == Order::ZERO || self >= Folios::Whole
    }

    /// May a larger free block be split for a folio? Those that know no sizes get their pages from any block.
    fn splits_free(self) -> bool {
        self != Folios::Whole
    }
}

/// What came of a compaction, the better the greater: of several zones the greatest counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Outcome {
    /// There is too little free memory, or what is free lies in blocks that are large enough to wait for more.
    Skipped,
    /// It has failed lately.
    Deferred,
    /// It is to go on.
    Continue,
    /// All of the zone has been scanned, in vain.
    Complete,
    /// What had not been scanned before has been.
    PartialSkipped,
    /// It was in somebody's way, or had no place to move anything to.
    Contended,
    /// There is a block now, or memory is as whole as was wanted.
    Success,
}

/// Whose compaction it is, and how it is to go.
#[derive(Clone, Copy, Debug)]
struct Control {
    /// Size of the block that is wanted; `None`: all that can be made.
    order: Option<Order>,
    /// What the block is for.
    mobility: Mobility,
    /// Highest kind of zone that will do.
    highest: ZoneKind,
    /// The mark that must stay when the block is taken.
    mark: Watermark,
    mode: Mode,
    /// An allocation waits for it.
    direct: bool,
    /// Until memory is less in pieces than `vm.compaction_proactiveness` says.
    proactive: bool,
    /// From one end to the other, wherever the scanners were.
    whole_zone: bool,
    /// Look at page blocks that were of no use lately, too.
    ignore_skip: bool,
    /// Move to page blocks of any mobility.
    ignore_suitable: bool,
    /// Until the zone's high mark is met in whole page blocks, and not only until there is one.
    whole_blocks: bool,
}

impl Control {
    /// For all of a zone, by request of the user or (`proactive`) the daemon.
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

/// A compaction of one zone, on its way.
struct Compaction<'a, M> {
    core: &'a MmCore<M>,
    zone: &'a Zone,
    how: Control,
    folios: Folios,
    whole_zone: bool,
    /// Free blocks to move to.
    held: HeldBlocks,
    /// Where the free scanner goes on.
    free_at: Pfn,
    /// Where the migrate scanner goes on.
    migrate_at: Pfn,
    /// Isolated folios that are to be moved.
    sources: List,
    /// Their pages, and, while they are moved, those that still need a place.
    waiting: u64,
    /// The page block that is emptied, where fullness decides ([`emptiest`]); else none.
    emptying: Option<Pfn>,
    /// Page blocks with more free pages than this will be emptied.
    emptied_from: u32,
    /// The order at which the next search of free lists begins, and how often such searches have failed in a row.
    search_order: u8,
    search_failed: u32,
    /// The lowest free page that searches for a source came upon; none any more once it has been used.
    fast_start: FastStart,
    /// All that can be isolated in this page block is to be.
    finish_block: bool,
    migrate_scanned: u64,
    free_scanned: u64,
    /// Pages that were moved.
    moved: u64,
}

/// Where a linear search begins once searches by list fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FastStart {
    Unknown,
    At(Pfn),
    Used,
}

/// The end of the block of `order` that holds a frame.
fn end_of(pfn: Pfn, order: Order) -> Pfn {
    pfn.align_down(order).add(order.frames())
}

impl<M: Machine> Compaction<'_, M> {
    /// Have the scanners come to the same page block?
    fn scanners_met(&self) -> bool {
        self.free_at.align_down(PAGEBLOCK_ORDER) <= self.migrate_at.align_down(PAGEBLOCK_ORDER)
    }

    fn is_async(&self) -> bool {
        self.how.mode == Mode::Async
    }

    /// Is a page block not worth a look?
    fn skips(&self, block: Pfn) -> bool {
        !self.how.ignore_skip && self.zone.compaction.skips(block)
    }

    /// How many free blocks a search of lists looks at.
    fn search_limit(&self) -> u64 {
        (crate::alloc::CLUSTER as u64 >> self.search_failed.min(63)) + 1
    }
}
