//! The statistics of a vector that decisions use: those of the last time that they were added up.
//!
//! Linux counts the statistics of control groups on each CPU, and a worker adds them up every two seconds. If there are
//! groups at all, the root's own sizes are read there, too. So "is the inactive list low", the choice to reclaim only
//! cache, "were refaults activated since", the size that a refault distance is compared with, and the decay of costs
//! use sizes that may be two seconds old: of a program that has just begun, nearly nothing. How much of a list is
//! scanned depends on the present sizes.
//!
//! Here there is no worker: the first request after the end of a period adds up for all. If reclaim runs all the time,
//! this is the same moment. A round of reclaim that freed nothing adds up, too, before memory counts as out.
//!
//! Source: flush_memcg_stats_dwork and lruvec_page_state in mm/memcontrol.c of Linux 6.12.

use super::vec::{LruList, LruVec};
use super::{Lru, ROOT};
use crate::knobs::Knob;
use crate::machine::Machine;
use crate::platform::Platform;
use crate::primitive::{AtomicU64, Ordering::*};
use crate::units::*;

const MILLISECOND: Nanos = 1_000_000;

/// The statistics of a vector and of those of the groups below.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Known {
    pub(super) pages: [u64; LruList::EVICTABLE.len()],
    /// Refaulted pages that were activated: anonymous, file.
    pub(super) activations: [u64; 2],
}

impl Known {
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

    pub(crate) fn evictable(&self) -> u64 {
        self.pages.iter().sum()
    }

    pub(crate) fn activations(&self, file: bool) -> u64 {
        self.activations[file as usize]
    }
}

/// The statistics of a vector that were added up last.
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
    /// The statistics of a group's vector on a node, at most `memcg.flush_ms` old.
    pub fn known<M: Machine>(&self, platform: &Platform<M>, node: NodeId, group: GroupId) -> Known {
        let vec = self.vec(node, group);
        match platform.knobs.get(Knob::MemcgFlushMs) * MILLISECOND {
            0 => Known::now(vec),
            period => {
                self.add_up_if_due(platform.machine.now() + self.statistics_age, period);
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
        self.add_up();
    }

    /// Add up the statistics of all groups now, also in the middle of a period.
    pub(crate) fn add_up(&self) {
        for group in self.groups.subtree(ROOT) {
            for node in (0..self.nodes).map(|node| NodeId(node as u8)) {
                let vec = self.vec(node, group);
                vec.added_up.set(&Known::now(vec));
            }
        }
    }
}
