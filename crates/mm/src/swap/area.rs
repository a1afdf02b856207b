//! One swap area: its slot map, its clusters, and the swap cache's content for each slot.

use super::clusters::{CLUSTER_SLOTS, Clusters};
use crate::units::{CpuId, GroupId, Order, Pfn, Shadow};
use std_alloc::format;
use std_alloc::string::String;
use std_alloc::vec;
use std_alloc::vec::Vec;

/// The cache refers to the slot: it has a folio there, or is about to.
const HAS_CACHE: u32 = 1 << 31;
/// The value of the slot is a shadow.
const HAS_SHADOW: u32 = 1 << 30;
/// Entries that refer to the slot.
const ENTRIES: u32 = HAS_SHADOW - 1;

/// Partly used clusters to search for a run when no cluster is free.
const SEARCHED: usize = 8;

/// Orders of runs that fit into a cluster.
const RUN_ORDERS: usize = CLUSTER_SLOTS.ilog2() as usize + 1;

/// The cluster that a CPU fills now.
#[derive(Clone, Copy)]
struct Current {
    cluster: u32,
    next: u32,
}

/// The nodes of a tree that would have the values of an area's slots: one for each 64 slots of which one has a value.
struct CacheNodes {
    /// Number of values, by node.
    values: Vec<u8>,
    /// By how much the number of nodes has changed.
    change: i64,
}

impl CacheNodes {
    const SLOTS: u32 = 64;

    fn new(slots: u32) -> CacheNodes {
        CacheNodes { values: vec![0; slots.div_ceil(CacheNodes::SLOTS) as usize], change: 0 }
    }

    /// A slot's value changes from `old` to `new`; 0 is none.
    fn note(&mut self, slot: u32, old: u64, new: u64) {
        let values = &mut self.values[(slot / CacheNodes::SLOTS) as usize];
        let before = *values;
        *values = before + u8::from(new != 0) - u8::from(old != 0);
        self.change += i64::from(*values != 0) - i64::from(before != 0);
    }
}

/// The slots of one area, numbered from 0.
pub(super) struct SwapSlots {
    /// [`HAS_CACHE`], [`HAS_SHADOW`] and the number of entries. 0 = the slot is free.
    map: Vec<u32>,
    /// Folio + 1, or a shadow, depending on the map.
    value: Vec<u64>,
    /// Number of the group that a used slot is charged to. A number, because zeroed memory need not be touched to be
    /// allocated.
    group: Vec<u16>,
    clusters: Clusters,
    /// By CPU and order of what it swaps out: pages of one order share clusters, so that runs stay free for other
    /// orders.
    current: Vec<[Option<Current>; RUN_ORDERS]>,
    free: u64,
    nodes: CacheNodes,
    /// By slot, whether what was swapped out there last were zeroes, which are not written; empty if none ever were.
    zeroes: Vec<bool>,
}

/// What the slots of all areas count.
#[derive(Default)]
pub(super) struct Sums {
    /// Entries that refer to a slot.
    pub(super) entries: u64,
    /// By group: slots in use.
    pub(super) charged: Vec<u64>,
}

impl SwapSlots {
    pub(super) fn new(slots: u32, cpus: usize) -> SwapSlots {
        SwapSlots {
            map: vec![0; slots as usize],
            value: vec![0; slots as usize],
            group: vec![0; slots as usize],
            clusters: Clusters::new(slots),
            current: vec![[None; RUN_ORDERS]; cpus],
            free: slots as u64,
            nodes: CacheNodes::new(slots),
            zeroes: Vec::new(),
        }
    }

    /// Note whether zeroes are swapped out to these slots.
    pub(super) fn set_zeroes(&mut self, slot: u32, count: u32, zeroes: bool) {
        if self.zeroes.is_empty() {
            if !zeroes {
                return;
            }
            self.zeroes = vec![false; self.map.len()];
        }
        self.zeroes[slot as usize..(slot + count) as usize].fill(zeroes);
    }

    /// Whether the content of a slot is zeroes.
    pub(super) fn has_zeroes(&self, slot: u32) -> bool {
        self.zeroes.get(slot as usize) == Some(&true)
    }

    /// Whether a slot is in use.
    pub(super) fn is_used(&self, slot: u32) -> bool {
        self.map[slot as usize] != 0
    }

    /// Whether one entry refers to a slot, and it is not in the cache.
    pub(super) fn can_hold(&self, slot: u32) -> bool {
        self.entries(slot) == 1 && !self.has_cache(slot)
    }

    /// Hold such a slot without a folio; returns its shadow.
    pub(super) fn hold(&mut self, slot: u32) -> Option<Shadow> {
        let shadow = (self.map[slot as usize] & HAS_SHADOW != 0).then(|| Shadow(self.set_value(slot, 0)));
        let map = &mut self.map[slot as usize];
        *map = (*map | HAS_CACHE) & !HAS_SHADOW;
        shadow
    }

    /// Allocate a slot from the cluster that `cpu` fills; the cache holds the slot.
    pub(super) fn alloc(&mut self, cpu: CpuId) -> Option<u32> {
        if self.free == 0 {
            return None;
        }
        loop {
            if let Some(at) = self.current[cpu.index()][0] {
                let mut rest = at.next..self.clusters.range(at.cluster).end;
                if let Some(slot) = rest.find(|&slot| self.map[slot as usize] == 0) {
                    self.current[cpu.index()][0] = Some(Current { next: slot + 1, ..at });
                    return Some(self.claim(slot));
                }
                self.clusters.give_back(at.cluster);
                self.current[cpu.index()][0] = None;
            }
            let Some(cluster) = self.clusters.take() else { return self.alloc_from_others() };
            self.current[cpu.index()][0] =
                Some(Current { cluster, next: self.clusters.range(cluster).start });
        }
    }

    /// Allocate `1 << order` consecutive slots, aligned to their number and all held by the cache, and return the
    /// first. The search is limited: if it fails, the caller swaps out page by page.
    pub(super) fn alloc_run(&mut self, cpu: CpuId, order: Order) -> Option<u32> {
        let count = order.frames();
        if self.free < count as u64 {
            return None;
        }
        if count > CLUSTER_SLOTS {
            return self.alloc_clusters(count / CLUSTER_SLOTS);
        }
        let (cpu, size) = (cpu.index(), order.0 as usize);
        if let Some(at) = self.current[cpu][size].take() {
            if let Some(slot) = self.fill(cpu, size, at) {
                return Some(slot);
            }
            self.clusters.give_back(at.cluster);
        }
        if let Some(cluster) = self.clusters.take_free() {
            let next = self.clusters.range(cluster).start;
            if let Some(slot) = self.fill(cpu, size, Current { cluster, next }) {
                return Some(slot);
            }
            // The area's last cluster is too short.
            self.clusters.give_back(cluster);
        }
        let mut open = self.clusters.open().take(SEARCHED);
        let slot = open.find_map(|cluster| self.free_run(self.clusters.range(cluster), count))?;
        drop(open);
        let cluster = slot / CLUSTER_SLOTS;
        self.clusters.take_this(cluster);
        let slot = self.claim_run(slot, count);
        self.clusters.give_back(cluster);
        Some(slot)
    }

    /// Allocate a run from the cluster that a CPU fills with runs of this size.
    fn fill(&mut self, cpu: usize, size: usize, at: Current) -> Option<u32> {
        let count = 1 << size;
        let slot = self.free_run(at.next..self.clusters.range(at.cluster).end, count)?;
        self.current[cpu][size] = Some(Current { next: slot + count, ..at });
        Some(self.claim_run(slot, count))
    }

    /// Allocate all slots of consecutive clusters.
    fn alloc_clusters(&mut self, count: u32) -> Option<u32> {
        let first = self.clusters.take_free_row(count)?;
        let slot = self.claim_run(self.clusters.range(first).start, count * CLUSTER_SLOTS);
        (first..first + count).for_each(|cluster| self.clusters.give_back(cluster));
        Some(slot)
    }

    /// Find `count` free slots in `range`, aligned to `count`; returns the first.
    fn free_run(&self, range: core::ops::Range<u32>, count: u32) -> Option<u32> {
        let mut starts = (range.start.next_multiple_of(count)..range.end).step_by(count as usize);
        starts.find(|&slot| {
            slot + count <= range.end
                && self.map[slot as usize..(slot + count) as usize].iter().all(|&map| map == 0)
        })
    }

    fn claim_run(&mut self, slot: u32, count: u32) -> u32 {
        (slot..slot + count).for_each(|slot| {
            self.claim(slot);
        });
        slot
    }

    /// Allocate from a cluster that another CPU fills: all free slots are in such clusters.
    fn alloc_from_others(&mut self) -> Option<u32> {
        let cluster = self.clusters.any_taken_with_room()?;
        let slot = self.clusters.range(cluster).find(|&slot| self.map[slot as usize] == 0)?;
        Some(self.claim(slot))
    }

    fn claim(&mut self, slot: u32) -> u32 {
        self.map[slot as usize] = HAS_CACHE;
        self.clusters.used(slot / CLUSTER_SLOTS);
        self.free -= 1;
        slot
    }

    /// Free a slot that lost its last user.
    fn release(&mut self, slot: u32) {
        self.map[slot as usize] = 0;
        self.set_value(slot, 0);
        self.clusters.freed(slot / CLUSTER_SLOTS);
        self.free += 1;
    }

    /// Set a slot's value; returns the old one.
    fn set_value(&mut self, slot: u32, value: u64) -> u64 {
        let old = core::mem::replace(&mut self.value[slot as usize], value);
        self.nodes.note(slot, old, value);
        old
    }

    /// By how much the number of nodes of the cache's tree has changed since the last call.
    pub(super) fn take_node_changes(&mut self) -> i64 {
        core::mem::take(&mut self.nodes.change)
    }

    /// Nodes of the cache's tree.
    pub(super) fn nodes(&self) -> u64 {
        let used = self.nodes.values.iter().filter(|&&values| values != 0);
        used.count() as u64
    }

    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Charge newly allocated slots, from this one on, to a group.
    pub(super) fn set_group(&mut self, slot: u32, count: u32, group: GroupId) {
        self.group[slot as usize..(slot + count) as usize].fill(group.0);
    }

    /// The group that a slot is charged to, or was until it became free.
    pub(super) fn group(&self, slot: u32) -> GroupId {
        GroupId(self.group[slot as usize])
    }

    pub(super) fn entries(&self, slot: u32) -> u32 {
        self.map[slot as usize] & ENTRIES
    }

    pub(super) fn dup(&mut self, slot: u32) {
        assert!(self.map[slot as usize] != 0, "no entry may refer to a free swap slot");
        self.map[slot as usize] += 1;
    }

    /// Drop an entry's reference. Returns whether the slot became free.
    pub(super) fn free_entry(&mut self, slot: u32) -> bool {
        assert!(self.entries(slot) > 0, "swap slot {slot} must have an entry");
        self.map[slot as usize] -= 1;
        let unused = self.map[slot as usize] & (ENTRIES | HAS_CACHE) == 0;
        if unused {
            self.release(slot);
        }
        unused
    }

    pub(super) fn has_cache(&self, slot: u32) -> bool {
        self.map[slot as usize] & HAS_CACHE != 0
    }

    pub(super) fn folio(&self, slot: u32) -> Option<Pfn> {
        let held = self.map[slot as usize] & (HAS_CACHE | HAS_SHADOW) == HAS_CACHE;
        (held && self.value[slot as usize] != 0).then(|| Pfn((self.value[slot as usize] - 1) as u32))
    }

    /// Put a folio into the cache; returns the shadow that it replaces.
    pub(super) fn insert(&mut self, slot: u32, pfn: Pfn) -> Option<Shadow> {
        let old = self.set_value(slot, pfn.0 as u64 + 1);
        let map = &mut self.map[slot as usize];
        assert!(*map != 0, "swap slot {slot} must be in use");
        let shadow = (*map & HAS_SHADOW != 0).then_some(Shadow(old));
        assert!(shadow.is_some() || old == 0, "swap slot {slot} must not have a folio yet");
        *map = (*map | HAS_CACHE) & !HAS_SHADOW;
        shadow
    }

    /// Replace the folio in the cache by another one.
    pub(super) fn exchange(&mut self, slot: u32, from: Pfn, to: Pfn) {
        assert_eq!(self.folio(slot), Some(from), "swap slot {slot} must have the folio to replace");
        self.set_value(slot, to.0 as u64 + 1);
    }

    /// Remove the folio from the cache. Returns whether the slot became free.
    pub(super) fn remove(&mut self, slot: u32, shadow: Option<Shadow>) -> bool {
        let map = &mut self.map[slot as usize];
        assert!(*map & HAS_CACHE != 0, "swap slot {slot} must be in the swap cache");
        *map &= !HAS_CACHE;
        if *map & ENTRIES == 0 {
            self.release(slot);
            return true;
        }
        if shadow.is_some() {
            *map |= HAS_SHADOW;
        }
        self.set_value(slot, shadow.map_or(0, |shadow| shadow.0));
        false
    }

    /// Folios in the cache, by slot.
    pub(super) fn cached(&self) -> impl Iterator<Item = (u32, Pfn)> + '_ {
        self.touched().filter_map(|slot| Some((slot, self.folio(slot)?)))
    }

    /// The slots of all clusters in which a slot is used or has a value. Most of a large area was never used, and whole
    /// clusters are quickly compared with zeroes.
    fn touched(&self) -> impl Iterator<Item = u32> + '_ {
        const SIZE: usize = CLUSTER_SLOTS as usize;
        let blank = |&(map, value): &(&[u32], &[u64])| {
            map == &[0; SIZE][..map.len()] && value == &[0; SIZE][..value.len()]
        };
        let clusters = self.map.chunks(SIZE).zip(self.value.chunks(SIZE)).enumerate();
        let touched = clusters.filter(move |(_, cluster)| !blank(cluster));
        touched.flat_map(|(number, (map, _))| (0..map.len()).map(move |at| (number * SIZE + at) as u32))
    }

    /// Check slots and clusters, and add what slots count. Returns the first error.
    pub(super) fn validate(&self, sums: &mut Sums) -> Result<(), String> {
        let mut used = vec![0; self.clusters.count()];
        for slot in self.touched() {
            let (map, value) = (self.map[slot as usize], self.value[slot as usize]);
            if map != 0 {
                used[(slot / CLUSTER_SLOTS) as usize] += 1;
                sums.entries += u64::from(map & ENTRIES);
                let group = self.group(slot).index();
                sums.charged.resize(sums.charged.len().max(group + 1), 0);
                sums.charged[group] += 1;
            }
            let orphan = map & HAS_SHADOW != 0 && map & ENTRIES == 0;
            let both = map & HAS_SHADOW != 0 && map & HAS_CACHE != 0;
            let ghost = map & (HAS_CACHE | HAS_SHADOW) == 0 && value != 0;
            if orphan || both || ghost {
                return Err(format!(
                    "swap slot {slot} has the impossible state {map:#x} with value {value:#x}"
                ));
            }
        }
        let free = self.map.len() as u64 - used.iter().map(|&used| u64::from(used)).sum::<u64>();
        if free != self.free {
            return Err(format!("swap area counts {} free slots of {free}", self.free));
        }
        self.clusters.validate(&used)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Default, PartialEq, Debug)]
    struct Model {
        used: bool,
        entries: u32,
        folio: Option<Pfn>,
        shadow: Option<Shadow>,
        cache: bool,
    }

    proptest! {
        /// Slots behave like records of plain fields under any sequence of operations.
        #[test]
        fn slots_match_the_model(count in 1u32..40, ops in prop::collection::vec((0u8..7, 0u32..40, 0u16..3), 0..300)) {
            let mut slots = SwapSlots::new(count, 3);
            let mut model = vec![Model::default(); count as usize];
            for (op, n, cpu) in ops {
                let at = (n % count) as usize;
                let slot = at as u32;
                let m = model[at];
                match op {
                    0 | 1 => match slots.alloc(CpuId(cpu)) {
                        Some(got) => {
                            prop_assert!(!model[got as usize].used);
                            model[got as usize] = Model { used: true, cache: true, ..Model::default() };
                        }
                        None => prop_assert!(model.iter().all(|m| m.used)),
                    },
                    2 if m.used => { slots.dup(slot); model[at].entries += 1 }
                    3 if m.entries > 0 => {
                        model[at].entries -= 1;
                        let free = model[at].entries == 0 && !m.cache;
                        if free { model[at] = Model::default() }
                        prop_assert_eq!(slots.free_entry(slot), free);
                    }
                    4 if m.used && m.folio.is_none() => {
                        prop_assert_eq!(slots.insert(slot, Pfn(n)), m.shadow);
                        model[at] = Model { folio: Some(Pfn(n)), shadow: None, cache: true, ..m };
                    }
                    5 if m.cache => {
                        let shadow = (cpu > 0).then_some(Shadow(n as u64));
                        let free = m.entries == 0;
                        prop_assert_eq!(slots.remove(slot, shadow), free);
                        model[at] = if free { Model::default() } else { Model { folio: None, shadow, cache: false, ..m } };
                    }
                    6 => {
                        // From two slots up to two clusters.
                        let order = Order(1 + (n % 4) as u8);
                        if let Some(first) = slots.alloc_run(CpuId(cpu), order) {
                            prop_assert_eq!(first % order.frames(), 0);
                            for got in first..first + order.frames() {
                                prop_assert!(!model[got as usize].used);
                                model[got as usize] = Model { used: true, cache: true, ..Model::default() };
                            }
                        }
                    }
                    _ => {}
                }
                slots.validate(&mut Sums::default()).unwrap();
                let m = model[at];
                prop_assert_eq!((slots.entries(slot), slots.folio(slot)), (m.entries, m.folio));
                prop_assert_eq!(slots.free(), model.iter().filter(|m| !m.used).count() as u64);
            }
        }
    }

    #[test]
    fn runs_and_single_slots_use_separate_clusters() {
        let mut slots = SwapSlots::new(4 * CLUSTER_SLOTS + 3, 1);
        let run = |slots: &mut SwapSlots, order| slots.alloc_run(CpuId(0), Order(order));
        assert_eq!([2, 2, 2].map(|order| run(&mut slots, order)), [Some(0), Some(4), Some(8)]);
        assert_eq!(slots.alloc(CpuId(0)), Some(16));
        assert_eq!(run(&mut slots, 4), None, "no two consecutive clusters are free");
        assert_eq!(
            [3, 3].map(|order| run(&mut slots, order)),
            [Some(24), None],
            "the last cluster is too short"
        );
        assert_eq!([2, 2].map(|order| run(&mut slots, order)), [Some(12), None]);
        // Single pages get all remaining slots.
        assert_eq!((0..20).filter(|_| slots.alloc(CpuId(0)).is_some()).count(), 10);
        slots.validate(&mut Sums::default()).unwrap();
        // A freed run is found again, although other slots of its cluster are in use.
        (4..8).for_each(|slot| assert!(slots.remove(slot, None)));
        assert_eq!(run(&mut slots, 2), Some(4));
        slots.validate(&mut Sums::default()).unwrap();
    }

    #[test]
    fn each_cpu_fills_a_cluster_in_order() {
        let mut slots = SwapSlots::new(4 * CLUSTER_SLOTS, 2);
        for i in 0..CLUSTER_SLOTS + 2 {
            let second = if i < CLUSTER_SLOTS {
                CLUSTER_SLOTS + i
            } else {
                2 * CLUSTER_SLOTS + CLUSTER_SLOTS + i - CLUSTER_SLOTS
            };
            let first = if i < CLUSTER_SLOTS { i } else { 2 * CLUSTER_SLOTS + i - CLUSTER_SLOTS };
            assert_eq!(slots.alloc(CpuId(0)), Some(first));
            assert_eq!(slots.alloc(CpuId(1)), Some(second));
        }
    }
}
