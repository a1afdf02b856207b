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
        self.fills.insert((device, first), (count, stamp));
    }

    /// The file system frees blocks: they read as zeroes.
    pub(crate) fn discard(&mut self, device: u8, first: u64, count: u64) {
        self.blocks.extend((first..first + count).map(|block| ((device, block), 0)));
    }
}
