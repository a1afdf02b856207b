//! Compaction of one zone: whether it is worth while, the main loop, and when it ends.

use super::{Compaction, Control, FastStart, Folios, Outcome};
use crate::alloc::{Watermark, Zone};
use crate::event::Event;
use crate::frame::{FrameFlags, List, Mobility};
use crate::knobs::{AllocPlacement, Knob};
use crate::machine::{Compacted, FrameUse, Machine, Scope, ZoneSight};
use crate::migrate::{self, MigrateReason, Mode};
use crate::mm_core::MmCore;
use crate::stat::Stat;
use crate::units::*;

/// Result of the compaction of a zone.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub outcome: Outcome,
    pub migrate_scanned: u64,
    pub free_scanned: u64,
}

pub(super) fn compact_zone<M: Machine>(core: &MmCore<M>, zone: &Zone, how: Control) -> Ended {
    let none = |outcome| Ended { outcome, migrate_scanned: 0, free_scanned: 0 };
    let _scope = core.scope(Scope::CompactZone);
    if let Some(order) = how.order {
        let suits = match how.whole_blocks {
            true => zone.suits_kcompactd(&core.knobs, order, how.highest).then_some(false),
            false => zone.suits_allocation(order, how.mark, how.highest, extfrag_threshold(core)),
        };
        match suits {
            Some(true) => return none(Outcome::Success),
            None => return none(Outcome::Skipped),
            Some(false) => {}
        }
        if zone.compaction.restarts(order) {
            zone.compaction.forget_if_wanted(&core.frames);
        }
    }
    show(core, zone, how.order, None);
    let mut run = Compaction::new(core, zone, how);
    let order = how.order.map_or(u64::MAX, |order| order.0 as u64);
    core.event(
        Event::MmCompactionBegin,
        [zone.id().0 as u64, order, run.migrate_at.0 as u64, run.free_at.0 as u64],
    );
    let by_fullness = how.order.is_none() && core.knobs.placement() == AllocPlacement::Densest;
    let outcome = if by_fullness { run.go_by_fullness() } else { run.go() };
    run.end(outcome);
    show(core, zone, how.order, Some(Compacted { moved: run.moved, made: outcome == Outcome::Success }));
    Ended { outcome, migrate_scanned: run.migrate_scanned, free_scanned: run.free_scanned }
}

/// Report a zone to a machine that observes compaction.
fn show<M: Machine>(core: &MmCore<M>, zone: &Zone, order: Option<Order>, ended: Option<Compacted>) {
    if !core.machine.looks_at_zones() {
        return;
    }
    let mut stays = FrameFlags::TABLE | FrameFlags::RESERVED;
    if core.knobs.get(Knob::CompactUnevictableAllowed) == 0 {
        stays |= FrameFlags::UNEVICTABLE;
    }
    let look = |pfn: Pfn| {
        let frame = &core.frames[pfn];
        let flags = frame.flags();
        if flags.intersects(stays) {
            (FrameUse::Fixed, Order::ZERO)
        } else if flags.intersects(FrameFlags::BUDDY | FrameFlags::HELD) {
            (FrameUse::Free, frame.guess_free_order())
        } else if flags.contains(FrameFlags::PCP) || frame.refs() == 0 {
            (FrameUse::Free, Order::ZERO)
        } else {
            (FrameUse::Movable, frame.order())
        }
    };
    let (start, frames) = (zone.start(), zone.end().0 - zone.start().0);
    core.machine.sees_zone(&ZoneSight { zone: zone.id(), start, frames, order, ended, look: &look });
}

/// The largest fragmentation index at which compaction for a costly order is useless.
pub(super) fn extfrag_threshold<M: Machine>(core: &MmCore<M>) -> u64 {
    core.knobs.get(Knob::ExtfragThreshold)
}

/// The fragmentation, in percent, down to which proactive compaction works; it starts ten above that.
pub(super) fn score_mark(proactiveness: u64) -> u64 {
    (100u64.saturating_sub(proactiveness)).max(5)
}

impl<'a, M: Machine> Compaction<'a, M> {
    pub(super) fn new(core: &'a MmCore<M>, zone: &'a Zone, how: Control) -> Compaction<'a, M> {
        let (known, folios) = (&zone.compaction, core.knobs.compaction_folios());
        let (migrate_at, free_at) = if how.whole_zone {
            (zone.start(), known.last_block())
        } else {
            (known.cached_migrate(how.mode != Mode::Async), known.cached_free())
        };
        let migrate_at = if migrate_at < zone.end() { migrate_at } else { zone.start() };
        Compaction {
            core,
            zone,
            how,
            folios,
            whole_zone: how.whole_zone || migrate_at <= known.first_migrate(),
            held: core.alloc.hold(zone.id(), folios == Folios::Merge),
            free_at,
            migrate_at,
            sources: List::new(),
            waiting: 0,
            emptying: None,
            emptied_from: u32::MAX,
            search_order: how.order.map_or(0, |order| order.0),
            search_failed: 0,
            fast_start: FastStart::Unknown,
            finish_block: false,
            migrate_scanned: 0,
            free_scanned: 0,
            moved: 0,
        }
    }

    /// Isolate and move folios until compaction is finished.
    fn go(&mut self) -> Outcome {
        let known = &self.zone.compaction;
        let mut together = self.is_async() && known.cached_migrate(false) == known.cached_migrate(true);
        // The last page block that folios were moved out of.
        let mut last = None;
        loop {
            let outcome = self.finished();
            if outcome != Outcome::Continue {
                return outcome;
            }
            self.finish_block = last == Some(self.migrate_at.align_down(PAGEBLOCK_ORDER));
            while self.isolate_sources() {
                together = false;
                last = Some(Pfn(self.migrate_at.0 - 1).align_down(PAGEBLOCK_ORDER));
                let done = self.move_sources();
                if done.no_room && !self.scanners_met() {
                    return Outcome::Contended;
                }
                let inside = self.migrate_at.align_down(PAGEBLOCK_ORDER) != self.migrate_at;
                let again = done.failed > 0
                    && inside
                    && !self.how.ignore_skip
                    && !self.finish_block
                    && self.how.mode < Mode::Sync;
                if !again {
                    break;
                }
                // A folio that could not be moved now will not move next time either: scan the rest of the block, so
                // that it need not be scanned again.
                self.finish_block = true;
                if self.how.order == Some(PAGEBLOCK_ORDER) {
                    last = None;
                }
            }
            if together {
                known.keep_together();
            }
            self.drain_if_left(&mut last);
        }
    }

    /// Move the isolated folios.
    pub(super) fn move_sources(&mut self) -> migrate::Done {
        let core = self.core;
        let pages = self.waiting;
        let sources = self.take_sources(self.folios >= Folios::Sort);
        let mode = self.how.mode;
        let done = migrate::folios(core, sources, self, mode, MigrateReason::Compaction);
        self.waiting = 0;
        self.moved += done.moved;
        core.event(Event::MmCompactionMigratepages, [pages, done.moved, done.failed, 0]);
        done
    }

    /// Drain the CPU's lists once the scanner has left the last block of the wanted order that folios were moved out
    /// of, so that its free pages merge.
    fn drain_if_left(&mut self, last: &mut Option<Pfn>) {
        let (Some(order), Some(block)) = (self.how.order, *last) else { return };
        if block < self.migrate_at.align_down(order) {
            self.core.alloc.drain_here(self.core, self.zone.id());
            *last = None;
        }
    }

    /// Decide whether compaction is finished.
    fn finished(&self) -> Outcome {
        let known = &self.zone.compaction;
        if self.scanners_met() {
            known.start_anew();
            if self.how.direct {
                known.set_flush(true);
            }
            return if self.whole_zone { Outcome::Complete } else { Outcome::PartialSkipped };
        }
        if self.core.machine.stopping() {
            return Outcome::Contended;
        }
        if self.how.proactive {
            return self.proactive_enough();
        }
        let Some(order) = self.how.order else { return Outcome::Continue };
        // A page block once started is scanned to its end.
        if self.migrate_at.align_down(PAGEBLOCK_ORDER) != self.migrate_at {
            return Outcome::Continue;
        }
        let enough = match self.how.whole_blocks {
            true => self.zone.whole_blocks_ok(order, Watermark::High, self.how.highest),
            false => self.has_block(order),
        };
        if enough { Outcome::Success } else { Outcome::Continue }
    }

    /// Whether fragmentation is down to what proactive compaction allows.
    pub(super) fn proactive_enough(&self) -> Outcome {
        if self.core.alloc.reclaim_active(self.zone.node()) {
            return Outcome::PartialSkipped;
        }
        let score = self.zone.blocks().external_fragmentation(PAGEBLOCK_ORDER);
        let mark = score_mark(self.core.knobs.get(Knob::CompactionProactiveness));
        if score > mark { Outcome::Continue } else { Outcome::Success }
    }

    /// Whether a block is available to the requester: of its own mobility, or one that may be stolen.
    fn has_block(&self, order: Order) -> bool {
        let wanted = self.how.mobility;
        (order.0..=MAX_ORDER.0).map(Order).any(|order| {
            let others = order.0 >= PAGEBLOCK_ORDER.0 / 2 || wanted != Mobility::Movable;
            let suits = |mobility: &Mobility| others || *mobility == wanted;
            Mobility::ALL.iter().filter(|mobility| suits(mobility)).any(|&mobility| {
                self.zone.free_orders() >> order.0 & 1 == 1 && self.zone.free_blocks(order, mobility) > 0
            })
        })
    }

    /// Release the unused free pages, and count.
    fn end(&mut self, outcome: Outcome) {
        let core = self.core;
        if let Some(highest) = core.alloc.release(core, &mut self.held) {
            self.zone.compaction.note_given_back(highest.align_down(PAGEBLOCK_ORDER));
        }
        core.count(Stat::CompactMigrateScanned, self.migrate_scanned as i64);
        core.count(Stat::CompactFreeScanned, self.free_scanned as i64);
        let places = [self.migrate_at.0 as u64, self.free_at.0 as u64];
        core.event(Event::MmCompactionEnd, [self.zone.id().0 as u64, places[0], places[1], outcome as u64]);
    }
}
