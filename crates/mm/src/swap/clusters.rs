//! Clusters: runs of slots that one CPU fills from front to back, so that pages it swaps out together are adjacent on
//! the device and can be read ahead together.
//!
//! Every cluster is in one of four states. *Free* and *open* (partly used) clusters are on lists; a *taken* cluster
//! belongs to the CPU that fills it; a *full* one is on no list. The state follows from the number of used slots and
//! from whether a CPU took the cluster, so only two calls maintain the lists: `Clusters::used` and `Clusters::freed`.

use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec;
use std_alloc::vec::Vec;

/// Slots in a cluster.
pub(crate) const CLUSTER_SLOTS: u32 = if cfg!(test) { 8 } else { 256 };

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Free,
    Open,
    Taken,
    Full,
}

#[derive(Clone, Copy)]
struct Cluster {
    used: u16,
    state: State,
    prev: u32,
    next: u32,
}

/// A queue of clusters, linked through their records.
#[derive(Clone, Copy)]
struct Queue {
    head: u32,
    tail: u32,
}

pub(super) struct Clusters {
    clusters: Vec<Cluster>,
    slots: u32,
    free: Queue,
    open: Queue,
}

impl Clusters {
    /// Create the clusters of an area of `slots` slots, all free, in order.
    pub(super) fn new(slots: u32) -> Clusters {
        let count = slots.div_ceil(CLUSTER_SLOTS);
        let blank = Cluster { used: 0, state: State::Free, prev: NONE, next: NONE };
        let empty = Queue { head: NONE, tail: NONE };
        let mut all = Clusters { clusters: vec![blank; count as usize], slots, free: empty, open: empty };
        (0..count).for_each(|cluster| all.push(cluster, State::Free));
        all
    }

    /// Slots of a cluster; the last one may be short.
    pub(super) fn range(&self, cluster: u32) -> core::ops::Range<u32> {
        let start = cluster * CLUSTER_SLOTS;
        start..(start + CLUSTER_SLOTS).min(self.slots)
    }

    /// Take a cluster with room for a CPU to fill: a free one, else a partly used one.
    pub(super) fn take(&mut self) -> Option<u32> {
        let cluster = if self.free.head != NONE { self.free.head } else { self.open.head };
        (cluster != NONE).then(|| {
            self.take_this(cluster);
            cluster
        })
    }

    /// Take a cluster with no used slot.
    pub(super) fn take_free(&mut self) -> Option<u32> {
        let cluster = self.free.head;
        (cluster != NONE).then(|| {
            self.take_this(cluster);
            cluster
        })
    }

    /// Take a free or an open cluster.
    pub(super) fn take_this(&mut self, cluster: u32) {
        self.unlink(cluster);
        self.clusters[cluster as usize].state = State::Taken;
    }

    /// Take `count` consecutive free clusters, aligned to `count`, and return the first.
    pub(super) fn take_free_row(&mut self, count: u32) -> Option<u32> {
        let whole = self.slots / CLUSTER_SLOTS;
        let is_free = |cluster: u32| self.clusters[cluster as usize].state == State::Free;
        let mut rows = (0..whole).step_by(count as usize).filter(|first| first + count <= whole);
        let first = rows.find(|&first| (first..first + count).all(is_free))?;
        (first..first + count).for_each(|cluster| self.take_this(cluster));
        Some(first)
    }

    /// Partly used clusters that no CPU fills.
    pub(super) fn open(&self) -> impl Iterator<Item = u32> {
        let mut at = self.open.head;
        core::iter::from_fn(move || {
            let cluster = (at != NONE).then_some(at)?;
            at = self.clusters[cluster as usize].next;
            Some(cluster)
        })
    }

    /// A cluster with room that some CPU has taken.
    pub(super) fn any_taken_with_room(&self) -> Option<u32> {
        (0..self.clusters.len() as u32)
            .find(|&c| self.clusters[c as usize].state == State::Taken && !self.is_full(c))
    }

    /// Give back a taken cluster: its CPU switches to another.
    pub(super) fn give_back(&mut self, cluster: u32) {
        let state = match self.clusters[cluster as usize].used {
            0 => State::Free,
            _ if self.is_full(cluster) => State::Full,
            _ => State::Open,
        };
        self.push(cluster, state);
    }

    /// Record that a slot of a taken cluster was allocated.
    pub(super) fn used(&mut self, cluster: u32) {
        assert_eq!(
            self.clusters[cluster as usize].state,
            State::Taken,
            "swap cluster {cluster} must be taken"
        );
        self.clusters[cluster as usize].used += 1;
    }

    /// Record that a slot of the cluster was freed.
    pub(super) fn freed(&mut self, cluster: u32) {
        let record = &mut self.clusters[cluster as usize];
        record.used -= 1;
        let now = if record.used == 0 { State::Free } else { State::Open };
        if record.state != State::Taken && record.state != now {
            if record.state == State::Open {
                self.unlink(cluster);
            }
            self.push(cluster, now);
        }
    }

    fn is_full(&self, cluster: u32) -> bool {
        self.clusters[cluster as usize].used as usize == self.range(cluster).len()
    }

    fn queue(&mut self, state: State) -> Option<&mut Queue> {
        match state {
            State::Free => Some(&mut self.free),
            State::Open => Some(&mut self.open),
            State::Taken | State::Full => None,
        }
    }

    fn push(&mut self, cluster: u32, state: State) {
        self.clusters[cluster as usize].state = state;
        let Some(queue) = self.queue(state) else { return };
        let tail = core::mem::replace(&mut queue.tail, cluster);
        if tail == NONE {
            queue.head = cluster;
        } else {
            self.clusters[tail as usize].next = cluster;
        }
        let record = &mut self.clusters[cluster as usize];
        (record.prev, record.next) = (tail, NONE);
    }

    fn unlink(&mut self, cluster: u32) {
        let Cluster { prev, next, state, .. } = self.clusters[cluster as usize];
        if prev != NONE {
            self.clusters[prev as usize].next = next;
        }
        if next != NONE {
            self.clusters[next as usize].prev = prev;
        }
        let queue = self.queue(state).expect("only listed clusters are unlinked");
        if prev == NONE {
            queue.head = next;
        }
        if next == NONE {
            queue.tail = prev;
        }
    }

    pub(super) fn count(&self) -> usize {
        self.clusters.len()
    }

    /// Check states and lists against the used slots of each cluster.
    pub(super) fn validate(&self, used: &[u32]) -> Result<(), String> {
        for (cluster, (record, &used)) in (0..).zip(self.clusters.iter().zip(used)) {
            if used != u32::from(record.used) {
                return Err(format!("swap cluster {cluster} counts {} used slots of {used}", record.used));
            }
            let right = match record.state {
                State::Free => used == 0,
                State::Open => used > 0 && !self.is_full(cluster),
                State::Full => self.is_full(cluster),
                State::Taken => true,
            };
            if !right {
                return Err(format!("swap cluster {cluster} is {:?} with {used} used slots", record.state));
            }
        }
        for (queue, state) in [(self.free, State::Free), (self.open, State::Open)] {
            let (mut at, mut prev, mut count) = (queue.head, NONE, 0);
            while at != NONE && count <= self.clusters.len() {
                let record = &self.clusters[at as usize];
                if record.state != state || record.prev != prev {
                    return Err(format!("swap cluster {at} is {:?} on the {state:?} list", record.state));
                }
                (prev, at, count) = (at, record.next, count + 1);
            }
            let expected = self.clusters.iter().filter(|c| c.state == state).count();
            if count != expected || queue.tail != prev {
                return Err(format!("{state:?} list holds {count} swap clusters of {expected}"));
            }
        }
        Ok(())
    }
}
