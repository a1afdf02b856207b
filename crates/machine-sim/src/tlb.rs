//! The translation caches of one CPU.
//!
//! The first level has data and instruction TLBs, each split by entry size; the second level is one TLB for all. Page-walk
//! caches hold the lower tables of recent walks. All are set-associative with true LRU. In the narrow ones (`array`) the
//! ways of a set are kept in order of use, so a repeated hit checks one slot and writes nothing; the second level (`wide`)
//! keeps the order in a word of its set and moves no entries.
//!
//! An entry's key contains its address-space number (ASID) and an *epoch* of that number. A flush of one ASID begins a new
//! epoch: old entries no longer match, count as empty when a victim is chosen, and cost nothing. Only when epochs run out
//! (after two million flushes) are the arrays really cleared.

use array::Array;
use mm::machine::Flush;
use mm::units::{PAGEBLOCK_ORDER, Pfn, Vpn};
use std::cell::Cell;
use wide::Wide;

mod array;
mod wide;

/// The most ASIDs that the model distinguishes.
pub const MAX_ASIDS: usize = 32;
/// The most ways of the second level.
pub const MAX_L2_WAYS: u32 = wide::MAX_WAYS as u32;

const VPN_BITS: u32 = 36;
const LARGE: u64 = 1 << VPN_BITS;
const ASID_SHIFT: u32 = VPN_BITS + 1;
const EPOCH_SHIFT: u32 = ASID_SHIFT + 5;
const LAST_EPOCH: u64 = (1 << (64 - EPOCH_SHIFT)) - 1;

/// A translation as a TLB holds it: the frame and the permitted accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cached(u64);

impl Cached {
    const WRITE: u64 = 1 << 32;
    const DIRTY: u64 = 1 << 33;
    const EXEC: u64 = 1 << 34;
    const AGE_SHIFT: u32 = 36;
    /// Fill times are kept in units of 2^14 ns (16 us) and wrap after 73 minutes.
    const AGE_UNIT: u32 = 14;
    const AGE_MASK: u64 = (1 << (64 - Self::AGE_SHIFT)) - 1;

    /// A translation to `pfn`, filled at `now` ns.
    pub fn new(pfn: Pfn, write: bool, dirty: bool, exec: bool, now: u64) -> Cached {
        let flag = |on: bool, bit: u64| if on { bit } else { 0 };
        Cached(
            pfn.0 as u64
                | flag(write, Self::WRITE)
                | flag(dirty, Self::DIRTY)
                | flag(exec, Self::EXEC)
                | ((now >> Self::AGE_UNIT) & Self::AGE_MASK) << Self::AGE_SHIFT,
        )
    }

    /// The frame.
    #[inline(always)]
    pub fn pfn(self) -> Pfn {
        Pfn(self.0 as u32)
    }

    /// Whether stores may use it without another walk: it is writable and dirty.
    #[inline(always)]
    pub fn storable(self) -> bool {
        self.0 & (Self::WRITE | Self::DIRTY) == Self::WRITE | Self::DIRTY
    }

    /// Whether it is writable.
    pub fn writable(self) -> bool {
        self.0 & Self::WRITE != 0
    }

    /// Whether instructions may be fetched through it.
    #[inline(always)]
    pub fn executable(self) -> bool {
        self.0 & Self::EXEC != 0
    }

    /// Nanoseconds since it was filled, in steps of 16 us.
    pub fn age(self, now: u64) -> u64 {
        let then = self.0 >> Self::AGE_SHIFT;
        ((now >> Self::AGE_UNIT).wrapping_sub(then) & Self::AGE_MASK) << Self::AGE_UNIT
    }

    /// The translation of the page that is `pages` after the first of a large entry.
    #[inline(always)]
    pub fn offset_by(self, pages: u64) -> Cached {
        Cached(self.0 + pages)
    }
}

/// The size of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// Entries in all.
    pub entries: u32,
    /// Entries of a set. `entries / ways` is a power of two.
    pub ways: u32,
}

/// The epoch of every ASID, as the upper part of a key.
struct Epochs {
    prefix: [Cell<u64>; MAX_ASIDS],
    /// Counts moments at which entries died. A set whose entries were all live at some count is full until it changes.
    deaths: Cell<u64>,
}

impl Epochs {
    fn new() -> Epochs {
        Epochs {
            prefix: std::array::from_fn(|asid| Cell::new(1 << EPOCH_SHIFT | (asid as u64) << ASID_SHIFT)),
            deaths: Cell::new(1),
        }
    }

    #[inline]
    fn live(&self, key: u64) -> bool {
        let asid = (key >> ASID_SHIFT) as usize % MAX_ASIDS;
        key >> ASID_SHIFT == self.prefix[asid].get() >> ASID_SHIFT
    }

    /// Some entries have died.
    #[inline]
    fn note_deaths(&self) {
        self.deaths.set(self.deaths.get() + 1);
    }

    /// Begin a new epoch; `false` if none is left.
    fn next(&self, asid: usize) -> bool {
        self.note_deaths();
        let prefix = self.prefix[asid].get();
        if prefix >> EPOCH_SHIFT == LAST_EPOCH {
            return false;
        }
        self.prefix[asid].set(prefix + (1 << EPOCH_SHIFT));
        true
    }

    fn restart(&self) {
        for (asid, prefix) in self.prefix.iter().enumerate() {
            prefix.set(1 << EPOCH_SHIFT | (asid as u64) << ASID_SHIFT);
        }
    }
}

/// Sizes of a CPU's translation caches.
#[derive(Clone, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlbSpec {
    /// First level, data, 4 KiB.
    pub l1d_4k: Geometry,
    /// First level, data, 2 MiB.
    pub l1d_2m: Geometry,
    /// First level, instructions, 4 KiB.
    pub l1i_4k: Geometry,
    /// First level, instructions, 2 MiB.
    pub l1i_2m: Geometry,
    /// Second level, for all.
    pub l2: Geometry,
    /// Walk cache of directory entries: each saves a walk its upper three steps, for 2 MiB.
    pub pde: Geometry,
    /// Walk cache of the next level up (1 GiB).
    pub pdpte: Geometry,
    /// Walk cache of the top level (512 GiB).
    pub pml4e: Geometry,
    /// Cache lines of page tables that stay in the CPU's data cache: a walk step that finds its line there is cheap.
    pub lines: u32,
    /// Where the sizes come from.
    pub source: String,
}

/// The translation caches of one CPU.
pub struct Tlb {
    l1d: Array,
    l1d_large: Array,
    l1i: Array,
    l1i_large: Array,
    l2: Wide,
    walk: [Array; 3],
    lines: Box<[Cell<u64>]>,
    epochs: Epochs,
    walk_epochs: Epochs,
    /// The loaded ASID's epoch, as the upper part of a key.
    prefix: Cell<u64>,
    asid: Cell<usize>,
    /// Whether a large entry was ever filled. If not, lookups ignore them.
    large: Cell<bool>,
}

impl Tlb {
    /// Empty caches; ASID 0 is loaded.
    pub fn new(spec: &TlbSpec) -> Tlb {
        let epochs = Epochs::new();
        let prefix = Cell::new(epochs.prefix[0].get());
        Tlb {
            l1d: Array::new(spec.l1d_4k),
            l1d_large: Array::new(spec.l1d_2m),
            l1i: Array::new(spec.l1i_4k),
            l1i_large: Array::new(spec.l1i_2m),
            l2: Wide::new(spec.l2),
            walk: [Array::new(spec.pde), Array::new(spec.pdpte), Array::new(spec.pml4e)],
            lines: vec![Cell::new(0); spec.lines.next_power_of_two() as usize].into(),
            epochs,
            walk_epochs: Epochs::new(),
            prefix,
            asid: Cell::new(0),
            large: Cell::new(false),
        }
    }

    #[inline(always)]
    fn key(&self, vpn: u64) -> u64 {
        self.prefix.get() | vpn
    }

    #[inline(always)]
    fn large_key(&self, vpn: u64) -> u64 {
        self.prefix.get() | LARGE | vpn >> PAGEBLOCK_ORDER.0
    }

    /// The page's translation, if the last lookup in its set of the data TLB was for it. `None` does not mean that the TLB
    /// lacks it.
    #[inline(always)]
    pub fn recent(&self, vpn: Vpn) -> Option<Cached> {
        self.l1d.front(self.key(vpn.0)).map(Cached)
    }

    /// Look a page up in the first-level data TLB.
    #[inline]
    pub fn data(&self, vpn: Vpn) -> Option<Cached> {
        match self.l1d.get(self.key(vpn.0)) {
            Some(data) => Some(Cached(data)),
            None if self.large.get() => self.first_large(&self.l1d_large, vpn),
            None => None,
        }
    }

    /// Look a page up in the first-level instruction TLB.
    #[inline]
    pub fn instruction(&self, vpn: Vpn) -> Option<Cached> {
        match self.l1i.get(self.key(vpn.0)) {
            Some(data) => Some(Cached(data)),
            None if self.large.get() => self.first_large(&self.l1i_large, vpn),
            None => None,
        }
    }

    fn first_large(&self, array: &Array, vpn: Vpn) -> Option<Cached> {
        array.get(self.large_key(vpn.0)).map(|data| Cached(data).offset_by(vpn.0 & 511))
    }

    /// Look a page up in the second level, and fill the first level from it.
    pub fn second(&self, vpn: Vpn, fetch: bool) -> Option<Cached> {
        let key = self.key(vpn.0);
        if let Some(data) = self.l2.get(key) {
            self.first(fetch, false).put(key, data, &self.epochs);
            return Some(Cached(data));
        }
        if !self.large.get() {
            return None;
        }
        let key = self.large_key(vpn.0);
        let data = self.l2.get(key)?;
        self.first(fetch, true).put(key, data, &self.epochs);
        Some(Cached(data).offset_by(vpn.0 & 511))
    }

    /// Whether any level holds the page's translation. Does not count as a use.
    pub fn holds(&self, vpn: Vpn) -> bool {
        let (key, large) = (self.key(vpn.0), self.large_key(vpn.0));
        let small = self.l1d.holds(key) || self.l1i.holds(key) || self.l2.holds(key);
        small || self.l1d_large.holds(large) || self.l1i_large.holds(large) || self.l2.holds(large)
    }

    fn first(&self, fetch: bool, large: bool) -> &Array {
        match (fetch, large) {
            (false, false) => &self.l1d,
            (false, true) => &self.l1d_large,
            (true, false) => &self.l1i,
            (true, true) => &self.l1i_large,
        }
    }

    /// Fill both levels with the result of a walk, which neither may hold. If `large`, it is the translation of the block's
    /// first page.
    pub fn fill(&self, vpn: Vpn, cached: Cached, large: bool, fetch: bool) {
        let key = if large { self.large_key(vpn.0) } else { self.key(vpn.0) };
        if large {
            self.large.set(true);
        }
        self.first(fetch, large).put(key, cached.0, &self.epochs);
        self.l2.put(key, cached.0, &self.epochs);
    }

    /// Drop the translation of one page, as a CPU does whose access it does not permit.
    pub fn drop_page(&self, vpn: Vpn) {
        let key = self.key(vpn.0);
        self.l1d.drop_key(key);
        self.l1i.drop_key(key);
        self.l2.drop_key(key);
        if self.large.get() {
            let key = self.large_key(vpn.0);
            self.l1d_large.drop_key(key);
            self.l1i_large.drop_key(key);
            self.l2.drop_key(key);
        }
        self.epochs.note_deaths();
    }

    /// The table that the entry of `level` (1 = directory, 2, 3) for `vpn` points to, if a walk cache holds it.
    #[inline]
    pub fn walk_get(&self, level: usize, vpn: Vpn) -> Option<Pfn> {
        let key = self.walk_epochs.prefix[self.asid.get()].get() | vpn.0 >> (9 * level);
        self.walk[level - 1].get(key).map(|data| Pfn(data as u32))
    }

    /// Fill the walk cache of `level`, which must not hold an entry for `vpn`.
    pub fn walk_put(&self, level: usize, vpn: Vpn, table: Pfn) {
        let key = self.walk_epochs.prefix[self.asid.get()].get() | vpn.0 >> (9 * level);
        self.walk[level - 1].put(key, table.0 as u64, &self.walk_epochs);
    }

    /// Visit every translation of the loaded ASID, once for each cache that holds it: first page, number of pages, and the
    /// translation of the first page. Does not count as a use.
    pub fn for_each(&self, visit: &mut dyn FnMut(Vpn, u64, Cached)) {
        let mut show = |key: u64, data: u64| {
            if key >> ASID_SHIFT == self.prefix.get() >> ASID_SHIFT {
                let number = key & (LARGE - 1);
                match key & LARGE {
                    0 => visit(Vpn(number), 1, Cached(data)),
                    _ => visit(Vpn(number << PAGEBLOCK_ORDER.0), 1 << PAGEBLOCK_ORDER.0, Cached(data)),
                }
            }
        };
        for array in [&self.l1d, &self.l1d_large, &self.l1i, &self.l1i_large] {
            array.for_each(&mut show);
        }
        self.l2.for_each(&mut show);
    }

    /// Visit every table that the walk caches hold for the loaded ASID: level (as in [`Tlb::walk_get`]), first page below it,
    /// table. Does not count as a use.
    pub fn for_each_walk(&self, visit: &mut dyn FnMut(usize, Vpn, Pfn)) {
        let prefix = self.walk_epochs.prefix[self.asid.get()].get();
        for (array, level) in self.walk.iter().zip(1..) {
            array.for_each(&mut |key, data| {
                if key >> ASID_SHIFT == prefix >> ASID_SHIFT {
                    visit(level, Vpn((key & (LARGE - 1)) << (9 * level)), Pfn(data as u32));
                }
            });
        }
    }

    /// Touch the cache line of a page-table entry. Returns whether it was in the CPU's data cache.
    #[inline]
    pub fn touch_line(&self, table: Pfn, index: usize) -> bool {
        let line = ((table.0 as u64) << 6 | (index as u64) >> 3) + 1;
        let slot =
            &self.lines[(line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (self.lines.len() - 1)];
        slot.replace(line) == line
    }

    /// Switch to `asid` and, unless `keep`, drop its translations.
    pub fn load(&self, asid: usize, keep: bool) {
        self.asid.set(asid);
        if !keep {
            self.drop_asid(asid);
        }
        self.prefix.set(self.epochs.prefix[asid].get());
    }

    /// Drop translations. The walk caches lose at least what hardware would: INVLPG drops all of the loaded ASID.
    pub fn flush(&self, what: Flush) {
        let asid = self.asid.get();
        match what {
            Flush::All => (0..MAX_ASIDS).for_each(|asid| self.drop_asid(asid)),
            Flush::Current => self.drop_asid(asid),
            Flush::Pages { start, count, stride } => {
                for i in 0..count as u64 {
                    self.drop_page(Vpn(start.0 + (i << stride.0)));
                }
                self.drop_walks(asid);
            }
        }
        self.prefix.set(self.epochs.prefix[asid].get());
    }

    fn drop_asid(&self, asid: usize) {
        if !self.epochs.next(asid) {
            for array in [&self.l1d, &self.l1d_large, &self.l1i, &self.l1i_large] {
                array.clear();
            }
            self.l2.clear();
            self.epochs.restart();
        }
        self.drop_walks(asid);
    }

    fn drop_walks(&self, asid: usize) {
        if !self.walk_epochs.next(asid) {
            self.walk.iter().for_each(Array::clear);
            self.walk_epochs.restart();
        }
    }

    /// Pages that a flush of `what` must invalidate one by one; `None`: it drops everything at once.
    pub fn single_pages(what: Flush) -> Option<u32> {
        match what {
            Flush::Pages { count, .. } => Some(count),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
