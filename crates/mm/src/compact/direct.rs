//! Compaction for an allocation that waits for it.

use super::zone::compact_zone;
use super::{Control, Outcome};
use crate::alloc::{NeedsReclaim, Reserve, Watermark, Zone};
use crate::frame::Mobility;
use crate::machine::{Machine, Scope, Stall};
use crate::migrate::Mode;
use crate::mm_core::MmCore;
use crate::reclaim;
use crate::stat::Stat;

/// How hard to try, in ascending order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Priority {
    /// Never wait, and leave page blocks alone that cannot become whole.
    Async,
    /// Wait for folio locks.
    SyncLight,
    /// As `SyncLight`, in the whole zone, ignoring deferral, skip bits and mobility.
    SyncFull,
}

/// Result of a direct compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    /// The best outcome of any zone.
    pub outcome: Outcome,
    /// A block is available.
    pub there: bool,
}

/// Compact the zones that a request can use until one has a block for it above its min watermark.
pub fn direct<M: Machine>(core: &MmCore<M>, needs: &NeedsReclaim, priority: Priority) -> Made {
    let _scope = core.scope(Scope::TryToCompactPages);
    let _stall = core.stall(Stall::Memory);
    let outcome = try_zones(core, needs, priority);
    if outcome == Outcome::Skipped {
        return Made { outcome, there: false };
    }
    core.count(Stat::CompactStall, 1);
    let with_block = zones(core, needs).find(|zone| allows(zone, needs));
    if let Some(zone) = with_block {
        zone.compaction.set_flush(false);
        zone.compaction.succeeded(needs.order, true);
    }
    core.count(if with_block.is_some() { Stat::CompactSuccess } else { Stat::CompactFail }, 1);
    core.machine.resched();
    Made { outcome, there: with_block.is_some() }
}

fn zones<'a, M: Machine>(core: &'a MmCore<M>, needs: &NeedsReclaim) -> impl Iterator<Item = &'a Zone> {
    let zones = core.alloc.zonelist(needs.node, needs.highest).iter().map(|&id| core.alloc.zone(id));
    zones.filter(|zone| needs.could_use(zone))
}

/// Whether some zone has a block for a request above its min watermark.
pub(crate) fn has_block<M: Machine>(core: &MmCore<M>, needs: &NeedsReclaim) -> bool {
    zones(core, needs).any(|zone| allows(zone, needs))
}

fn allows(zone: &Zone, needs: &NeedsReclaim) -> bool {
    zone.watermark_ok(needs.order, Watermark::Min, needs.highest, Reserve::None)
}

fn control(needs: &NeedsReclaim, priority: Priority) -> Control {
    let full = priority == Priority::SyncFull;
    Control {
        order: Some(needs.order),
        mobility: Mobility::Movable,
        highest: needs.highest,
        mark: Watermark::Min,
        mode: if priority == Priority::Async { Mode::Async } else { Mode::SyncLight },
        direct: true,
        proactive: false,
        whole_zone: full,
        ignore_skip: full,
        ignore_suitable: full,
        whole_blocks: false,
    }
}

fn try_zones<M: Machine>(core: &MmCore<M>, needs: &NeedsReclaim, priority: Priority) -> Outcome {
    let full = priority == Priority::SyncFull;
    let mut best = Outcome::Skipped;
    for zone in zones(core, needs) {
        if !full && zone.compaction.deferred(needs.order) {
            best = best.max(Outcome::Deferred);
            continue;
        }
        let outcome = compact_zone(core, zone, control(needs, priority)).outcome;
        best = best.max(outcome);
        match outcome {
            // The allocation may still miss the block.
            Outcome::Success => {
                zone.compaction.succeeded(needs.order, false);
                break;
            }
            Outcome::Complete | Outcome::PartialSkipped if priority != Priority::Async => {
                zone.compaction.defer(needs.order);
            }
            _ => {}
        }
    }
    best
}

/// An allocation's retries of direct compaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempts {
    priority: Priority,
    retries: u32,
}

impl Default for Attempts {
    fn default() -> Attempts {
        Attempts { priority: Priority::SyncLight, retries: 0 }
    }
}

impl Attempts {
    /// Priority of the next attempt.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Attempts of an allocation that must not wait.
    pub(crate) fn only_async() -> Attempts {
        Attempts { priority: Priority::Async, retries: 0 }
    }

    /// Whether another attempt is worth while after one with this outcome.
    pub fn again<M: Machine>(&mut self, core: &MmCore<M>, needs: &NeedsReclaim, outcome: Outcome) -> bool {
        let costly = needs.is_costly();
        if outcome == Outcome::Skipped {
            // Retry if reclaim could free enough pages to move folios to.
            return zones(core, needs).any(|zone| {
                let reclaimable = reclaim::reclaimable(core, zone.node(), zone.kind()) / needs.order.0 as u64;
                zone.compactable_with(needs.order, needs.highest, zone.free_pages() + reclaimable)
            });
        }
        if outcome == Outcome::Success {
            // Another task took the block.
            self.retries += 1;
            if self.retries <= if costly { 4 } else { 16 } {
                return true;
            }
        }
        let most = if costly { Priority::SyncLight } else { Priority::SyncFull };
        if self.priority >= most {
            return false;
        }
        self.priority = if self.priority == Priority::Async { Priority::SyncLight } else { most };
        self.retries = 0;
        true
    }
}
