//! A set-associative array of many ways: entries stay in place, and a word of the set holds their order of use.
//!
//! A miss is the common case here, so what a miss reads is together: the order and the keys of a set come first, and then
//! the data, which only a hit or a fill needs.

use super::{Epochs, Geometry};
use std::cell::Cell;

/// The most ways: the order is a word of four-bit numbers.
pub(super) const MAX_WAYS: usize = 16;
/// The four-bit number 1 at each place.
const ONES: u64 = 0x1111_1111_1111_1111;
/// Way n at place n.
const IN_ORDER: u64 = 0xfedc_ba98_7654_3210;
/// Words of a set before its keys: the order of use, most recent way in the lowest bits, and the count of deaths at which
/// all ways were live.
const HEADER: usize = 2;
const ORDER: usize = 0;
const FULL: usize = 1;
const LINE: usize = 8;

/// One cache line of the host.
#[repr(align(64))]
#[derive(Default)]
struct Line([Cell<u64>; LINE]);

/// One set-associative array.
pub(super) struct Wide {
    lines: Box<[Line]>,
    ways: usize,
    mask: u64,
    /// Lines of a set.
    stride: usize,
}

/// Word `at` of a set.
#[inline(always)]
fn word(set: &[Line], at: usize) -> &Cell<u64> {
    &set[at / LINE].0[at % LINE]
}

/// The order with the way at `place` moved to the front.
#[inline(always)]
fn promoted(order: u64, place: u32) -> u64 {
    let shift = 4 * place;
    let newer = order & ((1 << shift) - 1);
    let older = order & !(u64::MAX >> (60 - shift));
    older | newer << 4 | (order >> shift & 15)
}

/// The place of a way in the order.
#[inline(always)]
fn place_of(order: u64, way: usize) -> u32 {
    let zero_here = order ^ (ONES * way as u64);
    // The lowest group of four bits that is 0 borrows; only groups above it can be mistaken for one.
    (zero_here.wrapping_sub(ONES) & !zero_here & ONES << 3).trailing_zeros() / 4
}

impl Wide {
    /// An empty array. `geometry.ways` is at most [`MAX_WAYS`].
    pub fn new(geometry: Geometry) -> Wide {
        let ways = geometry.ways as usize;
        let sets = (geometry.entries / geometry.ways) as usize;
        assert!(
            ways <= MAX_WAYS && sets.is_power_of_two(),
            "a description must have few enough ways, and sets in a power of two"
        );
        let stride = (HEADER + 2 * ways).div_ceil(LINE);
        let lines: Box<[Line]> = (0..sets * stride).map(|_| Line::default()).collect();
        lines.chunks(stride).for_each(|set| word(set, ORDER).set(IN_ORDER));
        Wide { lines, ways, mask: sets as u64 - 1, stride }
    }

    #[inline(always)]
    fn set(&self, key: u64) -> &[Line] {
        &self.lines[(key & self.mask) as usize * self.stride..][..self.stride]
    }

    #[inline(always)]
    fn way_of(&self, set: &[Line], key: u64) -> Option<usize> {
        (0..self.ways).find(|way| word(set, HEADER + way).get() == key)
    }

    /// Looks an entry up, as a use.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        let set = self.set(key);
        let way = self.way_of(set, key)?;
        let order = word(set, ORDER);
        order.set(promoted(order.get(), place_of(order.get(), way)));
        Some(word(set, HEADER + self.ways + way).get())
    }

    /// Whether an entry is there. Does not count as a use.
    pub fn holds(&self, key: u64) -> bool {
        self.way_of(self.set(key), key).is_some()
    }

    /// Inserts an entry, which must be absent, in place of a dead one or of the least recently used.
    #[inline]
    pub fn put(&self, key: u64, data: u64, epochs: &Epochs) {
        let set = self.set(key);
        debug_assert!(self.way_of(set, key).is_none(), "key {key:#x} must not be in the array");
        let place = match word(set, FULL).get() == epochs.deaths.get() {
            true => self.ways as u32 - 1,
            false => self.victim(set, epochs),
        };
        let order = promoted(word(set, ORDER).get(), place);
        word(set, ORDER).set(order);
        let way = order as usize & 15;
        word(set, HEADER + way).set(key);
        word(set, HEADER + self.ways + way).set(data);
    }

    /// The place of the least recently used dead entry of a set, or of the least recently used entry if all are live.
    fn victim(&self, set: &[Line], epochs: &Epochs) -> u32 {
        let order = word(set, ORDER).get();
        let last = self.ways as u32 - 1;
        let key = |place: u32| word(set, HEADER + (order >> (4 * place)) as usize % MAX_WAYS).get();
        (0..=last).rev().find(|&place| !epochs.live(key(place))).unwrap_or_else(|| {
            word(set, FULL).set(epochs.deaths.get());
            last
        })
    }

    /// Drops an entry. The caller must note the death.
    pub fn drop_key(&self, key: u64) {
        let set = self.set(key);
        if let Some(way) = self.way_of(set, key) {
            word(set, HEADER + way).set(0);
        }
    }

    /// Visits all entries, dead ones, too. Does not count as a use.
    pub fn for_each(&self, visit: &mut dyn FnMut(u64, u64)) {
        for set in self.lines.chunks(self.stride) {
            for at in HEADER..HEADER + self.ways {
                visit(word(set, at).get(), word(set, at + self.ways).get());
            }
        }
    }

    /// Drops all entries. The caller must note the deaths.
    pub fn clear(&self) {
        for set in self.lines.chunks(self.stride) {
            (0..self.ways).for_each(|way| word(set, HEADER + way).set(0));
        }
    }
}
