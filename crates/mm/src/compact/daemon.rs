//! kcompactd: one daemon per node, which makes blocks before an allocation needs them.
//!
//! kswapd wakes it, with the order kswapd was woken for, when the node is balanced and kswapd goes to sleep; so do
//! allocations that may not wait while kswapd has nothing to do. If large folios are in use at all, it checks twice a
//! second how fragmented free memory is, and compacts if that is more than `vm.compaction_proactiveness` allows.

use super::zone::{compact_zone, score_mark};
use super::{Control, Outcome};
use crate::alloc::{KswapdRequest, Watermark, Zone};
use crate::event::Event;
use crate::frame::Mobility;
use crate::knobs::Knob;
use crate::machine::{Machine, Scope, Stall, WaitKey, ZoneKind};
use crate::migrate::Mode;
use crate::mm_core::MmCore;
use crate::stat::Stat;
use crate::units::*;

/// Time between two checks of fragmentation.
const INTERVAL: Nanos = 500_000_000;
/// After a useless compaction the next check is delayed by this power of 2.
const LATER: u32 = 6;

/// Run the daemon of a node until the machine stops.
pub fn daemon<M: Machine>(core: &MmCore<M>, node: NodeId) {
    let machine = &core.machine;
    let mut interval = INTERVAL;
    while !machine.stopping() {
        let ticket = machine.ticket(WaitKey::Kcompactd(node));
        if core.alloc.kcompactd_request(node).is_none() {
            let deadline = is_proactive(core).then(|| machine.now() + interval);
            machine.wait(ticket, deadline);
        }
        if machine.stopping() {
            return;
        }
        interval = INTERVAL;
        match core.alloc.take_kcompactd_request(node) {
            Some(wanted) => work(core, node, wanted),
            None if is_proactive(core) && !core.alloc.reclaim_active(node) && !proactive(core, node) => {
                interval = INTERVAL << LATER;
            }
            None => {}
        }
    }
}

/// Whether proactive compaction is on and anything uses large blocks.
fn is_proactive<M: Machine>(core: &MmCore<M>) -> bool {
    core.knobs.get(Knob::CompactionProactiveness) > 0 && core.knobs.wants_blocks()
}

/// Make a block of the requested order in each zone of the node.
pub(super) fn work<M: Machine>(core: &MmCore<M>, node: NodeId, wanted: KswapdRequest) {
    let _scope = core.scope(Scope::Kcompactd);
    let _stall = core.stall(Stall::Memory);
    let KswapdRequest { order, highest } = wanted;
    core.event(Event::MmCompactionKcompactdWake, [node.0 as u64, order.0 as u64, highest as u64, 0]);
    core.count(Stat::CompactDaemonWake, 1);
    for zone in core.alloc.zones_of(node, highest) {
        if zone.compaction.deferred(order) || !zone.suits_kcompactd(&core.knobs, order, zone.kind()) {
            continue;
        }
        if core.machine.stopping() {
            return;
        }
        match compact(core, zone, control(core, wanted)) {
            Outcome::Success => zone.compaction.succeeded(order, false),
            Outcome::Complete | Outcome::PartialSkipped => {
                // Pages that would complete a block may be on the CPUs' lists.
                core.alloc.drain_zone(core, zone.id());
                zone.compaction.defer(order);
            }
            _ => {}
        }
    }
}

/// How a block that was asked for is made: for the kernel itself, which any block of the size serves.
pub(super) fn control<M: Machine>(core: &MmCore<M>, wanted: KswapdRequest) -> Control {
    Control {
        order: Some(wanted.order),
        mobility: Mobility::Unmovable,
        highest: wanted.highest,
        mark: Watermark::Min,
        mode: Mode::SyncLight,
        direct: false,
        proactive: false,
        whole_zone: false,
        ignore_skip: false,
        ignore_suitable: false,
        whole_blocks: core.knobs.get(Knob::DefragMode) != 0,
    }
}

fn compact<M: Machine>(core: &MmCore<M>, zone: &Zone, how: Control) -> Outcome {
    let ended = compact_zone(core, zone, how);
    core.count(Stat::CompactDaemonMigrateScanned, ended.migrate_scanned as i64);
    core.count(Stat::CompactDaemonFreeScanned, ended.free_scanned as i64);
    ended.outcome
}

/// Compact the node if its free memory is too fragmented. Returns `false` if that did not help.
pub(super) fn proactive<M: Machine>(core: &MmCore<M>, node: NodeId) -> bool {
    let high = (score_mark(core.knobs.get(Knob::CompactionProactiveness)) + 10).min(100);
    let before = score(core, node);
    if before <= high {
        return true;
    }
    let _scope = core.scope(Scope::Kcompactd);
    for zone in core.alloc.zones_of(node, ZoneKind::Movable) {
        compact(core, zone, Control::everything(true));
    }
    score(core, node) < before
}

/// Share of a node's free memory that is useless for blocks of 2 MiB, in percent, each zone weighted by its size.
fn score<M: Machine>(core: &MmCore<M>, node: NodeId) -> u64 {
    let zones = || core.alloc.zones_of(node, ZoneKind::Movable);
    let present: u64 = zones().map(Zone::spanned).sum();
    let weighted = |zone: &Zone| zone.spanned() * zone.blocks().external_fragmentation(PAGEBLOCK_ORDER);
    zones().map(|zone| weighted(zone) / (present + 1)).sum()
}

/// Compact all memory: the effect of a write to `vm.compact_memory`.
pub(crate) fn everything<M: Machine>(core: &MmCore<M>) {
    everything_by(core, Mode::Sync);
}

pub(crate) fn everything_by<M: Machine>(core: &MmCore<M>, mode: Mode) {
    for zone in core.alloc.zones() {
        compact_zone(core, zone, Control { mode, ..Control::everything(false) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Linux's values; 0 is off.
    #[test]
    fn higher_proactiveness_lowers_the_score_mark() {
        let marks = [20, 99, 100].map(|proactiveness| {
            let low = score_mark(proactiveness);
            (low, (low + 10).min(100))
        });
        assert_eq!(marks, [(80, 90), (5, 15), (5, 15)]);
    }
}
