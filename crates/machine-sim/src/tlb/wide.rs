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
/// Words in a cache line of the host.
const LINE: usize = 8;

/// One set-associative array.
pub(super) struct Wide {
    /// The sets, from the first word that begins a cache line.
    words: Box<[Cell<u64>]>,
    first: usize,
    ways: usize,
    mask: u64,
    /// Words in a set: whole cache lines.
    stride: usize,
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
        let stride = (HEADER + 2 * ways).next_multiple_of(LINE);
        let words: Box<[Cell<u64>]> = vec![Cell::new(0); sets * stride + LINE - 1].into();
        let first = words.as_ptr().align_offset(LINE * size_of::<u64>()).min(LINE - 1);
        let wide = Wide { words, first, ways, mask: sets as u64 - 1, stride };
        wide.sets().for_each(|set| set[ORDER].set(IN_ORDER));
        wide
    }

    fn sets(&self) -> impl Iterator<Item = &[Cell<u64>]> {
        self.words[self.first..].chunks_exact(self.stride)
    }

    #[inline(always)]
    fn set(&self, key: u64) -> &[Cell<u64>] {
        &self.words[self.first + (key & self.mask) as usize * self.stride..][..self.stride]
    }

    #[inline(always)]
    fn way_of(&self, set: &[Cell<u64>], key: u64) -> Option<usize> {
        set[HEADER..][..self.ways].iter().position(|word| word.get() == key)
    }

    /// Look an entry up, as a use.
    #[inline]
    pub fn get(&self, key: u64) -> Option<u64> {
        let set = self.set(key);
        let way = self.way_of(set, key)?;
        set[ORDER].set(promoted(set[ORDER].get(), place_of(set[ORDER].get(), way)));
        Some(set[HEADER + self.ways + way].get())
    }

    /// Whether an entry is there. Does not count as a use.
    pub fn holds(&self, key: u64) -> bool {
        self.way_of(self.set(key), key).is_some()
    }

    /// Insert an entry, which must be absent, in place of a dead one or of the least recently used.
    #[inline]
    pub fn put(&self, key: u64, data: u64, epochs: &Epochs) {
        let set = self.set(key);
        debug_assert!(self.way_of(set, key).is_none(), "key {key:#x} must not be in the array");
        let place = match set[FULL].get() == epochs.deaths.get() {
            true => self.ways as u32 - 1,
            false => self.victim(set, epochs),
        };
        let order = promoted(set[ORDER].get(), place);
        set[ORDER].set(order);
        let way = order as usize & 15;
        set[HEADER + way].set(key);
        set[HEADER + self.ways + way].set(data);
    }

    /// The place of the least recently used dead entry of a set, or of the least recently used entry if all are live.
    fn victim(&self, set: &[Cell<u64>], epochs: &Epochs) -> u32 {
        let order = set[ORDER].get();
        let last = self.ways as u32 - 1;
        let key = |place: u32| set[HEADER + (order >> (4 * place)) as usize % MAX_WAYS].get();
        (0..=last).rev().find(|&place| !epochs.live(key(place))).unwrap_or_else(|| {
            set[FULL].set(epochs.deaths.get());
            last
        })
    }

    /// Drop an entry. The caller must note the death.
    pub fn drop_key(&self, key: u64) {
        let set = self.set(key);
        if let Some(way) = self.way_of(set, key) {
            set[HEADER + way].set(0);
        }
    }

    /// Visit all entries, dead ones, too. Does not count as a use.
    pub fn for_each(&self, visit: &mut dyn FnMut(u64, u64)) {
        for set in self.sets() {
            (HEADER..HEADER + self.ways).for_each(|at| visit(set[at].get(), set[at + self.ways].get()));
        }
    }

    /// Drop all entries. The caller must note the deaths.
    pub fn clear(&self) {
        self.sets().for_each(|set| set[HEADER..][..self.ways].iter().for_each(|word| word.set(0)));
    }
}
