//! khugepaged: the daemon that collapses memory that is mapped page by page, a part of the spaces' ranges at a time.
//!
//! Looking at a place costs its pages from the budget, whether or not it is collapsed. After
//! `khugepaged.pages_to_scan` pages the daemon sleeps. Its cursor goes through the spaces in order of their ids, and
//! the next scan resumes there. If memory has no free block of 2 MiB, it sleeps for `khugepaged.alloc_sleep_millisecs`
//! and continues; the second time it ends the scan.
//!
//! It scans ranges of files, and those ranges of anonymous memory for which `hugepages-2048kB.enabled` allows 2 MiB.

use super::collapse::{CollapseError, CollapseLimits, Collapsed, LARGE, collapse_at, may_collapse, suits};
use super::fault::PmdRange;
use super::{Spaces, Vma, VmaFlags};
use crate::knobs::Knob;
use crate::machine::{Machine, WaitKey};
use crate::memory::Gfp;
use crate::mm_core::MmCore;
use crate::stat::Stat;
use crate::units::*;

/// Where the next look is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct ScanCursor {
    space: u32,
    page: u64,
}

/// Why khugepaged left a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ScanStop {
    /// The cursor has reached its end.
    SpaceDone,
    /// The budget of pages is spent.
    BudgetSpent,
    /// Memory has no free block of 2 MiB.
    NoBlock,
}

impl Spaces {
    /// Collapse until the machine stops.
    pub(crate) fn khugepaged<M: Machine>(&self, core: &MmCore<M>) {
        let mut cursor = ScanCursor::default();
        while !core.machine.stopping() {
            let ticket = core.machine.ticket(WaitKey::Khugepaged);
            self.scan(core, &mut cursor);
            let sleep = core.knobs.get(Knob::KhugepagedScanSleepMillisecs) * MILLISECOND;
            core.machine.wait(ticket, Some(core.machine.now() + sleep));
        }
    }

    /// One scan: look at as many pages as the budget allows, and at no space twice.
    pub(super) fn scan<M: Machine>(&self, core: &MmCore<M>, cursor: &mut ScanCursor) {
        let mut left = core.knobs.get(Knob::KhugepagedPagesToScan);
        let mut spaces = core.tlb.bound();
        let mut slept = false;
        while left > 0 && spaces > 0 && !core.machine.stopping() {
            match self.scan_space(core, SpaceId(cursor.space), &mut cursor.page, &mut left) {
                ScanStop::SpaceDone => {
                    *cursor = ScanCursor { space: cursor.space + 1, page: 0 };
                    spaces -= 1;
                    if cursor.space >= core.tlb.bound() {
                        *cursor = ScanCursor::default();
                        core.count(Stat::KhugepagedFullScans, 1);
                    }
                }
                ScanStop::BudgetSpent => {}
                ScanStop::NoBlock if slept => return,
                ScanStop::NoBlock => {
                    slept = true;
                    let ticket = core.machine.ticket(WaitKey::Khugepaged);
                    let sleep = core.knobs.get(Knob::KhugepagedAllocSleepMillisecs) * MILLISECOND;
                    core.machine.wait(ticket, Some(core.machine.now() + sleep));
                }
            }
        }
    }

    fn scan_space<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        page: &mut u64,
        left: &mut u64,
    ) -> ScanStop {
        let Some(space) = self.list.get(id.0) else { return ScanStop::SpaceDone };
        let held = {
            // `life` keeps the space alive until the semaphore is taken; its exit waits for the semaphore.
            let _life = space.life.lock();
            let runs = space.is_alive() && !space.is_killed();
            if runs { space.mapping.try_write(&core.machine, WaitKey::Space(id)) } else { None }
        };
        // The space's own tasks have precedence.
        let Some(_held) = held else { return ScanStop::SpaceDone };
        let gfp = Gfp::user(space.group());
        while *left > 0 {
            let next = {
                let vmas = space.vmas.lock();
                let mut places = vmas.from(Vpn(*page)).filter(|vma| wanted(core, vma));
                places.find_map(|vma| first_place(vma, *page).map(|at| (vma.clone(), at)))
            };
            let Some((vma, at)) = next else { return ScanStop::SpaceDone };
            *page = at.0 + LARGE;
            *left = left.saturating_sub(LARGE);
            let limits = CollapseLimits::of_daemon(core);
            match collapse_at(core, &PmdRange { id, space, vma: &vma.view, start: at, gfp }, limits) {
                Ok(Collapsed::Now) => core.count(Stat::KhugepagedPagesCollapsed, 1),
                Ok(Collapsed::No(CollapseError::NoBlock)) => return ScanStop::NoBlock,
                // A place that is short of memory is left for a later scan.
                Ok(Collapsed::Before | Collapsed::No(_)) | Err(_) => {}
            }
        }
        ScanStop::BudgetSpent
    }
}

/// Whether khugepaged may collapse what a range maps.
fn wanted<M: Machine>(core: &MmCore<M>, vma: &Vma) -> bool {
    let asked = vma.view.flags.contains(VmaFlags::HUGEPAGE);
    let enabled = || core.knobs.anon_sizes().orders(asked).any(|order| order == PAGEBLOCK_ORDER);
    may_collapse(vma) && (vma.view.file.is_some() || enabled())
}

/// The first 2 MiB of a range, from `page` on, that one entry could map.
fn first_place(vma: &Vma, page: u64) -> Option<Vpn> {
    let at = Vpn(page.max(vma.view.start.0).next_multiple_of(LARGE));
    suits(&vma.view, at).then_some(at)
}
