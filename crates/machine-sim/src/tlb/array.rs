//! A set-associative array of few ways, kept in order of use.

use super::{Epochs, Geometry};
use std::cell::Cell;

#[derive(Default)]
struct Slot {
    key: Cell<u64>,
    data: Cell<u64>,
}

/// One set-associative array.
pub(super) struct Array {
    slots: Box<[Slot]>,
    ways: usize,
    mask: u64,
    /// For each set, the count of deaths at which all of its ways were live.
    full: Box<[Cell<u64>]>,
    /// log2 of the distance between sets: ways, rounded up to a power of two.
    stride: u32,
}

impl Array {
    /// An empty array.
    pub fn new(geometry: Geometry) -> Array {
        let sets = geometry.entries / geometry.ways;
        assert!(
            sets.is_power_of_two() && sets * geometry.ways == geometry.entries,
            "a description must have sets in a power of two"
        );
        Array {
            slots: (0..sets * geometry.ways.next_power_of_two()).map(|_| Slot::default()).collect(),
            ways: geometry.ways as usize,
            mask: sets as u64 - 1,
            full: vec![Cell::new(0); sets as usize].into(),
            stride: geometry.ways.next_power_of_two().trailing_zeros(),
        }
    }

    #[inline(always)]
    fn set(&self, key: u64) -> &[Slot] {
        let first = ((key & self.mask) << self.stride) as usize;
        &self.slots[first..][..self.ways]
    }

    /// Look an entry up in the most recently used way only.
    #[inline(always)]
    pub fn front(&self, key: u64) -> Option<u64> {
        let slot = &self.slots[((key & self.mask) << self.stride) as usize];
        (slot.key.get() == key).then(|| slot.data.get())
    }

    /// Look an entry up, as a use.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        let set = self.set(key);
        let way = set.iter().position(|slot| slot.key.get() == key)?;
        let data = set[way].data.get();
        if way > 0 {
            Self::to_front(set, way, key, data);
        }
        Some(data)
    }

    /// Whether an entry is there. Does not count as a use.
    pub fn holds(&self, key: u64) -> bool {
        self.set(key).iter().any(|slot| slot.key.get() == key)
    }

    /// Shift the ways before `way` back by one and put an entry in front.
    #[inline]
    fn to_front(set: &[Slot], way: usize, key: u64, data: u64) {
        for i in (0..way).rev() {
            set[i + 1].key.set(set[i].key.get());
            set[i + 1].data.set(set[i].data.get());
        }
        set[0].key.set(key);
        set[0].data.set(data);
    }

    /// Insert an entry, which must be absent, in place of a dead one or of the least recently used.
    #[inline]
    pub fn put(&self, key: u64, data: u64, epochs: &Epochs) {
        let set = self.set(key);
        debug_assert!(set.iter().all(|slot| slot.key.get() != key), "key {key:#x} must not be in the array");
        let full = &self.full[(key & self.mask) as usize];
        let way = match full.get() == epochs.deaths.get() {
            true => set.len() - 1,
            false => self.victim(set, full, epochs),
        };
        Self::to_front(set, way, key, data);
    }

    /// The least recently used dead entry of a set, or the least recently used entry if all are live.
    fn victim(&self, set: &[Slot], full: &Cell<u64>, epochs: &Epochs) -> usize {
        set.iter().rposition(|slot| !epochs.live(slot.key.get())).unwrap_or_else(|| {
            full.set(epochs.deaths.get());
            set.len() - 1
        })
    }

    /// Drop an entry. The caller must note the death.
    pub fn drop_key(&self, key: u64) {
        if let Some(slot) = self.set(key).iter().find(|slot| slot.key.get() == key) {
            slot.key.set(0);
        }
    }

    /// Visit all entries, dead ones, too. Does not count as a use.
    pub fn for_each(&self, visit: &mut dyn FnMut(u64, u64)) {
        self.slots.iter().for_each(|slot| visit(slot.key.get(), slot.data.get()));
    }

    /// Drop all entries. The caller must note the deaths.
    pub fn clear(&self) {
        self.slots.iter().for_each(|slot| slot.key.set(0));
    }
}
