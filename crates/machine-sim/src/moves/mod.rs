//! Compares compactions with the fewest pages that must be moved for what they make, and measures how fragmented memory
//! was before and after.
//!
//! Each compaction shows its zone when it begins and when it has ended ([`ZoneSight`]). It need not move what other tasks
//! free during it, so a run may move fewer pages than the sum of the minima.

mod fewest;
mod latency;
mod whole;

use crate::sched::TaskId;
use fewest::{Cell, Fewest, fewest};
use latency::Latency;
use mm::machine::{FrameUse, ZoneSight};
use mm::units::{MAX_ORDER, Order, PAGEBLOCK_ORDER, Pfn};
use std::collections::HashMap;

/// The totals of all compactions.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct MovesReport {
    /// Compactions that went through a zone.
    pub(crate) compactions: u64,
    /// Of these, those for a block, if they made it.
    pub(crate) made: u64,
    /// Pages that these moved.
    pub(crate) moved: u64,
    /// The fewest that they could have moved, added up.
    pub(crate) least: u64,
    /// Of these compactions, those for which the minimum is known to be reachable with all folios whole.
    pub(crate) exact: u64,
    /// Pages moved by compactions that made no block.
    pub(crate) in_vain: u64,
    /// The totals of compactions of whole zones, if there were any.
    pub(crate) whole: Option<Whole>,
    /// Share of free memory that was of no use for the wanted block (for 2 MiB, if the whole zone was compacted), in per
    /// cent: sums over compactions, before and after.
    pub(crate) unusable: [f64; 2],
}

/// Blocks of 2 MiB, and pages moved for them, in compactions of whole zones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Whole {
    /// Free blocks before.
    pub(crate) before: u64,
    /// Free blocks after.
    pub(crate) after: u64,
    /// The most free blocks that there could be.
    pub(crate) possible: u64,
    /// Pages that were moved.
    pub(crate) moved: u64,
    /// The fewest pages that must be moved for that many.
    pub(crate) least: u64,
}

/// The compactions of a run.
#[derive(Default)]
pub(crate) struct Moves {
    /// By the task that compacts: the minimum for the compaction that it has begun.
    begun: HashMap<TaskId, Option<Fewest>>,
    report: MovesReport,
    zone: Vec<Cell>,
    /// How long allocations of large folios took.
    pub(crate) latency: Latency,
}

impl Moves {
    /// A task shows a zone that it compacts.
    pub(crate) fn see(&mut self, task: TaskId, sight: &ZoneSight<'_>) {
        self.draw(sight);
        let after = usize::from(sight.ended.is_some());
        if sight.order.is_none() {
            self.see_whole(sight.ended.map(|ended| ended.moved));
        }
        self.report.unusable[after] += unusable(&self.zone, sight.order.unwrap_or(PAGEBLOCK_ORDER));
        let Some(ended) = sight.ended else {
            let least = sight.order.and_then(|order| fewest(&self.zone, order.0));
            self.begun.insert(task, least);
            return;
        };
        self.report.compactions += 1;
        match self.begun.remove(&task).flatten() {
            Some(least) if ended.made => {
                self.report.made += 1;
                self.report.moved += ended.moved;
                self.report.least += least.pages;
                self.report.exact += u64::from(least.exact);
            }
            _ => self.report.in_vain += ended.moved,
        }
    }

    /// The whole zone will be compacted; or, if `moved`, has been, by moving that many pages.
    fn see_whole(&mut self, moved: Option<u64>) {
        let blocks = whole::blocks(&self.zone, PAGEBLOCK_ORDER.frames() as usize);
        let whole = self.report.whole.get_or_insert_default();
        match moved {
            None => {
                whole.before += blocks.whole;
                whole.possible += blocks.possible;
                whole.least += blocks.least;
            }
            Some(moved) => {
                whole.after += blocks.whole;
                whole.moved += moved;
            }
        }
    }

    pub(crate) fn report(&self) -> MovesReport {
        self.report
    }

    /// Copy the state of the zone's frames. The copy begins at a frame that is aligned to every order.
    fn draw(&mut self, sight: &ZoneSight<'_>) {
        self.zone.clear();
        let (start, end) = (sight.start, sight.start.0 + sight.frames);
        self.zone.resize((start.0 - start.align_down(MAX_ORDER).0) as usize, Cell::Fixed);
        let mut at = start;
        while at.0 < end {
            let (what, order) = (sight.look)(at);
            let pages = (1usize << order.0.min(MAX_ORDER.0)).min((end - at.0) as usize);
            match what {
                FrameUse::Free => self.zone.resize(self.zone.len() + pages, Cell::Free),
                FrameUse::Fixed => self.zone.resize(self.zone.len() + pages, Cell::Fixed),
                FrameUse::Movable => {
                    self.zone.push(Cell::Folio(order.0));
                    self.zone.resize(self.zone.len() + pages - 1, Cell::Rest);
                }
            }
            at = Pfn(at.0 + pages as u32);
        }
    }
}

/// Share of the free memory that is in no free block of `order`, in per cent.
fn unusable(zone: &[Cell], order: Order) -> f64 {
    let free = |cells: &[Cell]| cells.iter().filter(|&&cell| cell == Cell::Free).count() as f64;
    let size = order.frames() as usize;
    let usable = zone.chunks_exact(size).map(free).filter(|&count| count == size as f64).sum::<f64>();
    let all = free(zone);
    if all == 0.0 { 0.0 } else { (all - usable) * 100.0 / all }
}
