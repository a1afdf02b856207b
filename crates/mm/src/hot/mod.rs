//! What is hot: which pages of slower tiers are worth a place in a fast one.
//!
//! How uses of pages come to be known, and what they say, is a *policy* ([`HotPolicy`]), chosen by the knob
//! `tier.policy`:
//! - [`hint`]: faults at entries that were marked to that end, as in Linux;
//! - [`generations`]: young bits, which MGLRU's walks of page tables look at;
//! - [`sampled`]: addresses that the machine samples.
//!
//! A policy decides about one use, with the little that it keeps, and takes no lock that others wait for; who tells it
//! of uses, who isolates and moves pages, and who counts, is the same for all. What is asked to be moved later stands
//! in a queue, which the daemon of promotion (`promote`) takes from. Where the policy is `hint` and moves are
//! exclusive, nobody asks, and the daemon is not there.
//!
//! *Pages have names* ([`PageName`]): a policy that counts does so by owner and index and not by frame, so what it
//! knows goes along when a page moves, down or up, and nobody has to tell it of frames that are freed.

pub mod balance;
pub mod generations;
pub mod hint;
pub mod sampled;
mod table;

use crate::frame::{Frame, Owner};
use crate::knobs::{Knob, Knobs, TierMigration, TierPolicy, numa_balancing};
use crate::lock::Lock;
use crate::units::*;
use balance::{Balance, ReadShare};
use generations::HotGenerations;
use hint::Hints;
use sampled::Sampled;
use std_alloc::boxed::Box;
use std_alloc::vec::Vec;

/// Pages that wait to be moved, at most: who asks when so many do asks for nothing.
const MOST_ASKED: usize = 4096;

/// A page, whatever frame it is in: a number made of its owner and its place there. Two pages may have one name, if
/// rarely.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct PageName(u64);

impl PageName {
    /// The name of a folio's first page, if it has an owner.
    pub fn of(frame: &Frame) -> Option<PageName> {
        let owner = match frame.owner() {
            Owner::Anon(set) => u64::from(set.0) << 1 | 1,
            Owner::File(file) => u64::from(file.0) << 1,
            Owner::None => return None,
        };
        // Every bit of both goes into every bit of the name: Stafford's thirteenth mix of 64 bits.
        let mut name = frame.page_index().0 ^ owner.rotate_right(24);
        name = (name ^ name >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        name = (name ^ name >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(PageName(name ^ name >> 31))
    }

    /// The name of another page of the folio.
    #[must_use]
    pub fn and_page(self, at: u32) -> PageName {
        PageName(self.0.wrapping_add(u64::from(at).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// As a number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What is allowed.
#[derive(Clone, Copy, Debug)]
pub struct HotLimits {
    /// `numa_balancing.hot_threshold_ms`.
    pub threshold_ms: u64,
    /// `kernel.numa_balancing_promote_rate_limit_MBps`, in pages a second.
    pub pages_per_second: u64,
    /// `numa_balancing.scan_period_max_ms`.
    pub adjust_ms: u64,
}

impl HotLimits {
    /// As the knobs say.
    pub fn of(knobs: &Knobs) -> HotLimits {
        HotLimits {
            threshold_ms: knobs.get(Knob::NumaHotThresholdMs),
            pages_per_second: (knobs.get(Knob::NumaPromoteRateLimit) << 20) / PAGE_SIZE,
            adjust_ms: knobs.get(Knob::NumaScanPeriodMaxMs),
        }
    }
}

/// A use of a folio of a slower tier.
#[derive(Clone, Copy, Debug)]
pub struct HotAccess {
    /// Its head.
    pub page: Pfn,
    /// Its name, if it has one.
    pub name: Option<PageName>,
    /// Its pages.
    pub pages: u64,
    /// Where it would go.
    pub to: NodeId,
    /// Has that much room?
    pub ample: bool,
    /// The time, in ms.
    pub now_ms: u64,
    /// What is allowed.
    pub limits: HotLimits,
}

/// What becomes of a page of a slower tier that was used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PromoteVerdict {
    /// It goes up.
    pub promote: bool,
    /// It is hot; that there is room for it is another question.
    pub candidate: bool,
}

/// A way to decide what is hot.
pub trait HotPolicy {
    /// Does it want to know of uses by faults? If so, entries of pages of slower tiers are marked, and it is told.
    fn wants_faults(&self) -> bool {
        false
    }

    /// An entry of a folio was marked, so that its next use faults.
    fn marked(&self, _page: Pfn, _now_ms: u64) {}

    /// A folio of a slower tier was used. Is it worth a place in a fast one?
    fn used(&self, used: &HotAccess) -> PromoteVerdict;

    /// Reclaim is about to move a folio down. Is it too hot for that?
    fn keeps(&self, _name: PageName) -> bool {
        false
    }

    /// How much of all reads goes to a folio, in parts of [`balance::ALL`], as far as that is known.
    fn share(&self, _name: PageName) -> ReadShare {
        0
    }

    /// The daemon of promotion begins a round. `fast`: pages of the top tiers.
    fn round(&self, _fast: u64, _knobs: &Knobs) {}
}

/// A folio that is to be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Its head.
    pub page: Pfn,
    /// Its name then: if the frame holds another page now, nobody asked for that.
    pub name: PageName,
    /// Where it is to go.
    pub to: NodeId,
}

/// What is known of what is hot.
pub struct Hot {
    /// Faults at marked entries.
    pub hints: Hints,
    generations: HotGenerations,
    sampled: Sampled,
    /// Which of the tiers answers faster.
    pub balance: Balance,
    asked: Lock<Vec<Asked>>,
}

impl Hot {
    /// For a machine of so many nodes and frames.
    pub fn new(nodes: usize, frames: u64) -> Hot {
        Hot {
            hints: Hints::new(nodes),
            generations: HotGenerations::new(frames),
            sampled: Sampled::new(frames),
            balance: Balance::default(),
            asked: Lock::default(),
        }
    }

    /// The policy that the knob chooses.
    pub fn policy(&self, knobs: &Knobs) -> &dyn HotPolicy {
        match knobs.tier_policy() {
            TierPolicy::Generations => &self.generations,
            TierPolicy::Sampled => &self.sampled,
            TierPolicy::Hint => &self.hints,
        }
    }

    /// Have a folio moved later. `false`: too many wait already.
    pub fn ask(&self, asked: Asked) -> bool {
        let mut queue = self.asked.lock();
        let room = queue.len() < MOST_ASKED;
        if room {
            queue.push(asked);
        }
        room
    }

    /// All that wait to be moved, in the order in which they came.
    pub fn take_asked(&self) -> Box<[Asked]> {
        core::mem::take(&mut *self.asked.lock()).into()
    }
}

/// Is anything promoted from slower tiers?
pub fn promotes(knobs: &Knobs) -> bool {
    knobs.get(Knob::NumaBalancing) & numa_balancing::TIERING != 0 || knobs.tier_policy() != TierPolicy::Hint
}

/// Is there work for a daemon of promotion?
pub fn wants_daemon(knobs: &Knobs) -> bool {
    knobs.tier_policy() != TierPolicy::Hint || knobs.tier_migration() == TierMigration::Transactional
}
