//! The ranges of one space, by address.

use super::vma::{Vma, VmaView};
use crate::api::Prot;
use crate::swap::RangeReadahead;
use crate::table::USER_END;
use crate::tlb::Gather;
use crate::units::*;
use smallvec::SmallVec;
use std_alloc::collections::BTreeMap;
use std_alloc::string::String;

/// Lowest page that is chosen for a mapping without a fixed address (64 KiB, so that null pointers fault).
const LOWEST: u64 = 16;
/// Pages kept free above mappings, for stacks.
const STACK_GAP: u64 = 1 << (27 - PAGE_SHIFT);

/// The ranges of one space; no two overlap. The key is a range's end: new ranges are placed below others and merge
/// with them, so most changes move a range's start, which leaves its key as it is.
#[derive(Default)]
pub struct VmaTree {
    ranges: BTreeMap<u64, Vma>,
    /// Result of the last look-up: the next one is likely to hit it too.
    recent: Option<VmaView>,
    /// Pages by which the highest place for a mapping is lower than usual.
    lowered: u64,
}

/// How an interval that is to be unmapped overlaps ranges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Overlap {
    /// No range overlaps it.
    Nothing,
    /// One range begins where the interval begins, and does not end before it.
    Start {
        /// Whether it also ends there: nothing is left of it.
        whole: bool,
    },
    Other,
}

impl VmaTree {
    /// The range that holds a page.
    #[inline]
    pub fn find(&mut self, page: Vpn) -> Option<VmaView> {
        let is_recent =
            self.recent.as_ref().is_some_and(|recent| recent.start <= page && page < recent.end());
        if !is_recent {
            self.recent = Some(self.view_of(page)?);
        }
        self.recent
    }

    /// A look-up that the last one says nothing about. Apart, so that [`VmaTree::find`] copies a range once.
    #[inline(never)]
    fn view_of(&self, page: Vpn) -> Option<VmaView> {
        self.range_of(page).map(|vma| vma.view)
    }

    /// The range that holds a page, or else the first after it.
    #[inline]
    fn first_from(&self, page: Vpn) -> Option<&Vma> {
        self.ranges.range(page.0 + 1..).next().map(|(_, vma)| vma)
    }

    pub(super) fn range_of(&self, page: Vpn) -> Option<&Vma> {
        self.first_from(page).filter(|vma| vma.view.start <= page)
    }

    /// Key of the range that starts at a page.
    fn key_of(&self, start: Vpn) -> Option<u64> {
        self.starting_at(start).map(|vma| vma.view.end().0)
    }

    fn starting_at_mut(&mut self, start: Vpn) -> &mut Vma {
        let found = self.ranges.range_mut(start.0 + 1..).next().map(|(_, vma)| vma);
        found.filter(|vma| vma.view.start == start).expect("a range must start at this page")
    }

    /// Change a range; its start stays.
    pub(super) fn update<R>(&mut self, start: Vpn, change: impl FnOnce(&mut Vma) -> R) -> R {
        self.recent = None;
        let vma = self.starting_at_mut(start);
        let before = vma.view.end().0;
        let result = change(vma);
        let end = vma.view.end().0;
        if end != before {
            let vma = self.ranges.remove(&before).expect("the range was changed under this key");
            self.ranges.insert(end, vma);
        }
        result
    }

    /// Change the swap read-ahead history of the range that starts at a page.
    pub(super) fn change_readahead<R>(
        &mut self,
        start: Vpn,
        change: impl FnOnce(&mut RangeReadahead) -> R,
    ) -> R {
        change(&mut self.starting_at_mut(start).swapped)
    }

    /// Add a range.
    pub(super) fn insert(&mut self, vma: Vma) {
        assert!(vma.view.start < vma.view.end(), "a range must have pages");
        debug_assert!(
            self.overlapping(vma.view.start, vma.view.end()).next().is_none(),
            "ranges must not overlap"
        );
        self.recent = None;
        self.ranges.insert(vma.view.end().0, vma);
    }

    /// Take out the range that starts at a page: its addresses become free. The caller's gather of the space ensures
    /// that no old translation of them is left when it ends.
    pub fn remove(&mut self, start: Vpn, gather: &mut Gather) -> Option<Vma> {
        let end = self.key_of(start)?;
        self.remove_ending_at(Vpn(end), gather)
    }

    /// As [`VmaTree::remove`], for the range that ends at a page.
    pub(super) fn remove_ending_at(&mut self, end: Vpn, gather: &mut Gather) -> Option<Vma> {
        self.recent = None;
        let vma = self.ranges.remove(&end.0)?;
        gather.changes(vma.view.start, vma.view.end());
        Some(vma)
    }

    /// As [`VmaTree::remove`], for the last range in `[start, end)`, over whose end no range reaches.
    pub(super) fn remove_last(&mut self, end: Vpn, start: Vpn, gather: &mut Gather) -> Option<Vma> {
        let (&last, _) =
            self.ranges.range(..=end.0).next_back().filter(|(_, vma)| vma.view.start >= start)?;
        self.remove_ending_at(Vpn(last), gather)
    }

    /// As [`VmaTree::remove`], for the pages before `end` of the range that starts at `start` and ends after `end`.
    /// Returns what is left of the range.
    pub(super) fn remove_start(&mut self, start: Vpn, end: Vpn, gather: &mut Gather) -> Vma {
        self.recent = None;
        let vma = self.starting_at_mut(start);
        vma.view.begin_at(end);
        gather.changes(start, end);
        vma.clone()
    }

    /// How ranges overlap `[start, end)`.
    pub(super) fn overlap(&self, start: Vpn, end: Vpn) -> Overlap {
        match self.first_from(start).map(|vma| &vma.view) {
            Some(view) if view.start == start && end <= view.end() => {
                Overlap::Start { whole: end == view.end() }
            }
            Some(view) if view.start < end => Overlap::Other,
            _ => Overlap::Nothing,
        }
    }

    /// Start of the free addresses that end at `start`, over which no range reaches.
    pub(super) fn free_below(&self, start: Vpn) -> Vpn {
        self.ranges.range(..=start.0).next_back().map_or(Vpn(0), |(&end, _)| Vpn(end))
    }

    /// The free addresses around `[start, end)`, which no range overlaps.
    pub(super) fn hole(&self, start: Vpn, end: Vpn) -> (Vpn, Vpn) {
        (self.free_below(start), self.first_from(end).map_or(USER_END, |vma| vma.view.start))
    }

    /// Change the rights of a range. The gather flushes old translations, as for [`VmaTree::remove`].
    pub fn protect(&mut self, start: Vpn, prot: Prot, gather: &mut Gather) {
        self.recent = None;
        let vma = self.starting_at_mut(start);
        vma.view.prot = prot;
        gather.changes(vma.view.start, vma.view.end());
    }

    /// Merge the two ranges that meet at a page, if the upper one continues the lower one; `grow` extends the lower
    /// one. Returns the upper one, which has left the tree.
    pub(super) fn join(&mut self, page: Vpn, grow: impl FnOnce(&mut Vma, &Vma)) -> Option<Vma> {
        let (lower, upper) = (self.ranges.get(&page.0)?, self.starting_at(page)?);
        if !lower.continues_with(upper) {
            return None;
        }
        let end = upper.view.end().0;
        self.recent = None;
        let mut lower = self.ranges.remove(&page.0)?;
        let merged = self.ranges.get_mut(&end)?;
        grow(&mut lower, merged);
        Some(core::mem::replace(merged, lower))
    }

    /// The ranges that overlap `[start, end)`.
    pub(super) fn overlapping(&self, start: Vpn, end: Vpn) -> impl Iterator<Item = &Vma> {
        self.ranges.range(start.0 + 1..).map(|(_, vma)| vma).take_while(move |vma| vma.view.start < end)
    }

    /// The range that holds a page, and all after it.
    pub(super) fn from(&self, page: Vpn) -> impl Iterator<Item = &Vma> {
        self.overlapping(page, USER_END)
    }

    /// Starts of the ranges that overlap `[start, end)`.
    pub(super) fn starts(&self, start: Vpn, end: Vpn) -> SmallVec<[Vpn; 4]> {
        self.overlapping(start, end).map(|vma| vma.view.start).collect()
    }

    fn starting_at(&self, page: Vpn) -> Option<&Vma> {
        self.first_from(page).filter(|vma| vma.view.start == page)
    }

    /// All ranges.
    pub fn iter(&self) -> impl Iterator<Item = &Vma> {
        self.ranges.values()
    }

    /// Whether every page of `[start, end)` is mapped.
    pub(super) fn covers(&self, start: Vpn, end: Vpn) -> bool {
        let mut at = start;
        for vma in self.overlapping(start, end) {
            if vma.view.start > at {
                return false;
            }
            at = vma.view.end();
        }
        at >= end
    }

    /// The highest free place for `pages` pages below the stacks.
    pub(super) fn gap(&self, pages: u64) -> Option<Vpn> {
        let mut end = USER_END.0 - STACK_GAP - self.lowered;
        for vma in self.ranges.values().rev() {
            let below = vma.view.end().0;
            if below <= end && end - below >= pages {
                break;
            }
            end = end.min(vma.view.start.0);
        }
        let start = end.checked_sub(pages)?;
        (start >= LOWEST).then_some(Vpn(start))
    }

    /// Place new mappings lower by this many pages than usual. The address space has room for them below.
    pub(super) fn lower(&mut self, pages: u64) {
        self.lowered = pages.min((USER_END.0 - STACK_GAP) / 2);
    }

    /// By how many pages they are placed lower than usual.
    pub(super) fn lowered(&self) -> u64 {
        self.lowered
    }

    /// Check order and overlap.
    pub(super) fn validate(&self) -> Result<(), String> {
        let mut last = Vpn(0);
        for (&end, vma) in &self.ranges {
            let view = &vma.view;
            if end != view.end().0 || view.start < last || view.pages == 0 || view.end() > USER_END {
                return Err(std_alloc::format!("range {view:?} after {last}"));
            }
            if view.anon.is_some_and(|set| vma.sets.last() != Some(&set)) {
                return Err(std_alloc::format!("range {view:?} has sets {:?}", vma.sets));
            }
            last = view.end();
        }
        Ok(())
    }
}
