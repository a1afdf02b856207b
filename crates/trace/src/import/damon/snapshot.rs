//! What DAMON found in an aggregation interval, and the accesses that are made of it.

use std::path::PathBuf;

use abi::AccessKind;
use program::rng::Rng;

use crate::event::{PAGE_SHIFT, PAGE_SIZE};
use crate::import::error::ImportError;
use crate::import::settings::Settings;
use crate::import::step::{Sink, Step, USER_HALF};

/// Sampling intervals of an aggregation interval that says nothing else: 100 ms by 5 ms.
pub const TICKS: u64 = 20;
/// The most sampling intervals of an aggregation interval.
pub const MOST_TICKS: u64 = 10_000;

/// A region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Its first byte.
    pub start: u64,
    /// The byte after its last.
    pub end: u64,
    /// In how many sampling intervals it was found accessed.
    pub accesses: u32,
}

/// An aggregation interval.
#[derive(PartialEq, Eq, Debug)]
pub struct Snapshot {
    /// When it began, in nanoseconds from any beginning.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Its sampling intervals, at least 1.
    pub ticks: u64,
    /// Its regions.
    pub regions: Vec<Region>,
}

/// Makes accesses of snapshots.
pub struct Player<'a, 'b> {
    sink: &'a mut Sink<'b>,
    path: PathBuf,
    seed: u64,
    /// The target that the caller wants.
    only: Option<u64>,
    /// The first target.
    first: Option<u64>,
}

impl<'a, 'b> Player<'a, 'b> {
    /// For the record at `path`.
    pub fn new(path: PathBuf, settings: &Settings, sink: &'a mut Sink<'b>) -> Player<'a, 'b> {
        Player { sink, path, seed: settings.seed, only: settings.only, first: None }
    }

    /// Whether what is of this target is wanted. It is an error if that is not clear.
    pub fn wants(&mut self, target: u64) -> Result<bool, ImportError> {
        if let Some(only) = self.only {
            return Ok(only == target);
        }
        let first = *self.first.get_or_insert(target);
        if first == target {
            return Ok(true);
        }
        Err(ImportError::Several { path: self.path.clone(), kind: "targets", first, second: target })
    }

    /// Make the accesses of a snapshot.
    pub fn play(&mut self, snapshot: &Snapshot) -> Result<(), ImportError> {
        for _ in snapshot.regions.iter().filter(|region| region.end > USER_HALF) {
            (self.sink)(Step::LeftOut("regions beyond the program's half of the address space"))?;
        }
        let length = snapshot.end.saturating_sub(snapshot.start);
        for tick in 0..snapshot.ticks {
            let since = (u128::from(length) * u128::from(tick) / u128::from(snapshot.ticks)) as u64;
            (self.sink)(Step::At { task: 0, nanos: snapshot.start.saturating_add(since) })?;
            for region in
                snapshot.regions.iter().filter(|region| region.accesses > 0 && region.end <= USER_HALF)
            {
                self.touch(region, tick, snapshot.ticks)?;
            }
        }
        (self.sink)(Step::At { task: 0, nanos: snapshot.end })
    }

    /// Touch the part of the region whose turn it is. The program begins with a part that is drawn, and has been
    /// through all of them after the last tick.
    fn touch(&mut self, region: &Region, tick: u64, ticks: u64) -> Result<(), ImportError> {
        let (first, end) = (region.start >> PAGE_SHIFT, region.end.div_ceil(PAGE_SIZE));
        let pages = end.saturating_sub(first);
        let part = (tick + Rng::new(self.seed ^ region.start).below(ticks)) % ticks;
        let border = |part: u64| first + (u128::from(pages) * u128::from(part) / u128::from(ticks)) as u64;
        for page in border(part)..border(part + 1) {
            let (addr, times) = (page << PAGE_SHIFT, region.accesses);
            (self.sink)(Step::Access { task: 0, addr, bytes: 1, mode: AccessKind::Load, times })?;
        }
        Ok(())
    }
}
