//! Refault distance: whether a page that returns was evicted too early.
//!
//! Problem: a page that is used once in each round of a loop larger than the inactive list is evicted just before each
//! use, while pages on the active list may be idle. When it returns, it looks new.
//!
//! Rule: a vector has a clock that counts evictions and activations, that is, how far its inactive list has moved. An
//! evicted page leaves the time in a [`Shadow`]. When it returns, the distance is how much longer the inactive list
//! would have had to be to keep it. If the lists that it competes with (the active lists, and the inactive list of the
//! other type) are at least as large together, the page is activated at once.
//!
//! Source: mm/workingset.c of Linux 6.12 (Johannes Weiner).

use super::policy::{Evicted, PolicyKind, STAMP_BITS};
use super::{Known, Lru, LruList, LruVec};
use crate::frame::FrameFlags;
use crate::machine::Machine;
use crate::platform::Platform;
use crate::primitive::Ordering::Relaxed;
use crate::stat::{GroupStat, Stat};
use crate::units::*;

/// Bits of a shadow: the number of a group, the number of a node, and one bit for a page of the working set.
const GROUP_BITS: u32 = 16;
const NODE_BITS: u32 = 8;
const SHIFT: u32 = GROUP_BITS + NODE_BITS + 1;
/// Number of bits of a shadow that a slot of a file's tree can hold.
const WIDTH: u32 = SHIFT + STAMP_BITS;
/// The bits for the clock: at a million evictions a second they last for more than a day.
const AGE_MASK: u64 = (1 << STAMP_BITS) - 1;

const _: () = assert!(WIDTH == 62);

impl Evicted {
    pub fn pack(self) -> Shadow {
        let stamp = self.stamp & AGE_MASK;
        let node = stamp << NODE_BITS | self.node.0 as u64;
        let group = node << GROUP_BITS | self.group.0 as u64;
        Shadow(group << 1 | self.workingset as u64)
    }

    pub fn unpack(shadow: Shadow) -> Evicted {
        let word = shadow.0;
        Evicted {
            workingset: word & 1 != 0,
            group: GroupId((word >> 1) as u16),
            node: NodeId((word >> (1 + GROUP_BITS)) as u8),
            stamp: word >> SHIFT & AGE_MASK,
        }
    }
}

impl Known {
    /// Size of the working set that a page of the type competes with. Anonymous memory counts only if it could be
    /// swapped out.
    fn competing(&self, file: bool, swap_free: bool) -> u64 {
        let mut size = self.pages(LruList::ActiveFile);
        if !file {
            size += self.pages(LruList::InactiveFile);
        }
        if swap_free {
            size += self.pages(LruList::ActiveAnon);
            if file {
                size += self.pages(LruList::InactiveAnon);
            }
        }
        size
    }
}

/// The vector of a returning page, and the size that its distance is compared with.
struct Rivals<'a> {
    vec: &'a LruVec,
    size: u64,
}

impl<'a> Rivals<'a> {
    /// `None`: the vector does not exist any more.
    fn of<M: Machine>(
        platform: &Platform<M>,
        lru: &'a Lru,
        evicted: Evicted,
        file: bool,
        swap_free: impl Fn() -> u64,
    ) -> Option<Rivals<'a>> {
        if !lru.groups.is_live(evicted.group) || evicted.node.index() >= lru.nodes() {
            return None;
        }
        let vec = lru.vec(evicted.node, evicted.group);
        let known = lru.known(platform, evicted.node, evicted.group);
        Some(Rivals { vec, size: known.competing(file, swap_free() > 0) })
    }

    /// Whether the distance of the page is at most the size.
    #[inline]
    fn has_room_for(&self, shadow: Shadow) -> bool {
        let age = Evicted::unpack(shadow).stamp;
        refault_distance(age, self.vec.nonresident_age.load(Relaxed)) <= self.size
    }
}

/// The progress of the clock from an eviction until now, modulo the bits in a shadow.
pub(crate) fn refault_distance(evicted: u64, now: u64) -> u64 {
    now.wrapping_sub(evicted) & AGE_MASK
}

impl Lru {
    /// Advance the clocks of the vector and of all groups above: `pages` were evicted or activated.
    pub(crate) fn age_nonresident(&self, node: NodeId, group: GroupId, pages: u64) {
        for group in self.groups.upwards(group) {
            self.vec(node, group).nonresident_age.fetch_add(pages, Relaxed);
        }
    }

    /// The shadow of a folio that is evicted by reclaim of `group` ([`GroupId`] 0: of the node). The caller has frozen
    /// the folio's references.
    #[inline]
    pub(crate) fn eviction<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn, group: GroupId) -> Shadow {
        let frame = &platform.frames[pfn];
        match self.policy_of(frame) {
            PolicyKind::Classic => {}
            PolicyKind::MgLru => return self.evict_generation(platform, pfn),
            PolicyKind::Proposed(_) => return self.evict_proposed(platform, pfn),
        }
        let (node, pages) = (frame.node(), frame.pages() as u64);
        let age = self.vec(node, group).nonresident_age.fetch_add(pages, Relaxed);
        for above in self.groups.above(group) {
            self.vec(node, above).nonresident_age.fetch_add(pages, Relaxed);
        }
        Evicted { group, node, stamp: age, workingset: frame.has(FrameFlags::WORKINGSET) }.pack()
    }

    /// Pages have returned: each in a new folio that is charged, locked and not on a list yet, all of one group, and
    /// all or none of files. Counts the refaults, and makes the folios active whose distance is small enough.
    /// Consecutive pages of one vector are compared with the same sizes. `swap_free` is the number of free swap slots.
    pub(crate) fn refault<M: Machine>(
        &self,
        platform: &Platform<M>,
        back: &[(Pfn, Shadow)],
        swap_free: impl Fn() -> u64,
        faulted: bool,
    ) {
        let Some(&(first, _)) = back.first() else { return };
        match self.policy_of(&platform.frames[first]) {
            PolicyKind::Classic => {}
            PolicyKind::MgLru => {
                return back
                    .iter()
                    .for_each(|&(pfn, shadow)| self.refault_generation(platform, pfn, shadow, faulted));
            }
            PolicyKind::Proposed(_) => {
                return back.iter().for_each(|&(pfn, shadow)| self.refault_proposed(platform, pfn, shadow));
            }
        }
        let file = !platform.frames[first].has(FrameFlags::SWAPBACKED);
        let alike = |pfn: Pfn| platform.frames[pfn].has(FrameFlags::SWAPBACKED) != file;
        debug_assert!(back.iter().all(|&(pfn, _)| alike(pfn)), "pages of files and others must not be mixed");
        let mut rivals: Option<(GroupId, NodeId, Option<Rivals<'_>>)> = None;
        let mut refaulted = 0;
        for &(pfn, shadow) in back {
            let evicted = Evicted::unpack(shadow);
            refaulted += platform.frames[pfn].pages() as u64;
            if rivals.as_ref().is_none_or(|&(group, node, _)| (group, node) != (evicted.group, evicted.node))
            {
                let found = Rivals::of(platform, self, evicted, file, &swap_free);
                rivals = Some((evicted.group, evicted.node, found));
            }
            let (_, _, found) = rivals.as_ref().expect("it is set");
            if found.as_ref().is_some_and(|rivals| rivals.has_room_for(shadow)) {
                self.activate_refaulted(platform, pfn, evicted, file);
            }
        }
        self.count_refault(platform, platform.frames[first].group(), file, refaulted);
    }

    pub(super) fn count_refault<M: Machine>(
        &self,
        platform: &Platform<M>,
        group: GroupId,
        file: bool,
        pages: u64,
    ) {
        platform
            .count([Stat::WorkingsetRefaultAnon, Stat::WorkingsetRefaultFile][file as usize], pages as i64);
        let stat = [GroupStat::WorkingsetRefaultAnon, GroupStat::WorkingsetRefaultFile][file as usize];
        self.groups.count(group, stat, pages);
    }

    #[inline(never)]
    fn activate_refaulted<M: Machine>(&self, platform: &Platform<M>, pfn: Pfn, evicted: Evicted, file: bool) {
        let frame = &platform.frames[pfn];
        let (node, group, pages) = (frame.node(), frame.group(), frame.pages() as i64);
        frame.set(FrameFlags::ACTIVE);
        self.age_nonresident(node, group, pages as u64);
        for group in self.groups.upwards(group) {
            self.vec(node, group).activations[file as usize].fetch_add(pages as u64, Relaxed);
        }
        platform.count([Stat::WorkingsetActivateAnon, Stat::WorkingsetActivateFile][file as usize], pages);
        if evicted.workingset {
            frame.set(FrameFlags::WORKINGSET);
            self.note_cost(platform, (node, group), file, pages as u64, 0);
            platform.count([Stat::WorkingsetRestoreAnon, Stat::WorkingsetRestoreFile][file as usize], pages);
        }
    }

    /// Note costs of reclaiming the group's folios, also for all groups above.
    pub(crate) fn note_cost<M: Machine>(
        &self,
        platform: &Platform<M>,
        (node, group): (NodeId, GroupId),
        file: bool,
        nr_io: u64,
        nr_rotated: u64,
    ) {
        if nr_io == 0 && nr_rotated == 0 {
            return;
        }
        for group in self.groups.upwards(group) {
            let size = self.known(platform, node, group).evictable();
            self.vec(node, group).lock().cost.note(file, nr_io, nr_rotated, size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn shadows_keep_their_content(group: u16, node: u8, age: u64, workingset: bool) {
            let evicted = Evicted { group: GroupId(group), node: NodeId(node), stamp: age & AGE_MASK, workingset };
            let shadow = evicted.pack();
            prop_assert!(shadow.0 < 1 << WIDTH);
            prop_assert_eq!(Evicted::unpack(shadow), evicted);
        }

        /// The distance is right although the shadow holds only some bits of the clock.
        #[test]
        fn distance_survives_a_wrap(start: u64, passed in 0..=AGE_MASK) {
            prop_assert_eq!(refault_distance(start & AGE_MASK, start.wrapping_add(passed)), passed);
        }
    }

    /// The test vector of reclaim.md, section 6.
    #[test]
    fn file_page_competes_with_the_active_file_list_without_swap() {
        let distance = refault_distance(1000, 1500);
        for (active_file, activate) in [(400, false), (500, true)] {
            let known = Known { pages: [9, 9, 10_000, active_file], ..Known::default() };
            assert_eq!(distance <= known.competing(true, false), activate, "{active_file} active pages");
        }
    }

    #[test]
    fn each_type_competes_with_the_other_lists() {
        // By list: anonymous and file, inactive and active of each.
        let known = Known { pages: [1000, 100, 10, 1], ..Known::default() };
        let sizes = [(true, false), (false, false), (true, true), (false, true)];
        assert_eq!(sizes.map(|(file, swap)| known.competing(file, swap)), [1, 11, 1101, 111]);
    }
}
