//! The framework of policies that propose: it asks them, checks the answers, and carries them out.
//!
//! The queues of such a vector are those of its policy's lists. All its folios count as inactive, for statistics and
//! for formulas that all policies share. A policy's answers are never trusted: [`crate::policy`] describes what happens
//! with wrong ones.
//!
//! A vector that had no eviction for a number of scanned folios ([`Proposed::patience`]) is *stuck*: from then on
//! folios are taken from the tails of all lists, one list after the other, until one is evicted. The number halves each
//! time the vector is stuck, and doubles with each eviction that the policy has proposed.

mod isolate;
#[cfg(test)]
mod rivals;
mod shadow;
#[cfg(test)]
mod tests;

pub(crate) use isolate::{Ask, note_used};

use super::LruList;
use super::mglru::{after_use, note_use};
use super::policy::{AccessEffect, End, InsertReason, Leave, ListPosition, LockedLists, Policy, PolicyFolio};
use super::vec::PROPOSED;
use crate::frame::{Frame, FrameFlags, List};
use crate::machine::Machine;
use crate::platform::Platform;
use crate::policy::{MAX_LISTS, MAX_SAMPLE, Replace, Sample, Spot, View};
use crate::stat::Stat;
use std_alloc::boxed::Box;

/// The queue in the record of an isolated folio that its policy has proposed and that was used.
pub(super) const FOUND_USED: u8 = 1;

/// The framework's state of a vector's policy.
pub(super) struct Proposed {
    pub policy: Box<dyn Replace>,
    pub checks_references: bool,
    sample: Option<Sample>,
    pub lists: usize,
    pub sizes: [u64; MAX_LISTS],
    /// Pages evicted: the clock of the distances that the policy gets.
    evictions: u64,
    /// Folios scanned since the last eviction.
    fruitless: u64,
    /// How often the vector was stuck, less the number of evictions that the policy has proposed.
    distrust: u32,
    /// The next list to take from when the vector is stuck.
    turn: usize,
}

impl Proposed {
    pub fn new(policy: Box<dyn Replace>) -> Proposed {
        let sample = policy.sample().map(|sample| {
            let of = sample.of.clamp(1, MAX_SAMPLE);
            Sample { of, take: sample.take.clamp(1, of) }
        });
        Proposed {
            checks_references: policy.checks_references(),
            sample,
            lists: policy.lists().clamp(1, MAX_LISTS),
            sizes: [0; MAX_LISTS],
            evictions: 0,
            fruitless: 0,
            distrust: 0,
            turn: 0,
            policy,
        }
    }

    fn pages(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// The position of an answer, corrected if its list is wrong.
    fn checked<M: Machine>(&self, platform: &Platform<M>, spot: Spot) -> Spot {
        if spot.list < self.lists {
            return spot;
        }
        platform.count(Stat::PolicyWrong, 1);
        Spot { list: 0, ..spot }
    }

    /// The position of the next folio to take. `None`: all lists are empty.
    fn next<M: Machine>(&mut self, platform: &Platform<M>, queues: &[List]) -> Option<Spot> {
        let filled = |from: usize| {
            (0..self.lists).map(|i| (from + i) % self.lists).find(|&list| !queues[PROPOSED + list].is_empty())
        };
        let first = filled(0)?;
        if self.is_stuck() {
            let list = filled(self.turn).unwrap_or(first);
            self.turn = (list + 1) % self.lists;
            return Some(Spot::tail(list));
        }
        let asked = self.policy.next(&self.sizes[..self.lists]);
        let spot = self.checked(platform, asked);
        if !queues[PROPOSED + spot.list].is_empty() {
            return Some(spot);
        }
        platform.count(Stat::PolicyWrong, 1);
        Some(Spot { list: first, ..spot })
    }

    /// Number of folios to scan without an eviction before the vector is stuck: several rounds if the policy has done
    /// well.
    fn patience(&self) -> u64 {
        const ROUNDS: u64 = 4;
        const LEAST: u64 = 64;
        // There are at most as many folios as pages.
        ((ROUNDS * self.pages()) >> self.distrust.min(u64::BITS - 1)) + LEAST
    }

    fn is_stuck(&self) -> bool {
        self.fruitless > self.patience()
    }

    fn note_look<M: Machine>(&mut self, platform: &Platform<M>) {
        let before = self.is_stuck();
        self.fruitless += 1;
        if self.is_stuck() && !before {
            self.distrust = (self.distrust + 1).min(u64::BITS);
            // It stays stuck although its patience has changed.
            self.fruitless = u64::MAX / 2;
            platform.count(Stat::PolicyFallback, 1);
        }
    }

    fn note_eviction(&mut self, pages: u64) {
        if !self.is_stuck() {
            self.distrust = self.distrust.saturating_sub(1);
        }
        self.fruitless = 0;
        self.evictions += pages;
    }
}

fn queue(list: usize) -> u8 {
    (PROPOSED + list) as u8
}

fn list_of(frame: &Frame) -> usize {
    (frame.queue() as usize).saturating_sub(PROPOSED).min(MAX_LISTS - 1)
}

/// Whether it is a folio of a file, or one that reclaim may drop like one.
fn is_file(frame: &Frame) -> bool {
    !frame.has(FrameFlags::SWAPBACKED)
}

/// Any policy that proposes.
pub(super) struct ProposedPolicy;

impl Policy for ProposedPolicy {
    #[inline(never)]
    fn place<M: Machine>(
        &self,
        platform: &Platform<M>,
        (_, lists): LockedLists<'_>,
        folio: PolicyFolio<'_>,
        why: InsertReason,
    ) -> ListPosition {
        let frame = folio.frame;
        if frame.has(FrameFlags::ACTIVE) {
            frame.clear(FrameFlags::ACTIVE);
        }
        let proposed = lists.proposed.as_mut().expect("an instance of the vector's policy");
        let asked = proposed.policy.added(View::new(frame, 0), why);
        let spot = proposed.checked(platform, asked);
        // At the other end it would be scanned again and again, while folios that could be evicted are not.
        let end = if proposed.is_stuck() { End::Head } else { spot.end };
        proposed.sizes[spot.list] += folio.pages as u64;
        ListPosition { queue: queue(spot.list), end, list: LruList::new(is_file(frame), false) }
    }

    #[inline(never)]
    fn leave(&self, (_, lists): LockedLists<'_>, folio: PolicyFolio<'_>, why: Leave) -> LruList {
        let list = list_of(folio.frame);
        if let Some(proposed) = &mut lists.proposed {
            proposed.sizes[list] -= folio.pages as u64;
            if why == Leave::Other {
                proposed.policy.removed(View::new(folio.frame, list));
            }
        }
        LruList::new(is_file(folio.frame), false)
    }

    /// The policy gets it with the reason of the folio's arrival.
    #[inline]
    fn admit<M: Machine>(&self, _platform: &Platform<M>, _frame: &Frame, _faulted: bool) {}

    /// Uses are counted in the flags; the policy reads them when it is asked.
    #[inline]
    fn used<M: Machine>(&self, _base: &Platform<M>, frame: &Frame) -> AccessEffect {
        note_use(frame, after_use)
    }

    fn deactivates_all(&self) -> bool {
        true
    }
}
