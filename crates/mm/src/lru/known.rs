//! What decisions know of a vector: its statistics as of the last time that they were added up.
//!
//! Linux counts what control groups have on each CPU for itself, and a worker adds that up every two seconds. As long
//! as there are groups at all, the root's own sizes are read there, too. So "is the inactive list low", the choice to
//! take only cache, "were refaults activated since", the size that a refault distance is held against, and the rate at
//! which costs are forgotten follow sizes that may be two seconds old: of a program that has just begun, next to
//! nothing. How much of a list is scanned follows the sizes as they are.
//!
//! Here there is no worker: the first who asks when a period is over adds up for all. Where reclaim goes on all the
//! time that is the same moment.
//!
//! Source: flush_memcg_stats_dwork and lruvec_page_state in mm/memcontrol.c of Linux 6.12.

use super::vec::{LruList, LruVec};
use super::{Lru, ROOT};
use crate::knobs::Knob;
use crate::machine::Machine;
use crate::platform::Platform;
use crate::primitive::{AtomicU64, Ordering::*};
use crate::units::*;

/// Nanoseconds in the unit of the knob.
const MILLISECOND: Nanos = 1_000_000;

/// What is known of a vector and of those of the groups below it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    /// Pages on the lists that reclaim scans.
    pages: [u64; LruList::EVICTABLE.len()],
    /// Refaulted pages that were activated, so far: anonymous, file.
    activations: [u64; 2],
}

impl Known {
    /// How things are.
    fn now(vec: &LruVec) -> Known {
        Known {
            pages: LruList::EVICTABLE.map(|list| vec.pages(list)),
            activations: [false, true].map(|file| vec.activations(file)),
        }
    }

    /// Pages on a list that reclaim scans.
    pub fn pages(&self, list: LruList) -> u64 {
        self.pages[list as usize]
    }

    /// Pages on all of them.
    pub fn evictable(&self) -> u64 {
        self.pages.iter().sum()
    }

    /// Refaulted pages of a type that were activated, so far.
    pub fn activations(&self, file: bool) -> u64 {
        self.activations[file as usize]
    }
}

/// What was added up last for a vector.
#[derive(Default)]
pub(super) struct AddedUp {
    pages: [AtomicU64; LruList::EVICTABLE.len()],
    activations: [AtomicU64; 2],
}

impl AddedUp {
    fn set(&self, known: &Known) {
        let values = known.pages.iter().chain(&known.activations);
        for (cell, &value) in self.pages.iter().chain(&self.activations).zip(values) {
            cell.store(value, Relaxed);
        }
    }

    fn get(&self) -> Known {
        Known {
            pages: core::array::from_fn(|list| self.pages[list].load(Relaxed)),
            activations: core::array::from_fn(|file| self.activations[file].load(Relaxed)),
        }
    }
}

impl Lru {
    /// What is known of a group's vector on a node (`memcg.flush_ms`).
    pub fn known<M: Machine>(&self, platform: &Platform<M>, node: NodeId, group: GroupId) -> Known {
        let vec = self.vec(node, group);
        match platform.knobs.get(Knob::MemcgFlushMs) * MILLISECOND {
            0 => Known::now(vec),
            period => {
                self.add_up_if_due(platform.machine.now(), period);
                vec.added_up.get()
            }
        }
    }

    fn add_up_if_due(&self, now: Nanos, period: Nanos) {
        let last = self.added_up_at.load(Relaxed);
        if now < last.saturating_add(period)
            || self.added_up_at.compare_exchange(last, now - now % period, Relaxed, Relaxed).is_err()
        {
            return;
        }
        for group in self.groups.subtree(ROOT) {
            for node in (0..self.nodes).map(|node| NodeId(node as u8)) {
                let vec = self.vec(node, group);
                vec.added_up.set(&Known::now(vec));
            }
        }
    }
}
