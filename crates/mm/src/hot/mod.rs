//! Hotness: which pages of slower tiers are worth a place in a fast one.
//!
//! A *policy* ([`HotPolicy`]), chosen by the knob `tier.policy`, decides how uses of pages are detected and judged:
//! - [`hint`]: faults at entries that were marked for this, as in Linux;
//! - [`generations`]: young bits, which MGLRU's page-table walks examine;
//! - [`sampled`]: addresses that the machine samples.
//!
//! A policy decides about one use, with little state, and takes no contended lock. The code that reports uses,
//! isolates and moves pages, and counts is common to all policies. Pages to be moved later are queued for the
//! promotion daemon (`promote`). With the policy `hint` and exclusive moves nothing is queued, and there is no daemon.
//!
//! *Pages have names* ([`PageName`]): a policy that counts does so by owner and index, not by frame. So its knowledge
//! survives when a page moves, down or up, and it need not be told of freed frames.

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

/// Maximum length of the queue; further requests are dropped.
const MOST_ASKED: usize = 4096;

/// Identity of a page, whatever frame it is in: a hash of its owner and its index. Two pages rarely have the same
/// name.
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

    /// The name as a number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Limits of promotion.
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
    /// The limits that the knobs set.
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
    /// Head of the folio.
    pub page: Pfn,
    /// Name of the folio, if it has one.
    pub name: Option<PageName>,
    /// Number of its pages.
    pub pages: u64,
    /// The node it would be promoted to.
    pub to: NodeId,
    /// Whether that node has ample room.
    pub ample: bool,
    /// The time, in ms.
    pub now_ms: u64,
    /// Limits of promotion.
    pub limits: HotLimits,
}

/// What to do with a used page of a slower tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PromoteVerdict {
    /// Promote it.
    pub promote: bool,
    /// The page is hot, whether or not it may be promoted now.
    pub candidate: bool,
}

/// A way to decide what is hot.
pub trait HotPolicy {
    /// Whether the policy is told of uses by faults. If so, entries of pages of slower tiers are marked.
    fn wants_faults(&self) -> bool {
        false
    }

    /// Note that an entry of a folio was marked, so that its next use faults.
    fn marked(&self, _page: Pfn, _now_ms: u64) {}

    /// Decide whether a used folio of a slower tier is worth a place in a fast one.
    fn used(&self, used: &HotAccess) -> PromoteVerdict;

    /// Whether a folio that reclaim is about to demote is too hot for that.
    fn keeps(&self, _name: PageName) -> bool {
        false
    }

    /// Share of all reads that goes to a folio, in parts of [`balance::ALL`], if known.
    fn share(&self, _name: PageName) -> ReadShare {
        0
    }

    /// Begin a round of the promotion daemon. `fast`: pages of the top tiers.
    fn round(&self, _fast: u64, _knobs: &Knobs) {}
}

/// A request to move a folio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    /// Head of the folio.
    pub page: Pfn,
    /// Name of the folio at the request: if the frame holds another page now, the request is void.
    pub name: PageName,
    /// The target node.
    pub to: NodeId,
}

/// State of all policies.
pub struct Hot {
    /// State of the policy of hint faults.
    pub hints: Hints,
    generations: HotGenerations,
    sampled: Sampled,
    /// Balance of reads between tiers.
    pub balance: Balance,
    asked: Lock<Vec<Asked>>,
}

impl Hot {
    /// State for a machine of `nodes` nodes and `frames` frames.
    pub fn new(nodes: usize, frames: u64) -> Hot {
        Hot {
            hints: Hints::new(nodes),
            generations: HotGenerations::new(frames),
            sampled: Sampled::new(frames),
            balance: Balance::default(),
            asked: Lock::default(),
        }
    }

    /// The policy that the knob selects.
    pub fn policy(&self, knobs: &Knobs) -> &dyn HotPolicy {
        match knobs.tier_policy() {
            TierPolicy::Generations => &self.generations,
            TierPolicy::Sampled => &self.sampled,
            TierPolicy::Hint => &self.hints,
        }
    }

    /// Queue a folio to be moved. Returns `false` if the queue is full.
    pub fn ask(&self, asked: Asked) -> bool {
        let mut queue = self.asked.lock();
        let room = queue.len() < MOST_ASKED;
        if room {
            queue.push(asked);
        }
        room
    }

    /// Take all queued requests, in order.
    pub(crate) fn take_asked(&self) -> Box<[Asked]> {
        core::mem::take(&mut *self.asked.lock()).into()
    }
}

/// Whether pages of slower tiers are promoted at all.
pub(crate) fn promotes(knobs: &Knobs) -> bool {
    knobs.get(Knob::NumaBalancing) & numa_balancing::TIERING != 0 || knobs.tier_policy() != TierPolicy::Hint
}

/// Whether a promotion daemon is needed.
pub(crate) fn wants_daemon(knobs: &Knobs) -> bool {
    knobs.tier_policy() != TierPolicy::Hint || knobs.tier_migration() == TierMigration::Transactional
}
