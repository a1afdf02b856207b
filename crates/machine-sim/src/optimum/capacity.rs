//! The most pages that can be kept in memory from one use to the next.
//!
//! To keep a page from a use to its next takes one frame at all moments in between. As many of these intervals as possible
//! must be kept, and at no moment more than the capacity. The greedy choice is optimal: take the intervals in order of
//! their ends, and keep each that fits; this holds also if the capacity changes over time. Proof: if an interval that fits
//! were left out for others, one of these would cover everything from the first full moment to the end of the first, and
//! could be exchanged for it.
//!
//! Intervals end now. So each query asks for the smallest capacity left from some moment until now, and each change lowers
//! it from some moment until now. That minimum grows with the moment, so a list of the moments at which it grows, and by
//! how much, is sufficient. Keeping a page takes one from the last step at or before its start; without such a step the
//! page does not fit.

use std::collections::BTreeMap;

/// The smallest capacity left from each moment until now.
#[derive(Default)]
pub(super) struct Capacity {
    /// The moments at which it grows, and by how much.
    steps: BTreeMap<u64, u64>,
    /// The capacity left at the last moment: the sum of all steps.
    now: u64,
}

impl Capacity {
    /// A new moment, after all others, at which `pages` pages fit.
    pub(super) fn moment(&mut self, at: u64, pages: u64) {
        while self.now > pages {
            let mut step = self.steps.last_entry().expect("a sum that is not 0 must have steps");
            let less = (self.now - pages).min(*step.get());
            *step.get_mut() -= less;
            self.now -= less;
            if *step.get() == 0 {
                step.remove();
            }
        }
        if pages > self.now {
            self.steps.insert(at, pages - self.now);
            self.now = pages;
        }
    }

    /// Keep a page from `from`, which is not after the last moment, until now, if it fits.
    pub(super) fn keep(&mut self, from: u64) -> bool {
        let Some((&at, step)) = self.steps.range_mut(..=from).next_back() else { return false };
        *step -= 1;
        if *step == 0 {
            self.steps.remove(&at);
        }
        self.now -= 1;
        true
    }
}
