//! Doubly linked lists of frames, linked through the frame table: they need no memory of their own, and any frame is
//! removed in constant time. A frame is on at most one list. Its flags tell which one.

use super::{Frame, FrameTable};
use crate::primitive::Ordering::Relaxed;
use crate::units::Pfn;
use std_alloc::format;
use std_alloc::string::String;

/// A list of frames (heads of folios or blocks). The newest are added at the head, reclaim takes from the tail.
#[derive(Debug)]
pub struct List {
    head: Pfn,
    tail: Pfn,
    len: usize,
}

impl Default for List {
    fn default() -> Self {
        List::new()
    }
}

impl List {
    /// An empty list.
    pub const fn new() -> List {
        List { head: Pfn::NONE, tail: Pfn::NONE, len: 0 }
    }

    /// Number of entries (folios or blocks, not frames).
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the list is empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First entry, if any.
    #[inline]
    pub fn head(&self) -> Option<Pfn> {
        self.head.is_some().then_some(self.head)
    }

    /// Last entry, if any.
    #[inline]
    pub fn tail(&self) -> Option<Pfn> {
        self.tail.is_some().then_some(self.tail)
    }

    #[inline]
    pub(crate) fn push_head(&mut self, frames: &FrameTable, pfn: Pfn) {
        let record = &frames[pfn];
        record.prev.store(Pfn::NONE.0, Relaxed);
        record.next.store(self.head.0, Relaxed);
        if self.head.is_some() {
            frames[self.head].prev.store(pfn.0, Relaxed);
        } else {
            self.tail = pfn;
        }
        self.head = pfn;
        self.len += 1;
    }

    /// Add several entries at the head, one after the other: the last becomes the head.
    pub(crate) fn push_head_all(&mut self, frames: &FrameTable, pages: &[Pfn]) {
        let Some((&first, rest)) = pages.split_first() else { return };
        link(frames, first, self.head);
        if !self.head.is_some() {
            self.tail = first;
        }
        let (mut head, mut record) = (first, &frames[first]);
        for &pfn in rest {
            record.prev.store(pfn.0, Relaxed);
            record = &frames[pfn];
            record.next.store(head.0, Relaxed);
            head = pfn;
        }
        record.prev.store(Pfn::NONE.0, Relaxed);
        self.head = head;
        self.len += pages.len();
    }

    #[inline]
    pub(crate) fn push_tail(&mut self, frames: &FrameTable, pfn: Pfn) {
        link(frames, self.tail, pfn);
        link(frames, pfn, Pfn::NONE);
        if self.head == Pfn::NONE {
            self.head = pfn;
        }
        self.tail = pfn;
        self.len += 1;
    }

    /// Add `count` entries at the tail that are `step` frames apart, the lowest first.
    pub(crate) fn push_tail_run(&mut self, frames: &FrameTable, first: Pfn, count: u32, step: u32) {
        let (mut before, mut at) = (self.tail, first);
        if count == 0 {
            return;
        }
        if before.is_some() {
            frames[before].next.store(first.0, Relaxed);
        } else {
            self.head = first;
        }
        for left in (0..count).rev() {
            let record = &frames[at];
            let behind = if left > 0 { at.add(step) } else { Pfn::NONE };
            record.prev.store(before.0, Relaxed);
            record.next.store(behind.0, Relaxed);
            (before, at) = (at, behind);
        }
        self.tail = before;
        self.len += count as usize;
    }

    /// Add an entry after `at`, which is on this list.
    pub(crate) fn insert_behind(&mut self, frames: &FrameTable, at: Pfn, pfn: Pfn) {
        let next = frames[at].next();
        link(frames, at, pfn);
        link(frames, pfn, next);
        if !next.is_some() {
            self.tail = pfn;
        }
        self.len += 1;
    }

    /// Remove an entry that is on this list, by its record.
    #[inline]
    pub fn remove(&mut self, frames: &FrameTable, record: &Frame) {
        let (prev, next) = (record.prev(), record.next());
        let is_at = |pfn: Pfn| frames.get(pfn).is_some_and(|end| core::ptr::eq(end, record));
        debug_assert!(prev.is_some() || is_at(self.head), "an entry is on no list, or on another");
        debug_assert!(next.is_some() || is_at(self.tail), "an entry is on no list, or on another");
        debug_assert!(self.len > 0);
        if prev.is_some() {
            frames[prev].next.store(next.0, Relaxed);
        } else {
            self.head = next;
        }
        if next.is_some() {
            frames[next].prev.store(prev.0, Relaxed);
        } else {
            self.tail = prev;
        }
        self.len -= 1;
    }

    #[inline]
    pub(crate) fn pop_head(&mut self, frames: &FrameTable) -> Option<Pfn> {
        let pfn = self.head()?;
        self.remove(frames, &frames[pfn]);
        Some(pfn)
    }

    /// Fill `out` with entries removed from the head, the first of them last. The list must have this many.
    pub(crate) fn pop_heads(&mut self, frames: &FrameTable, out: &mut [Pfn]) {
        assert!(out.len() <= self.len, "{} of {} entries", out.len(), self.len);
        let mut at = self.head;
        for slot in out.iter_mut().rev() {
            *slot = at;
            at = frames[at].next();
        }
        self.head = at;
        self.len -= out.len();
        if at.is_some() {
            frames[at].prev.store(Pfn::NONE.0, Relaxed);
        } else {
            self.tail = at;
        }
    }

    #[inline]
    pub(crate) fn pop_tail(&mut self, frames: &FrameTable) -> Option<Pfn> {
        let pfn = self.tail()?;
        self.split_tail(frames, pfn, 1);
        Some(pfn)
    }

    /// Split off the last `count` entries. `first` is the first of them, if there are any.
    #[inline]
    pub(crate) fn split_tail(&mut self, frames: &FrameTable, first: Pfn, count: usize) -> List {
        if count == 0 {
            return List::new();
        }
        debug_assert!(count <= self.len);
        let record = &frames[first];
        let split = List { head: first, tail: self.tail, len: count };
        self.tail = record.prev();
        record.prev.store(Pfn::NONE.0, Relaxed);
        if self.tail.is_some() {
            frames[self.tail].next.store(Pfn::NONE.0, Relaxed);
        } else {
            debug_assert_eq!(self.head, first);
            self.head = Pfn::NONE;
        }
        self.len -= count;
        split
    }

    pub(crate) fn splice_head(&mut self, frames: &FrameTable, other: &mut List) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            return core::mem::swap(self, other);
        }
        link(frames, other.tail, self.head);
        self.head = other.head;
        self.len += other.len;
        *other = List::new();
    }

    pub(crate) fn splice_tail(&mut self, frames: &FrameTable, other: &mut List) {
        if other.is_empty() {
            return;
        }
        if self.is_empty() {
            return core::mem::swap(self, other);
        }
        link(frames, self.tail, other.head);
        self.tail = other.tail;
        self.len += other.len;
        *other = List::new();
    }

    /// Entries from head to tail.
    pub fn iter<'a>(&self, frames: &'a FrameTable) -> impl Iterator<Item = Pfn> + use<'a> {
        self.records(frames).map(|(pfn, _)| pfn)
    }

    /// Entries from head to tail, with their records.
    #[inline]
    pub fn records<'a>(&self, frames: &'a FrameTable) -> impl Iterator<Item = (Pfn, &'a Frame)> + use<'a> {
        let mut at = self.head;
        core::iter::from_fn(move || {
            let pfn = at.is_some().then_some(at)?;
            let record = &frames[pfn];
            at = record.next();
            Some((pfn, record))
        })
    }

    /// Check links in both directions and the length. Returns a description of the first fault.
    pub fn validate(&self, frames: &FrameTable) -> Result<(), String> {
        let (mut at, mut prev, mut count) = (self.head, Pfn::NONE, 0);
        while at.is_some() {
            let frame = frames.get(at).ok_or_else(|| format!("list leads to {at}, not a frame"))?;
            if frame.prev() != prev {
                return Err(format!("{at} has prev {}, reached from {prev}", frame.prev()));
            }
            count += 1;
            if count > self.len {
                return Err(format!("list longer than its length {}", self.len));
            }
            (prev, at) = (at, frame.next());
        }
        if self.tail != prev || count != self.len {
            let (tail, len) = (self.tail, self.len);
            return Err(format!("tail {tail} length {len}, found {prev} and {count}"));
        }
        Ok(())
    }
}

impl super::Frame {
    /// The entry after this one, or [`Pfn::NONE`].
    #[inline]
    pub(crate) fn next(&self) -> Pfn {
        Pfn(self.next.load(Relaxed))
    }

    /// The entry before this one, or [`Pfn::NONE`].
    #[inline]
    pub(crate) fn prev(&self) -> Pfn {
        Pfn(self.prev.load(Relaxed))
    }
}

#[inline]
fn link(frames: &FrameTable, left: Pfn, right: Pfn) {
    if left.is_some() {
        frames[left].next.store(right.0, Relaxed);
    }
    if right.is_some() {
        frames[right].prev.store(left.0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std_alloc::collections::VecDeque;
    use std_alloc::vec::Vec;

    proptest! {
        /// A list behaves as a deque under any sequence of operations.
        #[test]
        fn list_is_a_deque(ops in prop::collection::vec((0u8..10, 0u32..12), 0..200)) {
            let frames = FrameTable::new(12);
            let (mut list, mut model) = (List::new(), VecDeque::new());
            for (op, n) in ops {
                let pfn = Pfn(n);
                let on = model.contains(&pfn);
                match op {
                    0 if !on => { list.push_head(&frames, pfn); model.push_front(pfn) }
                    1 if !on => { list.push_tail(&frames, pfn); model.push_back(pfn) }
                    2 => prop_assert_eq!(list.pop_head(&frames), model.pop_front()),
                    3 => prop_assert_eq!(list.pop_tail(&frames), model.pop_back()),
                    4 if on => { list.remove(&frames, &frames[pfn]); model.retain(|&p| p != pfn) }
                    5 => {
                        let mut other = List::new();
                        while let Some(p) = list.pop_head(&frames) { other.push_tail(&frames, p) }
                        list.splice_head(&frames, &mut other);
                    }
                    6 => {
                        let mut out = [Pfn::NONE; 12];
                        let out = &mut out[..(n as usize).min(list.len())];
                        list.pop_heads(&frames, out);
                        prop_assert!(model.drain(..out.len()).eq(out.iter().rev().copied()));
                    }
                    7 => {
                        let off: Vec<_> = (n..12).map(Pfn).filter(|pfn| !model.contains(pfn)).collect();
                        list.push_head_all(&frames, &off);
                        off.into_iter().for_each(|pfn| model.push_front(pfn));
                    }
                    8 => {
                        let run: Vec<_> = (n..12).step_by(2).map(Pfn).take_while(|pfn| !model.contains(pfn)).collect();
                        list.push_tail_run(&frames, pfn, run.len() as u32, 2);
                        model.extend(run);
                    }
                    9 if on => {
                        let at = model.iter().position(|&p| p == pfn).unwrap();
                        let split = list.split_tail(&frames, pfn, model.len() - at);
                        split.validate(&frames).unwrap();
                        prop_assert_eq!(split.iter(&frames).collect::<Vec<_>>(), Vec::from(model.split_off(at)));
                    }
                    _ => {}
                }
                list.validate(&frames).unwrap();
                prop_assert_eq!(list.iter(&frames).collect::<Vec<_>>(), Vec::from(model.clone()));
                prop_assert_eq!(list.len(), model.len());
            }
        }
    }
}
