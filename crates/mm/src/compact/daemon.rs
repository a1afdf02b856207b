//! kcompactd: one daemon a node, which compacts when others want blocks to be there before they need them.
//!
//! kswapd wakes it when the node is balanced and it goes to sleep, with the order that it was woken for; so do
//! allocations that may not wait but for which kswapd has nothing to do. Where anybody uses large folios at all, it
//! looks twice a second how much of the free memory is in pieces, and compacts if that is more than
//! `vm.compaction_proactiveness` allows.

use super::zone::{compact_zone, score_mark};
use super::{Control, Outcome};
use crate::alloc::{KswapdRequest, Mark, Zone};
use crate::event::Event;
use crate::frame::Mobility;
use crate::knobs::Knob;
use crate::machine::{Machine, Scope, WaitKey, ZoneKind};
use crate::migrate::Mode;
use crate::stat::Stat;
use crate::store::Store;
use crate::units::*;

/// Between two looks at how much memory is in pieces.
const INTERVAL: Nanos = 500_000_000;
/// After a compaction that brought nothing the next look comes so many times later, as a power of 2.
const LATER: u32 = 6;

/// Run the daemon of a node until the machine stops.
pub fn daemon<M: Machine>(st: &Store<M>, node: NodeId) {
    let machine = &st.machine;
    let mut interval = INTERVAL;
    while !machine.stopping() {
        let ticket = machine.ticket(WaitKey::Kcompactd(node));
        if st.alloc.kcompactd_request(node).is_none() {
            let deadline = is_proactive(st).then(|| machine.now() + interval);
            machine.wait(ticket, deadline);
        }
        if machine.stopping() {
            return;
        }
        interval = INTERVAL;
        match st.alloc.take_kcompactd_request(node) {
            Some(wanted) => work(st, node, wanted),
            None if is_proactive(st) && !st.alloc.reclaim_active(node) && !proactive(st, node) => {
                interval = INTERVAL << LATER;
            }
            None => {}
        }
    }
}

/// Does free memory in pieces concern anybody?
fn is_proactive<M: Machine>(st: &Store<M>) -> bool {
    st.knobs.get(Knob::CompactionProactiveness) > 0 && st.knobs.wants_blocks()
}

/// Make a block of the order that was wanted in each zone of the node.
pub(super) fn work<M: Machine>(st: &Store<M>, node: NodeId, wanted: KswapdRequest) {
    let _scope = st.scope(Scope::Kcompactd);
    let KswapdRequest { order, highest } = wanted;
    st.event(Event::MmCompactionKcompactdWake, [node.0 as u64, order.0 as u64, highest as u64, 0]);
    st.count(Stat::CompactDaemonWake, 1);
    for zone in st.alloc.zones_of(node, highest) {
        if zone.compaction.deferred(order) || !zone.suits_kcompactd(&st.knobs, order, zone.kind()) {
            continue;
        }
        if st.machine.stopping() {
            return;
        }
        let how = Control {
            order: Some(order),
            mobility: Mobility::Movable,
            highest,
            mark: Mark::Min,
            mode: Mode::SyncLight,
            direct: false,
            proactive: false,
            whole_zone: false,
            ignore_skip: false,
            ignore_suitable: false,
            whole_blocks: st.knobs.get(Knob::DefragMode) != 0,
        };
        match compact(st, zone, how) {
            Outcome::Success => zone.compaction.succeeded(order, false),
            Outcome::Complete | Outcome::PartialSkipped => {
                // Pages that would make a block may lie on CPUs' lists.
                st.alloc.drain_zone(st.memory().ground(), zone.id());
                zone.compaction.defer(order);
            }
            _ => {}
        }
    }
}

fn compact<M: Machine>(st: &Store<M>, zone: &Zone, how: Control) -> Outcome {
    let ended = compact_zone(st, zone, how);
    st.count(Stat::CompactDaemonMigrateScanned, ended.migrate_scanned as i64);
    st.count(Stat::CompactDaemonFreeScanned, ended.free_scanned as i64);
    ended.outcome
}

/// Compact the node if too much of its free memory is in pieces. `false`: that was of no use.
pub(super) fn proactive<M: Machine>(st: &Store<M>, node: NodeId) -> bool {
    let high = (score_mark(st.knobs.get(Knob::CompactionProactiveness)) + 10).min(100);
    let before = score(st, node);
    if before <= high {
        return true;
    }
    let _scope = st.scope(Scope::Kcompactd);
    for zone in st.alloc.zones_of(node, ZoneKind::Movable) {
        compact(st, zone, Control::everything(true));
    }
    score(st, node) < before
}

/// How much of a node's free memory is of no use for blocks of 2 MiB, in per cent, each zone weighted by its size.
fn score<M: Machine>(st: &Store<M>, node: NodeId) -> u64 {
    let zones = || st.alloc.zones_of(node, ZoneKind::Movable);
    let present: u64 = zones().map(Zone::spanned).sum();
    let weighted = |zone: &Zone| zone.spanned() * zone.blocks().external_fragmentation(PAGEBLOCK_ORDER);
    zones().map(|zone| weighted(zone) / (present + 1)).sum()
}

/// Compact all memory, as far as anything can be moved: what a write to `vm.compact_memory` does.
pub fn everything<M: Machine>(st: &Store<M>) {
    everything_by(st, Mode::Sync);
}

pub(crate) fn everything_by<M: Machine>(st: &Store<M>, mode: Mode) {
    for zone in st.alloc.zones() {
        compact_zone(st, zone, Control { mode, ..Control::everything(false) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the reference; 0 is off.
    #[test]
    fn more_proactive_means_less_in_pieces() {
        let marks = [20, 99, 100].map(|proactiveness| {
            let low = score_mark(proactiveness);
            (low, (low + 10).min(100))
        });
        assert_eq!(marks, [(80, 90), (5, 15), (5, 15)]);
    }
}
