//! The shadow of an evicted folio, and what it means for a returning one.
//!
//! A shadow has the generation that was the oldest when the folio was evicted from it, and the folio's tier. While this
//! generation is still the oldest, a return counts as a refault of the tier for the controller; later it does not. (In
//! the form of 6.14 it counts while the generation could still be in the window.)

use super::form;
use super::place::{USE_FLAGS, is_file};
use super::tiers::{Standing, tier};
use crate::frame::{Frame, FrameFlags, LruGen};
use crate::knobs::Knob;
use crate::lru::Lru;
use crate::lru::policy::{Evicted, STAMP_BITS};
use crate::machine::Machine;
use crate::platform::Platform;
use crate::stat::Stat;
use crate::units::*;

/// Number of bits of a stamp for uses.
const USE_BITS: u32 = 2;
/// Sequence numbers in a stamp.
const SEQ_MASK: u64 = (1 << (STAMP_BITS - USE_BITS)) - 1;

/// A stamp: the oldest generation, and the uses in addition to the one of the shadow's own bit.
fn stamp(min_seq: u64, uses: u32) -> u64 {
    (min_seq & SEQ_MASK) << USE_BITS | uses.saturating_sub(1) as u64
}

impl Lru {
    /// The shadow of an evicted folio, whose references are frozen.
    pub(in crate::lru) fn evict_generation<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn) -> Shadow {
        let frame = &platform.frames[pfn];
        let (node, group, file) = (frame.node(), frame.group(), is_file(frame.flags()));
        let generations = &self.vec(node, group).generations;
        let Standing { uses, workingset, tier, .. } = Standing::of(platform, frame.flags());
        let min_seq = generations.min_seq(file);
        generations.tiers.evicted(file, LruGen::of(min_seq), tier, frame.pages() as u64);
        Evicted { group, node, stamp: stamp(min_seq, uses), workingset }.pack()
    }

    /// Whether the page of this shadow was evicted from the generation that is still the oldest.
    pub(in crate::lru) fn is_of_oldest(&self, evicted: Evicted, file: bool) -> bool {
        let min_seq = self.vec(evicted.node, evicted.group).generations.min_seq(file);
        evicted.stamp >> USE_BITS == min_seq & SEQ_MASK
    }

    /// Note that a page has returned. `faulted`: a fault needs it.
    pub(in crate::lru) fn refault_generation<M: Machine>(
        &self,
        platform: &Platform<M>,
        pfn: Pfn,
        shadow: Shadow,
        faulted: bool,
    ) {
        let (frame, evicted) = (&platform.frames[pfn], Evicted::unpack(shadow));
        let (file, pages) = (is_file(frame.flags()), frame.pages() as i64);
        if (frame.node(), frame.group()) != (evicted.node, evicted.group) {
            return;
        }
        let of_oldest = self.is_of_oldest(evicted, file);
        if of_oldest || !form::counts_only_oldest(&platform.knobs) {
            self.count_refault(platform, frame.group(), file, pages as u64);
        }
        if form::is_reworked(&platform.knobs) {
            return self.refault_reworked(platform, frame, evicted, faulted);
        }
        if !of_oldest {
            return;
        }
        let uses = (evicted.stamp & ((1 << USE_BITS) - 1)) as u32 + evicted.workingset as u32;
        let generations = &self.vec(evicted.node, evicted.group).generations;
        let oldest = LruGen::of(generations.min_seq(file));
        generations.tiers.refaulted(file, oldest, tier(uses), pages as u64);
        platform.count([Stat::WorkingsetActivateAnon, Stat::WorkingsetActivateFile][file as usize], pages);
        if faulted || uses >= FrameFlags::MAX_USES {
            frame.set(USE_FLAGS - FrameFlags::REFERENCED);
            platform.count([Stat::WorkingsetRestoreAnon, Stat::WorkingsetRestoreFile][file as usize], pages);
        }
    }

    /// The same in the form of 6.14: the folio gets its marks again.
    #[inline(never)]
    fn refault_reworked<M: Machine>(
        &self,
        platform: &Platform<M>,
        frame: &Frame,
        evicted: Evicted,
        faulted: bool,
    ) {
        let (file, pages) = (is_file(frame.flags()), frame.pages() as i64);
        let generations = &self.vec(evicted.node, evicted.group).generations;
        if !form::is_recent(evicted.stamp >> USE_BITS, generations.max_seq(), SEQ_MASK) {
            return;
        }
        let beyond = (evicted.stamp & ((1 << USE_BITS) - 1)) as u32;
        let tier = match platform.knobs.get(Knob::LruGenTiers) {
            0 => 0,
            _ => form::tier(beyond + 1, evicted.workingset),
        };
        let oldest = LruGen::of(generations.min_seq(file));
        generations.tiers.refaulted(file, oldest, tier, pages as u64);
        if faulted && (evicted.workingset || !form::counts_marks(&platform.knobs)) {
            platform
                .count([Stat::WorkingsetActivateAnon, Stat::WorkingsetActivateFile][file as usize], pages);
        }
        if evicted.workingset {
            frame.set(FrameFlags::WORKINGSET);
            platform.count([Stat::WorkingsetRestoreAnon, Stat::WorkingsetRestoreFile][file as usize], pages);
        } else {
            frame.update(|flags| {
                let none = flags - FrameFlags::USES;
                Some((0..beyond).fold(none, |flags, _| flags.with_one_more_use()))
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_holds_generation_and_uses() {
        for (uses, low) in [(0, 0), (1, 0), (2, 1), (4, 3)] {
            assert_eq!(stamp(9, uses), 9 << USE_BITS | low);
        }
        assert!(stamp(u64::MAX, 4) < 1 << STAMP_BITS);
    }
}
