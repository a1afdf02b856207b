//! One level of the bound: the stale translations that are open, and the greedy choice at their deadlines.
//!
//! A record is an interval for each CPU of its mask: the CPU must flush after `since` and no later than the deadline.
//! To find the fewest points that stab all intervals of a CPU, take the intervals in order of their ends and choose an
//! end whenever its interval has no point yet. Deadlines come in order of time, so the choice can be made as they come,
//! and only the last chosen point must be kept: one for each CPU for receptions, one for rounds.

use super::report::{BoundLevel, Cause, CauseCount};
use mm::event::Concern;
use mm::units::{SpaceId, Vpn};
use std::collections::BTreeSet;

/// Number of a record.
type Slot = u32;

/// The first sweep comes with this many records.
const SWEEP_FROM: usize = 4096;

/// A translation that was removed and that CPUs may still hold.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Stale {
    /// When it was removed.
    pub(super) since: u64,
    pub(super) page: u64,
    /// Index of the page in the file.
    pub(super) index: u64,
    pub(super) space: u32,
    /// The file's number + 1; 0: none.
    pub(super) file: u32,
    pub(super) pfn: u32,
    /// A CPU may store through it without a walk: the entry allowed stores and was dirty.
    pub(super) dirty: bool,
    /// The operation that removed it flushes it before it returns.
    pub(super) sync: bool,
}

/// When something happens, on which CPU, and what it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: u64,
    pub(super) cpu: usize,
    pub(super) cause: Cause,
}

/// What the CPUs did last, the same for both levels.
pub(super) struct Past {
    /// When each last flushed without an interrupt.
    pub(super) free: Vec<u64>,
    /// When each was last interrupted for a flush.
    pub(super) interrupted: Vec<u64>,
}

/// The CPUs of a mask.
pub(super) fn cpus(mask: &[u64]) -> impl Iterator<Item = usize> + '_ {
    mask.iter().enumerate().flat_map(|(word, &bits)| {
        let bits = std::iter::successors(Some(bits), |bits| Some(bits & bits.wrapping_sub(1)));
        bits.take_while(|&bits| bits != 0).map(move |bits| word * 64 + bits.trailing_zeros() as usize)
    })
}

/// One level.
pub(super) struct Level {
    /// Words in a mask.
    words: usize,
    /// Records, and their masks in the same order. Records that no index names are unused.
    records: Vec<Stale>,
    masks: Vec<u64>,
    unused: Vec<Slot>,
    by_page: BTreeSet<(u32, bool, u64, Slot)>,
    by_index: BTreeSet<(u32, u64, Slot)>,
    by_frame: BTreeSet<(u32, Slot)>,
    /// The number of records at which the next sweep comes.
    sweep_at: usize,
    /// The last chosen reception of each CPU.
    received: Vec<u64>,
    /// The last chosen round.
    round: u64,
    count: BoundLevel,
    open_max: usize,
}

impl Level {
    pub(super) fn new(cpus: usize) -> Level {
        Level {
            words: cpus.div_ceil(64),
            records: Vec::new(),
            masks: Vec::new(),
            unused: Vec::new(),
            by_page: BTreeSet::new(),
            by_index: BTreeSet::new(),
            by_frame: BTreeSet::new(),
            sweep_at: SWEEP_FROM,
            received: vec![0; cpus],
            round: 0,
            count: BoundLevel::default(),
            open_max: 0,
        }
    }

    pub(super) fn count(&self) -> &BoundLevel {
        &self.count
    }

    /// The most records that were open at once.
    pub(super) fn open_max(&self) -> usize {
        self.open_max
    }

    pub(super) fn open_now(&self) -> usize {
        self.by_frame.len()
    }

    fn mask(&self, slot: Slot) -> &[u64] {
        &self.masks[slot as usize * self.words..][..self.words]
    }

    /// A translation was removed, and CPUs in `mask` may still hold it.
    pub(super) fn open(&mut self, stale: Stale, mask: &[u64], past: &Past) {
        self.replace(&stale, mask);
        if self.open_now() >= self.sweep_at {
            self.sweep(past);
        }
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.records.push(Stale::default());
            self.masks.resize(self.masks.len() + self.words, 0);
            self.records.len() as Slot - 1
        });
        self.records[slot as usize] = stale;
        self.masks[slot as usize * self.words..][..self.words].copy_from_slice(mask);
        self.by_page.insert((stale.space, stale.sync, stale.page, slot));
        self.by_frame.insert((stale.pfn, slot));
        if stale.file != 0 {
            self.by_index.insert((stale.file, stale.index, slot));
        }
        self.open_max = self.open_max.max(self.open_now());
    }

    fn remove(&mut self, slot: Slot) {
        let Stale { space, sync, page, pfn, file, index, .. } = self.records[slot as usize];
        self.by_page.remove(&(space, sync, page, slot));
        self.by_frame.remove(&(pfn, slot));
        if file != 0 {
            self.by_index.remove(&(file, index, slot));
        }
        self.unused.push(slot);
    }

    /// Remove older records of the same translation: their deadline will be the same and their interval is longer, so
    /// the new record implies them.
    fn replace(&mut self, new: &Stale, mask: &[u64]) {
        let key = |slot| (new.space, new.sync, new.page, slot);
        let same_page = self.by_page.range(key(0)..=key(Slot::MAX));
        let implied = |&(.., slot): &(u32, bool, u64, Slot)| {
            let old = self.records[slot as usize];
            let same = Stale { since: new.since, dirty: new.dirty, ..old } == *new;
            let covered = self.mask(slot).iter().zip(mask).all(|(old, new)| old & !new == 0);
            (same && covered && old.dirty <= new.dirty).then_some(slot)
        };
        let implied: Vec<Slot> = same_page.filter_map(implied).collect();
        implied.into_iter().for_each(|slot| self.remove(slot));
    }

    /// Remove the records that can need nothing any more.
    pub(super) fn sweep(&mut self, past: &Past) {
        let slots = self.by_frame.iter().map(|&(_, slot)| slot);
        let done = |&slot: &Slot| self.is_stabbed(slot, past) && self.unflushed(slot, past).next().is_none();
        let done: Vec<Slot> = slots.filter(done).collect();
        done.into_iter().for_each(|slot| self.remove(slot));
        self.sweep_at = SWEEP_FROM.max(2 * self.open_now());
    }

    /// Whether chosen points, or flushes that cost no interrupt, stab all intervals of a record.
    fn is_stabbed(&self, slot: Slot, past: &Past) -> bool {
        let since = self.records[slot as usize].since;
        cpus(self.mask(slot))
            .all(|cpu| past.free[cpu] > since || (self.received[cpu] > since && self.round > since))
    }

    /// The CPUs of a record that have not flushed since.
    fn unflushed<'a>(&'a self, slot: Slot, past: &'a Past) -> impl Iterator<Item = usize> + 'a {
        let since = self.records[slot as usize].since;
        cpus(self.mask(slot)).filter(move |&cpu| past.free[cpu] <= since && past.interrupted[cpu] <= since)
    }

    fn find(&self, concern: &Concern, cause: Cause) -> Vec<Slot> {
        let pages = |space: SpaceId, first: Vpn, count: u64, sync: bool| {
            let at = |page| (space.0, sync, page, 0);
            self.by_page.range(at(first.0)..at(first.0.saturating_add(count))).map(|&(.., slot)| slot)
        };
        match *concern {
            Concern::FlushedAtOnce { space, first, count } | Concern::Emptied { space, first, count } => {
                pages(space, first, count, true).collect()
            }
            Concern::Pages { space, first, count } => {
                pages(space, first, count, true).chain(pages(space, first, count, false)).collect()
            }
            Concern::File { file, first, count } => {
                let at = |index| (file.0 + 1, index, 0);
                let range = at(first.0)..at(first.0.saturating_add(count));
                self.by_index.range(range).map(|&(.., slot)| slot).collect()
            }
            Concern::Frames { first, count } => {
                let found = self.by_frame.range((first.0, 0)..(first.0.saturating_add(count), 0));
                let wanted = |slot: &Slot| cause != Cause::Writable || self.records[*slot as usize].dirty;
                found.map(|&(_, slot)| slot).filter(wanted).collect()
            }
        }
    }

    /// The deadline of all records of a concern has come. Returns the first without an interrupt in time, with its CPU.
    pub(super) fn due(&mut self, concern: &Concern, at: &Moment, past: &mut Past) -> Option<(Stale, usize)> {
        if self.by_frame.is_empty() {
            return None;
        }
        let mut missed = None;
        for slot in self.find(concern, at.cause) {
            let missing = self.close(slot, at, past).map(|cpu| (self.records[slot as usize], cpu));
            missed = missed.or(missing);
            self.remove(slot);
        }
        missed
    }

    /// The greedy choice for one record. Returns a CPU that was not interrupted for it in time, if there is one.
    fn close(&mut self, slot: Slot, at: &Moment, past: &mut Past) -> Option<usize> {
        let missed = self.unflushed(slot, past).find(|&cpu| cpu != at.cpu);
        if self.is_stabbed(slot, past) {
            return missed;
        }
        let since = self.records[slot as usize].since;
        let mut needed = false;
        for cpu in cpus(&self.masks[slot as usize * self.words..][..self.words]) {
            if past.free[cpu] > since {
                continue;
            }
            if cpu == at.cpu {
                // The CPU that makes the translation wrong can flush just before.
                past.free[cpu] = at.now;
                continue;
            }
            needed = true;
            if self.received[cpu] <= since {
                self.received[cpu] = at.now;
                self.count.receptions += 1;
            }
        }
        if needed {
            let of_cause: &mut CauseCount = self.count.causes.entry(at.cause).or_default();
            of_cause.deadlines += 1;
            if self.round <= since {
                self.round = at.now;
                self.count.rounds += 1;
                of_cause.rounds += 1;
            }
        }
        missed
    }
}
