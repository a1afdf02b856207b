//! The daemon that collapses what spaces map page by page, a part of their ranges at a time.
//!
//! A look costs the pages that it is at, whether or not it comes to anything; after `khugepaged.pages_to_scan` of them
//! the daemon sleeps. It begins where it stopped, with the spaces in order of their numbers. When memory has no block
//! for it, it sleeps for `khugepaged.alloc_sleep_millisecs`, and goes on; the second time, it has done for now.
//!
//! Of anonymous memory it takes the ranges that may have folios of 2 MiB by `hugepages-2048kB.enabled`; of files all.

use super::collapse::{CollapseLimits, Collapsed, LARGE, Refused, collapse_at, may_collapse, suits};
use super::{Spaces, Vma, VmaFlags};
use crate::knobs::Knob;
use crate::machine::{Machine, WaitKey};
use crate::memory::Gfp;
use crate::stat::Stat;
use crate::store::Store;
use crate::units::*;

/// Where the next look is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Cursor {
    space: u32,
    page: u64,
}

/// Why khugepaged left a space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Left {
    /// It has been passed.
    Passed,
    /// It has looked at as many pages as it should.
    Tired,
    /// Memory has no block for it.
    NoBlock,
}

impl Spaces {
    /// Collapse until the machine stops.
    pub fn khugepaged<M: Machine>(&self, st: &Store<M>) {
        let mut cursor = Cursor::default();
        while !st.machine.stopping() {
            let ticket = st.machine.ticket(WaitKey::Khugepaged);
            self.scan(st, &mut cursor);
            let sleep = st.knobs.get(Knob::KhugepagedScanSleepMillisecs) * MILLISECOND;
            st.machine.wait(ticket, Some(st.machine.now() + sleep));
        }
    }

    /// Look at some pages, but at none a second time.
    pub(super) fn scan<M: Machine>(&self, st: &Store<M>, cursor: &mut Cursor) {
        let mut left = st.knobs.get(Knob::KhugepagedPagesToScan);
        let mut spaces = st.tlb.bound();
        let mut slept = false;
        while left > 0 && spaces > 0 && !st.machine.stopping() {
            match self.scan_space(st, SpaceId(cursor.space), &mut cursor.page, &mut left) {
                Left::Passed => {
                    *cursor = Cursor { space: cursor.space + 1, page: 0 };
                    spaces -= 1;
                    if cursor.space >= st.tlb.bound() {
                        *cursor = Cursor::default();
                        st.count(Stat::KhugepagedFullScans, 1);
                    }
                }
                Left::Tired => {}
                Left::NoBlock if slept => return,
                Left::NoBlock => {
                    slept = true;
                    let ticket = st.machine.ticket(WaitKey::Khugepaged);
                    let sleep = st.knobs.get(Knob::KhugepagedAllocSleepMillisecs) * MILLISECOND;
                    st.machine.wait(ticket, Some(st.machine.now() + sleep));
                }
            }
        }
    }

    /// Go on in a space.
    fn scan_space<M: Machine>(&self, st: &Store<M>, id: SpaceId, page: &mut u64, left: &mut u64) -> Left {
        let Some(space) = self.list.get(id.0) else { return Left::Passed };
        let held = {
            // While it is held, the space does not end; the semaphore, which its end waits for, keeps it from then on.
            let _life = space.life.lock();
            let runs = space.is_alive() && !space.is_killed();
            if runs { space.mapping.try_write(&st.machine, WaitKey::Space(id)) } else { None }
        };
        // Its own tasks are faster.
        let Some(_held) = held else { return Left::Passed };
        let gfp = Gfp::user(space.group());
        while *left > 0 {
            let next = {
                let vmas = space.vmas.lock();
                let mut places = vmas.from(Vpn(*page)).filter(|vma| wanted(st, vma));
                places.find_map(|vma| first_place(vma, *page).map(|at| (vma.clone(), at)))
            };
            let Some((vma, at)) = next else { return Left::Passed };
            *page = at.0 + LARGE;
            *left = left.saturating_sub(LARGE);
            let limits = CollapseLimits::of_daemon(st);
            match collapse_at(st, (id, space), &vma, at, limits, gfp) {
                Ok(Collapsed::Now) => st.count(Stat::KhugepagedPagesCollapsed, 1),
                Ok(Collapsed::No(Refused::NoBlock)) => return Left::NoBlock,
                // Where memory is short, it is not the time.
                Ok(Collapsed::Before | Collapsed::No(_)) | Err(_) => {}
            }
        }
        Left::Tired
    }
}

/// Is khugepaged to collapse what a range maps?
fn wanted<M: Machine>(st: &Store<M>, vma: &Vma) -> bool {
    let asked = vma.view.flags.contains(VmaFlags::HUGEPAGE);
    let enabled = || st.knobs.anon_sizes().orders(asked).any(|order| order == PAGEBLOCK_ORDER);
    may_collapse(vma) && (vma.view.file.is_some() || enabled())
}

/// The first 2 MiB of a range, from `page` on, that one entry could map.
fn first_place(vma: &Vma, page: u64) -> Option<Vpn> {
    let at = Vpn(page.max(vma.view.start.0).next_multiple_of(LARGE));
    suits(&vma.view, at).then_some(at)
}
