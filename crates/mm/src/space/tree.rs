//! The ranges of one space, by address.

use super::vma::{Vma, VmaView};
use crate::api::Prot;
use crate::table::USER_END;
use crate::tlb::Gather;
use crate::units::*;
use smallvec::SmallVec;
use std_alloc::collections::BTreeMap;
use std_alloc::string::String;

/// Lowest page that is given out without being asked for (64 KiB, so that null pointers fault).
const LOWEST: u64 = 16;
/// Pages kept free above the place of mappings, where stacks stand.
const STACK_GAP: u64 = 1 << (27 - PAGE_SHIFT);

/// Ranges of one space; no two overlap.
#[derive(Default)]
pub struct VmaTree {
    ranges: BTreeMap<u64, Vma>,
    /// Where the last look-up ended: the next one is likely to be there too.
    recent: Option<VmaView>,
}

impl VmaTree {
    /// The range that holds a page.
    #[inline]
    pub fn find(&mut self, page: Vpn) -> Option<VmaView> {
        if let Some(recent) = &self.recent
            && recent.start <= page
            && page < recent.end()
        {
            return Some(*recent);
        }
        let view = self.range_of(page)?.view;
        self.recent = Some(view);
        Some(view)
    }

    /// The range that holds a page, whole.
    pub(super) fn range_of(&self, page: Vpn) -> Option<&Vma> {
        let (_, vma) = self.ranges.range(..=page.0).next_back()?;
        (page < vma.view.end()).then_some(vma)
    }

    /// Change a range in place; its start stays.
    pub(super) fn update<R>(&mut self, start: Vpn, change: impl FnOnce(&mut Vma) -> R) -> R {
        self.recent = None;
        change(self.ranges.get_mut(&start.0).expect("a range that starts here"))
    }

    /// Add a range.
    pub(super) fn insert(&mut self, vma: Vma) {
        debug_assert!(self.overlapping(vma.view.start, vma.view.end()).next().is_none());
        self.recent = None;
        self.ranges.insert(vma.view.start.0, vma);
    }

    /// Take out the range that starts at a page: its addresses are free for something else. Whoever holds a gather of the
    /// space sees to it that no old translation of them is left.
    pub fn remove(&mut self, start: Vpn, gather: &mut Gather) -> Option<Vma> {
        self.recent = None;
        let vma = self.ranges.remove(&start.0)?;
        gather.changes(vma.view.start, vma.view.end());
        Some(vma)
    }

    /// As [`VmaTree::remove`], for the last of the ranges in `[start, end)`, of which none begins before.
    pub(super) fn remove_last(&mut self, end: Vpn, start: Vpn, gather: &mut Gather) -> Option<Vma> {
        let (&last, _) = self.ranges.range(..end.0).next_back().filter(|&(&last, _)| last >= start.0)?;
        self.remove(Vpn(last), gather)
    }

    /// The free addresses around `[start, end)`, in which no range lies.
    pub(super) fn hole(&self, start: Vpn, end: Vpn) -> (Vpn, Vpn) {
        let below = self.ranges.range(..start.0).next_back();
        let above = self.ranges.range(end.0..).next();
        (below.map_or(Vpn(0), |(_, vma)| vma.view.end()), above.map_or(USER_END, |(_, vma)| vma.view.start))
    }

    /// Does a range lie in, or partly in, `[start, end)`?
    pub(super) fn holds_any(&self, start: Vpn, end: Vpn) -> bool {
        let last = self.ranges.range(..end.0).next_back();
        last.is_some_and(|(_, vma)| vma.view.end() > start)
    }

    /// Give a range other rights, with the same promise.
    pub fn protect(&mut self, start: Vpn, prot: Prot, gather: &mut Gather) {
        self.recent = None;
        let vma = self.ranges.get_mut(&start.0).expect("a range that starts here");
        vma.view.prot = prot;
        gather.changes(vma.view.start, vma.view.end());
    }

    /// Take the upper of two ranges out of the tree, whose pages the lower one takes over.
    pub(super) fn absorb(&mut self, start: Vpn) -> Option<Vma> {
        self.recent = None;
        self.ranges.remove(&start.0)
    }

    /// The ranges that lie in, or partly in, `[start, end)`.
    pub(super) fn overlapping(&self, start: Vpn, end: Vpn) -> impl Iterator<Item = &Vma> {
        let before = self.ranges.range(..start.0).next_back().map(|(_, vma)| vma);
        before
            .into_iter()
            .filter(move |vma| vma.view.end() > start)
            .chain(self.ranges.range(start.0..end.0.max(start.0)).map(|(_, vma)| vma))
    }

    /// The range that holds a page, and all behind it.
    pub(super) fn from(&self, page: Vpn) -> impl Iterator<Item = &Vma> {
        self.overlapping(page, USER_END)
    }

    /// Starts of the ranges that lie in, or partly in, `[start, end)`.
    pub(super) fn starts(&self, start: Vpn, end: Vpn) -> SmallVec<[Vpn; 4]> {
        self.overlapping(start, end).map(|vma| vma.view.start).collect()
    }

    /// The range that ends where this page begins.
    pub(super) fn ending_at(&self, page: Vpn) -> Option<&Vma> {
        self.ranges.range(..page.0).next_back().map(|(_, vma)| vma).filter(|vma| vma.view.end() == page)
    }

    /// The range that starts at this page.
    pub(super) fn starting_at(&self, page: Vpn) -> Option<&Vma> {
        self.ranges.get(&page.0)
    }

    /// All ranges.
    pub fn iter(&self) -> impl Iterator<Item = &Vma> {
        self.ranges.values()
    }

    /// Is every page of `[start, end)` mapped?
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
        let mut end = USER_END.0 - STACK_GAP;
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

    /// Check order and overlap.
    pub(super) fn validate(&self) -> Result<(), String> {
        let mut last = Vpn(0);
        for (&start, vma) in &self.ranges {
            let view = &vma.view;
            if start != view.start.0 || view.start < last || view.pages == 0 || view.end() > USER_END {
                return Err(std_alloc::format!("range {view:?} behind {last}"));
            }
            if view.anon.is_some_and(|set| vma.sets.last() != Some(&set)) {
                return Err(std_alloc::format!("range {view:?} has sets {:?}", vma.sets));
            }
            last = view.end();
        }
        Ok(())
    }
}
