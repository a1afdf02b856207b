//! Growing arrays whose elements never move, so that a reference to one needs no lock: spaces, files, anonymous sets.
//!
//! Chunks double in size; an index names its element for as long as the arena lives. Elements are made by `Default` and
//! reset by their owners before an index is given out again. The first chunk is there from the start: most machines
//! need no other, and its elements are found by one comparison.

use crate::lock::Lock;
use std_alloc::boxed::Box;
use std_alloc::vec::Vec;

#[cfg(feature = "one-thread")]
type Cell<T> = core::cell::OnceCell<T>;
#[cfg(not(feature = "one-thread"))]
type Cell<T> = spin::Once<T>;

/// log2 of the first chunk's length.
const FIRST: u32 = if cfg!(feature = "loom") { 1 } else { 5 };
/// Chunks behind the first.
const CHUNKS: usize = 23;

/// Elements by index.
pub struct Arena<T> {
    first: Box<[T; 1 << FIRST]>,
    chunks: [Cell<Box<[T]>>; CHUNKS],
    slots: Lock<ArenaSlots>,
}

#[derive(Default)]
struct ArenaSlots {
    len: u32,
    free: Vec<u32>,
}

impl<T: Default> Default for Arena<T> {
    fn default() -> Self {
        // Made one by one where they stay: all of them together may be more than a kernel's stack holds.
        let elements: Box<[T]> = (0..1usize << FIRST).map(|_| T::default()).collect();
        let first = elements.try_into().unwrap_or_else(|_| unreachable!("there are as many as asked for"));
        Arena { first, chunks: [const { Cell::new() }; CHUNKS], slots: Lock::default() }
    }
}

/// Chunk of an index behind the first chunk, and place in it.
#[inline]
fn place(index: u32) -> (usize, usize) {
    // Nothing here can overflow: 64 bits have room for every index, and a bit above FIRST is set.
    let n = (index as u64).wrapping_add(1 << FIRST);
    let top = 63 ^ n.leading_zeros();
    (top.wrapping_sub(FIRST + 1) as usize, (n ^ 1u64.wrapping_shl(top)) as usize)
}

impl<T: Default> Arena<T> {
    /// An index that is not in use; its element is as its last owner left it, or new.
    pub fn claim(&self) -> u32 {
        let index = {
            let mut slots = self.slots.lock();
            slots.free.pop().unwrap_or_else(|| {
                slots.len += 1;
                slots.len - 1
            })
        };
        self.ensure(index);
        index
    }

    /// Give an index back.
    pub fn release(&self, index: u32) {
        self.slots.lock().free.push(index);
    }

    /// Make sure that the element exists, for arenas whose indices another one gives out.
    pub fn ensure(&self, index: u32) -> &T {
        if let Some(element) = self.first.get(index as usize) {
            return element;
        }
        let (chunk, at) = place(index);
        let fill = || (0..1usize << (chunk as u32 + FIRST + 1)).map(|_| T::default()).collect();
        #[cfg(feature = "one-thread")]
        return &self.chunks[chunk].get_or_init(fill)[at];
        #[cfg(not(feature = "one-thread"))]
        return &self.chunks[chunk].call_once(fill)[at];
    }
}

impl<T> Arena<T> {
    /// The element, if the index was ever in use.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&T> {
        match self.first.get(index as usize) {
            Some(element) => Some(element),
            None => self.get_behind(index),
        }
    }

    /// [`Arena::get`] for an index behind the first chunk.
    #[inline(never)]
    fn get_behind(&self, index: u32) -> Option<&T> {
        let (chunk, at) = place(index);
        self.chunks.get(chunk)?.get().map(|elements| &elements[at])
    }

    /// All elements that were ever made, those that are not in use too.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(self.chunks.iter().filter_map(Cell::get).flatten())
    }

    /// Indices that were ever in use: 0 to this - 1.
    pub fn bound(&self) -> u32 {
        self.slots.lock().len
    }
}

impl<T> core::ops::Index<u32> for Arena<T> {
    type Output = T;

    #[inline]
    fn index(&self, index: u32) -> &T {
        self.get(index).expect("an index that was claimed")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primitive::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn elements_stay_where_they_are() {
        let arena: Arena<AtomicU32> = Arena::default();
        let first = arena.claim();
        let address = &raw const arena[first];
        for i in 1..1000 {
            let index = arena.claim();
            assert_eq!(index, i);
            arena[index].store(i, Relaxed);
        }
        assert_eq!(address, &raw const arena[first]);
        assert!((1..1000).all(|i| arena[i].load(Relaxed) == i));
        arena.release(7);
        assert_eq!((arena.claim(), arena.bound()), (7, 1000));
    }
}
