//! The daemon that collapses what spaces map page by page, a part of their ranges at a time.
//!
//! A look costs the pages that it is at, whether or not it comes to anything; after `khugepaged.pages_to_scan` of them
//! the daemon sleeps. It begins where it stopped, with the spaces in order of their numbers. When memory has no block
//! for it, it sleeps for `khugepaged.alloc_sleep_millisecs`, and goes on; the second time, it has done for now.
//!
//! Of anonymous memory it takes the ranges that may have folios of 2 MiB by `hugepages-2048kB.enabled`; of files all.

use super::collapse::{CollapseError, CollapseLimits, Collapsed, LARGE, collapse_at, may_collapse, suits};
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
    /// It has been passed.
    SpaceDone,
    /// It has looked at as many pages as it should.
    BudgetSpent,
    /// Memory has no block for it.
    NoBlock,
}

impl Spaces {
    /// Collapse until the machine stops.
    pub fn khugepaged<M: Machine>(&self, core: &MmCore<M>) {
        let mut cursor = ScanCursor::default();
        while !core.machine.stopping() {
            let ticket = core.machine.ticket(WaitKey::Khugepaged);
            self.scan(core, &mut cursor);
            let sleep = core.knobs.get(Knob::KhugepagedScanSleepMillisecs) * MILLISECOND;
            core.machine.wait(ticket, Some(core.machine.now() + sleep));
        }
    }

    /// Look at some pages, but at none a second time.
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

    /// Go on in a space.
    fn scan_space<M: Machine>(
        &self,
        core: &MmCore<M>,
        id: SpaceId,
        page: &mut u64,
        left: &mut u64,
    ) -> ScanStop {
        let Some(space) = self.list.get(id.0) else { return ScanStop::SpaceDone };
        let held = {
            // While it is held, the space does not end; the semaphore, which its end waits for, keeps it from then on.
            let _life = space.life.lock();
            let runs = space.is_alive() && !space.is_killed();
            if runs { space.mapping.try_write(&core.machine, WaitKey::Space(id)) } else { None }
        };
        // Its own tasks are faster.
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
            match collapse_at(core, (id, space), &vma, at, limits, gfp) {
                Ok(Collapsed::Now) => core.count(Stat::KhugepagedPagesCollapsed, 1),
                Ok(Collapsed::No(CollapseError::NoBlock)) => return ScanStop::NoBlock,
                // Where memory is short, it is not the time.
                Ok(Collapsed::Before | Collapsed::No(_)) | Err(_) => {}
            }
        }
        ScanStop::BudgetSpent
    }
}

/// Is khugepaged to collapse what a range maps?
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
