//! A sample of the program's pages: one in N is recorded.
//!
//! A page is kept or left out for good, and alone by what it is: its place in its file, or in the memory of the program
//! that made it. So all processes and calls agree about a page of a file, wherever it is mapped; a child agrees with
//! its parent about what they share; and a page that `mremap` moves stays what it was. What is kept is a program of its
//! own, with an Nth of the pages and all that happened to each of them (SHARDS, FAST 2015, does so for caches).
//!
//! What is hashed are blocks of 2 MiB, not single pages: a kernel treats neighbours alike. Around a page that was kept
//! alone, read-ahead and large folios would bring in pages that nothing uses, and it would need a page table alone.

use std::sync::Arc;

use crate::event::{Event, PAGE_SHIFT, PAGE_SIZE};
use crate::ranges::Ranges;
use abi::{Call, MapSource};

/// log2 of the pages of a block.
const BLOCK: u32 = 9;

/// What the pages of a range are: page `n` is page `n - base` (wrapping) of a file or of the program's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// A number of the file; `None` is memory.
    file: Option<u64>,
    base: u64,
}

const MEMORY: Origin = Origin { file: None, base: 0 };

/// Ranges of an address space that are files or memory that was moved; others are memory at its first place.
pub type Places = Ranges<Origin>;

/// Which pages are kept.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// One in this many; at most 1: all.
    pub one_in: u64,
    /// Tells the memory of programs apart: the same addresses of two are not kept together.
    pub salt: u64,
}

/// A number that depends on all bits of both (the finalizer of MurmurHash3).
pub fn mix(a: u64, b: u64) -> u64 {
    let mut bits = a.rotate_left(32) ^ b.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for factor in [0xff51_afd7_ed55_8ccd, 0xc4ce_b9fe_1a85_ec53] {
        bits = (bits ^ bits >> 33).wrapping_mul(factor);
    }
    bits ^ bits >> 33
}

impl Rule {
    /// Whether there are pages that are not kept.
    pub fn samples(self) -> bool {
        self.one_in > 1
    }

    fn keeps(self, origin: Origin, page: u64) -> bool {
        let whose = origin.file.unwrap_or(self.salt);
        mix(whose, page.wrapping_sub(origin.base) >> BLOCK).is_multiple_of(self.one_in.max(1))
    }

    /// The parts of a range of a file that are kept, as offset and length.
    pub fn of_file(self, file: u64, offset: u64, len: u64) -> Vec<(u64, u64)> {
        const BYTES: u64 = PAGE_SIZE << BLOCK;
        if !self.samples() {
            return vec![(offset, len)];
        }
        let (origin, end) = (Origin { file: Some(file), base: 0 }, offset.saturating_add(len));
        let (mut parts, mut at) = (Vec::<(u64, u64)>::new(), offset);
        while at < end {
            let next = (at / BYTES + 1).saturating_mul(BYTES).min(end);
            if self.keeps(origin, at >> PAGE_SHIFT) {
                match parts.last_mut() {
                    Some((start, len)) if *start + *len == at => *len += next - at,
                    _ => parts.push((at, next - at)),
                }
            }
            at = next;
        }
        parts
    }
}

/// A thread's view: the mappings that it knows of.
pub struct Sample {
    rule: Rule,
    places: Arc<Places>,
    /// The range that was used last.
    recent: (u64, u64, Origin),
}

impl Sample {
    pub fn new(rule: Rule, places: Arc<Places>) -> Sample {
        Sample { rule, places, recent: (0, 0, MEMORY) }
    }

    /// The mappings that the thread knows of.
    pub fn places(&self) -> Arc<Places> {
        self.places.clone()
    }

    /// Take note of changes.
    pub fn follow(&mut self, places: &Arc<Places>) {
        if !Arc::ptr_eq(&self.places, places) {
            (self.places, self.recent) = (places.clone(), (0, 0, MEMORY));
        }
    }

    /// Whether the page at this address is kept.
    #[inline]
    pub fn keeps(&mut self, page: u64) -> bool {
        if !self.rule.samples() {
            return true;
        }
        if !(self.recent.0..self.recent.1).contains(&page) {
            let (start, end, found) = self.places.of(page);
            self.recent = (start, end, found.unwrap_or(MEMORY));
        }
        self.rule.keeps(self.recent.2, page)
    }
}

fn pages(addr: u64, len: u64) -> (u64, u64) {
    (addr >> PAGE_SHIFT, addr.saturating_add(len).div_ceil(PAGE_SIZE))
}

/// Follow a change of the address space; `number` gives files their numbers.
pub fn follow(places: &mut Arc<Places>, event: &Event, number: impl Fn(u32) -> u64) {
    match *event {
        Event::Call { call: Call::Mmap(map), value, .. } => {
            let range = pages(value, map.len);
            let origin = match map.source {
                MapSource::File { fd, offset, .. } => {
                    Origin { file: Some(number(fd)), base: range.0.wrapping_sub(offset >> PAGE_SHIFT) }
                }
                _ => MEMORY,
            };
            put(places, range, origin);
        }
        Event::Call { call: Call::Munmap(addr, len), .. } => put(places, pages(addr, len), MEMORY),
        Event::Call { call: Call::Mremap(remap), value, .. } => {
            let (old, new) = (pages(remap.addr, remap.old_len), pages(value, remap.new_len));
            let origin = places.of(old.0).2.unwrap_or(MEMORY);
            let base = origin.base.wrapping_add(new.0.wrapping_sub(old.0));
            put(places, old, MEMORY);
            put(places, new, Origin { base, ..origin });
        }
        _ => {}
    }
}

fn put(places: &mut Arc<Places>, (start, end): (u64, u64), origin: Origin) {
    if origin != MEMORY {
        Arc::make_mut(places).insert(start, end, origin);
    } else if !places.is_free(start, end) {
        Arc::make_mut(places).remove(start, end);
    }
}
