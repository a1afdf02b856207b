//! What pages hold: those that the thread has written are looked at from time to time, and before they go away.
//!
//! The recorder copies them to its output, and the conversion sees what compressors make of them. So how often it looks
//! is what bounds the output of a program that writes the same pages all the time: at first after a fixed number of
//! instructions, then after a fixed part of all so far.

use std::collections::HashSet;

use crate::event::{PAGE_SHIFT, PAGE_SIZE};
use crate::system;

/// Instructions between two looks at least.
const LEAST: u64 = 1 << 26;
/// And at least this part of all that the thread has executed.
const PART: u64 = 16;
/// Bytes of a chunk's body after which it is passed on.
const FULL: usize = 1 << 20;
/// Pages that are remembered as noted, by their low bits.
const RECENT: usize = 256;

/// The pages that a thread has written since it looked at them.
pub struct Written {
    pages: HashSet<u64>,
    /// Some of them, so that most of the time no table is asked.
    recent: [u64; RECENT],
    /// Instructions so far, and those at which it looks next.
    executed: u64,
    due: u64,
}

impl Written {
    pub fn new() -> Written {
        Written { pages: HashSet::new(), recent: [u64::MAX; RECENT], executed: 0, due: LEAST }
    }

    /// The page was written.
    #[inline]
    pub fn note(&mut self, page: u64) {
        let recent = &mut self.recent[page as usize % RECENT];
        if *recent != page {
            *recent = page;
            self.pages.insert(page);
        }
    }

    /// All of them, in order.
    pub fn pages(&self) -> Vec<u64> {
        let mut pages: Vec<u64> = self.pages.iter().copied().collect();
        pages.sort_unstable();
        pages
    }

    /// Take those of a range out.
    pub fn take(&mut self, (start, end): (u64, u64)) -> Vec<u64> {
        self.recent = [u64::MAX; RECENT];
        match end.saturating_sub(start) < self.pages.len() as u64 {
            true => (start..end).filter(|page| self.pages.remove(page)).collect(),
            false => self.pages.extract_if(|page| (start..end).contains(page)).collect(),
        }
    }

    /// Note that instructions were executed. Returns whether it is time to look.
    pub fn is_due(&mut self, instructions: u64) -> bool {
        self.executed += instructions;
        self.executed >= self.due
    }

    /// Look at all pages in this range, or at all. `pass` gets bodies of chunks.
    pub fn look(&mut self, range: Option<(u64, u64)>, mut pass: impl FnMut(&[u8])) {
        let mut pages: Vec<u64> = match range {
            None => {
                self.due = self.executed + LEAST.max(self.executed / PART);
                self.pages.drain().collect()
            }
            Some(range) => self.take(range),
        };
        if pages.is_empty() {
            return;
        }
        self.recent = [u64::MAX; RECENT];
        pages.sort_unstable();
        let (mut body, mut bytes) = (Vec::new(), [0; PAGE_SIZE as usize]);
        for page in pages {
            // What is gone, or may not be read, has no content that matters.
            if system::read_exact(page << PAGE_SHIFT, &mut bytes).is_some() {
                put(&mut body, page, &bytes);
            }
            if body.len() >= FULL {
                pass(&body);
                body.clear();
            }
        }
        pass(&body);
    }
}

fn put(body: &mut Vec<u8>, page: u64, bytes: &[u8]) {
    crate::codec::put_varint(body, page);
    let (first, rest) = bytes.split_at(8);
    match rest.chunks_exact(8).all(|word| word == first) {
        true => body.push(u8::from(first != [0; 8])),
        false => {
            body.push(2);
            body.extend_from_slice(bytes);
        }
    }
}
