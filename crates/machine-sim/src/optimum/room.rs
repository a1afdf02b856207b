//! How many pages can be kept in memory from one use to the next, at most.
//!
//! To keep a page from a use to its next takes one frame at all moments between. As many such intervals as possible are
//! to be kept, and at no moment more than there is room for. It is a classic that going through them in order of their
//! ends, and keeping each for which there is room, is the best there is, also where room differs from moment to moment:
//! if an interval that fits were left out for others, one of these reaches from the first moment that is too full to
//! the end or beyond, and can be given for it.
//!
//! Intervals end now, so all that is asked is the least room from a moment until now, and all that is changed is less
//! room from a moment until now. The later the moment, the more room there is at least: so a list of the moments at
//! which it grows, and by how much, tells all. Keeping a page takes one from the last step at or before its start; if
//! there is none, there is no room.

use std::collections::BTreeMap;

/// The least room from each moment until now.
#[derive(Default)]
pub(super) struct Room {
    /// Moments at which it grows, and by how much.
    steps: BTreeMap<u64, u64>,
    /// The room at the last moment: the sum of all steps.
    now: u64,
}

impl Room {
    /// A moment after all others, with room for so many pages.
    pub(super) fn moment(&mut self, at: u64, room: u64) {
        while self.now > room {
            let mut step = self.steps.last_entry().expect("the sum is not 0");
            let less = (self.now - room).min(*step.get());
            *step.get_mut() -= less;
            self.now -= less;
            if *step.get() == 0 {
                step.remove();
            }
        }
        if room > self.now {
            self.steps.insert(at, room - self.now);
            self.now = room;
        }
    }

    /// Keep a page at all moments from `from` on, if there is room. `from` is not after the last moment.
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
