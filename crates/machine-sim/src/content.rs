//! The content of pages: one stamp for each, only in runs with the oracle.
//!
//! A stamp names a state of a page: 0 is a page of zeroes, and every store draws a new number. Stamps move as bytes do:
//! with copies, and with transfers to and from devices.

use crate::in_flight::InFlight;
use mm::machine::Io;
use mm::units::Pfn;
use std::collections::{BTreeMap, HashMap};

/// The content of a page.
pub type Stamp = u64;

/// Stamps from here on are the initial content of devices; those of stores are below.
pub(crate) const ORIGINAL: Stamp = 1 << 63;

/// The stamps of frames and of blocks.
#[derive(Default)]
pub(crate) struct Content {
    frames: Vec<Stamp>,
    blocks: HashMap<(u8, u64), Stamp>,
    /// The initial content of disk blocks: device and first block; number of blocks and first stamp.
    fills: BTreeMap<(u8, u64), (u64, Stamp)>,
    last: Stamp,
    /// Writes in flight, with the stamps that their pages had when they were submitted.
    writes: InFlight<Stamp>,
}

impl Content {
    /// All zeroes, for frames below `frames`.
    pub(crate) fn new(frames: usize) -> Content {
        Content { frames: vec![0; frames], ..Content::default() }
    }

    /// A new stamp.
    pub(crate) fn fresh(&mut self) -> Stamp {
        self.last += 1;
        self.last
    }

    /// The newest stamp.
    pub(crate) fn newest(&self) -> Stamp {
        self.last
    }

    /// The content of a frame.
    #[inline]
    pub(crate) fn frame(&self, pfn: Pfn) -> Stamp {
        self.frames[pfn.index()]
    }

    /// A frame gets new content.
    pub(crate) fn set(&mut self, pfn: Pfn, stamp: Stamp) {
        self.frames[pfn.index()] = stamp;
    }

    pub(crate) fn zero(&mut self, pfn: Pfn, pages: u32) {
        self.frames[pfn.index()..][..pages as usize].fill(0);
    }

    pub(crate) fn copy(&mut self, to: Pfn, from: Pfn, pages: u32) {
        self.frames.copy_within(from.index()..from.index() + pages as usize, to.index());
    }

    /// A transfer is submitted: a write takes its content from memory now.
    pub(crate) fn begin(&mut self, io: &Io) {
        self.writes.begin(io, &self.frames);
    }

    /// A transfer ends: only now do blocks or frames get the new content, if it was `done`.
    pub(crate) fn finish(&mut self, io: &Io, done: bool) {
        if io.write {
            self.blocks.extend(self.writes.end(io).filter(|_| done));
            return;
        }
        if !done {
            return;
        }
        for i in 0..io.pages {
            self.frames[io.frame.index() + i as usize] = self.block(io.device.0, io.block + i as u64);
        }
    }

    /// The content of a block.
    pub(crate) fn block(&self, device: u8, block: u64) -> Stamp {
        if let Some(&stamp) = self.blocks.get(&(device, block)) {
            return stamp;
        }
        match self.fills.range(..=(device, block)).next_back() {
            Some((&(d, first), &(count, stamp))) if d == device && block - first < count => {
                stamp + (block - first)
            }
            _ => 0,
        }
    }

    /// Set the initial content of `count` blocks from `first`: `stamp`, `stamp + 1`, ...
    pub(crate) fn fill(&mut self, device: u8, first: u64, count: u64, stamp: Stamp) {
        self.discard(device, first, count);
        self.fills.insert((device, first), (count, stamp));
    }

    /// The file system frees blocks: they read as zeroes. A file may have 2^40 that nobody ever wrote, so this takes
    /// time and memory for what is known of them, and not for each.
    pub(crate) fn discard(&mut self, device: u8, first: u64, count: u64) {
        let end = first + count;
        if count > self.blocks.len() as u64 {
            self.blocks.retain(|&(d, block), _| d != device || !(first..end).contains(&block));
        } else {
            (first..end).for_each(|block| _ = self.blocks.remove(&(device, block)));
        }
        let before = self.fills.range(..(device, first)).next_back().map(|(&at, &fill)| (at, fill));
        let inside = self.fills.range((device, first)..(device, end)).map(|(&at, &fill)| (at, fill));
        let cut: Vec<_> = before.filter(|&((d, _), _)| d == device).into_iter().chain(inside).collect();
        for ((_, start), (length, stamp)) in cut {
            self.fills.remove(&(device, start));
            if start < first {
                self.fills.insert((device, start), (length.min(first - start), stamp));
            }
            if start + length > end {
                self.fills.insert((device, end), (start + length - end, stamp + (end - start)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use program::rng::Rng;

    /// What blocks read after any sequence of files and cuts is what a plain table says.
    #[test]
    fn discarded_blocks_read_as_zeroes_and_others_as_before() {
        for seed in 0..200 {
            let (mut content, mut plain, mut rng) = (Content::default(), [[0; 64]; 2], Rng::new(seed));
            for step in 1..40 {
                let (device, first) = (rng.below(2) as usize, rng.below(64));
                let count = 1 + rng.below(64 - first);
                let blocks = &mut plain[device][first as usize..(first + count) as usize];
                match rng.below(3) {
                    0 => {
                        content.fill(device as u8, first, count, ORIGINAL + step * 100);
                        blocks
                            .iter_mut()
                            .zip(ORIGINAL + step * 100..)
                            .for_each(|(block, stamp)| *block = stamp);
                    }
                    1 => {
                        content.discard(device as u8, first, count);
                        blocks.fill(0);
                    }
                    _ => {
                        content.blocks.insert((device as u8, first), step);
                        blocks[0] = step;
                    }
                }
            }
            for (device, blocks) in plain.iter().enumerate() {
                let read = (0..64).map(|block| content.block(device as u8, block));
                assert!(read.eq(blocks.iter().copied()), "seed {seed}, device {device}");
            }
        }
    }

    #[test]
    fn a_discard_costs_what_is_known_and_not_what_there_is() {
        let mut content = Content::default();
        content.fill(0, 0, 1 << 40, ORIGINAL);
        content.discard(0, 1000, 1 << 39);
        assert_eq!((content.fills.len(), content.blocks.len()), (2, 0));
        assert_eq!([999, 1000].map(|block| content.block(0, block)), [ORIGINAL + 999, 0]);
    }
}
