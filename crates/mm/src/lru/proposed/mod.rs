//! The framework of policies that propose: it asks, checks the answers, and does what they say.
//!
//! The queues of such a vector are those of its policy's lists. All its folios count as inactive, for people and for
//! formulas that all policies share. What a policy says is never trusted: see [`crate::policy`] for what is done
//! instead.
//!
//! A vector that has had no eviction for some looks at folios ([`Proposed::patience`]) is *stuck*: from then on folios
//! are taken from the tails of all lists in turn, until one is evicted. How long it takes until a vector is stuck
//! halves with each time, and doubles with each eviction that the policy has brought about.

mod isolate;
#[cfg(test)]
mod rivals;
mod shadow;
#[cfg(test)]
mod tests;

pub use isolate::{Ask, Proposals, note_used};

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

/// The queue in the record of a folio that reclaim holds because its policy wanted it to go, and that was used.
pub(super) const FOUND_USED: u8 = 1;

/// What the framework knows of a vector's policy.
pub(super) struct Proposed {
    pub policy: Box<dyn Replace>,
    pub checks_references: bool,
    sample: Option<Sample>,
    /// Number of lists.
    pub lists: usize,
    /// Pages of each.
    pub sizes: [u64; MAX_LISTS],
    /// Pages evicted so far: the clock of the distances that the policy is told.
    evictions: u64,
    /// Folios looked at since one was evicted.
    fruitless: u64,
    /// How often the policy has led to nothing, less how often to something.
    distrust: u32,
    /// The list whose turn it is when the vector is stuck.
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

    /// Pages of all lists.
    fn pages(&self) -> u64 {
        self.sizes.iter().sum()
    }

    /// The place that an answer means.
    fn checked<M: Machine>(&self, platform: &Platform<M>, spot: Spot) -> Spot {
        if spot.list < self.lists {
            return spot;
        }
        platform.count(Stat::PolicyWrong, 1);
        Spot { list: 0, ..spot }
    }

    /// Where to take a folio from; `None`: all lists are empty.
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

    /// Looks at folios, without one being evicted, that are enough: several rounds if the policy has done well so far.
    fn patience(&self) -> u64 {
        const ROUNDS: u64 = 4;
        const LEAST: u64 = 64;
        // A page is at least as much as a folio.
        ((ROUNDS * self.pages()) >> self.distrust.min(u64::BITS - 1)) + LEAST
    }

    fn is_stuck(&self) -> bool {
        self.fruitless > self.patience()
    }

    /// One more folio was looked at.
    fn note_look<M: Machine>(&mut self, platform: &Platform<M>) {
        let before = self.is_stuck();
        self.fruitless += 1;
        if self.is_stuck() && !before {
            self.distrust = (self.distrust + 1).min(u64::BITS);
            // It stays so although that has made it less patient, or more.
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

/// The queue of a list.
fn queue(list: usize) -> u8 {
    (PROPOSED + list) as u8
}

/// The list of a folio's queue.
fn list_of(frame: &Frame) -> usize {
    (frame.queue() as usize).saturating_sub(PROPOSED).min(MAX_LISTS - 1)
}

/// Is it a folio of a file, or one that reclaim may drop like one?
fn is_file(frame: &Frame) -> bool {
    !frame.has(FrameFlags::SWAPBACKED)
}

/// Policies that propose, whichever it is.
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
        let proposed = lists.proposed.as_mut().expect("a vector has an instance of its policy");
        let asked = proposed.policy.added(View::new(frame, 0), why);
        let spot = proposed.checked(platform, asked);
        // Else it would be met again and again while others, which could go, are not.
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

    /// The reason that the folio comes with says it.
    #[inline]
    fn admit(&self, _frame: &Frame, _faulted: bool) {}

    /// Uses are counted for the policy, which looks at them when it is asked.
    #[inline]
    fn used<M: Machine>(&self, _base: &Platform<M>, frame: &Frame) -> AccessEffect {
        note_use(frame, after_use)
    }

    fn deactivates_all(&self) -> bool {
        true
    }
}
