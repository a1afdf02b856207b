//! What a policy keeps in the shadow of an evicted folio, and gets back when the page returns.

use super::is_file;
use crate::frame::FrameFlags;
use crate::lru::Lru;
use crate::lru::policy::{Evicted, STAMP_BITS};
use crate::machine::Machine;
use crate::platform::Platform;
use crate::policy::{Past, View};
use crate::units::*;

/// Number of bits of a stamp for the policy.
const LEFT_BITS: u32 = u8::BITS;
/// The bits of the clock in a stamp: distances of up to 2 TiB are exact.
const CLOCK_MASK: u64 = (1 << (STAMP_BITS - LEFT_BITS)) - 1;

fn stamp(clock: u64, left: u8) -> u64 {
    (clock & CLOCK_MASK) << LEFT_BITS | left as u64
}

fn distance(stamp: u64, now: u64) -> u64 {
    now.wrapping_sub(stamp >> LEFT_BITS) & CLOCK_MASK
}

impl Lru {
    /// The shadow of an evicted folio, whose references are frozen.
    pub(in crate::lru) fn evict_proposed<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn) -> Shadow {
        let frame = &platform.frames[pfn];
        let (node, group) = (frame.node(), frame.group());
        let mut stamped = 0;
        if let Some(proposed) = &mut self.vec(node, group).lock().proposed {
            let left = proposed.policy.evicted(View::new(frame, 0));
            stamped = stamp(proposed.evictions, left);
            proposed.note_eviction(frame.pages() as u64);
        }
        Evicted { group, node, stamp: stamped, workingset: frame.has(FrameFlags::WORKINGSET) }.pack()
    }

    /// A page has returned: report it to the policy of its vector, if it is the vector that it left.
    pub(in crate::lru) fn refault_proposed<M: Machine>(
        &self,
        platform: &Platform<M>,
        pfn: Pfn,
        shadow: Shadow,
    ) {
        let (frame, evicted) = (&platform.frames[pfn], Evicted::unpack(shadow));
        self.count_refault(platform, frame.group(), is_file(frame), frame.pages() as u64);
        if (frame.node(), frame.group()) != (evicted.node, evicted.group) {
            return;
        }
        if let Some(proposed) = &mut self.vec(evicted.node, evicted.group).lock().proposed {
            let left = evicted.stamp as u8;
            let distance = distance(evicted.stamp, proposed.evictions);
            let past = Past { left, distance, resident: proposed.pages() };
            proposed.policy.returned(View::new(frame, 0), past);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_holds_the_clock_and_the_policys_bits() {
        for (clock, now, expected) in [(5, 12, 7), (CLOCK_MASK, CLOCK_MASK + 3, 3), (u64::MAX, 9, 10)] {
            let stamped = stamp(clock, 0xa5);
            assert!(stamped < 1 << STAMP_BITS);
            assert_eq!((stamped as u8, distance(stamped, now)), (0xa5, expected));
        }
    }
}
