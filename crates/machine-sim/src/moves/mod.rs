//! Compactions held against the fewest pages that must be moved for what they are to make, and how much in pieces
//! memory was before and after.
//!
//! Each compaction shows its zone when it begins and when it has ended ([`ZoneSight`]). What has been freed by others
//! meanwhile, it need not have moved: so a run may come to less than the sum of the fewest.

mod everything;
mod fewest;
mod latency;

use crate::sched::TaskId;
use fewest::{Cell, Fewest, fewest};
use latency::Latency;
use mm::machine::{FrameUse, ZoneSight};
use mm::units::{MAX_ORDER, Order, PAGEBLOCK_ORDER, Pfn};
use std::collections::HashMap;

/// What compactions came to.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct MovesReport {
    /// Compactions that went through a zone.
    pub(crate) compactions: u64,
    /// Those for a block that made it.
    pub(crate) made: u64,
    /// Pages that these moved.
    pub(crate) moved: u64,
    /// The fewest that they could have, added up.
    pub(crate) least: u64,
    /// Of these compactions, those of which it is known that so few would have done with all folios whole.
    pub(crate) exact: u64,
    /// Pages that compactions moved which made no block.
    pub(crate) in_vain: u64,
    /// What compactions of all of a zone came to, added up; `None`: there was none.
    pub(crate) whole: Option<Whole>,
    /// Share of free memory that was of no use for the wanted block (all memory: for 2 MiB), in per cent: added up over
    /// compactions, before and after.
    pub(crate) useless: [f64; 2],
}

/// Blocks of 2 MiB, and pages moved for them, in compactions of all of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Whole {
    /// Free blocks before.
    pub(crate) before: u64,
    /// After.
    pub(crate) after: u64,
    /// The most that there could be.
    pub(crate) possible: u64,
    /// Pages that were moved.
    pub(crate) moved: u64,
    /// The fewest that must be for as many as there could be.
    pub(crate) least: u64,
}

/// Compactions of a run.
#[derive(Default)]
pub(crate) struct Moves {
    /// By the task that compacts.
    begun: HashMap<TaskId, Option<Fewest>>,
    report: MovesReport,
    zone: Vec<Cell>,
    /// How long allocations of large folios took.
    pub(crate) latency: Latency,
}

impl Moves {
    /// A task shows a zone.
    pub(crate) fn sees(&mut self, task: TaskId, sight: &ZoneSight<'_>) {
        self.draw(sight);
        let after = usize::from(sight.ended.is_some());
        if sight.order.is_none() {
            self.sees_everything(sight.ended.map(|ended| ended.moved));
        }
        self.report.useless[after] += useless(&self.zone, sight.order.unwrap_or(PAGEBLOCK_ORDER));
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

    /// All of a zone is going to be compacted, or has been, and so many pages moved.
    fn sees_everything(&mut self, moved: Option<u64>) {
        let blocks = everything::everything(&self.zone, PAGEBLOCK_ORDER.frames() as usize);
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

    /// Note what the zone's frames are, from one on that is aligned to any size.
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

/// How much of the free memory is in no free block of `order`, in per cent.
fn useless(zone: &[Cell], order: Order) -> f64 {
    let free = |cells: &[Cell]| cells.iter().filter(|&&cell| cell == Cell::Free).count() as f64;
    let size = order.frames() as usize;
    let whole = zone.chunks_exact(size).map(free).filter(|&count| count == size as f64).sum::<f64>();
    let all = free(zone);
    if all == 0.0 { 0.0 } else { (all - whole) * 100.0 / all }
}
