//! How long allocations of large folios take: from the begin of the fault, read or write that they are for, or from the
//! previous allocation in it, until the folio is allocated, with all reclaim and compaction in between.

use crate::histogram::Histogram;
use crate::sched::TaskId;
use mm::machine::Scope;
use std::collections::HashMap;

/// Orders of large folios.
pub(crate) const ORDERS: std::ops::RangeInclusive<u64> = 2..=9;

/// Durations by order.
pub(crate) struct Latency {
    /// For each task in a fault, a read or a write, the start in picoseconds.
    since: HashMap<TaskId, u64>,
    by_order: Vec<Histogram>,
}

impl Default for Latency {
    fn default() -> Latency {
        Latency { since: HashMap::new(), by_order: ORDERS.map(|_| Histogram::default()).collect() }
    }
}

impl Latency {
    /// A task enters a scope.
    pub(crate) fn enter(&mut self, scope: Scope, task: TaskId, now: u64) {
        if allocates(scope) {
            self.since.insert(task, now);
        }
    }

    /// A task leaves a scope.
    pub(crate) fn leave(&mut self, scope: Scope, task: TaskId) {
        if allocates(scope) {
            self.since.remove(&task);
        }
    }

    /// A task has allocated a folio of this order.
    pub(crate) fn allocated(&mut self, task: TaskId, order: u64, now: u64) {
        let Some(since) = self.since.get_mut(&task) else { return };
        if ORDERS.contains(&order) {
            let picos = now.saturating_sub(*since);
            self.by_order[(order - ORDERS.start()) as usize].record(picos / 1000);
        }
        *since = now;
    }

    /// Orders with allocations, and how long these took, in nanoseconds.
    pub(crate) fn by_order(&self) -> impl Iterator<Item = (u64, &Histogram)> {
        ORDERS.zip(&self.by_order).filter(|(_, histogram)| histogram.total() > 0)
    }
}

/// Whether a scope is work for a program that allocates folios.
fn allocates(scope: Scope) -> bool {
    matches!(scope, Scope::ExcPageFault | Scope::FilemapRead | Scope::GenericPerformWrite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_allocation_counts_from_the_one_before() {
        let mut latency = Latency::default();
        latency.allocated(1, 9, 5);
        latency.enter(Scope::ExcPageFault, 1, 1_000_000);
        latency.enter(Scope::FilemapRead, 2, 2_000_000);
        latency.enter(Scope::GetPageFromFreelist, 2, 2_500_000);
        latency.allocated(1, 0, 3_000_000);
        latency.allocated(1, 9, 10_000_000);
        latency.allocated(2, 4, 4_000_000);
        latency.leave(Scope::CompactZone, 1);
        latency.leave(Scope::ExcPageFault, 1);
        latency.allocated(1, 9, 90_000_000);
        let seen: Vec<_> = latency.by_order().map(|(order, all)| (order, all.total(), all.max())).collect();
        assert_eq!(seen, [(4, 1, 2000), (9, 1, 7000)]);
    }
}
